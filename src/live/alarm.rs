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

use crate::base::Time;
use crate::live::clock::Clock;

/// A wake at a point of the run, exact to the kernel's timers.
#[derive(Debug)]
pub struct Alarm {
    timer: AsyncFd<OwnedFd>,
    /// What it is set to, if it has not rung since.
    set: Option<Time>,
}

impl Alarm {
    /// A timer of the kernel; needs a running runtime.
    #[expect(
        deprecated,
        reason = "its successor is unsafe; an OwnedFd stays open and the same for as long as this lives"
    )]
    pub fn new() -> io::Result<Alarm> {
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        Ok(Alarm { timer: AsyncFd::with_interest(timer, Interest::READABLE)?, set: None })
    }

    /// Waits until the clock of the run says so, never shorter; not at all when it does. Cancel-safe: a wait for another
    /// time sets the timer anew, one for the same time goes on.
    pub async fn wait_until(&mut self, clock: &Clock, at: Time) -> io::Result<()> {
        let length = clock.until(at);
        if length.is_zero() {
            return Ok(());
        }
        if self.set != Some(at) {
            self.set_to(length)?;
            self.set = Some(at);
        }
        self.ring().await
    }

    /// Waits so long and never shorter; at once for zero. Cancel-safe: the next wait sets the timer anew.
    pub async fn sleep(&mut self, length: Duration) -> io::Result<()> {
        if length.is_zero() {
            return Ok(());
        }
        self.set_to(length)?;
        self.ring().await
    }

    fn set_to(&mut self, length: Duration) -> io::Result<()> {
        let value = Timespec { tv_sec: length.as_secs() as i64, tv_nsec: i64::from(length.subsec_nanos()) };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        self.set = None;
        timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }

    async fn ring(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.timer.readable().await?;
            let mut expirations = [0; 8];
            match rustix::io::read(self.timer.get_ref(), &mut expirations) {
                Ok(_) => {
                    self.set = None;
                    return Ok(());
                }
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
    use crate::base::Dur;

    #[test]
    fn a_wait_that_was_given_up_after_its_end_wakes_no_later_one_early() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut alarm = Alarm::new().unwrap();
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

    #[test]
    fn a_wait_that_was_given_up_goes_on_or_gives_way_to_another() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut alarm = Alarm::new().unwrap();
            let clock = Clock::start(2.0);
            let ms = |ms| Time::ZERO + Dur::from_millis(ms);
            for at in [ms(40), ms(90), ms(60), ms(120)] {
                // Given up before it rings, and twice for the same time.
                for _ in 0..2 {
                    let _ = tokio::time::timeout(Duration::from_millis(1), alarm.wait_until(&clock, at)).await;
                }
                alarm.wait_until(&clock, at).await.unwrap();
                assert!(clock.now() >= at, "{:?} is before {at:?}", clock.now());
            }
            // It rings while nobody waits.
            let at = clock.now() + Dur::from_millis(20);
            let _ = tokio::time::timeout(Duration::from_millis(1), alarm.wait_until(&clock, at)).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
            alarm.wait_until(&clock, at).await.unwrap();
            let later = clock.now() + Dur::from_millis(30);
            alarm.wait_until(&clock, later).await.unwrap();
            assert!(clock.now() >= later);
        });
    }
}
