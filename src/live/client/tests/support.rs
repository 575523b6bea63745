//! What the client's tests share: small traces, targets on loopback, a client and what it hears.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use super::fake::{Fake, Script};
use crate::base::{RequestIx, WorkerId};
use crate::cluster::{RouterConfig, RouterPolicy};
use crate::live::client::Client;
use crate::live::clock::Clock;
use crate::live::{Accounts, Addresses, Dialect, Endpoint, Heard, Limits, Retries, Secrets, Target};
use crate::protocol::{Action, Answer, ErrorClass, Event, Finish, Generate, Route, RoutingHeader};
use crate::scenario::{HeaderConfig, Legs, RouterKind, ServedByConfig};
use crate::trace::{ReadOptions, Trace, read_bytes};

/// Reads rows of the native format.
pub fn trace_of(rows: &[String]) -> Arc<Trace> {
    let text = format!("{{\"format\":\"pdreplay-trace\",\"version\":1,\"block_size\":64}}\n{}\n", rows.join("\n"));
    Arc::new(read_bytes("test", text.as_bytes(), &ReadOptions::default()).expect("a good trace"))
}

/// One session of two turns, the second extending the first; its id needs quoting.
pub fn two_turns() -> Arc<Trace> {
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
        session_mark: String::new(),
        baseline: Accounts::default(),
        absent: Vec::new(),
        warm: BTreeMap::new(),
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
        retries: Retries { most: 0, backoff: Duration::from_millis(20), longest: Duration::from_secs(60) },
        pool: 64,
        body_cache: 1 << 20,
        token_ids: (1000, 30_000),
        proxy: None,
        secrets: Secrets::default(),
    }
}

/// P0, D0 and D1 behind a router.
pub fn pd_addresses(router: &str) -> Addresses {
    let nobody = |port: u16| Endpoint { url: format!("http://127.0.0.1:{port}"), bootstrap_port: None };
    Addresses {
        router: Some(router.to_owned()),
        prefill: vec![nobody(1)],
        decode: vec![nobody(2), nobody(3)],
        ..Addresses::default()
    }
}

/// Runs a test on a runtime as the driver's is.
pub fn block_on<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(20), work).await.expect("the test ends") })
}

/// A client of a target, with what it heard.
pub struct Rig {
    pub client: Client,
    heard: mpsc::Receiver<Heard>,
}

impl Rig {
    pub fn new(trace: &Arc<Trace>, target: Target) -> Rig {
        let (tell, heard) = mpsc::channel(1024);
        let client = Client::new(trace, Arc::new(target), Clock::start(1.0), tell).expect("a good target");
        Rig { client, heard }
    }

    pub async fn hear(&mut self) -> Heard {
        self.heard.recv().await.expect("the client lives")
    }

    /// The next event but for words of sends.
    pub async fn event(&mut self) -> Event {
        loop {
            match self.hear().await {
                Heard::Event(Event::Sent { .. }) => {}
                Heard::Event(event) => return event,
                notice => panic!("{notice:?}"),
            }
        }
    }

    /// Sends a request and waits for its end.
    pub async fn finish(&mut self, generate: Generate) -> Answer {
        self.client.perform(Action::Generate(generate));
        self.answer().await
    }

    pub async fn answer(&mut self) -> Answer {
        match self.event().await {
            Event::Finished(answer) => *answer,
            event => panic!("{event:?}"),
        }
    }

    /// Nothing was heard within a moment.
    pub async fn hears_nothing(&mut self) -> bool {
        tokio::time::timeout(Duration::from_millis(50), self.event()).await.is_err()
    }
}

/// Sends turn 0 of [`two_turns`] to one colocated worker with this script and gives the answer.
pub async fn answer_to(dialect: Dialect, limits: impl Fn(&mut Target), script: Script) -> Answer {
    let fake = Fake::start(move |_| script.clone()).await;
    let mut target = Target { dialect, ..target(&[&fake.url]) };
    limits(&mut target);
    let trace = two_turns();
    let mut rig = Rig::new(&trace, target);
    rig.finish(generate_of(&trace, 0)).await
}

/// Class and words of a failed answer.
pub fn failure(answer: &Answer) -> (ErrorClass, &str) {
    match &answer.finish {
        Finish::Error { class, message } | Finish::Abort { class, message } => (*class, message),
        Finish::Length | Finish::Stop => panic!("not a failure: {answer:?}"),
    }
}

/// By name.
pub fn worker(name: &str) -> WorkerId {
    name.parse().unwrap()
}

/// A router, P and D, or without the router legs that the client joins.
pub fn cluster(router: Option<&Fake>, prefill: &[&Fake], decode: &[&Fake]) -> Target {
    let endpoints = |fakes: &[&Fake]| -> Vec<Endpoint> {
        fakes.iter().map(|fake| Endpoint { url: fake.url.clone(), bootstrap_port: Some(8998) }).collect()
    };
    let addresses = Addresses {
        router: router.map(|fake| fake.url.clone()),
        prefill: endpoints(prefill),
        decode: endpoints(decode),
        ..Addresses::default()
    };
    let legs = if router.is_some() { Legs::Router } else { Legs::Direct };
    Target { addresses, legs, ..target(&[]) }
}

/// A request over the router.
pub fn routed(trace: &Trace, request: u32, header: RoutingHeader) -> Generate {
    Generate { route: Route::Router(header), ..generate_of(trace, request) }
}
