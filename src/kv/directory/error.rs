//! What can be wrong with a configuration of KV events: where, which field, why, and the remedy.

use std::fmt;

use super::endpoint::Endpoint;

/// All that is wrong at the stage that failed; one line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.iter().map(|problem| format!("{file}{problem}")).collect::<Vec<_>>().join("\n"))]
pub struct ConfigErrors {
    /// File as given.
    pub file: String,
    /// Never empty.
    pub problems: Vec<ConfigError>,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// Line and column from 1, where the text itself cannot be read.
    pub at: Option<(usize, usize)>,
    /// Path of the field, such as `streams[1].endpoint`; empty: the file as a whole.
    pub field: String,
    /// What, and what to do.
    pub cause: ConfigCause,
}

/// What is wrong. Every text names the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigCause {
    /// Not JSON.
    #[error("not valid JSON: {0}; correct it there")]
    Syntax(String),
    /// A value of another type.
    #[error("{0}; write a value of that kind")]
    WrongType(String),
    /// A key nobody reads.
    #[error("unknown key; {}", match .near { Some(near) => format!("did you mean `{near}`?"), None => format!("known keys: {}", .known.join(", ")) })]
    UnknownKey {
        /// Nearest known key.
        near: Option<String>,
        /// Known keys of its object.
        known: Vec<String>,
    },
    /// A word outside a closed set.
    #[error("\"{found}\" is none of its words; {}", match .near { Some(near) => format!("did you mean \"{near}\"?"), None => format!("write one of {}", .known.join(", ")) })]
    UnknownWord {
        /// As given.
        found: String,
        /// Nearest known word.
        near: Option<String>,
        /// Known words.
        known: Vec<String>,
    },
    /// A number outside its range.
    #[error("is {found}; write a whole number from {least} to {most}")]
    OutOfRange {
        /// As given.
        found: u64,
        /// Least allowed.
        least: u64,
        /// Most allowed.
        most: u64,
    },
    /// A field that must be there.
    #[error("is missing; {0}")]
    Missing(&'static str),
    /// Nobody can connect to it.
    #[error("\"{found}\" cannot be connected to: {why}; write tcp://HOST:PORT as the engine is reached from here")]
    Endpoint {
        /// As given.
        found: String,
        /// Why.
        why: String,
    },
    /// Two streams of one instance and rank.
    #[error(
        "instance \"{instance}\" has rank {dp_rank} already in {other}; one stream a rank: remove one, or correct its dp_rank"
    )]
    DuplicateStream {
        /// Instance.
        instance: String,
        /// Rank.
        dp_rank: u32,
        /// Path of the first.
        other: String,
    },
    /// One address twice.
    #[error("{endpoint} is {other} already; each stream has an address of its own: correct the port")]
    DuplicateEndpoint {
        /// The address.
        endpoint: Endpoint,
        /// Path of the first.
        other: String,
    },
    /// More static streams than allowed.
    #[error("{found} streams, and max_streams is {most}; remove some, or raise max_streams (128 at most)")]
    TooManyStreams {
        /// As listed.
        found: usize,
        /// `max_streams`.
        most: u32,
    },
    /// Discovery and static streams at once.
    #[error("`discovery` and `streams` exclude each other, since both would manage the same subscriptions; keep one")]
    BothSources,
    /// Neither.
    #[error("nothing to subscribe to; write `discovery` (enabled) or a list of `streams`")]
    NoSource,
    /// Two kinds of registry, or none.
    #[error("a registry is either `file` or `etcd`; write exactly one")]
    Registry,
    /// Live and replay ports would be one.
    #[error("is that of the events too ({0}); the two sockets need different ports")]
    SameOffset(u16),
}

impl ConfigError {
    pub(super) fn new(field: impl Into<String>, cause: ConfigCause) -> ConfigError {
        ConfigError { at: None, field: field.into(), cause }
    }
}

/// Continues the name of the file.
impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((line, column)) = self.at {
            write!(f, ":{line}:{column}")?;
        }
        match self.field.as_str() {
            "" => write!(f, ": {}", self.cause),
            field => write!(f, ": `{field}`: {}", self.cause),
        }
    }
}
