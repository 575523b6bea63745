//! Servers around the `node` machines: sockets and HTTP, no decision.

mod http;
mod process;
mod router;
pub mod upstream;
mod worker;

pub use process::{adopt, run_router, run_worker, stopped};
pub use router::{RouterServerOptions, serve_router};
pub use worker::{ApiKey, Listeners, RequestLog, SglangVersion, Triggers, WorkerServerOptions, serve_worker};
