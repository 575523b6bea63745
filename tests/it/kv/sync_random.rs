//! Random histories of a publisher, its connection and its replays, faults of every kind among them, against what was true.
//!
//! A view in step shows what some batch of the publisher left, by that batch's number, and never a hit more; when the
//! faults end, it shows all of it. A snapshot may leave out blocks whose parent was gone when it was made, and so may the
//! view until the next one. A second publisher, whose topic is longer, is behind the same address.

use std::collections::VecDeque;

use pdreplay::base::Dur;
use pdreplay::kv::index::Match;
use pdreplay::kv::sync::{SyncInput, SyncOptions, SyncReason, SyncState};
use pdreplay::kv::wire::{end_frames, replay_frames};
use pdreplay::kv::{Dialect, Recovery, Tier};
use proptest::collection::vec;
use proptest::prelude::*;

use super::driver::{Driver, batch, payload, reply_topic, spec};
use super::publisher::{DEPTH, Draw, KINDS, Publisher, Sent, prompts, tokens};

#[derive(Debug, Clone)]
enum Act {
    Publish(Vec<Draw>),
    PublishAll,
    /// A batch of the other publisher arrives.
    Other(Vec<Draw>),
    OtherAll,
    /// So many messages arrive.
    Deliver(usize),
    Drop,
    Duplicate,
    Swap,
    /// The publisher answers the request it has.
    Serve,
    /// So many replies arrive.
    Reply(usize),
    LoseReplies,
    EmptyReply,
    /// A reply of another rank's publisher.
    ForeignReply,
    /// The other publisher answers, where replies tell.
    OtherReplies,
    ReplayFails,
    Disconnect,
    Connect,
    /// With its connections broken, or behind somebody who keeps them up.
    Restart {
        is_noticed: bool,
    },
    Wait(u64),
}

struct World {
    driver: Driver,
    options: SyncOptions,
    publisher: Publisher,
    other: Publisher,
    is_connected: bool,
    live: VecDeque<Sent>,
    request: Option<(u32, u64)>,
    replies: VecDeque<(u32, Vec<Vec<u8>>)>,
    seen_attempt: u32,
    /// Views of processes before this one are over.
    noticed: u64,
}

impl World {
    fn new(options: SyncOptions, ring: usize) -> World {
        let mut driver = Driver::default();
        driver.add(spec("w", 0, 1000), options.clone());
        World {
            driver,
            publisher: Publisher::new(options.clone(), ring),
            other: Publisher::new(SyncOptions { topic: "kv2".into(), ..options.clone() }, ring),
            options,
            is_connected: false,
            live: VecDeque::new(),
            request: None,
            replies: VecDeque::new(),
            seen_attempt: 0,
            noticed: 0,
        }
    }

    fn act(&mut self, act: &Act) -> Result<(), TestCaseError> {
        match act {
            Act::Publish(draws) => self.send(|publisher| publisher.publish(draws)),
            Act::PublishAll => self.send(Publisher::publish_all),
            Act::Other(draws) => {
                let (_, frames) = self.other.publish(draws);
                self.input(SyncInput::Live(&frames))?;
            }
            Act::OtherAll => {
                let (_, frames) = self.other.publish_all();
                self.input(SyncInput::Live(&frames))?;
            }
            Act::Deliver(count) => {
                for _ in 0..*count {
                    self.deliver()?;
                }
            }
            Act::Drop => drop(self.live.pop_front()),
            Act::Duplicate => {
                self.live.front().cloned().into_iter().for_each(|sent| self.live.push_front(sent));
                self.deliver()?;
                self.deliver()?;
            }
            Act::Swap if self.live.len() > 1 => self.live.swap(0, 1),
            Act::Swap => {}
            Act::Serve => self.serve(),
            Act::Reply(count) => {
                for _ in 0..*count {
                    self.reply()?;
                }
            }
            Act::LoseReplies => self.replies.clear(),
            Act::EmptyReply => self.answer(end_frames(None)),
            Act::ForeignReply => {
                let bytes = payload(&self.options, &batch(1.8e9, 9, Vec::new()));
                self.answer(replay_frames(reply_topic(&self.options), 99, bytes));
            }
            Act::OtherReplies if reply_topic(&self.options).is_some() => {
                if let Some((attempt, from)) = self.request.take() {
                    let replies = self.other.replies(from);
                    self.replies.extend(replies.into_iter().map(|frames| (attempt, frames)));
                }
            }
            Act::OtherReplies => {}
            Act::ReplayFails => {
                let attempt = self.seen_attempt;
                self.request = None;
                self.input(SyncInput::ReplayFailed { attempt, why: "told to" })?;
            }
            Act::Disconnect => self.disconnect()?,
            Act::Connect => self.connect()?,
            Act::Restart { is_noticed: true } => {
                self.disconnect()?;
                self.publisher.restart();
            }
            Act::Restart { is_noticed: false } => self.restart_unnoticed()?,
            Act::Wait(ms) => {
                self.driver.wait(Dur::from_millis(*ms));
                self.check()?;
            }
        }
        Ok(())
    }

