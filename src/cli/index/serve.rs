//! `index serve`: the KV directory as a process of its own.

use std::env;
use std::fs::File;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use clap::Args;
use serde_json::json;

use crate::cli::exit::{Exit, Failure};
use crate::cli::index::now;
use crate::cli::index::token::TokenArgs;
use crate::cli::server::{address, stopped};
use crate::cli::signals::Signals;
use crate::cli::stdout;
use crate::cli::terminal::Terminal;
use crate::kv::directory::{KvEventsConfig, Registry, Source};
use crate::live::clock::Clock;
use crate::live::kv::registry::{Login, read_limited};
use crate::live::kv::service::{Feed, FeedError, FeedOptions, Log};
use crate::live::server::{InternalToken, KvLimits, KvServerOptions, room, run_kv};
use crate::live::url_at;

const EXAMPLES: &str = "\
Examples:
  # streams or a registry as the file says
  pdreplay index serve --config kv-events.json
  # instances of a file that is watched, or of etcd
  pdreplay index serve --config kv-events.json --registry file:instances.json
  pdreplay index serve --config kv-events.json \\
    --registry etcd:http://127.0.0.1:2379,prod
  # for other machines, who need the token
  KV_TOKEN=… pdreplay index serve --config kv-events.json \\
    --listen 0.0.0.0:8888 --token-env KV_TOKEN
  # ask it
  curl -sS http://127.0.0.1:8888/v1/internal/kv-cache/query \\
    -d '{\"token_ids\":[1,2,3,4]}'

The file is the xLLM service's kv_events_config_file; docs/kv-events.md#the-file has its keys and examples.

Paths:
  POST /v1/internal/kv-cache/query
       hits of a prompt by instance and rank; 503 until the registry was read
  GET  /v1/internal/kv-cache/streams
       state of every stream, as `pdreplay index watch` shows it
  GET  /health, /metrics
       open without a token; metrics are Prometheus text

User and password of etcd come from ETCD_USERNAME and ETCD_PASSWORD. Prints its address; a line for each change, \
with its time in UTC, goes to stderr. Ends with exit 0 on SIGINT and SIGTERM.";

/// Arguments of `index serve`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// JSON file that says which publishers to follow, and within which limits.
    #[arg(long, value_name = "FILE")]
    config: String,
    /// Where instances register, in place of the file's: `file:PATH`, or `etcd:http://HOST:PORT[,http://…][,NAMESPACE]`.
    #[arg(long, value_name = "REGISTRY")]
    registry: Option<String>,
    /// Address to listen on; port 0: a free one. Beyond loopback only with a token.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8888")]
    listen: String,
    #[command(flatten)]
    token: TokenArgs,
    /// Connections of callers at once; default: half of the files that the process may open (`ulimit -n`), 1024 at most,
    /// fewer where streams need the room.
    #[arg(long, value_name = "N")]
    max_connections: Option<NonZeroUsize>,
    /// Print where it listens as one line of JSON.
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub fn run(args: &ServeArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let token = args.token.read(terminal)?;
    // It was checked as it was read.
    let token = token.map(|token| InternalToken::new(&token)).transpose().map_err(Failure::input)?;
    let messages = terminal.messages.clone();
    let log = Log::new(move |line| messages.note(format_args!("{} {line}", now())));
    let options = feed_options(&args.config, args.registry.as_deref(), log)?;
    let callers = callers(args.max_connections.map(NonZeroUsize::get), &options.config)?;
    let listener = bind(&args.listen, token.is_some())?;
    let signals = Signals::install()?;
    let limits = KvLimits { connections: Some(callers), ..KvLimits::default() };
    let feed = Feed::start(options).map_err(feed_failure)?;
    let at = address(&listener)?;
    stdout::print(&if args.json {
        json!({ "url": url_at(at), "port": at.port(), "pid": std::process::id() }).to_string()
    } else {
        format!("index {}", url_at(at))
    })?;
    let options = KvServerOptions { board: Arc::clone(feed.board()), token, limits };
    run_kv(listener, options, move || signals.caught().is_some()).map_err(stopped)?;
    drop(feed);
    Ok(Exit::Ok)
}

/// What a directory of that file, with another registry where one is named, is started with.
pub fn feed_options(path: &str, registry: Option<&str>, log: Log) -> Result<FeedOptions, Failure> {
    Ok(FeedOptions { config: config(path, registry)?, login: login(), clock: Clock::start(1.0), log })
}

