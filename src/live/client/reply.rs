//! [`Reply`]: an answer that is no stream, whole, as plain data, and what can be read from it without a socket.

use std::time::{Duration, SystemTime};

use bytes::Bytes;
use reqwest::header::HeaderMap;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::retry::http_date;
use super::words::error_message;
pub use crate::base::shortened;

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Headers, names in lower case.
    pub(super) headers: HeaderMap,
    /// Body, up to 8 MiB.
    pub body: Bytes,
    /// From the question to the end of the answer.
    pub took: Duration,
    /// When that was, by our calendar.
    pub(super) came: SystemTime,
}

impl Reply {
    /// Of a status, headers and a text, with no time in it.
    #[cfg(test)]
    pub fn new(status: u16, headers: &[(&str, &str)], body: &str) -> Reply {
        let pair = |(name, value): &(&str, &str)| {
            let name = reqwest::header::HeaderName::from_bytes(name.as_bytes()).unwrap();
            (name, reqwest::header::HeaderValue::from_str(value).unwrap())
        };
        let (headers, body) = (headers.iter().map(pair).collect(), Bytes::copy_from_slice(body.as_bytes()));
        Reply { status, headers, body, took: Duration::ZERO, came: SystemTime::UNIX_EPOCH }
    }

    /// Value of a header that is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// Status 200 to 299.
    pub fn is_ok(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The body as JSON.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// A 200 answer as one of the bodies of the API.
    pub fn read<T: DeserializeOwned>(&self) -> Option<T> {
        if self.status == 200 { serde_json::from_slice(&self.body).ok() } else { None }
    }

    /// The server's calendar less ours, seconds, by its `Date`; good to within half a second and half of `took`.
    pub fn clock_ahead_s(&self) -> Option<f64> {
        ahead(self.header("date")?, self.came, self.took)
    }

    /// Status and the server's own words, on one line and not long.
    pub fn refusal(&self) -> String {
        const LONGEST: usize = 160;
        let line = shortened(&error_message(&self.body), LONGEST);
        if line.is_empty() { self.status.to_string() } else { format!("{}: {line}", self.status) }
    }
}

/// Of a `Date` whose answer came at `now`, after `took`. A date is cut to whole seconds.
fn ahead(date: &str, now: SystemTime, took: Duration) -> Option<f64> {
    let theirs = http_date(date)? as f64 + 0.5;
    let ours = now.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs_f64() - took.as_secs_f64() / 2.0;
    Some(theirs - ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_the_status_and_the_servers_words() {
        let refusal = |body: &str| Reply::new(503, &[], body).refusal();
        assert_eq!(refusal("{\"error\":{\"message\":\"no room\"}}"), "503: no room");
        assert_eq!(refusal("{\"detail\":\"Not Found\"}"), "503: Not Found");
        assert_eq!(refusal("<html>\n  gone</html>"), "503: <html> gone</html>");
        assert_eq!(refusal(""), "503");
        assert!(refusal(&"x".repeat(10_000)).len() < 200);
    }

    #[test]
    fn the_clock_of_a_server_is_read_from_its_date() {
        let (date, at) = ("Sun, 06 Nov 1994 08:49:37 GMT", SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777));
        assert_eq!(ahead(date, at, Duration::ZERO), Some(0.5));
        assert_eq!(ahead(date, at + Duration::from_secs(40), Duration::from_secs(1)), Some(-39.0));
        assert_eq!(ahead("today", at, Duration::ZERO), None);
    }

    #[test]
    fn headers_are_found_however_they_are_written() {
        let reply = Reply::new(200, &[("x-smg-error-code", "a")], "[1]");
        assert_eq!((reply.header("X-Smg-Error-Code"), reply.header("other")), (Some("a"), None));
        assert_eq!(reply.read::<Vec<u8>>(), Some(vec![1]));
        assert_eq!(Reply::new(404, &[], "[1]").read::<Vec<u8>>(), None);
    }
}
