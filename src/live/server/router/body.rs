//! What a request's body becomes on its way through the router.
//!
//! Only the top level is taken apart: long prompts pass as the text they came in. Invariant: both legs get the client's
//! fields as they were, but for the rendezvous, which is ours, and `session_params`, which P's leg goes without: P does
//! not hold the session and would abort.

use std::collections::BTreeMap;

use axum::body::Bytes;
use axum::http::Uri;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};

use crate::live::Endpoint;
use crate::live::server::http::Refused;
use crate::node::{text_keys, token_keys};

/// A client's body by its top-level fields.
#[derive(Debug)]
pub(super) struct Fields<'a>(BTreeMap<String, &'a RawValue>);

impl<'a> Fields<'a> {
    /// Error: no JSON object.
    pub fn parse(bytes: &'a [u8]) -> Result<Fields<'a>, Refused> {
        let fields: Result<BTreeMap<String, &RawValue>, _> = serde_json::from_slice(bytes);
        fields.map(Fields).map_err(|error| Refused::bad(format!("the body is no JSON object: {error}")))
    }

    /// Bodies of the prefill and the decode leg that meet at `prefill` in `room`.
    pub fn legs(&self, prefill: &Endpoint, room: u64) -> Result<(Bytes, Bytes), Refused> {
        let (host, own_port) = host_and_port(&prefill.url)?;
        let port = prefill.bootstrap_port.unwrap_or(own_port);
        let raw = |value: serde_json::Value| to_raw_value(&value).expect("a string or number is JSON");
        let rendezvous = [
            ("bootstrap_host", raw(host.into())),
            ("bootstrap_port", raw(port.into())),
            ("bootstrap_room", raw(room.into())),
        ];
        let mut fields: BTreeMap<&str, &RawValue> = self.0.iter().map(|(name, raw)| (name.as_str(), *raw)).collect();
        fields.extend(rendezvous.iter().map(|(name, raw)| (*name, &**raw)));
        let decode = text(&fields);
        let prefill = if fields.remove("session_params").is_some() { text(&fields) } else { decode.clone() };
        Ok((prefill, decode))
    }

    /// Prefix keys of the prompt, of token ids or of text; none when it has a form that is not known.
    pub fn prompt_keys(&self) -> Vec<u64> {
        let field = |name: &str| self.0.get(name).map(|raw| raw.get());
        let ids = field("input_ids").or(field("prompt")).and_then(|raw| serde_json::from_str::<Vec<u32>>(raw).ok());
        match (ids, field("messages").or(field("text")).or(field("prompt"))) {
            (Some(ids), _) => token_keys(&ids),
            (None, Some(text)) => text_keys(text),
            (None, None) => Vec::new(),
        }
    }

    /// The request id, for the log.
    pub fn rid(&self) -> Option<String> {
        let raw = self.0.get("rid")?;
        Option::<String>::deserialize(*raw).ok().flatten()
    }
}

/// Host and port of a base URL.
fn host_and_port(url: &str) -> Result<(String, u16), Refused> {
    let wrong = || Refused::numbered(500, format!("the address `{url}` of a prefill worker is no URL"));
    let address: Uri = url.parse().map_err(|_| wrong())?;
    let host = address.host().ok_or_else(wrong)?.to_owned();
    Ok((host, address.port_u16().unwrap_or(80)))
}

fn text(fields: &BTreeMap<&str, &RawValue>) -> Bytes {
    serde_json::to_vec(fields).expect("fields that were read can be written").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn legs(body: &str) -> (serde_json::Value, serde_json::Value) {
        let prefill = Endpoint { url: "http://127.0.0.1:9101".into(), bootstrap_port: Some(8998) };
        let (p, d) = Fields::parse(body.as_bytes()).unwrap().legs(&prefill, 7).unwrap();
        (serde_json::from_slice(&p).unwrap(), serde_json::from_slice(&d).unwrap())
    }

    #[test]
    fn both_legs_meet_and_only_d_sees_the_session() {
        let body = r#"{"rid":"s/1","input_ids":[1,2],"bootstrap_room":99,"session_params":{"id":"s"},"x":1.50}"#;
        let (p, d) = legs(body);
        for leg in [&p, &d] {
            assert_eq!(leg["bootstrap_host"], "127.0.0.1");
            assert_eq!((&leg["bootstrap_port"], &leg["bootstrap_room"]), (&8998.into(), &7.into()));
            assert_eq!((&leg["rid"], &leg["input_ids"][1], &leg["x"]), (&"s/1".into(), &2.into(), &1.5.into()));
        }
        assert_eq!((p.get("session_params"), &d["session_params"]["id"]), (None, &"s".into()));
        let own = Endpoint { url: "http://127.0.0.1:9101".into(), bootstrap_port: None };
        let (p, _) = Fields::parse(b"{}").unwrap().legs(&own, 1).unwrap();
        assert!(std::str::from_utf8(&p).unwrap().contains(r#""bootstrap_port":9101"#));
    }

    #[test]
    fn prompts_of_every_form_have_keys() {
        let keys = |body: &str| Fields::parse(body.as_bytes()).unwrap().prompt_keys();
        let ids: Vec<u32> = (0..128).collect();
        let tokens = keys(&format!(r#"{{"input_ids":{ids:?}}}"#));
        assert_eq!((tokens.len(), &tokens), (2, &keys(&format!(r#"{{"prompt":{ids:?}}}"#))));
        let words = "word ".repeat(200);
        for body in [format!(r#"{{"text":"{words}"}}"#), format!(r#"{{"messages":[{{"content":"{words}"}}]}}"#)] {
            assert_eq!(keys(&body).len(), 3, "{body}");
        }
        assert!(keys(r#"{"input_embeds":[0.5]}"#).is_empty());
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for body in ["", "[1]", "{\"a\":", "<html>", "{}}", "\u{0}"] {
            assert_eq!(Fields::parse(body.as_bytes()).unwrap_err().status, 400, "{body}");
        }
        assert_eq!(Fields::parse(br#"{"rid":"a/1"}"#).unwrap().rid(), Some("a/1".into()));
        assert_eq!(Fields::parse(br#"{"rid":5}"#).unwrap().rid(), None);
    }
}
