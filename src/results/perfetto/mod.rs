//! [`Perfetto`]: a run as a trace to look at in ui.perfetto.dev or chrome://tracing.
//!
//! One thread a session, by arrival; the workers and the links between P and D, with overlapping requests side by side in
//! lanes; a span for each phase, named spans of a turn after its execution mode; arrows from a session to its workers;
//! counters; events of the ledger as points. Invariant: on one track spans nest or follow each other, and the phases of a
//! request fill its time. All requests are held in memory, about 300 bytes each.

mod events;
mod lanes;
mod turn;
mod workers;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use serde::Serialize;

use self::events::{Events, Track};
use self::lanes::lanes;
use self::turn::{Phase, Turn};
use self::workers::Workers;
use super::frame::Batch;
use super::vocabulary::Vocabulary;
use crate::record::{LedgerEvent, LedgerKind};

/// Processes of the trace; those of the workers follow.
const RUN: u32 = 1;
const SESSIONS: u32 = 2;
const LINKS: u32 = 3;
const FIRST_WORKER: u32 = 4;

/// Gathers a run.
#[derive(Debug, Default)]
pub struct Perfetto {
    words: Vocabulary,
    turns: Vec<Turn>,
    points: Vec<Point>,
    /// Configured workers.
    workers: BTreeSet<u32>,
}

/// An event of the ledger.
#[derive(Debug)]
struct Point {
    at_ns: u64,
    kind: LedgerKind,
    session: Option<u32>,
    turn_id: Option<u32>,
    worker: Option<u32>,
    detail: Option<String>,
}

#[derive(Serialize)]
struct TurnArgs<'a> {
    turn: u32,
    request: &'a str,
    reason: &'a str,
    outcome: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    input_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_tokens: Option<u32>,
    output_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefill: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decode: Option<&'a str>,
}

#[derive(Serialize)]
struct PointArgs<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    turn: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
}

impl Perfetto {
    /// Of a run with these workers.
    pub fn new(workers: &[String]) -> Perfetto {
        let mut new = Perfetto::default();
        new.workers = workers.iter().map(|name| new.words.number(name)).collect();
        new
    }

