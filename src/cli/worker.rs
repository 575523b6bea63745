//! `worker`: one emulated worker as a process of its own, behind HTTP.

use std::io;
use std::net::TcpListener;
use std::ops::RangeInclusive;

use clap::Args;
use clap::builder::PossibleValuesParser;
use jiff::Timestamp;
use serde_json::json;

use crate::base::{Dur, Role, WorkerId};
use crate::cli::exit::{Exit, Failure};
use crate::cli::signals::Signals;
use crate::cli::stdout;
use crate::cli::terminal::Terminal;
use crate::live::clock::Clock;
use crate::live::server::{ApiKey, RequestLog, SglangVersion, WorkerServerOptions, run_worker};
use crate::live::url_at;
use crate::node::NodeConfig;
use crate::scenario::{self, Overlay, Scenario};

const EXAMPLES: &str = "\
Examples:
  pdreplay worker --name P0 --port 9101                 a prefill worker of the default scenario
  pdreplay worker --name D3 -s v3-1p7d --json           a decode worker on a free port, told as JSON
  pdreplay worker --name W0 --set cluster.colocated=1   a colocated worker with the OpenAI endpoints
  curl -N http://127.0.0.1:PORT/generate -H 'content-type: application/json' \\
       -d '{\"text\": \"fix the bug\", \"sampling_params\": {\"max_new_tokens\": 8}, \"stream\": true}'

Ends with exit 0 on SIGINT and SIGTERM, after the answers under way (at most 2 s); a second signal ends it at once.";

/// Incarnations of processes count tenths of a second from 2025-01-01 UTC, seconds since 1970.
const INCARNATIONS_FROM: i64 = 1_735_689_600;

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
    /// Tokens a block of the prefix cache; the trace's, if its cached tokens are to be compared.
    #[arg(long, value_name = "TOKENS", default_value = "64", help_heading = "Scenario", value_parser = clap::value_parser!(u32).range(1..))]
    block_size: u32,
    /// How many times faster than real time the worker goes. Default: the scenario's `live.emulation_speed`.
    #[arg(long, value_name = "S", allow_hyphen_values = true, help_heading = "Scenario")]
    emulation_speed: Option<f64>,
    /// Address to listen on.
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1", help_heading = "Server")]
    host: String,
    /// Port; 0: a free one.
    #[arg(long, value_name = "PORT", default_value = "0", help_heading = "Server")]
    port: u16,
    /// Further port, which decode workers pull KV from; 0: a free one. Default: the same as `--port`.
    #[arg(long, value_name = "PORT", help_heading = "Server")]
    bootstrap_port: Option<u16>,
    /// Name of the model in answers.
    #[arg(long, value_name = "NAME", default_value = "emulated", help_heading = "Server")]
    model: String,
    /// Version of SGLang whose bodies it answers with.
    #[arg(long, value_name = "VERSION", default_value = SglangVersion::V0_5_23.as_str(), help_heading = "Server", value_parser = PossibleValuesParser::new(SglangVersion::ALL.map(SglangVersion::as_str)))]
    sglang_version: String,
    /// Events hold what is new instead of everything so far.
    #[arg(long, help_heading = "Server")]
    incremental_streaming_output: bool,
    /// No admission endpoint, as in stock SGLang.
    #[arg(long, help_heading = "Server")]
    no_admission: bool,
    /// No streaming sessions, as without SGLang's --enable-streaming-session.
    #[arg(long, help_heading = "Server")]
    no_streaming_session: bool,
    /// Emulated time until the model is loaded, seconds; 503 until then.
    #[arg(long, value_name = "SECONDS", default_value = "0", allow_hyphen_values = true, help_heading = "Server")]
    loading_s: f64,
    /// Environment variable with the key that requests must bring as `Authorization: Bearer …`.
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    api_key_env: Option<String>,
    /// Process identity in answers; must grow with each restart. Default: from the time of the start.
    #[arg(long, value_name = "N", help_heading = "Server")]
    incarnation: Option<u32>,
    /// Print the endpoint as a line of JSON.
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// A line for each request on stderr.
    #[arg(long, help_heading = "Output")]
    log_requests: bool,
}

