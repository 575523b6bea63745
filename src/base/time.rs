//! Time as whole nanoseconds since the start of the run.
//!
//! Rounding rule of the whole crate: seconds and milliseconds become nanoseconds by rounding to the nearest
//! (ties away from zero); the engine's cost model computes in femtoseconds and rounds up once per boundary.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A point in time: nanoseconds since the start of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub u64);

/// A length of time in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Dur(pub u64);

impl Time {
    /// The start of the run.
    pub const ZERO: Time = Time(0);
    /// Later than any event.
    pub const MAX: Time = Time(u64::MAX);

    /// Nanoseconds since the start.
    pub fn ns(self) -> u64 {
        self.0
    }

    /// Length from `earlier` to `self`, zero when `earlier` is later.
    pub fn since(self, earlier: Time) -> Dur {
        Dur(self.0.saturating_sub(earlier.0))
    }

    /// Seconds since the start, for display.
    pub fn as_secs_f64(self) -> f64 {
        Dur(self.0).as_secs_f64()
    }
}

impl Dur {
    /// No time.
    pub const ZERO: Dur = Dur(0);

    /// From seconds. `None` for NaN, infinite, negative, or more than about 584 years.
    pub fn from_secs_f64(seconds: f64) -> Option<Dur> {
        let ns = (seconds * 1e9).round();
        (ns >= 0.0 && ns < u64::MAX as f64).then_some(Dur(ns as u64))
    }

    /// From whole milliseconds.
    pub const fn from_millis(ms: u64) -> Dur {
        Dur(ms * 1_000_000)
    }

    /// From whole microseconds.
    pub const fn from_micros(us: u64) -> Dur {
        Dur(us * 1_000)
    }

    /// Nanoseconds.
    pub fn ns(self) -> u64 {
        self.0
    }

    /// Seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Milliseconds.
    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }
}

impl Add<Dur> for Time {
    type Output = Time;

    /// Saturates at [`Time::MAX`], which no event reaches.
    fn add(self, by: Dur) -> Time {
        Time(self.0.saturating_add(by.0))
    }
}

impl Sub<Time> for Time {
    type Output = Dur;

    /// Panics when `earlier` is later: a caller that may meet that uses [`Time::since`].
    fn sub(self, earlier: Time) -> Dur {
        Dur(self.0.checked_sub(earlier.0).expect("time runs forward"))
    }
}

impl Add for Dur {
    type Output = Dur;

    fn add(self, by: Dur) -> Dur {
        Dur(self.0.saturating_add(by.0))
    }
}

impl AddAssign for Dur {
    fn add_assign(&mut self, by: Dur) {
        *self = *self + by;
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6} s", self.as_secs_f64())
    }
}
