//! One line into one raw row: known fields checked by type and range, unknown ones left alone.
//!
//! Does not know format, clock or block size: a timestamp stays a decimal, ids stay text.

use std::borrow::Cow;
use std::collections::HashMap;

use super::error::{Collector, RowError, TraceError};
use super::json::{self, Broken, Members, Value};
use super::number::{Decimal, NotDecimal};
use super::{decide, ids};
use crate::trace::MOST_TOKENS;

/// A row as it stands in the file.
#[derive(Debug)]
pub(super) struct RawRow<'a> {
    pub(super) line: u32,
    /// Index in [`Lines::sessions`].
    pub(super) session: Option<u32>,
    pub(super) turn_id: Option<u32>,
    pub(super) timestamp: Option<Decimal>,
    /// The timestamp is written without fraction and exponent.
    pub(super) whole: bool,
    pub(super) input_length: u32,
    /// At least 1.
    pub(super) output_length: u32,
    pub(super) output_raised: bool,
    pub(super) cached_tokens: Option<u32>,
    /// Inside of the list, and how many ids its commas make.
    pub(super) hash_ids: Option<(&'a str, u32)>,
    pub(super) request_id: Option<Cow<'a, str>>,
    /// `delay` or `delay_ms` is there: AIPerf.
    pub(super) delayed: bool,
}

/// All lines of a file.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    pub(super) header: Option<decide::Header>,
    pub(super) rows: Vec<RawRow<'a>>,
    /// Session ids in order of appearance.
    pub(super) sessions: Vec<Cow<'a, str>>,
    /// The first row has `chat_id` but no `session_id`.
    pub(super) chat_id_only: bool,
    pub(super) errors: Collector,
    /// Rows whose timestamp is there but unusable.
    pub(super) bad_timestamps: u64,
}

/// Takes a file apart.
pub(super) fn lines<'a>(file: &str, text: &'a [u8], limit: usize) -> Result<Lines<'a>, TraceError> {
    let mut lines = Lines {
        header: None,
        rows: Vec::new(),
        sessions: Vec::new(),
        chat_id_only: false,
        errors: Collector::new(file, limit),
        bad_timestamps: 0,
    };
    let mut known: HashMap<Cow<'a, str>, u32> = HashMap::new();
    let mut first = true;
    let ends = memchr::memchr_iter(b'\n', text).chain([text.len()]);
    let mut start = 0;
    for (number, end) in (1u32..).zip(ends) {
        let bytes = text[start.min(end)..end].trim_ascii_end();
        start = end + 1;
        if bytes.is_empty() {
            continue;
        }
        let Ok(text) = std::str::from_utf8(bytes) else {
            let cause = "is not UTF-8 text; save the file as UTF-8".to_owned();
            lines.errors.push(RowError { line: number, column: None, field: None, cause });
            continue;
        };
        if std::mem::take(&mut first) {
            lines.header = decide::header(file, number, text)?;
            if lines.header.is_some() {
                continue;
            }
        }
        lines.take(number, text, &mut known);
    }
    Ok(lines)
}

impl<'a> Lines<'a> {
    /// Empty lists in every row of a file that names no block size are no ids at all.
    pub(super) fn drop_empty_ids(&mut self) {
        let sized = self.header.is_some_and(|header| header.block_size.is_some());
        if !sized && self.rows.iter().all(|row| row.hash_ids.is_none_or(|(_, ids)| ids == 0)) {
            self.rows.iter_mut().for_each(|row| row.hash_ids = None);
        }
    }

    fn take(&mut self, line: u32, text: &'a str, known: &mut HashMap<Cow<'a, str>, u32>) {
        let mut fields = Fields::default();
        if let Err(broken) = fields.fill(text) {
            let (column, words) = json::verdict(text, broken);
            let cause = format!("is not valid JSON: {words}");
            self.errors.push(RowError { line, column: Some(column), field: None, cause });
            return;
        }
        if self.rows.is_empty() {
            self.chat_id_only = fields.chat_id && fields.session_id.is_none();
        }
        let mut found = Found { line, errors: &mut self.errors, good: true };
        if let Some(cause) = fields.header_mark() {
            self.errors.push(RowError { line, column: None, field: None, cause });
            return;
        }
        found.names(&fields);
        let named = found.good;
        let (timestamp, whole) = found.timestamp(fields.timestamp);
        self.bad_timestamps += u64::from(named && !found.good);
        let session_id = found.session_id(fields.session_id);
        let input_length = found.required_length(&fields, "input_length", fields.input_length);
        let output_length = found.required_length(&fields, "output_length", fields.output_length);
        let row = RawRow {
            line,
            session: None,
            turn_id: found.length("turn_id", fields.turn_id),
            timestamp,
            whole,
            input_length,
            output_length: output_length.max(1),
            output_raised: output_length == 0,
            cached_tokens: found.length("cached_tokens", fields.cached_tokens),
            hash_ids: found.hash_ids(fields.hash_ids),
            request_id: found.text("request_id", fields.request_id),
            delayed: fields.delayed,
        };
        if found.good {
            found.lengths(&row);
        }
        if !found.good {
            return;
        }
        let session = session_id.map(|id| {
            let next = self.sessions.len() as u32;
            *known.entry(id).or_insert_with_key(|id| {
                self.sessions.push(id.clone());
                next
            })
        });
        self.rows.push(RawRow { session, ..row });
    }
}

