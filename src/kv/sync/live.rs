//! Live batches: the place of each in the order, and what it does there.

use xxhash_rust::xxh3::xxh3_64;

use crate::base::Time;
use crate::kv::index::Mode;
use crate::kv::sync::buffer::Arrived;
use crate::kv::sync::change::Flaw;
use crate::kv::sync::history::whole;
use crate::kv::sync::machine::{Served, StreamSync};
use crate::kv::sync::recover::Replay;
use crate::kv::sync::snapshot::{State, Work};
use crate::kv::sync::topic::{Whose, shown};
use crate::kv::sync::{SyncOptions, SyncReason, SyncState};
use crate::kv::wire::{DecodeError, parse_live};
use crate::kv::{Dialect, EventBatch, Recovery};

/// Where a sequence number stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// It follows the last one, or is the first.
    Next,
    /// It leaves some out.
    Ahead { expected: u64 },
    /// It is not behind those that arrived, but in the view already: a replay overtook it.
    Covered,
    /// It, or a later one, arrived before.
    Behind { seen: u64 },
}

impl SyncOptions {
    /// Whether number 0 is the first batch of a process, before which its cache is empty. So of vLLM and SGLang; nobody
    /// says so of xLLM.
    fn begins_at_zero(&self) -> bool {
        self.dialect != Dialect::Xllm || self.recovery == Recovery::History
    }
}

impl StreamSync {
    pub(super) fn live_message(&mut self, now: Time, frames: &[Vec<u8>]) {
        if self.state() == SyncState::Disconnected {
            self.stats.foreign += 1;
            return;
        }
        let live = match parse_live(frames) {
            Ok(live) => live,
            Err(error) => return self.lost_message(now, Flaw::new(SyncReason::BadFrames, error.to_string())),
        };
        if !self.is_ours(now, live.topic) {
            self.stats.foreign += 1;
            return;
        }
        self.heard(now);
        let place = self.place(live.sequence);
        match place {
            Place::Ahead { expected } => self.missing(now, expected, live.sequence),
            Place::Behind { seen } => self.went_back(now, seen, live.sequence),
            Place::Next | Place::Covered => {}
        }
        match self.decoder.decode(live.payload) {
            Ok(batch) => {
                let (sequence, wire_bytes) = (live.sequence, live.payload.len());
                let proof = self.fingerprint(live.payload);
                self.batch(now, place, Arrived { sequence, batch, wire_bytes, proof });
            }
            Err(error) => self.unreadable(now, live.sequence, &error),
        }
        self.live = Some(live.sequence);
    }

    /// A message that should have been a batch is lost, nobody knows which.
    pub(super) fn lost_message(&mut self, now: Time, flaw: Flaw) {
        self.stats.refused += 1;
        self.heard(now);
        if self.served.is_none() && self.attempt.is_some() {
            // It may come behind what the replay under way holds.
            return self.fail(now, flaw);
        }
        self.refuse(now, flaw);
    }

    /// Whether a live batch of `topic` is the followed publisher's. One of another publisher is told and leaves no trace else.
    fn is_ours(&mut self, now: Time, topic: &[u8]) -> bool {
        match self.topic.hear(topic) {
            Whose::Ours => return true,
            Whose::Successor => {
                let words = format!("the publisher's topic is {} now: another publisher", shown(topic));
                self.other_publisher(now, words);
                return true;
            }
            Whose::Foreign => self.topic.note_foreign(topic),
        }
        if !self.can_ask() && self.live.is_none() && self.standing.reason == SyncReason::Connected {
            self.trouble(now, self.unheard());
        }
        false
    }

    /// Names a payload where a later replay has to prove that it is of the same publisher.
    pub(super) fn fingerprint(&self, payload: &[u8]) -> u64 {
        if self.options.recovery == Recovery::History { xxh3_64(payload) } else { 0 }
    }

    fn place(&self, sequence: u64) -> Place {
        if let Some(seen) = self.live.filter(|seen| sequence <= *seen) {
            return Place::Behind { seen };
        }
        if self.served.is_some_and(|served| sequence <= served.sequence) {
            return Place::Covered;
        }
        let last = self.served.map(|served| served.sequence).or(self.live);
        match last.map(|last| last + 1) {
            Some(expected) if expected < sequence => Place::Ahead { expected },
            Some(_) | None => Place::Next,
        }
    }

    fn missing(&mut self, now: Time, expected: u64, found: u64) {
        self.stats.gaps += 1;
        if self.served.is_some() {
            let missing = if found - expected == 1 {
                format!("batch {expected} is missing")
            } else {
                format!("batches {expected} to {} are missing", found - 1)
            };
            let flaw = Flaw::new(SyncReason::Gap, format!("{missing}: {found} came after {}", expected - 1));
            self.lose(now, SyncState::Unsynced, flaw, true);
        }
    }

    fn went_back(&mut self, now: Time, seen: u64, found: u64) {
        self.other_publisher(now, format!("batch {found} came after {seen}: the publisher was restarted"));
    }

