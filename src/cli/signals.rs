//! SIGINT and SIGTERM: the first asks the run to stop and keep its results, the second ends the program at once.
//!
//! Invariant: what a handler does is set one number; all else happens where the run looks at it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::cli::exit::Exit;

/// Which signal came, if any.
#[derive(Debug, Clone, Default)]
pub struct Signals {
    seen: Arc<AtomicUsize>,
}

impl Signals {
    /// Installs the handlers for the rest of the program.
    pub fn install() -> io::Result<Signals> {
        let seen = Arc::new(AtomicUsize::new(0));
        let again = Arc::new(AtomicBool::new(false));
        for (signal, exit) in [(SIGINT, Exit::Interrupted), (SIGTERM, Exit::Terminated)] {
            // Order matters: the shutdown looks at the flag before this same signal sets it.
            flag::register_conditional_shutdown(signal, exit as i32, Arc::clone(&again))?;
            flag::register(signal, Arc::clone(&again))?;
            flag::register_usize(signal, Arc::clone(&seen), exit as usize)?;
        }
        Ok(Signals { seen })
    }

    /// The exit code of the signal that came.
    pub fn caught(&self) -> Option<Exit> {
        let seen = self.seen.load(Ordering::Relaxed);
        [Exit::Interrupted, Exit::Terminated].into_iter().find(|exit| *exit as usize == seen)
    }
}
