//! States of an instance, and why they change.

/// State of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum InstanceState {
    /// Registered.
    Active,
    /// Its lease is lost, and it was heard of lately: still in use.
    LeaseLost,
    /// Out of use; gone soon unless it is heard of.
    Suspect,
}

/// Why an instance came, went or changed its state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StateReason {
    /// It registered, for the first time or again.
    Registered,
    /// Its lease is lost, and it says that it is healthy.
    ProbeAnswered,
    /// Its lease is lost, and it does not answer.
    ProbeFailed,
    /// Its lease is lost, and nothing was heard for a while.
    Silent,
    /// A suspect was heard of.
    Heartbeat,
    /// A suspect was not heard of.
    SuspectTooLong,
    /// Another process registered under its name.
    Replaced,
    /// It was taken off the registry on purpose.
    Withdrawn,
}

/// An instance came (`from` is `None`), went (`to` is `None`) or changed its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateChange {
    /// Instance.
    pub instance: String,
    /// State before.
    pub from: Option<InstanceState>,
    /// State now.
    pub to: Option<InstanceState>,
    /// Why.
    pub reason: StateReason,
}

impl InstanceState {
    /// As in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            InstanceState::Active => "ACTIVE",
            InstanceState::LeaseLost => "LEASE_LOST",
            InstanceState::Suspect => "SUSPECT",
        }
    }
}

impl StateReason {
    /// As in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            StateReason::Registered => "registered",
            StateReason::ProbeAnswered => "lease lost, health probe answered",
            StateReason::ProbeFailed => "lease lost, health probe failed",
            StateReason::Silent => "lease lost, no heartbeat for 3 s",
            StateReason::Heartbeat => "heartbeat of a suspect",
            StateReason::SuspectTooLong => "suspect for 15 s",
            StateReason::Replaced => "another process registered under the name",
            StateReason::Withdrawn => "taken off the registry",
        }
    }
}
