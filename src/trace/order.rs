//! Turns in time order, across sessions.
//!
//! Inside a session turn order wins: a turn is not earlier than the one before it, whatever its timestamp. Equal times
//! keep the order of arrival of the sessions.

use crate::base::Dur;
use crate::trace::Trace;

impl Trace {
    /// Indices of [`Trace::turns`] in time order.
    pub fn by_time(&self) -> impl Iterator<Item = u32> + use<> {
        self.by_time_keyed().into_iter().map(|(_, index)| index)
    }

    /// The same, each with its time: the timestamp, or that of an earlier turn of the session when it is later.
    pub(crate) fn by_time_keyed(&self) -> Vec<(Dur, u32)> {
        let mut order = Vec::with_capacity(self.turns.len());
        let mut latest = Dur::ZERO;
        let mut session = None;
        for (index, turn) in (0u32..).zip(&self.turns) {
            let same = session.replace(turn.session) == Some(turn.session);
            latest = if same { latest.max(turn.timestamp) } else { turn.timestamp };
            order.push((latest, index));
        }
        order.sort_unstable();
        order
    }
}
