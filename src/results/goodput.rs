//! [`Goodput`]: requests that ended ok within every objective, as vLLM's `--goodput` and AIPerf count them.
//!
//! Invariant: a failure is never good. An answer of one token has no time per output token and keeps any objective on it.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Metric;
use super::outcomes::Outcomes;
use super::stats::share;

/// Objectives for each request; null: none.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Slos {
    /// Longest time to the first token, ms.
    pub ttft_ms: Option<f64>,
    /// Longest mean time per output token after the first, ms.
    pub tpot_ms: Option<f64>,
    /// Longest time from send to end, ms.
    pub e2e_ms: Option<f64>,
}

/// What kept the objectives.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
pub struct Goodput {
    /// Objective on the first token, ms; null: none.
    pub ttft_ms: Option<f64>,
    /// Objective on the time per output token, ms; null: none.
    pub tpot_ms: Option<f64>,
    /// Objective on the time from send to end, ms; null: none.
    pub e2e_ms: Option<f64>,
    /// Requests that ended ok within every objective.
    pub good: u64,
    /// Requests that ran to an end, ok or not.
    pub requests: u64,
    /// `good / requests`, 0 to 1; null without requests.
    pub slo_attainment: Option<f64>,
}

/// Text that names no objectives.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}; write METRIC:MS of ttft, tpot and e2el, such as ttft:2000,e2el:60000")]
pub struct SloError(String);

impl Slos {
    /// There are none.
    pub fn is_none(&self) -> bool {
        *self == Slos::default()
    }

    /// Metric, name in vLLM's words and objective, ms, of each that is set.
    pub fn each(&self) -> impl Iterator<Item = (Metric, &'static str, f64)> {
        let all = [
            (Metric::Ttft, "ttft", self.ttft_ms),
            (Metric::Tpot, "tpot", self.tpot_ms),
            (Metric::E2e, "e2el", self.e2e_ms),
        ];
        all.into_iter().filter_map(|(metric, name, ms)| Some((metric, name, ms?)))
    }

    /// Whether a request that ended ok and has these latencies, ns, keeps all of them.
    pub(super) fn keeps(&self, ns: impl Fn(Metric) -> Option<u64>) -> bool {
        self.each().all(|(metric, _, most)| match ns(metric) {
            Some(ns) => ns as f64 <= most * 1e6,
            None => metric == Metric::Tpot,
        })
    }

    /// Of so many good requests.
    pub(super) fn goodput(self, good: u64, outcomes: &Outcomes) -> Option<Goodput> {
        let requests = outcomes.served();
        let Slos { ttft_ms, tpot_ms, e2e_ms } = self;
        let goodput = Goodput { ttft_ms, tpot_ms, e2e_ms, good, requests, slo_attainment: share(good, requests) };
        (!self.is_none()).then_some(goodput)
    }
}

impl Goodput {
    /// Its objectives.
    pub fn slos(&self) -> Slos {
        Slos { ttft_ms: self.ttft_ms, tpot_ms: self.tpot_ms, e2e_ms: self.e2e_ms }
    }
}

impl fmt::Display for Slos {
    /// `ttft:2000 e2el:60000`, as vLLM takes them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> = self.each().map(|(_, name, ms)| format!("{name}:{ms}")).collect();
        f.write_str(&words.join(" "))
    }
}

impl FromStr for Slos {
    type Err = SloError;

    /// `ttft:2000,e2el:60000`, set apart by commas or blanks; `=` stands for `:`, `e2e` for `e2el`.
    fn from_str(text: &str) -> Result<Slos, SloError> {
        let mut slos = Slos::default();
        let parts = text.split(|c: char| c == ',' || c.is_whitespace()).filter(|part| !part.is_empty());
        for part in parts {
            let (name, number) =
                part.split_once([':', '=']).ok_or_else(|| SloError(format!("`{part}` has no limit")))?;
            let place = match name {
                "ttft" => &mut slos.ttft_ms,
                "tpot" => &mut slos.tpot_ms,
                "e2el" | "e2e" => &mut slos.e2e_ms,
                _ => return Err(SloError(format!("no objective is on `{name}`"))),
            };
            let ms = number.parse().ok().filter(|ms: &f64| ms.is_finite() && *ms > 0.0);
            let ms = ms.ok_or_else(|| SloError(format!("`{number}` is no number of milliseconds above 0")))?;
            if place.replace(ms).is_some() {
                return Err(SloError(format!("two objectives are on `{name}`")));
            }
        }
        if slos.is_none() { Err(SloError("no objective is given".into())) } else { Ok(slos) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objectives_are_read_as_vllm_writes_them() {
        let slos: Slos = "ttft:2000 e2el:60000.5".parse().unwrap();
        assert_eq!(slos, Slos { ttft_ms: Some(2000.0), tpot_ms: None, e2e_ms: Some(60000.5) });
        assert_eq!("e2e=60000.5,ttft=2000".parse(), Ok(slos));
        assert_eq!(slos.to_string().parse(), Ok(slos));
        for text in ["", "ttft", "ttft:", "itl:5", "ttft:0", "ttft:-1", "ttft:nan", "ttft:1,ttft:2", "e2e:1 e2el:1"] {
            let error = text.parse::<Slos>().unwrap_err().to_string();
            assert!(error.contains("such as ttft:2000,e2el:60000"), "{text}: {error}");
        }
    }

    #[test]
    fn a_missing_time_per_token_keeps_its_objective_and_nothing_else_that_is_missing_does() {
        let slos: Slos = "ttft:10,tpot:1".parse().unwrap();
        let of = |ttft: Option<u64>, tpot: Option<u64>| {
            slos.keeps(|metric| if metric == Metric::Ttft { ttft } else { tpot })
        };
        assert!(of(Some(10_000_000), None) && of(Some(0), Some(1_000_000)));
        assert!(!of(None, None) && !of(Some(10_000_001), None) && !of(Some(1), Some(1_000_001)));
    }
}
