//! What the server subcommands share: flags, listening, the time of the start as identity.
//!
//! `worker`, `router` and `cluster up` each flatten the groups that hold for them.

use std::io;
use std::net::{SocketAddr, TcpListener};

use clap::Args;
use clap::builder::PossibleValuesParser;
use jiff::Timestamp;

use crate::base::Role;
use crate::cli::exit::Failure;
use crate::cli::terminal::Terminal;
use crate::live::server::{RequestLog, SglangVersion, WorkerServerOptions};

/// Incarnations of processes count tenths of a second from 2025-01-01 UTC, seconds since 1970.
const INCARNATIONS_FROM: i64 = 1_735_689_600;

/// What workers answer like.
#[derive(Debug, Args)]
pub struct SglangArgs {
    /// Tokens a block of the prefix cache; the trace's, if its cached tokens are to be compared.
    #[arg(long, value_name = "TOKENS", default_value = "64", help_heading = "Scenario", value_parser = clap::value_parser!(u32).range(1..))]
    pub block_size: u32,
    /// Version of SGLang whose bodies the answers have.
    #[arg(long, value_name = "VERSION", default_value = SglangVersion::V0_5_23.as_str(), help_heading = "Server", value_parser = PossibleValuesParser::new(SglangVersion::ALL.map(SglangVersion::as_str)))]
    sglang_version: String,
    /// Events hold what is new instead of everything so far.
    #[arg(long, help_heading = "Server")]
    incremental_streaming_output: bool,
    /// No admission endpoint, as in stock SGLang.
    #[arg(long, help_heading = "Server")]
    no_admission: bool,
}

/// Where one server listens, and as whom.
#[derive(Debug, Args)]
pub struct ListenArgs {
    /// Address to listen on.
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1", help_heading = "Server")]
    host: String,
    /// Port; 0: a free one.
    #[arg(long, value_name = "PORT", default_value = "0", help_heading = "Server")]
    port: u16,
    /// Process identity told in answers; must grow with each restart. Default: from the time of the start.
    #[arg(long, value_name = "N", help_heading = "Server")]
    incarnation: Option<u32>,
}

/// What is told.
#[derive(Debug, Args)]
pub struct ToldArgs {
    /// Print where it listens as one line of JSON.
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// A line for each request on stderr; a router's also for each change of a worker's health.
    #[arg(long, help_heading = "Output")]
    log_requests: bool,
}

impl SglangArgs {
    /// `options` with what was asked for.
    pub fn apply(&self, options: WorkerServerOptions) -> WorkerServerOptions {
        let version = SglangVersion::ALL.into_iter().find(|version| version.as_str() == self.sglang_version);
        WorkerServerOptions {
            // The parser lets no other name through.
            version: version.unwrap_or_default(),
            incremental_output: self.incremental_streaming_output,
            admission: !self.no_admission,
            ..options
        }
    }
}

impl ListenArgs {
    /// Listens, or says why not.
    pub fn bind(&self) -> Result<TcpListener, Failure> {
        self.bind_at("--port", self.port)
    }

    /// The same at another port of the same address, which `flag` names.
    pub fn bind_at(&self, flag: &str, port: u16) -> Result<TcpListener, Failure> {
        let host = &self.host;
        TcpListener::bind((host.trim_matches(['[', ']']), port)).map_err(|error| {
            let failure = Failure::broke(format!("cannot listen on {host}:{port}: {error}"));
            match error.kind() {
                io::ErrorKind::AddrInUse => {
                    failure.hint(format!("stop what listens there, or give `{flag} 0` for a free port"))
                }
                io::ErrorKind::PermissionDenied => failure.hint("ports below 1024 need privileges; give a higher one"),
                _ => failure.hint("give an address of this machine, such as `--host 127.0.0.1`"),
            }
        })
    }

    /// Ports of one process are different ones. `others`: flags and what they say; 0 is a free port.
    pub fn apart(&self, others: &[(&'static str, Option<u16>)]) -> Result<(), Failure> {
        let mut seen = vec![("--port", self.port)];
        for (flag, port) in others.iter().filter_map(|(flag, port)| Some((*flag, (*port)?))) {
            if let Some((other, _)) = seen.iter().find(|(_, taken)| *taken == port && port != 0) {
                let cause = format!("`{flag} {port}` is the port of `{other}` too");
                return Err(Failure::input(cause).hint("give each a port of its own, or 0 for a free one"));
            }
            seen.push((flag, port));
        }
        Ok(())
    }

    /// Process identity: as given, or it grows with the time of the start.
    pub fn incarnation(&self) -> u32 {
        let tenths = || Timestamp::now().as_millisecond() / 100 - INCARNATIONS_FROM * 10;
        // Beyond 2038 and before 2025 all processes look alike.
        self.incarnation.unwrap_or_else(|| u32::try_from(tenths()).unwrap_or(0))
    }
}

impl ToldArgs {
    /// Where lines about requests go.
    pub fn log(&self, terminal: &Terminal) -> Option<RequestLog> {
        self.log_requests.then(|| {
            let messages = terminal.messages.clone();
            RequestLog::new(move |line| messages.note(line))
        })
    }
}

/// Where a listener is.
pub fn address(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    listener.local_addr().map_err(|error| Failure::broke(format!("cannot tell the own address: {error}")))
}

/// Failure of a server that was up.
pub fn stopped(error: io::Error) -> Failure {
    Failure::broke(format!("the server cannot go on: {error}"))
}

/// A role as it is written.
pub fn role_name(role: Role) -> &'static str {
    match role {
        Role::Prefill => "prefill",
        Role::Decode => "decode",
        Role::Colocated => "colocated",
    }
}
