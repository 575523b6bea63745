//! Statistics of a trace for `trace inspect`.
//!
//! Owns the numbers and their words. Percentiles are by nearest rank, so each is a value that occurs. Gaps run from the
//! start of a turn to the start of the next one in the session. A value without any sample is null, never 0.

mod live;
mod seen;

use schemars::JsonSchema;
use serde::Serialize;

use crate::trace::{Trace, TurnTrace};

pub use seen::ideal_hits;

/// Distribution of one quantity.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Spread {
    /// Smallest.
    pub min: f64,
    /// 10th percentile.
    pub p10: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest.
    pub max: f64,
    /// Arithmetic mean.
    pub mean: f64,
}

/// What a trace is like.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct TraceStats {
    /// Requests.
    pub requests: u64,
    /// Sessions.
    pub sessions: u64,
    /// Sessions that lack turns.
    pub incomplete_sessions: u64,
    /// First to last timestamp, seconds.
    pub span_s: f64,
    /// Tokens per block.
    pub block_size: u32,
    /// Turns per session.
    pub turns: Spread,
    /// Start to start of neighbouring turns, seconds; null when every session has one turn.
    pub gap_s: Option<Spread>,
    /// Prompt tokens per request.
    pub input_tokens: Spread,
    /// Answer tokens per request.
    pub output_tokens: Spread,
    /// Prompt tokens of a turn minus those of the turn before; negative after a compaction.
    pub growth_tokens: Option<Spread>,
    /// Growth minus the answer of the turn before: what tools and users added.
    pub append_tokens: Option<Spread>,
    /// Largest prompt of each session.
    pub peak_input_tokens: Spread,
    /// Sum of the largest prompts over all sessions.
    pub peak_input_sum_tokens: u64,
    /// Prompt tokens of all requests.
    pub input_sum_tokens: u64,
    /// Answer tokens of all requests.
    pub output_sum_tokens: u64,
    /// Share of prompt tokens in full blocks that an earlier prompt had too, 0 to 1.
    pub infinite_cache_hit: f64,
    /// Part of the same in blocks that another session brought first.
    pub cross_session_hit: f64,
    /// Distinct full blocks.
    pub unique_blocks: u64,
    /// Most sessions between their first and last timestamp at once.
    pub peak_live_sessions: u64,
    /// Largest sum of the contexts (prompt and answer) of live sessions.
    pub peak_live_context_tokens: u64,
    /// Turns that do not continue the previous prompt and answer.
    pub compactions: u64,
}

/// One line of the table for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatRow {
    /// What.
    pub label: &'static str,
    /// How much, with its unit.
    pub value: String,
}

impl Spread {
    /// Of some samples; `None` when there are none.
    pub fn of(samples: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let rank = |percent: usize| sorted[(percent * sorted.len()).div_ceil(100).max(1) - 1];
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        Some(Spread { min, p10: rank(10), p50: rank(50), p90: rank(90), p99: rank(99), max, mean })
    }

    /// A trace has a request, so its totals always have a sample.
    fn of_some(samples: impl IntoIterator<Item = f64>) -> Spread {
        const NOTHING: Spread = Spread { min: 0.0, p10: 0.0, p50: 0.0, p90: 0.0, p99: 0.0, max: 0.0, mean: 0.0 };
        Spread::of(samples).unwrap_or(NOTHING)
    }
}

