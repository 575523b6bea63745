//! [`History`]: a replay of past batches that makes a whole state; [`Check`]: one that looks whether any was missed.
//!
//! Past batches make a state from the publisher's first one on, from one that clears everything, or from a state had
//! before. The last needs a proof that the publisher is still the same process: the batch that state ended with is
//! replayed too, and has to be the same byte for byte, its time stamp included.

use crate::kv::index::{Mode, Shadow};
use crate::kv::sync::SyncReason;
use crate::kv::sync::buffer::Arrived;
use crate::kv::sync::change::Flaw;
use crate::kv::sync::snapshot::State;
use crate::kv::{EventBatch, KvEvent};

/// See the module.
#[derive(Debug)]
pub(super) struct History {
    asked: u64,
    base: Option<State>,
    state: Option<State>,
    first: Option<u64>,
    next: Option<u64>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Check {
    from: u64,
    proof: u64,
    is_proved: bool,
    has_missed: bool,
}

/// What to do with a replayed batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// It is in the view.
    Known,
    /// It is the next one: it was missed.
    Missed,
}

impl History {
    /// Goes on from `base`, or begins with the first batch.
    pub fn new(base: Option<State>) -> History {
        History { asked: base.as_ref().map_or(0, |base| base.sequence), base, state: None, first: None, next: None }
    }

    /// First sequence number to ask for.
    pub fn asked(&self) -> u64 {
        self.asked
    }

    /// Takes a reply.
    pub fn take(&mut self, mut reply: Arrived, empty: impl Fn() -> Shadow) -> Result<(), Flaw> {
        let sequence = reply.sequence;
        self.follow(sequence)?;
        self.first.get_or_insert(sequence);
        if self.base.as_ref().is_some_and(|base| base.sequence == sequence) {
            self.state = self.base.take();
            return match &self.state {
                Some(state) if state.proof != reply.proof => Err(another(sequence)),
                _ => Ok(()),
            };
        }
        self.state = match self.state.take() {
            Some(state) => Some(state.then(sequence, &reply.batch, reply.proof, Mode::Delta)?),
            None if sequence == 0 => {
                Some(State::empty(empty()).then(sequence, &reply.batch, reply.proof, Mode::Delta)?)
            }
            None => whole(&mut reply, empty).and_then(Result::ok),
        };
        Ok(())
    }

    /// Replies follow each other; what a hole is in says nothing of what is behind it.
    fn follow(&mut self, sequence: u64) -> Result<(), Flaw> {
        if let Some(next) = self.next {
            if sequence < next {
                let detail = format!("batch {sequence} was replayed where {next} or a later one was expected");
                return Err(Flaw::new(SyncReason::BadReplay, detail));
            }
            if sequence > next {
                (self.state, self.base) = (None, None);
            }
        }
        self.next = sequence.checked_add(1);
        Ok(())
    }

    /// The end mark came.
    pub fn finish(self) -> Result<State, Flaw> {
        let History { asked, base, state, first, next } = self;
        match (state, first, base) {
            (Some(state), ..) => Ok(state),
            (None, None, Some(_)) => {
                let detail = format!("the publisher does not have batch {asked}, which it sent before");
                Err(Flaw::new(SyncReason::Restarted, detail))
            }
            (None, None, None) => Err(Flaw::new(SyncReason::EmptyReplay, String::new())),
            (None, Some(first), _) if first > asked => {
                let mut detail = format!(
                    "partial: history truncated: the publisher keeps batches from {first} on, {asked} was needed; \
                     raise its buffer_steps, or wait for it to clear its cache"
                );
                if next == first.checked_add(1) {
                    detail += "; or it is xLLM's, which answers with one batch of all it holds: then `dialect` is xllm";
                }
                Err(Flaw::new(SyncReason::HistoryTruncated, detail))
            }
            (None, Some(_), _) => Err(Flaw::new(SyncReason::BadReplay, "batches are missing inside the replay".into())),
        }
    }

    /// What a replay that was broken off has brought: a later one goes on from it.
    pub fn into_base(self) -> Option<State> {
        self.state.or(self.base)
    }
}

impl Check {
    /// Whether batches behind `from` were missed.
    pub fn new(from: u64, proof: u64) -> Check {
        Check { from, proof, is_proved: false, has_missed: false }
    }

    /// First sequence number to ask for.
    pub fn asked(&self) -> u64 {
        self.from
    }

    /// Takes a reply; the view is of `served` now.
    pub fn take(&mut self, reply: &Arrived, served: u64) -> Result<Step, Flaw> {
        let sequence = reply.sequence;
        if sequence == self.from {
            self.is_proved = reply.proof == self.proof;
            return if self.is_proved { Ok(Step::Known) } else { Err(another(sequence)) };
        }
        if sequence <= served {
            return Ok(Step::Known);
        }
        if self.is_proved && sequence == served + 1 {
            self.has_missed = true;
            return Ok(Step::Missed);
        }
        let detail = format!("batch {sequence} was replayed behind {served}; {} was asked for", self.from);
        Err(Flaw::new(SyncReason::BadReplay, detail))
    }

    /// The end mark came. Whether any batch was missed.
    pub fn finish(self) -> Result<bool, Flaw> {
        if self.is_proved {
            return Ok(self.has_missed);
        }
        let detail = format!("the publisher does not have batch {}, which it sent before", self.from);
        Err(Flaw::new(SyncReason::Restarted, detail))
    }
}

/// The state that a batch is all of: what follows the last event that clears everything, if that needs nothing before.
pub(super) fn whole(arrived: &mut Arrived, empty: impl Fn() -> Shadow) -> Option<Result<State, Flaw>> {
    let events = &mut arrived.batch.events;
    let cleared = events.iter().rposition(|event| *event == KvEvent::Cleared)?;
    let events = events.split_off(cleared + 1);
    let rest = EventBatch { events, ..arrived.batch };
    let state = State::empty(empty()).then(arrived.sequence, &rest, arrived.proof, Mode::Delta);
    arrived.batch.events.extend(rest.events);
    Some(state)
}

fn another(sequence: u64) -> Flaw {
    let detail = format!("batch {sequence} is another one than before: another process answers");
    Flaw::new(SyncReason::Restarted, detail)
}
