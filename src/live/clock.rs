//! Wall time as the run's [`Time`], and a wake that comes when it should.
//!
//! Anchored to one monotonic start, so nothing adds up. The async runtime's own timers have steps of a millisecond;
//! [`Alarm`] is a kernel timer with none.

use std::io;
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::base::{Dur, Time};

/// Monotonic time since a start, `speed` times as fast as the wall's.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    speed: f64,
}

impl Clock {
    /// Starts now. `speed` is above 0; 1 is real time.
    #[expect(clippy::disallowed_methods, reason = "the live driver's one look at the clock")]
    pub fn start(speed: f64) -> Clock {
        Clock { start: Instant::now(), speed }
    }

    /// How many times faster than the wall's.
    pub fn speed(&self) -> f64 {
        self.speed
    }

    /// Starts after a while; until then it stands at 0.
    #[expect(clippy::disallowed_methods, reason = "the live driver's one look at the clock")]
    pub fn start_in(wait: Duration, speed: f64) -> Clock {
        Clock { start: Instant::now() + wait, speed }
    }

    /// Wall time until it starts; zero when it has.
    #[expect(clippy::disallowed_methods, reason = "the live driver's one look at the clock")]
    pub fn until_start(&self) -> Duration {
        self.start.saturating_duration_since(Instant::now())
    }

    /// Time of the run now.
    pub fn now(&self) -> Time {
        let ns = self.start.elapsed().as_nanos();
        if self.speed == 1.0 { Time(ns as u64) } else { Time((ns as f64 * self.speed) as u64) }
    }

    /// Wall time that a length of the run takes.
    pub fn wall(&self, length: Dur) -> Duration {
        Duration::from_nanos((length.ns() as f64 / self.speed) as u64)
    }

    /// Length of the run that passes in this much wall time.
    pub fn of_wall(&self, length: Duration) -> Dur {
        Dur((length.as_nanos() as f64 * self.speed) as u64)
    }

    /// Wall time from now until `at`; zero when it has passed.
    pub fn until(&self, at: Time) -> Duration {
        self.wall(at.since(self.now()))
    }
}

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
