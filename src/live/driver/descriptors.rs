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
    /// For so many connections and other files at once. Raises the soft limit as far as the hard one when that is enough.
    pub fn check(connections: u64, others: u64) -> Result<Descriptors, Shortage> {
        let needed = connections + others + OTHERS;
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let soft = current.unwrap_or(u64::MAX);
        if soft >= needed {
            return Ok(Descriptors { needed, limit: soft });
        }
        let raised = Rlimit { current: maximum.or(Some(needed)), maximum };
        let hard = raised.current.unwrap_or(u64::MAX);
        if hard >= needed && setrlimit(Resource::Nofile, raised).is_ok() {
            return Ok(Descriptors { needed, limit: hard });
        }
        Err(Shortage { needed, connections, limit: soft })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_run_fits_and_an_impossible_one_is_refused_with_a_way_out() {
        let found = Descriptors::check(1, 0).unwrap();
        assert!(found.limit >= found.needed && found.needed == 1 + OTHERS);
        if getrlimit(Resource::Nofile).maximum.is_some() {
            let shortage = Descriptors::check(1 << 40, 0).unwrap_err();
            let text = shortage.to_string();
            assert!(text.contains("ulimit -n 1099511627") && text.contains("replay.concurrency"), "{text}");
        }
    }
}
