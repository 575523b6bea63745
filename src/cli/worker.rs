//! `worker`: one emulated worker as a process of its own, behind HTTP.

use std::net::TcpListener;
use std::ops::RangeInclusive;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::json;

use crate::base::{Dur, Role, WorkerId};
use crate::cli::exit::{Exit, Failure};
use crate::cli::server::{ListenArgs, SglangArgs, ToldArgs, address, role_name, stopped};
use crate::cli::signals::Signals;
use crate::cli::stdout;
use crate::cli::terminal::Terminal;
use crate::live::clock::Clock;
use crate::live::server::{ApiKey, KvPublishing, WorkerServerOptions, run_worker};
use crate::live::url_at;
use crate::node::NodeConfig;
use crate::scenario::{self, Overlay, Scenario, shown_name};

const EXAMPLES: &str = "\
Examples:
  # a prefill worker of the default scenario
  pdreplay worker --name P0 --port 9101
  # a decode worker on a free port, told as JSON
  pdreplay worker --name D3 -s v3-1p7d --json
  # a colocated worker with the OpenAI endpoints
  pdreplay worker --name W0 --set cluster.colocated=1
  curl -N http://127.0.0.1:PORT/generate -H 'content-type: application/json' \\
    -d '{\"text\": \"fix the bug\", \"stream\": true}'

Ends with exit 0 on SIGINT and SIGTERM, after the answers under way (at most 2 s); a second signal ends it at \
once.";

const BOOTSTRAP_PORT: &str = "--bootstrap-port";
const EVENTS_PORT: &str = "--kv-events-port";
const REPLAY_PORT: &str = "--kv-replay-port";

/// Emulation speeds that a scenario may have, too.
const SPEEDS: RangeInclusive<f64> = 1e-3..=1e4;

/// Arguments of `worker`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct WorkerArgs {
    /// Name of the worker: P0, D3, W1.
    #[arg(long, value_name = "NAME", required_unless_present = "role", conflicts_with_all = ["role", "index"])]
    name: Option<WorkerId>,
    /// Role, with `--index`, instead of a name.
    #[arg(long, value_name = "ROLE", requires = "index", value_parser = PossibleValuesParser::new(["prefill", "decode", "colocated"]))]
    role: Option<String>,
    /// Index among the workers of the role, from 0.
    #[arg(long, value_name = "N", requires = "role")]
    index: Option<u16>,
    /// Scenario file, or the name of a shipped one: engine, links, worker counts and faults come from it.
    #[arg(long, short, value_name = "FILE|NAME", help_heading = "Scenario")]
    scenario: Option<String>,
    /// Any scenario key, such as `engine.kv_pool_tokens=83000`; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Scenario")]
    set: Vec<String>,
    /// How many times faster than real time the worker goes. Default: the scenario's `live.emulation_speed`.
    #[arg(long, value_name = "S", allow_hyphen_values = true, help_heading = "Scenario")]
    emulation_speed: Option<f64>,
    #[command(flatten)]
    listen: ListenArgs,
    /// Further port, which decode workers pull KV from; 0: a free one. Default: the same as `--port`.
    #[arg(long, value_name = "PORT", help_heading = "Server")]
    bootstrap_port: Option<u16>,
    /// Port on which KV events are published; 0: a free one. Default: none are.
    #[arg(long, value_name = "PORT", help_heading = "KV events")]
    kv_events_port: Option<u16>,
    /// Port on which past KV events are asked for; 0: a free one.
    #[arg(long, value_name = "PORT", requires = "kv_events_port", default_value = "0", help_heading = "KV events")]
    kv_replay_port: u16,
    /// Name of the model in answers.
    #[arg(long, value_name = "NAME", default_value = "emulated", help_heading = "Server")]
    model: String,
    #[command(flatten)]
    sglang: SglangArgs,
    /// No streaming sessions, as without SGLang's --enable-streaming-session.
    #[arg(long, help_heading = "Server")]
    no_streaming_session: bool,
    /// Emulated time until the model is loaded, seconds; 503 until then.
    #[arg(long, value_name = "SECONDS", default_value = "0", allow_hyphen_values = true, help_heading = "Server")]
    loading_s: f64,
    /// Environment variable with the key that requests must bring as `Authorization: Bearer …`.
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    api_key_env: Option<String>,
    #[command(flatten)]
    told: ToldArgs,
}

/// Runs it.
pub fn run(args: &WorkerArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let scenario = args.scenario()?;
    let id = args.id(&scenario)?;
    args.listen.apart(&[
        (BOOTSTRAP_PORT, args.bootstrap_port),
        (EVENTS_PORT, args.kv_events_port),
        (REPLAY_PORT, args.kv_events_port.map(|_| args.kv_replay_port)),
    ])?;
    let options = args.options(&scenario, terminal)?;
    let signals = Signals::install()?;
    let http = args.listen.bind()?;
    let bootstrap = args.bootstrap_port.map(|port| args.listen.bind_at(BOOTSTRAP_PORT, port)).transpose()?;
    let options = WorkerServerOptions { kv: args.kv(id, &scenario, terminal)?, ..options };
    let config = NodeConfig {
        id,
        incarnation: 0,
        engine: scenario.engine,
        cluster: scenario.cluster,
        block_size: args.sglang.block_size,
        faults: scenario.fault,
        strikes: None,
    };
    tell(args, &config, &options, (&http, bootstrap.as_ref()))?;
    run_worker(http, bootstrap, config, options, move || signals.caught().is_some()).map_err(stopped)?;
    Ok(Exit::Ok)
}

