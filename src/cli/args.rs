//! The command line as typed: subcommands and global flags. Resolved once by each subcommand, then frozen.

use clap::{Parser, Subcommand};

use crate::cli::cluster::ClusterCommand;
use crate::cli::completions::CompletionsArgs;
use crate::cli::diff::DiffArgs;
use crate::cli::doctor::DoctorArgs;
use crate::cli::index::IndexCommand;
use crate::cli::preflight::PreflightArgs;
use crate::cli::replay::ReplayArgs;
use crate::cli::report::ReportArgs;
use crate::cli::router::RouterArgs;
use crate::cli::scenario::ScenarioCommand;
use crate::cli::sweep::SweepArgs;
use crate::cli::terminal::ColorWhen;
use crate::cli::trace::TraceCommand;
use crate::cli::worker::WorkerArgs;

const EXAMPLES: &str = "\
Examples:
  # the built-in trace on the default scenario
  pdreplay replay
  # a recorded trace on a shipped scenario
  pdreplay replay trace.jsonl.zst --scenario v3-1p7d
  # policies × caps × topologies, each run five times
  pdreplay sweep cap-policy
  # what to expect, without a run
  pdreplay preflight --set admission.cap_max=4
  # who starved, and why
  pdreplay report outputs/NAME --sessions
  # what changed between two runs
  pdreplay diff outputs/BASE outputs/NEW
  # what is in a trace
  pdreplay trace inspect trace.jsonl.zst

Exit codes: 0 ok; 1 the run broke a budget, was stopped by a failed turn, completed nothing or could not write \
its results, or a condition of --fail-on or --fail-on-starvation was met or cannot be judged; 2 bad usage or input; 129 (SIGHUP), 130 (SIGINT) and 143 (SIGTERM) interrupted: results are written \
as far as the run went. A second signal ends the program at once: the records so far are kept (requests.jsonl), \
without a summary; `pdreplay report` makes one.";

/// Replay agentic LLM traces against prefill/decode disaggregated clusters, and see why sessions starve.
///
/// Results go to stdout, messages and progress to stderr. Times are in seconds and milliseconds as named, lengths in
/// tokens. Everything a run depends on is written beside its results.
#[derive(Debug, Parser)]
#[command(name = "pdreplay", version, after_help = EXAMPLES)]
pub struct Args {
    /// Colour; `auto`: on a terminal, unless NO_COLOR is set or TERM is dumb.
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", help_heading = "Global options")]
    pub color: ColorWhen,
    /// Nothing on stderr unless something is wrong.
    #[arg(long, short, global = true, help_heading = "Global options")]
    pub quiet: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Replay a trace on an emulated cluster in virtual time, or on a real one, and print the summary.
    Replay(Box<ReplayArgs>),
    /// Run every combination of a sweep file's values, resumable, and print one table over all runs.
    Sweep(Box<SweepArgs>),
    /// Say what a run would meet: slots, capacity, distortion by the time scale, conflicts. Sends nothing.
    Preflight(Box<PreflightArgs>),
    /// Say what the scenario's real target is and can do, and what will be off: asks it, generates a token or two.
    Doctor(Box<DoctorArgs>),
    /// Tables of a run, also of one that was interrupted, killed or is under way.
    Report(ReportArgs),
    /// Compare two runs, or two groups of repeats: what changed, where it comes from, who starved or was freed.
    Diff(Box<DiffArgs>),
    /// Look at, check, make, convert and cut traces.
    #[command(subcommand)]
    Trace(TraceCommand),
    /// List the shipped scenarios, or show one with every default filled in.
    #[command(subcommand)]
    Scenario(ScenarioCommand),
    /// Run all workers of a scenario and their router on loopback ports.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Run one emulated worker as an HTTP server of its own.
    Worker(Box<WorkerArgs>),
    /// Run the PD router in front of workers that are already there.
    Router(Box<RouterArgs>),
    /// The index of prefix caches made from KV events: serve it, ask it, watch it.
    #[command(subcommand)]
    Index(IndexCommand),
    /// Print a completion script for a shell.
    Completions(CompletionsArgs),
    /// Print the manual page (roff).
    Man,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Help is wrapped where it is shown: a line that was broken by hand would be broken twice.
    fn check(command: &clap::Command) {
        let name = command.get_name();
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
        for pair in lines.windows(2) {
            assert!(!(is_prose(pair[0]) && is_prose(pair[1])), "{name}: broken by hand: {}", pair[1]);
        }
        for line in lines.iter().filter(|line| line.starts_with(' ')) {
            assert!(line.chars().count() <= 80, "{name}: would be wrapped at 80 columns: {line}");
            let is_command = line.starts_with("  pdreplay ");
            assert!(!is_command || !line.trim().contains("  "), "{name}: comments stand above: {line}");
        }
        command.get_subcommands().for_each(check);
    }

    #[test]
    fn help_is_wrapped_once() {
        check(&Args::command());
    }
}
