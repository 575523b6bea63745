//! [`Layer`]: one source of values (a file, a preset, a flag), each value with the place it was written.
//!
//! Layers are checked against the schema one by one, while places are exact, then laid over each other: a later layer
//! wins key by key, tables are merged, lists are replaced as a whole.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

use super::error::{Cause, Located, Origin, ScenarioError};
use super::schema::{Kind, Shape};
use crate::base::nearest;

/// Values and where they stand.
#[derive(Debug, Default, Clone)]
pub(super) struct Layer {
    /// The values.
    pub(super) table: Table,
    /// Place of each key by its dotted path (`fault[0].kind` inside lists).
    origins: BTreeMap<String, Origin>,
    /// Place of the whole; `None`: the built-in defaults.
    whole: Option<Origin>,
}

impl Layer {
    /// Reads the text of a file.
    pub(super) fn from_text(file: &str, text: &str) -> Result<Layer, ScenarioError> {
        let place = |offset: Option<usize>| Origin::File {
            file: file.into(),
            at: offset.map(|offset| line_and_column(text, offset)),
        };
        let wrong = |error: toml::de::Error| {
            let mut words = error.message().replace('\n', "; ");
            if words.contains("value was too large") || words.contains("integer number overflowed") {
                words = "whole numbers end at 9223372036854775807; write a smaller one".into();
            }
            let cause = Cause::Syntax(words);
            ScenarioError::one(place(error.span().map(|span| span.start)), cause)
        };
        let spans = DeTable::parse(text).map_err(wrong)?;
        let mut layer = Layer { table: text.parse().map_err(wrong)?, whole: Some(place(None)), ..Layer::default() };
        mark_table(spans.get_ref(), "", &mut |path, offset| {
            layer.origins.insert(path, place(Some(offset)));
        });
        Ok(layer)
    }

    /// A single value that stands outside a scenario file.
    pub(super) fn single(at: Origin, key: &str, value: Value) -> Layer {
        let table = key.rsplit('.').fold(value, |inner, part| Value::Table(Table::from_iter([(part.into(), inner)])));
        let Value::Table(table) = table else { unreachable!("a key has at least one part") };
        Layer { table, origins: BTreeMap::new(), whole: Some(at) }
    }

    /// Where a key, or the nearest table around it, was written.
    pub(super) fn origin(&self, key: &str) -> Origin {
        let mut path = key;
        loop {
            if let Some(origin) = self.origins.get(path) {
                return origin.clone();
            }
            match path.rfind(['.', '[']) {
                Some(end) => path = &path[..end],
                None => return self.whole.clone().unwrap_or(Origin::BuiltIn),
            }
        }
    }

    /// Whether a dotted key was written.
    pub(super) fn has(&self, key: &str) -> bool {
        let mut parts = key.split('.');
        let first = parts.next().and_then(|part| self.table.get(part));
        parts.try_fold(first, |value, part| value.map(|value| value.get(part))).flatten().is_some()
    }

    /// Lays this file's layer on top of that of the file it extends.
    pub(super) fn extending(self, mut base: Layer) -> Layer {
        base.whole = self.whole.clone();
        base.merge(self);
        base
    }

    /// Lays `over` on top of this layer.
    pub(super) fn merge(&mut self, over: Layer) {
        let mut replaced = Vec::new();
        merge_table(&mut self.table, &over.table, "", &mut replaced);
        for (path, is_list) in replaced {
            if is_list {
                let prefix = format!("{path}[");
                self.origins.retain(|known, _| !known.starts_with(&prefix));
            }
            self.origins.insert(path.clone(), over.origin(&path));
        }
        for (path, origin) in over.origins {
            // Inside lists; tables keep their first place.
            if path.contains('[') {
                self.origins.insert(path, origin);
            }
        }
    }

    /// The table at a path, when it is there.
    pub(super) fn table_at(&mut self, path: &[&str]) -> Option<&mut Table> {
        path.iter().try_fold(&mut self.table, |table, key| table.get_mut(*key)?.as_table_mut())
    }

    /// Every key known, every value of the right kind.
    pub(super) fn check(&self, shape: Shape) -> Result<(), ScenarioError> {
        let mut problems = Vec::new();
        self.check_table(&self.table, shape, "", &mut problems);
        ScenarioError::check(problems)
    }

    fn check_table(&self, table: &Table, shape: Shape, path: &str, problems: &mut Vec<Located>) {
        let mut report = |key: &str, cause| problems.push(Located { at: self.origin(key), cause });
        for key in shape.required().into_iter().filter(|key| !table.contains_key(key)) {
            let remedy = match shape.key(&key).map(Shape::kind) {
                Some(Kind::Words(words)) => format!("write one of {}", words.join(", ")),
                Some(_) | None => format!("write `{key} = …`"),
            };
            report(path, Cause::Missing { key: join(path, &key), remedy });
        }
        let mut inner = Vec::new();
        for (key, value) in table {
            let full = join(path, key);
            match shape.key(key) {
                Some(known) => inner.push((value, known, full)),
                None => {
                    let known = shape.keys();
                    let near = nearest(key, &known);
                    let table = if path.is_empty() { "the top level".into() } else { format!("[{path}]") };
                    report(&full, Cause::UnknownKey { key: key.clone(), table, near, known });
                }
            }
        }
        for (value, shape, path) in inner {
            self.check_value(value, shape, &path, problems);
        }
    }

