//! What a failure is, from its words: the engine's or router's first, then the HTTP status.
//!
//! The texts are those of SGLang 0.5.10 to 0.5.23, its routers, vLLM, and the emulated nodes. Owns no transport errors.

use serde_json::Value;

use crate::protocol::ErrorClass;

/// Longest message kept, bytes.
const MOST_WORDS: usize = 600;

/// P's word that D has died: told by the leg of P, but no fault of its own.
const D_DIED: &str = "decode instance could be dead, its connection was closed";

/// A hand-off of KV that failed, whichever leg tells it.
const TRANSFERS: [&str; 4] =
    ["decode handshake failed", "decode transfer failed", "prefill transfer failed", "kvtransfererror"];

/// A fragment of a message and the class it stands for. The first that fits decides, so the more telling come first.
const TEXTS: &[(&str, ErrorClass)] = &[
    (D_DIED, ErrorClass::WorkerLost),
    ("exceeds the maximum number of tokens", ErrorClass::ContextLimit),
    ("maximum context length", ErrorClass::ContextLimit),
    ("model's context length", ErrorClass::ContextLimit),
    ("context_length_exceeded", ErrorClass::ContextLimit),
    ("longer than the maximum model length", ErrorClass::ContextLimit),
    ("exceeds the maximum allowed length", ErrorClass::ContextLimit),
    ("prefill server error", ErrorClass::PrefillFailed),
    ("prefill failed", ErrorClass::PrefillFailed),
    ("prefill_", ErrorClass::PrefillFailed),
    ("session_not_found", ErrorClass::SessionNotFound),
    ("invalid request session id", ErrorClass::SessionNotFound),
    ("close was requested for session", ErrorClass::SessionNotFound),
    ("session already has an active request", ErrorClass::SessionBusy),
    ("appending to a request that hasn't finished", ErrorClass::SessionBusy),
    ("no_available_workers", ErrorClass::NoWorker),
    ("server_selection_failed", ErrorClass::NoWorker),
    ("no available workers", ErrorClass::NoWorker),
    ("failed to select a", ErrorClass::NoWorker),
    ("overload_protection", ErrorClass::Overloaded),
    ("connection refused", ErrorClass::WorkerLost),
    ("died with the request inside", ErrorClass::WorkerLost),
];
/// What our router says of a server it has no answer of; a status alone (503) is the server's own.
const UNANSWERED: [&str; 2] = ["cannot be reached", "was lost"];

/// The class of a failure with these words (message, type and code, as far as there are any) and status.
pub(super) fn class_of(words: &str, status: Option<u16>) -> ErrorClass {
    let words = words.to_ascii_lowercase();
    let has = |text: &str| words.contains(text);
    // Before the words of whoever passes them on.
    if has("prefill bootstrap failed") {
        return ErrorClass::PrefillFailed;
    }
    let is_transfer = TRANSFERS.into_iter().any(has);
    if is_transfer && !has(D_DIED) {
        let waited = ["timeout", "timed out", "could be dead"].into_iter().any(has);
        return if waited { ErrorClass::KvTransferTimeout } else { ErrorClass::KvTransferFailed };
    }
    if let Some(&(_, class)) = TEXTS.iter().find(|(text, _)| has(text)) {
        return class;
    }
    if has(" server http") && UNANSWERED.into_iter().any(has) {
        return ErrorClass::WorkerLost;
    }
    if has("session id") && has("does not exist") {
        return ErrorClass::SessionNotFound;
    }
    of_status(status)
}

/// The class of a refusal that says nothing known. An engine that gives no status at all has given up by itself.
fn of_status(status: Option<u16>) -> ErrorClass {
    match status {
        Some(401 | 403) => ErrorClass::Unauthorized,
        Some(429 | 503) => ErrorClass::Overloaded,
        Some(400..=499) => ErrorClass::BadRequest,
        Some(200..=399) => ErrorClass::BadAnswer,
        _ => ErrorClass::ServerError,
    }
}

/// The message in the body of a refusal, in one line and not long.
pub fn error_message(body: &[u8]) -> String {
    Words::of_body(body).message
}

/// What a server said of a failure.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Words {
    /// For people.
    pub message: String,
    /// Type and code, for [`class_of`] beside the message.
    pub labels: String,
    /// Status it names itself.
    pub status: Option<u16>,
}

impl Words {
    /// Reads the `error` of an event or a body: an object in any of its forms, or a bare text.
    pub(super) fn of_error(error: &Value) -> Words {
        let Some(object) = error.as_object() else {
            return Words { message: short(&text_of(error)), ..Words::default() };
        };
        let first = |names: &[&str]| names.iter().find_map(|name| object.get(*name)).filter(|value| !value.is_null());
        let message = first(&["message", "detail", "error"]).map(text_of).unwrap_or_else(|| error.to_string());
        let labels: Vec<String> =
            ["type", "code", "err_type"].iter().filter_map(|name| first(&[name])).map(text_of).collect();
        let status = ["status", "status_code", "code"].iter().find_map(|name| status_of(object.get(*name)?));
        Words { message: short(&message), labels: labels.join(" "), status }
    }

    /// Reads the body of a refusal: JSON with an error in one of its forms, or a text.
    pub(super) fn of_body(body: &[u8]) -> Words {
        match serde_json::from_slice::<Value>(body) {
            Ok(Value::Object(object)) => match object.get("error") {
                Some(error) if !error.is_null() => Words::of_error(error),
                _ => Words::of_error(&Value::Object(object)),
            },
            Ok(other) => Words::of_error(&other),
            Err(_) => Words { message: short(&String::from_utf8_lossy(body)), ..Words::default() },
        }
    }

