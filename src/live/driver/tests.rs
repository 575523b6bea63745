//! The loop against a client that answers from memory.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::{Mutex, mpsc, oneshot};

use super::relay::relay;
use super::turn::{BEGUN_AT_ONCE, Turning, Wire};
use super::{Ends, TOLD};
use crate::base::{Dur, RequestIx, Role, Time, WorkerId};
use crate::live::Heard;
use crate::live::clock::Clock;
use crate::protocol::{Action, Answer, Event, Finish, Generate, Outgoing, Phases, Route, TokenRun};
use crate::record::{LedgerEvent, LedgerKind, Outcome, RequestRecord};
use crate::replay::{Observer, Progress, Replayer};
use crate::scenario::{Setup, load_text};
use crate::trace::{ReadOptions, Trace, read_bytes};

/// Answers every request in full after a wait; the hanging ones never, and no abort. Sends one request at a time, each in its turn.
struct Memory {
    heard: mpsc::Sender<Heard>,
    clock: Clock,
    /// Wait before each send, as for room for a long body.
    waits: Duration,
    turn: Arc<Mutex<()>>,
    takes: Duration,
    hangs: Vec<RequestIx>,
    aborted: Vec<RequestIx>,
}

impl Wire for Memory {
    fn perform(&mut self, action: Action) {
        match action {
            Action::Generate(ask) => {
                let (heard, clock, takes, waits) = (self.heard.clone(), self.clock, self.takes, self.waits);
                let (hangs, turn) = (self.hangs.contains(&ask.request), Arc::clone(&self.turn));
                let Route::Worker(worker) = ask.route else { panic!("dp posts to workers") };
                tokio::spawn(async move {
                    let turn = turn.lock().await;
                    if !waits.is_zero() {
                        tokio::time::sleep(waits).await;
                    }
                    let sent = Event::Sent { what: Outgoing::Request(ask.request), at: clock.now() };
                    let _ = heard.send(Heard::Event(sent)).await;
                    drop(turn);
                    if hangs {
                        return;
                    }
                    tokio::time::sleep(takes).await;
                    let answer = answer(ask.request, worker, ask.output_tokens, clock.now());
                    let _ = heard.send(Heard::Event(Event::Finished(Box::new(answer)))).await;
                });
            }
            Action::Abort { request } => self.aborted.push(request),
            Action::OpenSession { .. } | Action::CloseSession { .. } | Action::Admit { .. } | Action::PollLoads => {}
        }
    }
}

fn answer(request: RequestIx, worker: WorkerId, tokens: u32, now: Time) -> Answer {
    Answer {
        request,
        finish: Finish::Length,
        http_status: Some(200),
        prefill_worker: None,
        decode_worker: Some(worker),
        incarnation: Some(0),
        cached_tokens: Some(0),
        output_tokens: tokens,
        first_token_at: Some(now),
        last_token_at: Some(now),
        phases: Phases::default(),
        retractions: 0,
        token_runs: vec![TokenRun { first: now, step: Dur::ZERO, count: tokens }],
        attempts: 1,
        retry_wait: Dur::ZERO,
    }
}

/// Keeps everything; breaks off, or fails, once so many records are there.
#[derive(Default)]
struct Keeper {
    records: Vec<RequestRecord>,
    ledger: Vec<LedgerEvent>,
    idles: usize,
    break_after: Option<usize>,
    fail_after: Option<usize>,
    /// Time that a record takes it.
    takes: Duration,
}

