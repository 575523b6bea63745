//! `GET /metrics`: streams and queries as Prometheus text. Open to who has no token: it has nothing of prompts in it.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::response::{IntoResponse, Response};

use super::Front;
use crate::live::kv::service::StreamView;

/// Bounds of the time a query takes, seconds.
const BOUNDS: [f64; 10] = [0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.1, 1.0];

/// Queries by status, and how long those that were answered took from their last byte in.
#[derive(Debug, Default)]
pub(super) struct Latencies(Mutex<Counts>);

#[derive(Debug, Default, Clone)]
struct Counts {
    statuses: BTreeMap<u16, u64>,
    /// One a bound, and one for all above.
    took: [u64; BOUNDS.len() + 1],
    seconds: f64,
}

/// What is told of each stream: name, kind, meaning, value.
type Family = (&'static str, &'static str, &'static str, fn(&StreamView) -> Option<f64>);

const FAMILIES: [Family; 22] = [
    ("synchronized", "gauge", "Whether hits of the stream count.", |s| Some(s.report.status.synchronized.into())),
    ("sequence", "gauge", "Last batch in the index.", |s| s.report.status.sequence.map(|sequence| sequence as f64)),
    ("mappings", "gauge", "Engine hashes known.", |s| Some(s.report.status.mappings as f64)),
    ("buffered_bytes", "gauge", "Memory of batches that wait for a replay.", |s| {
        Some(s.report.stats.buffered_bytes as f64)
    }),
    ("lag_seconds", "gauge", "From the time stamp of the last batch to its arrival.", |s| s.lag.last_s),
    ("odd_timestamps_total", "counter", "Live batches whose time stamp is no time near now: without a lag.", |s| {
        Some(s.lag.odd as f64)
    }),
    ("quiet_seconds", "gauge", "Since the last live batch.", |s| s.quiet.map(|quiet| quiet.as_secs_f64())),
    ("unsynced_seconds_total", "counter", "Time out of step.", |s| Some(s.report.stats.unsynced.as_secs_f64())),
    ("batches_total", "counter", "Live batches read.", |s| Some(s.report.stats.batches as f64)),
    ("events_total", "counter", "Events applied.", |s| Some(s.report.stats.events as f64)),
    ("event_blocks_total", "counter", "Blocks named by events applied.", |s| Some(s.report.stats.blocks as f64)),
    ("ignored_events_total", "counter", "Events without use for the index.", |s| Some(s.report.stats.ignored as f64)),
    ("unknown_removals_total", "counter", "Blocks removed that were not known.", |s| {
        Some(s.report.stats.unknown_removals as f64)
    }),
    ("outside_blocks_total", "counter", "Blocks of contexts that are not covered.", |s| {
        Some(s.report.stats.outside as f64)
    }),
    ("refused_batches_total", "counter", "Live batches that could not be read or applied.", |s| {
        Some(s.report.stats.refused as f64)
    }),
    ("foreign_messages_total", "counter", "Live messages of other topics: another publisher's.", |s| {
        Some(s.report.stats.foreign as f64)
    }),
    ("gaps_total", "counter", "Times batches were missing.", |s| Some(s.report.stats.gaps as f64)),
    ("restarts_total", "counter", "Times the publisher began anew.", |s| Some(s.report.stats.restarts as f64)),
    ("resyncs_total", "counter", "Times the stream came in step again.", |s| Some(s.report.stats.resyncs as f64)),
    ("refreshes_total", "counter", "Times the view was checked.", |s| Some(s.report.stats.refreshes as f64)),
    ("replays_total", "counter", "Replays asked for.", |s| Some(s.report.stats.replays as f64)),
    ("failed_replays_total", "counter", "Replays that failed.", |s| Some(s.report.stats.failed_replays as f64)),
];

impl Latencies {
    /// A query was answered with that status.
    pub fn answered(&self, status: u16) {
        self.change(|counts| *counts.statuses.entry(status).or_default() += 1);
    }

    /// One that was answered with 200 took that long.
    pub fn took(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        self.change(|counts| {
            counts.took[BOUNDS.partition_point(|bound| *bound < seconds)] += 1;
            counts.seconds += seconds;
        });
    }

    fn change<T>(&self, change: impl FnOnce(&mut Counts) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(super) async fn metrics(State(front): State<Arc<Front>>) -> Response {
    let mut page = Page::default();
    let streams = front.board.streams();
    page.one("ready", "gauge", "Whether queries are answered.", front.board.unready().is_none().into());
    page.one("streams", "gauge", "Streams followed.", streams.len() as f64);
    page.one(
        "excluded_instances",
        "gauge",
        "Instances not followed that should be.",
        front.board.excluded().values().filter(|why| !why.is_by_rule()).count() as f64,
    );
    page.one("index_blocks", "gauge", "Distinct blocks of all streams.", front.board.index().blocks() as f64);
    let seats = front.seats.counts();
    page.one("connections", "gauge", "Connections to this server.", seats.open as f64);
    page.one("most_connections", "gauge", "Most connections at once.", seats.most as f64);
    page.one(
        "refused_connections_total",
        "counter",
        "Connections that were told 503 or closed for want of room.",
        seats.refused as f64,
    );
    page.one(
        "evicted_connections_total",
        "counter",
        "Connections that were closed to make room for others.",
        seats.evicted as f64,
    );
    let labelled: Vec<(String, &StreamView)> = streams.iter().map(|stream| (labels(stream), stream)).collect();
    for (name, kind, help, value) in FAMILIES {
        page.head(&format!("stream_{name}"), kind, help);
        for (labels, value) in labelled.iter().filter_map(|(labels, stream)| Some((labels, value(stream)?))) {
            page.sample(&format!("stream_{name}"), labels, value);
        }
    }
    page.head("stream_blocks", "gauge", "Blocks of the stream by tier.");
    for (labels, stream) in &labelled {
        let status = &stream.report.status;
        for (tier, blocks) in [("device", status.device_blocks), ("host", status.host_blocks)] {
            page.sample("stream_blocks", &format!("{labels},tier=\"{tier}\""), blocks);
        }
    }
    page.queries(&front.latencies.change(|counts| counts.clone()));
    ([("content-type", "text/plain; version=0.0.4; charset=utf-8")], page.text).into_response()
}

fn labels(stream: &StreamView) -> String {
    let instance = stream.key.instance.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("instance_name=\"{instance}\",dp_rank=\"{}\"", stream.key.dp_rank)
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        writeln!(self.text, "# HELP pdreplay_kv_{name} {help}\n# TYPE pdreplay_kv_{name} {kind}")
            .expect("a String takes all");
    }

    fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        writeln!(self.text, "pdreplay_kv_{name}{{{labels}}} {value}").expect("a String takes all");
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.head(name, kind, help);
        writeln!(self.text, "pdreplay_kv_{name} {value}").expect("a String takes all");
    }

    fn queries(&mut self, counts: &Counts) {
        self.head("queries_total", "counter", "Queries by status of their answers.");
        for (status, count) in &counts.statuses {
            self.sample("queries_total", &format!("status=\"{status}\""), count);
        }
        let name = "query_seconds";
        self.head(name, "histogram", "Time of a query from its last byte in to its answer.");
        let mut below = 0;
        let bounds = BOUNDS.iter().map(ToString::to_string).chain(["+Inf".to_owned()]);
        for (count, bound) in counts.took.iter().zip(bounds) {
            below += count;
            self.sample(&format!("{name}_bucket"), &format!("le=\"{bound}\""), below);
        }
        let text = format!("pdreplay_kv_{name}_sum {}\npdreplay_kv_{name}_count {below}\n", counts.seconds);
        self.text.push_str(&text);
    }
}
