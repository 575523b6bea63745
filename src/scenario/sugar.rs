//! Keys that stand for others: `preset` for a table's constants, `replay.time_scale` for the two scales.
//!
//! Each is expanded inside the layer that says it, before layers are merged. So a preset sets all its constants at its
//! layer, keys beside it override single ones, and a later layer overrides either.

use std::path::Path;

use toml::{Table, Value};

use super::error::{Cause, Origin, ScenarioError};
use super::layer::Layer;
use super::load::read_text;
use super::schema::{Shape, TIME_SCALE};
use super::shipped::{self, Embedded};
use super::validate_range::time_scale;
use crate::base::nearest;

struct PresetTable {
    what: &'static str,
    path: [&'static str; 2],
    shipped: &'static [Embedded],
}

const PRESETS: [PresetTable; 2] = [
    PresetTable { what: "timing preset", path: ["engine", "timing"], shipped: shipped::TIMINGS },
    PresetTable { what: "link preset", path: ["cluster", "link"], shipped: shipped::LINKS },
];

/// Expands the keys of a checked layer. Paths of preset files are relative to `folder`.
pub(super) fn expand(layer: &mut Layer, folder: &Path) -> Result<(), ScenarioError> {
    for preset in &PRESETS {
        expand_preset(layer, preset, folder)?;
    }
    expand_time_scale(layer)
}

fn expand_preset(layer: &mut Layer, preset: &PresetTable, folder: &Path) -> Result<(), ScenarioError> {
    let origin = layer.origin(&format!("{}.preset", preset.path.join(".")));
    let Some(table) = layer.table_at(&preset.path) else { return Ok(()) };
    let Some(Value::String(name)) = table.get("preset").cloned() else { return Ok(()) };
    let constants = constants(preset);
    // A resolved scenario states every constant: it must load where the preset's file is not at hand.
    if name.ends_with(".toml") && constants.iter().all(|key| table.contains_key(key)) {
        return Ok(());
    }
    let values = read_preset(preset, &name, folder, origin, &constants)?;
    for (key, value) in values {
        table.entry(key).or_insert(value);
    }
    Ok(())
}

fn read_preset(
    preset: &PresetTable,
    name: &str,
    folder: &Path,
    origin: Origin,
    constants: &[String],
) -> Result<Table, ScenarioError> {
    let file = if name.ends_with(".toml") {
        let path = folder.join(name);
        let shown = path.display().to_string();
        Layer::from_text(&shown, &read_text(&path)?)?
    } else if let Some(text) = shipped::text(preset.shipped, name) {
        Layer::from_text(&format!("{} {name}", preset.what), text)?
    } else {
        let known = shipped::names(preset.shipped);
        let near = nearest(name, &known);
        return Err(ScenarioError::one(
            origin,
            Cause::UnknownName { what: preset.what, name: name.into(), near, known },
        ));
    };
    let shape = Shape::at(&preset.path).expect("preset tables are tables of a scenario");
    file.check(shape)?;
    if file.table.contains_key("preset") {
        let text = format!("`preset` inside a {} file; write the constants themselves", preset.what);
        return Err(ScenarioError::one(file.origin("preset"), Cause::Contradiction(text)));
    }
    if let Some(key) = constants.iter().find(|key| !file.table.contains_key(*key)) {
        let remedy = format!("a {} file states all of {}", preset.what, constants.join(", "));
        return Err(ScenarioError::one(file.origin(""), Cause::Missing { key: key.clone(), remedy }));
    }
    Ok(file.table)
}

fn constants(preset: &PresetTable) -> Vec<String> {
    let keys = Shape::at(&preset.path).map(Shape::keys).unwrap_or_default();
    keys.into_iter().filter(|key| key != "preset").collect()
}

fn expand_time_scale(layer: &mut Layer) -> Result<(), ScenarioError> {
    const KEY: &str = "replay.time_scale";
    let origin = layer.origin(KEY);
    let Some(replay) = layer.table_at(&["replay"]) else { return Ok(()) };
    let Some(scale) = replay.remove(TIME_SCALE) else { return Ok(()) };
    // Refused here, by the key that was written, and once: not as the two keys it stands for.
    if let Some(problem) = number(&scale).and_then(|scale| time_scale(KEY, scale)) {
        return Err(ScenarioError::one(origin, Cause::Impossible(problem)));
    }
    for key in ["arrival_scale", "think_scale"] {
        if replay.contains_key(key) {
            let text = format!("`replay.time_scale` sets `replay.{key}` too; give `time_scale`, or the two scales");
            return Err(ScenarioError::one(origin, Cause::Contradiction(text)));
        }
        replay.insert(key.into(), scale.clone());
    }
    Ok(())
}

/// A checked time scale, unless it is the word `inf`.
fn number(scale: &Value) -> Option<f64> {
    scale.as_float().or_else(|| scale.as_integer().map(|whole| whole as f64))
}

#[cfg(test)]
mod tests {
    use super::super::{Overlay, load, load_text};

    #[test]
    fn a_time_scale_is_refused_once_by_the_key_that_was_written() {
        let remedy = "write a number from 1e-6 to 1e9, or inf; 10 is ten times faster, 0.5 half as fast";
        let text = load_text("x.toml", "[replay]\n\ntime_scale = 0").unwrap_err();
        assert_eq!(text.to_string(), format!("x.toml:3:1: `replay.time_scale` is 0; {remedy}"));
        let flag = load(None, &[Overlay::shorthand("--time-scale", "replay.time_scale", "-2.5")]).unwrap_err();
        assert_eq!(flag.to_string(), format!("--time-scale -2.5: `replay.time_scale` is -2.5; {remedy}"));
        assert_eq!(load_text("x.toml", "replay.time_scale = 'inf'").unwrap().replay.think_scale, f64::INFINITY);
    }
}
