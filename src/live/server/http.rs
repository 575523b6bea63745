//! JSON in and out of a server: bodies read within a limit, refusals with a cause.
//!
//! Owns the form of refusals (`{"error": {…}}`), not what is refused. Invariant: whatever a client sends, the answer is
//! a status and a JSON body; nothing here panics, and nothing waits for a client without an end.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::base::from_json;
use crate::live::api::{OpenAiError, OpenAiErrorBody};

/// A status and its reason, lowercase where it is ours, the engine's words where it is the engine's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    /// 4xx or 5xx.
    pub status: StatusCode,
    /// Why, and what to do.
    pub message: String,
}

impl Refused {
    /// With any status.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Refused {
        Refused { status, message: message.into() }
    }

    /// 400.
    pub fn bad(message: impl Into<String>) -> Refused {
        Refused::new(StatusCode::BAD_REQUEST, message)
    }

    /// From a status as a number; 500 where it is none.
    pub fn numbered(status: u16, message: impl Into<String>) -> Refused {
        Refused::new(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), message)
    }

    /// In the form of the OpenAI API.
    pub fn open_ai(self) -> Response {
        let kind = if self.status.is_server_error() { "InternalServerError" } else { "BadRequestError" };
        let error =
            OpenAiError { kind: kind.into(), code: self.status.as_u16().into(), message: self.message, param: None };
        json_with(self.status, &OpenAiErrorBody { error })
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        json_with(self.status, &json!({ "error": { "message": self.message } }))
    }
}

/// 200 with a JSON body.
pub(super) fn json(value: &impl Serialize) -> Response {
    json_with(StatusCode::OK, value)
}

/// A JSON body.
pub(super) fn json_with(status: StatusCode, value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).expect("bodies have text keys only");
    (status, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], body).into_response()
}

/// Longest time a node waits for the whole body of a request.
const NODE_BODY: Duration = Duration::from_secs(60);

/// The whole body of a request to a node, at most `limit` bytes.
pub(super) async fn read(body: Body, limit: usize) -> Result<Bytes, Refused> {
    read_within(body, limit, NODE_BODY).await
}

/// The whole body, at most `limit` bytes, and within that time.
pub(super) async fn read_within(body: Body, limit: usize, time: Duration) -> Result<Bytes, Refused> {
    let too_large =
        || Refused::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is larger than {limit} bytes; send less"));
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    let Ok(read) = tokio::time::timeout(time, axum::body::to_bytes(body, limit)).await else {
        let text = format!("the body was not there after {} s; send it faster", time.as_secs_f64());
        return Err(Refused::new(StatusCode::REQUEST_TIMEOUT, text));
    };
    read.map_err(|error| {
        let mut cause: Option<&dyn std::error::Error> = Some(&error);
        while let Some(at) = cause {
            if at.to_string().contains("length limit exceeded") {
                return too_large();
            }
            cause = at.source();
        }
        Refused::bad(format!("the body cannot be read: {error}"))
    })
}

/// Refuses a body that is declared as something else than JSON; a missing declaration is fine.
pub(super) fn check_json(headers: &HeaderMap) -> Result<(), Refused> {
    let Some(declared) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let kind = declared.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") || kind.to_ascii_lowercase().ends_with("+json") {
        return Ok(());
    }
    let text = format!("the content type is `{kind}`; send JSON with `content-type: application/json`");
    Err(Refused::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, text))
}

/// A JSON body as a value.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refused> {
    if bytes.is_empty() {
        return Err(Refused::bad("the body is empty; send a JSON object"));
    }
    from_json(bytes).map_err(|fault| Refused::bad(format!("the body is not what is expected: {fault}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_is_taken_for_json() {
        let with = |kind: &'static str| HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
        for kind in ["application/json", "Application/JSON; charset=utf-8", "application/problem+json"] {
            assert_eq!(check_json(&with(kind)), Ok(()), "{kind}");
        }
        assert_eq!(check_json(&HeaderMap::new()), Ok(()));
        for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonl"] {
            assert_eq!(check_json(&with(kind)).unwrap_err().status, 415, "{kind}");
        }
    }

    #[test]
    fn a_status_that_is_none_is_a_500() {
        assert_eq!(Refused::numbered(429, "").status, 429);
        assert_eq!(Refused::numbered(7, "").status, 500);
    }
}
