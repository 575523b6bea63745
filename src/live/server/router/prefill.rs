//! What a prefill worker's answer means.
//!
//! P answers when the KV has left, with no token of its own; the client never sees it. So a failure inside it, which
//! other routers hide, is found here. Invariant: anything but a finish by `length` or `stop` is a failure.

use axum::body::Body;
use axum::http::{Response, StatusCode};
use serde::Deserialize;

use super::failure::Failure;
use crate::base::from_json;
use crate::live::api::{DONE, FinishReason, InBandError};
use crate::live::server::upstream::{NoAnswer, read};

/// An answer without tokens is short; what is longer is no answer of a prefill worker.
const MOST: usize = 4 << 20;

/// What matters in an event of `/generate` or of an OpenAI endpoint.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Event {
    error: Option<InBandError>,
    meta_info: Meta,
    choices: Vec<Choice>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Meta {
    finish_reason: Option<FinishReason>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Choice {
    finish_reason: Option<String>,
}

/// Reads P's whole answer and judges it. `url` names P in words.
pub(super) async fn verdict(url: &str, answer: Result<Response<Body>, NoAnswer>) -> Result<(), Failure> {
    let answer = answer.map_err(|error| lost(url, &error))?;
    let status = answer.status();
    let body = read(answer.into_body(), MOST).await.map_err(|error| lost(url, &error))?;
    let text = String::from_utf8_lossy(&body);
    if !status.is_success() {
        return Err(failed(url, status, &text));
    }
    let mut finished = false;
    for event in events(&text) {
        let event: Event = from_json(event.as_bytes()).map_err(|fault| {
            failed(url, StatusCode::INTERNAL_SERVER_ERROR, &format!("200 with a body that is not understood: {fault}"))
        })?;
        finished |= judge(url, event)?;
    }
    if finished {
        return Ok(());
    }
    Err(failed(url, StatusCode::INTERNAL_SERVER_ERROR, "the answer ended without a finish reason"))
}

/// Whether the event is the end of an answer that went well.
fn judge(url: &str, event: Event) -> Result<bool, Failure> {
    if let Some(error) = event.error {
        let code = error.code.as_ref().and_then(serde_json::Value::as_u64).and_then(|code| u16::try_from(code).ok());
        return Err(failed(url, status_of(error.status.or(code)), &error.message));
    }
    match event.meta_info.finish_reason {
        Some(FinishReason::Abort { message, status_code, .. }) => {
            return Err(failed(url, status_of(status_code), &message));
        }
        Some(FinishReason::Length { .. } | FinishReason::Stop { .. }) => return Ok(true),
        None => {}
    }
    match event.choices.into_iter().find_map(|choice| choice.finish_reason) {
        Some(reason) if reason == "abort" => Err(failed(url, status_of(None), "the answer was aborted")),
        Some(_) => Ok(true),
        None => Ok(false),
    }
}

/// The JSON texts of an answer: its events, or the one body.
fn events(text: &str) -> impl Iterator<Item = &str> {
    let streamed = text.trim_start().starts_with("data:") || text.trim_start().starts_with(':');
    let parts: Vec<&str> = if streamed {
        text.lines().filter_map(|line| line.strip_prefix("data:")).map(str::trim).collect()
    } else {
        vec![text.trim()]
    };
    parts.into_iter().filter(|part| *part != DONE)
}

fn status_of(number: Option<u16>) -> StatusCode {
    number.and_then(|number| StatusCode::from_u16(number).ok()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// The client's own mistake stays one; everything else is the cluster's.
fn failed(url: &str, status: StatusCode, words: &str) -> Failure {
    let told = if status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS {
        StatusCode::BAD_REQUEST
    } else {
        StatusCode::INTERNAL_SERVER_ERROR
    };
    let message = format!("Prefill server error ({}) from {url}: {}", status.as_u16(), words.trim());
    Failure::of_leg("prefill", told, message)
}

fn lost(url: &str, error: &NoAnswer) -> Failure {
    let status = if error.unreached { StatusCode::BAD_GATEWAY } else { StatusCode::INTERNAL_SERVER_ERROR };
    let what = if error.unreached { "cannot be reached" } else { "was lost" };
    Failure::of_leg("prefill", status, format!("Prefill server {url} {what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(status: u16, body: &'static str) -> Result<(), (u16, String, String)> {
        let answer = Response::builder().status(status).body(Body::from(body)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let judged = runtime.block_on(verdict("http://p", Ok(answer)));
        judged.map_err(|failure| (failure.status.as_u16(), failure.code, failure.message))
    }

    #[test]
    fn a_finished_answer_is_fine_in_every_form() {
        for body in [
            r#"{"text":"","output_ids":[],"meta_info":{"finish_reason":{"type":"length","length":0}}}"#,
            "data: {\"meta_info\":{\"finish_reason\":null}}\n\ndata: {\"meta_info\":{\"finish_reason\":{\"type\":\"stop\",\
             \"matched\":2}}}\n\ndata: [DONE]\n\n",
            ": keep-alive\n\ndata:{\"choices\":[{\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n",
            r#"{"choices":[{"index":0,"finish_reason":"stop"}]}"#,
        ] {
            assert_eq!(of(200, body), Ok(()), "{body}");
        }
    }

    #[test]
    fn every_failure_is_found_and_names_p() {
        let bad = ("prefill_bad_request", 400);
        let worse = ("prefill_internal_error", 500);
        let abort = "data: {\"meta_info\":{\"finish_reason\":{\"type\":\"abort\",\"message\":\"no such session\",\
                     \"status_code\":400}}}\n\ndata: [DONE]\n\n";
        let cases = [
            (400, r#"{"error":{"message":"x"}}"#, bad),
            (422, "x", bad),
            (429, "x", worse),
            (503, "x", worse),
            (200, abort, bad),
            (200, r#"{"meta_info":{"finish_reason":{"type":"abort","message":"KVTransferError"}}}"#, worse),
            (200, "data: {\"error\":{\"message\":\"x\",\"code\":400}}\n\ndata: [DONE]\n\n", bad),
            (200, "data: {\"error\":{\"message\":\"x\",\"status\":500}}\n\n", worse),
            (200, r#"{"choices":[{"finish_reason":"abort"}]}"#, worse),
            (200, "<html>busy</html>", worse),
            (200, "", worse),
            (200, "data: {\"meta_info\":{\"finish_reason\":null}}\n\ndata: [DONE]\n\n", worse),
        ];
        for (status, body, (code, told)) in cases {
            let failure = of(status, body).unwrap_err();
            assert_eq!((failure.1.as_str(), failure.0), (code, told), "{status} {body}");
            assert!(failure.2.contains("http://p"), "{}", failure.2);
        }
    }

    #[test]
    fn a_worker_that_is_not_there_is_unavailable() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let judged = |unreached| {
            let failure = runtime.block_on(verdict("http://p", Err(NoAnswer { unreached, message: "x".into() })));
            failure.map_err(|failure| (failure.status.as_u16(), failure.code)).unwrap_err()
        };
        assert_eq!(judged(true), (502, "prefill_unavailable".into()));
        assert_eq!(judged(false), (500, "prefill_internal_error".into()));
    }
}
