//! Real time and real sockets: the driver of a live run, its client, and the servers around emulated nodes.
//!
//! The only module with an async runtime, sockets and a clock beside `cli`. Decides nothing about sessions, policies or
//! caps: the replayer and the nodes do. Reading order: [`api`] (bodies on the wire, shared by client and servers),
//! `clock`, `server` (shells around `node` machines), `cluster` (all nodes of a scenario on loopback), `client`,
//! `driver`.

mod accounts;
pub mod api;
mod blame;
pub mod client;
pub mod clock;
pub mod cluster;
mod decimal;
pub mod driver;
mod embedded;
mod flush;
mod heard;
pub mod kv;
pub mod probe;
mod resolve;
mod secrets;
pub mod server;
mod target;

pub use accounts::Accounts;
pub use embedded::{Embedded, Notices};
pub use flush::{Flushed, flush_caches};
pub use heard::Heard;
pub use resolve::{ResolveError, Resolved, descriptors, resolve};
pub use secrets::{FoundSecrets, SecretError, read_secrets, readable_by_others};
pub use target::{Addresses, Dialect, Endpoint, Limits, Retries, Secrets, ServedBy, Target, url_at};
