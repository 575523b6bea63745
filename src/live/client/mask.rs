//! [`Mask`]: takes the target's secrets out of everything a server says, where it enters.
//!
//! A server may say a key back: in the words of a refusal, a header, a version. Owns no secrets' source. Invariant: no
//! text of a peer passes on with a secret of [`SHORTEST`] bytes or more in it, as it stands or as JSON escapes it; JSON
//! stays JSON, and what holds no secret is not touched.

use std::borrow::Cow;

use reqwest::header::{HeaderMap, HeaderValue};
use serde_json::{Map, Value};

use crate::live::Secrets;

/// What stands for a secret.
const MASKED: &str = "***";
/// Shorter values hide nothing, and would be found in names, numbers and words of any answer.
const SHORTEST: usize = 6;

/// See the module.
#[derive(Clone, Default)]
pub(super) struct Mask {
    /// Longest first: a whole value goes before its parts.
    secrets: Vec<String>,
}

impl std::fmt::Debug for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mask({} secrets)", self.secrets.len())
    }
}

impl Mask {
    /// Of a target's headers: each value, and its parts (`Bearer KEY`, `a=b; c=d`).
    pub fn of(secrets: &Secrets) -> Mask {
        let parts = |value: &str| -> Vec<String> {
            let pieces =
                value.split([' ', ';', ',']).flat_map(|piece| [Some(piece), piece.split_once('=').map(|it| it.1)]);
            [Some(value)].into_iter().chain(pieces).flatten().map(|part| part.trim().to_owned()).collect()
        };
        let mut secrets: Vec<String> = secrets.headers.iter().flat_map(|(_, value)| parts(value)).collect();
        secrets.retain(|secret| secret.len() >= SHORTEST && !secret.eq_ignore_ascii_case("bearer"));
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.dedup();
        Mask { secrets }
    }

    /// A body, or the data of an event.
    pub fn data<'d>(&self, data: &'d [u8]) -> Cow<'d, [u8]> {
        // An escape may hide a letter of a secret.
        if self.secrets.is_empty() || !data.contains(&b'\\') && !self.is_in(data) {
            return Cow::Borrowed(data);
        }
        let Ok(mut json) = serde_json::from_slice::<Value>(data) else {
            let masked = || self.text(&String::from_utf8_lossy(data)).into_owned().into_bytes();
            return if self.is_in(data) { Cow::Owned(masked()) } else { Cow::Borrowed(data) };
        };
        if self.json(&mut json) { Cow::Owned(json.to_string().into_bytes()) } else { Cow::Borrowed(data) }
    }

    /// Every value of a head.
    pub fn head(&self, head: &mut HeaderMap) {
        for value in head.values_mut().filter(|value| self.is_in(value.as_bytes())) {
            let masked = self.text(&String::from_utf8_lossy(value.as_bytes())).into_owned();
            *value = HeaderValue::from_str(&masked).unwrap_or(HeaderValue::from_static(MASKED));
        }
    }

    fn is_in(&self, data: &[u8]) -> bool {
        self.secrets.iter().any(|secret| data.windows(secret.len()).any(|at| at == secret.as_bytes()))
    }

    fn text<'d>(&self, text: &'d str) -> Cow<'d, str> {
        self.secrets.iter().fold(Cow::Borrowed(text), |text, secret| {
            if text.contains(secret) { Cow::Owned(text.replace(secret, MASKED)) } else { text }
        })
    }

    /// Masks texts and names in place; whether there was anything to mask.
    fn json(&self, value: &mut Value) -> bool {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => false,
            Value::String(text) => match self.text(text) {
                Cow::Owned(masked) => {
                    *text = masked;
                    true
                }
                Cow::Borrowed(_) => false,
            },
            Value::Array(list) => list.iter_mut().fold(false, |any, one| self.json(one) | any),
            Value::Object(map) => {
                let names = map.keys().any(|name| self.is_in(name.as_bytes()));
                if names {
                    let renamed =
                        std::mem::take(map).into_iter().map(|(name, one)| (self.text(&name).into_owned(), one));
                    *map = renamed.collect::<Map<_, _>>();
                }
                map.values_mut().fold(names, |any, one| self.json(one) | any)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask() -> Mask {
        let headers = [("authorization", "Bearer SEKRET-1/2"), ("cookie", "sid=COOKIE-9; a=1"), ("x-n", "12")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Mask::of(&Secrets { headers, ca_pem: None })
    }

    #[test]
    fn a_secret_is_masked_however_it_is_written() {
        let of = |text: &str| String::from_utf8(mask().data(text.as_bytes()).into_owned()).unwrap();
        assert_eq!(of("bad key: Bearer SEKRET-1/2, sid=COOKIE-9"), "bad key: ***, ***");
        assert_eq!(of(r#"{"error":"no SEKRET-1\/2"}"#), r#"{"error":"no ***"}"#);
        assert_eq!(of(r#"{"e":["\u0053EKRET-1/2",{"COOKIE-9":7}]}"#), r#"{"e":["***",{"***":7}]}"#);
        assert_eq!(of("<p>SEKRET-1/2</p>"), "<p>***</p>");
    }

    #[test]
    fn what_holds_none_is_left_as_it_is() {
        for text in [r#"{"text":"a\nb","n":1.50,"tokens":12}"#, "Bearer 12", "", "\\"] {
            assert!(matches!(mask().data(text.as_bytes()), Cow::Borrowed(same) if same == text.as_bytes()), "{text}");
        }
        assert!(matches!(Mask::default().data(b"SEKRET-1/2 \\"), Cow::Borrowed(_)));
        assert!(!format!("{:?}", mask()).contains("SEKRET"));
    }

    #[test]
    fn headers_are_masked_too() {
        let mut head = HeaderMap::new();
        head.insert("location", HeaderValue::from_static("http://a/?key=SEKRET-1/2"));
        head.insert("server", HeaderValue::from_static("nginx"));
        mask().head(&mut head);
        assert_eq!(
            (head["location"].as_bytes(), head["server"].as_bytes()),
            (&b"http://a/?key=***"[..], &b"nginx"[..])
        );
    }
}
