//! Processes of a test: emulated workers and routers by the binary, the real router, and what is done to them.
//!
//! Each is ended by its own id, at the latest when it is dropped.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::installed::tool;
use crate::turn::{Beside, beside};

/// Longest wait for a process to listen or a state to come.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server process.
pub struct Server {
    child: Child,
    args: Vec<String>,
    pub url: String,
    /// What it wrote to stderr.
    pub log: Arc<Mutex<String>>,
    _beside: Beside,
}

impl Server {
    /// `pdreplay worker` of that name (`P0`, `D3`, `W1`) on a free port.
    pub fn worker(name: &str, more: &[&str]) -> Server {
        Server::binary(&[&["worker", "--name", name, "--port", "0", "--json"], more].concat())
    }

    /// `pdreplay router` before those workers, on a free port.
    pub fn router(prefill: &[&Server], decode: &[&Server], more: &[&str]) -> Server {
        let of = |flag: &'static str, servers: &[&Server]| -> Vec<String> {
            servers.iter().flat_map(|server| [flag.to_owned(), server.url.clone()]).collect()
        };
        let workers = [of("--prefill", prefill), of("--decode", decode)].concat();
        let workers: Vec<&str> = workers.iter().map(String::as_str).collect();
        Server::binary(&[&["router", "--port", "0", "--json"], &workers[..], more].concat())
    }

    /// `pdreplay index serve` of that configuration file, on a free port.
    pub fn index(config: &Path, more: &[&str]) -> Server {
        let config = config.to_str().unwrap();
        let listen = ["--listen", "127.0.0.1:0", "--json"];
        Server::binary(&[&["index", "serve", "--config", config], &listen[..], more].concat())
    }

    /// The same in a process that may open so many files; without a second start.
    pub fn index_within(files: u32, config: &Path) -> Server {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {files}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_pdreplay")]);
        let args = ["index", "serve", "--config", config.to_str().unwrap(), "--listen", "127.0.0.1:0", "--json"];
        let (args, beside) = (args.map(str::to_owned).to_vec(), beside());
        let (child, url, log) = start_by(command, &args);
        Server { child, args, url, log, _beside: beside }
    }

    /// The binary with these arguments; it prints a JSON line with its address once it listens.
    fn binary(args: &[&str]) -> Server {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let beside = beside();
        let (child, url, log) = start(&args);
        Server { child, args, url, log, _beside: beside }
    }

    /// Port it listens on.
    pub fn port(&self) -> u16 {
        self.url.rsplit_once(':').unwrap().1.parse().unwrap()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// kill -9, and gone when this returns.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Sends a signal by name.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([format!("-{name}"), self.id().to_string()]).status().unwrap();
        assert!(status.success(), "no {name} could be sent");
    }

    /// Starts it again with the same arguments on the same port, after a kill.
    pub fn restart(&mut self) {
        self.restart_as(&[]);
    }

    /// The same with further arguments; of two that set the same key the later holds.
    pub fn restart_as(&mut self, more: &[&str]) {
        let port = self.port().to_string();
        let at = self.args.iter().position(|arg| arg == "--port").unwrap();
        let mut args = self.args.clone();
        args[at + 1] = port;
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        let (child, url, log) = start(&args);
        (self.child, self.url, self.log) = (child, url, log);
    }

    /// Open descriptors.
    pub fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.id())).unwrap().count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(args: &[String]) -> (Child, String, Arc<Mutex<String>>) {
    start_by(Command::new(env!("CARGO_BIN_EXE_pdreplay")), args)
}

fn start_by(mut command: Command, args: &[String]) -> (Child, String, Arc<Mutex<String>>) {
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let log = keep(child.stderr.take().unwrap());
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    let Ok(told) = serde_json::from_str::<Value>(&line) else {
        let _ = child.kill();
        panic!("{args:?} said `{line}`, {}", log.lock().unwrap());
    };
    // Whatever else it prints must not fill the pipe.
    keep(stdout);
    (
        child,
        told["url"].as_str().or(told["router"].as_str()).unwrap_or_else(|| panic!("no url: {line}")).to_owned(),
        log,
    )
}

/// Reads to the end on a thread of its own.
fn keep(mut from: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let into = Arc::clone(&text);
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            into.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    });
    text
}

/// The real router.
pub struct Smg {
    child: Child,
    pub url: String,
}

impl Smg {
    /// The program, where it is there.
    pub fn binary() -> Option<PathBuf> {
        tool("smg")
    }

    /// Before those workers, ready.
    pub fn start(binary: &PathBuf, prefill: &[&Server], decode: &[&Server], more: &[&str]) -> Smg {
        let [port, metrics] = free_ports();
        let mut command = Command::new(binary);
        command.args(["launch", "--pd-disaggregation", "--host", "127.0.0.1", "--port", &port.to_string()]);
        command.args(["--prometheus-host", "127.0.0.1", "--prometheus-port", &metrics.to_string()]);
        for server in prefill {
            command.args(["--prefill", &server.url, &server.port().to_string()]);
        }
        for server in decode {
            command.args(["--decode", &server.url]);
        }
        command.args(["--worker-startup-check-interval", "1", "--prefill-policy", "round_robin"]).args(more);
        command.env("NO_PROXY", "127.0.0.1").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        keep(child.stdout.take().unwrap());
        keep(child.stderr.take().unwrap());
        let smg = Smg { child, url: format!("http://127.0.0.1:{port}") };
        let workers = (prefill.len() + decode.len()) as u64;
        let ready = || {
            let reply = get(&smg.url, "/readiness")?;
            let told: Value = serde_json::from_str(reply.split_once("\r\n\r\n")?.1).ok()?;
            (told["healthy_workers"].as_u64() == Some(workers)).then_some(())
        };
        wait_for("smg is ready", ready);
        smg
    }
}

impl Drop for Smg {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ports that were free a moment ago, for programs that cannot be told to take any.
pub fn free_ports() -> [u16; 2] {
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

/// A plain GET; the whole answer as text, head included.
pub fn get(url: &str, path: &str) -> Option<String> {
    exchange(url, &format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n"))
}

/// A plain POST of JSON; the whole answer as text, head included.
pub fn post(url: &str, path: &str, body: &Value) -> Option<String> {
    let body = body.to_string();
    let head = format!("content-type: application/json\r\ncontent-length: {}\r\nconnection: close", body.len());
    exchange(url, &format!("POST {path} HTTP/1.1\r\nhost: test\r\n{head}\r\n\r\n{body}"))
}

fn exchange(url: &str, request: &str) -> Option<String> {
    let mut stream = TcpStream::connect(url.strip_prefix("http://")?).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).ok()?;
    Some(String::from_utf8_lossy(&reply).into_owned())
}

/// First entry of a worker's `/v1/loads`.
pub fn load(server: &Server) -> Option<Value> {
    let reply = get(&server.url, "/v1/loads")?;
    let body: Value = serde_json::from_str(reply.split_once("\r\n\r\n")?.1).ok()?;
    Some(body["loads"][0].clone())
}

/// A number of a worker's `/metrics`, by its name without `sglang:`.
pub fn metric(server: &Server, name: &str) -> Option<f64> {
    let page = get(&server.url, "/metrics")?;
    let line = page.lines().find(|line| line.starts_with(&format!("sglang:{name}{{")))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Answer tokens a worker has made.
pub fn made(server: &Server) -> Option<f64> {
    metric(server, "generation_tokens_total")
}

/// Looks again and again until there is something.
#[track_caller]
pub fn wait_for<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