impl Observer for Keeper {
    #[expect(clippy::disallowed_methods, reason = "a disk that is slow by the wall's clock is what is tried")]
    fn record(&mut self, record: &RequestRecord, _: &[TokenRun]) -> io::Result<()> {
        self.records.push(record.clone());
        std::thread::sleep(self.takes);
        if self.fail_after == Some(self.records.len()) { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn ledger(&mut self, event: &LedgerEvent) -> io::Result<()> {
        self.ledger.push(event.clone());
        Ok(())
    }

    fn idle(&mut self) -> io::Result<()> {
        self.idles += 1;
        Ok(())
    }

    fn progress(&mut self, _: &Progress) -> ControlFlow<()> {
        let breaks = self.break_after.is_some_and(|count| self.records.len() >= count);
        if breaks { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// `sessions` sessions of three turns each, 20 ms apart.
fn trace(sessions: usize) -> Trace {
    let row = |session: usize, turn: usize| {
        let at = (session * 5 + turn * 20) as f64 / 1e3;
        let input = 64 * (turn + 1) + 2 * turn;
        format!(
            "{{\"session_id\":\"s{session}\",\"turn_id\":{turn},\"timestamp\":{at},\"input_length\":{input},\
             \"output_length\":2}}\n"
        )
    };
    let text: String = (0..sessions).flat_map(|session| (0..3).map(move |turn| row(session, turn))).collect();
    read_bytes("t.jsonl", text.as_bytes(), &ReadOptions::default()).unwrap()
}

struct Played {
    keeper: Keeper,
    broken_off: bool,
    aborted: Vec<RequestIx>,
    failed: bool,
    took: Time,
}

fn memory(heard: mpsc::Sender<Heard>, clock: Clock, takes_ms: u64, hangs: &[u32]) -> Memory {
    Memory {
        heard,
        clock,
        waits: Duration::ZERO,
        turn: Arc::default(),
        takes: Duration::from_millis(takes_ms),
        hangs: hangs.iter().copied().map(RequestIx).collect(),
        aborted: Vec::new(),
    }
}

fn play(trace: &Trace, keeper: Keeper, takes_ms: u64, hangs: &[u32], drain: Duration) -> Played {
    play_on(trace, keeper, |heard, clock| memory(heard, clock, takes_ms, hangs), |wire| wire.aborted, drain)
}

fn play_on<W: Wire>(
    trace: &Trace,
    keeper: Keeper,
    wire: impl FnOnce(mpsc::Sender<Heard>, Clock) -> W + Send,
    aborted: impl FnOnce(W) -> Vec<RequestIx> + Send,
    drain: Duration,
) -> Played {
    play_through(trace, keeper, wire, aborted, drain, TOLD)
}

/// With room for so many messages to the observer.
fn play_through<W: Wire>(
    trace: &Trace,
    mut keeper: Keeper,
    wire: impl FnOnce(mpsc::Sender<Heard>, Clock) -> W + Send,
    aborted: impl FnOnce(W) -> Vec<RequestIx> + Send,
    drain: Duration,
    room: usize,
) -> Played {
    let scenario =
        "replay.mechanism = 'dp'\ncluster = { prefill = 0, decode = 0, colocated = 2 }\npolicy.name = 'default'";
    let setup = Setup::new(&load_text("s.toml", scenario).unwrap(), trace, "id").unwrap();
    let clock = Clock::start(1.0);
    let (told, tells) = sync_channel(room);
    let (halt, halted) = oneshot::channel();
    let ideal_hits = vec![0; trace.turns.len()];
    let mut failed = false;
    let ended = std::thread::scope(|scope| {
        let driver = scope.spawn(|| {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let (heard, hears) = mpsc::channel(2 * BEGUN_AT_ONCE + 1);
                let notice = Heard::Notice { kind: LedgerKind::Fault, worker: None, detail: "told".into() };
                heard.send(notice).await.unwrap();
                let replayer = Replayer::new(trace, setup.replayer, &ideal_hits).with_told_sends(Dur::from_millis(30));
                let turning = Turning::new(replayer, wire(heard, clock), Ends { clock, told, halted }, hears, drain);
                let ended = turning.run().await.unwrap();
                (ended.broken_off, aborted(ended.wire))
            })
        });
        failed = relay(tells, clock, halt, &mut keeper).is_err();
        driver.join().unwrap()
    });
    Played { keeper, broken_off: ended.0, aborted: ended.1, failed, took: clock.now() }
}

fn count(played: &Played, outcome: Outcome) -> usize {
    played.keeper.records.iter().filter(|record| record.outcome == outcome).count()
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn every_turn_is_sent_at_its_time_and_recorded() {
    let trace = trace(4);
    let played = play(&trace, Keeper::default(), 3, &[], SECOND);
    assert_eq!(count(&played, Outcome::Ok), 12);
    assert!(!played.broken_off && !played.failed);
    assert!(played.keeper.idles > 0, "the recorder may flush");
    assert_eq!(played.keeper.ledger.iter().filter(|line| line.detail.as_deref() == Some("told")).count(), 1);
    for record in &played.keeper.records {
        assert!(record.sent_ns.unwrap() >= record.scheduled_ns, "never before its time: {record:?}");
        assert!(record.schedule_lag_ms.unwrap() >= 0.0);
        let worker = record.decode_worker_actual.as_deref().unwrap().parse::<WorkerId>().unwrap();
        assert_eq!(worker.role, Role::Colocated);
    }
}

#[test]
fn a_break_lets_what_is_in_flight_end_and_sends_no_more() {
    let played = play(&trace(4), Keeper { break_after: Some(1), ..Keeper::default() }, 60, &[], 5 * SECOND);
    assert!(played.broken_off);
    assert_eq!(played.keeper.records.len(), 12);
    assert_eq!(count(&played, Outcome::Cancelled), 0);
    assert!(count(&played, Outcome::Ok) >= 4 && count(&played, Outcome::Skipped) > 0);
}

#[test]
fn a_slow_observer_takes_nothing_from_what_is_in_flight_at_a_break() {
    let keeper = Keeper { break_after: Some(1), takes: Duration::from_millis(15), ..Keeper::default() };
    let wire = |heard, clock| memory(heard, clock, 100, &[]);
    let drain = Duration::from_secs(2);
    // Its 360 records take the observer longer than the drain.
    let played = play_through(&trace(120), keeper, wire, |wire| wire.aborted, drain, 2);
    assert!(played.broken_off && played.keeper.records.len() == 360);
    assert!(count(&played, Outcome::Skipped) > 0, "they wait in memory");
    assert_eq!(count(&played, Outcome::Cancelled), 0);
}

#[test]
fn what_hangs_is_cancelled_when_the_drain_is_over() {
    let keeper = Keeper { break_after: Some(1), ..Keeper::default() };
    let played = play(&trace(2), keeper, 1, &[3], Duration::from_millis(30));
    assert!(played.broken_off);
    assert_eq!(played.aborted, [RequestIx(3)]);
    assert_eq!(count(&played, Outcome::Cancelled), 1, "though the client never tells what had arrived");
    assert_eq!(played.keeper.records.len(), 6);
}

#[test]
fn an_observer_that_fails_ends_the_run_at_once() {
    let played = play(&trace(2), Keeper { fail_after: Some(1), ..Keeper::default() }, 1, &[3], 60 * SECOND);
    assert!(played.failed);
    assert_eq!(played.keeper.records.len(), 1);
    assert!(played.took < Time::ZERO + Dur::from_millis(20_000), "it waits for no drain");
}

#[test]
fn a_failing_observer_ends_a_run_that_drains_already() {
    let keeper = Keeper { break_after: Some(1), fail_after: Some(2), ..Keeper::default() };
    let played = play(&trace(3), keeper, 80, &[6], 600 * SECOND);
    assert!(played.failed && played.broken_off);
    assert!(played.took < Time::ZERO + Dur::from_millis(60_000), "it waits for no drain");
}

#[test]
fn what_waits_for_its_send_is_late_and_skipped_when_the_run_is_broken_off() {
    let trace = trace(60);
    let keeper = Keeper { break_after: Some(5), ..Keeper::default() };
    let wire = |heard, clock| Memory {
        heard,
        clock,
        waits: Duration::from_millis(10),
        turn: Arc::default(),
        takes: Duration::from_millis(1),
        hangs: Vec::new(),
        aborted: Vec::new(),
    };
    let played = play_on(&trace, keeper, wire, |wire| wire.aborted, 60 * SECOND);
    assert!(played.broken_off && played.keeper.records.len() == 180);
    let (ok, skipped) = (count(&played, Outcome::Ok), count(&played, Outcome::Skipped));
    assert!(ok >= 5 && ok + skipped == 180, "what was sent may end, the rest is not sent: {ok} {skipped}");
    assert!(played.aborted.len() > 1, "they were on their way: {:?}", played.aborted);
    for record in &played.keeper.records {
        assert_eq!(record.sent_ns.is_some(), record.outcome == Outcome::Ok, "{record:?}");
        assert!(record.schedule_lag_ms.is_none_or(|lag| lag >= 9.0), "the wait is the harness's: {record:?}");
        assert!(
            record.e2e_ms.is_none_or(|e2e| e2e < 10_000.0) && record.attempts == u32::from(record.sent_ns.is_some())
        );
    }
}

/// Answers at once into a channel that takes what one round may begin, and not more.
struct Eager {
    heard: mpsc::Sender<Heard>,
    clock: Clock,
}

impl Wire for Eager {
    fn perform(&mut self, action: Action) {
        let Action::Generate(Generate { request, route: Route::Worker(worker), output_tokens, .. }) = action else {
            return;
        };
        let now = self.clock.now();
        for event in [
            Event::Sent { what: Outgoing::Request(request), at: now },
            Event::Finished(Box::new(answer(request, worker, output_tokens, now))),
        ] {
            self.heard.try_send(Heard::Event(event)).expect("the loop hears before it begins more");
        }
    }
}

#[test]
fn a_loop_with_everything_due_at_once_still_hears() {
    let row = |session| {
        format!(
            "{{\"session_id\":\"s{session}\",\"turn_id\":0,\"timestamp\":0,\"input_length\":64,\"output_length\":2}}\n"
        )
    };
    let text: String = (0..500).map(row).collect();
    let trace = read_bytes("t.jsonl", text.as_bytes(), &ReadOptions::default()).unwrap();
    let wire = |heard, clock| Eager { heard, clock };
    let played = play_on(&trace, Keeper::default(), wire, |_| Vec::new(), SECOND);
    assert_eq!(count(&played, Outcome::Ok), 500);
}
