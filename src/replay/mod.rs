//! The replayer: due turns, policy, session, admission, path. Emits actions, takes events, writes records.

mod config;

pub use config::{Mechanism, OnTurnFailure, ReplayConfig, Schedule};
