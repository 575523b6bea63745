//! [`Aiperf`]: the `profile_export.jsonl` of ai-dynamo/aiperf, one request a line.
//!
//! Source: `MetricRecordInfo` of aiperf 0.13.0 (`common/models/record_models.py`) and its metric tags. Only keys that the
//! stricter structs of later versions know, too, are written; a key that is null there is left out. Times are nanoseconds since
//! the start of the run. A request never sent has no start, and so no line.

use std::io::{self, Write};

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::{Exporter, json};
use crate::results::frame::Batch;

/// Every line says that this program sent the request and wrote the record.
const TOOL: &str = "pdreplay";

const COLUMNS: [&str; 15] = [
    "session_id",
    "turn_id",
    "request_id",
    "sent_ns",
    "ended_ns",
    "ttft_ms",
    "tpot_ms",
    "e2e_ms",
    "input_tokens",
    "output_tokens",
    "expected_output_tokens",
    "cached_tokens",
    "outcome",
    "error_class",
    "error_message",
];

/// See the module.
#[derive(Debug, Default)]
pub struct Aiperf {
    begun: bool,
    left_out: u64,
}

#[derive(Serialize)]
struct Line<'a> {
    metadata: Metadata<'a>,
    metrics: Metrics,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorDetails<'a>>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    session_num: u32,
    x_request_id: &'a str,
    x_correlation_id: &'a str,
    conversation_id: &'a str,
    turn_index: u32,
    request_start_ns: u64,
    request_end_ns: u64,
    worker_id: &'static str,
    record_processor_id: &'static str,
    benchmark_phase: &'static str,
    was_cancelled: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    cancellation_time_ns: Option<u64>,
}

#[derive(Serialize)]
struct ErrorDetails<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<u32>,
    #[serde(rename = "type")]
    kind: &'a str,
    message: &'a str,
}

/// Metrics by their tags.
#[derive(Default)]
struct Metrics(Vec<(&'static str, Metric)>);

#[derive(Serialize)]
struct Metric {
    value: Number,
    unit: &'static str,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Number {
    Whole(u32),
    Real(f64),
}

impl Metrics {
    fn tokens(&mut self, tag: &'static str, value: Option<u32>) {
        self.0.extend(value.map(|value| (tag, Metric { value: Number::Whole(value), unit: "tokens" })));
    }

    fn real(&mut self, tag: &'static str, value: Option<f64>, unit: &'static str) {
        self.0.extend(value.map(|value| (tag, Metric { value: Number::Real(value), unit })));
    }
}

impl Serialize for Metrics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        self.0.iter().try_for_each(|(tag, metric)| map.serialize_entry(tag, metric))?;
        map.end()
    }
}

impl Exporter for Aiperf {
    fn next_pass(&mut self, _: &mut dyn Write) -> io::Result<Option<Vec<&'static str>>> {
        let is_first = !std::mem::replace(&mut self.begun, true);
        Ok(is_first.then(|| COLUMNS.into_iter().chain(["http_status"]).collect()))
    }

    fn batch(&mut self, batch: &Batch, out: &mut dyn Write) -> io::Result<()> {
        let sent = batch.u64("sent_ns");
        for row in 0..batch.rows() {
            match sent.get(row) {
                Some(sent_ns) => {
                    json(out, &line(batch, row, sent_ns))?;
                    out.write_all(b"\n")?;
                }
                None => self.left_out += 1,
            }
        }
        Ok(())
    }

    fn left_out(&self) -> u64 {
        self.left_out
    }
}

fn line(batch: &Batch, row: usize, sent_ns: u64) -> Line<'_> {
    let sessions = batch.labels("session_id");
    let session = sessions.get(row).unwrap_or_default();
    let outcome = batch.labels("outcome").get(row).unwrap_or_default();
    let is_cancelled = outcome == "cancelled";
    let ended_ns = batch.u64("ended_ns").value(row);
    let error = (outcome != "ok").then(|| ErrorDetails {
        code: batch.u32("http_status").get(row).filter(|status| *status >= 400),
        kind: batch.labels("error_class").get(row).unwrap_or(outcome),
        message: batch.texts("error_message").get(row).unwrap_or(outcome),
    });
    Line {
        metadata: Metadata {
            session_num: sessions.code(row).unwrap_or_default(),
            x_request_id: batch.texts("request_id").get(row).unwrap_or_default(),
            x_correlation_id: session,
            conversation_id: session,
            turn_index: batch.u32("turn_id").value(row),
            request_start_ns: sent_ns,
            request_end_ns: ended_ns,
            worker_id: TOOL,
            record_processor_id: TOOL,
            benchmark_phase: "profiling",
            was_cancelled: is_cancelled,
            cancellation_time_ns: is_cancelled.then_some(ended_ns),
        },
        metrics: metrics(batch, row, error.is_some()),
        error,
    }
}

/// A failed request has its prompt's length and nothing else.
fn metrics(batch: &Batch, row: usize, failed: bool) -> Metrics {
    let mut metrics = Metrics::default();
    let input = batch.u32("input_tokens").get(row);
    if failed {
        metrics.tokens("error_isl", input);
        return metrics;
    }
    let ms = |name: &str| batch.f64(name).get(row);
    metrics.tokens("input_sequence_length", input);
    metrics.tokens("output_sequence_length", batch.u32("output_tokens").get(row));
    metrics.tokens("requested_osl", batch.u32("expected_output_tokens").get(row));
    metrics.tokens("usage_prompt_cache_read_tokens", batch.u32("cached_tokens").get(row));
    metrics.real("time_to_first_token", ms("ttft_ms"), "ms");
    metrics.real("request_latency", ms("e2e_ms"), "ms");
    let gap = ms("tpot_ms");
    metrics.real("inter_token_latency", gap, "ms");
    let rate = gap.filter(|gap| *gap > 0.0).map(|gap| 1e3 / gap);
    metrics.real("output_token_throughput_per_user", rate, "tokens/sec/user");
    metrics
}
