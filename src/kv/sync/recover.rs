//! Replays: when one is asked for, what its replies make, and how that meets the live batches.

use crate::base::Time;
use crate::kv::Recovery;
use crate::kv::index::Mode;
use crate::kv::sync::buffer::Arrived;
use crate::kv::sync::change::Flaw;
use crate::kv::sync::history::{Check, History, Step};
use crate::kv::sync::machine::{Served, StreamSync};
use crate::kv::sync::snapshot::{Snapshot, State};
use crate::kv::sync::{SyncOutput, SyncReason, SyncState};
use crate::kv::wire::{ReplayReply, parse_replay};

/// A replay under way.
#[derive(Debug)]
pub(super) struct Attempt {
    number: u32,
    pub deadline: Time,
    pub replay: Replay,
}

/// What it is to become.
#[derive(Debug)]
pub(super) enum Replay {
    Snapshot(Box<Snapshot>),
    History(Box<History>),
    Check(Check),
}

/// Snapshots in a row that end before what had arrived, until the publisher counts as another one.
const MOST_STALE: u32 = 2;

impl StreamSync {
    /// Whether a reply is to the replay under way.
    pub(super) fn is_current(&self, number: u32) -> bool {
        self.attempt.as_ref().is_some_and(|attempt| attempt.number == number)
    }

    /// Does what the time says.
    pub(super) fn due(&mut self, now: Time) {
        if self.attempt.as_ref().is_some_and(|attempt| attempt.deadline <= now) {
            let limit = self.options.replay_timeout.as_millis_f64();
            let detail = format!("the replay did not end within {limit} ms (`replay_timeout_ms`)");
            self.fail(now, Flaw::new(SyncReason::ReplayTimeout, detail));
        }
        if self.attempt.is_none() && self.ask_at.is_some_and(|at| at <= now) && !self.is_given_up(now) {
            self.ask(now);
        }
    }

    fn ask(&mut self, now: Time) {
        self.ask_at = None;
        let replay = match (self.options.recovery, self.served) {
            (Recovery::None, _) => return,
            (Recovery::Snapshot, _) => Replay::Snapshot(Box::default()),
            (Recovery::History, Some(Served { sequence, proof, .. })) => Replay::Check(Check::new(sequence, proof)),
            (Recovery::History, None) => Replay::History(Box::new(History::new(self.kept.take()))),
        };
        let from = match &replay {
            Replay::Snapshot(_) => 0,
            Replay::History(history) => history.asked(),
            Replay::Check(check) => check.asked(),
        };
        self.stats.replays += 1;
        let number = self.stats.replays as u32;
        self.attempt = Some(Attempt { number, deadline: now + self.options.replay_timeout, replay });
        self.outputs.push_back(SyncOutput::AskReplay { from, attempt: number });
    }

    pub(super) fn reply(&mut self, now: Time, frames: &[Vec<u8>]) {
        let outcome = match parse_replay(frames) {
            Ok(ReplayReply::End) => return self.finished(now),
            Ok(ReplayReply::Batch { topic, sequence, payload }) => {
                self.check_topic(topic.unwrap_or_default()).and_then(|()| self.replayed(now, sequence, payload))
            }
            Err(error) => Err(Flaw::new(SyncReason::BadReplay, error.to_string())),
        };
        if let Err(flaw) = outcome {
            self.fail(now, flaw);
        }
    }

