//! `doctor`: what the scenario's target is and can do, as a table, before anything is replayed.
//!
//! Owns the arguments and the table. The questions are `live::probe`'s, and so is what the answers mean.

use clap::Args;

use crate::cli::exit::{Exit, Failure};
use crate::cli::index::{feed_failure, feed_options};
use crate::cli::inputs::NamedArgs;
use crate::cli::live::{LiveArgs, not_started};
use crate::cli::output::FormatName;
use crate::cli::stdout;
use crate::cli::terminal::Terminal;
use crate::live::cluster::{ClusterPlan, EmbeddedCluster};
use crate::live::kv::service::Log;
use crate::live::probe::{Check, Examined, KV_EVENTS, Verdict, event_checks, examine, no_file_check, shortened};
use crate::live::{FoundSecrets, read_secrets};
use crate::results::render::{Format, Table, visible};
use crate::scenario::{IndexNeeds, Scenario, resolve_router};

const EXAMPLES: &str = "\
Examples:
  # a cluster of SGLang workers behind its router
  pdreplay doctor -s live-sglang
  # an OpenAI-compatible server
  pdreplay doctor --worker http://127.0.0.1:8000 --mechanism dp
  # and whether its KV events can be followed
  pdreplay doctor -s live-sglang --kv-events kv-events.json
  # the emulated cluster, started for it and stopped again
  pdreplay doctor

Each worker is asked for its health, version, model, loads, sessions and admission, and one token is generated \
over the way the run's requests will take; with indices in the target header, three times for each decode \
worker. A server that is listed twice, by whatever names, or under another role than its own fails, as it does \
in a replay. Takes at most some ten seconds. Results are ok, off (not there, not needed), warn and fail. Exits \
with 0 when a replay can run, with 1 when a check failed, with 2 on bad usage.";

/// Arguments of `doctor`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    #[command(flatten)]
    named: NamedArgs,
    #[command(flatten)]
    live: LiveArgs,
    /// Also follow the publishers of KV events of this file (that of `pdreplay index serve`) until they are in step.
    /// Default: the scenario's `kv_events.config`.
    #[arg(long, value_name = "FILE", help_heading = "KV events")]
    kv_events: Option<String>,
    /// Where their instances register, in place of the file's (as for `pdreplay index serve`).
    #[arg(long, value_name = "REGISTRY", help_heading = "KV events")]
    registry: Option<String>,
    /// Format of what is printed.
    #[arg(long, value_name = "FORMAT", default_value = "table", help_heading = "Output")]
    format: FormatName,
    /// The same as `--format json`.
    #[arg(long, conflicts_with = "format", help_heading = "Output")]
    json: bool,
}

/// Tokens a block of an embedded cluster's prefix caches; it only serves a few one-token prompts.
const BLOCK_SIZE: u32 = 64;

/// Runs it.
pub fn run(args: &DoctorArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let scenario = args.named.resolve(Vec::new(), &args.live)?;
    let FoundSecrets { secrets, hints } = read_secrets(&scenario.live)?;
    hints.iter().for_each(|hint| terminal.messages.warning(hint));
    let cluster = if scenario.live.is_embedded() { Some(start(&scenario)?) } else { None };
    let addresses = cluster.as_ref().map(EmbeddedCluster::addresses);
    let is_own = cluster.is_some();
    let Examined { mut checks, addresses } = examine(&scenario, addresses, secrets)?;
    if let Some(cluster) = cluster {
        cluster.stop().map_err(Failure::broke)?;
    }
    let needs = IndexNeeds::of(&scenario);
    let named = Some(&scenario.kv_events.config).filter(|path| !path.is_empty());
    if let Some(path) = args.kv_events.as_ref().or(named) {
        let options = feed_options(path, args.registry.as_deref(), Log::silent())?;
        // Whether events are published is what the streams themselves tell now.
        checks.retain(|check| check.check != KV_EVENTS || check.result != Verdict::Off);
        checks.extend(event_checks(options, &addresses, needs.as_ref()).map_err(feed_failure)?);
    } else if let Some(needs) = needs.filter(|_| !is_own) {
        checks.push(no_file_check(&needs));
    }
    let flags = args.live.address_flags();
    checks.iter_mut().for_each(|check| check.remedy = where_given(&check.remedy, &flags));
    terminal.messages.settle();
    let format = if args.json { Format::Json } else { args.format.format() };
    stdout::print(&shown(&checks, format, terminal))?;
    let failed = checks.iter().any(|check| check.result == Verdict::Fail);
    Ok(if failed { Exit::Broke } else { Exit::Ok })
}

