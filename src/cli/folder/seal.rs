//! The digest that a JSON file has of its own content, as its last key: a bit that flips in it later shows.
//!
//! It is of the values, not of the text: keys sorted, nothing between the tokens. So a file that was only laid out anew is the
//! same. Files of earlier versions have none, and are taken as they are.

use serde::Serialize;
use serde_json::Value;

use crate::cli::folder::canonical::canonical;
use crate::cli::folder::left::digest_text_of;

/// Its key.
const KEY: &str = "xxh3_128";

/// A value with the digest of its content behind it.
#[derive(Debug, Serialize)]
pub struct Sealed<'a, T> {
    #[serde(flatten)]
    content: &'a T,
    xxh3_128: String,
}

impl<'a, T: Serialize> Sealed<'a, T> {
    /// Of an object.
    ///
    /// # Errors
    /// When it is none that JSON can hold.
    pub fn new(content: &'a T) -> serde_json::Result<Sealed<'a, T>> {
        Ok(Sealed { content, xxh3_128: digest_of(&serde_json::to_vec(content)?)? })
    }
}

/// Whether `file` says of itself what it is, in words; `None` when it does, or says nothing.
pub fn broken_seal(mut file: Value) -> Option<String> {
    let then = file.as_object_mut()?.remove(KEY)?;
    let now = digest_of(file.to_string().as_bytes()).ok()?;
    (then.as_str() != Some(&now)).then(|| {
        format!(
            "the xxh3_128 of its content is {now}, not {}: changed after it was written",
            then.as_str().unwrap_or("…")
        )
    })
}

fn digest_of(content: &[u8]) -> serde_json::Result<String> {
    canonical(content).map(|text| digest_text_of(&text))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_layout_is_no_content_and_a_value_is() {
        let content = json!({"z": [0.1, 1e-7, -0.0, 1e300, u64::MAX, i64::MIN], "a": {"k": "é\u{1f}\"", "b": null}});
        let text = serde_json::to_string_pretty(&Sealed::new(&content).unwrap()).unwrap();
        assert!(
            text.trim_end_matches(['}', '\n']).lines().last().unwrap().trim().starts_with("\"xxh3_128\""),
            "{text}"
        );
        let read = |text: &str| broken_seal(serde_json::from_str(text).unwrap());
        assert_eq!(read(&text), None);
        let mut again: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(read(&again.to_string()), None);
        again["a"]["b"] = json!(0);
        assert!(read(&again.to_string()).unwrap().contains("changed after it was written"));
        again[KEY] = json!(7);
        assert!(read(&again.to_string()).is_some());
        again.as_object_mut().unwrap().remove(KEY);
        assert_eq!(read(&again.to_string()), None);
    }
}
