//! The JSON Schema of a scenario file, and the question asked of it here: what may stand at this key?
//!
//! The schema comes from the configuration types, so a key exists once. Added to it are the keys that only files know
//! ([`EXTENDS`], [`TIME_SCALE`]): they are resolved while loading and are not part of a [`super::Scenario`].

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::model::Scenario;

/// File key: another scenario file this one starts from.
pub(super) const EXTENDS: &str = "extends";
/// File key in `[replay]`: sets both time scales.
pub(super) const TIME_SCALE: &str = "time_scale";

static SCHEMA: LazyLock<Value> = LazyLock::new(build);

/// JSON Schema (draft 2020-12) of a scenario file, for editors.
pub fn schema() -> Value {
    SCHEMA.clone()
}

/// What may stand at a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape(&'static Value);

/// The kinds of value a scenario file has.
#[derive(Debug)]
pub(super) enum Kind {
    Table,
    List(Shape),
    /// An array of fixed length, such as `[tokens, ms]`.
    Tuple(Vec<Shape>),
    /// One of a closed set of words.
    Words(Vec<String>),
    Text,
    Flag,
    /// Whole number, smallest and largest.
    Whole(i64, i64),
    Number,
    /// A number, or the word `inf`.
    NumberOrInf,
}

impl Shape {
    /// The whole file.
    pub(super) fn file() -> Shape {
        Shape(&SCHEMA)
    }

    /// The shape at a dotted path of table keys.
    pub(super) fn at(path: &[&str]) -> Option<Shape> {
        path.iter().try_fold(Shape::file(), |shape, key| shape.key(key))
    }

    /// The shape of a key of this table.
    pub(super) fn key(self, key: &str) -> Option<Shape> {
        self.properties()?.get(key).map(|value| Shape(value).target())
    }

    /// All keys of this table, in order of declaration where the schema keeps it.
    pub(super) fn keys(self) -> Vec<String> {
        self.properties().map(|keys| keys.keys().cloned().collect()).unwrap_or_default()
    }

    /// Keys that must be there.
    pub(super) fn required(self) -> Vec<String> {
        let list = self.0.get("required").and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).map(String::from).collect()
    }

    /// What a value here must be.
    pub(super) fn kind(self) -> Kind {
        let schema = self.target().0;
        if let Some(words) = words(schema) {
            return Kind::Words(words);
        }
        if schema.get("anyOf").is_some() {
            return Kind::NumberOrInf;
        }
        let name = match schema.get("type") {
            Some(Value::String(name)) => name.as_str(),
            // `["integer", "null"]`: TOML has no null, a missing key stands for it.
            Some(Value::Array(names)) => names.first().and_then(Value::as_str).unwrap_or_default(),
            Some(_) | None => "",
        };
        match name {
            "object" => Kind::Table,
            "array" => list_kind(schema),
            "string" => Kind::Text,
            "boolean" => Kind::Flag,
            "integer" => whole(schema),
            "number" => Kind::Number,
            other => unreachable!("a configuration type of kind `{other}`; teach `Kind` about it"),
        }
    }

    fn properties(self) -> Option<&'static Map<String, Value>> {
        self.target().0.get("properties")?.as_object()
    }

    fn target(self) -> Shape {
        match self.0.get("$ref").and_then(Value::as_str) {
            Some(pointer) => Shape(SCHEMA.pointer(pointer.trim_start_matches('#')).unwrap_or(self.0)),
            None => self,
        }
    }
}

fn list_kind(schema: &'static Value) -> Kind {
    match (schema.get("prefixItems").and_then(Value::as_array), schema.get("items")) {
        (Some(items), _) => Kind::Tuple(items.iter().map(Shape).collect()),
        (None, Some(item)) => Kind::List(Shape(item).target()),
        (None, None) => unreachable!("a list without items in a configuration type"),
    }
}

fn words(schema: &Value) -> Option<Vec<String>> {
    if let Some(words) = schema.get("enum").and_then(Value::as_array) {
        return Some(words.iter().filter_map(Value::as_str).map(String::from).collect());
    }
    let variants = schema.get("oneOf")?.as_array()?;
    Some(variants.iter().filter_map(|variant| variant.get("const")?.as_str()).map(String::from).collect())
}

fn whole(schema: &Value) -> Kind {
    let largest = match schema.get("format").and_then(Value::as_str) {
        Some("uint16") => i64::from(u16::MAX),
        Some("uint32") => i64::from(u32::MAX),
        // TOML's own limit; a uint64 does not reach beyond it in a file.
        Some(_) | None => i64::MAX,
    };
    Kind::Whole(0, largest)
}

fn build() -> Value {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let mut schema = generator.root_schema_for::<Scenario>().to_value();
    schema["title"] = json!("pdreplay scenario");
    let extends = json!({
        "description": "Another scenario file this one starts from, relative to this file. Its keys count as written \
                        first; not part of the resolved scenario.",
        "type": "string",
    });
    let time_scale = json!({
        "description": "Sets both `arrival_scale` and `think_scale`; not part of the resolved scenario.",
        "anyOf": [{ "type": "number" }, { "type": "string", "const": "inf" }],
    });
    schema["properties"][EXTENDS] = extends;
    schema["$defs"]["ReplayConfig"]["properties"][TIME_SCALE] = time_scale;
    schema
}
