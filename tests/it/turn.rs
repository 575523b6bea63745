//! Which tests run beside each other. Those that start processes do so freely; one that judges how long something took
//! has the machine to itself, as far as this binary is concerned.
//!
//! Whoever is in may enter again, also from another thread: nobody waits for a test that waits for the machine, only for
//! one that has it. So a test cannot block itself.

use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Guards out of [`beside`], and whether there is one of [`alone`].
static MACHINE: Mutex<(usize, bool)> = Mutex::new((0, false));
static LEFT: Condvar = Condvar::new();

thread_local! {
    static IS_ALONE: Cell<bool> = const { Cell::new(false) };
}

/// While it lives, no test is alone.
pub struct Beside {
    /// Not inside the test that is alone.
    is_counted: bool,
}

/// While it lives, nothing else runs.
pub struct Alone(());

/// For everything that starts processes: held by each [`crate::run::Scratch`] and server.
pub fn beside() -> Beside {
    if IS_ALONE.get() {
        return Beside { is_counted: false };
    }
    let mut machine = LEFT.wait_while(lock(), |(_, is_alone)| *is_alone).unwrap_or_else(PoisonError::into_inner);
    machine.0 += 1;
    Beside { is_counted: true }
}

/// For a test that judges times: before it makes anything else.
pub fn alone() -> Alone {
    let is_busy = |(busy, is_alone): &mut (usize, bool)| *busy > 0 || *is_alone;
    LEFT.wait_while(lock(), is_busy).unwrap_or_else(PoisonError::into_inner).1 = true;
    IS_ALONE.set(true);
    Alone(())
}

/// A test that failed has let go all the same.
fn lock() -> MutexGuard<'static, (usize, bool)> {
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Beside {
    fn drop(&mut self) {
        if self.is_counted {
            lock().0 -= 1;
            LEFT.notify_all();
        }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        IS_ALONE.set(false);
        lock().1 = false;
        LEFT.notify_all();
    }
}
