//! How many callers a process has room for, by the descriptors it may open. Looked at before it listens to any.

use rustix::process::{Resource, getrlimit};
use thiserror::Error;

use super::listen::LINGERING;

/// Most callers, unless more are asked for.
const MOST: u64 = 1024;
/// Unless more are asked for, of the descriptors one in so many is a caller's: the rest are for streams that come later.
const SHARE: u64 = 2;
/// Descriptors of the process itself: standard streams, listener, signals, runtimes, the registry.
const OWN: u64 = 20;
/// Descriptors of a stream: two connections, its runtime, and one that is being made anew.
const OF_STREAM: u64 = 6;

/// Fewer descriptors than are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error(
    "{callers} connections of callers need {needed} open files ({reserved} are for the process, its streams and callers \
     that are turned away), but the limit is {limit}"
)]
pub struct NoRoom {
    /// Connections of callers: as asked for, or the least there can be.
    pub callers: u64,
    /// Descriptors for all.
    pub needed: u64,
    /// Of these, not for callers.
    pub reserved: u64,
    /// Descriptors the process may open.
    pub limit: u64,
}

/// Connections of callers at once beside so many streams: as many as are asked for, else half of the descriptors that the
/// process may open, 1024 at most, and no more than leave room for everything else.
///
/// # Errors
/// They do not fit, or not even one does.
pub fn room(asked: Option<usize>, streams: usize) -> Result<usize, NoRoom> {
    fit(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX), asked, streams)
}

fn fit(limit: u64, asked: Option<usize>, streams: usize) -> Result<usize, NoRoom> {
    let reserved = OWN + LINGERING as u64 + OF_STREAM * streams as u64;
    let left = limit.saturating_sub(reserved);
    let callers = asked.map_or_else(|| left.min(limit / SHARE).clamp(1, MOST), |asked| asked as u64);
    if callers > left {
        return Err(NoRoom { callers, needed: reserved.saturating_add(callers), reserved, limit });
    }
    Ok(usize::try_from(callers).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_fit_beside_all_else_or_the_figures_are_told() {
        assert_eq!(fit(1 << 20, None, 10), Ok(1024));
        assert_eq!(fit(1024, None, 10), Ok(512));
        assert_eq!(fit(64, None, 1), Ok(6), "20 + 32 + 6 are needed otherwise");
        assert_eq!(fit(64, Some(6), 1), Ok(6));
        assert_eq!(fit(64, Some(7), 1), Err(NoRoom { callers: 7, needed: 65, reserved: 58, limit: 64 }));
        assert_eq!(fit(16, None, 1), Err(NoRoom { callers: 1, needed: 59, reserved: 58, limit: 16 }));
        assert!(fit(1024, Some(usize::MAX), 1).is_err());
    }
}
