//! Servers around the `node` machines and the KV directory: sockets and HTTP, no decision.

mod http;
mod kv;
mod listen;
mod process;
mod room;
mod router;
mod seats;
pub mod upstream;
mod worker;

pub use kv::{InternalToken, KvLimits, KvServerOptions, parse_kv_query, serve_kv};
pub use process::{adopt, run_kv, run_router, run_worker, stopped};
pub use room::{NoRoom, room};
pub use router::{RouterServerOptions, serve_router};
pub use worker::{
    ApiKey, KvPublishing, Listeners, RequestLog, SglangVersion, Triggers, WorkerServerOptions, serve_worker,
};