/// Why it could not be started, and what to do.
pub fn feed_failure(error: FeedError) -> Failure {
    match &error {
        FeedError::NoRegistry => {
            Failure::input(&error).hint("give `--registry file:PATH` or `--registry etcd:http://HOST:PORT`")
        }
        FeedError::Registry(_) => Failure::input(&error),
        FeedError::Start(_) => Failure::broke(&error),
    }
}

pub(super) fn config(path: &str, registry: Option<&str>) -> Result<KvEventsConfig, Failure> {
    let file = File::open(path).map_err(|error| format!("cannot be read: {error}"));
    let text = file.and_then(read_limited).map_err(|why| {
        let failure = Failure::input(format!("{path} {why}"));
        if Path::new(path).is_dir() {
            return failure.hint("it is a folder; name the file in it");
        }
        failure.hint("write one: docs/kv-events.md#the-file")
    })?;
    let mut config =
        KvEventsConfig::parse(&text, path).map_err(|errors| Failure::inputs(errors.to_string().lines()))?;
    let Some(registry) = registry else { return Ok(config) };
    match &mut config.source {
        Source::Discovery(discovery) => discovery.registry = Some(parse_registry(registry)?),
        Source::Streams(_) => {
            let cause = format!("{path} lists its streams, which leaves nothing to a registry");
            return Err(
                Failure::input(cause).hint("leave `--registry` out, or write `discovery` in place of `streams`")
            );
        }
    }
    Ok(config)
}

/// `file:PATH`, or `etcd:` and members and perhaps a namespace, with commas.
pub(super) fn parse_registry(text: &str) -> Result<Registry, Failure> {
    let wrong = |cause: String| {
        Failure::input(cause).hint("write `--registry file:PATH` or `--registry etcd:http://HOST:PORT[,NAMESPACE]`")
    };
    if let Some(path) = text.strip_prefix("file:").filter(|path| !path.is_empty()) {
        return Ok(Registry::File(path.to_owned()));
    }
    let Some(rest) = text.strip_prefix("etcd:") else {
        return Err(wrong(format!("`{text}` is no registry")));
    };
    let (endpoints, names): (Vec<&str>, Vec<&str>) = rest.split(',').partition(|part| part.contains(':'));
    let namespace = match names.as_slice() {
        [] => "",
        [name] if rest.ends_with(name) => name,
        _ => return Err(wrong(format!("`{text}` has more than one part that is no address"))),
    };
    if endpoints.is_empty() {
        return Err(wrong(format!("`{text}` names no member of etcd")));
    }
    Ok(Registry::Etcd {
        endpoints: endpoints.into_iter().map(str::to_owned).collect(),
        namespace: namespace.to_owned(),
    })
}

/// Connections of callers that the process has files for.
fn callers(asked: Option<usize>, config: &KvEventsConfig) -> Result<usize, Failure> {
    let streams = match &config.source {
        Source::Streams(streams) => streams.len(),
        Source::Discovery(_) => 1,
    };
    room(asked, streams).map_err(|error| {
        let raise = format!("raise the limit (`ulimit -n {}`)", error.needed);
        let fewer = error.limit.saturating_sub(error.reserved);
        Failure::input(error).hint(if asked.is_some() && fewer > 0 {
            format!("{raise}, or give `--max-connections {fewer}` or fewer")
        } else {
            raise
        })
    })
}

/// Only with a token may others than this machine ask.
fn bind(listen: &str, has_token: bool) -> Result<TcpListener, Failure> {
    let resolved = listen.to_socket_addrs().map_err(|error| {
        Failure::input(format!("`{listen}` is no address to listen on: {error}")).hint("write `--listen HOST:PORT`")
    })?;
    let addresses: Vec<SocketAddr> = resolved.collect();
    if !has_token && !addresses.iter().all(|address| address.ip().is_loopback()) {
        let cause = format!("whoever reaches {listen} could ask for the caches' contents, without a token");
        return Err(Failure::input(cause)
            .hint("give one with `--token-env NAME` or `--token-file FILE`, or listen on 127.0.0.1"));
    }
    TcpListener::bind(&*addresses).map_err(|error| {
        Failure::broke(format!("cannot listen on {listen}: {error}"))
            .hint("stop what listens there, or give a free port with `--listen 127.0.0.1:0`")
    })
}

fn login() -> Option<Login> {
    let read = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    Some(Login { user: read("ETCD_USERNAME")?, password: read("ETCD_PASSWORD").unwrap_or_default() })
}
