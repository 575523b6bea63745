//! `cluster up`: all workers of a scenario and their router, on loopback ports, until a signal comes.

use std::net::IpAddr;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::base::{Role, WorkerId};
use crate::cli::exit::{Exit, Failure};
use crate::cli::inputs::ScenarioArgs;
use crate::cli::signals::Signals;
use crate::cli::stdout;
use crate::cli::terminal::Terminal;
use crate::cli::worker::role_name;
use crate::cluster::Notice;
use crate::live::cluster::{ClusterPlan, EmbeddedCluster, Notify};
use crate::live::server::{RequestLog, SglangVersion, WorkerServerOptions};
use crate::live::{Addresses, Endpoint};
use crate::node::RetryRule;
use crate::scenario::{Scenario, fault_label, resolve_router};

/// Time between two looks for a signal.
const LOOK: Duration = Duration::from_millis(20);

/// Subcommands of `cluster`.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Start it, print where everything is, and run until SIGINT or SIGTERM.
    Up(Box<UpArgs>),
}

const EXAMPLES: &str = "\
Examples:
  pdreplay cluster up                                       the default scenario, on free ports
  pdreplay cluster up v3-1p7d --base-port 9000              router at 9000, P0 at 9001, D0 at 9002, …
  pdreplay cluster up --set cluster.decode=2 --json         one line of JSON, for scripts
  curl -N http://127.0.0.1:9000/generate -H 'content-type: application/json' \\
       -d '{\"text\": \"fix the bug\", \"sampling_params\": {\"max_new_tokens\": 8}, \"stream\": true}'

The scenario's faults count from the start. Ends with exit 0 on SIGINT and SIGTERM, after the answers under way (at most
2 s); a second signal ends it at once.";

/// Arguments of `cluster up`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct UpArgs {
    /// The same as `--scenario`.
    #[arg(value_name = "FILE|NAME", conflicts_with = "scenario")]
    named: Option<String>,
    #[command(flatten)]
    scenario: ScenarioArgs,
    /// Tokens a block of the prefix caches; the trace's, if its cached tokens are to be compared.
    #[arg(long, value_name = "TOKENS", default_value = "64", value_parser = clap::value_parser!(u32).range(1..))]
    block_size: u32,
    /// Address to listen on.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1", help_heading = "Server")]
    host: IpAddr,
    /// Port of the router; P0, P1, …, D0, …, W0, … have the ones after it. Default: free ports.
    #[arg(long, value_name = "PORT", help_heading = "Server", value_parser = clap::value_parser!(u16).range(1..))]
    base_port: Option<u16>,
    /// Version of SGLang whose bodies the workers answer with.
    #[arg(long, value_name = "VERSION", default_value = SglangVersion::V0_5_23.as_str(), help_heading = "Server", value_parser = PossibleValuesParser::new(SglangVersion::ALL.map(SglangVersion::as_str)))]
    sglang_version: String,
    /// Events hold what is new instead of everything so far.
    #[arg(long, help_heading = "Server")]
    incremental_streaming_output: bool,
    /// No admission endpoint, as in stock SGLang.
    #[arg(long, help_heading = "Server")]
    no_admission: bool,
    /// The router sends failed requests again, as smg does.
    #[arg(long, help_heading = "Server")]
    retries: bool,
    /// Print one line of JSON instead of the table.
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// A line for each request on stderr.
    #[arg(long, help_heading = "Output")]
    log_requests: bool,
}

/// Runs it.
pub fn run(command: &ClusterCommand, terminal: &Terminal) -> Result<Exit, Failure> {
    let ClusterCommand::Up(args) = command;
    let mut asked = args.scenario.clone();
    asked.scenario = args.named.clone().or(asked.scenario);
    let mut scenario = asked.resolve()?;
    resolve_router(&mut scenario);
    let plan = args.plan(scenario, terminal)?;
    let speed = plan.speed;
    let signals = Signals::install().map_err(|error| Failure::broke(format!("cannot watch for signals: {error}")))?;
    let cluster = EmbeddedCluster::start(plan).map_err(|error| {
        Failure::broke(error).hint("stop what listens there, or leave `--base-port` out for free ports")
    })?;
    let addresses = cluster.addresses();
    if args.json {
        stdout::print(&line(addresses, speed).to_string())?;
    } else {
        stdout::print(&table(addresses))?;
        hints(addresses, speed).into_iter().for_each(|hint| terminal.messages.note(hint));
    }
    while signals.caught().is_none() {
        std::thread::park_timeout(LOOK);
    }
    cluster.stop().map_err(Failure::broke)?;
    Ok(Exit::Ok)
}

