//! A scripted HTTP/1.1 server on loopback: it answers what a test says, byte for byte, and remembers what it was asked.
//!
//! A thread a connection. Control routes (`/health`, `/v1/models`) have fixed answers, so that a run starts; generate
//! requests get the test's. Dropping it closes the listener; its connections end with their clients.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use socket2::SockRef;

use super::script::{End, Framing, Script};

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Asked {
    /// Number of the connection, from 1.
    pub connection: u32,
    /// Number of the request on its connection, from 1.
    pub on_connection: u32,
    /// Number of the generate request on the whole server, from 1; 0 for control routes.
    pub nth: u32,
    pub method: String,
    pub path: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

/// What a generate request gets.
pub enum Reply {
    Answer(Script),
    /// The connection is closed without a byte.
    Fin,
}

/// See the module.
pub struct Fake {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    asked: Mutex<Vec<Asked>>,
    connections: AtomicU32,
    generated: AtomicU32,
    stopped: AtomicBool,
    /// Whoever asks what it is gets no answer, once so many generate requests have come.
    silent_after: AtomicU32,
    unanswered: AtomicUsize,
    /// Header of every answer of a control route.
    named: Option<(String, String)>,
    /// Control routes that a test answers, by path.
    controls: Mutex<BTreeMap<String, Script>>,
    reply: Box<dyn Fn(&Asked) -> Reply + Send + Sync>,
}

impl Asked {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    fn is_generate(&self) -> bool {
        self.method == "POST" && matches!(self.path.as_str(), "/generate" | "/v1/completions" | "/v1/chat/completions")
    }
}

impl Fake {
    /// Answers every generate request with the same script.
    pub fn always(script: Script) -> Fake {
        Fake::start("127.0.0.1:0", move |_| Reply::Answer(script.clone()))
    }

    /// Answers the n-th generate request with the n-th reply, later ones with the last.
    pub fn in_order(scripts: Vec<Script>) -> Fake {
        Fake::start("127.0.0.1:0", move |asked| {
            Reply::Answer(scripts[(asked.nth as usize - 1).min(scripts.len() - 1)].clone())
        })
    }

    /// Listens on `address` and asks `reply` for every generate request.
    pub fn start(address: &str, reply: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Fake {
        Fake::listen(address, None, reply)
    }

    /// Says in a header of its control answers what it calls itself; answers generate requests with that script.
    pub fn named(header: &str, name: &str, script: Script) -> Fake {
        let named = (header.to_owned(), name.to_owned());
        Fake::listen("127.0.0.1:0", Some(named), move |_| Reply::Answer(script.clone()))
    }

    fn listen(
        address: &str,
        named: Option<(String, String)>,
        reply: impl Fn(&Asked) -> Reply + Send + Sync + 'static,
    ) -> Fake {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            asked: Mutex::default(),
            connections: AtomicU32::new(0),
            generated: AtomicU32::new(0),
            stopped: AtomicBool::new(false),
            silent_after: AtomicU32::new(u32::MAX),
            unanswered: AtomicUsize::new(0),
            named,
            controls: Mutex::default(),
            reply: Box::new(reply),
        });
        let fake = Fake { address, shared: Arc::clone(&shared) };
        thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&shared);
                let number = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
                // A client that goes away is no fault of the server.
                thread::spawn(move || stream.and_then(|stream| serve(&shared, &stream, number)));
            }
        });
        fake
    }

    /// Answers a control route with that script.
    pub fn answering(self, path: &str, script: Script) -> Fake {
        self.shared.controls.lock().unwrap().insert(path.into(), script);
        self
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The same, which tells nobody what it is once a generate request has come; connections stay open.
    pub fn falling_silent(self) -> Fake {
        self.silent_after(1)
    }

    /// The same, which never tells anybody.
    pub fn silent(self) -> Fake {
        self.silent_after(0)
    }

    fn silent_after(self, generated: u32) -> Fake {
        self.shared.silent_after.store(generated, Ordering::SeqCst);
        self
    }

    /// Questions of what it is that stay without an answer so far.
    pub fn unanswered(&self) -> usize {
        self.shared.unanswered.load(Ordering::SeqCst)
    }

    /// Connections accepted so far.
    pub fn connections(&self) -> u32 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Generate requests so far, in order of arrival.
    pub fn asked(&self) -> Vec<Asked> {
        let asked = self.shared.asked.lock().unwrap();
        asked.iter().filter(|asked| asked.is_generate()).cloned().collect()
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        // Wakes the accepting thread, which then sees that it is over.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

fn serve(shared: &Shared, stream: &TcpStream, connection: u32) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    for on_connection in 1.. {
        let Some(mut asked) = read_request(&mut reader, connection, on_connection)? else { break };
        if asked.is_generate() {
            asked.nth = shared.generated.fetch_add(1, Ordering::SeqCst) + 1;
        }
        shared.asked.lock().unwrap().push(asked.clone());
        if shared.is_silent_on(&asked) {
            shared.unanswered.fetch_add(1, Ordering::SeqCst);
            // Until the client gives up.
            let _ = reader.read(&mut [0]);
            return Ok(());
        }
        let reply = if asked.is_generate() { (shared.reply)(&asked) } else { Reply::Answer(shared.control(&asked)) };
        match reply {
            Reply::Fin => return stream.shutdown(Shutdown::Both),
            Reply::Answer(script) if !play(stream, &script)? => return Ok(()),
            Reply::Answer(_) => {}
        }
    }
    Ok(())
}

impl Shared {
    fn is_silent_on(&self, asked: &Asked) -> bool {
        let is_look = matches!(asked.path.as_str(), "/health" | "/v1/models");
        is_look && self.generated.load(Ordering::SeqCst) >= self.silent_after.load(Ordering::SeqCst)
    }

    fn control(&self, asked: &Asked) -> Script {
        let own = self.controls.lock().unwrap().get(&asked.path).cloned();
        let script = own.unwrap_or_else(|| control(asked));
        self.named.iter().fold(script, |script, (header, name)| script.header(header, name))
    }
}

/// Answers of control routes: enough for a run to start.
fn control(asked: &Asked) -> Script {
    match asked.path.as_str() {
        "/health" | "/ready" => Script::plain(200, "text/plain", ""),
        "/v1/models" => {
            let model = json!({"id": "emu", "object": "model", "owned_by": "fake", "max_model_len": 200_000});
            Script::json(200, &json!({"object": "list", "data": [model]}))
        }
        _ => Script::json(404, &json!({"detail": "Not Found"})),
    }
}

fn read_request(reader: &mut impl BufRead, connection: u32, on_connection: u32) -> io::Result<Option<Asked>> {
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if line.trim_end().is_empty() {
            break;
        }
        head.push(line.trim_end().to_owned());
    }
    let mut words = head[0].split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let header = |line: &String| {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        (name.to_ascii_lowercase(), value.trim().to_owned())
    };
    let headers: BTreeMap<String, String> = head[1..].iter().map(header).collect();
    let body = read_body(reader, &headers)?;
    Ok(Some(Asked { connection, on_connection, nth: 0, method, path, headers, body }))
}

