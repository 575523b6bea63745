//! `GET /metrics`: counters and histograms in Prometheus' text form, under SGLang's names.
//!
//! Times are those of the emulation, in seconds. Owns what is counted at the socket ([`Timings`]); the rest is the node's.

use std::fmt::{Display, Write};

use crate::base::{Dur, Role, Time};
use crate::protocol::Phases;

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
}

impl Default for Timings {
    fn default() -> Timings {
        Timings {
            first_token: Histogram::new(FIRST_TOKEN),
            between_tokens: Histogram::new(BETWEEN_TOKENS),
            whole: Histogram::new(WHOLE),
            queue: Histogram::new(FIRST_TOKEN),
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
    pub fn finished(&mut self, now: Time, began: Time, phases: &Phases) {
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
    let (counters, timings) = (&look.counters, &look.timings);
    page.counter("num_requests_total", "requests that came", counters.requests);
    page.counter("num_aborted_requests_total", "requests given up", counters.aborted);
    page.counter("num_retracted_requests_total", "requests retracted", counters.retractions);
    page.counter("num_transfer_failed_reqs_total", "transfers that failed", counters.transfer_failures);
    page.counter("evicted_tokens_total", "tokens evicted from the prefix cache", counters.evicted_tokens);
    page.counter(
        "prompt_tokens_total",
        "prompt tokens computed or found",
        counters.prefilled_tokens + counters.cached_tokens,
    );
    page.counter("generation_tokens_total", "answer tokens", counters.output_tokens);
    page.head("cached_tokens_total", "prompt tokens found in the cache", "counter");
    page.sample("cached_tokens_total", ",cache_source=\"device\"", counters.cached_tokens);
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
    let (load, queues) = (&look.load, &look.counters.queues);
    let free = load.capacity_tokens.saturating_sub(queues.used_tokens + queues.evictable_tokens);
    page.gauge("token_usage", "used share of the KV pool", load.token_usage);
    page.gauge("num_used_tokens", "used tokens of the KV pool", queues.used_tokens);
    page.gauge("max_total_num_tokens", "tokens of the KV pool", load.capacity_tokens);
    page.gauge("kv_available_tokens", "free tokens", free);
    page.gauge("kv_evictable_tokens", "cached tokens that may be evicted", queues.evictable_tokens);
    page.gauge("num_running_reqs", "requests running", load.num_running);
    page.gauge("num_queue_reqs", "requests queued", load.num_waiting + load.num_prealloc + load.num_transfer);
    page.gauge("num_retracted_reqs", "requests thrown out and not taken up again", queues.retracted);
    page.gauge("num_streaming_sessions", "sessions open", look.counters.sessions_open);
    page.gauge("streaming_session_held_tokens", "tokens that idle sessions hold", queues.session_tokens);
    match role {
        Role::Prefill => {
            page.gauge("num_prefill_bootstrap_queue_reqs", "legs to be prefilled", queues.waiting);
            page.gauge("num_prefill_inflight_queue_reqs", "legs whose KV is not sent yet", queues.sending);
        }
        Role::Decode => {
            page.gauge("num_decode_prealloc_queue_reqs", "legs waiting for room", queues.prealloc);
            page.gauge("num_decode_transfer_queue_reqs", "legs waiting for KV", queues.transfer + queues.ready);
        }
        Role::Colocated => {}
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
