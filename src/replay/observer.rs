//! What a driver hands out while it runs.

use std::io;
use std::ops::ControlFlow;

use crate::base::Time;
use crate::protocol::TokenRun;
use crate::record::{LedgerEvent, RequestRecord, RunFacts};

/// Takes what a run produces, as it is produced. An error ends the run at once.
pub trait Observer {
    /// A request ended. `tokens` are its token arrivals.
    fn record(&mut self, record: &RequestRecord, tokens: &[TokenRun]) -> io::Result<()>;

    /// Something happened beside the requests.
    fn ledger(&mut self, event: &LedgerEvent) -> io::Result<()>;

    /// Nothing more has been handed over for the moment. A driver in virtual time, which never waits, does not call it.
    fn idle(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Called now and then. `Break` interrupts the run: requests in flight are recorded as cancelled, the rest as
    /// skipped. In real time those in flight get some time to end first.
    fn progress(&mut self, progress: &Progress) -> ControlFlow<()>;
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Time of the run.
    pub now: Time,
    /// Requests planned.
    pub planned: u64,
    /// Requests ended.
    pub ended: u64,
    /// Requests in flight.
    pub in_flight: u64,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunStatus {
    /// Every planned request was served or failed by itself.
    Completed,
    /// The observer broke it off.
    Interrupted,
    /// A failed turn stopped it (`on_turn_failure = "stop-run"`).
    Stopped,
}

/// Result of a driver.
#[derive(Debug, Clone, PartialEq)]
pub struct RunEnd {
    /// How it ended.
    pub status: RunStatus,
    /// What it leaves beside the records.
    pub facts: RunFacts,
}
