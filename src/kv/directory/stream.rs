//! [`Subscription`]: one stream to follow, and why it is followed no longer.

use super::config::{StaticStream, StreamForm};
use super::endpoint::Endpoint;
use super::record::Identity;

/// Name of a stream.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamKey {
    /// Instance.
    pub instance: String,
    /// Data-parallel rank.
    pub dp_rank: u32,
}

/// Where a stream comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Listed in the configuration: nobody knows which process it is.
    Static,
    /// Of a registered process.
    Discovered(Identity),
}

/// One stream to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscription {
    /// Name.
    pub key: StreamKey,
    /// Process.
    pub origin: Origin,
    /// The instance's HTTP server, where a registry says it.
    pub http: Option<Endpoint>,
    /// What is spoken.
    pub form: StreamForm,
    /// Live events.
    pub events: Endpoint,
    /// Recovery.
    pub replay: Option<Endpoint>,
}

/// Why a stream is followed no longer. One that is replaced is subscribed to anew right after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropReason {
    /// The instance is gone from the registry.
    Removed,
    /// The instance is suspect.
    Suspect,
    /// The instance decodes now.
    Role,
    /// Another engine runs under its name.
    Backend,
    /// The instance has fewer ranks now.
    Ranks,
    /// The rules exclude the instance; an exclusion says why.
    Excluded,
    /// Replaced: another process.
    Process,
    /// Replaced: another address.
    Address,
}

impl DropReason {
    /// As in messages.
    pub const fn as_str(self) -> &'static str {
        match self {
            DropReason::Removed => "instance removed",
            DropReason::Suspect => "instance suspect",
            DropReason::Role => "instance decodes now",
            DropReason::Backend => "another backend",
            DropReason::Ranks => "fewer ranks",
            DropReason::Excluded => "instance excluded",
            DropReason::Process => "new process",
            DropReason::Address => "new address",
        }
    }
}

impl From<StaticStream> for Subscription {
    fn from(stream: StaticStream) -> Subscription {
        let key = StreamKey { instance: stream.instance, dp_rank: stream.dp_rank };
        let StaticStream { form, events, replay, .. } = stream;
        Subscription { key, origin: Origin::Static, http: None, form, events, replay }
    }
}