    fn replayed(&mut self, now: Time, sequence: u64, payload: &[u8]) -> Result<(), Flaw> {
        let batch = self
            .decoder
            .decode(payload)
            .map_err(|error| Flaw::new(SyncReason::of_decode(&error), format!("replayed batch {sequence}: {error}")))?;
        let reply = Arrived { sequence, batch, wire_bytes: payload.len(), proof: self.fingerprint(payload) };
        let writer = &self.writer;
        let empty = || writer.shadow();
        let served = self.served.map_or(0, |served| served.sequence);
        match self.attempt.as_mut().map(|attempt| &mut attempt.replay) {
            Some(Replay::Snapshot(snapshot)) => snapshot.take(sequence, &reply.batch, empty()),
            Some(Replay::History(history)) => history.take(reply, empty),
            Some(Replay::Check(check)) => {
                if check.take(&reply, served)? == Step::Missed && self.extend(now, &reply) {
                    let covers = reply.batch.timestamp;
                    self.served = self.served.map(|served| Served { covers, ..served });
                }
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn finished(&mut self, now: Time) {
        let Some(Attempt { replay, .. }) = self.attempt.take() else { return };
        self.outputs.push_back(SyncOutput::DropReplay);
        let outcome = match replay {
            Replay::Snapshot(snapshot) => {
                snapshot.finish().and_then(|state| self.merge(now, state, SyncReason::Snapshot))
            }
            Replay::History(history) => history.finish().and_then(|state| self.merge(now, state, SyncReason::History)),
            Replay::Check(check) => check.finish().map(|has_missed| self.checked(now, has_missed)),
        };
        if let Err(flaw) = outcome {
            self.failed(now, flaw);
        }
    }

    /// Puts the batches that waited behind a whole state, and serves it.
    fn merge(&mut self, now: Time, mut state: State, reason: SyncReason) -> Result<(), Flaw> {
        let watermark = state.sequence;
        self.check_reach(watermark)?;
        for Arrived { sequence, batch, proof, .. } in self.buffer.take_after(watermark) {
            let next = state.then(sequence, &batch, proof, Mode::Delta);
            self.stats.refused += u64::from(next.is_err());
            state = next?;
        }
        let (was, is) = (self.served.map(|served| served.sequence), state.sequence);
        self.gain(now, state, reason);
        was.into_iter().for_each(|was| self.calibrated(now, is > was));
        Ok(())
    }

    /// A state is of use only when it reaches the batches that arrived, without a hole.
    fn check_reach(&self, watermark: u64) -> Result<(), Flaw> {
        let arrived = self.live.max(self.served.map(|served| served.sequence));
        let reaches = match (self.buffer.first_after(watermark), arrived) {
            (Some(first), _) => first == watermark + 1,
            (None, Some(arrived)) => arrived <= watermark,
            (None, None) => true,
        };
        if reaches {
            return Ok(());
        }
        let arrived = arrived.unwrap_or_default();
        let detail =
            format!("the replay ends with batch {watermark}, from which no batches lead to {arrived}, the last");
        Err(Flaw::new(SyncReason::StaleReplay, detail))
    }

    fn checked(&mut self, now: Time, has_missed: bool) {
        self.stats.refreshes += 1;
        self.ask_at = self.next_refresh(now);
        self.calibrated(now, has_missed);
    }

    /// Gives up the replay under way.
    pub(super) fn fail(&mut self, now: Time, flaw: Flaw) {
        let keep = flaw.reason != SyncReason::Restarted;
        self.leave_attempt(keep);
        self.failed(now, flaw);
    }

    /// A replay came to nothing. What is served stays, unless it proves to be another publisher's.
    fn failed(&mut self, now: Time, flaw: Flaw) {
        self.stats.failed_replays += 1;
        self.stats.last_error = Some(flaw.words().to_owned());
        self.buffer.clear();
        self.stale = if flaw.reason == SyncReason::StaleReplay { self.stale + 1 } else { 0 };
        let is_restart = flaw.reason == SyncReason::Restarted || self.stale >= MOST_STALE;
        if is_restart {
            (self.kept, self.before, self.live, self.stale) = (None, None, None, 0);
            self.stats.restarts += 1;
            if self.served.is_some() {
                return self.lose(now, SyncState::Unsynced, Flaw { reason: SyncReason::Restarted, ..flaw }, false);
            }
        }
        if flaw.reason == SyncReason::SilentSubscription && self.served.is_some() {
            return self.lose(now, SyncState::Unsynced, flaw, true);
        }
        let mut pause = self.pace.failed(flaw.reason, &self.options);
        if flaw.reason == SyncReason::HistoryTruncated {
            // More of the past will not come; a live batch that clears everything may.
            pause = self.options.resync_interval.max(self.options.retry_most);
        }
        self.ask_at = Some(now + pause);
        if self.served.is_none() {
            self.trouble(now, flaw);
        }
    }

    /// Wants no more replies.
    pub(super) fn end_attempt(&mut self) {
        if self.attempt.take().is_some() {
            self.outputs.push_back(SyncOutput::DropReplay);
        }
    }

    /// Wants no more replies; what was replayed may be gone on from later.
    pub(super) fn leave_attempt(&mut self, keep: bool) {
        let Some(attempt) = self.attempt.take() else { return };
        self.outputs.push_back(SyncOutput::DropReplay);
        if let (true, Replay::History(history)) = (keep, attempt.replay) {
            self.kept = history.into_base();
        }
    }
}
