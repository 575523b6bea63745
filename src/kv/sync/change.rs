//! What a stream says: its state, the reasons, and the time it was not in step; how it loses its place and gains it.

use crate::base::{Dur, Time};
use crate::kv::Recovery;
use crate::kv::index::ApplyError;
use crate::kv::sync::machine::{Served, StreamSync};
use crate::kv::sync::snapshot::{State, Work};
use crate::kv::sync::{Change, SyncOutput, SyncReason, SyncState};

/// Something wrong, and what exactly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flaw {
    pub reason: SyncReason,
    pub detail: String,
}

/// Where a stream stands, since when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing {
    pub state: SyncState,
    pub reason: SyncReason,
    unsynced: Dur,
    unsynced_since: Option<Time>,
}

impl Flaw {
    /// Without a detail the reason's own words are used.
    pub fn new(reason: SyncReason, detail: String) -> Flaw {
        Flaw { reason, detail }
    }

    /// A batch that could not be applied.
    pub fn of_apply(sequence: u64, error: &ApplyError) -> Flaw {
        Flaw::new(SyncReason::of_apply(error), format!("batch {sequence}: {error}"))
    }

    /// In words.
    pub fn words(&self) -> &str {
        if self.detail.is_empty() { self.reason.words() } else { &self.detail }
    }
}

impl Standing {
    /// Before any connection.
    pub fn new(now: Time) -> Standing {
        Standing {
            state: SyncState::Disconnected,
            reason: SyncReason::Starting,
            unsynced: Dur::ZERO,
            unsynced_since: Some(now),
        }
    }

    /// Time not in step.
    pub fn unsynced(&self, now: Time) -> Dur {
        self.unsynced + self.unsynced_since.map_or(Dur::ZERO, |since| now.since(since))
    }

    fn turn(&mut self, now: Time, to: SyncState, reason: SyncReason) {
        if to == SyncState::Synced {
            self.unsynced = self.unsynced(now);
            self.unsynced_since = None;
        } else {
            self.unsynced_since.get_or_insert(now);
        }
        (self.state, self.reason) = (to, reason);
    }
}

impl StreamSync {
    /// Serves `state` from now on.
    pub(super) fn gain(&mut self, now: Time, state: State, reason: SyncReason) {
        self.end_attempt();
        self.buffer.clear();
        self.kept = None;
        self.stale = 0;
        let State { shadow, sequence, timestamp, proof, work } = state;
        let was_in_step = self.writer.status().sequence.is_some();
        // A process never goes back behind what it sent.
        self.stats.restarts += u64::from(self.before.take().is_some_and(|before| sequence < before));
        self.writer.replace_by(shadow, sequence);
        self.stats.applied(work);
        self.served = Some(Served { sequence, proof, covers: timestamp });
        self.ask_at = self.next_refresh(now);
        self.pace.gained(now);
        if self.state() == SyncState::Synced {
            self.stats.refreshes += 1;
        } else {
            self.stats.resyncs += u64::from(was_in_step);
            self.turn(now, SyncState::Synced, reason, String::new());
        }
    }

    /// Serves nothing any more. `keep` when what was served is right as far as it goes.
    pub(super) fn lose(&mut self, now: Time, to: SyncState, flaw: Flaw, keep: bool) {
        self.stats.last_error = Some(flaw.words().to_owned());
        self.leave_attempt(keep);
        self.buffer.clear();
        let was = self.served.take();
        if let Some(was) = was.filter(|_| flaw.reason != SyncReason::Restarted) {
            self.before = Some(was.sequence);
        }
        let keeps = keep && self.options.recovery == Recovery::History;
        let shadow = if keeps { self.writer.withdraw(flaw.words()) } else { None };
        match (was, shadow) {
            (Some(Served { sequence, proof, covers }), Some(shadow)) => {
                let work = Work::default();
                self.kept = Some(State { shadow, sequence, timestamp: covers, proof, work });
            }
            _ => self.writer.invalidate(flaw.words()),
        }
        let is_news = was.is_some() || self.state() != to || self.standing.reason != flaw.reason;
        if was.is_some() {
            let pause = self.pace.lost(now, flaw.reason, &self.options);
            self.ask_at = self.can_ask().then_some(now + pause);
        } else {
            self.pace.told(flaw.reason);
        }
        if is_news {
            self.turn(now, to, flaw.reason, flaw.detail);
        }
    }

    /// Something is wrong while nothing is served: only the reason changes.
    pub(super) fn trouble(&mut self, now: Time, flaw: Flaw) {
        self.writer.invalidate(flaw.words());
        self.stats.last_error = Some(flaw.words().to_owned());
        if self.standing.reason != flaw.reason {
            self.turn(now, self.state(), flaw.reason, flaw.detail);
        }
    }

    /// Says a change.
    pub(super) fn turn(&mut self, now: Time, to: SyncState, reason: SyncReason, detail: String) {
        let from = self.state();
        self.standing.turn(now, to, reason);
        let sequence = self.writer.status().sequence;
        // Whether the stream is in step is news each time: a log that ends must not end in a trouble that is over.
        let again = from != SyncState::Synced && to != SyncState::Synced && self.pace.is_again();
        self.outputs.push_back(SyncOutput::Changed(Change { at: now, from, to, reason, sequence, detail, again }));
    }

    /// Whether the publisher answers requests.
    pub(super) fn can_ask(&self) -> bool {
        self.options.recovery != Recovery::None
    }

    /// When the view that is served now is calibrated.
    pub(super) fn next_refresh(&self, now: Time) -> Option<Time> {
        let wanted = self.can_ask() && self.options.resync_interval != Dur::ZERO;
        wanted.then(|| now + self.options.resync_interval)
    }
}
