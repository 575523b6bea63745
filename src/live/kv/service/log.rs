//! [`Log`]: where lines for people go; [`Allowance`]: how many of them.

use std::fmt;
use std::sync::Arc;

use crate::base::{Dur, Time};
use crate::kv::directory::StreamKey;
use crate::kv::sync::Change;

/// Time in which room for another line comes back.
const REFILL: Dur = Dur::from_millis(2_000);

/// Takes lines for people, without a line feed, and changes of streams as they are; it must not wait long.
#[derive(Clone)]
pub struct Log {
    line: Arc<dyn Fn(String) + Send + Sync>,
    change: Option<Arc<OnChange>>,
}

type OnChange = dyn Fn(&StreamKey, &Change) + Send + Sync;

impl Log {
    /// `write` gets the lines.
    pub fn new(write: impl Fn(String) + Send + Sync + 'static) -> Log {
        Log { line: Arc::new(write), change: None }
    }

    /// Beside the lines, `take` gets every change of a stream: also those that are no news to a reader of lines.
    pub fn with_changes(self, take: impl Fn(&StreamKey, &Change) + Send + Sync + 'static) -> Log {
        Log { change: Some(Arc::new(take)), ..self }
    }

    /// Nobody reads them.
    pub fn silent() -> Log {
        Log::new(|_| {})
    }

    /// Tells a line.
    pub(super) fn line(&self, line: String) {
        (self.line)(line);
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
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
    /// The last line, as long as it is not told: what a reader was told last is not how things are.
    owed: Option<String>,
}

impl Allowance {
    /// `burst` lines may be told at once.
    pub fn new(log: Log, burst: u32, now: Time) -> Allowance {
        Allowance { log, burst, left: burst, since: now, untold: 0, owed: None }
    }

    /// Tells a change of a stream, and a line of it when it is news.
    pub fn change(&mut self, key: &StreamKey, change: &Change) {
        if let Some(take) = &self.log.change {
            take(key, change);
        }
        if !change.again {
            self.line(change.at, format!("stream {}/{}: {change}", key.instance, key.dp_rank));
        }
    }

    /// Tells a line, or owes it; the next one told says how many were not.
    pub fn line(&mut self, now: Time, line: impl fmt::Display) {
        self.untold += u64::from(self.owed.is_some());
        self.owed = Some(line.to_string());
        self.pay(now);
    }

    /// Tells the line that is owed, once there is room for it.
    pub fn pay(&mut self, now: Time) {
        let refills = now.since(self.since).ns() / REFILL.ns();
        self.since = self.since + Dur(refills * REFILL.ns());
        self.left = self.burst.min(self.left.saturating_add(u32::try_from(refills).unwrap_or(self.burst)));
        if self.left == 0 {
            return;
        }
        let Some(line) = self.owed.take() else { return };
        self.left -= 1;
        let untold = std::mem::take(&mut self.untold);
        let more = if untold == 0 { String::new() } else { format!(" ({untold} lines before it were left out)") };
        self.log.line(format!("{line}{more}"));
    }

    /// When there will be room for the line that is owed.
    pub fn due(&self) -> Option<Time> {
        self.owed.as_ref().map(|_| self.since + REFILL)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::kv::sync::{SyncReason, SyncState};

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
        assert_eq!(allowance.due(), None);
        allowance.line(at(2_002), "again");
        assert_eq!(told.lock().unwrap().len(), 9);
        (0..20).for_each(|n| allowance.line(at(1_000_000), n));
        assert_eq!(told.lock().unwrap().len(), 17, "room does not grow without bound");
    }

    #[test]
    fn the_last_line_is_told_though_nothing_is_said_after_it() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&told);
        let at = |ms: u64| Time::ZERO + Dur::from_millis(ms);
        let mut allowance = Allowance::new(Log::new(move |line| into.lock().unwrap().push(line)), 2, at(0));
        (0..7).for_each(|n| allowance.line(at(n), n));
        allowance.pay(at(1_999));
        assert_eq!(*told.lock().unwrap(), ["0", "1"]);
        let due = allowance.due();
        assert_eq!(due, Some(at(2_000)));
        due.into_iter().for_each(|due| allowance.pay(due));
        assert_eq!(told.lock().unwrap()[2..], ["6 (4 lines before it were left out)"]);
        allowance.pay(at(9_000));
        assert_eq!((told.lock().unwrap().len(), allowance.due()), (3, None), "once");
    }

    #[test]
    fn changes_are_handed_on_also_when_no_line_is_written_of_them() {
        let (lines, changes) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
        let (to_lines, to_changes) = (Arc::clone(&lines), Arc::clone(&changes));
        let log = Log::new(move |line| to_lines.lock().unwrap().push(line))
            .with_changes(move |key, change| to_changes.lock().unwrap().push((key.clone(), change.clone())));
        let mut allowance = Allowance::new(log, 8, Time::ZERO);
        let key = StreamKey { instance: "p".into(), dp_rank: 1 };
        let change = Change {
            at: Time::ZERO,
            from: SyncState::Disconnected,
            to: SyncState::Unsynced,
            reason: SyncReason::Connected,
            sequence: None,
            detail: String::new(),
            again: false,
        };
        allowance.change(&key, &change);
        allowance.change(&key, &Change { again: true, ..change });
        assert_eq!(changes.lock().unwrap().len(), 2);
        let lines = lines.lock().unwrap();
        assert!(
            lines.len() == 1 && lines[0].starts_with("stream p/1: disconnected -> unsynced (connected)"),
            "{lines:?}"
        );
    }
}