    /// Nothing of the publisher that was is true of the one that is.
    fn other_publisher(&mut self, now: Time, detail: String) {
        self.decoder.reset();
        let flaw = Flaw::new(SyncReason::Restarted, detail);
        if self.attempt.is_some() && self.served.is_none() {
            // The replay under way may be the old publisher's.
            return self.fail(now, flaw);
        }
        self.stats.restarts += 1;
        (self.kept, self.before) = (None, None);
        if self.served.is_some() {
            self.lose(now, SyncState::Unsynced, flaw, false);
        }
    }

    fn unreadable(&mut self, now: Time, sequence: u64, error: &DecodeError) {
        self.stats.refused += 1;
        self.refuse(now, Flaw::new(SyncReason::of_decode(error), format!("batch {sequence}: {error}")));
    }

    fn refuse(&mut self, now: Time, flaw: Flaw) {
        if self.served.is_some() {
            return self.lose(now, SyncState::Unsynced, flaw, true);
        }
        // What waited is of no use without this one.
        self.buffer.clear();
        if self.state() == SyncState::Unsynced {
            if self.standing.reason != flaw.reason {
                self.pace.told(flaw.reason);
            }
            self.trouble(now, flaw);
        }
    }

    fn batch(&mut self, now: Time, place: Place, mut arrived: Arrived) {
        self.stats.arrived(now, &arrived.batch);
        if let (Some(served), Place::Covered) = (self.served, place) {
            if !served.is_later(&arrived.batch) {
                self.stats.covered += 1;
                return;
            }
            self.went_back(now, served.sequence, arrived.sequence);
        }
        if self.served.is_some() {
            return self.apply(now, arrived);
        }
        let is_fit = match self.whole(&mut arrived) {
            Ok(Some((state, reason))) => return self.gain(now, state, reason),
            Ok(None) => true,
            Err(_) => false,
        };
        // A publisher that had nothing to replay has something now.
        if self.live.is_none() && self.standing.reason == SyncReason::EmptyReplay {
            self.ask_at = Some(now);
        }
        // A request that is due is sent with this very input.
        if self.attempt.is_some() || self.ask_at.is_some_and(|at| at <= now) {
            self.wait(now, arrived);
        } else {
            self.stats.refused += u64::from(!is_fit);
        }
    }

    /// Applies the next batch to the view.
    fn apply(&mut self, now: Time, arrived: Arrived) {
        if !self.extend(now, &arrived) {
            self.stats.refused += 1;
            return;
        }
        self.pace.applied();
        // A snapshot under way may be older.
        if self.attempt.as_ref().is_some_and(|attempt| matches!(attempt.replay, Replay::Snapshot(_))) {
            return self.wait(now, arrived);
        }
        self.decoder.reuse(arrived.batch);
    }

    /// Applies a batch to the view, live or one that was missed. False when that lost the place.
    pub(super) fn extend(&mut self, now: Time, arrived: &Arrived) -> bool {
        match self.writer.apply(&arrived.batch, arrived.sequence) {
            Ok(applied) => {
                let mut work = Work::default();
                work.add(&arrived.batch, applied);
                self.stats.applied(work);
                let Arrived { sequence, proof, .. } = *arrived;
                self.served = self.served.map(|served| Served { sequence, proof, ..served });
                true
            }
            Err(error) => {
                self.lose(now, SyncState::Unsynced, Flaw::of_apply(arrived.sequence, &error), false);
                false
            }
        }
    }

    /// The state that a batch states by itself; errors: it would, and cannot be applied.
    fn whole(&self, arrived: &mut Arrived) -> Result<Option<(State, SyncReason)>, Flaw> {
        let empty = || self.writer.shadow();
        let full = whole(arrived, empty);
        if let Some(Ok(state)) = full {
            return Ok(Some((state, SyncReason::FullBatch)));
        }
        if arrived.sequence == 0 && self.options.begins_at_zero() {
            let state = State::empty(empty()).then(0, &arrived.batch, arrived.proof, Mode::Delta)?;
            return Ok(Some((state, SyncReason::FirstBatch)));
        }
        full.transpose().map(|_| None)
    }

    /// Keeps a batch for the replay that is under way.
    fn wait(&mut self, now: Time, arrived: Arrived) {
        let (bytes, limit) = (self.buffer.bytes() + arrived.cost(), self.options.max_buffered_bytes);
        if bytes <= limit {
            return self.buffer.push(arrived);
        }
        let detail = format!("{bytes} bytes wait for a replay, over the limit of {limit} (`max_buffered_bytes`)");
        self.fail(now, Flaw::new(SyncReason::BufferLimit, detail));
    }
}

impl Served {
    /// Made after the replay the view came from: not one that was overtaken. A replay without a time stamp says nothing.
    fn is_later(&self, batch: &EventBatch) -> bool {
        self.covers > 0.0 && batch.timestamp > self.covers
    }
}
