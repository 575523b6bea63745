//! A thin server for measuring the live client: `/generate` (SGLang) and `/v1/completions`, one core, its own stamps.
//!
//! Answers with `--events` events of one token each, every one a write of its own: the first after `--ttft-ms`, then one
//! every `--gap-ms`. `GET /stamps` gives one line per request, `rid received first last` in nanoseconds of the
//! machine's monotonic clock, and forgets them. Driven by `scripts/bench_live.sh`; without arguments it says so and ends, so that
//! `cargo bench` goes on.

#![allow(clippy::print_stdout, reason = "a benchmark says where it listens")]

use std::cell::RefCell;
use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const USAGE: &str = "live_server: started by scripts/bench_live.sh (--port N [--events N] [--ttft-ms N] [--gap-ms N])";

struct Options {
    port: u16,
    ttft: Duration,
    gap: Duration,
}

/// Nanoseconds of the machine's monotonic clock.
struct Stamp {
    rid: String,
    received: u64,
    first: u64,
    last: u64,
}

struct Shared {
    options: Options,
    stamps: RefCell<Vec<Stamp>>,
    events: Vec<Vec<u8>>,
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let value = |name: &str| args.iter().position(|arg| arg == name).and_then(|at| args.get(at + 1));
    let number = |name: &str, default: u64| value(name).map_or(default, |text| text.parse().expect("a whole number"));
    let Some(port) = value("--port") else { return println!("{USAGE}") };
    let millis = |name| Duration::from_millis(number(name, 0));
    let events = u32::try_from(number("--events", 20)).expect("a small number");
    let options = Options { port: port.parse().expect("a port"), ttft: millis("--ttft-ms"), gap: millis("--gap-ms") };
    let shared = Rc::new(Shared {
        events: (1..=events).map(|nth| generate_event(nth, nth == events)).collect(),
        options,
        stamps: RefCell::default(),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, serve(shared));
}

/// Nanoseconds of the machine's monotonic clock, which whoever started this reads as well.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

async fn serve(shared: Rc<Shared>) {
    let listener = TcpListener::bind(("127.0.0.1", shared.options.port)).await.expect("the port is free");
    println!("listening on {}", listener.local_addr().expect("it is bound"));
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let shared = Rc::clone(&shared);
        tokio::task::spawn_local(async move {
            // A client that leaves ends its connection, nothing else.
            let _ = connection(stream, &shared).await;
        });
    }
}

async fn connection(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer: Vec<u8> = Vec::with_capacity(64 * 1024);
    loop {
        let head = loop {
            if let Some(end) = find(&buffer, b"\r\n\r\n") {
                break end + 4;
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        let received = now();
        let length = content_length(&buffer[..head]);
        while buffer.len() < head + length {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
        let answer = Answer::of(&buffer[..head + length], head);
        buffer.drain(..head + length);
        match answer {
            Answer::Stream(rid) => stream_events(&mut stream, shared, rid, received).await?,
            Answer::Stamps => {
                let mut text = String::new();
                for stamp in shared.stamps.take() {
                    writeln!(text, "{}\t{}\t{}\t{}", stamp.rid, stamp.received, stamp.first, stamp.last)
                        .expect("text grows");
                }
                plain(&mut stream, "200 OK", &text).await?;
            }
            Answer::Healthy => plain(&mut stream, "200 OK", "{}").await?,
            Answer::Unknown => plain(&mut stream, "404 Not Found", "{}").await?,
        }
    }
}

enum Answer {
    Stream(String),
    Stamps,
    Healthy,
    Unknown,
}

impl Answer {
    fn of(request: &[u8], head: usize) -> Answer {
        let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
        match line.split(|byte| *byte == b' ').nth(1).unwrap_or_default() {
            b"/generate" => Answer::Stream(rid(&request[head..])),
            b"/stamps" => Answer::Stamps,
            b"/health" => Answer::Healthy,
            _ => Answer::Unknown,
        }
    }
}

async fn stream_events(stream: &mut TcpStream, shared: &Shared, rid: String, received: u64) -> std::io::Result<()> {
    const HEAD: &[u8] =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: keep-alive\r\n\r\n";
    let options = &shared.options;
    stream.write_all(HEAD).await?;
    if !options.ttft.is_zero() {
        tokio::time::sleep(options.ttft).await;
    }
    let mut first = 0;
    for (nth, event) in shared.events.iter().enumerate() {
        if nth > 0 && !options.gap.is_zero() {
            tokio::time::sleep(options.gap).await;
        }
        if nth == 0 {
            first = now();
        }
        stream.write_all(event).await?;
    }
    let last = now();
    stream.write_all(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n").await?;
    shared.stamps.borrow_mut().push(Stamp { rid, received, first, last });
    Ok(())
}

async fn plain(stream: &mut TcpStream, status: &str, body: &str) -> std::io::Result<()> {
    let text =
        format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(text.as_bytes()).await
}

/// One chunk with one event: incremental text, running count.
fn generate_event(tokens: u32, last: bool) -> Vec<u8> {
    let finish = if last { format!("{{\"type\":\"length\",\"length\":{tokens}}}") } else { "null".to_owned() };
    let data = format!(
        "data: {{\"text\":\" token\",\"output_ids\":[{}],\"meta_info\":{{\"id\":\"bench\",\"finish_reason\":{finish},\
         \"prompt_tokens\":512,\"completion_tokens\":{tokens},\"cached_tokens\":0,\"weight_version\":\"default\"}}}}\n\n",
        1000 + tokens
    );
    format!("{:x}\r\n{data}\r\n", data.len()).into_bytes()
}

fn rid(body: &[u8]) -> String {
    let start = find(body, b"\"rid\":\"").map_or(body.len(), |at| at + 7);
    let text = body[start..].split(|byte| *byte == b'"').next().unwrap_or_default();
    String::from_utf8_lossy(text).into_owned()
}

fn content_length(head: &[u8]) -> usize {
    let text = String::from_utf8_lossy(head).to_ascii_lowercase();
    let line = text.lines().find_map(|line| line.strip_prefix("content-length:"));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    memchr::memmem::find(text, wanted)
}
