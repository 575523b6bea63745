//! The vocabulary between a client of a cluster and the cluster: what may be asked, what comes back.
//!
//! The replayer emits [`Action`]s and takes [`Event`]s; the emulated cluster takes the one and emits the other; a live
//! driver turns both into HTTP. Neither side sees the other.
//! Invariant: every [`Action::Generate`] is answered by exactly one [`Event::Finished`], aborted or not; every call with a
//! [`CallId`] is answered exactly once.

mod answer;
mod ask;

pub use answer::{Answer, ErrorClass, Event, Finish, LoadReport, Outgoing, Phases, TokenRun, WorkerState};
pub use ask::{
    Action, AdmitAnswer, AdmitAsk, AdmitKind, AdmitReason, CallError, CallId, Generate, Route, RoutingHeader,
};
