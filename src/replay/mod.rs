//! The replayer: due turns, policy, session, admission, path. Emits actions, takes events, writes records.
//!
//! A pure machine: it is told the time, and knows the cluster only through [`crate::protocol`]. One mutation
//! ([`Replayer::handle_event`], [`Replayer::handle_timeout`], [`Replayer::interrupt`]), then drain the `poll_` methods.
//! Invariant: every planned request leaves exactly one record, and while one is missing there is a wake or an awaited
//! answer. Pending work is ordered by (time, creation): the same seed gives the same bytes.

mod answers;
mod calls;
mod choose;
mod config;
mod finish;
mod fleet;
mod index;
mod last_word;
mod machine;
mod observer;
mod path;
mod place;
mod plan;
mod record;
mod schedule;
mod stop;
mod streams;
mod turn;

#[cfg(test)]
mod tests;

pub use config::{FirstTurn, Mechanism, OnTurnFailure, ReplayConfig, Schedule};
pub use index::NoIndex;
pub use machine::{IndexWatch, ReplayFacts, Replayer, ReplayerConfig, WakeReason};
pub use observer::{Observer, Progress, RunEnd, RunStatus};
pub use streams::{stream_facts, stream_line, told_change};
