//! Repeats made for a comparison: the same run with other seeds and jittered arrivals, in virtual time and in memory.
//!
//! What a run depends on is in its `run.json`: scenario and trace. Nothing is written. Invariant: where repeats cannot be
//! made, the reason is said, and the comparison goes on without.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use crate::base::words::plural;
use crate::cli::diff::sides::Single;
use crate::cli::exit::Failure;
use crate::cli::folder::RunManifest;
use crate::cli::found::Asked;
use crate::cli::inputs::{ReadingArgs, generate_trace};
use crate::cli::provenance::{VERSION, run_id, run_info};
use crate::cli::replicas;
use crate::cli::terminal::Terminal;
use crate::cli::threads::in_order;
use crate::protocol::TokenRun;
use crate::record::{LedgerEvent, RequestRecord};
use crate::replay::{Observer, Progress};
use crate::results::diff::Made;
use crate::results::{Accumulator, RunState, RunSummary};
use crate::scenario::{Scenario, Setup, preflight};
use crate::sim;
use crate::trace::Trace;

/// Repeats of either side by default …
const USUAL: u32 = 3;
/// … for runs of at most so many requests.
const MOST_REQUESTS: u64 = 100_000;

/// What repeats are wanted.
pub struct Wish<'a> {
    /// So many, whatever they take.
    pub asked: Option<u32>,
    /// What their summaries should have.
    pub summary: &'a Asked,
    /// Threads.
    pub jobs: usize,
}

/// Makes repeats of A and B, each a single run in virtual time; says of what it makes none, and why.
pub fn make(sides: [Single; 2], wish: &Wish, terminal: &Terminal) -> Result<Made, Failure> {
    let mut made = Made::default();
    let into = [("A", &mut made.a), ("B", &mut made.b)];
    for ((name, into), side) in into.into_iter().zip(sides) {
        match plan(&side, wish) {
            Err(reason) => terminal.messages.note(format!("{name}: no repeats are made: {reason}")),
            Ok(plan) => {
                *into = plan.run(wish)?;
                let jitter = plan.scenario.replay.arrival_jitter_ms;
                terminal.messages.note(format!("{name}: {}", plan.words()));
                made.jitter_ms = Some(jitter.max(made.jitter_ms.unwrap_or(0.0)));
            }
        }
    }
    Ok(made)
}

/// Repeats that can be made.
struct Plan {
    repeats: u32,
    trace: Arc<Trace>,
    scenario: Scenario,
}

fn plan(side: &Single, wish: &Wish) -> Result<Plan, String> {
    let info = &side.info;
    let manifest = side.manifest.as_ref().ok_or("a file of records does not say what ran")?;
    if manifest.target.is_some() {
        return Err("the run was in real time; repeat it with replay, and name the runs".into());
    }
    if info.state != RunState::Completed {
        return Err(format!("the run is {}", info.state.as_str()));
    }
    if manifest.version != VERSION {
        return Err(format!("it was made by pdreplay {}, this is {VERSION}", manifest.version));
    }
    if wish.asked.is_none() && info.requests > MOST_REQUESTS {
        return Err(format!("{} take their time; --replicas {USUAL} makes them", plural(info.requests, "request")));
    }
    let trace = trace_of(manifest)?;
    let mut scenario = manifest.scenario.clone();
    replicas::jitter(&mut scenario);
    Ok(Plan { repeats: wish.asked.unwrap_or(USUAL), trace: Arc::new(trace), scenario })
}

/// The trace of a run, if it is still the one that was replayed.
fn trace_of(manifest: &RunManifest) -> Result<Trace, String> {
    let facts = &manifest.trace;
    let trace = if facts.source.starts_with("generated:") {
        generate_trace(&manifest.scenario).map_err(|failure| failure.to_string())?
    } else {
        let reading = ReadingArgs {
            trace_format: Some(facts.format.clone()),
            timestamp_unit: Some(facts.timestamp_unit.clone()),
            block_size: facts.block_size.try_into().ok(),
        };
        reading.read(Path::new(&facts.source)).map_err(|failure| failure.to_string())?
    };
    if trace.meta.sha256 != facts.sha256 {
        return Err(format!("the trace {} has changed since", facts.source));
    }
    Ok(trace)
}

impl Plan {
    fn words(&self) -> String {
        let Plan { repeats, scenario, .. } = self;
        let seeds = format!("seeds {} to {}", scenario.seed, replicas::seed_of(scenario.seed, repeats - 1));
        let made = plural(u64::from(*repeats), "repeat");
        let jitter = scenario.replay.arrival_jitter_ms;
        format!("{made} made in virtual time to learn the noise: {seeds}, arrivals jittered by up to {jitter} ms")
    }

    fn run(&self, wish: &Wish) -> Result<Vec<RunSummary>, Failure> {
        in_order(self.repeats as usize, wish.jobs, |number| self.repeat(number as u32, wish.summary))
            .into_iter()
            .collect()
    }

    fn repeat(&self, number: u32, asked: &Asked) -> Result<RunSummary, Failure> {
        let mut scenario = self.scenario.clone();
        scenario.seed = replicas::seed_of(scenario.seed, number);
        let setup = Setup::new(&scenario, &self.trace, &run_id(&scenario, &self.trace))?;
        let mut info = run_info(&scenario, &self.trace, &preflight(&scenario, &self.trace));
        let percentiles = asked.percentiles.clone().unwrap_or_default();
        let slos = asked.slos.unwrap_or(info.slos);
        let mut taken = Taken(Accumulator::new(percentiles).with_slos(slos));
        let end = sim::drive(&self.trace, setup, &mut taken).map_err(Failure::broke)?;
        info.state = RunState::Completed;
        taken.0.finish(&end.facts, &info).map_err(Failure::broke)
    }
}

/// Keeps what a summary needs, and writes nothing.
struct Taken(Accumulator);

impl Observer for Taken {
    fn record(&mut self, record: &RequestRecord, tokens: &[TokenRun]) -> io::Result<()> {
        self.0.push(record, tokens);
        Ok(())
    }

    fn ledger(&mut self, _: &LedgerEvent) -> io::Result<()> {
        Ok(())
    }

    fn progress(&mut self, _: &Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
