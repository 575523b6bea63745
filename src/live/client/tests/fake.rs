//! A scripted HTTP/1.1 server on loopback: what it answers, in which pieces, when, and how it ends.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use crate::live::client::line::locked;

/// One answer.
#[derive(Debug, Clone)]
pub struct Script {
    status: u16,
    headers: Vec<(String, String)>,
    framing: Framing,
    /// Milliseconds after the one before, and bytes: each its own flushed write.
    pieces: Vec<(u64, Vec<u8>)>,
    end: End,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Framing {
    Chunked,
    Length(usize),
    /// Until the connection closes.
    Close,
    /// The pieces are all there is, head included.
    Raw,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum End {
    /// Proper end; the connection is kept.
    Complete,
    /// Proper end, and the connection is closed.
    Leave,
    /// Closed without it.
    Fin,
    /// Reset.
    Rst,
    /// Kept open, silent.
    Hang,
    /// Closed before any byte.
    Nothing,
    /// Kept open without any byte.
    Mute,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Request {
    pub connection: usize,
    /// `POST /generate`.
    pub line: String,
    pub head: String,
    pub body: Vec<u8>,
}

#[derive(Debug, Default)]
pub struct Log {
    pub connections: usize,
    /// Connections that the client closed, or that broke.
    pub closed: usize,
    pub requests: Vec<Request>,
    /// Answers that have left as far as their scripts go.
    pub written: usize,
}

pub struct Fake {
    pub url: String,
    pub log: Arc<Mutex<Log>>,
}

impl Script {
    /// An event stream.
    pub fn stream() -> Script {
        Script {
            status: 200,
            headers: vec![("content-type".into(), "text/event-stream".into())],
            framing: Framing::Chunked,
            pieces: Vec::new(),
            end: End::Complete,
        }
    }

    /// A JSON body at once.
    pub fn json(status: u16, body: &str) -> Script {
        Script {
            status,
            headers: vec![("content-type".into(), "application/json".into())],
            framing: Framing::Length(body.len()),
            ..Script::stream()
        }
        .then(0, body)
    }

    /// Tokens in `/generate` form, at once, with the end mark.
    pub fn tokens(count: u32) -> Script {
        Script::stream().then(0, &generate_event(count, r#"{"type":"length"}"#)).then(0, "data: [DONE]\n\n")
    }

    /// Nothing at all: the connection closes after the request.
    pub fn nothing() -> Script {
        Script { end: End::Nothing, ..Script::stream() }
    }

    pub fn header(mut self, name: &str, value: &str) -> Script {
        self.headers.retain(|(known, _)| known != name);
        self.headers.push((name.into(), value.into()));
        self
    }

    /// A piece, so many milliseconds after the one before.
    pub fn then(mut self, after_ms: u64, text: &str) -> Script {
        self.pieces.push((after_ms, text.as_bytes().to_vec()));
        self
    }

    pub fn then_bytes(mut self, after_ms: u64, bytes: &[u8]) -> Script {
        self.pieces.push((after_ms, bytes.to_vec()));
        self
    }

    pub fn end(self, end: End) -> Script {
        Script { end, ..self }
    }

    /// Content-Length instead of chunks.
    pub fn length(self, length: usize) -> Script {
        Script { framing: Framing::Length(length), ..self }
    }

    /// Neither length nor chunks.
    pub fn until_close(self) -> Script {
        Script { framing: Framing::Close, end: End::Fin, ..self }
    }

    /// These bytes and nothing else.
    pub fn raw(text: &str) -> Script {
        Script { framing: Framing::Raw, ..Script::stream() }.then(0, text)
    }

    fn head(&self) -> String {
        if self.framing == Framing::Raw {
            return String::new();
        }
        let mut head = format!("HTTP/1.1 {} X\r\n", self.status);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        match self.framing {
            Framing::Chunked => head.push_str("transfer-encoding: chunked\r\n\r\n"),
            Framing::Length(length) => head.push_str(&format!("content-length: {length}\r\n\r\n")),
            Framing::Close => head.push_str("connection: close\r\n\r\n"),
            Framing::Raw => {}
        }
        head
    }
}

/// An event of `/generate`; the reason as JSON.
pub fn generate_event(tokens: u32, reason: &str) -> String {
    format!(
        "data: {{\"text\":\"x\",\"meta_info\":{{\"completion_tokens\":{tokens},\"cached_tokens\":3,\"finish_reason\":{reason}}}}}\n\n"
    )
}

impl Request {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("a JSON body")
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl Fake {
    /// Serves what `answer` says; it gets each request, in the order they came.
    pub async fn start(answer: impl Fn(&Request) -> Script + Send + Sync + 'static) -> Fake {
        Fake::on("127.0.0.1:0", answer).await.expect("loopback")
    }

    pub async fn on(
        address: &str,
        answer: impl Fn(&Request) -> Script + Send + Sync + 'static,
    ) -> std::io::Result<Fake> {
        let listener = TcpListener::bind(address).await?;
        let at: SocketAddr = listener.local_addr()?;
        let log = Arc::new(Mutex::new(Log::default()));
        let (shared, answer) = (Arc::clone(&log), Arc::new(answer));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let connection = locked(&shared).connections;
                locked(&shared).connections += 1;
                let (shared, answer) = (Arc::clone(&shared), Arc::clone(&answer));
                tokio::spawn(async move {
                    let _ = connection_of(stream, connection, &shared, &*answer).await;
                    locked(&shared).closed += 1;
                });
            }
        });
        Ok(Fake { url: format!("http://{at}"), log })
    }

    /// The client has closed every connection it opened.
    pub fn is_left(&self) -> bool {
        let log = locked(&self.log);
        log.closed == log.connections
    }

    pub fn requests(&self) -> Vec<Request> {
        locked(&self.log).requests.clone()
    }
}

async fn connection_of(
    mut stream: TcpStream,
    connection: usize,
    log: &Mutex<Log>,
    answer: &(dyn Fn(&Request) -> Script + Send + Sync),
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut held = Vec::new();
    loop {
        let Some(request) = read_request(&mut stream, &mut held, connection).await? else { return Ok(()) };
        locked(log).requests.push(request.clone());
        let script = answer(&request);
        match script.end {
            End::Nothing => return Ok(()),
            End::Mute => return until_closed(&mut stream).await,
            End::Complete | End::Leave | End::Fin | End::Rst | End::Hang => {}
        }
        stream.write_all(script.head().as_bytes()).await?;
        for (after, bytes) in &script.pieces {
            if *after > 0 {
                sleep(Duration::from_millis(*after)).await;
            }
            if script.framing == Framing::Chunked {
                let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
                chunk.extend_from_slice(bytes);
                chunk.extend_from_slice(b"\r\n");
                stream.write_all(&chunk).await?;
            } else {
                stream.write_all(bytes).await?;
            }
            stream.flush().await?;
        }
        locked(log).written += 1;
        match script.end {
            End::Complete | End::Leave if script.framing == Framing::Chunked => stream.write_all(b"0\r\n\r\n").await?,
            End::Complete | End::Leave | End::Nothing | End::Mute => {}
            End::Fin => return stream.shutdown().await,
            End::Rst => {
                // Let what was sent arrive before the reset takes it away.
                sleep(Duration::from_millis(20)).await;
                return stream.set_zero_linger();
            }
            End::Hang => return until_closed(&mut stream).await,
        }
        if script.end == End::Leave {
            return stream.shutdown().await;
        }
    }
}

async fn until_closed(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut end = [0; 64];
    while stream.read(&mut end).await? > 0 {}
    Ok(())
}

async fn read_request(
    stream: &mut TcpStream,
    held: &mut Vec<u8>,
    connection: usize,
) -> std::io::Result<Option<Request>> {
    let head_end = loop {
        if let Some(at) = held.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(held).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&held[..head_end]).into_owned();
    let mut headers = head.lines().filter_map(|line| line.split_once(": "));
    let length = headers.rfind(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length: usize = length.map_or(0, |(_, value)| value.parse().expect("a length"));
    while held.len() < head_end + length {
        if stream.read_buf(held).await? == 0 {
            return Ok(None);
        }
    }
    let body = held[head_end..head_end + length].to_vec();
    held.drain(..head_end + length);
    let line = head.lines().next().unwrap_or_default().trim_end_matches(" HTTP/1.1").to_owned();
    Ok(Some(Request { connection, line, head, body }))
}
