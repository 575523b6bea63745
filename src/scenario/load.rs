//! From text to a frozen [`Scenario`].
//!
//! Merge order, the later wins: built-in defaults, the file (after the files it `extends`), the flags in the order
//! given: the command line passes its own short flags (`--policy`) first and `--set` after them.
//! Each layer is checked where it stands; the whole is checked by [`validate`] with the place of the key to blame.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use serde::Deserialize;
use toml::{Table, Value};

use super::conflicts::resolve_router;
use super::error::{Cause, Located, Origin, ScenarioError};
use super::layer::Layer;
use super::model::Scenario;
use super::schema::{EXTENDS, Kind, Shape};
use super::shipped::{self, SCENARIOS};
use super::sugar;
use super::validate::validate;
use super::validate_live::count_lists;
use crate::base::nearest;

/// Most bytes of a file.
const MOST_BYTES: u64 = 16 << 20;

/// One value given on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overlay {
    /// As the user wrote it, for messages.
    flag: String,
    /// Dotted key.
    key: String,
    /// Its value, TOML or a bare word.
    value: String,
}

impl Overlay {
    /// `--set KEY=VALUE`: dotted keys; the value is TOML, or else a string (`--set policy.name=sticky`).
    pub fn set(assignment: &str) -> Result<Overlay, ScenarioError> {
        let flag = format!("--set {assignment}");
        let parts = assignment.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
        match parts {
            Some((key, value)) if !key.is_empty() && key.split('.').all(|part| !part.is_empty()) => {
                Ok(Overlay { flag, key: key.into(), value: value.into() })
            }
            Some(_) | None => Err(ScenarioError::one(Origin::Flag(flag), Cause::NotAnAssignment(assignment.into()))),
        }
    }

    /// A flag of its own for a key, such as `--policy sticky` for `policy.name`.
    pub fn shorthand(flag: &str, key: &str, value: &str) -> Overlay {
        let shown = match parse_value(value) {
            // A flag that was given again and again.
            Some(Value::Array(all)) => {
                all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(&format!(" {flag} "))
            }
            Some(_) | None => value.to_owned(),
        };
        Overlay { flag: format!("{flag} {shown}"), key: key.into(), value: value.into() }
    }

    /// Where it was written.
    pub(super) fn origin(&self) -> Origin {
        Origin::Flag(self.flag.clone())
    }

    /// The dotted key.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Its value with its place.
    pub(super) fn layer(&self) -> Result<Layer, ScenarioError> {
        let parts: Vec<&str> = self.key.split('.').collect();
        let text = || Value::String(self.value.clone());
        let value = match (Shape::at(&parts).map(Shape::kind), parse_value(&self.value)) {
            // `--set name=42` means the word.
            (Some(Kind::Text | Kind::Words(_)), Some(value)) if !value.is_str() => text(),
            (_, Some(value)) => value,
            (Some(Kind::Whole(..) | Kind::Number | Kind::NumberOrInf), None) if is_too_large(&self.value) => {
                let cause = Cause::BeyondToml { key: self.key.clone(), found: self.value.clone() };
                return Err(ScenarioError::one(self.origin(), cause));
            }
            (Some(Kind::Number | Kind::NumberOrInf), None) if begins_with_point(&self.value) => {
                let cause = Cause::BarePoint { key: self.key.clone(), found: self.value.clone() };
                return Err(ScenarioError::one(self.origin(), cause));
            }
            (_, None) => text(),
        };
        Ok(Layer::single(self.origin(), &self.key, value))
    }
}

/// Loads a scenario: a path, the name of a shipped one, or `None` for the built-in defaults; then the overlays.
/// The result is checked, and its router policies are resolved.
pub fn load(scenario: Option<&str>, overlays: &[Overlay]) -> Result<Scenario, ScenarioError> {
    let mut layer = base(scenario)?;
    for overlay in overlays {
        lay_over(&mut layer, overlay.layer()?)?;
    }
    finish(&layer)
}

/// A scenario before anything is laid over it: see [`load`].
pub(super) fn base(scenario: Option<&str>) -> Result<Layer, ScenarioError> {
    scenario.map_or_else(|| Ok(Layer::default()), |given| read_chain(&Place::of(given)?, &mut Vec::new()))
}

