//! One JSON object of one line, taken apart into keys and value texts without building a tree.
//!
//! Long id lists are stepped over with one search. What looks wrong here is shown to `serde_json`, which owns the
//! verdict and the column; so do nested values nobody asked for.

use std::borrow::Cow;

use serde::de::IgnoredAny;

/// A value as it stands in the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// A string, without its quotes, escapes not yet undone.
    Text(&'a str),
    /// A number, `true`, `false`, `null`, or a bare word such as `NaN` that JSON does not know.
    Bare(&'a str),
    /// A list, without its brackets.
    List(&'a str),
    /// An object, with its braces.
    Object(&'a str),
}

/// The line breaks the grammar at this byte (from 0).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken(pub(super) usize);

/// Walks over the members of the object in one line.
#[derive(Debug)]
pub(super) struct Members<'a> {
    text: &'a str,
    at: usize,
    first: bool,
}

impl<'a> Members<'a> {
    /// `text` is a line.
    pub(super) fn new(text: &'a str) -> Result<Members<'a>, Broken> {
        let mut members = Members { text, at: 0, first: true };
        members.skip_space();
        members.expect(b'{')?;
        Ok(members)
    }

    /// The next key and value; `None` after the closing brace.
    pub(super) fn next(&mut self) -> Result<Option<(Cow<'a, str>, Value<'a>)>, Broken> {
        self.skip_space();
        if self.peek() == Some(b'}') && self.first {
            return self.end();
        }
        if !self.first {
            match self.peek() {
                Some(b'}') => return self.end(),
                _ => self.expect(b',')?,
            }
            self.skip_space();
        }
        self.first = false;
        let at = self.at;
        let key = unescape(self.string()?).ok_or(Broken(at))?;
        self.skip_space();
        self.expect(b':')?;
        self.skip_space();
        let value = self.value(&key)?;
        Ok(Some((key, value)))
    }

    fn end(&mut self) -> Result<Option<(Cow<'a, str>, Value<'a>)>, Broken> {
        self.at += 1;
        self.skip_space();
        if self.at == self.text.len() { Ok(None) } else { Err(Broken(self.at)) }
    }

    fn value(&mut self, key: &str) -> Result<Value<'a>, Broken> {
        let start = self.at;
        match self.peek() {
            Some(b'"') => Ok(Value::Text(self.string()?)),
            Some(b'[') => {
                if key == "hash_ids" {
                    // Ids hold no bracket; a list that does is refused when its ids are read.
                    let rest = &self.text.as_bytes()[start..];
                    self.at += memchr::memchr(b']', rest).ok_or(Broken(self.text.len()))? + 1;
                } else {
                    self.skip_nested()?;
                }
                Ok(Value::List(&self.text[start + 1..self.at - 1]))
            }
            Some(b'{') => {
                self.skip_nested()?;
                Ok(Value::Object(&self.text[start..self.at]))
            }
            _ => {
                let is_bare = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-._".contains(byte);
                self.at += self.text.as_bytes()[start..].iter().take_while(|byte| is_bare(byte)).count();
                if self.at == start { Err(Broken(start)) } else { Ok(Value::Bare(&self.text[start..self.at])) }
            }
        }
    }

    /// Steps over a balanced list or object and has its inside checked.
    fn skip_nested(&mut self) -> Result<(), Broken> {
        let start = self.at;
        let mut depth = 0usize;
        loop {
            match self.peek().ok_or(Broken(self.at))? {
                b'"' => {
                    self.string()?;
                    continue;
                }
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                let valid = is_json(&self.text[start..self.at]);
                return if valid { Ok(()) } else { Err(Broken(start)) };
            }
        }
    }

    fn string(&mut self) -> Result<&'a str, Broken> {
        self.expect(b'"')?;
        let start = self.at;
        let bytes = self.text.as_bytes();
        loop {
            let found = memchr::memchr2(b'"', b'\\', &bytes[self.at..]).ok_or(Broken(bytes.len()))?;
            self.at += found;
            if bytes[self.at] == b'"' {
                break;
            }
            self.at += 2;
            if self.at > bytes.len() || !self.text.is_char_boundary(self.at) {
                return Err(Broken(self.at.min(bytes.len())));
            }
        }
        let inside = &self.text[start..self.at];
        self.at += 1;
        match inside.bytes().position(|byte| byte < 0x20) {
            Some(control) => Err(Broken(start + control)),
            None => Ok(inside),
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Broken> {
        if self.peek() != Some(byte) {
            return Err(Broken(self.at));
        }
        self.at += 1;
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
    }
}

/// Undoes the escapes of a string's inside; `None` when they are wrong.
pub(super) fn unescape(inside: &str) -> Option<Cow<'_, str>> {
    if memchr::memchr(b'\\', inside.as_bytes()).is_none() {
        return Some(Cow::Borrowed(inside));
    }
    serde_json::from_str::<String>(&format!("\"{inside}\"")).ok().map(Cow::Owned)
}

/// Whether a text is one JSON value.
pub(super) fn is_json(text: &str) -> bool {
    serde_json::from_str::<IgnoredAny>(text).is_ok()
}

/// The verdict of the JSON parser on a broken line: column from 1 and its words.
pub(super) fn verdict(text: &str, broken: Broken) -> (usize, String) {
    match serde_json::from_str::<IgnoredAny>(text) {
        Err(error) => {
            let words = error.to_string();
            let column = error.column().max(1);
            let mut words = words.split(" at line ").next().unwrap_or(&words).to_owned();
            if words.starts_with("trailing characters") {
                words += trailing(text, column - 1);
            }
            (column, words)
        }
        Ok(IgnoredAny) => (broken.0 + 1, "expected one flat object, its `hash_ids` a list of whole numbers".to_owned()),
    }
}

/// What the characters after the object, which begin at this byte, most likely are.
fn trailing(text: &str, at: usize) -> &'static str {
    let Some((before, after)) = text.split_at_checked(at) else { return "" };
    let gap = &before[before.trim_end().len()..];
    if gap.contains('\r') {
        return "; the rows end in bare carriage returns, convert the line ends to newlines";
    }
    match after.bytes().next() {
        Some(b',') => "; a comma follows the object, JSONL has none between rows",
        Some(b'{') => "; another object follows, write one a line",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(text: &str) -> Result<Vec<(String, Value<'_>)>, Broken> {
        let mut members = Members::new(text)?;
        let mut found = Vec::new();
        while let Some((key, value)) = members.next()? {
            found.push((key.into_owned(), value));
        }
        Ok(found)
    }

    #[test]
    fn members_come_as_they_stand() {
        let line = r#" {"a": "x\"}", "hash_ids":[1, 2],"n":-1.5e3 , "o":{"k":["}"]}, "l":[[1],{}], "b\u0061":NaN}  "#;
        let found = all(line).unwrap();
        let value = |at: usize| found[at].1;
        assert_eq!(value(0), Value::Text("x\\\"}"));
        assert_eq!(value(1), Value::List("1, 2"));
        assert_eq!(value(2), Value::Bare("-1.5e3"));
        assert_eq!(value(3), Value::Object(r#"{"k":["}"]}"#));
        assert_eq!(value(4), Value::List("[1],{}"));
        assert_eq!((found[5].0.as_str(), value(5)), ("ba", Value::Bare("NaN")));
    }

    #[test]
    fn broken_lines_are_broken() {
        for text in [
            "",
            "[]",
            "{",
            "{}x",
            "{,}",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"a\":1 \"b\":2}",
            "{\"a\":\"",
            "{\"a\":[}",
            "{\"a\":{\"b\" 1}}",
            "{\"a\":\"\\",
            "{\"\\é",
        ] {
            assert!(all(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_taken_or_refused_without_a_panic(text in "[{}\\[\\]\",:\\\\a1é \t]{0,40}") {
            let _ = all(&text);
        }
    }
}
