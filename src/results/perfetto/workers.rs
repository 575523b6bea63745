//! The workers of a trace and the links between them: one process a worker, a thread for each lane of requests.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::events::{Events, Track};
use super::lanes::lanes;
use super::turn::{Phase, Span, Turn};
use super::{FIRST_WORKER, LINKS};
use crate::base::WorkerId;
use crate::results::vocabulary::Vocabulary;

/// Processes of the workers, by the number of their name.
#[derive(Debug)]
pub(super) struct Workers {
    pids: BTreeMap<u32, u32>,
}

/// Requests on one worker: index of the turn and its span there.
type Load = Vec<(usize, Span)>;

impl Workers {
    /// Those configured, seen in a request, or named by an event: by role and number.
    pub(super) fn of(configured: &BTreeSet<u32>, turns: &[Turn], named: &BTreeSet<u32>, words: &Vocabulary) -> Workers {
        let seen = turns.iter().flat_map(|turn| [turn.prefill_worker, turn.decode_worker]).flatten();
        let all: BTreeSet<u32> = configured.iter().copied().chain(named.iter().copied()).chain(seen).collect();
        let mut order: Vec<u32> = all.into_iter().collect();
        let name = |number: &u32| words.list().get(*number);
        order.sort_by_key(|number| (name(number).parse::<WorkerId>().ok(), name(number)));
        Workers { pids: order.into_iter().zip(FIRST_WORKER..).collect() }
    }

    /// Process of a worker.
    pub(super) fn pid(&self, worker: u32) -> Option<u32> {
        self.pids.get(&worker).copied()
    }

    /// Draws them with what they did; `origins` are the tracks of the turns.
    pub(super) fn write(
        &self,
        turns: &[Turn],
        origins: &[Track],
        words: &Vocabulary,
        events: &mut Events,
    ) -> io::Result<()> {
        let mut loads: BTreeMap<u32, Load> = BTreeMap::new();
        let mut links: BTreeMap<(u32, u32), Load> = BTreeMap::new();
        for (ix, turn) in turns.iter().enumerate() {
            for (worker, span) in turn.on_prefill().into_iter().chain(turn.on_decode()) {
                loads.entry(self.pids[&worker]).or_default().push((ix, span));
            }
            if let Some((pair, span)) = turn.on_link() {
                let pair = (self.pids[&pair.0], self.pids[&pair.1]);
                links.entry(pair).or_default().push((ix, span));
            }
        }
        let names: BTreeMap<u32, &str> = self.pids.iter().map(|(word, pid)| (*pid, words.list().get(*word))).collect();
        let mut arrows = 0;
        for (pid, name) in &names {
            events.process(*pid, name)?;
            events.thread(Track::main(*pid), "events")?;
            let Some(load) = loads.get(pid) else { continue };
            for (track, (ix, span)) in tracks(*pid, *pid + 1, load, |lane| format!("lane {}", lane + 1), events)? {
                let turn = &turns[ix];
                events.span(track, words.list().get(turn.mode), span)?;
                let inside =
                    |(phase, inner): &&(Phase, Span)| *phase != Phase::Other && span.0 <= inner.0 && inner.1 <= span.1;
                for (phase, inner) in turn.phases.iter().filter(inside).filter(|(phase, _)| *phase != Phase::KvTransfer)
                {
                    events.span(track, phase.as_str(), *inner)?;
                }
                events.flow(arrows, (origins[ix], span.0), (track, span.0))?;
                arrows += 1;
            }
        }
        if !links.is_empty() {
            events.process(LINKS, "links")?;
        }
        let mut first = LINKS + 1;
        for ((from, to), load) in &links {
            let name = format!("{} → {}", names[from], names[to]);
            let drawn = tracks(LINKS, first, load, |_| name.clone(), events)?;
            first = drawn.iter().map(|(track, _)| track.tid + 1).max().unwrap_or(first);
            for (track, (_, span)) in drawn {
                events.span(track, Phase::KvTransfer.as_str(), span)?;
            }
        }
        Ok(())
    }
}

/// The track of each of `load`, new threads of `pid` from `first` on.
fn tracks(
    pid: u32,
    first: u32,
    load: &Load,
    name: impl Fn(usize) -> String,
    events: &mut Events,
) -> io::Result<Vec<(Track, (usize, Span))>> {
    let spans: Vec<Span> = load.iter().map(|(_, span)| *span).collect();
    let lane_of = lanes(&spans);
    for lane in 0..lane_of.iter().max().map_or(0, |most| most + 1) {
        events.thread(Track { pid, tid: first + lane as u32 }, &name(lane))?;
    }
    let track = |lane: usize| Track { pid, tid: first + lane as u32 };
    Ok(lane_of.into_iter().map(track).zip(load.iter().copied()).collect())
}
