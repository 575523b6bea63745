//! [`from_json`]: JSON that others wrote, read into a type; [`JsonFault`]: what is wrong with it, for people.
//!
//! The one place that words it: with the path of the value, and without names of our types or of Rust's.

use std::fmt;

use serde::de::DeserializeOwned;

/// What is wrong with a JSON text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonFault {
    /// Line and column, from 1; columns count bytes.
    pub at: (usize, usize),
    /// The value, as `instances[0].dp_size`; empty: the text as a whole.
    pub path: String,
    /// What is wrong, without its place.
    pub words: String,
    /// What kind of fault.
    pub kind: JsonFaultKind,
}

/// Kinds of faults, by what helps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonFaultKind {
    /// JSON, but not what is wanted there.
    Data,
    /// No JSON.
    Syntax,
    /// The text ends too early.
    Eof,
}

/// Reads a whole text. It is read a second time for the path of what is wrong: a good one is read faster without.
///
/// # Errors
/// It is no JSON, or not what `T` is read from.
pub fn from_json<T: DeserializeOwned>(text: &[u8]) -> Result<T, JsonFault> {
    serde_json::from_slice(text).map_err(|error| {
        let mut again = serde_json::Deserializer::from_slice(text);
        let read: Result<T, _> = serde_path_to_error::deserialize(&mut again);
        // Bytes behind a whole value have no path.
        let path = read.err().map(|error| error.path().to_string()).filter(|path| path != ".");
        JsonFault::new(path.unwrap_or_default(), &error)
    })
}

impl JsonFault {
    fn new(path: String, error: &serde_json::Error) -> JsonFault {
        let whole = error.to_string();
        let words = whole.rsplit_once(" at line ").map_or(whole.as_str(), |(words, _)| words);
        let kind = match (error.is_data(), error.is_eof()) {
            (true, _) => JsonFaultKind::Data,
            (_, true) => JsonFaultKind::Eof,
            (..) => JsonFaultKind::Syntax,
        };
        JsonFault { at: (error.line(), error.column()), path, words: plain(words), kind }
    }

    /// What is wrong, behind the path of the value where there is one; of a text that is one line.
    pub fn in_line(&self) -> String {
        format!("{}{} at column {}", self.before(), self.words, self.at.1)
    }

    /// What to do about it.
    pub fn remedy(&self) -> &'static str {
        match self.kind {
            JsonFaultKind::Data if self.words.starts_with("missing field ") => "add it",
            JsonFaultKind::Data if self.words.starts_with("unknown ") => "correct the word, or remove it",
            JsonFaultKind::Data => "write a value of that kind",
            JsonFaultKind::Syntax | JsonFaultKind::Eof => "correct it there",
        }
    }

    /// What is wrong, with line and column alone.
    pub fn without_path(&self) -> String {
        let (line, column) = self.at;
        format!("{} at line {line} column {column}", self.words)
    }

    fn before(&self) -> String {
        if self.path.is_empty() { String::new() } else { format!("{}: ", self.path) }
    }
}

/// What is wrong and where: path, words, line and column.
impl fmt::Display for JsonFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.before(), self.without_path())
    }
}

/// Words of serde, in those of JSON.
fn plain(words: &str) -> String {
    if words.starts_with("data did not match any variant of ") {
        return "the value is of none of the kinds that it may be".to_owned();
    }
    let words = words.strip_prefix("unknown variant ").map_or(words.to_owned(), |rest| format!("unknown word {rest}"));
    let Some((found, expected)) = words.rsplit_once(", expected ") else { return words };
    let found = [("sequence", "array"), ("map", "object"), ("floating point", "number"), ("unit value", "null")]
        .iter()
        .find_map(|(theirs, ours)| {
            let rest = found.strip_prefix("invalid type: ")?.strip_prefix(theirs)?;
            Some(format!("invalid type: {ours}{rest}"))
        })
        .unwrap_or_else(|| found.to_owned());
    format!("{found}, expected {}", wanted(expected))
}

