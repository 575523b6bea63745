//! Cost of the live client: requests built, sent and read, on one core.
//!
//! A server thread of raw bytes answers each request with 20 events; the client's thread is measured alone, by its own
//! CPU clock. Once with short prompts (the path of a stream) and once with a generated agentic trace whose prompts are
//! 30,000 to 100,000 token ids (bodies from cached text). `cargo bench --bench live_body`.

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a benchmark reads the clock and prints")]

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pdreplay::base::{RequestIx, Role, WorkerId};
use pdreplay::cluster::{RouterConfig, RouterPolicy};
use pdreplay::live::client::Client;
use pdreplay::live::clock::Clock;
use pdreplay::live::{Accounts, Addresses, Dialect, Endpoint, Heard, Limits, Retries, Secrets, Target};
use pdreplay::protocol::{Action, Event, Finish, Generate, Route};
use pdreplay::scenario::{HeaderConfig, Legs, RouterKind, ServedByConfig};
use pdreplay::trace::Trace;
use pdreplay::trace::generate::{GenerateSpec, generate};
use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::sync::mpsc;

const CONCURRENCY: usize = 64;
const EVENTS: u32 = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let trace = Arc::new(generate(&GenerateSpec { sessions: 64, ..GenerateSpec::default() })?);
    let server = Server::start()?;
    let small = vec![request(&trace, 0, 64); 20_000];
    measure("short prompts", &trace, &server.url, &small)?;
    let long: Vec<Generate> = (0..trace.turns.len() as u32)
        .map(|turn| request(&trace, turn, u32::MAX))
        .filter(|generate| (30_000..=100_000).contains(&generate.input_tokens))
        .take(2000)
        .collect();
    measure("agentic, first time", &trace, &server.url, &long)?;
    Ok(())
}

/// A whole prompt, or its last `most` tokens.
fn request(trace: &Trace, turn: u32, most: u32) -> Generate {
    let planned = trace.turn(RequestIx(turn));
    Generate {
        request: RequestIx(turn),
        session: planned.session,
        route: Route::Worker(WorkerId::new(Role::Colocated, 0)),
        session_params: false,
        prompt: planned.prompt,
        context: planned.context,
        input_tokens: planned.input_length,
        shipped_tokens: planned.input_length.min(most),
        output_tokens: EVENTS,
    }
}

fn measure(name: &str, trace: &Arc<Trace>, url: &str, requests: &[Generate]) -> Result<(), Box<dyn Error>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let (tell, mut heard) = mpsc::channel(1024);
        let mut client = Client::new(trace, Arc::new(target(url)), Clock::start(1.0), tell)?;
        for round in ["first", "again"] {
            let before = client.counters();
            let (start, cpu) = (Instant::now(), thread_cpu());
            let (mut sent, mut ended) = (0, 0);
            while ended < requests.len() {
                // A bench may send one turn many times, as long as each time has its own number.
                while sent < requests.len() && sent - ended < CONCURRENCY {
                    let request = RequestIx((sent % trace.turns.len()) as u32);
                    let generate = &requests[sent];
                    let whole = generate.shipped_tokens == generate.input_tokens;
                    let request = if whole { generate.request } else { request };
                    client.perform(Action::Generate(Generate { request, ..generate.clone() }));
                    sent += 1;
                }
                match heard.recv().await {
                    Some(Heard::Event(Event::Finished(answer))) => {
                        assert_eq!((&answer.finish, answer.output_tokens), (&Finish::Length, EVENTS), "{answer:?}");
                        ended += 1;
                    }
                    Some(Heard::Event(Event::Sent { .. })) => {}
                    other => return Err(format!("{other:?}").into()),
                }
            }
            let (wall, cpu) = (start.elapsed(), thread_cpu() - cpu);
            let count = requests.len() as f64;
            let bytes = (client.counters().bytes_sent - before.bytes_sent) as f64 / count;
            println!(
                "{name}, {round}: {:.0} requests/s, {:.3} CPU ms a request, {:.0} requests/s/core, {:.0} KB a body, \
                 {} connections",
                count / wall.as_secs_f64(),
                cpu.as_secs_f64() * 1e3 / count,
                count / cpu.as_secs_f64(),
                bytes / 1e3,
                client.counters().connections - before.connections,
            );
        }
        Ok(())
    })
}

fn thread_cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn target(url: &str) -> Target {
    Target {
        baseline: Accounts::default(),
        absent: Vec::new(),
        warm: BTreeMap::new(),
        session_mark: String::new(),
        addresses: Addresses {
            colocated: vec![Endpoint { url: url.to_owned(), bootstrap_port: None }],
            ..Addresses::default()
        },
        dialect: Dialect::Generate,
        legs: Legs::Direct,
        router_kind: RouterKind::Auto,
        emulated: true,
        model: String::new(),
        header: HeaderConfig::default(),
        route_map: None,
        served_by: ServedByConfig::default(),
        router_config: RouterConfig { decode_policy: RouterPolicy::RoundRobin, ..RouterConfig::default() },
        limits: Limits {
            connect: Duration::from_secs(5),
            first_token: Some(Duration::from_secs(60)),
            stall: Some(Duration::from_secs(60)),
            control: Duration::from_secs(5),
            pool_idle: Duration::from_secs(3),
        },
        retries: Retries { most: 0, backoff: Duration::from_millis(500), longest: Duration::from_secs(60) },
        pool: CONCURRENCY,
        body_cache: 256 << 20,
        token_ids: (1000, 30_000),
        proxy: None,
        secrets: Secrets::default(),
    }
}

/// Reads requests and writes the same 20 events to each, one write an event.
struct Server {
    url: String,
}

impl Server {
    fn start() -> io::Result<Server> {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || -> io::Result<()> {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                tell.send(listener.local_addr()?).map_err(io::Error::other)?;
                loop {
                    tokio::spawn(serve(listener.accept().await?.0));
                }
            })
        });
        Ok(Server { url: format!("http://{}", told.recv().map_err(io::Error::other)?) })
    }
}

async fn serve(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let events: Vec<Vec<u8>> = (1..=EVENTS).map(event).collect();
    let mut held = Vec::with_capacity(1 << 20);
    loop {
        let head = loop {
            if let Some(at) = held.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break at + 4;
            }
            if stream.read_buf(&mut held).await? == 0 {
                return Ok(());
            }
        };
        let text = String::from_utf8_lossy(&held[..head]).to_ascii_lowercase();
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
        let length: usize = length.parse().map_err(io::Error::other)?;
        while held.len() < head + length {
            if stream.read_buf(&mut held).await? == 0 {
                return Ok(());
            }
        }
        held.drain(..head + length);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await?;
        for event in &events {
            stream.write_all(event).await?;
        }
    }
}

fn event(count: u32) -> Vec<u8> {
    let reason = if count == EVENTS { r#"{"type":"length","length":20}"# } else { "null" };
    let mut body = format!(
        "data: {{\"text\":\" word\",\"output_ids\":[1234],\"meta_info\":{{\"id\":\"s/1\",\"finish_reason\":{reason},\
         \"prompt_tokens\":64,\"completion_tokens\":{count},\"cached_tokens\":0,\"weight_version\":\"default\"}}}}\n\n"
    );
    let mut end = "";
    if count == EVENTS {
        body.push_str("data: [DONE]\n\n");
        end = "0\r\n\r\n";
    }
    format!("{:x}\r\n{body}\r\n{end}", body.len()).into_bytes()
}
