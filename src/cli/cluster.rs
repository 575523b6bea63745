//! `cluster up`: all workers of a scenario and their router, on loopback ports, until a signal comes.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::base::WorkerId;
use crate::cli::exit::{Exit, Failure};
use crate::cli::inputs::NamedArgs;
use crate::cli::live::LiveArgs;
use crate::cli::server::{SglangArgs, ToldArgs, role_name};
use crate::cli::signals::Signals;
use crate::cli::stdout;
use crate::cli::streams_file::{Streams, StreamsFile, streams_of};
use crate::cli::terminal::Terminal;
use crate::cli::use_hints::UseHints;
use crate::cluster::Notice;
use crate::live::Endpoint;
use crate::live::cluster::{ClusterError, ClusterPlan, EmbeddedCluster, Notify};
use crate::live::server::WorkerServerOptions;
use crate::node::RetryRule;
use crate::scenario::{KvSetup, Overlay, Scenario, fault_label, resolve_router};

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
  # the default scenario, on free ports
  pdreplay cluster up
  # router at 9000, P0 at 9001, D0 at 9002, …
  pdreplay cluster up v3-1p7d --base-port 9000
  # one line of JSON, for scripts
  pdreplay cluster up --set cluster.decode=2 --json
  # workers publish KV events; their streams are in kv.json
  pdreplay cluster up --policy car --mechanism pd --kv-config kv.json
  curl -N http://127.0.0.1:9000/generate -H 'content-type: application/json' \\
    -d '{\"text\": \"fix the bug\", \"stream\": true}'

The scenario's faults count from the start. Ends with exit 0 on SIGINT and SIGTERM, after the answers under way \
(at most 2 s); a second signal ends it at once.";

/// Arguments of `cluster up`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct UpArgs {
    /// The same as `--scenario`.
    #[arg(value_name = "FILE|NAME", conflicts_with = "scenario")]
    named: Option<String>,
    #[command(flatten)]
    scenario: NamedArgs,
    /// Seed of everything random in the workers.
    #[arg(long, value_name = "N", help_heading = "Scenario")]
    seed: Option<u64>,
    /// How many times faster than real time the workers go. Default: the scenario's `live.emulation_speed`.
    #[arg(long, value_name = "X", allow_hyphen_values = true, help_heading = "Scenario")]
    emulation_speed: Option<String>,
    /// Address to listen on.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1", help_heading = "Server")]
    host: IpAddr,
    /// Port of the router; P0, P1, …, D0, …, W0, … have the ones after it. Default: free ports.
    #[arg(long, value_name = "PORT", help_heading = "Server", value_parser = clap::value_parser!(u16).range(1..))]
    base_port: Option<u16>,
    /// Write the file of the workers' KV streams here, for `kv_events.config` and `index serve`; it takes the place of an
    /// earlier one that pdreplay wrote, and of no other file. Default: a file of its own in the directory for temporary
    /// files, gone with the cluster.
    #[arg(long, value_name = "FILE", help_heading = "KV events")]
    kv_config: Option<PathBuf>,
    #[command(flatten)]
    sglang: SglangArgs,
    /// The router sends failed requests again, as smg does.
    #[arg(long, help_heading = "Server")]
    retries: bool,
    #[command(flatten)]
    told: ToldArgs,
}

/// Runs it.
pub fn run(command: &ClusterCommand, terminal: &Terminal) -> Result<Exit, Failure> {
    let ClusterCommand::Up(args) = command;
    let mut asked = args.scenario.clone();
    asked.scenario = args.named.clone().or(asked.scenario);
    let seed = args.seed.map(|seed| Overlay::shorthand("--seed", "seed", &seed.to_string()));
    let speed = args.emulation_speed.as_deref();
    let speed = speed.map(|speed| Overlay::shorthand("--emulation-speed", "live.emulation_speed", speed));
    let own = seed.into_iter().chain(speed).collect();
    let mut scenario = asked.resolve(own, &LiveArgs::default())?;
    resolve_router(&mut scenario);
    let hints = UseHints { asked: &asked, scenario: scenario.clone() };
    args.kv_config.as_deref().map_or(Ok(()), StreamsFile::check)?;
    let plan = args.plan(scenario, terminal)?;
    let (speed, kv) = (plan.speed, plan.kv.clone());
    let signals = Signals::install()?;
    let cluster = EmbeddedCluster::start(plan).map_err(|error| {
        let hint = start_hint(&error);
        Failure::broke(error).hint(hint)
    })?;
    let addresses = cluster.addresses();
    let published = kv.filter(|_| !cluster.kv_addresses().is_empty());
    let file = args.streams_file(published.map(|kv| streams_of(&kv, cluster.kv_addresses())))?;
    if args.told.json {
        stdout::print(&line(&cluster, speed).to_string())?;
    } else {
        stdout::print(&table(&cluster))?;
        let lines = hints.lines(addresses, file.as_ref().map(StreamsFile::path));
        lines.into_iter().for_each(|hint| terminal.messages.note(hint));
    }
    while signals.caught().is_none() {
        std::thread::park_timeout(LOOK);
    }
    cluster.stop().map_err(Failure::broke)?;
    Ok(Exit::Ok)
}

