//! Axes: which scenario key each one moves, and what a value on it says of a scenario.
//!
//! An axis is a dotted scenario key, or one of a few short forms. `topology` sets the worker counts at once; on `dp8` it also
//! chooses mechanism `dp` and a policy that fits it, unless the file says otherwise. `scenario` takes another base.

use std::path::Path;

use toml::Value as Toml;

use super::head::scenario_from;
use super::{Axis, Value};
use crate::base::nearest;
use crate::scenario::error::{Cause, Origin, Problem, ScenarioError};
use crate::scenario::layer::{Layer, found};
use crate::scenario::load::lay_over;
use crate::scenario::schema::{EXTENDS, Kind, Shape, TIME_SCALE};

/// Key of the axis whose values are samples of one point.
pub(super) const SEED: &str = "seed";

/// Short forms, and the keys they set.
const SHORT: [(&str, &[&str]); 8] = [
    ("scenario", &[]),
    ("topology", &["cluster.prefill", "cluster.decode", "cluster.colocated"]),
    ("policy", &["policy.name"]),
    ("mechanism", &["replay.mechanism"]),
    ("cap", &["admission.cap_max"]),
    ("time_scale", &["replay.arrival_scale", "replay.think_scale"]),
    ("concurrency", &["replay.concurrency"]),
    ("max_sessions", &["replay.max_sessions"]),
];

