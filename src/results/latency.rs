//! The latencies of a run: which there are, over which requests each is taken, and their keys in `summary.json`.
//!
//! Keys follow vLLM's benchmark: `mean_ttft_ms`, `median_ttft_ms`, `std_ttft_ms`, `p99_ttft_ms`. Beside them stand
//! `n_ttft` and `n_excluded_ttft`, and for what a client sees `p99_ttft_ms_with_failures`, where a failed request counts as
//! endless and null means "not reached".

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::seen::Seen;
use super::{Distribution, Percentile, Percentiles};
use crate::protocol::TokenRun;
use crate::record::RequestRecord;

/// What to know of token gaps, wherever their maximum is shown.
pub const ITL_NOTE: &str = "ITL is counted by token: tokens that arrive in one event have gaps of 0 between them, so its median may \
                            be 0, and its maximum is the longest wait between two events, not the time of one token.";

/// One latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Metric {
    /// Time to the first token.
    Ttft,
    /// Mean time per output token after the first.
    Tpot,
    /// Gap between token arrivals, by token.
    Itl,
    /// Send to end.
    E2e,
    /// Scheduled send to the first token.
    SchedTtft,
    /// Scheduled send to the end.
    SchedE2e,
    /// Waited for the session's previous turn.
    WaitPreviousTurn,
    /// Waited for a slot of the replayer.
    QueueCapWait,
    /// The harness's own delay.
    ScheduleLag,
    /// Policy, admission and open calls.
    Admission,
    /// Queue before the prefill.
    PrefillQueue,
    /// Prefill.
    Prefill,
    /// Link time of the KV transfer.
    KvTransfer,
    /// Waits on D: for room, and from the KV's arrival to the first token.
    DecodeQueue,
}

impl Metric {
    /// Every latency, in the order of the summary.
    pub const ALL: [Metric; 14] = [
        Metric::Ttft,
        Metric::Tpot,
        Metric::Itl,
        Metric::E2e,
        Metric::SchedTtft,
        Metric::SchedE2e,
        Metric::WaitPreviousTurn,
        Metric::QueueCapWait,
        Metric::ScheduleLag,
        Metric::Admission,
        Metric::PrefillQueue,
        Metric::Prefill,
        Metric::KvTransfer,
        Metric::DecodeQueue,
    ];

    /// Name inside a key.
    pub fn as_str(self) -> &'static str {
        match self {
            Metric::Ttft => "ttft",
            Metric::Tpot => "tpot",
            Metric::Itl => "itl",
            Metric::E2e => "e2e",
            Metric::SchedTtft => "sched_ttft",
            Metric::SchedE2e => "sched_e2e",
            Metric::WaitPreviousTurn => "wait_previous_turn",
            Metric::QueueCapWait => "queue_cap_wait",
            Metric::ScheduleLag => "schedule_lag",
            Metric::Admission => "admission",
            Metric::PrefillQueue => "prefill_queue",
            Metric::Prefill => "prefill",
            Metric::KvTransfer => "kv_transfer",
            Metric::DecodeQueue => "decode_queue",
        }
    }

    /// Name for people.
    pub fn title(self) -> &'static str {
        match self {
            Metric::Ttft => "TTFT (first token)",
            Metric::Tpot => "TPOT (per output token)",
            Metric::Itl => "ITL (gap between tokens)",
            Metric::E2e => "E2E (send to end)",
            Metric::SchedTtft => "TTFT from the scheduled time",
            Metric::SchedE2e => "E2E from the scheduled time",
            Metric::WaitPreviousTurn => "wait for the previous turn",
            Metric::QueueCapWait => "wait for a slot of the replayer",
            Metric::ScheduleLag => "schedule lag",
            Metric::Admission => "admission and open calls",
            Metric::PrefillQueue => "queue before the prefill",
            Metric::Prefill => "prefill",
            Metric::KvTransfer => "KV transfer",
            Metric::DecodeQueue => "waits on D",
        }
    }

    /// What a client sees of an answer: it is also given with failures as endless.
    pub fn has_failures_form(self) -> bool {
        match self {
            Metric::Ttft | Metric::Tpot | Metric::E2e | Metric::SchedTtft | Metric::SchedE2e => true,
            Metric::Itl
            | Metric::WaitPreviousTurn
            | Metric::QueueCapWait
            | Metric::ScheduleLag
            | Metric::Admission
            | Metric::PrefillQueue
            | Metric::Prefill
            | Metric::KvTransfer
            | Metric::DecodeQueue => false,
        }
    }

    /// A wait before the send: taken over every request sent, whatever became of it.
    fn precedes_send(self) -> bool {
        match self {
            Metric::WaitPreviousTurn | Metric::QueueCapWait | Metric::ScheduleLag => true,
            Metric::Ttft
            | Metric::Tpot
            | Metric::Itl
            | Metric::E2e
            | Metric::SchedTtft
            | Metric::SchedE2e
            | Metric::Admission
            | Metric::PrefillQueue
            | Metric::Prefill
            | Metric::KvTransfer
            | Metric::DecodeQueue => false,
        }
    }

    /// Its value in a record; token gaps are not in the record.
    pub(super) fn of(self, record: &RequestRecord) -> Option<f64> {
        match self {
            Metric::Ttft => record.ttft_ms,
            Metric::Tpot => record.tpot_ms,
            Metric::Itl => None,
            Metric::E2e => record.e2e_ms,
            Metric::SchedTtft => record.sched_ttft_ms,
            Metric::SchedE2e => record.sched_e2e_ms,
            Metric::WaitPreviousTurn => record.wait_previous_turn_ms,
            Metric::QueueCapWait => record.queue_cap_wait_ms,
            Metric::ScheduleLag => record.schedule_lag_ms,
            Metric::Admission => record.admission_ms,
            Metric::PrefillQueue => record.prefill_queue_ms,
            Metric::Prefill => record.prefill_ms,
            Metric::KvTransfer => record.kv_transfer_ms,
            Metric::DecodeQueue => record.decode_queue_ms,
        }
    }
}