/// EMFILE: the program has no descriptor left.
const NO_DESCRIPTOR: i32 = 24;

/// What to do where a cluster cannot start, whoever wanted it.
pub fn start_hint(error: &ClusterError) -> &'static str {
    match error {
        ClusterError::Port { source, .. } | ClusterError::Start { source, .. }
            if source.raw_os_error() == Some(NO_DESCRIPTOR) =>
        {
            "raise the limit of open files (`ulimit -n 65536`), or start fewer workers"
        }
        ClusterError::Port { source, .. } if source.kind() == ErrorKind::AddrInUse => {
            "stop what listens there; if nothing does, a connection has or had that port: wait a minute, give another \
             `--base-port`, or leave it out for free ports"
        }
        ClusterError::Port { .. } => "leave `--base-port` out for free ports",
        ClusterError::Start { .. } | ClusterError::Fault(_) | ClusterError::Nodes(_) => "start fewer workers",
    }
}

impl UpArgs {
    /// The file of the streams that are published, where it is of use.
    fn streams_file(&self, streams: Option<Streams>) -> Result<Option<StreamsFile>, Failure> {
        let wanted = self.kv_config.as_deref();
        match streams {
            Some(streams) if wanted.is_some() || !self.told.json => StreamsFile::write(wanted, &streams).map(Some),
            Some(_) => Ok(None),
            None if wanted.is_some() => {
                let cause = "`--kv-config` names a file for KV streams, but no worker publishes any";
                Err(Failure::input(cause).hint("add `--policy car`, or `--set kv_events.enabled=on`"))
            }
            None => Ok(None),
        }
    }

    fn plan(&self, scenario: Scenario, terminal: &Terminal) -> Result<ClusterPlan, Failure> {
        let nodes = usize::from(scenario.cluster.prefill)
            + usize::from(scenario.cluster.decode)
            + usize::from(scenario.cluster.colocated);
        if self.base_port.is_some_and(|base| usize::from(base) + nodes > usize::from(u16::MAX)) {
            let cause = format!("{nodes} workers do not fit above port {}", self.base_port.unwrap_or_default());
            return Err(Failure::input(cause).hint("give a lower `--base-port`, or none"));
        }
        let messages = terminal.messages.clone();
        let kv = KvSetup::new(&scenario, self.sglang.block_size).map(|kv| kv.publishing.options);
        let plan = ClusterPlan::new(scenario.cluster, scenario.engine, self.sglang.block_size);
        Ok(ClusterPlan {
            faults: scenario.fault,
            seed: scenario.seed,
            speed: scenario.live.emulation_speed,
            host: self.host,
            base_port: self.base_port,
            worker: WorkerServerOptions { log: self.told.log(terminal), ..self.sglang.apply(plan.worker) },
            retry: self.retries.then_some(RetryRule::SMG),
            notify: Some(Notify::new(move |notice| messages.note(said(notice)))),
            kv,
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

fn line(cluster: &EmbeddedCluster, speed: f64) -> Value {
    let addresses = cluster.addresses();
    let workers = addresses.workers().map(|(id, at)| {
        let kv = cluster.kv_addresses().get(&id);
        json!({
            "worker": id.to_string(), "role": role_name(id.role), "url": at.url, "bootstrap_port": at.bootstrap_port,
            "kv_events": kv.map(|kv| zmq_url(kv.events)), "kv_replay": kv.map(|kv| zmq_url(kv.replay)),
        })
    });
    json!({
        "router": addresses.router, "workers": workers.collect::<Vec<_>>(), "emulation_speed": speed,
        "pid": std::process::id(),
    })
}

fn table(cluster: &EmbeddedCluster) -> String {
    let (addresses, kv) = (cluster.addresses(), cluster.kv_addresses());
    let mut rows = vec![["NAME", "ROLE", "URL", "BOOTSTRAP PORT", "KV EVENTS", "KV REPLAY"].map(String::from)];
    let router = |url: &String| ["router", "router", url, "", "", ""].map(String::from);
    rows.extend(addresses.router.iter().map(router));
    rows.extend(addresses.workers().map(|(id, at): (WorkerId, &Endpoint)| {
        let port = at.bootstrap_port.map(|port| port.to_string()).unwrap_or_default();
        let kv = kv.get(&id).map(|kv| [zmq_url(kv.events), zmq_url(kv.replay)]);
        let [events, replay] = kv.unwrap_or_default();
        [id.to_string(), role_name(id.role).to_owned(), at.url.clone(), port, events, replay]
    }));
    // No columns of nothing.
    let shown = if kv.is_empty() { 4 } else { 6 };
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..shown).map(width).collect();
    let line = |row: &[String; 6]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

fn zmq_url(address: SocketAddr) -> String {
    format!("tcp://{address}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_descriptors_is_told_to_raise_the_limit() {
        let port = |number| ClusterError::Port {
            name: "D0".into(),
            address: ([127, 0, 0, 1], 9000).into(),
            source: std::io::Error::from_raw_os_error(number),
        };
        assert!(start_hint(&port(NO_DESCRIPTOR)).contains("ulimit -n"));
        assert!(start_hint(&port(98)).contains("--base-port"));
    }
}