/// What a value says.
#[derive(Debug, Clone)]
pub(super) enum Effect {
    /// Another base scenario, by path or name.
    Base(String, Origin),
    /// Values over the base.
    Over(Layer),
    /// Worker counts, and with them a mechanism and a policy where nothing else gives those.
    Topology {
        /// The counts.
        counts: Layer,
        /// `dp` and its policy, each to be laid below what is said of it elsewhere.
        defaults: Vec<(&'static str, Layer)>,
    },
}

/// The keys that an axis sets.
pub(super) fn sets(key: &str) -> Vec<&str> {
    match SHORT.iter().find(|(short, _)| *short == key) {
        Some((_, keys)) => keys.to_vec(),
        None if key == "replay.time_scale" => sets(TIME_SCALE),
        None => vec![key],
    }
}

/// Refuses a key that nothing reads.
pub(super) fn check_key(key: &str, table: &str, at: &Origin) -> Result<(), ScenarioError> {
    if SHORT.iter().any(|(short, _)| *short == key) {
        return Ok(());
    }
    let parts: Vec<&str> = key.split('.').collect();
    match Shape::at(&parts).filter(|_| key != EXTENDS).map(Shape::kind) {
        Some(Kind::Table) => {
            let inner = Shape::at(&parts).map(Shape::keys).unwrap_or_default();
            let example = inner.first().map(String::as_str).unwrap_or_default();
            let text = format!("`{key}` is a table; name a key in it, such as `{key}.{example}`");
            Err(ScenarioError::one(at.clone(), Cause::Contradiction(text)))
        }
        Some(_) => Ok(()),
        None => {
            let short = SHORT.iter().map(|(short, _)| (*short).to_owned());
            let mut all: Vec<String> = short.clone().collect();
            leaves(Shape::file(), "", &mut all);
            let near = nearest(key, &all);
            let known = short.chain(["any key of a scenario, such as admission.cap_max".to_owned()]).collect();
            let cause = Cause::UnknownKey { key: key.into(), table: table.into(), near, known };
            Err(ScenarioError::one(at.clone(), cause))
        }
    }
}

/// Every dotted key below `shape`.
fn leaves(shape: Shape, path: &str, into: &mut Vec<String>) {
    for key in shape.keys() {
        let full = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        match shape.key(&key) {
            Some(inner) if matches!(inner.kind(), Kind::Table) => leaves(inner, &full, into),
            Some(_) | None => into.push(full),
        }
    }
}

/// A value of `key`, checked as far as that goes alone. Paths start from `folder`.
pub(super) fn value(key: &str, given: &Toml, at: &Origin, folder: &Path) -> Result<Value, ScenarioError> {
    let effect = match (key, given) {
        ("scenario", Toml::String(text)) => Effect::Base(scenario_from(folder, text), at.clone()),
        ("topology", Toml::String(text)) => topology(text, at)?,
        ("scenario" | "topology", other) => {
            let wanted = "a string in quotes".into();
            return Err(ScenarioError::one(
                at.clone(),
                Cause::WrongType { key: key.into(), wanted, found: found(other) },
            ));
        }
        (_, _) => Effect::Over(over(key, given.clone(), at)?),
    };
    Ok(Value { label: label(given), number: number(given), effect })
}

/// The layer of a key with one effect, checked.
pub(super) fn over(key: &str, given: Toml, at: &Origin) -> Result<Layer, ScenarioError> {
    let full = match (key, sets(key).as_slice()) {
        (TIME_SCALE, _) => "replay.time_scale",
        (_, [only]) => only,
        (_, _) => key,
    };
    let layer = Layer::single(at.clone(), full, given);
    // What is wrong with it alone is told now, and once.
    lay_over(&mut Layer::default(), layer.clone())?;
    Ok(layer)
}

/// `2p6d`: prefill and decode workers. `dp8` or `8w`: colocated ones.
fn topology(text: &str, at: &Origin) -> Result<Effect, ScenarioError> {
    let lower = text.to_ascii_lowercase();
    let count = |digits: &str| digits.parse::<u16>().ok().filter(|count| (1..=1024).contains(count));
    let split = lower.strip_suffix('d').and_then(|rest| rest.split_once('p'));
    let pair = split.and_then(|(prefill, decode)| Some((count(prefill)?, count(decode)?)));
    let colocated = lower.strip_prefix("dp").or_else(|| lower.strip_suffix('w')).and_then(count);
    let counts = |prefill: u16, decode: u16, colocated: u16| {
        let keys = [("cluster.prefill", prefill), ("cluster.decode", decode), ("cluster.colocated", colocated)];
        let mut layer = Layer::default();
        for (key, count) in keys {
            layer.merge(Layer::single(at.clone(), key, Toml::Integer(count.into())));
        }
        layer
    };
    let word = |key: &'static str, word: &str| (key, Layer::single(at.clone(), key, Toml::String(word.into())));
    match (pair, colocated) {
        (Some((prefill, decode)), _) => {
            Ok(Effect::Topology { counts: counts(prefill, decode, 0), defaults: Vec::new() })
        }
        (None, Some(workers)) => Ok(Effect::Topology {
            counts: counts(0, 0, workers),
            defaults: vec![word("replay.mechanism", "dp"), word("policy.name", "cache-aware")],
        }),
        (None, None) => {
            let problem = Problem {
                key: "topology".into(),
                cause: format!("is \"{text}\""),
                remedy: "write prefill and decode workers as in 2p6d, or colocated ones as in dp8, 1 to 1024 of each"
                    .into(),
            };
            Err(ScenarioError::one(at.clone(), Cause::Impossible(problem)))
        }
    }
}

/// A value as text: words without quotes, whole floats without their zeros.
pub(super) fn label(value: &Toml) -> String {
    match value {
        Toml::String(text) => text.clone(),
        Toml::Float(number) => number.to_string(),
        other => other.to_string(),
    }
}

fn number(value: &Toml) -> Option<f64> {
    let number = value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64));
    number.filter(|number| number.is_finite())
}

impl Axis {
    /// Position of the value with this label.
    pub(super) fn position(&self, label: &str) -> Option<u32> {
        self.values.iter().position(|value| value.label == label).map(|ix| ix as u32)
    }

    /// Adds a value; one that is there already is refused.
    pub(super) fn push(&mut self, value: Value, at: &Origin) -> Result<(), ScenarioError> {
        if self.position(&value.label).is_some() {
            let text = format!("`{}` has the value {} twice; leave one out", self.key, value.label);
            return Err(ScenarioError::one(at.clone(), Cause::Contradiction(text)));
        }
        self.values.push(value);
        Ok(())
    }
}
