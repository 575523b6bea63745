//! The headline figures of a run, as `sweep.json` and `sweep.parquet` have them.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};

use super::{Figure, RunFigure};
use crate::results::{Metric, Percentile, RunSummary};

/// Figures by name, since they are named in many places.
macro_rules! named {
    ($($name:ident = $figure:expr;)+) => {
        impl Figure {
            $(#[doc = concat!("`", stringify!($figure), "`.")] pub const $name: Figure = $figure;)+
        }
    };
}

named! {
    COMPLETED = Figure::Run(RunFigure::Completed);
    BAD_SHARE = Figure::Run(RunFigure::BadShare);
    MEAN_E2E = Figure::Mean(Metric::E2e);
    P50_TTFT = Figure::percentile(Metric::Ttft, Percentile::P50);
    P99_TTFT = Figure::percentile(Metric::Ttft, Percentile::P99);
    P50_E2E = Figure::percentile(Metric::E2e, Percentile::P50);
    P99_E2E = Figure::percentile(Metric::E2e, Percentile::P99);
    REQUEST_THROUGHPUT = Figure::Run(RunFigure::RequestThroughput);
    REQUEST_GOODPUT = Figure::Run(RunFigure::RequestGoodput);
    SLO_ATTAINMENT = Figure::Run(RunFigure::SloAttainment);
    OUTPUT_THROUGHPUT = Figure::Run(RunFigure::OutputThroughput);
    DIRECT_SHARE = Figure::Run(RunFigure::DirectShare);
    STARVED_SESSIONS = Figure::Run(RunFigure::StarvedSessions);
    JAIN_MEAN_E2E = Figure::Run(RunFigure::JainMeanE2e);
}

impl Figure {
    /// The headline figures, in the order of tables and columns.
    pub const HEADLINE: [Figure; 24] = [
        Figure::COMPLETED,
        Figure::BAD_SHARE,
        Figure::Mean(Metric::Ttft),
        Figure::P50_TTFT,
        Figure::percentile(Metric::Ttft, Percentile::P90),
        Figure::P99_TTFT,
        Figure::with_failures(Metric::Ttft, Percentile::P99),
        Figure::MEAN_E2E,
        Figure::P50_E2E,
        Figure::percentile(Metric::E2e, Percentile::P90),
        Figure::P99_E2E,
        Figure::with_failures(Metric::E2e, Percentile::P50),
        Figure::with_failures(Metric::E2e, Percentile::P90),
        Figure::with_failures(Metric::E2e, Percentile::P99),
        Figure::REQUEST_THROUGHPUT,
        Figure::REQUEST_GOODPUT,
        Figure::SLO_ATTAINMENT,
        Figure::OUTPUT_THROUGHPUT,
        Figure::Run(RunFigure::Duration),
        Figure::DIRECT_SHARE,
        Figure::STARVED_SESSIONS,
        Figure::Run(RunFigure::GiniMeanE2e),
        Figure::JAIN_MEAN_E2E,
        Figure::Run(RunFigure::Bimodality),
    ];
}

/// The headline figures of one run; null where the run does not have one.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Figures([Option<f64>; Figure::HEADLINE.len()]);

impl Figures {
    /// Of the JSON of a summary, as `summary.json` has it.
    pub fn of(summary: &Value) -> Figures {
        Figures(Figure::HEADLINE.map(|figure| figure.in_json(summary)))
    }

    /// Of a summary.
    pub fn of_summary(summary: &RunSummary) -> Figures {
        Figures(Figure::HEADLINE.map(|figure| figure.in_summary(summary)))
    }

    /// Without those that depend on objectives.
    pub fn forget_goodput(&mut self) {
        for figure in [Figure::REQUEST_GOODPUT, Figure::SLO_ATTAINMENT] {
            if let Some(at) = Figure::HEADLINE.iter().position(|known| *known == figure) {
                self.0[at] = None;
            }
        }
    }

    /// One of them; `None` for a figure that is no headline one, too.
    pub fn get(&self, figure: Figure) -> Option<f64> {
        Figure::HEADLINE.iter().position(|known| *known == figure).and_then(|at| self.0[at])
    }
}

impl Serialize for Figures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (figure, value) in Figure::HEADLINE.iter().zip(&self.0) {
            map.serialize_entry(&figure.to_string(), value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Figures {
    /// What is missing is null: a file of an earlier version.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Figures, D::Error> {
        let map = Map::<String, Value>::deserialize(deserializer)?;
        let mut figures = Figures::default();
        for (figure, place) in Figure::HEADLINE.iter().zip(&mut figures.0) {
            let key = figure.to_string();
            *place = match map.get(&key) {
                None | Some(Value::Null) => None,
                Some(value) => {
                    Some(value.as_f64().ok_or_else(|| Error::custom(format!("{key}: {value} is no number")))?)
                }
            };
        }
        Ok(figures)
    }
}

impl JsonSchema for Figures {
    fn schema_name() -> Cow<'static, str> {
        "Figures".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let property = |figure: Figure| {
            let schema = json!({ "description": figure.meaning(), "type": ["number", "null"], "default": null });
            (figure.to_string(), schema)
        };
        json_schema!({
            "description": "The headline figures of one run; null where the run does not have one.",
            "type": "object",
            "properties": Map::from_iter(Figure::HEADLINE.map(property)),
        })
    }
}

impl Serialize for Figure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Figure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Figure, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(|_| Error::custom(format!("no figure is named `{name}`")))
    }
}

impl JsonSchema for Figure {
    fn schema_name() -> Cow<'static, str> {
        "Figure".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let one =
            |figure: Figure| json!({ "const": figure.to_string(), "description": figure.meaning(), "type": "string" });
        json_schema!({
            "description": "A headline figure, by its key.",
            "oneOf": Figure::HEADLINE.map(one),
        })
    }
}
