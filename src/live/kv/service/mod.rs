//! The KV directory at work: a registry is followed, its streams are subscribed to, an index is kept.
//!
//! Owns threads and their ends: one for the registry and one for each stream, so that a stream with much to do holds up
//! nobody else's. Decides nothing: [`Directory`](crate::kv::directory::Directory) says what is followed,
//! [`StreamSync`](crate::kv::sync::StreamSync) whether it is in step. Reading order: [`Feed`] (start and end), `follower`
//! (the thread of the registry), `stream` (a stream's), [`Board`] (what everybody else may look at), [`Log`].

mod board;
mod feed;
mod follower;
mod lag;
mod log;
mod look;
mod stream;

pub use board::{Board, StreamView};
pub use feed::{Feed, FeedError, FeedOptions};
pub use lag::Lag;
pub use log::Log;
pub use look::{Looked, look};
