//! Which publishers of KV events to follow: the configuration, the instances of a registry, and the rules between them.
//!
//! Reading order: `config` (and `read`, from JSON), `record` (a registration), `table` (states of instances), `rules`
//! (which of them become streams), `machine` ([`Directory`]: all of it in time). `keys` and `listing` turn what etcd or a
//! file says into inputs. No socket, file or clock: `live::kv::registry` has those.

mod config;
mod endpoint;
mod error;
mod keys;
mod listing;
mod machine;
mod news;
mod read;
mod record;
mod rules;
mod states;
mod stream;
mod table;
#[cfg(test)]
mod tests;

pub use config::{Discovery, KvEventsConfig, Registry, Source, StaticStream, StreamForm, StreamLimits};
pub use endpoint::Endpoint;
pub use error::{ConfigCause, ConfigError, ConfigErrors};
pub use keys::KeyMirror;
pub use listing::Listing;
pub use machine::{Directory, DirectoryOutput};
pub use news::News;
pub use read::MOST_STREAMS;
pub use record::{Identity, InstanceLoad, InstanceRecord, InstanceType, LoadReport};
pub use rules::Exclusion;
pub use states::{InstanceState, StateChange, StateReason};
pub use stream::{DropReason, Origin, StreamKey, Subscription};
pub use table::{
    Instance, InstanceTable, LEASE_LOST_LIMIT, PROBE_ATTEMPTS, PROBE_LIMIT, PROBE_PAUSE, SUSPECT_LIMIT, TableInput,
    TableOutput,
};
