//! [`Reply`]: what a question to a server brought, whole, as plain data.
//!
//! The questions are [`super::look`]'s, what the answers mean is read from them without a socket.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::live::client;

/// An answer, or why there was none.
pub type Looked = Result<Reply, String>;

/// An answer, whole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
    /// From the question to the end of the answer.
    pub took: Duration,
}

impl Reply {
    /// Of a status, headers and a text, with no time in it.
    #[cfg(test)]
    pub fn new(status: u16, headers: &[(&str, &str)], body: &str) -> Reply {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Reply { status, headers, body: body.into(), ..Reply::default() }
    }

    /// An answer as the client got it.
    pub(super) fn of(reply: &client::Reply, took: Duration) -> Reply {
        let headers = reply.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Reply { status: reply.status, headers, body: reply.body.to_vec(), took }
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
        let line: String = client::error_message(&self.body).chars().take(LONGEST).collect();
        if line.is_empty() { self.status.to_string() } else { format!("{}: {line}", self.status) }
    }
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
    fn headers_are_found_however_they_are_written() {
        let reply = Reply::new(200, &[("x-smg-error-code", "a")], "[1]");
        assert_eq!((reply.header("X-Smg-Error-Code"), reply.header("other")), (Some("a"), None));
        assert_eq!(reply.read::<Vec<u8>>(), Some(vec![1]));
        assert_eq!(Reply::new(404, &[], "[1]").read::<Vec<u8>>(), None);
    }
}
