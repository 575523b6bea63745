//! [`Alarm`] where the kernel has no timer to wait on: the runtime's, in steps of a millisecond.

use std::io;
use std::time::Duration;

use crate::base::Time;
use crate::live::clock::Clock;

/// A wake at a point of the run, a millisecond late at most.
#[derive(Debug)]
pub struct Alarm;

impl Alarm {
    /// Needs a running runtime.
    pub fn new() -> io::Result<Alarm> {
        Ok(Alarm)
    }

    /// Waits until the clock of the run says so; not at all when it does. Cancel-safe.
    pub async fn wait_until(&mut self, clock: &Clock, at: Time) -> io::Result<()> {
        self.sleep(clock.until(at)).await
    }

    /// Waits so long; at once for zero. Cancel-safe.
    pub async fn sleep(&mut self, length: Duration) -> io::Result<()> {
        if !length.is_zero() {
            tokio::time::sleep(length).await;
        }
        Ok(())
    }
}
