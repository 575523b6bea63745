//! Errors in the routers' form: `{"error": {type, code, message, param}}` and the code once more in a header.

use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use crate::live::api::{OpenAiError, OpenAiErrorBody};
use crate::live::server::http::{Refused, json_with};

/// Header with the code.
pub(super) const CODE_HEADER: &str = "x-smg-error-code";

/// Why a request has no answer.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub status: StatusCode,
    /// Such as `prefill_bad_request`.
    pub code: String,
    pub message: String,
    /// Of the worker that answered, and who served.
    pub headers: Box<HeaderMap>,
}

impl Failure {
    pub fn new(status: StatusCode, code: impl Into<String>, message: impl Into<String>) -> Failure {
        Failure { status, code: code.into(), message: message.into(), headers: Box::default() }
    }

    /// 503: nobody to send the request to.
    pub fn no_worker(why: String) -> Failure {
        Failure::new(StatusCode::SERVICE_UNAVAILABLE, "no_available_workers", why)
    }

    /// A leg (`prefill`, `decode`, `worker`) failed with this status: `…_bad_request`, `…_unavailable` or
    /// `…_internal_error`.
    pub fn of_leg(leg: &str, status: StatusCode, message: String) -> Failure {
        let what = match status {
            StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE => "unavailable",
            status if status.is_client_error() => "bad_request",
            _ => "internal_error",
        };
        Failure::new(status, format!("{leg}_{what}"), message)
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Failure {
        Failure::new(refused.status, "bad_request", refused.message)
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let kind = self.status.canonical_reason().unwrap_or("Error").to_owned();
        let error = OpenAiError { kind, code: self.code.clone().into(), message: self.message, param: None };
        let mut answer = json_with(self.status, &OpenAiErrorBody { error });
        let code = HeaderValue::from_str(&self.code).expect("codes are words");
        answer.headers_mut().insert(HeaderName::from_static(CODE_HEADER), code);
        for (name, value) in &*self.headers {
            if name != CONTENT_LENGTH && name != CONTENT_TYPE {
                answer.headers_mut().append(name, value.clone());
            }
        }
        answer
    }
}
