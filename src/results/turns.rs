//! [`Turns`]: the turns of all sessions, as the session table needs them.
//!
//! One list for all: a run may have a million turns, or as many sessions as turns, and neither shall cost a list each.

use super::seen::Seen;
use super::{Metric, is_failure};
use crate::record::{ExecutionMode, ModeReason, Outcome};

/// One turn as its session remembers it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    /// [`NO_E2E`] where there is none.
    e2e_ns: u64,
    session: u32,
    turn_id: u32,
    line: u32,
    pub mode: ExecutionMode,
    pub reason: ModeReason,
    pub outcome: Outcome,
}

/// A length that nothing has: an `Option` would make a turn a third larger.
const NO_E2E: u64 = u64::MAX;

/// In the order they came.
#[derive(Debug, Default)]
pub(super) struct Turns(Vec<Turn>);

/// The same, found by session.
pub(super) struct BySession {
    turns: Vec<Turn>,
    /// Places in `turns`, session after session.
    places: Vec<u32>,
    /// End of each session in `places`.
    ends: Vec<u32>,
}

impl Turns {
    pub(super) fn push(&mut self, request: &Seen) {
        let e2e_ns = request.ns(Metric::E2e).filter(|_| request.outcome.is_ok());
        self.0.push(Turn {
            e2e_ns: e2e_ns.unwrap_or(NO_E2E),
            session: request.session.ix,
            turn_id: request.turn_id,
            line: request.trace_line,
            mode: request.mode,
            reason: request.reason,
            outcome: request.outcome,
        });
    }

    /// Finds them by session, of which there are so many. They are counted into place, which takes no second list of them.
    pub(super) fn by_session(self, sessions: usize) -> BySession {
        let mut ends = vec![0; sessions];
        self.0.iter().for_each(|turn| ends[turn.session as usize] += 1);
        let mut begin = 0;
        for end in &mut ends {
            begin += std::mem::replace(end, begin);
        }
        let mut places = vec![0; self.0.len()];
        for (place, turn) in (0..).zip(&self.0) {
            let end = &mut ends[turn.session as usize];
            places[*end as usize] = place;
            *end += 1;
        }
        BySession { turns: self.0, places, ends }
    }
}

impl BySession {
    /// Turns of a session, in the order of the trace.
    pub(super) fn of(&self, session: usize) -> Vec<Turn> {
        let begin = session.checked_sub(1).map_or(0, |before| self.ends[before]);
        let places = &self.places[begin as usize..self.ends[session] as usize];
        let mut turns: Vec<Turn> = places.iter().map(|place| self.turns[*place as usize]).collect();
        turns.sort_unstable_by_key(|turn| (turn.turn_id, turn.line, turn.mode, turn.reason, turn.outcome));
        turns
    }
}

impl Turn {
    /// E2E of a turn that ended ok.
    pub(super) fn e2e_ns(&self) -> Option<u64> {
        Some(self.e2e_ns).filter(|ns| *ns != NO_E2E)
    }

    pub(super) fn was_sent(&self) -> bool {
        self.outcome.is_ok() || self.outcome == Outcome::Cancelled || is_failure(self.outcome)
    }

    pub(super) fn is_direct(&self) -> bool {
        self.mode == ExecutionMode::KvcacheDirectToDSession && self.outcome.is_ok()
    }

    /// Every session that goes direct was placed once: that is no reason against it.
    pub(super) fn is_fair_seed(&self) -> bool {
        self.mode == ExecutionMode::KvcacheSeed && (self.outcome.is_ok() || self.outcome == Outcome::Cancelled)
    }

    pub(super) fn letter(&self) -> char {
        match self.outcome {
            Outcome::Truncated => 'T',
            Outcome::Aborted | Outcome::Error | Outcome::Timeout => 'E',
            Outcome::Cancelled | Outcome::Skipped => '-',
            Outcome::Ok if self.mode.is_fallback() => 'F',
            Outcome::Ok => match self.mode {
                ExecutionMode::KvcacheDirectToDSession => 'D',
                ExecutionMode::KvcacheSeed => 'S',
                ExecutionMode::KvcacheReseed => 'R',
                ExecutionMode::DpColocated
                | ExecutionMode::PdRouter
                | ExecutionMode::PdRouterTurn1
                | ExecutionMode::FallbackSessionCap
                | ExecutionMode::FallbackNoCapacity
                | ExecutionMode::FallbackAdmissionRejected
                | ExecutionMode::FallbackWorkerUnhealthy
                | ExecutionMode::FallbackOpenFailed
                | ExecutionMode::NotSent => '.',
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(session: u32, turn_id: u32) -> Turn {
        Turn {
            e2e_ns: u64::from(turn_id),
            session,
            turn_id,
            line: 0,
            mode: ExecutionMode::PdRouter,
            reason: ModeReason::Mechanism,
            outcome: Outcome::Ok,
        }
    }

    #[test]
    fn turns_are_found_by_session_in_the_order_of_the_trace_however_they_came() {
        // Session 1 has none: a number may belong to a session whose turns are still to come.
        let came = [(2, 1), (0, 3), (2, 0), (0, 1), (3, 7), (0, 2), (2, 2)];
        let by_session = Turns(came.map(|(session, id)| turn(session, id)).to_vec()).by_session(4);
        let ids = |session| by_session.of(session).iter().map(|turn| turn.turn_id).collect::<Vec<u32>>();
        assert_eq!([ids(0), ids(1), ids(2), ids(3)], [vec![1, 2, 3], vec![], vec![0, 1, 2], vec![7]]);
        assert_eq!(by_session.of(3)[0].e2e_ns(), Some(7));
        assert_eq!(Turn { e2e_ns: NO_E2E, ..turn(0, 0) }.e2e_ns(), None);
    }
}
