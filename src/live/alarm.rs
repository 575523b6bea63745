//! [`Alarm`] on Linux: a timer of the kernel, without the steps of a millisecond that the runtime's own have.

use std::io;
use std::time::Duration;

use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A wake at a point of the run, exact to the kernel's timers.
#[derive(Debug)]
pub struct Alarm {
    timer: AsyncFd<OwnedFd>,
}

impl Alarm {
    /// A timer of the kernel; needs a running runtime.
    #[expect(
        deprecated,
        reason = "its successor is unsafe; an OwnedFd stays open and the same for as long as this lives"
    )]
    pub fn new() -> io::Result<Alarm> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Alarm { timer: AsyncFd::with_interest(timer, Interest::READABLE)? })
    }

    /// Waits so long and never shorter; at once for zero. Cancel-safe: the next call sets the timer anew.
    pub async fn sleep(&self, length: Duration) -> io::Result<()> {
        if length.is_zero() {
            return Ok(());
        }
        let value = Timespec { tv_sec: length.as_secs() as i64, tv_nsec: i64::from(length.subsec_nanos()) };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        loop {
            let mut ready = self.timer.readable().await?;
            let mut expirations = [0; 8];
            match rustix::io::read(self.timer.get_ref(), &mut expirations) {
                Ok(_) => return Ok(()),
                // Readiness from before it was set anew.
                Err(Errno::AGAIN) => ready.clear_ready(),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::clock::Clock;

    #[test]
    fn a_wait_that_was_given_up_after_its_end_wakes_no_later_one_early() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let alarm = Alarm::new().unwrap();
            let clock = Clock::start(1.0);
            for _ in 0..5 {
                // It rings while nobody waits: the runtime learns that the timer is readable, and nobody reads it.
                let _ = tokio::time::timeout(Duration::ZERO, alarm.sleep(Duration::from_millis(1))).await;
                tokio::time::sleep(Duration::from_millis(4)).await;
                let before = clock.now();
                alarm.sleep(Duration::from_millis(20)).await.unwrap();
                assert!(clock.now().since(before).ns() >= 20_000_000);
            }
        });
    }
}