impl TraceStats {
    /// Counts a trace.
    pub fn of(trace: &Trace) -> TraceStats {
        let turns = &trace.turns;
        let pairs = || turns.windows(2).filter(|pair| pair[0].session == pair[1].session);
        let growth = |pair: &[TurnTrace]| f64::from(pair[1].input_length) - f64::from(pair[0].input_length);
        let per_session =
            || trace.sessions.iter().map(|session| session.turns.start as usize..session.turns.end as usize);
        let peaks = || per_session().filter_map(|range| turns[range].iter().map(|turn| turn.input_length).max());
        let hits = seen::hits(trace);
        let input_sum: u64 = turns.iter().map(|turn| u64::from(turn.input_length)).sum();
        let share = |blocks: u64| (blocks * u64::from(trace.tree.block_size())) as f64 / input_sum.max(1) as f64;
        let live = live::peaks(trace);
        TraceStats {
            requests: turns.len() as u64,
            sessions: trace.sessions.len() as u64,
            incomplete_sessions: trace.sessions.iter().filter(|session| session.incomplete).count() as u64,
            span_s: trace.span().as_secs_f64(),
            block_size: trace.tree.block_size(),
            turns: Spread::of_some(per_session().map(|range| range.len() as f64)),
            gap_s: Spread::of(pairs().map(|pair| pair[1].timestamp.as_secs_f64() - pair[0].timestamp.as_secs_f64())),
            input_tokens: Spread::of_some(turns.iter().map(|turn| f64::from(turn.input_length))),
            output_tokens: Spread::of_some(turns.iter().map(|turn| f64::from(turn.output_length))),
            growth_tokens: Spread::of(pairs().map(growth)),
            append_tokens: Spread::of(pairs().map(|pair| growth(pair) - f64::from(pair[0].output_length))),
            peak_input_tokens: Spread::of_some(peaks().map(f64::from)),
            peak_input_sum_tokens: peaks().map(u64::from).sum(),
            input_sum_tokens: input_sum,
            output_sum_tokens: turns.iter().map(|turn| u64::from(turn.output_length)).sum(),
            infinite_cache_hit: share(hits.blocks),
            cross_session_hit: share(hits.cross_session_blocks),
            unique_blocks: trace.tree.block_count(),
            peak_live_sessions: live.sessions,
            peak_live_context_tokens: live.context_tokens,
            compactions: pairs().filter(|pair| !pair[1].extends_previous).count() as u64,
        }
    }

    /// The table for people, top to bottom.
    pub fn rows(&self) -> Vec<StatRow> {
        let row = |label, value| StatRow { label, value };
        let seconds = |spread: &Spread| {
            let Spread { p10, p50, p90, max, mean, .. } = spread;
            format!("p10 {p10:.1}, p50 {p50:.1}, p90 {p90:.1}, max {max:.1}, mean {mean:.2} s")
        };
        let tokens = |spread: &Spread| {
            let Spread { p50, p90, p99, max, mean, .. } = spread;
            format!("p50 {p50:.0}, p90 {p90:.0}, p99 {p99:.0}, max {max:.0}, mean {mean:.0} tokens")
        };
        let or_none = |text: Option<String>| text.unwrap_or_else(|| "none: every session has one turn".to_owned());
        let Spread { min, p50, max, mean, .. } = self.turns;
        let Spread { mean: peak_mean, max: peak_max, .. } = self.peak_input_tokens;
        vec![
            row("requests", self.requests.to_string()),
            row("sessions", format!("{} ({} incomplete)", self.sessions, self.incomplete_sessions)),
            row("span", format!("{:.1} s", self.span_s)),
            row("turns per session", format!("min {min:.0}, p50 {p50:.0}, max {max:.0}, mean {mean:.1}")),
            row("gap, start to start", or_none(self.gap_s.as_ref().map(seconds))),
            row("input", tokens(&self.input_tokens)),
            row("output", tokens(&self.output_tokens)),
            row("input growth per turn", or_none(self.growth_tokens.as_ref().map(tokens))),
            row("append (growth less answer)", or_none(self.append_tokens.as_ref().map(tokens))),
            row(
                "peak input per session",
                format!("mean {peak_mean:.0}, max {peak_max:.0}, sum {} tokens", self.peak_input_sum_tokens),
            ),
            row("input, all requests", format!("{} tokens", self.input_sum_tokens)),
            row("output, all requests", format!("{} tokens", self.output_sum_tokens)),
            row("infinite cache hit", format!("{:.1} % of input tokens", 100.0 * self.infinite_cache_hit)),
            row("of it across sessions", format!("{:.1} % of input tokens", 100.0 * self.cross_session_hit)),
            row("unique blocks", format!("{} of {} tokens", self.unique_blocks, self.block_size)),
            row("peak live sessions", self.peak_live_sessions.to_string()),
            row("peak live contexts", format!("{} tokens", self.peak_live_context_tokens)),
            row("context compactions", self.compactions.to_string()),
        ]
    }
}

#[cfg(test)]
mod tests;