/// Lays values that stand outside a scenario file over one.
pub(super) fn lay_over(layer: &mut Layer, mut over: Layer) -> Result<(), ScenarioError> {
    if over.table.contains_key(EXTENDS) {
        let text = "`extends` belongs into a file; give the file itself as the scenario".into();
        return Err(ScenarioError::one(over.origin(EXTENDS), Cause::Contradiction(text)));
    }
    over.check(Shape::file())?;
    sugar::expand(&mut over, Path::new(""))?;
    layer.merge(over);
    Ok(())
}

/// Loads a scenario from text alone. `file` names it in messages; relative paths start from its folder.
pub fn load_text(file: &str, text: &str) -> Result<Scenario, ScenarioError> {
    let place = Place::File(PathBuf::from(file));
    finish(&resolve(&place, text, &mut vec![place.clone()])?)
}

/// The whole of the layers, checked and frozen.
pub(super) fn finish(layer: &Layer) -> Result<Scenario, ScenarioError> {
    let mut scenario = Scenario::deserialize(Value::Table(layer.table.clone()))
        .map_err(|error| ScenarioError::one(layer.origin(""), Cause::Syntax(error.message().into())))?;
    let blame = |problem: super::Problem| Located { at: layer.origin(&problem.key), cause: Cause::Impossible(problem) };
    let mut problems = count_lists(&mut scenario, |count, list| is_beside(layer, count, list));
    problems.extend(validate(&scenario));
    ScenarioError::check(problems.into_iter().map(blame).collect())?;
    resolve_router(&mut scenario);
    Ok(scenario)
}

/// Whether a count was written where its list is, or on the command line: then it was meant, and must agree. One of a
/// scenario file that a list is laid over later says nothing of the target.
fn is_beside(layer: &Layer, count: &str, list: &str) -> bool {
    let of_file = |origin: Origin| match origin {
        Origin::File { file, .. } => Some(file),
        Origin::BuiltIn | Origin::Flag(_) => None,
    };
    let at = layer.origin(count);
    let together = layer.has(list) && of_file(at.clone()) == of_file(layer.origin(list));
    layer.has(count) && (matches!(at, Origin::Flag(_)) || together)
}

/// Where a scenario's text comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    File(PathBuf),
    Shipped(&'static str),
}

impl Place {
    fn of(given: &str) -> Result<Place, ScenarioError> {
        let path = Path::new(given);
        let shipped = SCENARIOS.iter().find(|(name, _)| *name == given);
        match shipped {
            Some((name, _)) if !path.is_file() => Ok(Place::Shipped(name)),
            None if !path.exists() && path.extension().is_none() && path.components().count() == 1 => {
                let known = shipped::names(SCENARIOS);
                let cause =
                    Cause::UnknownName { what: "scenario", name: given.into(), near: nearest(given, &known), known };
                Err(ScenarioError::one(Origin::Flag(format!("--scenario {given}")), cause))
            }
            None if !path.exists() => match nearest_shipped(path) {
                Some(name) => {
                    let at = Origin::File { file: given.into(), at: None };
                    let remedy =
                        format!("did you mean the shipped scenario {name}? It goes by its name, without `.toml`");
                    Err(ScenarioError::one(at, Cause::Unreadable { cause: "no such file".into(), remedy }))
                }
                None => Ok(Place::File(path.into())),
            },
            Some(_) | None => Ok(Place::File(path.into())),
        }
    }

    /// The place `extends = "…"` names from here.
    fn relative(&self, extends: &str, at: Origin) -> Result<Place, ScenarioError> {
        match self {
            Place::File(path) => {
                let joined = path.parent().unwrap_or(Path::new("")).join(extends);
                Ok(Place::File(plain(&joined)))
            }
            Place::Shipped(_) => {
                let wanted = extends.trim_end_matches(".toml");
                let known = shipped::names(SCENARIOS);
                let near = nearest(wanted, &known);
                let found = SCENARIOS.iter().find(|(name, _)| *name == wanted);
                found.map(|(name, _)| Place::Shipped(name)).ok_or_else(|| {
                    ScenarioError::one(at, Cause::UnknownName { what: "scenario", name: wanted.into(), near, known })
                })
            }
        }
    }

    fn shown(&self) -> String {
        match self {
            Place::File(path) => path.display().to_string(),
            Place::Shipped(name) => format!("{name}.toml"),
        }
    }

    fn folder(&self) -> PathBuf {
        match self {
            Place::File(path) => path.parent().unwrap_or(Path::new("")).into(),
            Place::Shipped(_) => PathBuf::new(),
        }
    }
}

