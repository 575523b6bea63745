//! Events on the wire: framing, the end mark, and errors inside a stream that has begun.
//!
//! Both APIs frame alike; their errors differ in wording only. What an event holds is `event`'s and `openai`'s.

use axum::body::Bytes;
use serde::Serialize;
use serde_json::{Value, json};

use crate::live::api::{DONE, InBandError};

/// Whose form an error has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// SGLang's of `/generate`.
    Sglang,
    /// OpenAI's.
    OpenAi,
}

/// Appends an event with this JSON.
pub(super) fn write(events: &mut Vec<u8>, data: &impl Serialize) {
    events.extend_from_slice(b"data: ");
    serde_json::to_writer(&mut *events, data).expect("a Vec takes all, and keys are text");
    events.extend_from_slice(b"\n\n");
}

/// Appends an error.
pub(super) fn write_error(events: &mut Vec<u8>, form: Form, status: u16, message: &str) {
    let (client, server, retryable) = match form {
        Form::Sglang => ("invalid_request_error", "internal_error", Some(false)),
        Form::OpenAi => ("BadRequestError", "InternalServerError", None),
    };
    let error = InBandError {
        message: message.to_owned(),
        kind: Some(if status < 500 { client } else { server }.to_owned()),
        code: Some(Value::from(status)),
        status: None,
        retryable,
    };
    write(events, &json!({ "error": error }));
}

/// The events and the end mark.
pub(super) fn end(mut events: Vec<u8>) -> Bytes {
    events.extend_from_slice(format!("data: {DONE}\n\n").as_bytes());
    events.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_api_words_an_error_its_own_way() {
        let told = |form, status| -> Value {
            let mut events = Vec::new();
            write_error(&mut events, form, status, "no");
            let text = String::from_utf8(events).unwrap();
            serde_json::from_str(text.strip_prefix("data: ").unwrap().strip_suffix("\n\n").unwrap()).unwrap()
        };
        let error = |kind: &str, code: u16| json!({"error": {"message": "no", "type": kind, "code": code}});
        assert_eq!(told(Form::OpenAi, 499), error("BadRequestError", 499));
        assert_eq!(told(Form::OpenAi, 500), error("InternalServerError", 500));
        for (status, kind) in [(499, "invalid_request_error"), (500, "internal_error")] {
            let mut wanted = error(kind, status);
            wanted["error"]["retryable"] = false.into();
            assert_eq!(told(Form::Sglang, status), wanted);
        }
    }
}
