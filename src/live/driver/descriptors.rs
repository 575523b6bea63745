//! Open files a run may need against those the program may have, looked at before the run.
//!
//! A run that finds out in the middle fails requests that the target would have served. Invariant: [`Descriptors::check`]
//! either leaves a limit that is large enough, or names what is missing.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use thiserror::Error;

/// Open files beside connections: results, timers, the runtime, libraries.
const OTHERS: u64 = 64;

/// Need and limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// Files the run may have open at once.
    pub needed: u64,
    /// Files the program may have open.
    pub limit: u64,
}

/// Connections of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connections {
    /// At once at most: what the scenario's limits allow, or all sessions.
    pub most: u64,
    /// At once as planned; as many as `most` where the scenario asks for that many.
    pub expected: u64,
}

/// The limit is too low and may not be raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "the run may need {needed} open files at once ({connections} connections), but the limit is {limit}; raise it \
     (`ulimit -n {needed}`), or set replay.concurrency or replay.max_sessions to bound the connections"
)]
pub struct Shortage {
    /// Files the run may have open at once.
    pub needed: u64,
    /// Connections among them.
    pub connections: u64,
    /// Files the program may have open.
    pub limit: u64,
}

impl Descriptors {
    /// For so many connections and other files at once. Raises the soft limit as far as the hard one where the worst case
    /// needs it; refuses what the plan itself does not fit into.
    pub fn check(connections: Connections, others: u64) -> Result<Descriptors, Shortage> {
        let needed = connections.most + others + OTHERS;
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let soft = current.unwrap_or(u64::MAX);
        if soft >= needed {
            return Ok(Descriptors { needed, limit: soft });
        }
        let raised = Rlimit { current: maximum.or(Some(needed)), maximum };
        let limit = if setrlimit(Resource::Nofile, raised).is_ok() { raised.current.unwrap_or(u64::MAX) } else { soft };
        let planned = connections.expected + others + OTHERS;
        if limit >= planned {
            return Ok(Descriptors { needed, limit });
        }
        Err(Shortage { needed: planned, connections: connections.expected, limit })
    }

    /// The worst case does not fit: what to know before the run.
    pub fn warning(&self) -> Option<String> {
        (self.needed > self.limit).then(|| {
            format!(
                "{} files may be open; a target that falls behind would need up to {}: bound them by replay.concurrency",
                self.limit, self.needed
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_run_fits_and_an_impossible_one_is_refused_with_a_way_out() {
        let found = Descriptors::check(Connections { most: 1, expected: 1 }, 0).unwrap();
        assert!(found.limit >= found.needed && found.needed == 1 + OTHERS);
        assert_eq!(found.warning(), None);
        if getrlimit(Resource::Nofile).maximum.is_some() {
            let tight = Descriptors::check(Connections { most: 1 << 40, expected: 1 }, 0).unwrap();
            assert!(tight.warning().unwrap().contains("up to 1099511627"), "{tight:?}");
            let shortage = Descriptors::check(Connections { most: 1 << 40, expected: 1 << 40 }, 0).unwrap_err();
            let text = shortage.to_string();
            assert!(text.contains("ulimit -n 1099511627") && text.contains("replay.concurrency"), "{text}");
        }
    }
}
