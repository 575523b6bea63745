//! SIGINT, SIGTERM and SIGHUP: the first asks the run to stop and keep its results, the second ends the program at once.
//!
//! SIGXFSZ is taken and left at that, so that a write beyond `ulimit -f` fails with an error that names the file.
//! Invariant: what a handler does is set one number; all else happens where the run looks at it.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;

use crate::cli::exit::{Exit, Failure};

/// What ends a run, and the exit code of each.
const ENDING: [(i32, Exit); 3] = [(SIGINT, Exit::Interrupted), (SIGTERM, Exit::Terminated), (SIGHUP, Exit::HungUp)];

/// Which signal came, if any.
#[derive(Debug, Clone, Default)]
pub struct Signals {
    seen: Arc<AtomicUsize>,
    /// The next signal ends the program at once.
    at_once: Arc<AtomicBool>,
}

impl Signals {
    /// Installs the handlers for the rest of the program.
    pub fn install() -> Result<Signals, Failure> {
        Signals::watch().map_err(|error| Failure::broke(format!("cannot watch for signals: {error}")))
    }

    fn watch() -> io::Result<Signals> {
        let seen = Arc::new(AtomicUsize::new(0));
        let at_once = Arc::new(AtomicBool::new(false));
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        // A run under nohup is meant to outlive its terminal.
        let outlives = |signal: i32| signal == SIGHUP && is_ignored(&status, signal);
        for (signal, exit) in ENDING.into_iter().filter(|(signal, _)| !outlives(*signal)) {
            // Order matters: the shutdown looks at the flag before this same signal sets it.
            flag::register_conditional_shutdown(signal, exit as i32, Arc::clone(&at_once))?;
            flag::register(signal, Arc::clone(&at_once))?;
            flag::register_usize(signal, Arc::clone(&seen), exit as usize)?;
        }
        Ok(Signals { seen, at_once })
    }

    /// Until told otherwise the first signal ends the program at once: there is nothing to keep yet.
    pub fn end_at_once(&self, does: bool) {
        self.at_once.store(does, Ordering::Relaxed);
    }

    /// The exit code of the signal that came.
    pub fn caught(&self) -> Option<Exit> {
        let seen = self.seen.load(Ordering::Relaxed);
        ENDING.into_iter().map(|(_, exit)| exit).find(|exit| *exit as usize == seen)
    }
}

/// From here on a file beyond the limit on file size is an error of its write, as a full disk is.
pub fn outlive_file_size_limit() {
    // Where it cannot be taken, the limit ends the program as it always did.
    let _ = flag::register(SIGXFSZ, Arc::default());
}

/// Whether the process was started with `signal` ignored, by its `/proc/self/status`.
fn is_ignored(status: &str, signal: i32) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let bits = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    bits >> (signal - 1) & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_under_nohup_is_known_by_its_mask() {
        let status = |mask: &str| format!("Name:\tpdreplay\nSigBlk:\tffffffffffffffff\nSigIgn:\t{mask}\n");
        assert!(is_ignored(&status("0000000000001001"), SIGHUP));
        assert!(!is_ignored(&status("0000000000001006"), SIGHUP));
        assert!(!is_ignored("", SIGHUP));
    }
}
