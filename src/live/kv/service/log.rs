//! [`Log`]: where lines for people go; [`Allowance`]: how many of them.

use std::fmt;
use std::sync::Arc;

use crate::base::{Dur, Time};
use crate::kv::index::StreamSpec;
use crate::kv::sync::Change;

/// Time in which room for another line comes back.
const REFILL: Dur = Dur::from_millis(2_000);

/// Takes lines for people, without a line feed; it must not wait long.
#[derive(Clone)]
pub struct Log(Arc<dyn Fn(String) + Send + Sync>);

impl Log {
    /// `write` gets the lines.
    pub fn new(write: impl Fn(String) + Send + Sync + 'static) -> Log {
        Log(Arc::new(write))
    }

    /// Nobody reads them.
    pub fn silent() -> Log {
        Log::new(|_| {})
    }

    /// Tells a line.
    pub(super) fn line(&self, line: String) {
        (self.0)(line);
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
    }
}

/// Is told of each change of a stream, on that stream's thread; it must not wait long.
#[derive(Clone)]
pub struct Changes(Arc<dyn Fn(&StreamSpec, &Change) + Send + Sync>);

impl Changes {
    /// `tell` gets them.
    pub fn new(tell: impl Fn(&StreamSpec, &Change) + Send + Sync + 'static) -> Changes {
        Changes(Arc::new(tell))
    }

    /// Nobody wants them.
    pub fn untold() -> Changes {
        Changes::new(|_, _| {})
    }

    pub(super) fn tell(&self, spec: &StreamSpec, change: &Change) {
        (self.0)(spec, change);
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Changes")
    }
}

/// A log of which one speaker may use so much: whoever changes its mind all the time is not told each time.
#[derive(Debug)]
pub(super) struct Allowance {
    log: Log,
    burst: u32,
    left: u32,
    since: Time,
    untold: u64,
}

impl Allowance {
    /// `burst` lines may be told at once.
    pub fn new(log: Log, burst: u32, now: Time) -> Allowance {
        Allowance { log, burst, left: burst, since: now, untold: 0 }
    }

    /// Tells a line, or counts it; the next one told says how many were not.
    pub fn line(&mut self, now: Time, line: impl fmt::Display) {
        let refills = now.since(self.since).ns() / REFILL.ns();
        self.since = self.since + Dur(refills * REFILL.ns());
        self.left = self.burst.min(self.left.saturating_add(u32::try_from(refills).unwrap_or(self.burst)));
        if self.left == 0 {
            self.untold += 1;
            return;
        }
        self.left -= 1;
        let untold = std::mem::take(&mut self.untold);
        let more = if untold == 0 { String::new() } else { format!(" ({untold} lines before it were left out)") };
        self.log.line(format!("{line}{more}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn who_says_too_much_is_told_in_part_and_that_is_said() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&told);
        let at = |ms: u64| Time::ZERO + Dur::from_millis(ms);
        let mut allowance = Allowance::new(Log::new(move |line| into.lock().unwrap().push(line)), 8, at(0));
        (0..20).for_each(|n| allowance.line(at(n), n));
        assert_eq!(told.lock().unwrap().len(), 8);
        allowance.line(at(2_001), "later");
        assert_eq!(told.lock().unwrap()[8], "later (12 lines before it were left out)");
        allowance.line(at(2_002), "again");
        assert_eq!(told.lock().unwrap().len(), 9);
        (0..20).for_each(|n| allowance.line(at(1_000_000), n));
        assert_eq!(told.lock().unwrap().len(), 17, "room does not grow without bound");
    }
}