impl Metric {
    /// The column of its values; token gaps have none.
    pub(super) fn column(self) -> Option<&'static str> {
        match self {
            Metric::Ttft => Some("ttft_ms"),
            Metric::Tpot => Some("tpot_ms"),
            Metric::Itl => None,
            Metric::E2e => Some("e2e_ms"),
            Metric::SchedTtft => Some("sched_ttft_ms"),
            Metric::SchedE2e => Some("sched_e2e_ms"),
            Metric::WaitPreviousTurn => Some("wait_previous_turn_ms"),
            Metric::QueueCapWait => Some("queue_cap_wait_ms"),
            Metric::ScheduleLag => Some("schedule_lag_ms"),
            Metric::Admission => Some("admission_ms"),
            Metric::PrefillQueue => Some("prefill_queue_ms"),
            Metric::Prefill => Some("prefill_ms"),
            Metric::KvTransfer => Some("kv_transfer_ms"),
            Metric::DecodeQueue => Some("decode_queue_ms"),
        }
    }
}

/// Gathers all latencies of a run.
#[derive(Debug)]
pub(super) struct LatencyTally {
    counted: Vec<Distribution>,
    excluded: [u64; Metric::ALL.len()],
    failures: u64,
}

impl LatencyTally {
    pub(super) fn new() -> Self {
        let counted = Metric::ALL.iter().map(|_| Distribution::new()).collect();
        LatencyTally { counted, excluded: [0; Metric::ALL.len()], failures: 0 }
    }

    pub(super) fn add(&mut self, request: &Seen, tokens: &[TokenRun]) {
        let ok = request.outcome.is_ok();
        self.failures += u64::from(super::is_failure(request.outcome));
        for (ix, metric) in Metric::ALL.into_iter().enumerate() {
            let value = request.ns(metric).filter(|_| ok || metric.precedes_send());
            match value {
                Some(ns) => self.counted[ix].add(ns),
                None if metric == Metric::Itl => self.add_gaps(ix, ok, tokens),
                None => self.excluded[ix] += 1,
            }
        }
    }

    fn add_gaps(&mut self, ix: usize, ok: bool, tokens: &[TokenRun]) {
        if !ok {
            let arrived: u64 = tokens.iter().map(|run| u64::from(run.count)).sum();
            self.excluded[ix] += arrived.saturating_sub(1);
            return;
        }
        let mut last = None;
        for run in tokens.iter().filter(|run| run.count > 0) {
            if let Some(last) = last {
                self.counted[ix].add(run.first.since(last).ns());
            }
            let inside = u64::from(run.count) - 1;
            self.counted[ix].add_n(run.step.ns(), inside);
            last = Some(run.first + crate::base::Dur(run.step.ns() * inside));
        }
    }

    pub(super) fn finish(&self, percentiles: &Percentiles) -> Latencies {
        let list: Vec<Percentile> = percentiles.iter().collect();
        let row = |(ix, metric): (usize, Metric)| {
            let counted = &self.counted[ix];
            let with_failures = metric.has_failures_form();
            let adjusted = with_failures.then(|| counted.percentiles_ms(&list, self.failures));
            let plain = counted.percentiles_ms(&list, 0);
            let rungs = list.iter().enumerate().map(|(at, percentile)| Rung {
                percentile: *percentile,
                ms: plain[at],
                with_failures_ms: adjusted.as_ref().and_then(|values| values[at]),
            });
            Latency {
                metric,
                n: counted.n(),
                n_excluded: self.excluded[ix],
                mean_ms: counted.mean_ms(),
                median_ms: counted.percentile_ms(Percentile::P50),
                std_ms: counted.std_ms(),
                min_ms: counted.min_ms(),
                max_ms: counted.max_ms(),
                rungs: rungs.collect(),
            }
        };
        Latencies(Metric::ALL.into_iter().enumerate().map(row).collect())
    }