/// What is wanted, in words of JSON.
fn wanted(expected: &str) -> String {
    let least = "a whole number from 0";
    match expected {
        "u8" => format!("{least} to {}", u8::MAX),
        "u16" => format!("{least} to {}", u16::MAX),
        "u32" => format!("{least} to {}", u32::MAX),
        "u64" | "u128" | "usize" => format!("{least} on"),
        "i8" | "i16" | "i32" | "i64" | "i128" | "isize" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        "a borrowed string" | "string or map" | "variant identifier" => "a string".to_owned(),
        _ => match expected.split(' ').next() {
            Some("struct" | "internally" | "adjacently") => "an object".to_owned(),
            Some("enum" | "unit") => "a string".to_owned(),
            Some("tuple") => "an array".to_owned(),
            _ if expected.starts_with("a map") => "an object".to_owned(),
            _ if ["a sequence", "a tuple", "an array"].iter().any(|list| expected.starts_with(list)) => {
                "an array".to_owned()
            }
            _ => expected.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only what is wrong is looked at")]
    struct Outer {
        #[serde(default)]
        list: Vec<Inner>,
        flag: Option<bool>,
        pair: Option<(u8, u8)>,
        #[serde(flatten)]
        rest: std::collections::BTreeMap<String, serde::de::IgnoredAny>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only what is wrong is looked at")]
    struct Inner {
        whole: u64,
        signed: Option<i64>,
        small: Option<u8>,
        share: Option<f64>,
        word: Option<Word>,
        any: Option<Any>,
        tagged: Option<Tagged>,
    }

    #[derive(Debug, Deserialize)]
    enum Word {
        Yes,
    }

    #[derive(Debug, Deserialize)]
    #[serde(untagged)]
    #[expect(dead_code, reason = "only what is wrong is looked at")]
    enum Any {
        Number(i64),
        Text(String),
    }

    #[derive(Debug, Deserialize)]
    #[serde(tag = "kind")]
    enum Tagged {
        Yes,
    }

    #[test]
    fn a_fault_is_told_by_its_path_and_without_names_of_types() {
        let cases = [
            ("[]", "invalid type: array, expected an object at line 1 column 0"),
            (r#"{"list": {}}"#, "list: invalid type: object, expected an array at line 1 column 9"),
            (r#"{"list": [1]}"#, "list[0]: invalid type: integer `1`, expected an object at line 1 column 11"),
            (r#"{"list": [{}]}"#, "list[0]: missing field `whole` at line 1 column 12"),
            (r#"{"list": [{"whole": -1}]}"#, "invalid value: integer `-1`, expected a whole number from 0 on"),
            (r#"{"list": [{"whole": 1.5}]}"#, "list[0].whole: invalid type: number `1.5`, expected a whole number"),
            (r#"{"list": [{"signed": "1"}]}"#, "list[0].signed: invalid type: string \"1\", expected a whole number"),
            (
                r#"{"list": [{"small": 256}]}"#,
                "list[0].small: invalid value: integer `256`, expected a whole number from 0 to 255",
            ),
            (r#"{"list": [{"share": "x"}]}"#, "list[0].share: invalid type: string \"x\", expected a number"),
            (r#"{"list": [{"word": 1}]}"#, "list[0].word: "),
            (r#"{"list": [{"word": "no"}]}"#, "list[0].word: unknown word `no`, expected `Yes`"),
            (r#"{"list": [{"any": []}]}"#, "list[0].any: the value is of none of the kinds that it may be"),
            (r#"{"list": [{"tagged": 1}]}"#, "list[0].tagged: invalid type: integer `1`, expected an object"),
            (r#"{"flag": 1}"#, "flag: invalid type: integer `1`, expected true or false"),
            (r#"{"pair": [1]}"#, "pair: invalid length 1, expected an array"),
            (r#"{"flag": true} x"#, "trailing characters at line 1 column 16"),
            ("{\n\"flag\": ", "EOF while parsing a value at line 2 column 8"),
        ];
        for (text, told) in cases {
            let fault = from_json::<Outer>(text.as_bytes()).unwrap_err();
            assert!(fault.to_string().contains(told), "{text}: {fault}");
            for name in
                ["struct", "enum", "variant", "Outer", "Inner", "Any", "Tagged", "u64", "i64", "u8", "f64", "tuple"]
            {
                assert!(!fault.to_string().contains(name), "{text}: {fault}");
            }
        }
    }

    #[test]
    fn a_value_that_reads_like_words_of_ours_is_repeated_as_it_is() {
        let fault = from_json::<Outer>(br#"{"flag": "a, expected u64"}"#).unwrap_err();
        assert!(fault.words.ends_with(r#"string "a, expected u64", expected true or false"#), "{fault}");
        assert_eq!((fault.remedy(), fault.kind), ("write a value of that kind", JsonFaultKind::Data));
        assert_eq!(from_json::<Outer>(b"{").unwrap_err().kind, JsonFaultKind::Eof);
        assert_eq!(from_json::<Outer>(b"{x").unwrap_err().remedy(), "correct it there");
    }
}
