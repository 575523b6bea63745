//! A look at the streams of the KV index, some time into the run: a policy that reads an index which sees nothing still
//! chooses, and its figures look almost as good.

use thiserror::Error;

use crate::base::Time;
use crate::base::words::seconds;
use crate::kv::StreamHealth;
use crate::kv::sync::{SyncReason, trouble_at};
use crate::record::LedgerKind;
use crate::replay::Replayer;
use crate::replay::machine::Note;

/// No stream of the index was in step in time, and one had to be (`kv_events.require`).
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "no stream of the KV index was in step {} into the run: {}; {}, or set kv_events.require = false to go on by load alone",
    seconds(.at.as_secs_f64() * 1e3), told_all(.streams), remedy(.streams)
)]
pub struct NoIndex {
    /// Time of the look.
    pub at: Time,
    /// Every stream.
    pub streams: Vec<StreamHealth>,
}

impl Replayer<'_> {
    /// Names each stream that is not in step; stops the run when none is and one has to be.
    pub(super) fn check_index(&mut self, now: Time) {
        let streams = self.index.as_ref().map(|index| index.streams()).unwrap_or_default();
        for stream in streams.iter().filter(|stream| !stream.synchronized) {
            self.note(now, LedgerKind::IndexNotInStep, Note::default().because(told(stream)));
        }
        if streams.is_empty() {
            self.note(now, LedgerKind::IndexNotInStep, Note::default().because(told_all(&streams)));
        }
        if self.config.index.require && streams.iter().all(|stream| !stream.synchronized) {
            self.no_index = Some(NoIndex { at: now, streams });
            self.stop(now);
        }
    }
}

fn told_all(streams: &[StreamHealth]) -> String {
    let all: Vec<String> = streams.iter().map(told).collect();
    if all.is_empty() {
        "the index has no stream of a worker whose cache the policy reads".to_owned()
    } else {
        all.join("; ")
    }
}

/// By what was found: nobody's streams, streams that nothing comes from, or such as have nothing to say yet.
fn remedy(streams: &[StreamHealth]) -> &'static str {
    let is_idle = |stream: &StreamHealth| stream.error.as_deref() == Some(SyncReason::EmptyReplay.words());
    match streams.iter().filter(|stream| is_idle(stream)).count() {
        _ if streams.is_empty() => {
            "have those workers publish (a D does with engine.decode_radix_cache = true), and name them as the run does"
        }
        0 => "correct the addresses of the streams",
        idle if idle == streams.len() => "send each of those workers a request before the run",
        _ => "send a request to those that answer before the run, and correct the addresses of the others",
    }
}

fn told(stream: &StreamHealth) -> String {
    let why = stream.error.as_deref().unwrap_or("nothing was heard");
    if stream.endpoint.is_empty() {
        return format!("{}: {why}", stream.name);
    }
    format!("{} at {}", stream.name, trouble_at(&stream.endpoint, why))
}