fn read_body(reader: &mut impl BufRead, headers: &BTreeMap<String, String>) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if headers.get("transfer-encoding").is_none_or(|coding| coding != "chunked") {
        body.resize(headers.get("content-length").map_or(0, |length| length.parse().unwrap()), 0);
        reader.read_exact(&mut body)?;
        return Ok(body);
    }
    loop {
        let mut size = String::new();
        reader.read_line(&mut size)?;
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        let mut chunk = vec![0; size + 2];
        reader.read_exact(&mut chunk)?;
        body.extend(&chunk[..size]);
        if size == 0 {
            return Ok(body);
        }
    }
}

/// Whether the connection may be used again.
fn play(mut stream: &TcpStream, script: &Script) -> io::Result<bool> {
    let began = Instant::now();
    let wait = |at: Duration| thread::sleep(at.saturating_sub(began.elapsed()));
    let framing = match script.framing {
        Framing::Chunked => "transfer-encoding: chunked".to_owned(),
        Framing::Length(length) => format!("content-length: {length}"),
    };
    let headers: String = script.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!("HTTP/1.1 {} Scripted\r\n{headers}{framing}\r\n\r\n", script.status);
    stream.write_all(head.as_bytes())?;
    for piece in &script.pieces {
        wait(piece.at);
        if script.framing == Framing::Chunked {
            let chunk = [format!("{:x}\r\n", piece.bytes.len()).as_bytes(), &piece.bytes, b"\r\n"].concat();
            stream.write_all(&chunk)?;
        } else {
            stream.write_all(&piece.bytes)?;
        }
    }
    if script.end == End::Hang {
        // Until the client gives up: it never sends on this connection again.
        let _ = stream.read(&mut [0]);
        return Ok(false);
    }
    wait(script.end_at);
    match script.end {
        End::Complete if script.framing == Framing::Chunked => stream.write_all(b"0\r\n\r\n").map(|()| true),
        End::Complete => Ok(true),
        End::Fin => stream.shutdown(Shutdown::Both).map(|()| false),
        End::Rst => {
            SockRef::from(stream).set_linger(Some(Duration::ZERO))?;
            Ok(false)
        }
        End::Hang => unreachable!("handled above"),
    }
}