    pub(super) fn percentile_ms(&self, metric: Metric, percentile: Percentile) -> Option<f64> {
        self.counted[metric as usize].percentile_ms(percentile)
    }
}

/// All latencies of a run; serialises as the flat keys named above.
#[derive(Debug, Clone, PartialEq)]
pub struct Latencies(Vec<Latency>);

/// One latency of a run, milliseconds; `None` where there is nothing to say.
#[derive(Debug, Clone, PartialEq)]
pub struct Latency {
    /// Which.
    pub metric: Metric,
    /// Values counted (requests; for ITL, gaps).
    pub n: u64,
    /// Requests (for ITL, gaps) left out: not ok, or without this value.
    pub n_excluded: u64,
    /// Mean, exact.
    pub mean_ms: Option<f64>,
    /// p50.
    pub median_ms: Option<f64>,
    /// Sample standard deviation.
    pub std_ms: Option<f64>,
    /// Minimum, exact.
    pub min_ms: Option<f64>,
    /// Maximum, exact.
    pub max_ms: Option<f64>,
    /// The percentiles asked for, ascending.
    pub rungs: Vec<Rung>,
}

/// One percentile of a latency.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rung {
    /// Which percentile.
    pub percentile: Percentile,
    /// Over ok requests.
    pub ms: Option<f64>,
    /// With failures as endless; `None`: not reached, or no such form.
    pub with_failures_ms: Option<f64>,
}

impl Latencies {
    /// One latency.
    pub fn of(&self, metric: Metric) -> &Latency {
        &self.0[metric as usize]
    }

    /// The percentiles they are given in.
    pub fn percentiles(&self) -> Percentiles {
        self.0[0].rungs.iter().map(|rung| rung.percentile).collect()
    }
}

impl Latencies {
    /// Takes the token gaps, which no record holds, from an earlier summary of the same run: the `summary` of a
    /// `summary.json`. Gives the percentiles that it does not have.
    pub fn recall_itl(&mut self, summary: &serde_json::Value) -> Vec<Percentile> {
        let itl = &mut self.0[Metric::Itl as usize];
        let number = |key: String| summary.get(key).and_then(serde_json::Value::as_f64);
        let count = |key: &str| summary.get(key).and_then(serde_json::Value::as_u64).unwrap_or(0);
        (itl.n, itl.n_excluded) = (count("n_itl"), count("n_excluded_itl"));
        let statistic = |name: &str| number(format!("{name}_itl_ms"));
        (itl.mean_ms, itl.median_ms, itl.std_ms) = (statistic("mean"), statistic("median"), statistic("std"));
        (itl.min_ms, itl.max_ms) = (statistic("min"), statistic("max"));
        for rung in &mut itl.rungs {
            rung.ms = match rung.percentile {
                Percentile::MIN => itl.min_ms,
                Percentile::P50 => itl.median_ms,
                Percentile::MAX => itl.max_ms,
                percentile => number(format!("{percentile}_itl_ms")),
            };
        }
        let lost = itl.rungs.iter().filter(|rung| itl.n > 0 && rung.ms.is_none());
        lost.map(|rung| rung.percentile).collect()
    }
}

impl Serialize for Latencies {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for latency in &self.0 {
            let name = latency.metric.as_str();
            map.serialize_entry(&format!("n_{name}"), &latency.n)?;
            map.serialize_entry(&format!("n_excluded_{name}"), &latency.n_excluded)?;
            let plain = [
                ("mean", latency.mean_ms),
                ("median", latency.median_ms),
                ("std", latency.std_ms),
                ("min", latency.min_ms),
                ("max", latency.max_ms),
            ];
            for (statistic, value) in plain {
                map.serialize_entry(&format!("{statistic}_{name}_ms"), &value)?;
            }
            for rung in &latency.rungs {
                map.serialize_entry(&format!("{}_{name}_ms", rung.percentile), &rung.ms)?;
            }
            for rung in latency.rungs.iter().filter(|_| latency.metric.has_failures_form()) {
                map.serialize_entry(&format!("{}_{name}_ms_with_failures", rung.percentile), &rung.with_failures_ms)?;
            }
        }
        map.end()
    }
}

impl JsonSchema for Latencies {
    fn schema_name() -> Cow<'static, str> {
        "Latencies".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names = Metric::ALL.map(Metric::as_str).join("|");
        let count = format!("^n_(excluded_)?({names})$");
        let plain = format!("^(mean|median|std|min|max|p[0-9.]+)_({names})_ms$");
        let adjusted = format!("^p[0-9.]+_({names})_ms_with_failures$");
        json_schema!({
            "type": "object",
            "required": Metric::ALL.map(|metric| format!("mean_{}_ms", metric.as_str())),
            "patternProperties": {
                count: { "type": "integer", "minimum": 0 },
                plain: { "type": ["number", "null"], "minimum": 0 },
                adjusted: { "type": ["number", "null"], "minimum": 0 },
            },
        })
    }
}
