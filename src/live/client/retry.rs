//! `Retry-After`: seconds, or an HTTP date against this machine's calendar; such dates and that calendar.

use std::time::{Duration, SystemTime};

/// The wait a server asks for; `None` where it names none that can be read.
pub(super) fn retry_after(text: &str) -> Option<Duration> {
    wait(text, calendar())
}

/// This machine's calendar now.
#[expect(clippy::disallowed_methods, reason = "an HTTP date is a point of the calendar, which the run's clock is not")]
pub(super) fn calendar() -> SystemTime {
    SystemTime::now()
}

fn wait(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    Some(match text.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        // More than can be counted is longer than anybody waits.
        Err(_) if is_number => Duration::MAX,
        Err(_) => {
            let at = SystemTime::UNIX_EPOCH + Duration::from_secs(http_date(text)?);
            at.duration_since(now).unwrap_or(Duration::ZERO)
        }
    })
}

/// Seconds since 1970 of `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, the one form that is not obsolete).
pub(super) fn http_date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (_, date) = text.split_once(", ")?;
    let parts: Vec<&str> = date.split(' ').collect();
    let [day, month, year, time, "GMT"] = parts[..] else { return None };
    let day: u64 = day.parse().ok().filter(|day| (1..=31).contains(day))?;
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let year: u64 = year.parse().ok().filter(|year| (1970..=9999).contains(year))?;
    let clock: Vec<u64> = time.split(':').map(str::parse).collect::<Result<_, _>>().ok()?;
    let [hour, minute, second] = clock[..] else { return None };
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days since 0000-03-01, a year that begins in March: leap days come last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    Some((days - 719_468) * 86_400 + hour * 3600 + minute * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_read_and_nonsense_is_not() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let cases = [
            ("1", Some(1)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:49:39 GMT", Some(2)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("banana", None),
            ("", None),
            ("-5", None),
            ("1.5", None),
            ("999999999999", Some(999_999_999_999)),
            ("Sun, 06 Nov 1994 10:49:37 GMT", Some(7200)),
            ("Sun, 32 Nov 1994 08:49:39 GMT", None),
            ("Sun, 06 Nov 1994 08:49:39 UTC", None),
        ];
        assert_eq!(wait("99999999999999999999999", now), Some(Duration::MAX), "no less than a long wait");
        for (text, seconds) in cases {
            assert_eq!(wait(text, now), seconds.map(Duration::from_secs), "{text:?}");
        }
    }

    #[test]
    fn dates_are_those_of_the_calendar() {
        assert_eq!(http_date("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(http_date("Tue, 29 Feb 2000 12:00:00 GMT"), Some(951_825_600));
        assert_eq!(http_date("Tue, 01 Dec 2026 02:02:11 GMT"), Some(1_796_090_531));
    }
}
