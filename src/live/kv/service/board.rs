//! [`Board`]: what the directory's threads show to everybody else.
//!
//! Locks are held for a copy, never across work. Invariant: it is ready once the registry was read, and stays so.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::lag::Lag;
use crate::base::{Dur, Time};
use crate::kv::directory::{Endpoint, Exclusion, StreamKey, Subscription};
use crate::kv::index::{PrefixIndex, StreamSpec};
use crate::kv::sync::{StreamReport, SyncState};
use crate::live::clock::Clock;

/// Why nothing is to be asked before the registry was read.
pub(super) const UNREAD: &str = "the registry of instances was not read yet";

/// A stream as it was when it was looked at.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamView {
    /// Name.
    pub key: StreamKey,
    /// Where its replays come from.
    pub replay: Option<String>,
    /// What it says of itself.
    pub report: StreamReport,
    /// How long batches take from the publisher's time stamp to here.
    pub lag: Lag,
    /// Since the last live batch.
    pub quiet: Option<Dur>,
}

/// See the module.
#[derive(Debug)]
pub struct Board {
    index: PrefixIndex,
    clock: Clock,
    shown: Mutex<Shown>,
}

#[derive(Debug)]
struct Shown {
    /// Why nothing is to be asked yet.
    unready: Option<String>,
    streams: BTreeMap<StreamKey, Arc<Place>>,
    excluded: BTreeMap<String, Exclusion>,
    notice: Option<String>,
}

/// Where one stream's thread shows how it is.
#[derive(Debug)]
pub(super) struct Place {
    events: String,
    replay: Option<String>,
    http: Option<Endpoint>,
    last: Mutex<Option<Last>>,
}

#[derive(Debug, Clone)]
struct Last {
    at: Time,
    report: StreamReport,
    lag: Lag,
}

impl Board {
    pub(super) fn new(clock: Clock, unready: &str) -> Board {
        let unready = Some(unready.to_owned());
        let (streams, excluded) = (BTreeMap::new(), BTreeMap::new());
        let shown = Mutex::new(Shown { unready, streams, excluded, notice: None });
        Board { index: PrefixIndex::new(), clock, shown }
    }

    /// The index that the streams feed.
    pub fn index(&self) -> &PrefixIndex {
        &self.index
    }

    /// Why nothing is to be asked yet; `None`: it is ready.
    pub fn unready(&self) -> Option<String> {
        self.shown().unready.clone()
    }

    /// What is wrong with the registry, for people.
    pub fn notice(&self) -> Option<String> {
        self.shown().notice.clone()
    }

    /// Instances that are not followed, and why.
    pub fn excluded(&self) -> BTreeMap<String, Exclusion> {
        self.shown().excluded.clone()
    }

    /// Address that a stream is read from; empty for one that is not here.
    pub fn endpoint_of(&self, spec: &StreamSpec) -> String {
        let key = StreamKey { instance: spec.instance.clone(), dp_rank: spec.dp_rank };
        self.shown().streams.get(&key).map(|place| place.events.clone()).unwrap_or_default()
    }

    /// Every stream that is followed, with its instance's HTTP server where a registry says it.
    pub fn followed(&self) -> BTreeMap<StreamKey, Option<Endpoint>> {
        self.shown().streams.iter().map(|(key, place)| (key.clone(), place.http.clone())).collect()
    }

    /// HTTP server of an instance, where a registry says it.
    pub fn http_of(&self, key: &StreamKey) -> Option<Endpoint> {
        self.shown().streams.get(key)?.http.clone()
    }

    /// Every stream, by name and rank.
    pub fn streams(&self) -> Vec<StreamView> {
        let places = self.shown().streams.clone();
        let now = self.clock.now();
        places.into_iter().filter_map(|(key, place)| place.view(key, now)).collect()
    }

    pub(super) fn set_ready(&self) {
        self.shown().unready = None;
    }

    /// Nothing will ever be ready, or what was ready changes no more.
    pub(super) fn fail(&self, why: &str) {
        let mut shown = self.shown();
        shown.notice = Some(why.to_owned());
        if let Some(unready) = &mut shown.unready {
            *unready = why.to_owned();
        }
    }

    pub(super) fn set_notice(&self, text: &str) {
        let mut shown = self.shown();
        shown.notice = Some(text.to_owned());
        if let Some(unready) = &mut shown.unready {
            *unready = format!("{UNREAD}: {text}");
        }
    }

    /// What was last told of the registry is over.
    pub(super) fn clear_notice(&self) {
        self.shown().notice = None;
    }

    pub(super) fn add(&self, subscription: &Subscription) -> Arc<Place> {
        let replay = subscription.replay.as_ref().map(ToString::to_string);
        let (events, http) = (subscription.events.to_string(), subscription.http.clone());
        let place = Arc::new(Place { events, replay, http, last: Mutex::new(None) });
        self.shown().streams.insert(subscription.key.clone(), Arc::clone(&place));
        place
    }

    pub(super) fn remove(&self, key: &StreamKey) {
        self.shown().streams.remove(key);
    }

    pub(super) fn exclude(&self, instance: &str, why: Exclusion) {
        self.shown().excluded.insert(instance.to_owned(), why);
    }

    pub(super) fn readmit(&self, instance: &str) {
        self.shown().excluded.remove(instance);
    }

    /// What is shown is copied whole: whoever panicked with it left it whole.
    fn shown(&self) -> MutexGuard<'_, Shown> {
        self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    pub fn show(&self, at: Time, report: StreamReport, lag: Lag) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Last { at, report, lag });
    }

    fn view(&self, key: StreamKey, now: Time) -> Option<StreamView> {
        let Last { at, mut report, lag } = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        if report.state != SyncState::Synced {
            report.stats.unsynced += now.since(at);
        }
        let quiet = report.stats.last_live.map(|last| now.since(last));
        Some(StreamView { key, replay: self.replay.clone(), report, lag, quiet })
    }
}
