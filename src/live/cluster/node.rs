//! A node's thread: up, down, up again at the same address.

use std::io;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::JoinHandle;

use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::port::{self, Port};

/// How a node is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Not yet.
    Runs,
    /// Answers that are under way may end.
    Stop,
    /// At once.
    Kill,
}

/// A node's address and whoever runs there.
#[derive(Debug)]
pub(super) struct Node {
    /// Such as `D3` or `router`.
    pub name: String,
    port: Port,
    running: Option<Running>,
    /// Processes that have run here.
    pub starts: u32,
}

#[derive(Debug)]
struct Running {
    end: watch::Sender<End>,
    thread: JoinHandle<io::Result<()>>,
}

impl Node {
    /// Reserves its address.
    pub fn new(name: String, address: SocketAddr) -> io::Result<Node> {
        Ok(Node { name, port: Port::reserve(address)?, running: None, starts: 0 })
    }

    /// Where it listens, or would.
    pub fn address(&self) -> SocketAddr {
        self.port.address()
    }

    /// It runs.
    pub fn is_up(&self) -> bool {
        self.running.is_some()
    }

    /// Brings it up; when this returns it listens. `serve` is the server, told when to stop.
    pub fn start<F>(&mut self, serve: impl FnOnce(TcpListener, Stop) -> F + Send + 'static) -> io::Result<()>
    where
        F: Future<Output = io::Result<()>>,
    {
        let address = self.address();
        let (end, ended) = watch::channel(End::Runs);
        let (up, is_up) = mpsc::channel();
        let body = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let prepared = runtime.and_then(|runtime| {
                let listener = runtime.block_on(async { port::listen(address) })?;
                Ok((runtime, listener))
            });
            match prepared {
                Ok((runtime, listener)) => {
                    // Whoever started this node waits for the word; were it gone, the end would be told, too.
                    let _ = up.send(Ok(()));
                    run(runtime, serve(listener, Stop(ended.clone())), ended)
                }
                Err(error) => {
                    let _ = up.send(Err(error));
                    Ok(())
                }
            }
        };
        let thread = std::thread::Builder::new().name(self.name.clone()).spawn(body)?;
        let started = is_up.recv().unwrap_or_else(|_| Err(io::Error::other("the thread ended at once")));
        self.running = Some(Running { end, thread });
        if let Err(error) = started {
            // The thread has nothing more to say.
            let _ = self.join();
            return Err(error);
        }
        self.starts += 1;
        Ok(())
    }

    /// Tells it to end, if it runs.
    pub fn tell(&self, how: End) {
        if let Some(running) = &self.running {
            // A node that has ended by itself does not listen any more.
            let _ = running.end.send(how);
        }
    }

    /// Waits for its end. Errors: it failed or panicked.
    pub fn join(&mut self) -> Result<(), String> {
        let Some(running) = self.running.take() else { return Ok(()) };
        match running.thread.join() {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(format!("{} failed: {error}", self.name)),
            Err(_) => Err(format!("{} panicked", self.name)),
        }
    }
}

/// Ready when the node is to stop.
#[derive(Debug)]
pub(super) struct Stop(watch::Receiver<End>);

impl Stop {
    pub async fn wait(mut self) {
        // A sender that is gone is a stop, too.
        let _ = self.0.wait_for(|end| *end != End::Runs).await;
    }
}

/// Runs a server to its end, or drops it where it stands.
fn run(
    runtime: Runtime,
    server: impl Future<Output = io::Result<()>>,
    mut ended: watch::Receiver<End>,
) -> io::Result<()> {
    let result = runtime.block_on(async {
        let killed = ended.wait_for(|end| *end == End::Kill);
        tokio::select! {
            biased;
            _ = killed => Ok(()),
            result = server => result,
        }
    });
    // Look-ups of names that are under way are not waited for.
    runtime.shutdown_background();
    result
}
