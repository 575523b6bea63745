//! What a broken exchange is to the run: its class, its words, and whether it may be sent again.
//!
//! The same words whichever client it was that failed.

use std::error::Error as _;
use std::io;
use std::time::Duration;

use reqwest::Url;

use super::broken::{authority, io_kind, is_loopback, root_cause, silence_hint, tls_words};
use super::response::Trouble;
use super::wire::Broken;
use crate::protocol::ErrorClass;

/// Words of a connection that nobody took.
pub(in crate::live) const REFUSED: &str = "connection refused";
/// First words of an exchange whose connection ended.
pub(in crate::live) const CLOSED: &str = "connection closed";
/// Words of a connection that ended before the head of an answer.
pub(super) const UNANSWERED: &str = "connection closed before message completed";
/// Words of the general client for a peer whose bytes come before a request.
const UNASKED: &str = "received unexpected message from connection";
/// Words of what may be another protocol.
const NO_HTTP: &str = "invalid HTTP";
/// Words of the general client for answers that break the rules; it has no kinds for them.
const RULES: [&str; 6] = [
    NO_HTTP,
    "message head is too large",
    "invalid content-length",
    "unexpected transfer-encoding",
    "nvalid chunk",
    "over limit",
];

/// Where an exchange broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Before the head of the answer.
    Sending,
    /// After it.
    Reading,
}

/// What broke.
enum Breach {
    ConnectTimeout,
    NoConnection {
        is_refused: bool,
    },
    /// What came is no answer.
    Rules,
    Exchange,
}

impl Trouble {
    /// Class and words.
    pub fn fault(&self, stage: Stage, proxy: Option<&str>, connect: Duration) -> (ErrorClass, String) {
        let url = self.url();
        let host = url.and_then(authority).unwrap_or_else(|| "the target".into());
        let proxy = proxy.filter(|_| !url.is_some_and(is_loopback));
        let through = proxy.map_or(String::new(), |proxy| format!(" through the proxy {proxy} (live.proxy)"));
        let (breach, cause) = (self.breach(), self.cause());
        match (breach, proxy) {
            (Breach::ConnectTimeout, _) => {
                let hint = url.map_or("", |url| silence_hint(url.as_str()));
                let message = format!("no connection to {host}{through} within {connect:?}{hint}");
                (ErrorClass::ConnectTimeout, message)
            }
            (Breach::NoConnection { is_refused: true }, Some(proxy)) => {
                let message = format!("the proxy {proxy} takes no connection; start it, or correct live.proxy");
                (ErrorClass::WorkerLost, message)
            }
            (Breach::NoConnection { is_refused: true }, None) => {
                (ErrorClass::WorkerLost, format!("{REFUSED} by {host}"))
            }
            (Breach::NoConnection { is_refused: false }, _) => {
                (ErrorClass::WorkerLost, format!("cannot connect to {host}{through}: {cause}"))
            }
            (Breach::Rules, _) if cause.contains(NO_HTTP) && url.is_some_and(|url| url.scheme() == "http") => {
                let message = format!("the answer of {host} is no HTTP ({cause}); if it speaks TLS, write https://");
                (ErrorClass::BadAnswer, message)
            }
            (Breach::Rules, _) => {
                (ErrorClass::BadAnswer, format!("the answer of {host} breaks the rules of HTTP ({cause})"))
            }
            (Breach::Exchange, _) => {
                let words = match stage {
                    Stage::Sending => "before the answer",
                    Stage::Reading => "in the middle of the answer",
                };
                (ErrorClass::ConnectionClosed, format!("{CLOSED} {words} of {host} ({cause})"))
            }
        }
    }

    /// The connection surely carried the request and closed without a byte of an answer.
    pub fn is_closed_unanswered(&self) -> bool {
        let closed = |kind| {
            matches!(kind, io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe | io::ErrorKind::UnexpectedEof)
        };
        match self {
            Trouble::Plain(Broken::Closed { cause, unanswered }, _) => *unanswered && closed(cause.kind()),
            Trouble::Plain(Broken::ConnectTimeout | Broken::NoConnection(_) | Broken::Unreadable(_), _) => false,
            Trouble::General(error) => {
                let incomplete = root_cause(error).contains(UNANSWERED);
                !error.is_connect() && (incomplete || io_kind(error).is_some_and(closed))
            }
        }
    }

    fn url(&self) -> Option<&Url> {
        match self {
            Trouble::Plain(_, site) => Some(&site.url),
            Trouble::General(error) => error.url(),
        }
    }

    fn breach(&self) -> Breach {
        let refused = |kind| kind == Some(io::ErrorKind::ConnectionRefused);
        match self {
            Trouble::Plain(Broken::ConnectTimeout, _) => Breach::ConnectTimeout,
            Trouble::Plain(Broken::NoConnection(error), _) => {
                Breach::NoConnection { is_refused: refused(io_kind(&**error)) }
            }
            Trouble::Plain(Broken::Unreadable(_), _) => Breach::Rules,
            Trouble::Plain(Broken::Closed { .. }, _) => Breach::Exchange,
            Trouble::General(error) if error.is_connect() && error.is_timeout() => Breach::ConnectTimeout,
            Trouble::General(error) if error.is_connect() || error.is_dns() => {
                Breach::NoConnection { is_refused: refused(io_kind(error)) }
            }
            Trouble::General(error) => {
                let cause = root_cause(error);
                if RULES.iter().any(|words| cause.contains(words)) { Breach::Rules } else { Breach::Exchange }
            }
        }
    }

    fn cause(&self) -> String {
        match self {
            Trouble::Plain(Broken::ConnectTimeout, _) => String::new(),
            Trouble::Plain(Broken::NoConnection(error), _) => root_cause(&**error),
            Trouble::Plain(Broken::Unreadable(words), _) => (*words).to_owned(),
            Trouble::Plain(Broken::Closed { cause, .. }, _) => root_cause(cause),
            Trouble::General(error) if error.source().is_none() => "no cause given".to_owned(),
            Trouble::General(error) => tls_words(error).unwrap_or_else(|| {
                let cause = root_cause(error);
                if cause == UNASKED { "it spoke before it was asked: is it an HTTP server?".into() } else { cause }
            }),
        }
    }
}