    /// The class, `http` being the status of the answer around them.
    pub(super) fn class(&self, http: Option<u16>) -> ErrorClass {
        let inner = self.status.filter(|status| *status >= 400);
        class_of(&format!("{} {}", self.labels, self.message), inner.or(http))
    }
}

/// A status as a number or a text of digits; words such as `no_available_workers` are none.
pub(super) fn status_of(value: &Value) -> Option<u16> {
    let number = value.as_u64().or_else(|| value.as_str()?.parse().ok())?;
    u16::try_from(number).ok().filter(|status| (100..600).contains(status))
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// One line, not too long, without characters that steer a terminal.
pub(super) fn short(text: &str) -> String {
    let mut line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.contains(char::is_control) {
        let escaped = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.to_string() };
        line = line.chars().map(escaped).collect();
    }
    if line.len() > MOST_WORDS {
        let cut = (0..=MOST_WORDS).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0);
        line.truncate(cut);
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_text_has_its_class() {
        let cases = [
            ("Invalid request: session id 50400 does not exist", Some(400), ErrorClass::SessionNotFound),
            ("Streaming session already has an active request.", Some(400), ErrorClass::SessionBusy),
            ("Session request is appending to a request that hasn't finished.", Some(400), ErrorClass::SessionBusy),
            ("close was requested for session s1", Some(400), ErrorClass::SessionNotFound),
            ("Request s/1 exceeds the maximum number of tokens: 9000 > 8192", Some(400), ErrorClass::ContextLimit),
            ("This model's maximum context length is 8192 tokens.", Some(400), ErrorClass::ContextLimit),
            ("Prefill bootstrap failed for request rank=0", Some(500), ErrorClass::PrefillFailed),
            ("Prefill server error (400 session id s does not exist)", Some(400), ErrorClass::PrefillFailed),
            (
                "Decode transfer failed for request rank=0 with exception KVTransferError(bootstrap_room=7): Decode \
              instance could be dead, remote mooncake session H:P is not alive",
                Some(500),
                ErrorClass::KvTransferTimeout,
            ),
            (
                "prefill_internal_error Prefill server error (500) from http://p: KVTransferError(bootstrap_room=7): \
                 transfer failed",
                Some(500),
                ErrorClass::KvTransferFailed,
            ),
            (
                "Prefill bootstrap failed with exception KVTransferError(bootstrap_room=7)",
                Some(500),
                ErrorClass::PrefillFailed,
            ),
            (
                "KVTransferError(bootstrap_room=7): Decode instance could be dead, its connection was closed",
                Some(500),
                ErrorClass::WorkerLost,
            ),
            ("Decode handshake failed for request rank=0", Some(500), ErrorClass::KvTransferFailed),
            ("KVTransferError from P0 to D2: transfer failed", Some(500), ErrorClass::KvTransferFailed),
            ("no_available_workers No available workers", Some(503), ErrorClass::NoWorker),
            ("server_selection_failed", Some(503), ErrorClass::NoWorker),
            ("worker_overload_protection_shed", Some(503), ErrorClass::Overloaded),
            ("Disaggregated request received without bootstrap room id.", Some(400), ErrorClass::BadRequest),
            ("Abort in waiting queue", None, ErrorClass::ServerError),
            ("slow down", Some(429), ErrorClass::Overloaded),
            ("who are you", Some(401), ErrorClass::Unauthorized),
            ("oops", Some(502), ErrorClass::ServerError),
            (
                "decode_unavailable Decode server error (503) from http://h:1: request failed on D1: server answered 503",
                Some(503),
                ErrorClass::Overloaded,
            ),
            ("decode_unavailable Decode server http://h:1 cannot be reached: reset", Some(502), ErrorClass::WorkerLost),
            ("worker_unavailable Worker server http://h:1 was lost: early end", Some(502), ErrorClass::WorkerLost),
            ("prefill_unavailable Prefill server http://h:1 cannot be reached", Some(502), ErrorClass::PrefillFailed),
            ("the bag was lost", Some(404), ErrorClass::BadRequest),
            ("gone", Some(404), ErrorClass::BadRequest),
        ];
        for (words, status, class) in cases {
            assert_eq!(class_of(words, status), class, "{words}");
        }
    }

    #[test]
    fn every_form_of_an_error_is_read() {
        let of = |body: &str| Words::of_body(body.as_bytes());
        let sglang = of(r#"{"error":{"message":"gone","type":"BadRequestError","code":400}}"#);
        assert_eq!((sglang.message.as_str(), sglang.status), ("gone", Some(400)));
        let router = of(
            r#"{"error":{"type":"Service Unavailable","code":"no_available_workers","message":"none","param":null}}"#,
        );
        assert_eq!((router.class(Some(503)), router.status), (ErrorClass::NoWorker, None));
        let streamed = of(r#"{"error":{"message":{"a":1},"status":503}}"#);
        assert_eq!((streamed.message.as_str(), streamed.status), (r#"{"a":1}"#, Some(503)));
        assert_eq!(of(r#"{"object":"error","message":"old vllm","code":40001}"#).message, "old vllm");
        assert_eq!(of(r#"{"detail":"fastapi"}"#).message, "fastapi");
        assert_eq!(of(r#"{"error":"plain"}"#).message, "plain");
        assert_eq!(of("<html>\n  proxy </html>").message, "<html> proxy </html>");
        assert_eq!(of("").message, "");
        assert_eq!(of("a\u{1b}[31m\tred").message, "a\\u{1b}[31m red");
        assert!(of(&"é".repeat(2000)).message.len() <= MOST_WORDS + 3);
    }
}
