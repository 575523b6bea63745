//! `GET /metrics`: counters and histograms in Prometheus' text form, under SGLang's names.
//!
//! Times are those of the emulation, in seconds. Owns what is counted at the socket ([`Timings`]); the rest is the node's.

use std::fmt::{Display, Write};

use crate::base::{Dur, Role, Time};
use crate::node::Progress;
use crate::protocol::{Finish, Phases};

use super::owner::Look;

/// SGLang's bounds, seconds.
const FIRST_TOKEN: &[f64] =
    &[0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0];
const BETWEEN_TOKENS: &[f64] = &[
    0.002, 0.004, 0.006, 0.008, 0.010, 0.015, 0.020, 0.025, 0.030, 0.035, 0.040, 0.060, 0.080, 0.100, 0.200, 0.400,
    0.600, 0.800, 1.0, 2.0, 4.0, 6.0, 8.0,
];
const WHOLE: &[f64] = &[
    0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 200.0, 400.0, 600.0, 1200.0,
    1800.0, 2400.0,
];

/// How many values fell under each bound.
#[derive(Debug, Clone)]
struct Histogram {
    bounds: &'static [f64],
    /// One a bound, and one for all above.
    counts: Vec<u64>,
    sum: f64,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Histogram {
        Histogram { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    fn add(&mut self, value: Dur, times: u64) {
        let seconds = value.as_secs_f64();
        let at = self.bounds.partition_point(|bound| *bound < seconds);
        self.counts[at] += times;
        self.sum += seconds * times as f64;
    }
}

/// What is counted where answers leave.
#[derive(Debug, Clone)]
pub(super) struct Timings {
    first_token: Histogram,
    between_tokens: Histogram,
    whole: Histogram,
    queue: Histogram,
    requests: u64,
    aborted: u64,
    prompt_tokens: u64,
    cached_tokens: u64,
    answer_tokens: u64,
}

impl Default for Timings {
    fn default() -> Timings {
        Timings {
            first_token: Histogram::new(FIRST_TOKEN),
            between_tokens: Histogram::new(BETWEEN_TOKENS),
            whole: Histogram::new(WHOLE),
            queue: Histogram::new(FIRST_TOKEN),
            requests: 0,
            aborted: 0,
            prompt_tokens: 0,
            cached_tokens: 0,
            answer_tokens: 0,
        }
    }
}

impl Timings {
    /// `count` tokens of a request that began at `began` and had its last one at `before`.
    pub fn tokens(&mut self, now: Time, began: Time, before: Option<Time>, count: usize) {
        let count = count as u64;
        match before {
            Some(before) if count > 0 => self.between_tokens.add(Dur(now.since(before).ns() / count), count),
            None if count > 0 => self.first_token.add(now.since(began), 1),
            Some(_) | None => {}
        }
    }

    /// The end of a request.
    pub fn finished(&mut self, now: Time, began: Time, finish: &Finish, last: &Progress, phases: &Phases) {
        self.requests += 1;
        self.prompt_tokens += u64::from(last.prompt_tokens);
        self.cached_tokens += u64::from(last.cached_tokens);
        self.answer_tokens += u64::from(last.completion_tokens);
        self.aborted += u64::from(matches!(finish, Finish::Abort { .. } | Finish::Error { .. }));
        self.whole.add(now.since(began), 1);
        if let Some(queue) = phases.prefill_queue.or(phases.decode_queue) {
            self.queue.add(queue, 1);
        }
    }
}

/// The text, of a worker of this role that serves `model`.
pub(super) fn render(look: &Look, model: &str, role: Role) -> String {
    let engine = match role {
        Role::Prefill => "prefill",
        Role::Decode => "decode",
        Role::Colocated => "unified",
    };
    let model = model.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let labels = format!("model_name=\"{model}\",engine_type=\"{engine}\",tp_rank=\"0\",pp_rank=\"0\",dp_rank=\"0\"");
    let mut page = Page { text: String::new(), labels };
    gauges(&mut page, look, role);
    let (record, timings) = (&look.record, &look.timings);
    page.counter("num_requests_total", "requests ended", timings.requests);
    page.counter("num_aborted_requests_total", "requests given up", timings.aborted);
    page.counter("num_retracted_requests_total", "requests retracted", record.retractions);
    page.counter("num_transfer_failed_reqs_total", "transfers that failed", record.transfer_errors);
    page.counter("evicted_tokens_total", "tokens evicted from the prefix cache", record.evicted_tokens);
    page.counter("prompt_tokens_total", "prompt tokens of requests ended", timings.prompt_tokens);
    page.counter("generation_tokens_total", "answer tokens of requests ended", timings.answer_tokens);
    page.head("cached_tokens_total", "prompt tokens found in the cache", "counter");
    page.sample("cached_tokens_total", ",cache_source=\"device\"", timings.cached_tokens);
    page.histogram("time_to_first_token_seconds", "arrival to first token", &timings.first_token);
    page.histogram("inter_token_latency_seconds", "between tokens", &timings.between_tokens);
    page.histogram("e2e_request_latency_seconds", "arrival to end", &timings.whole);
    page.histogram("queue_time_seconds", "arrival to start", &timings.queue);
    page.text
}

/// The same for `/v1/loads?format=prometheus`: gauges alone.
pub(super) fn render_loads(look: &Look, role: Role) -> String {
    let mut page = Page { text: String::new(), labels: "dp_rank=\"0\"".into() };
    gauges(&mut page, look, role);
    page.text
}

fn gauges(page: &mut Page, look: &Look, role: Role) {
    let load = &look.load;
    let used = (load.token_usage * load.capacity_tokens as f64).round() as u64;
    page.gauge("token_usage", "used share of the KV pool", load.token_usage);
    page.gauge("num_used_tokens", "used tokens of the KV pool", used);
    page.gauge("max_total_num_tokens", "tokens of the KV pool", load.capacity_tokens);
    page.gauge("kv_available_tokens", "tokens free or evictable", load.capacity_tokens.saturating_sub(used));
    page.gauge("num_running_reqs", "requests running", load.num_running);
    let queued = load.num_waiting + load.num_prealloc + load.num_transfer;
    page.gauge("num_queue_reqs", "requests queued", queued);
    page.gauge("num_streaming_sessions", "sessions open", look.sessions_open);
    if role == Role::Decode {
        page.gauge("num_decode_prealloc_queue_reqs", "decode legs waiting for room", load.num_prealloc);
        page.gauge("num_decode_transfer_queue_reqs", "decode legs waiting for KV", load.num_transfer);
    }
}

struct Page {
    text: String,
    labels: String,
}

impl Page {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        write!(self.text, "# HELP sglang:{name} {help}\n# TYPE sglang:{name} {kind}\n").expect("a String takes all");
    }

    fn sample(&mut self, name: &str, more_labels: &str, value: impl Display) {
        let labels = &self.labels;
        writeln!(self.text, "sglang:{name}{{{labels}{more_labels}}} {value}").expect("a String takes all");
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Display) {
        self.head(name, help, "gauge");
        self.sample(name, "", value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, help, "counter");
        self.sample(name, "", value);
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, help, "histogram");
        let bucket = format!("{name}_bucket");
        let mut below = 0;
        for (count, bound) in histogram.counts.iter().zip(histogram.bounds) {
            below += count;
            self.sample(&bucket, &format!(",le=\"{bound}\""), below);
        }
        let all: u64 = histogram.counts.iter().sum();
        self.sample(&bucket, ",le=\"+Inf\"", all);
        self.sample(&format!("{name}_sum"), "", histogram.sum);
        self.sample(&format!("{name}_count"), "", all);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_counts_what_is_at_or_below_each_bound() {
        let mut page = Page { text: String::new(), labels: "a=\"b\"".into() };
        let mut histogram = Histogram::new(&[0.1, 0.2]);
        histogram.add(Dur::from_millis(100), 2);
        histogram.add(Dur::from_millis(150), 1);
        histogram.add(Dur::from_millis(900), 1);
        page.histogram("x", "y", &histogram);
        let wanted = "# HELP sglang:x y\n# TYPE sglang:x histogram\nsglang:x_bucket{a=\"b\",le=\"0.1\"} 2\n\
                      sglang:x_bucket{a=\"b\",le=\"0.2\"} 3\nsglang:x_bucket{a=\"b\",le=\"+Inf\"} 4\n\
                      sglang:x_sum{a=\"b\"} 1.25\nsglang:x_count{a=\"b\"} 4\n";
        assert_eq!(page.text, wanted);
    }

    #[test]
    fn tokens_that_came_together_share_the_gap() {
        let mut timings = Timings::default();
        let at = |ms: u64| Time::ZERO + Dur::from_millis(ms);
        timings.tokens(at(300), at(0), None, 1);
        timings.tokens(at(310), at(0), Some(at(300)), 2);
        assert_eq!(timings.first_token.sum, 0.3);
        assert_eq!((timings.between_tokens.sum, timings.between_tokens.counts[2]), (0.01, 2));
    }
}
