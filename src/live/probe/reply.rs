//! [`Reply`]: what a question to a server brought, whole, as plain data.
//!
//! The questions are [`super::look()`]'s, what the answers mean is read from them without a socket.

use std::time::{Duration, SystemTime};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::live::client;

/// An answer, or why there was none.
pub type Looked = Result<Reply, String>;

/// An answer, whole.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
    /// From the question to the end of the answer.
    pub took: Duration,
    /// The server's calendar less ours, seconds, by its `Date`; good to within half a second and half of `took`.
    pub clock_ahead_s: Option<f64>,
}

impl Reply {
    /// Of a status, headers and a text, with no time in it.
    #[cfg(test)]
    pub fn new(status: u16, headers: &[(&str, &str)], body: &str) -> Reply {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Reply { status, headers, body: body.into(), ..Reply::default() }
    }

    /// An answer as the client got it.
    pub(super) fn of(reply: &client::Reply, took: Duration, now: SystemTime) -> Reply {
        let headers = reply.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let clock_ahead_s = reply.header("date").and_then(|date| ahead(date, now, took));
        Reply { status: reply.status, headers, body: reply.body.to_vec(), took, clock_ahead_s }
    }

    /// Value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// A 200 answer as one of the bodies of the API.
    pub fn read<T: DeserializeOwned>(&self) -> Option<T> {
        if self.status == 200 { serde_json::from_slice(&self.body).ok() } else { None }
    }

    /// Status and the server's own words, on one line and not long.
    pub fn refusal(&self) -> String {
        const LONGEST: usize = 160;
        let line = shortened(&client::error_message(&self.body), LONGEST);
        if line.is_empty() { self.status.to_string() } else { format!("{}: {line}", self.status) }
    }
}

/// Of a `Date` whose answer came at `now`, after `took`. A date is cut to whole seconds.
fn ahead(date: &str, now: SystemTime, took: Duration) -> Option<f64> {
    let theirs = client::http_date(date)? as f64 + 0.5;
    let ours = now.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs_f64() - took.as_secs_f64() / 2.0;
    Some(theirs - ours)
}

/// A text of at most so many characters, cut between two words.
pub fn shortened(text: &str, most: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(most) else { return text.to_owned() };
    let at = |nth: usize| text.char_indices().nth(nth).map_or(end, |(at, _)| at);
    let space = text[..at(most.saturating_sub(1))].rfind(' ').filter(|at| *at > 0);
    let whole = space.unwrap_or_else(|| at(most.saturating_sub(2)));
    format!("{} …", text[..whole].trim_end_matches([' ', ',', ';', ':']))
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
        assert_eq!(shortened("one two, three", 10), "one two …");
        assert_eq!((shortened("one two", 7).as_str(), shortened("éééééé", 4).as_str()), ("one two", "éé …"));
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
