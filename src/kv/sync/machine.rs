//! [`StreamSync`]: the machine of one stream; what it is told, and its timers.

use std::collections::VecDeque;

use crate::base::Time;
use crate::kv::index::{StreamSpec, StreamWriter};
use crate::kv::sync::buffer::Buffer;
use crate::kv::sync::change::{Flaw, Standing};
use crate::kv::sync::pace::Pace;
use crate::kv::sync::recover::Attempt;
use crate::kv::sync::silence::Silence;
use crate::kv::sync::snapshot::State;
use crate::kv::sync::topic::Followed;
use crate::kv::sync::{StreamReport, SyncInput, SyncOptions, SyncOutput, SyncReason, SyncState, SyncStats};
use crate::kv::wire::{DecodeOptions, Decoder};

/// See the module.
#[derive(Debug)]
pub struct StreamSync {
    pub(super) options: SyncOptions,
    pub(super) writer: StreamWriter,
    pub(super) decoder: Decoder,
    pub(super) standing: Standing,
    /// The view, as long as the stream is in step.
    pub(super) served: Option<Served>,
    /// Of the last live batch of this connection.
    pub(super) live: Option<u64>,
    pub(super) topic: Followed,
    pub(super) buffer: Buffer,
    pub(super) attempt: Option<Attempt>,
    /// When to ask next, unless a replay is under way.
    pub(super) ask_at: Option<Time>,
    /// State from before the stream lost its place, to go on from if the publisher proves to be the same.
    pub(super) kept: Option<State>,
    /// Last number of the process that was followed, until it is known whether the next state is of the same.
    pub(super) before: Option<u64>,
    pub(super) pace: Pace,
    /// Snapshots in a row that did not reach up to what had arrived before they were asked for.
    pub(super) stale: u32,
    pub(super) silence: Silence,
    pub(super) outputs: VecDeque<SyncOutput>,
    pub(super) stats: SyncStats,
}

/// What the served view is of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Served {
    pub sequence: u64,
    /// Fingerprint of the payload of its last batch.
    pub proof: u64,
    /// Time stamp of the replay it came from: live batches up to here may still be on their way.
    pub covers: f64,
}

impl StreamSync {
    /// The machine of `writer`'s stream, without a connection yet.
    pub fn new(writer: StreamWriter, options: SyncOptions, now: Time) -> StreamSync {
        let spec = writer.spec();
        let decoder = Decoder::new(DecodeOptions {
            dialect: options.dialect,
            block_size: spec.space.block_size,
            dp_rank: Some(spec.dp_rank),
            max_message_bytes: options.max_message_bytes,
        });
        StreamSync {
            topic: Followed::new(&options.topic),
            options,
            writer,
            decoder,
            standing: Standing::new(now),
            served: None,
            live: None,
            buffer: Buffer::default(),
            attempt: None,
            ask_at: None,
            kept: None,
            before: None,
            pace: Pace::default(),
            stale: 0,
            silence: Silence::default(),
            outputs: VecDeque::new(),
            stats: SyncStats::default(),
        }
    }

    /// Takes what arrived. Whatever it is, it changes this stream alone, and never panics.
    pub fn input(&mut self, now: Time, input: SyncInput<'_>) {
        match input {
            SyncInput::Connected => self.connected(now),
            SyncInput::Disconnected(why) => self.disconnected(now, why),
            SyncInput::Closed => self.closed(now),
            SyncInput::Live(frames) => self.live_message(now, frames),
            SyncInput::TooLarge { bytes } => {
                let limit = self.options.max_message_bytes;
                let detail =
                    format!("a live message of {bytes} bytes, over the limit of {limit} (`max_message_bytes`)");
                self.lost_message(now, Flaw::new(SyncReason::MessageLimit, detail));
            }
            SyncInput::Replay { attempt, frames } if self.is_current(attempt) => self.reply(now, frames),
            SyncInput::ReplayFailed { attempt, why } if self.is_current(attempt) => {
                self.fail(now, Flaw::new(SyncReason::ReplayFailed, why.into()));
            }
            SyncInput::Replay { .. } | SyncInput::ReplayFailed { .. } => self.stats.late_replies += 1,
            SyncInput::Wake => {}
        }
        self.due(now);
        self.stats.buffered_bytes = self.buffer.bytes();
        self.stats.most_buffered_bytes = self.stats.most_buffered_bytes.max(self.stats.buffered_bytes);
    }

    /// What it wants done or says, in order; to be asked until there is nothing left.
    pub fn next_output(&mut self) -> Option<SyncOutput> {
        self.outputs.pop_front()
    }

    /// When it wants to be woken, unless something arrives before.
    pub fn wake_at(&self) -> Option<Time> {
        self.attempt.as_ref().map(|attempt| attempt.deadline).or(self.ask_at)
    }

    /// Where it stands.
    pub fn state(&self) -> SyncState {
        self.standing.state
    }

    /// Which stream.
    pub fn spec(&self) -> &StreamSpec {
        self.writer.spec()
    }

    /// How it is followed.
    pub fn options(&self) -> &SyncOptions {
        &self.options
    }

    /// Live batches of the stream that could be read so far.
    pub fn batches(&self) -> u64 {
        self.stats.batches
    }

    /// Everything that is to be said of it.
    pub fn report(&self, now: Time) -> StreamReport {
        let Standing { state, reason, .. } = self.standing;
        let mut stats = self.stats.clone();
        stats.unsynced = self.standing.unsynced(now);
        let (status, endpoint) = (self.writer.status(), self.options.endpoint.clone());
        let is_said = |notice: &String| status.error.as_ref().is_some_and(|error| error.contains(notice.as_str()));
        let notice = self.topic.of_others().filter(|notice| !is_said(notice));
        StreamReport { status, endpoint, state, reason, notice, stats }
    }

    fn connected(&mut self, now: Time) {
        if self.state() != SyncState::Disconnected {
            self.disconnected(now, "a connection was made while there was one");
        }
        self.live = None;
        self.topic.reconnected();
        self.silence.reconnected();
        self.decoder.reset();
        let pause = self.pace.connected(&self.options);
        let is_asking = self.can_ask() && !self.silence.is_lasting();
        self.ask_at = is_asking.then_some(now + pause);
        let flaw = match (is_asking, self.can_ask()) {
            (true, _) => Flaw::new(SyncReason::Connected, String::new()),
            (false, true) => self.silent(),
            (false, false) => self.waits(),
        };
        self.writer.invalidate(flaw.words());
        self.turn(now, SyncState::Unsynced, flaw.reason, flaw.detail);
    }

    /// Nothing can be asked for.
    pub(super) fn waits(&self) -> Flaw {
        let words = "`recovery` is none: waits for a batch that clears everything";
        Flaw::new(SyncReason::Connected, words.to_owned())
    }

    /// That the connection is gone is our own doing: what was wrong before stays what is wrong.
    fn closed(&mut self, now: Time) {
        let reason = SyncReason::Reconnecting;
        if self.served.is_some() {
            return self.disconnected(now, reason.words());
        }
        self.leave_attempt(true);
        self.buffer.clear();
        (self.live, self.ask_at) = (None, None);
        self.turn(now, SyncState::Disconnected, reason, String::new());
    }

    fn disconnected(&mut self, now: Time, why: &str) {
        let flaw = Flaw::new(SyncReason::Disconnected, why.into());
        self.lose(now, SyncState::Disconnected, flaw, true);
        self.live = None;
        self.ask_at = None;
    }
}