/// The known fields of a line, not yet looked into.
#[derive(Debug, Default)]
struct Fields<'a> {
    session_id: Option<Value<'a>>,
    turn_id: Option<Value<'a>>,
    timestamp: Option<Value<'a>>,
    input_length: Option<Value<'a>>,
    output_length: Option<Value<'a>>,
    cached_tokens: Option<Value<'a>>,
    hash_ids: Option<Value<'a>>,
    request_id: Option<Value<'a>>,
    format: Option<Value<'a>>,
    delayed: bool,
    chat_id: bool,
    /// Keys of a header.
    header_keys: u32,
    /// Which of [`KNOWN`] are there.
    seen: [bool; 8],
    /// A known field that is given twice.
    twice: Option<&'static str>,
    /// A key that is a known one but for case and dashes, and that one.
    misspelt: Option<(Cow<'a, str>, &'static str)>,
}

/// Fields that are read.
const KNOWN: [&str; 8] =
    ["session_id", "turn_id", "timestamp", "input_length", "output_length", "cached_tokens", "hash_ids", "request_id"];

/// The known field that `key` spells in another way: `Input_Length`, `inputLength`, `input-length`.
fn meant(key: &str) -> Option<&'static str> {
    let plain = |text: &str| -> Vec<u8> {
        text.bytes().filter(u8::is_ascii_alphanumeric).map(|byte| byte.to_ascii_lowercase()).collect()
    };
    // The longest known field has 13 letters; unknown keys cost no more than this look.
    let close = (6..=16).contains(&key.len());
    KNOWN.into_iter().find(|known| close && plain(known) == plain(key))
}

impl<'a> Fields<'a> {
    fn fill(&mut self, text: &'a str) -> Result<(), Broken> {
        let mut members = Members::new(text)?;
        while let Some((key, value)) = members.next()? {
            if let Some(at) = KNOWN.iter().position(|known| *known == key) {
                self.twice = self.twice.or(self.seen[at].then_some(KNOWN[at]));
                self.seen[at] = true;
            }
            let slot = match key.as_ref() {
                "session_id" => &mut self.session_id,
                "turn_id" => &mut self.turn_id,
                "timestamp" => &mut self.timestamp,
                "input_length" => &mut self.input_length,
                "output_length" => &mut self.output_length,
                "cached_tokens" => &mut self.cached_tokens,
                "hash_ids" => &mut self.hash_ids,
                "request_id" => &mut self.request_id,
                other => {
                    match other {
                        "delay" | "delay_ms" => self.delayed |= value != Value::Bare("null"),
                        "chat_id" => self.chat_id = true,
                        "format" => self.format = Some(value),
                        "version" | "block_size" | "timestamp_unit" => self.header_keys += 1,
                        _ if self.misspelt.is_none() => {
                            self.misspelt = meant(other).map(|known| (key.clone(), known));
                        }
                        _ => {}
                    }
                    continue;
                }
            };
            // `null` is the same as not there.
            *slot = (value != Value::Bare("null")).then_some(value);
        }
        Ok(())
    }
}

impl Fields<'_> {
    /// What is wrong with a line that is a header rather than a row, if it is one.
    fn header_mark(&self) -> Option<String> {
        let is_row = self.input_length.is_some() || self.output_length.is_some();
        match self.format {
            _ if is_row => None,
            Some(Value::Text(decide::HEADER_FORMAT)) => Some(
                "is a header line, but a header may only be the first line; were two files joined? remove the line when \
                 its `block_size` and `timestamp_unit` are those of the first, else convert the parts one by one"
                    .to_owned(),
            ),
            Some(format) => Some(format!(
                "looks like a header of format {}, which is not read; a header says \"format\":\"{}\"",
                show(format),
                decide::HEADER_FORMAT
            )),
            None if self.header_keys > 0 => Some(format!(
                "looks like a header without `format`; a header says \"format\":\"{}\"",
                decide::HEADER_FORMAT
            )),
            None => None,
        }
    }
}

/// Looks into the fields of one row and gathers what is wrong.
struct Found<'c> {
    line: u32,
    errors: &'c mut Collector,
    good: bool,
}

