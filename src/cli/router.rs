//! `router`: the PD router as a process of its own, in front of workers that are already there.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::Args;
use clap::builder::PossibleValuesParser;
use serde_json::json;

use crate::base::Dur;
use crate::cli::exit::{Exit, Failure};
use crate::cli::server::{ListenArgs, ToldArgs, address, stopped};
use crate::cli::signals::Signals;
use crate::cli::stdout;
use crate::cli::terminal::Terminal;
use crate::cluster::{RouterConfig, RouterPolicy};
use crate::live::clock::Clock;
use crate::live::server::{RouterServerOptions, run_router};
use crate::live::{Addresses, Endpoint, url_at};
use crate::node::RetryRule;
use crate::scenario::{Address, without_queries};

const EXAMPLES: &str = "\
Examples:
  # one P and two D
  pdreplay router --prefill http://127.0.0.1:9101 \\
    --decode http://127.0.0.1:9201 http://127.0.0.1:9202 --port 9000
  # SGLang's P with its bootstrap port
  pdreplay router --prefill http://10.0.0.1:30000 8998 \\
    --decode http://10.0.0.2:30000 --decode-policy manual
  # colocated workers
  pdreplay router --worker http://127.0.0.1:9301 http://127.0.0.1:9302 \\
    --decode-policy cache_aware

Ends with exit 0 on SIGINT and SIGTERM, after the answers under way (at most 2 s); a second signal ends it at \
once.";

/// Arguments of `router`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RouterArgs {
    /// Base URL of a prefill worker, and the port of its bootstrap server where that is not the URL's own (SGLang: 8998).
    /// May be repeated: P0, P1, ….
    #[arg(long, value_name = "URL [PORT]", num_args = 1.., requires = "decode", conflicts_with = "worker", help_heading = "Workers")]
    prefill: Vec<String>,
    /// Base URLs of decode workers: D0, D1, ….
    #[arg(long, value_name = "URL", num_args = 1.., requires = "prefill", conflicts_with = "worker", help_heading = "Workers")]
    decode: Vec<String>,
    /// Base URLs of colocated workers, W0, W1, …, instead of P and D.
    #[arg(long, value_name = "URL", num_args = 1.., help_heading = "Workers")]
    worker: Vec<String>,
    /// Policy that chooses P.
    #[arg(long, value_name = "POLICY", default_value = "round_robin", help_heading = "Routing", value_parser = PossibleValuesParser::new(RouterPolicy::CHOICES.map(RouterPolicy::as_str)))]
    prefill_policy: String,
    /// Policy that chooses D, or the colocated worker. `consistent_hashing` follows x-smg-target-worker and
    /// x-smg-routing-key, `manual` the latter; both take turns among requests without one.
    #[arg(long, value_name = "POLICY", default_value = "consistent_hashing", help_heading = "Routing", value_parser = PossibleValuesParser::new(RouterPolicy::CHOICES.map(RouterPolicy::as_str)))]
    decode_policy: String,
    /// Whether the index in x-smg-target-worker counts all workers, or only those that are healthy now, as smg does: then
    /// an index names another worker once one before it has died.
    #[arg(long, value_name = "BOOL", default_value = "true", action = clap::ArgAction::Set, help_heading = "Routing")]
    stable_indices: bool,
    /// Send a request again after 408, 429, 500, 502, 503 and 504: 5 tries, 50 ms apart and 1.5 times more each, as smg
    /// does. Off, because it hides failures and doubles work.
    #[arg(long, help_heading = "Routing")]
    retries: bool,
    /// Time between two looks at each worker's /health.
    #[arg(long, value_name = "MS", default_value = "1000", help_heading = "Routing", value_parser = clap::value_parser!(u64).range(1..))]
    health_interval_ms: u64,
    /// A worker that has not answered a look by then is not healthy.
    #[arg(long, value_name = "MS", default_value = "5000", help_heading = "Routing", value_parser = clap::value_parser!(u64).range(1..))]
    health_timeout_ms: u64,
    /// Seed of the rendezvous numbers.
    #[arg(long, value_name = "N", default_value = "42", help_heading = "Routing")]
    seed: u64,
    #[command(flatten)]
    listen: ListenArgs,
    #[command(flatten)]
    told: ToldArgs,
}

/// Runs it.
pub fn run(args: &RouterArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    let workers = args.workers()?;
    let policies = RouterConfig {
        prefill_policy: policy(&args.prefill_policy),
        decode_policy: policy(&args.decode_policy),
        stable_indices: args.stable_indices,
    };
    let incarnation = args.listen.incarnation();
    let options = RouterServerOptions {
        retry: args.retries.then_some(RetryRule::SMG),
        seed: args.seed,
        incarnation,
        health_every: Dur::from_millis(args.health_interval_ms),
        health_timeout: Duration::from_millis(args.health_timeout_ms),
        log: args.told.log(terminal),
        ..RouterServerOptions::new(Clock::start(1.0), workers, policies)
    };
    let signals = Signals::install()?;
    let http = args.listen.bind()?;
    let at = address(&http)?;
    let url = url_at(at);
    options.workers.workers().try_for_each(|(_, endpoint)| not_itself(&endpoint.url, at))?;
    let line = if args.told.json {
        let line = json!({
            "worker": "router", "role": "router", "url": url, "port": at.port(), "incarnation": incarnation,
            "pid": std::process::id(),
        });
        line.to_string()
    } else {
        format!("router {url}")
    };
    stdout::print(&line)?;
    run_router(http, options, move || signals.caught().is_some()).map_err(stopped)?;
    Ok(Exit::Ok)
}

