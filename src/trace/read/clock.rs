//! The unit of a file's timestamps: decided once per file, said in a notice, never guessed per row.
//!
//! A flag wins over the header, the header over the format's rule (native seconds, Mooncake milliseconds). Only values
//! that no other unit explains (wall-clock epochs) move the choice by themselves; doubt is said, not acted upon.

use std::str::FromStr;

use crate::trace::Notice;

use super::Format;
use super::line::RawRow;

/// Unit of `timestamp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Millis,
    /// Microseconds.
    Micros,
    /// Nanoseconds.
    Nanos,
}

impl TimeUnit {
    /// Every unit, the longest first.
    pub const ALL: [TimeUnit; 4] = [TimeUnit::Seconds, TimeUnit::Millis, TimeUnit::Micros, TimeUnit::Nanos];

    /// Label: `s`, `ms`, `us` or `ns`.
    pub fn as_str(self) -> &'static str {
        match self {
            TimeUnit::Seconds => "s",
            TimeUnit::Millis => "ms",
            TimeUnit::Micros => "us",
            TimeUnit::Nanos => "ns",
        }
    }

    /// Power of ten that makes nanoseconds of it.
    pub(super) fn power(self) -> i32 {
        match self {
            TimeUnit::Seconds => 9,
            TimeUnit::Millis => 6,
            TimeUnit::Micros => 3,
            TimeUnit::Nanos => 0,
        }
    }
}

impl FromStr for TimeUnit {
    type Err = String;

    fn from_str(text: &str) -> Result<TimeUnit, String> {
        let found = TimeUnit::ALL.into_iter().find(|unit| unit.as_str() == text);
        found.ok_or_else(|| format!("`{text}` is not a unit of time; write s, ms, us or ns"))
    }
}

/// Epoch seconds of 2001-09-09 and 2100-01-01: wall clocks lie between.
const EPOCH: (f64, f64) = (1.0e9, 4.1e9);
/// Whole numbers that mean longer steps than this, seconds, are more likely milliseconds.
const DOUBTFUL_GAP_S: f64 = 60.0;
/// A trace longer than this, seconds, is more likely in another unit.
const DOUBTFUL_SPAN_S: f64 = 2.0 * 86_400.0;

/// What the header and the caller say.
#[derive(Debug, Clone, Copy)]
pub(super) struct Said {
    pub(super) flag: Option<TimeUnit>,
    pub(super) header: Option<TimeUnit>,
    pub(super) format: Format,
}

/// Decides the unit and says so. Rows without any timestamp decide nothing.
pub(super) fn decide(rows: &[RawRow<'_>], said: Said, notices: &mut Vec<Notice>) -> TimeUnit {
    let by_format = match said.format {
        Format::Native => (TimeUnit::Seconds, "the rule of native traces"),
        Format::Mooncake => (TimeUnit::Millis, "the rule of mooncake traces"),
    };
    let times = || rows.iter().filter_map(|row| row.timestamp).map(|time| time.approximate());
    let (count, low, high) =
        times().fold((0u64, f64::INFINITY, 0f64), |(n, low, high), at| (n + 1, low.min(at), high.max(at)));
    let epoch = TimeUnit::ALL.into_iter().skip(1).find(|unit| {
        let per_second = 10f64.powi(9 - unit.power());
        low >= EPOCH.0 * per_second && high <= EPOCH.1 * per_second
    });
    let by_epoch = epoch.map(|unit| (unit, "the values are wall-clock times in this unit"));
    let (unit, why) = match (said.flag, said.header) {
        (Some(unit), _) => (unit, "asked for"),
        (None, Some(unit)) => (unit, "the header says so"),
        (None, None) => by_epoch.unwrap_or(by_format),
    };
    if count == 0 {
        return unit;
    }
    if let (Some(flag), Some(header)) = (said.flag, said.header)
        && flag != header
    {
        let text =
            format!("timestamps are read as {} as asked for, against the header's {}", flag.as_str(), header.as_str());
        notices.push(Notice { code: "header-overridden", text });
    }
    let per_second = 10f64.powi(9 - unit.power());
    let span = (high - low) / per_second;
    let gap = if count > 1 { span / (count - 1) as f64 } else { 0.0 };
    let text =
        format!("timestamps are {} ({why}): span {} s, mean arrival gap {} s", unit.as_str(), shown(span), shown(gap));
    notices.push(Notice { code: "timestamp-unit", text });
    let whole = rows.iter().all(|row| row.timestamp.is_none() || row.whole);
    let guessed = said.flag.is_none() && said.header.is_none() && by_epoch.is_none();
    let implausible = span > DOUBTFUL_SPAN_S || (whole && gap > DOUBTFUL_GAP_S);
    if guessed && unit == TimeUnit::Seconds && implausible {
        let text = format!(
            "a span of {} s is long: if the timestamps are milliseconds (span {} s), pass `--timestamp-unit ms`",
            shown(span),
            shown(span / 1e3)
        );
        notices.push(Notice { code: "timestamp-unit-doubtful", text });
    }
    unit
}

/// Three digits after the point at most, none that say nothing.
fn shown(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