impl Found<'_> {
    fn wrong(&mut self, field: &str, cause: impl Into<String>) {
        self.good = false;
        self.errors.push(RowError::field(self.line, field, cause));
    }

    /// Keys that would be silently lost.
    fn names(&mut self, fields: &Fields<'_>) {
        if let Some(field) = fields.twice {
            self.wrong(field, "is given twice in this row; keep one");
        }
        let lost = |known: &str| KNOWN.iter().zip(fields.seen).all(|(field, seen)| *field != known || !seen);
        if let Some((key, known)) = fields.misspelt.as_ref().filter(|(_, known)| lost(known)) {
            self.wrong(key, format!("is not a field; write `{known}`"));
        }
    }

    fn timestamp(&mut self, value: Option<Value<'_>>) -> (Option<Decimal>, bool) {
        let Some(value) = value else { return (None, false) };
        let Value::Bare(text) = value else {
            self.wrong("timestamp", format!("{} is not a number; write a number such as 12.5", show(value)));
            return (None, false);
        };
        let cause = match Decimal::parse(text) {
            // A time beyond 584 years of nanoseconds in the smallest unit is out of range in every unit.
            Ok(time) if time.scaled(0).is_some() => return (Some(time), !text.contains(['.', 'e', 'E'])),
            Ok(_) => "is not a usable number: it is out of range",
            Err(NotDecimal::Negative) => "is negative; count from the start of the trace",
            Err(NotDecimal::Syntax) => "is not a usable number; write a number such as 12.5",
        };
        self.wrong("timestamp", format!("{} {cause}", show(value)));
        (None, false)
    }

    fn session_id<'a>(&mut self, value: Option<Value<'a>>) -> Option<Cow<'a, str>> {
        let id = self.text("session_id", value)?;
        if id.is_empty() {
            self.wrong("session_id", "is empty; give each session a name");
        }
        Some(id)
    }

    /// A string, or a whole number as its digits.
    fn text<'a>(&mut self, field: &str, value: Option<Value<'a>>) -> Option<Cow<'a, str>> {
        let text = match value? {
            Value::Text(inside) => json::unescape(inside),
            Value::Bare(digits) => {
                let number = digits.strip_prefix('-').unwrap_or(digits);
                let whole = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
                whole.then_some(Cow::Borrowed(digits))
            }
            Value::List(_) | Value::Object(_) => None,
        };
        if text.is_none()
            && let Some(value) = value
        {
            self.wrong(field, format!("{} is neither a string nor a whole number", show(value)));
        }
        text
    }

    fn length(&mut self, field: &str, value: Option<Value<'_>>) -> Option<u32> {
        let value = value?;
        let number = match value {
            Value::Bare(text) => Decimal::parse(text),
            Value::Text(_) | Value::List(_) | Value::Object(_) => Err(NotDecimal::Syntax),
        };
        let cause = match number {
            Ok(number) => match number.whole() {
                Some(whole) if u32::try_from(whole).is_ok() => return Some(whole as u32),
                Some(_) => "is too large; at most 4294967295",
                None => "is not a whole number of at most 4294967295",
            },
            Err(NotDecimal::Negative) => "is negative; write a whole number",
            Err(NotDecimal::Syntax) => "is not a number; write a whole number",
        };
        self.wrong(field, format!("{} {cause}", show(value)));
        None
    }

    fn required_length(&mut self, fields: &Fields<'_>, field: &'static str, value: Option<Value<'_>>) -> u32 {
        match value {
            // Said already, with the key that was written.
            None if fields.misspelt.as_ref().is_some_and(|(_, known)| *known == field) => 1,
            // 1 keeps later checks quiet about a row that is refused anyway.
            Some(_) => self.length(field, value).unwrap_or(1),
            None => {
                self.wrong(field, "is missing; every row needs it, in tokens");
                1
            }
        }
    }

    fn hash_ids<'a>(&mut self, value: Option<Value<'a>>) -> Option<(&'a str, u32)> {
        match value? {
            Value::List(inside) => Some((inside, ids::count(inside) as u32)),
            other => {
                self.wrong("hash_ids", format!("{} is not a list of whole numbers", show(other)));
                None
            }
        }
    }

    fn lengths(&mut self, row: &RawRow<'_>) {
        if row.input_length == 0 {
            self.wrong("input_length", "is 0; a request has at least 1 prompt token, remove the row");
        }
        for (field, tokens) in [("input_length", row.input_length), ("output_length", row.output_length)] {
            if tokens > MOST_TOKENS {
                self.wrong(field, format!("{tokens} is above the limit of {MOST_TOKENS} tokens; correct the length"));
            }
        }
        if let Some(cached) = row.cached_tokens.filter(|&cached| cached > row.input_length) {
            self.wrong("cached_tokens", format!("{cached} exceeds the prompt of {} tokens", row.input_length));
        }
    }
}

/// A value for a message, cut when long.
fn show(value: Value<'_>) -> String {
    let (open, text, close) = match value {
        Value::Text(text) => ("\"", text, "\""),
        Value::Bare(text) | Value::Object(text) => ("", text, ""),
        Value::List(text) => ("[", text, "]"),
    };
    const LONGEST: usize = 40;
    let mut chars = text.chars();
    let start: String = chars.by_ref().take(LONGEST).collect();
    let dots = if chars.next().is_some() { "…" } else { "" };
    format!("{open}{start}{dots}{close}")
}
