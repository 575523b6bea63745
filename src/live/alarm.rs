//! [`Alarm`] on Linux: a timer of the kernel, without the steps of a millisecond that the runtime's own have.

use std::io;
use std::time::Duration;

use rustix::fd::OwnedFd;
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

    /// Waits so long; at once for zero. Cancel-safe: the next call sets the timer anew.
    pub async fn sleep(&self, length: Duration) -> io::Result<()> {
        if length.is_zero() {
            return Ok(());
        }
        let value = Timespec { tv_sec: length.as_secs() as i64, tv_nsec: i64::from(length.subsec_nanos()) };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        let mut ready = self.timer.readable().await?;
        ready.clear_ready();
        let mut expirations = [0; 8];
        // Whether it was read or a later setting emptied it: the wait is over.
        let _ = rustix::io::read(self.timer.get_ref(), &mut expirations);
        Ok(())
    }
}