/// What listens where: one line.
fn tell(
    args: &WorkerArgs,
    config: &NodeConfig,
    options: &WorkerServerOptions,
    (http, bootstrap): (&TcpListener, Option<&TcpListener>),
) -> Result<(), Failure> {
    let at = address(http)?;
    let bootstrap_port = address(bootstrap.unwrap_or(http))?.port();
    let (url, is_prefill) = (url_at(at), config.id.role == Role::Prefill);
    let kv = options.kv.as_ref();
    if args.told.json {
        let line = json!({
            "worker": config.id.to_string(), "role": role_name(config.id.role), "url": url, "port": at.port(),
            "bootstrap_port": is_prefill.then_some(bootstrap_port), "incarnation": options.identity,
            "kv_events": kv.map(|kv| kv.events.to_string()), "kv_replay": kv.map(|kv| kv.replay.to_string()),
            "pid": std::process::id(),
        });
        return stdout::print(&line.to_string());
    }
    let bootstrap = if is_prefill { format!(" bootstrap {bootstrap_port}") } else { String::new() };
    let kv = kv.map(|kv| format!(" kv events {} replay {}", kv.events, kv.replay)).unwrap_or_default();
    stdout::print(&format!("{} {url}{bootstrap}{kv}", config.id))
}

impl WorkerArgs {
    fn scenario(&self) -> Result<Scenario, Failure> {
        let overlays = self.set.iter().map(|assignment| Overlay::set(assignment)).collect::<Result<Vec<_>, _>>()?;
        Ok(scenario::load(self.scenario.as_deref(), &overlays)?)
    }

    /// The worker; it must be one of the scenario's.
    fn id(&self, scenario: &Scenario) -> Result<WorkerId, Failure> {
        let role = match self.role.as_deref() {
            Some("prefill") => Role::Prefill,
            Some("decode") => Role::Decode,
            Some(_) | None => Role::Colocated,
        };
        let id = self.name.unwrap_or(WorkerId::new(role, self.index.unwrap_or_default()));
        let (key, count) = match id.role {
            Role::Prefill => ("prefill", scenario.cluster.prefill),
            Role::Decode => ("decode", scenario.cluster.decode),
            Role::Colocated => ("colocated", scenario.cluster.colocated),
        };
        if id.index < count {
            return Ok(id);
        }
        let cause = format!("{id} is not in the scenario, which has {count} {key} workers");
        let more = u32::from(id.index) + 1;
        Err(Failure::input(cause).hint(format!("give `--set cluster.{key}={more}`, or a worker that is there")))
    }

    /// What is published where.
    fn kv(&self, id: WorkerId, scenario: &Scenario, terminal: &Terminal) -> Result<Option<KvPublishing>, Failure> {
        let Some(port) = self.kv_events_port else { return Ok(None) };
        if id.role == Role::Decode && !scenario.engine.decode_radix_cache {
            terminal.messages.warning(format!(
                "{id} keeps no prefix cache, so nothing is published; give `--set engine.decode_radix_cache=true` for one"
            ));
            return Ok(None);
        }
        // Bound to find free ports, and to refuse those that are taken; the server binds them again.
        let (events, replay) =
            (self.listen.bind_at(EVENTS_PORT, port)?, self.listen.bind_at(REPLAY_PORT, self.kv_replay_port)?);
        let publisher = scenario::publisher(&scenario.kv_events, self.sglang.block_size);
        Ok(Some(KvPublishing { publisher, events: address(&events)?.into(), replay: address(&replay)?.into() }))
    }

    fn options(&self, scenario: &Scenario, terminal: &Terminal) -> Result<WorkerServerOptions, Failure> {
        let speed = self.emulation_speed.unwrap_or(scenario.live.emulation_speed);
        if !SPEEDS.contains(&speed) {
            let hint = format!("give a number from {} to {}", SPEEDS.start(), SPEEDS.end());
            return Err(Failure::input(format!("the emulation speed is {speed:?}")).hint(hint));
        }
        let loading = Dur::from_secs_f64(self.loading_s).ok_or_else(|| {
            Failure::input(format!("--loading-s is {}", self.loading_s)).hint("give 0 or a number of seconds")
        })?;
        Ok(WorkerServerOptions {
            identity: Some(self.listen.incarnation()),
            model: self.model.clone(),
            streaming_sessions: !self.no_streaming_session,
            loading,
            api_key: self.api_key_env.as_deref().map(api_key).transpose()?,
            log: self.told.log(terminal),
            ..self.sglang.apply(WorkerServerOptions::new(Clock::start(speed)))
        })
    }
}

fn api_key(variable: &str) -> Result<ApiKey, Failure> {
    match std::env::var(variable) {
        Ok(key) if !key.trim().is_empty() => Ok(ApiKey::new(key.trim())),
        Ok(_) | Err(_) => {
            let cause = format!("the environment variable {} holds no API key", shown_name(variable));
            Err(Failure::input(cause).hint("set it, or leave `--api-key-env` out"))
        }
    }
}