    fn send(&mut self, publish: impl FnOnce(&mut Publisher) -> Sent) {
        let sent = publish(&mut self.publisher);
        if self.is_connected {
            self.live.push_back(sent);
        }
    }

    fn deliver(&mut self) -> Result<(), TestCaseError> {
        let Some((process, frames)) = self.live.pop_front() else { return Ok(()) };
        self.noticed = self.noticed.max(process);
        self.input(SyncInput::Live(&frames))
    }

    fn serve(&mut self) {
        if let Some((attempt, from)) = self.request.take() {
            let replies = self.publisher.replies(from);
            self.replies.extend(replies.into_iter().map(|frames| (attempt, frames)));
        }
    }

    fn answer(&mut self, frames: Vec<Vec<u8>>) {
        if let Some((attempt, _)) = self.request.take() {
            self.replies.push_back((attempt, frames));
        }
    }

    fn reply(&mut self) -> Result<(), TestCaseError> {
        let Some((attempt, frames)) = self.replies.pop_front() else { return Ok(()) };
        self.input(SyncInput::Replay { attempt, frames: &frames })
    }

    fn disconnect(&mut self) -> Result<(), TestCaseError> {
        self.is_connected = false;
        self.live.clear();
        self.request = None;
        self.input(SyncInput::Disconnected("told to"))
    }

    fn connect(&mut self) -> Result<(), TestCaseError> {
        if self.is_connected {
            return Ok(());
        }
        self.is_connected = true;
        self.noticed = self.publisher.process();
        self.input(SyncInput::Connected)
    }

    /// The subscription stays, everything on its way is lost, and the new process's first batch arrives.
    fn restart_unnoticed(&mut self) -> Result<(), TestCaseError> {
        self.live.clear();
        self.replies.clear();
        self.publisher.restart();
        self.act(&Act::ReplayFails)?;
        self.send(|publisher| publisher.publish(&[Draw::Store(vec![0])]));
        self.deliver()
    }

    fn input(&mut self, input: SyncInput<'_>) -> Result<(), TestCaseError> {
        self.driver.input(0, input);
        self.check()
    }

    fn check(&mut self) -> Result<(), TestCaseError> {
        let said = self.driver.said(0);
        if said.attempt != self.seen_attempt {
            self.seen_attempt = said.attempt;
            self.request = Some((said.attempt, *said.asks.last().unwrap()));
        }
        let report = self.driver.report(0);
        prop_assert!(report.stats.buffered_bytes <= self.options.max_buffered_bytes);
        prop_assert!(self.is_connected || report.state == SyncState::Disconnected);
        let found: Vec<Match> = prompts().map(|prompt| self.driver.query(0, &tokens(&prompt))).collect();
        if report.state != SyncState::Synced {
            prop_assert!(found.iter().all(|found| found.reusable_tokens() == 0 && !found.stream.synchronized));
            return Ok(());
        }
        let sequence = report.status.sequence.unwrap();
        let mut processes = self.noticed..=self.publisher.process();
        let is_true = processes.any(|process| self.holds(process, sequence, &found, false));
        prop_assert!(is_true, "at {sequence}: {report:#?} {:#?}", self.driver.said(0).changes);
        Ok(())
    }

    /// Whether what was found is true as of a batch: a beginning of it, or `whole`.
    fn holds(&self, process: u64, sequence: u64, found: &[Match], whole: bool) -> bool {
        prompts().zip(found).all(|(prompt, found)| {
            let Some(truth) = self.publisher.truth(process, sequence, &prompt) else { return false };
            let blocks = found.reusable_tokens() as usize / 4;
            let on_device = truth.iter().take(blocks).filter(|tier| **tier == Tier::Device).count();
            found.device_hit_tokens as usize / 4 == on_device
                && if whole { blocks == truth.len() } else { blocks <= truth.len() }
        })
    }

