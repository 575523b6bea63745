//! ZeroMQ sockets of KV events: SUB and DEALER towards engines, PUB and ROUTER for emulated workers.
//!
//! Owns the transport (ZMTP 2.0 to 3.1, mechanism NULL, `tcp` and `ipc`) and nothing of what messages mean. Its invariant:
//! no peer, however hostile, makes a connection hold more than one message within the limits and one chunk read ahead, or
//! makes it wait longer than its limits.
//!
//! The transport is our own because the crate `zeromq` 0.7, else the one to use, cannot serve here; each of these was
//! measured with it (docs/kv-events.md, "Transport"): a PING, which any publisher with heartbeats sends, ends the
//! connection; a frame that announces 1 TiB aborts the process and an endless multipart message grows without bound,
//! since there is no limit of size; a reconnect hangs for ever before a peer that accepts and stays silent; after a reset
//! behind READY the socket stays dead and says `Connected`; PUB holds two queues of 100,000 messages for a slow subscriber,
//! whatever their size. It remains the peer that the tests talk to, beside libzmq.
//!
//! Reading order: [`Limits`], `frame`, `greeting`, `connection` (shared by all); [`SubSocket`], [`DealerSocket`],
//! [`follow`] (receiving); `listen`, [`PubSocket`], [`RouterSocket`] (sending).

mod backoff;
mod connection;
mod dealer;
mod endpoint;
mod error;
mod frame;
mod greeting;
mod limits;
mod listen;
mod publish;
mod router;
mod stream;
mod subscribe;
#[cfg(test)]
mod tests;

pub use dealer::DealerSocket;
pub use endpoint::Endpoint;
pub use error::ZmqError;
pub use limits::Limits;
pub use publish::{PubSocket, QueueLimits, Sent};
pub use router::{Replies, RouterSocket};
pub use stream::{Command, Input, StreamOptions, StreamSink, follow};
pub use subscribe::SubSocket;

/// The frames of one message.
pub type Frames = Vec<Vec<u8>>;