/// The shipped scenario whose file this might be.
fn nearest_shipped(path: &Path) -> Option<String> {
    let stem = path.file_stem()?.to_str()?;
    nearest(stem, &shipped::names(SCENARIOS))
}

/// A place with all it extends, the extended first.
fn read_chain(place: &Place, chain: &mut Vec<Place>) -> Result<Layer, ScenarioError> {
    let text = match place {
        Place::File(path) => read_text(path)?,
        Place::Shipped(name) => shipped::text(SCENARIOS, name).unwrap_or_default().into(),
    };
    chain.push(place.clone());
    resolve(place, &text, chain)
}

fn resolve(place: &Place, text: &str, chain: &mut Vec<Place>) -> Result<Layer, ScenarioError> {
    let mut layer = Layer::from_text(&place.shown(), text)?;
    layer.check(Shape::file())?;
    sugar::expand(&mut layer, &place.folder())?;
    let origin = layer.origin(EXTENDS);
    let Some(Value::String(extends)) = layer.table.remove(EXTENDS) else { return Ok(layer) };
    let base = place.relative(&extends, origin.clone())?;
    if chain.contains(&base) {
        let circle = chain.iter().chain([&base]).map(Place::shown).collect();
        return Err(ScenarioError::one(origin, Cause::Circle(circle)));
    }
    Ok(layer.extending(read_chain(&base, chain)?))
}

/// The text of a scenario or preset file.
pub(super) fn read_text(path: &Path) -> Result<String, ScenarioError> {
    let refuse = |cause: String, remedy: &str| {
        let at = Origin::File { file: path.display().to_string(), at: None };
        ScenarioError::one(at, Cause::Unreadable { cause, remedy: remedy.into() })
    };
    if path.is_dir() {
        return Err(refuse("is a folder, not a scenario file".into(), "name a `.toml` file inside it"));
    }
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST_BYTES + 1).read_to_end(&mut bytes));
    read.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => refuse(
            "no such file".into(),
            "check the path; relative ones start from this file, or from the current folder on the command line",
        ),
        io::ErrorKind::PermissionDenied => refuse("permission denied".into(), "make the file readable"),
        _ => refuse(format!("cannot be read: {error}"), "check the file"),
    })?;
    if bytes.len() as u64 > MOST_BYTES {
        let cause = format!("is larger than {} MiB, which no scenario is", MOST_BYTES >> 20);
        return Err(refuse(cause, "name the `.toml` file of a scenario"));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        refuse(format!("byte {at} is not UTF-8"), "save the file as UTF-8 text")
    })?;
    if text.trim().is_empty() {
        return Err(refuse("is empty".into(), "write a scenario into it, or leave `--scenario` out for the defaults"));
    }
    Ok(text.trim_start_matches('\u{feff}').into())
}

fn parse_value(text: &str) -> Option<Value> {
    let table: Table = format!("v = {text}").parse().ok()?;
    // A value with a line break in it could smuggle in a second key.
    if table.len() == 1 { table.into_iter().next().map(|(_, value)| value) } else { None }
}

/// A number too large for TOML; also hexadecimal and the like.
fn is_too_large(text: &str) -> bool {
    let plain = text.replace('_', "");
    let digits = plain.strip_prefix(['+', '-']).unwrap_or(&plain);
    let based = |prefix: &str, base: u32| {
        digits.strip_prefix(prefix).is_some_and(|rest| !rest.is_empty() && rest.chars().all(|c| c.is_digit(base)))
    };
    let decimal = digits.starts_with(|first: char| first.is_ascii_digit())
        && digits.parse::<f64>().is_ok_and(|number| number >= i64::MAX as f64);
    decimal || based("0x", 16) || based("0o", 8) || based("0b", 2)
}

/// `.5` and `-.5`, which are numbers elsewhere.
fn begins_with_point(text: &str) -> bool {
    text.trim_start_matches(['+', '-']).starts_with('.') && text.parse::<f64>().is_ok()
}

/// The path without `.` and `name/..`, so that a circle is seen; links are left alone.
fn plain(path: &Path) -> PathBuf {
    let mut parts: Vec<Component> = Vec::new();
    for part in path.components() {
        match (part, parts.last()) {
            (Component::CurDir, _) => {}
            (Component::ParentDir, Some(Component::Normal(_))) => {
                parts.pop();
            }
            (part, _) => parts.push(part),
        }
    }
    parts.iter().collect()
}
