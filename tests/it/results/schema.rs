//! The JSON Schemas in `docs/` are those of the code, and what is written keeps them.
//!
//! `PDREPLAY_BLESS=1` rewrites the files.

use pdreplay::results::diff::DiffReport;
use pdreplay::results::{RunSummary, request_schema};
use serde_json::Value;

use super::story::story;
use super::{json, request, summarise};

fn check_file(name: &str, schema: Value) {
    let path = format!("{}/docs/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = format!("{schema:#}\n");
    if std::env::var_os("PDREPLAY_BLESS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == text, "{name} is not the schema of the code; PDREPLAY_BLESS=1 rewrites it");
}

#[test]
fn the_schemas_in_the_documents_are_current() {
    check_file("summary.schema.json", RunSummary::schema().to_value());
    check_file("request.schema.json", request_schema().to_value());
    check_file("diff.schema.json", DiffReport::schema().to_value());
}

#[test]
fn a_summary_keeps_its_schema() {
    let schema = RunSummary::schema().to_value();
    for summary in [story().summary(), summarise(&[]), summarise(&[request("s", 1, 0, 1.0, 2.0)])] {
        let problems = problems(&json(&summary), &schema, &schema, "");
        assert!(problems.is_empty(), "{problems:#?}");
    }
}

#[test]
fn a_record_keeps_its_schema() {
    let schema = request_schema().to_value();
    let record = serde_json::to_value(request("s", 1, 0, 1.0, 2.0)).unwrap();
    assert_eq!(problems(&record, &schema, &schema, ""), Vec::<String>::new());
}

#[test]
fn the_walker_sees_what_breaks_a_schema() {
    let schema = request_schema().to_value();
    let mut record = serde_json::to_value(request("s", 1, 0, 1.0, 2.0)).unwrap();
    record["turn_id"] = "one".into();
    record["outcome"] = "fine".into();
    record.as_object_mut().unwrap().remove("request_id");
    let found = problems(&record, &schema, &schema, "").join("\n");
    for part in ["/turn_id", "/outcome", "request_id is missing"] {
        assert!(found.contains(part), "{found}");
    }
}

/// Violations of the keywords our schemas use.
pub fn problems(value: &Value, schema: &Value, root: &Value, at: &str) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(name) = schema["$ref"].as_str() {
        let target = root.pointer(name.trim_start_matches('#')).unwrap();
        found.extend(problems(value, target, root, at));
    }
    if !schema["type"].is_null() && !type_names(schema).any(|name| has_type(value, name)) {
        found.push(format!("{at}: {value} is not {}", schema["type"]));
    }
    let allowed = schema["enum"].as_array();
    if allowed.is_some_and(|allowed| !allowed.contains(value))
        || schema.get("const").is_some_and(|wanted| wanted != value)
        || schema["minimum"].as_f64().is_some_and(|least| value.as_f64().is_some_and(|number| number < least))
    {
        found.push(format!("{at}: {value} is not allowed"));
    }
    for key in ["anyOf", "oneOf"] {
        let Some(choices) = schema[key].as_array() else { continue };
        let fits = choices.iter().filter(|choice| problems(value, choice, root, at).is_empty()).count();
        if fits == 0 || (key == "oneOf" && fits > 1) {
            found.push(format!("{at}: {fits} of {key} fit {value}"));
        }
    }
    found.extend(object_problems(value, schema, root, at));
    let items = value.as_array().filter(|_| schema["items"].is_object()).into_iter().flatten().enumerate();
    found.extend(items.flat_map(|(ix, item)| problems(item, &schema["items"], root, &format!("{at}/{ix}"))));
    found
}

fn object_problems(value: &Value, schema: &Value, root: &Value, at: &str) -> Vec<String> {
    let Some(object) = value.as_object() else { return Vec::new() };
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut found: Vec<String> =
        required.filter(|key| !object.contains_key(*key)).map(|key| format!("{at}: {key} is missing")).collect();
    for (key, value) in object {
        let at = format!("{at}/{key}");
        if let Some(part) = schema["properties"].get(key) {
            found.extend(problems(value, part, root, &at));
        } else if at.ends_with("_ms") && !value.is_number() && !value.is_null() {
            found.push(format!("{at}: {value} is no length"));
        }
    }
    found
}

fn type_names(schema: &Value) -> impl Iterator<Item = &str> {
    let one = schema["type"].as_str().into_iter();
    one.chain(schema["type"].as_array().into_iter().flatten().filter_map(Value::as_str))
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        other => panic!("{other} is a type this walker does not know"),
    }
}
