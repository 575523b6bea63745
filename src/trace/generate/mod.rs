//! Seeded generator of agentic traces, preset `swe-bench-52`.
//!
//! Owns the statistics a generated trace has and the knobs that move them ([`GenerateSpec`]). The published numbers
//! are hit for any seed by construction: gaps are a stratified sample of their quantile table, answers and peaks are
//! scaled to their means. What was never published (shapes, growth per turn) follows a recorded run and proves nothing.
//! Invariant: a spec gives the same trace every time, and every prompt extends its predecessor.

mod arrivals;
mod check;
mod inputs;
mod plan;
mod quantiles;
mod sessions;
mod spec;
mod turns;

use crate::base::Rng;
use crate::trace::{Assembler, Trace, TraceMeta};

pub use check::{Statistic, Target};
pub use plan::Plan;
pub use spec::{Arrival, GenerateError, GenerateSpec, MOST_SESSIONS, Preset};

/// Goes into the digest: raise it when the same spec gives other numbers.
pub const GENERATOR_VERSION: u32 = 1;

/// Generates a trace.
///
/// # Errors
/// The spec is impossible, or asks for a span its sessions cannot have.
pub fn generate(spec: &GenerateSpec) -> Result<Trace, GenerateError> {
    let plan = Plan::new(spec)?;
    let mut assembler = Assembler::new(spec.block_size);
    plan.each_row(|row| assembler.push(row))?;
    let name = spec.preset.as_str();
    let mut trace = assembler.finish(TraceMeta {
        name: name.into(),
        source: format!("generated:{name}"),
        sha256: plan.sha256(),
        format: "generated".into(),
        timestamp_unit: "s".into(),
        block_size: spec.block_size,
        block_size_source: "flag".into(),
        origin_ns: 0,
    })?;
    trace.notices.extend(check::notices(&plan));
    Ok(trace)
}

/// What is drawn; each has a stream of its own, so that a knob of one does not move the others.
#[derive(Debug, Clone, Copy)]
enum Draw {
    Turns,
    Ids,
    Classes,
    Outputs,
    Gaps,
    Tasks,
    Peaks,
    Observations,
    Arrivals,
}

impl Draw {
    /// Streams start at "trace\0" so that a run with the same seed draws other numbers.
    fn rng(self, seed: u64) -> Rng {
        Rng::new(seed, 0x7472_6163_6500 + self as u64)
    }
}

#[cfg(test)]
mod tests;
