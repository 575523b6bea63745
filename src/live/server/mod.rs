//! Servers around the `node` machines: sockets and HTTP, no decision.

mod http;
pub mod upstream;
mod worker;

pub use worker::{ApiKey, Listeners, RequestLog, SglangVersion, WorkerServerOptions, serve_worker};
