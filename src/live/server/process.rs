//! A server on the calling thread, for a process of its own: runtime, listeners of the standard library, a stop to poll.

use std::io;
use std::net::TcpListener;
use std::time::Duration;

use super::kv::{KvServerOptions, serve_kv};
use super::router::{RouterServerOptions, serve_router};
use super::worker::{Listeners, WorkerServerOptions, serve_worker};
use crate::node::NodeConfig;

/// Time between two looks at whether to stop.
const LOOK: Duration = Duration::from_millis(20);

/// Serves a worker on this thread until `stop` says so, then as [`serve_worker`] ends.
/// Errors: no runtime or no timer can be had, or the listeners cannot be used.
pub fn run_worker(
    http: TcpListener,
    bootstrap: Option<TcpListener>,
    config: NodeConfig,
    options: WorkerServerOptions,
    stop: impl Fn() -> bool + Send + 'static,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listeners = Listeners { http: adopt(http)?, bootstrap: bootstrap.map(adopt).transpose()? };
        serve_worker(listeners, config, options, stopped(stop)).await
    })
}

/// Serves a router on this thread until `stop` says so, then as [`serve_router`] ends.
/// Errors: no runtime can be had, or the listener cannot be used.
pub fn run_router(
    http: TcpListener,
    options: RouterServerOptions,
    stop: impl Fn() -> bool + Send + 'static,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { serve_router(adopt(http)?, options, stopped(stop)).await })
}

/// Serves a KV directory's queries on this thread until `stop` says so, then as [`serve_kv`] ends.
/// Errors: no runtime can be had, or the listener cannot be used.
pub fn run_kv(http: TcpListener, options: KvServerOptions, stop: impl Fn() -> bool + Send + 'static) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async { serve_kv(adopt(http)?, options, stopped(stop)).await })
}

/// A listener for the running runtime.
pub fn adopt(listener: TcpListener) -> io::Result<tokio::net::TcpListener> {
    listener.set_nonblocking(true)?;
    tokio::net::TcpListener::from_std(listener)
}

/// Ready soon after `stop` says so.
pub async fn stopped(stop: impl Fn() -> bool) {
    while !stop() {
        tokio::time::sleep(LOOK).await;
    }
}