/// Runs it.
pub fn run(args: &WorkerArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let scenario = args.scenario()?;
    let id = args.id(&scenario)?;
    let options = args.options(&scenario, terminal)?;
    let signals = Signals::install().map_err(|error| Failure::broke(format!("cannot watch for signals: {error}")))?;
    let http = bind(&args.host, args.port)?;
    let bootstrap = args.bootstrap_port.map(|port| bind(&args.host, port)).transpose()?;
    let config = NodeConfig {
        id,
        incarnation: 0,
        engine: scenario.engine,
        cluster: scenario.cluster,
        block_size: args.block_size,
        faults: scenario.fault,
        strikes: None,
    };
    tell(args, &config, (options.identity, &http, bootstrap.as_ref()))?;
    run_worker(http, bootstrap, config, options, move || signals.caught().is_some())
        .map_err(|error| Failure::broke(format!("the server cannot go on: {error}")))?;
    Ok(Exit::Ok)
}

/// What listens where: one line.
fn tell(
    args: &WorkerArgs,
    config: &NodeConfig,
    (identity, http, bootstrap): (Option<u32>, &TcpListener, Option<&TcpListener>),
) -> Result<(), Failure> {
    let address = |listener: &TcpListener| {
        listener.local_addr().map_err(|error| Failure::broke(format!("cannot tell the own address: {error}")))
    };
    let at = address(http)?;
    let bootstrap_port = address(bootstrap.unwrap_or(http))?.port();
    let (url, is_prefill) = (url_at(at), config.id.role == Role::Prefill);
    if args.json {
        let line = json!({
            "worker": config.id.to_string(), "role": role_name(config.id.role), "url": url, "port": at.port(),
            "bootstrap_port": is_prefill.then_some(bootstrap_port), "incarnation": identity,
            "pid": std::process::id(),
        });
        return stdout::print(&line.to_string());
    }
    let bootstrap = if is_prefill { format!(" bootstrap {bootstrap_port}") } else { String::new() };
    stdout::print(&format!("{} {url}{bootstrap}", config.id))
}

/// A role as it is written.
pub fn role_name(role: Role) -> &'static str {
    match role {
        Role::Prefill => "prefill",
        Role::Decode => "decode",
        Role::Colocated => "colocated",
    }
}

/// Process identity of a process that is not told one: it grows with the time of the start.
pub fn incarnation_now() -> u32 {
    let tenths = Timestamp::now().as_millisecond() / 100 - INCARNATIONS_FROM * 10;
    // Beyond 2038 and before 2025 all processes look alike.
    u32::try_from(tenths).unwrap_or(0)
}

/// Listens, or says why not.
pub fn bind(host: &str, port: u16) -> Result<TcpListener, Failure> {
    TcpListener::bind((host.trim_matches(['[', ']']), port)).map_err(|error| {
        let failure = Failure::broke(format!("cannot listen on {host}:{port}: {error}"));
        match error.kind() {
            io::ErrorKind::AddrInUse => failure.hint("stop what listens there, or give `--port 0` for a free port"),
            io::ErrorKind::PermissionDenied => failure.hint("ports below 1024 need privileges; give a higher one"),
            _ => failure.hint("give an address of this machine, such as `--host 127.0.0.1`"),
        }
    })
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

    fn options(&self, scenario: &Scenario, terminal: &Terminal) -> Result<WorkerServerOptions, Failure> {
        let speed = self.emulation_speed.unwrap_or(scenario.live.emulation_speed);
        if !SPEEDS.contains(&speed) {
            let hint = format!("give a number from {} to {}", SPEEDS.start(), SPEEDS.end());
            return Err(Failure::input(format!("the emulation speed is {speed:?}")).hint(hint));
        }
        let loading = Dur::from_secs_f64(self.loading_s).ok_or_else(|| {
            Failure::input(format!("--loading-s is {}", self.loading_s)).hint("give 0 or a number of seconds")
        })?;
        let version = SglangVersion::ALL.into_iter().find(|version| version.as_str() == self.sglang_version);
        Ok(WorkerServerOptions {
            identity: Some(self.incarnation.unwrap_or_else(incarnation_now)),
            model: self.model.clone(),
            version: version.unwrap_or_default(),
            incremental_output: self.incremental_streaming_output,
            streaming_sessions: !self.no_streaming_session,
            admission: !self.no_admission,
            loading,
            api_key: self.api_key_env.as_deref().map(api_key).transpose()?,
            log: self.log_requests.then(|| {
                let messages = terminal.messages.clone();
                RequestLog::new(move |line| messages.note(line))
            }),
            ..WorkerServerOptions::new(Clock::start(speed))
        })
    }
}

fn api_key(variable: &str) -> Result<ApiKey, Failure> {
    match std::env::var(variable) {
        Ok(key) if !key.trim().is_empty() => Ok(ApiKey::new(key.trim())),
        Ok(_) | Err(_) => {
            let cause = format!("the environment variable {variable} holds no API key");
            Err(Failure::input(cause).hint("set it, or leave `--api-key-env` out"))
        }
    }
}