    /// Nothing goes wrong any more, for as long as two calibrations take.
    fn come_to_rest(&mut self) -> Result<(), TestCaseError> {
        self.connect()?;
        self.send(|publisher| publisher.publish(&[]));
        let refreshes = self.driver.report(0).stats.refreshes;
        for _ in 0..60 {
            let everything = self.live.len();
            self.act(&Act::Deliver(everything))?;
            self.serve();
            let everything = self.replies.len();
            self.act(&Act::Reply(everything))?;
            let report = self.driver.report(0);
            if report.reason == SyncReason::HistoryTruncated && report.state == SyncState::Unsynced {
                self.send(Publisher::publish_all);
            }
            if report.state == SyncState::Synced && report.stats.refreshes >= refreshes + 2 {
                break;
            }
            self.act(&Act::Wait(20))?;
        }
        let report = self.driver.report(0);
        prop_assert_eq!(report.state, SyncState::Synced, "{:#?} {:#?}", report, self.driver.said(0).changes);
        prop_assert_eq!(report.status.sequence, self.publisher.last());
        let found: Vec<Match> = prompts().map(|prompt| self.driver.query(0, &tokens(&prompt))).collect();
        let sequence = report.status.sequence.unwrap();
        prop_assert!(self.holds(self.publisher.process(), sequence, &found, true), "not all at {sequence}");
        Ok(())
    }
}

fn path() -> impl Strategy<Value = Vec<u8>> {
    vec(0..KINDS, 1..=DEPTH)
}

fn draw() -> impl Strategy<Value = Draw> {
    prop_oneof![
        6 => path().prop_map(Draw::Store),
        3 => path().prop_map(Draw::Offload),
        4 => (path(), prop::sample::select(Tier::ALL.to_vec())).prop_map(|(path, tier)| Draw::Remove(path, tier)),
        1 => Just(Draw::Clear),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        12 => vec(draw(), 0..4).prop_map(Act::Publish),
        1 => Just(Act::PublishAll),
        14 => (1..4usize).prop_map(Act::Deliver),
        3 => Just(Act::Drop),
        1 => Just(Act::Duplicate),
        1 => Just(Act::Swap),
        10 => Just(Act::Serve),
        10 => (1..20usize).prop_map(Act::Reply),
        1 => Just(Act::LoseReplies),
        1 => Just(Act::EmptyReply),
        1 => Just(Act::ForeignReply),
        2 => Just(Act::OtherReplies),
        4 => vec(draw(), 0..4).prop_map(Act::Other),
        1 => Just(Act::OtherAll),
        1 => Just(Act::ReplayFails),
        1 => Just(Act::Disconnect),
        6 => Just(Act::Connect),
        2 => any::<bool>().prop_map(|is_noticed| Act::Restart { is_noticed }),
        4 => (1..80u64).prop_map(Act::Wait),
    ]
}

fn options() -> impl Strategy<Value = SyncOptions> {
    let dialect = prop::sample::select(vec![Dialect::Xllm, Dialect::Vllm, Dialect::Sglang]);
    (dialect, any::<bool>(), any::<bool>()).prop_map(|(dialect, is_narrow, asks_nothing)| {
        let mut options = SyncOptions::new(dialect);
        options.topic = "kv".into();
        options.max_buffered_bytes = if is_narrow { 1500 } else { 1 << 20 };
        options.replay_timeout = Dur::from_millis(50);
        options.resync_interval = Dur::from_millis(100);
        options.retry_first = Dur::from_millis(5);
        options.retry_most = Dur::from_millis(40);
        if asks_nothing && is_narrow && dialect == Dialect::Xllm {
            options.recovery = Recovery::History;
        }
        options
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn no_view_in_step_shows_what_was_never_true(
        options in options(),
        ring in prop_oneof![3..8usize, Just(10_000)],
        acts in vec(act(), 1..120),
    ) {
        let mut world = World::new(options, ring);
        world.connect()?;
        for act in &acts {
            world.act(act)?;
        }
        world.come_to_rest()?;
    }
}