impl RouterArgs {
    fn workers(&self) -> Result<Addresses, Failure> {
        if [&self.prefill, &self.decode, &self.worker].iter().all(|words| words.is_empty()) {
            let remedy = "give --prefill URL PORT and --decode URL, or --worker URL for colocated workers";
            return Err(Failure::input("a router needs workers, and none is named").hint(remedy));
        }
        let (mut prefill, mut wrong) = (Vec::<Endpoint>::new(), Vec::new());
        for word in &self.prefill {
            match (word.parse::<u16>(), prefill.last_mut()) {
                (Ok(port), Some(last)) if last.bootstrap_port.is_none() => last.bootstrap_port = Some(port),
                _ => prefill.extend(endpoint("prefill", word, &mut wrong)),
            }
        }
        let mut plain = |flag: &str, words: &[String]| -> Vec<Endpoint> {
            words.iter().filter_map(|word| endpoint(flag, word, &mut wrong)).collect()
        };
        let (decode, colocated) = (plain("decode", &self.decode), plain("worker", &self.worker));
        let mut seen = BTreeSet::new();
        for Endpoint { url, .. } in prefill.iter().chain(&decode).chain(&colocated) {
            if !seen.insert(url) {
                wrong.push(format!("{url} is given a second time; give each worker once"));
            }
        }
        if wrong.is_empty() {
            return Ok(Addresses { prefill, decode, colocated, ..Addresses::default() });
        }
        Err(Failure::inputs(wrong))
    }
}

fn endpoint(flag: &str, word: &str, wrong: &mut Vec<String>) -> Option<Endpoint> {
    let read = Address::parse(word).and_then(|Address { url, bootstrap_port, .. }| match bootstrap_port {
        _ if url.starts_with("https:") => Err("it is https, which nodes do not speak among themselves".to_owned()),
        Some(_) if flag != "prefill" => Err("only prefill workers have a bootstrap port".to_owned()),
        Some(_) | None => Ok(Endpoint { url, bootstrap_port }),
    });
    match read {
        Ok(endpoint) => Some(endpoint),
        Err(why) => {
            let meant = Address::meant(word).filter(|meant| meant != word);
            // A password is not shown again.
            let word = if word.contains('@') { String::new() } else { format!(" `{}`", without_queries(word)) };
            let write = meant.unwrap_or_else(|| "a base URL such as http://127.0.0.1:9101".to_owned());
            wrong.push(format!("--{flag}{word}: not a base URL: {why}; write {write}"));
            None
        }
    }
}

/// A router among its own workers would send every request to itself, again and again.
fn not_itself(url: &str, at: SocketAddr) -> Result<(), Failure> {
    let Ok(Address { host, .. }) = Address::parse(url) else { return Ok(()) };
    let port = url.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(80);
    let reaches = host == "localhost"
        || host.parse::<IpAddr>().is_ok_and(|ip| ip == at.ip() || ip.is_loopback() || ip.is_unspecified());
    let is_own = at.ip().is_unspecified() || at.ip().is_loopback() || host == at.ip().to_string();
    if port == at.port() && reaches && is_own {
        let remedy = "give the router a port of its own, and the URLs of workers";
        return Err(Failure::input(format!("{url} is where the router itself listens")).hint(remedy));
    }
    Ok(())
}

/// The parser lets no other name through.
fn policy(name: &str) -> RouterPolicy {
    let found = RouterPolicy::CHOICES.into_iter().find(|policy| policy.as_str() == name);
    found.unwrap_or(RouterPolicy::RoundRobin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_router_does_not_list_itself() {
        let refused = |url: &str, at: &str| not_itself(url, at.parse().unwrap()).is_err();
        for (url, at) in [
            ("http://127.0.0.1:9000", "127.0.0.1:9000"),
            ("http://localhost:9000", "127.0.0.1:9000"),
            ("http://127.0.0.1:9000", "0.0.0.0:9000"),
            ("http://[::1]:9000", "[::]:9000"),
            ("http://10.0.0.7:9000", "10.0.0.7:9000"),
            ("http://localhost", "0.0.0.0:80"),
        ] {
            assert!(refused(url, at), "{url} {at}");
        }
        for (url, at) in [
            ("http://127.0.0.1:9001", "127.0.0.1:9000"),
            ("http://10.0.0.8:9000", "0.0.0.0:9000"),
            ("http://127.0.0.1:9000", "10.0.0.7:9000"),
            ("http://worker:9000", "127.0.0.1:9000"),
        ] {
            assert!(!refused(url, at), "{url} {at}");
        }
    }
}
