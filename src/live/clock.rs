//! Wall time as the run's [`Time`], and a wake that comes when it should.
//!
//! Anchored to one monotonic start, so nothing adds up. The async runtime's own timers have steps of a millisecond;
//! [`Alarm`] is a kernel timer with none where there is one (Linux).

use std::time::{Duration, Instant};

use crate::base::{Dur, Time};

#[cfg_attr(target_os = "linux", path = "alarm.rs")]
#[cfg_attr(not(target_os = "linux"), path = "alarm_coarse.rs")]
mod alarm;

pub use alarm::Alarm;

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

    /// The same clock, started so much of its own time later.
    pub fn later(self, by: Dur) -> Clock {
        Clock { start: self.start + self.wall(by), ..self }
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
