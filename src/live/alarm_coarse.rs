//! [`Alarm`] where the kernel has no timer to wait on: the runtime's, in steps of a millisecond.

use std::io;
use std::time::Duration;

/// A wake at a point of the run, a millisecond late at most.
#[derive(Debug)]
pub struct Alarm;

impl Alarm {
    /// Needs a running runtime.
    pub fn new() -> io::Result<Alarm> {
        Ok(Alarm)
    }

    /// Waits so long; at once for zero. Cancel-safe.
    pub async fn sleep(&self, length: Duration) -> io::Result<()> {
        if !length.is_zero() {
            tokio::time::sleep(length).await;
        }
        Ok(())
    }
}
