//! Stand-in until the client is merged.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;

use crate::base::WorkerId;
use crate::live::api::StatsReply;
use crate::live::clock::Clock;
use crate::live::{Heard, Target};
use crate::protocol::{Action, WorkerState};
use crate::trace::Trace;

/// Error.
#[derive(Debug, thiserror::Error)]
#[error("client")]
pub struct ClientError;

/// Counters.
#[derive(Debug, Clone, Copy, Default)]
pub struct ClientCounters {
    /// C.
    pub connections: u64,
    /// R.
    pub requests: u64,
    /// B.
    pub bytes_sent: u64,
}

/// Client.
#[derive(Debug)]
pub struct Client<'t> {
    _trace: &'t Trace,
}

/// Looker.
#[derive(Debug, Clone)]
pub struct Looker;

impl Looker {
    /// Look.
    pub async fn look(&self, _: WorkerId) -> WorkerState {
        WorkerState::Down
    }
    /// Stats.
    pub async fn stats(&self, _: WorkerId) -> Option<StatsReply> {
        None
    }
}

impl<'t> Client<'t> {
    /// New.
    pub fn new(_trace: &'t Trace, _: Arc<Target>, _: Clock, _: mpsc::Sender<Heard>) -> Result<Self, ClientError> {
        Ok(Client { _trace })
    }
    /// Perform.
    pub fn perform(&mut self, _: Action) {}
    /// In flight.
    pub fn in_flight(&self) -> usize {
        0
    }
    /// Counters.
    pub fn counters(&self) -> ClientCounters {
        ClientCounters::default()
    }
    /// Close.
    pub async fn close(&mut self, _: Duration) {}
    /// Looker.
    pub fn looker(&self) -> Looker {
        Looker
    }
}

/// Http.
#[derive(Debug, Clone)]
pub struct Http;

impl Http {
    /// New.
    pub fn new(_: &Target) -> Result<Http, ClientError> {
        Ok(Http)
    }
    /// Fetch.
    pub async fn fetch(
        &self,
        _: &str,
        _: Option<(&str, String)>,
        _: Option<String>,
        _: Duration,
    ) -> crate::live::probe::Looked {
        Err("stand-in".into())
    }
}