/// A remedy that names the place of the addresses names the flags they were given by.
fn where_given(remedy: &str, flags: &[&str]) -> String {
    if flags.is_empty() { remedy.to_owned() } else { remedy.replace("in [live]", &format!("in {}", flags.join(", "))) }
}

fn start(scenario: &Scenario) -> Result<EmbeddedCluster, Failure> {
    let mut scenario = scenario.clone();
    resolve_router(&mut scenario);
    let plan = ClusterPlan {
        speed: scenario.live.emulation_speed,
        ..ClusterPlan::new(scenario.cluster, scenario.engine, BLOCK_SIZE)
    };
    EmbeddedCluster::start(plan).map_err(not_started)
}

/// On a terminal, what follows from a check stands below the table, where lines are not cut.
fn shown(checks: &[Check], format: Format, terminal: &Terminal) -> String {
    let short = |check: &Check| [check.check, check.result.as_str(), &check.detail].map(str::to_owned).to_vec();
    match format {
        Format::Table => {
            let before = checks.iter().map(|check| check.check.len()).max().unwrap_or(0) + "  result  ".len();
            let room = terminal.style.width.saturating_sub(before);
            let fitted = |check: &Check| {
                let detail = shortened(&visible(&check.detail), room);
                vec![check.check.to_owned(), check.result.as_str().to_owned(), detail]
            };
            let table = Table::plain(&["check", "result", "detail"], checks.iter().map(fitted).collect());
            let table = table.render(format, terminal.style);
            let below: String = checks.iter().filter(|check| check.result != Verdict::Ok).map(follows).collect();
            if below.is_empty() { table } else { table + "\n" + &below }
        }
        Format::Json | Format::Csv | Format::Markdown => {
            let long = |check: &Check| [short(check), vec![check.will_be_off.clone(), check.remedy.clone()]].concat();
            let titles = ["check", "result", "detail", "will_be_off", "remedy"];
            Table::plain(&titles, checks.iter().map(long).collect()).render(format, terminal.style)
        }
    }
}

fn follows(check: &Check) -> String {
    let part = |label: &str, text: &str| if text.is_empty() { String::new() } else { format!("  {label}: {text}\n") };
    let parts = part("effect", &check.will_be_off) + &part("do", &check.remedy);
    if parts.is_empty() && check.result != Verdict::Fail {
        return String::new();
    }
    let head = format!("{} {}: {}\n", check.result.as_str(), check.check, check.detail);
    (head + &parts).lines().map(|line| visible(line).into_owned() + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_names_the_flags_that_gave_the_addresses() {
        let remedy = "start the missing workers, or correct the addresses in [live]";
        assert_eq!(where_given(remedy, &[]), remedy);
        assert!(where_given(remedy, &["--worker"]).ends_with("correct the addresses in --worker"));
    }

    #[test]
    fn what_follows_is_told_below_the_table_and_in_full() {
        let check = Check {
            check: "admission",
            result: Verdict::Warn,
            detail: "D0: 404\u{1b}".into(),
            will_be_off: "direct appends".into(),
            remedy: "use another".into(),
        };
        assert_eq!(follows(&check), "warn admission: D0: 404\\u{1b}\n  effect: direct appends\n  do: use another\n");
        let silent = Check { will_be_off: String::new(), remedy: String::new(), ..check };
        assert_eq!(follows(&silent), "");
    }
}