    fn check_value(&self, value: &Value, shape: Shape, path: &str, problems: &mut Vec<Located>) {
        let wanted = match (shape.kind(), value) {
            (Kind::Table, Value::Table(table)) => return self.check_table(table, shape, path, problems),
            (Kind::List(item), Value::Array(items)) => {
                for (index, value) in items.iter().enumerate() {
                    self.check_value(value, item, &format!("{path}[{index}]"), problems);
                }
                return;
            }
            (Kind::Tuple(shapes), Value::Array(items)) if shapes.len() == items.len() => {
                for (index, (value, item)) in items.iter().zip(shapes).enumerate() {
                    self.check_value(value, item, &format!("{path}[{index}]"), problems);
                }
                return;
            }
            (Kind::Words(allowed), Value::String(word)) => {
                if !allowed.contains(word) {
                    let near = nearest(word, &allowed);
                    let cause = Cause::NotOneOf { key: path.into(), found: word.clone(), near, allowed };
                    problems.push(Located { at: self.origin(path), cause });
                }
                return;
            }
            (Kind::Whole(least, most), Value::Integer(n)) if (least..=most).contains(n) => return,
            (Kind::Text, Value::String(_))
            | (Kind::Flag, Value::Boolean(_))
            | (Kind::Number | Kind::NumberOrInf, Value::Float(_) | Value::Integer(_)) => return,
            (Kind::NumberOrInf, Value::String(word)) if word == "inf" => return,
            (kind, _) => kind.wanted(),
        };
        let cause = Cause::WrongType { key: path.into(), wanted, found: found(value) };
        problems.push(Located { at: self.origin(path), cause });
    }
}

impl Kind {
    /// In words, for "must be …".
    fn wanted(self) -> String {
        match self {
            Kind::Table => "a table".into(),
            Kind::List(_) => "a list".into(),
            Kind::Tuple(items) => format!("a list of {} values", items.len()),
            Kind::Words(words) => format!("one of {}", words.join(", ")),
            Kind::Text => "a string in quotes".into(),
            Kind::Flag => "true or false".into(),
            Kind::Whole(least, i64::MAX) => format!("a whole number of at least {least}, without quotes"),
            Kind::Whole(least, most) => format!("a whole number from {least} to {most}, without quotes"),
            Kind::Number => "a number, without quotes".into(),
            Kind::NumberOrInf => "a number or inf".into(),
        }
    }
}

/// A value in words, for "is …".
pub(super) fn found(value: &Value) -> String {
    match value {
        Value::String(text) => format!("the string \"{text}\""),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => format!("{number:?}"),
        Value::Boolean(flag) => flag.to_string(),
        Value::Datetime(when) => format!("the date {when}"),
        Value::Array(items) => format!("a list of {}", items.len()),
        Value::Table(_) => "a table".into(),
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.into() } else { format!("{path}.{key}") }
}

fn merge_table(into: &mut Table, over: &Table, path: &str, replaced: &mut Vec<(String, bool)>) {
    for (key, value) in over {
        let full = join(path, key);
        match (into.get_mut(key), value) {
            (Some(Value::Table(inner)), Value::Table(over)) => merge_table(inner, over, &full, replaced),
            (None, Value::Table(over)) => {
                let mut inner = Table::new();
                merge_table(&mut inner, over, &full, replaced);
                into.insert(key.clone(), Value::Table(inner));
            }
            (_, value) => {
                replaced.push((full, value.is_array()));
                into.insert(key.clone(), value.clone());
            }
        }
    }
}

fn mark_table(table: &DeTable<'_>, path: &str, mark: &mut dyn FnMut(String, usize)) {
    for (key, value) in table {
        let full = join(path, key.get_ref());
        mark(full.clone(), key.span().start);
        mark_value(value, &full, mark);
    }
}

fn mark_value(value: &Spanned<DeValue<'_>>, path: &str, mark: &mut dyn FnMut(String, usize)) {
    if let Some(table) = value.get_ref().as_table() {
        mark_table(table, path, mark);
    }
    for (index, item) in value.get_ref().as_array().into_iter().flat_map(|list| list.iter()).enumerate() {
        let full = format!("{path}[{index}]");
        mark(full.clone(), item.span().start);
        mark_value(item, &full, mark);
    }
}

fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let mut end = offset.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let before = &text[..end];
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}
