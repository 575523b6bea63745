//! How much is alive at once: a session lives from its first to its last timestamp, both included.
//!
//! Its context is prompt and answer of its latest turn. At one instant, what begins counts before what ends.

use crate::trace::Trace;

/// Peaks over the span of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Peaks {
    pub(super) sessions: u64,
    pub(super) context_tokens: u64,
}

/// Sweeps over the trace in time.
pub(super) fn peaks(trace: &Trace) -> Peaks {
    let mut contexts = vec![0u64; trace.sessions.len()];
    let mut ends: Vec<(u64, usize)> = Vec::with_capacity(trace.sessions.len());
    for (rank, session) in trace.sessions.iter().enumerate() {
        let turns = &trace.turns[session.turns.start as usize..session.turns.end as usize];
        ends.extend(turns.iter().map(|turn| turn.timestamp.ns()).max().map(|end| (end, rank)));
    }
    ends.sort_unstable();
    let mut ends = ends.into_iter().peekable();
    let mut peaks = Peaks::default();
    let (mut sessions, mut tokens) = (0u64, 0u64);
    for (now, index) in trace.by_time_keyed() {
        while let Some((_, rank)) = ends.next_if(|(end, _)| *end < now.ns()) {
            sessions -= 1;
            tokens -= contexts[rank];
        }
        let turn = &trace.turns[index as usize];
        let context = &mut contexts[turn.session.ix()];
        sessions += u64::from(*context == 0);
        tokens -= *context;
        *context = u64::from(turn.input_length) + u64::from(turn.output_length);
        tokens += *context;
        peaks.sessions = peaks.sessions.max(sessions);
        peaks.context_tokens = peaks.context_tokens.max(tokens);
    }
    peaks
}
