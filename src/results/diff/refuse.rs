//! When a comparison would say nothing: other traces, other requests, other time scales.

use serde_json::Value;
use thiserror::Error;

use super::report::{Difference, Forced, ScenarioChange};

/// Where a run comes from; unknown for a file of records.
#[derive(Debug, Clone, PartialEq)]
pub struct Origin {
    /// SHA-256 of the trace.
    pub trace_sha256: String,
    /// Scale of the gaps between sessions; infinite for all at once.
    pub arrival_scale: f64,
    /// Scale of the gaps inside sessions.
    pub think_scale: f64,
    /// The resolved scenario.
    pub scenario: Value,
}

/// Two sides that cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}", .0.iter().map(|forced| forced.text.as_str()).collect::<Vec<_>>().join("; "))]
pub struct Refused(pub Vec<Forced>);

/// Keys that say how often and under which name, not what.
const NOT_COMPARED: [&str; 3] = ["seed", "name", "description"];

/// Digits of a digest that are shown.
const DIGEST_SHOWN: usize = 12;

impl Forced {
    fn new(difference: Difference, text: String) -> Forced {
        let meaningless = match difference {
            Difference::Trace => {
                "no request of one is a request of the other: pairs, intervals, transitions and sessions are left out, and \
                 figures are of all requests of each"
            }
            Difference::Population => {
                "figures are of the requests of both alone; those of whole runs (counts, rates, fairness, starved sessions) \
                 are left out"
            }
            Difference::Repeats => {
                "the runs of a side are no samples of one thing: its figures mix them, and the noise holds what differs between them"
            }
            Difference::TimeScale => {
                "the load differs by itself: rates, duration and times from the schedule are left out, and every other \
                 difference mixes the load with the rest"
            }
        };
        Forced { difference, text, meaningless: meaningless.into() }
    }

    pub(super) fn population(text: String) -> Forced {
        Forced::new(Difference::Population, text)
    }

    pub(super) fn repeats(text: String) -> Forced {
        Forced::new(Difference::Repeats, text)
    }
}

/// What differs between two runs, called `a` and `b`, that a comparison cannot overlook.
pub(super) fn differences((name_a, a): (&str, &Origin), (name_b, b): (&str, &Origin)) -> Vec<Forced> {
    let short = |digest: &str| digest.chars().take(DIGEST_SHOWN).collect::<String>();
    let traces = (a.trace_sha256 != b.trace_sha256).then(|| {
        let (a, b) = (short(&a.trace_sha256), short(&b.trace_sha256));
        Forced::new(Difference::Trace, format!("the traces differ: SHA-256 {a}… in {name_a}, {b}… in {name_b}"))
    });
    let scales = |origin: &Origin| (origin.arrival_scale, origin.think_scale);
    let scale = (scales(a) != scales(b)).then(|| {
        let (a, b) = (scale_words(a), scale_words(b));
        Forced::new(Difference::TimeScale, format!("the time scales differ: {a} in {name_a}, {b} in {name_b}"))
    });
    traces.into_iter().chain(scale).collect()
}

fn scale_words(origin: &Origin) -> String {
    if origin.arrival_scale == origin.think_scale {
        origin.think_scale.to_string()
    } else {
        format!("{} between sessions and {} inside", origin.arrival_scale, origin.think_scale)
    }
}

/// Keys of two scenarios that differ, by name.
pub(super) fn scenario_changes(a: &Value, b: &Value) -> Vec<ScenarioChange> {
    let mut changes = Vec::new();
    compare("", Some(a), Some(b), &mut changes);
    changes.retain(|change| !NOT_COMPARED.contains(&change.key.as_str()));
    changes.sort_by(|x, y| x.key.cmp(&y.key));
    changes
}

fn compare(key: &str, a: Option<&Value>, b: Option<&Value>, changes: &mut Vec<ScenarioChange>) {
    if a == b {
        return;
    }
    let (Some(Value::Object(of_a)), Some(Value::Object(of_b))) = (a, b) else {
        let text = |value: Option<&Value>| value.map(ToString::to_string);
        changes.push(ScenarioChange { key: key.into(), a: text(a), b: text(b) });
        return;
    };
    let inner = |name: &str| if key.is_empty() { name.to_owned() } else { format!("{key}.{name}") };
    of_a.iter().for_each(|(name, value)| compare(&inner(name), Some(value), of_b.get(name), changes));
    let only_b = of_b.iter().filter(|(name, _)| !of_a.contains_key(*name));
    only_b.for_each(|(name, value)| compare(&inner(name), None, Some(value), changes));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_that_differ_are_named_by_their_path() {
        let a = json!({"seed": 1, "admission": {"cap_max": 4, "by": "x"}, "fault": []});
        let b = json!({"seed": 2, "admission": {"cap_max": 16, "by": "x"}, "fault": [{"kind": "kill"}], "new": null});
        let changes = scenario_changes(&a, &b);
        let shown: Vec<_> =
            changes.iter().map(|change| (change.key.as_str(), change.a.as_deref(), change.b.as_deref())).collect();
        assert_eq!(
            shown,
            [
                ("admission.cap_max", Some("4"), Some("16")),
                ("fault", Some("[]"), Some("[{\"kind\":\"kill\"}]")),
                ("new", None, Some("null")),
            ]
        );
    }
}
