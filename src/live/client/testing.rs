//! What the client's tests share: small traces, targets on loopback, and a scripted server.

use std::time::Duration;

use crate::base::RequestIx;
use crate::cluster::{RouterConfig, RouterPolicy};
use crate::live::{Addresses, Dialect, Endpoint, Limits, Retries, Secrets, Target};
use crate::protocol::{Generate, Route};
use crate::scenario::{HeaderConfig, Legs, RouterKind, ServedByConfig};
use crate::trace::{ReadOptions, Trace, read_bytes};

/// Reads rows of the native format.
pub fn trace_of(rows: &[String]) -> Trace {
    let text = format!("{{\"format\":\"pdreplay-trace\",\"version\":1,\"block_size\":64}}\n{}\n", rows.join("\n"));
    read_bytes("test", text.as_bytes(), &ReadOptions::default()).expect("a good trace")
}

/// One session of two turns, the second extending the first; its id needs quoting.
pub fn two_turns() -> Trace {
    trace_of(&[
        r#"{"session_id":"s\"1","turn_id":0,"timestamp":0,"input_length":100,"output_length":10,"hash_ids":[1,2]}"#
            .into(),
        r#"{"session_id":"s\"1","turn_id":1,"timestamp":1,"input_length":200,"output_length":10,"hash_ids":[1,3,4,5]}"#
            .into(),
    ])
}

/// A request for a turn, whole prompt, to the first worker.
pub fn generate_of(trace: &Trace, request: u32) -> Generate {
    let turn = trace.turn(RequestIx(request));
    Generate {
        request: RequestIx(request),
        session: turn.session,
        route: Route::Worker("W0".parse().expect("a name")),
        session_params: false,
        prompt: turn.prompt,
        context: turn.context,
        input_tokens: turn.input_length,
        shipped_tokens: turn.input_length,
        output_tokens: turn.output_length,
    }
}

/// An emulated target of colocated workers at these URLs.
pub fn target(colocated: &[&str]) -> Target {
    let endpoint = |url: &&str| Endpoint { url: (*url).to_owned(), bootstrap_port: None };
    Target {
        addresses: Addresses { colocated: colocated.iter().map(endpoint).collect(), ..Addresses::default() },
        dialect: Dialect::Generate,
        legs: Legs::Direct,
        router_kind: RouterKind::Auto,
        emulated: true,
        model: String::new(),
        header: HeaderConfig::default(),
        route_map: None,
        served_by: ServedByConfig::default(),
        router_config: RouterConfig {
            prefill_policy: RouterPolicy::RoundRobin,
            decode_policy: RouterPolicy::RoundRobin,
            ..RouterConfig::default()
        },
        limits: Limits {
            connect: Duration::from_secs(2),
            first_token: None,
            stall: None,
            control: Duration::from_secs(2),
            pool_idle: Duration::from_secs(3),
        },
        retries: Retries { most: 0, backoff: Duration::from_millis(20) },
        pool: 64,
        body_cache: 1 << 20,
        token_ids: (1000, 30_000),
        proxy: None,
        secrets: Secrets::default(),
    }
}