impl UpArgs {
    fn plan(&self, scenario: Scenario, terminal: &Terminal) -> Result<ClusterPlan, Failure> {
        let nodes = usize::from(scenario.cluster.prefill)
            + usize::from(scenario.cluster.decode)
            + usize::from(scenario.cluster.colocated);
        if self.base_port.is_some_and(|base| usize::from(base) + nodes > usize::from(u16::MAX)) {
            let cause = format!("{nodes} workers do not fit above port {}", self.base_port.unwrap_or_default());
            return Err(Failure::input(cause).hint("give a lower `--base-port`, or none"));
        }
        let version = SglangVersion::ALL.into_iter().find(|version| version.as_str() == self.sglang_version);
        let messages = terminal.messages.clone();
        let log = self.log_requests.then(|| {
            let messages = messages.clone();
            RequestLog::new(move |line| messages.note(line))
        });
        let plan = ClusterPlan::new(scenario.cluster, scenario.engine, self.block_size);
        Ok(ClusterPlan {
            faults: scenario.fault,
            seed: scenario.seed,
            speed: scenario.live.emulation_speed,
            host: self.host,
            base_port: self.base_port,
            worker: WorkerServerOptions {
                version: version.unwrap_or_default(),
                incremental_output: self.incremental_streaming_output,
                admission: !self.no_admission,
                log,
                ..plan.worker
            },
            retry: self.retries.then_some(RetryRule::SMG),
            notify: Some(Notify::new(move |notice| messages.note(said(notice)))),
            ..plan
        })
    }
}

/// A fault in words.
fn said(notice: Notice) -> String {
    match notice {
        Notice::Fault { kind, worker: Some(worker) } => {
            format!("fault: {} {worker}", fault_label(kind))
        }
        Notice::Fault { kind, worker: None } => format!("fault: {}", fault_label(kind)),
        Notice::SessionDropped { worker, reason, .. } => {
            format!("{worker} dropped a session: {reason:?}")
        }
    }
}

fn line(addresses: &Addresses, speed: f64) -> Value {
    let workers = addresses.workers().map(|(id, at)| {
        json!({
            "worker": id.to_string(), "role": role_name(id.role), "url": at.url, "bootstrap_port": at.bootstrap_port,
        })
    });
    json!({
        "router": addresses.router, "workers": workers.collect::<Vec<_>>(), "emulation_speed": speed,
        "pid": std::process::id(),
    })
}

fn table(addresses: &Addresses) -> String {
    let mut rows = vec![["NAME", "ROLE", "URL", "BOOTSTRAP PORT"].map(String::from)];
    rows.extend(addresses.router.iter().map(|url| ["router".into(), "router".into(), url.clone(), String::new()]));
    rows.extend(addresses.workers().map(|(id, at): (WorkerId, &Endpoint)| {
        let port = at.bootstrap_port.map(|port| port.to_string()).unwrap_or_default();
        [id.to_string(), role_name(id.role).to_owned(), at.url.clone(), port]
    }));
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    let shown = rows.iter().map(|[name, role, url, port]| {
        let [a, b, c] = widths;
        format!("{name:<a$}  {role:<b$}  {url:<c$}  {port}").trim_end().to_owned() + "\n"
    });
    shown.collect()
}

/// How to use what is there.
fn hints(addresses: &Addresses, speed: f64) -> Vec<String> {
    let Some(router) = &addresses.router else { return Vec::new() };
    let body = r#"'{"text": "fix the bug", "sampling_params": {"max_new_tokens": 8}, "stream": true}'"#;
    let list = |role: Role| {
        let of_role = addresses.workers().filter(|(id, _)| id.role == role);
        let written = of_role.map(|(_, at)| match at.bootstrap_port {
            Some(port) => format!("\"{} {port}\"", at.url),
            None => format!("\"{}\"", at.url),
        });
        written.collect::<Vec<_>>().join(",")
    };
    let keys = [("prefill", Role::Prefill), ("decode", Role::Decode), ("colocated", Role::Colocated)];
    let speed = if speed == 1.0 { String::new() } else { format!(" --set live.emulation_speed={speed}") };
    let sets: String = keys
        .into_iter()
        .map(|(key, role)| (key, list(role)))
        .filter(|(_, urls)| !urls.is_empty())
        .map(|(key, urls)| format!(" --set 'live.{key}=[{urls}]'"))
        .collect();
    vec![
        format!("try it:    curl -N {router}/generate -H 'content-type: application/json' -d {body}"),
        format!(
            "replay on: pdreplay replay --target live --set live.target=sglang --set live.router={router}{sets}{speed}"
        ),
        "stop it:   Ctrl-C".to_owned(),
    ]
}
