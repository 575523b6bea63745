//! [`Vllm`]: what `vllm bench serve --save-result --save-detailed` saves, one JSON object.
//!
//! Source: `vllm/benchmarks/serve.py`, commit 009e6d4a1cd6. Lists have one entry a request that was sent, in seconds;
//! aggregates are those of the summary, in milliseconds. A list is a pass over the records, so that none is held in memory.
//! Left out, because no record holds it: `itls`, `generated_texts`, peaks of one second.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Exporter;
use crate::results::frame::Batch;
use crate::results::{Latency, Metric, RunSummary};

/// A list: its key, the columns it is of beside the send, and its entry for a row.
type List = (&'static str, &'static [&'static str], fn(&Batch, usize) -> Entry<'_>);

const LISTS: [List; 7] = [
    ("input_lens", &["input_tokens"], |batch, row| Entry::Tokens(batch.u32("input_tokens").value(row))),
    // As vLLM counts them: nothing of a request that failed.
    ("output_lens", &["outcome", "output_tokens"], |batch, row| {
        Entry::Tokens(if is_ok(batch, row) { batch.u32("output_tokens").value(row) } else { 0 })
    }),
    ("ttfts", &["ttft_ms"], |batch, row| seconds(batch, "ttft_ms", row)),
    ("latencies", &["e2e_ms"], |batch, row| seconds(batch, "e2e_ms", row)),
    ("start_times", &[], |batch, row| Entry::Seconds(batch.u64("sent_ns").value(row) as f64 / 1e9)),
    ("queue_times", &["queue_cap_wait_ms"], |batch, row| seconds(batch, "queue_cap_wait_ms", row)),
    ("errors", &["outcome", "error_message"], |batch, row| {
        let words = batch.texts("error_message").get(row).or(batch.labels("outcome").get(row));
        Entry::Words(if is_ok(batch, row) { "" } else { words.unwrap_or_default() })
    }),
];

#[derive(Serialize)]
#[serde(untagged)]
enum Entry<'a> {
    Tokens(u32),
    Seconds(f64),
    Words(&'a str),
}

fn is_ok(batch: &Batch, row: usize) -> bool {
    batch.labels("outcome").get(row) == Some("ok")
}

/// Nothing is 0, as in vLLM.
fn seconds<'a>(batch: &Batch, name: &str, row: usize) -> Entry<'a> {
    Entry::Seconds(batch.f64(name).get(row).map_or(0.0, |ms| ms / 1e3))
}

/// See the module.
#[derive(Debug)]
pub struct Vllm {
    head: Map<String, Value>,
    /// Lists begun so far.
    lists: usize,
    /// An entry of the list at hand was written.
    has_entry: bool,
    left_out: u64,
}

impl Vllm {
    /// Of the run with this summary; `started_at` is its start in UTC, as `run.json` has it.
    pub fn new(summary: &RunSummary, started_at: Option<&str>) -> Vllm {
        let mut head = Map::new();
        let mut put = |key: &str, value: Value| {
            if !value.is_null() {
                head.insert(key.into(), value);
            }
        };
        let date = started_at.and_then(compact);
        put("date", json!(date));
        put("endpoint_type", json!("pdreplay"));
        put("backend", json!("pdreplay"));
        put("model_id", json!(summary.run.name));
        put("num_prompts", json!(summary.integrity.planned));
        // The trace sets the times, which is how vLLM writes a trace with times of its own.
        put("request_rate", json!("inf"));
        put("duration", json!(summary.duration));
        put("completed", json!(summary.completed));
        put("failed", json!(summary.failed));
        put("total_input_tokens", json!(summary.total_input_tokens));
        put("total_output_tokens", json!(summary.total_output_tokens));
        put("request_throughput", json!(summary.request_throughput));
        put("request_goodput", json!(summary.request_goodput));
        put("output_throughput", json!(summary.output_throughput));
        put("total_token_throughput", json!(summary.total_token_throughput));
        for (metric, name) in
            [(Metric::Ttft, "ttft"), (Metric::Tpot, "tpot"), (Metric::Itl, "itl"), (Metric::E2e, "e2el")]
        {
            statistics(summary.latencies.of(metric), name).for_each(|(key, value)| put(&key, json!(value)));
        }
        Vllm { head, lists: 0, has_entry: false, left_out: 0 }
    }
}

/// `mean_ttft_ms` and the others, as far as there are any.
fn statistics(latency: &Latency, name: &str) -> impl Iterator<Item = (String, Option<f64>)> {
    let plain = [("mean", latency.mean_ms), ("median", latency.median_ms), ("std", latency.std_ms)];
    let plain = plain.map(|(statistic, value)| (format!("{statistic}_{name}_ms"), value));
    let rungs = latency.rungs.iter().map(|rung| (format!("{}_{name}_ms", rung.percentile), rung.ms));
    plain.into_iter().chain(rungs.collect::<Vec<_>>())
}

/// `20261201-114150` of `2026-12-01T11:41:50Z`.
fn compact(time: &str) -> Option<String> {
    let digits: String = time.chars().take_while(|c| *c != '.').filter(char::is_ascii_digit).collect();
    (digits.len() >= 14).then(|| format!("{}-{}", &digits[..8], &digits[8..14]))
}

impl Exporter for Vllm {
    fn next_pass(&mut self, out: &mut dyn Write) -> io::Result<Option<Vec<&'static str>>> {
        if self.lists == 0 {
            out.write_all(b"{")?;
            for (key, value) in &self.head {
                super::json(out, key)?;
                out.write_all(b": ")?;
                super::json(out, value)?;
                out.write_all(b", ")?;
            }
        } else {
            out.write_all(if self.lists < LISTS.len() { b"], " } else { b"]}\n" })?;
        }
        let Some((key, columns, _)) = LISTS.get(self.lists) else { return Ok(None) };
        write!(out, "\"{key}\": [")?;
        (self.lists, self.has_entry, self.left_out) = (self.lists + 1, false, 0);
        Ok(Some([&["sent_ns"], *columns].concat()))
    }

    fn batch(&mut self, batch: &Batch, out: &mut dyn Write) -> io::Result<()> {
        let (_, _, entry) = LISTS[self.lists - 1];
        let sent = batch.u64("sent_ns");
        for row in 0..batch.rows() {
            if sent.get(row).is_none() {
                self.left_out += 1;
                continue;
            }
            if std::mem::replace(&mut self.has_entry, true) {
                out.write_all(b", ")?;
            }
            super::json(out, &entry(batch, row))?;
        }
        Ok(())
    }

    fn left_out(&self) -> u64 {
        self.left_out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_is_written_as_vllm_does() {
        assert_eq!(compact("2026-12-01T11:41:50.123Z").as_deref(), Some("20261201-114150"));
        assert_eq!(compact("today"), None);
    }
}
