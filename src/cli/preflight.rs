//! `preflight`: what a run would meet. Sends nothing, writes nothing.

use clap::Args;

use crate::cli::exit::{Exit, Failure};
use crate::cli::inputs::{InputArgs, tell_notices};
use crate::cli::output::json;
use crate::cli::stdout;
use crate::cli::terminal::Terminal;
use crate::results::render::visible;
use crate::scenario::{self, Preflight, Severity};

const EXAMPLES: &str = "\
Examples:
  # will every session find a slot?
  pdreplay preflight -s v3-1p7d
  # how many gaps become shorter than the service time?
  pdreplay preflight trace.jsonl --time-scale 10

Exits with 1 when `replay` would refuse the run without --allow-conflict.";

/// Arguments of `preflight`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct PreflightArgs {
    #[command(flatten)]
    inputs: InputArgs,
    /// Print JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// Runs it.
pub fn run(args: &PreflightArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let inputs = args.inputs.resolve()?;
    inputs.setup()?;
    tell_notices(&inputs.trace, &terminal.messages);
    terminal.messages.settle();
    let preflight = scenario::preflight(&inputs.scenario, &inputs.trace);
    stdout::print(&if args.json { json(&preflight) } else { shown(&preflight) })?;
    Ok(if preflight.refuses() { Exit::Broke } else { Exit::Ok })
}

fn shown(preflight: &Preflight) -> String {
    preflight.lines().iter().map(|line| visible(line) + "\n").collect()
}

/// Why a run is refused, and how to run it all the same.
pub fn refusal(preflight: &Preflight) -> Failure {
    let refused = preflight.conflicts.iter().filter(|conflict| conflict.severity == Severity::Refuse);
    Failure::inputs(refused.map(|conflict| &conflict.text))
        .hint("--allow-conflict runs it as it is, to study what goes wrong")
}