    /// The columns that a batch must have.
    pub fn columns() -> &'static [&'static str] {
        &turn::COLUMNS
    }

    /// Adds the requests of a batch.
    pub fn push(&mut self, batch: &Batch) {
        let turns = (0..batch.rows()).map(|row| Turn::of(batch, row, &mut self.words));
        self.turns.extend(turns);
    }

    /// Adds an event of the ledger.
    pub fn ledger(&mut self, event: LedgerEvent) {
        let mut word = |name: Option<String>| name.map(|name| self.words.number(&name));
        self.points.push(Point {
            at_ns: event.at_ns,
            kind: event.kind,
            session: word(event.session_id),
            turn_id: event.turn_id,
            worker: word(event.worker),
            detail: event.detail,
        });
    }

    /// Requests in it.
    pub fn requests(&self) -> usize {
        self.turns.len()
    }

    /// Writes the trace.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut events = Events::new(out)?;
        events.process(RUN, "run")?;
        events.thread(Track::main(RUN), "events")?;
        events.process(SESSIONS, "sessions")?;
        let tracks = self.sessions(&mut events)?;
        let workers = Workers::of(&self.workers, &self.turns, &self.points_on_workers(), &self.words);
        workers.write(&self.turns, &tracks.turns, &self.words, &mut events)?;
        self.running(&mut events)?;
        self.residents(&workers, &mut events)?;
        self.points(&workers, &tracks.sessions, &mut events)?;
        events.finish()
    }

    fn word(&self, number: u32) -> &str {
        self.words.list().get(number)
    }

    fn points_on_workers(&self) -> BTreeSet<u32> {
        self.points.iter().filter_map(|point| point.worker).collect()
    }

    /// One thread a session, by arrival; a wait for the previous turn overlaps it, and has a thread below.
    fn sessions(&self, events: &mut Events) -> io::Result<SessionTracks> {
        let mut by_session: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (ix, turn) in self.turns.iter().enumerate() {
            by_session.entry(turn.session).or_default().push(ix);
        }
        let arrival = |turns: &[usize]| turns.iter().map(|ix| self.turns[*ix].scheduled_ns).min();
        let mut order: Vec<(u32, Vec<usize>)> = by_session.into_iter().collect();
        order.sort_by_key(|(session, turns)| (arrival(turns), *session));
        let mut tracks =
            SessionTracks { turns: vec![Track::main(SESSIONS); self.turns.len()], ..SessionTracks::default() };
        let mut tid = SESSIONS;
        for (session, turns) in order {
            let id = self.word(session);
            let busy: Vec<_> = turns.iter().map(|ix| self.turns[*ix].busy()).collect();
            let lane_of = lanes(&busy);
            let first = tid + 1;
            tracks.sessions.insert(session, Track { pid: SESSIONS, tid: first });
            for lane in 0..=lane_of.iter().copied().max().unwrap_or(0) {
                tid += 1;
                let name = if lane == 0 { id.to_owned() } else { format!("{id} ({})", lane + 1) };
                events.thread(Track { pid: SESSIONS, tid }, &name)?;
            }
            for (ix, lane) in turns.iter().zip(&lane_of) {
                let track = Track { pid: SESSIONS, tid: first + *lane as u32 };
                tracks.turns[*ix] = track;
                self.turn(&self.turns[*ix], track, events)?;
            }
            tid = self.waits(id, &turns, tid, events)?;
        }
        Ok(tracks)
    }

    fn waits(&self, id: &str, turns: &[usize], mut tid: u32, events: &mut Events) -> io::Result<u32> {
        let waits: Vec<_> = turns.iter().filter_map(|ix| self.turns[*ix].waited()).collect();
        let lane_of = lanes(&waits);
        let first = tid + 1;
        for _ in 0..lane_of.iter().max().map_or(0, |most| most + 1) {
            tid += 1;
            events.thread(Track { pid: SESSIONS, tid }, &format!("{id} waits"))?;
        }
        for (span, lane) in waits.into_iter().zip(lane_of) {
            events.span(Track { pid: SESSIONS, tid: first + lane as u32 }, "wait previous turn", span)?;
        }
        Ok(tid)
    }

    /// A turn with its phases in it.
    fn turn(&self, turn: &Turn, track: Track, events: &mut Events) -> io::Result<()> {
        let busy = turn.busy();
        let word = |number: Option<u32>| number.map(|number| self.word(number));
        let args = TurnArgs {
            turn: turn.turn_id,
            request: &turn.request_id,
            reason: self.word(turn.reason),
            outcome: self.word(turn.outcome),
            error: word(turn.error_class),
            input_tokens: turn.input_tokens,
            cached_tokens: turn.cached_tokens,
            output_tokens: turn.output_tokens,
            prefill: word(turn.prefill_worker),
            decode: word(turn.decode_worker),
        };
        events.span_with(track, self.word(turn.mode), busy, &args)?;
        let sent = turn.sent_ns.unwrap_or(turn.ended_ns).clamp(busy.0, busy.1);
        let capped = busy.0.saturating_add(turn.cap_wait_ns).min(sent);
        if capped > busy.0 {
            events.span(track, "cap wait", (busy.0, capped))?;
        }
        if sent > capped && turn.sent_ns.is_some() {
            events.span(track, "schedule lag", (capped, sent))?;
        }
        turn.phases.iter().try_for_each(|(phase, span)| events.span(track, phase.as_str(), *span))
    }

    /// Requests under way.
    fn running(&self, events: &mut Events) -> io::Result<()> {
        let spans = self.turns.iter().filter_map(|turn| Some((turn.sent_ns?, turn.ended_ns)));
        let mut edges: BTreeMap<u64, i64> = BTreeMap::new();
        for (start, end) in spans {
            *edges.entry(start).or_default() += 1;
            *edges.entry(end).or_default() -= 1;
        }
        let mut running = 0;
        for (at, step) in edges.into_iter().filter(|(_, step)| *step != 0) {
            running += step;
            events.counter(RUN, "running requests", at, running.max(0).unsigned_abs())?;
        }
        Ok(())
    }

    /// Sessions that live on each D, by the ledger.
    fn residents(&self, workers: &Workers, events: &mut Events) -> io::Result<()> {
        let mut residents: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        let mut order: Vec<&Point> = self.points.iter().collect();
        order.sort_by_key(|point| point.at_ns);
        for point in order {
            let Some((worker, pid)) = point.worker.and_then(|worker| Some((worker, workers.pid(worker)?))) else {
                continue;
            };
            let live = residents.entry(worker).or_default();
            let before = live.len();
            match (point.kind, point.session) {
                (LedgerKind::SessionOpened, Some(session)) => drop(live.insert(session)),
                (
                    LedgerKind::SessionClosed
                    | LedgerKind::SessionTrimmed
                    | LedgerKind::WorkerDroppedSession
                    | LedgerKind::SessionReleased,
                    Some(session),
                ) => drop(live.remove(&session)),
                (LedgerKind::WorkerDown | LedgerKind::WorkerGone, _) => live.clear(),
                (_, _) => {}
            }
            if live.len() != before {
                events.counter(pid, "resident sessions", point.at_ns, live.len() as u64)?;
            }
        }
        Ok(())
    }

    /// Events of the ledger: on the session they concern, else on the worker, else on the run.
    fn points(&self, workers: &Workers, sessions: &BTreeMap<u32, Track>, events: &mut Events) -> io::Result<()> {
        for point in &self.points {
            let on_session = point.session.and_then(|session| sessions.get(&session).copied());
            let on_worker = || Some(Track::main(workers.pid(point.worker?)?));
            let track = on_session.or_else(on_worker).unwrap_or(Track::main(RUN));
            let worker = point.worker.map(|worker| self.word(worker));
            let args = PointArgs { turn: point.turn_id, worker, detail: point.detail.as_deref() };
            events.instant(track, point.kind.as_str(), point.at_ns, &args)?;
        }
        Ok(())
    }
}

/// Where sessions and turns were drawn.
#[derive(Debug, Default)]
struct SessionTracks {
    sessions: BTreeMap<u32, Track>,
    turns: Vec<Track>,
}

impl Turn {
    /// What it did on P, and the phases there.
    fn on_prefill(&self) -> Option<(u32, turn::Span)> {
        Some((self.prefill_worker?, self.over(&[Phase::PrefillQueue, Phase::Prefill])?))
    }

    /// The transfer of its KV.
    fn on_link(&self) -> Option<((u32, u32), turn::Span)> {
        Some(((self.prefill_worker?, self.decode_worker?), self.phase(Phase::KvTransfer)?))
    }

    /// What it did on the worker that answered: without P, the prefill, too.
    fn on_decode(&self) -> Option<(u32, turn::Span)> {
        let span = match self.prefill_worker {
            Some(_) => self.over(&[Phase::DecodeQueue, Phase::Decode])?,
            None => self.over(&[Phase::PrefillQueue, Phase::Prefill, Phase::DecodeQueue, Phase::Decode])?,
        };
        Some((self.decode_worker?, span))
    }
}
