//! [`Line`]: what every task of a client shares: the target, connections, the clock, the way to the driver, and the few
//! things that are learnt on the way.
//!
//! Owns who is up and how busy (for legs the client joins itself), process identities, and the tokens a target wants
//! echoed. Locks are held for a look-up, never across a wait.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::header::HeaderValue;
use tokio::sync::mpsc;

use crate::base::{Rng, Role, SessionIx, Time, WorkerId};
use crate::cluster::{PdRouter, RouteAsk};
use crate::live::client::body::wire_id;
use crate::live::client::counts::Counts;
use crate::live::client::fault::REFUSED;
use crate::live::client::http::{self, ClientError, Http};
use crate::live::client::observed::Observed;
use crate::live::client::outbox::Outbox;
use crate::live::client::routes::Routes;
use crate::live::client::site::Site;
use crate::live::client::words;
use crate::live::clock::Clock;
use crate::live::{Heard, Target};
use crate::protocol::{ErrorClass, Event, Outgoing, RoutingHeader};
use crate::record::LedgerKind;
use crate::scenario::Legs;
use crate::trace::Trace;

/// See the module.
#[derive(Debug)]
pub(super) struct Line {
    pub target: Arc<Target>,
    pub http: Http,
    pub clock: Clock,
    pub heard: mpsc::Sender<Heard>,
    pub routes: Routes,
    pub outbox: Outbox,
    pub observed: Observed,
    /// The sessions by the ids they have on the wire, to know them when a worker names one.
    sessions: Vec<SessionIx>,
    trace: Arc<Trace>,
    workers: BTreeMap<WorkerId, Arc<Site>>,
    router: Option<Arc<Site>>,
    joiner: Mutex<Joiner>,
    incarnations: Mutex<BTreeMap<WorkerId, Identities>>,
    echo: Mutex<HashMap<SessionIx, HeaderValue>>,
}

/// What it takes to join the legs of a request.
#[derive(Debug)]
struct Joiner {
    router: PdRouter,
    rooms: Rng,
    down: BTreeMap<WorkerId, bool>,
    in_flight: BTreeMap<WorkerId, u32>,
}

/// Process identities of a worker, in the order they were first seen.
#[derive(Debug, Default)]
struct Identities {
    raw: Vec<String>,
    // Restarts of a worker that names none.
    unnamed: u32,
    lost: bool,
}

/// A request counts as in flight on a worker until this is dropped.
#[derive(Debug)]
pub(super) struct OnWorker {
    line: Arc<Line>,
    worker: WorkerId,
}

fn by_wire_id(trace: &Trace, session_mark: &str) -> Vec<SessionIx> {
    let mut sessions: Vec<SessionIx> = (0..trace.sessions.len() as u32).map(SessionIx).collect();
    sessions.sort_by_cached_key(|session| wire_id(&trace.sessions[session.ix()].id, session_mark));
    sessions
}

impl Line {
    pub fn new(
        target: Arc<Target>,
        clock: Clock,
        heard: mpsc::Sender<Heard>,
        outbox: Outbox,
        trace: &Arc<Trace>,
        seed: u64,
    ) -> Result<Line, ClientError> {
        let path = target.dialect.path();
        let http = Http::new(&target)?;
        let site = |base: &str| {
            let url = http::base_url(&format!("{}{path}", base.trim_end_matches('/')))?;
            Ok::<_, ClientError>(Arc::new(http.site(url)))
        };
        let endpoints = target.addresses.workers();
        let workers = endpoints.map(|(worker, at)| Ok((worker, site(&at.url)?))).collect::<Result<_, ClientError>>()?;
        let router = target.addresses.router.as_deref().map(site).transpose()?;
        let joiner = Joiner {
            router: PdRouter::new(&target.router_config),
            rooms: Rng::new(seed, 0),
            down: BTreeMap::new(),
            in_flight: BTreeMap::new(),
        };
        Ok(Line {
            http,
            clock,
            heard,
            routes: Routes::default(),
            outbox,
            observed: Observed::default(),
            sessions: by_wire_id(trace, &target.session_mark),
            trace: Arc::clone(trace),
            workers,
            router,
            joiner: Mutex::new(joiner),
            incarnations: Mutex::default(),
            echo: Mutex::default(),
            target,
        })
    }

    /// Its id on the wire.
    pub fn wire_id(&self, session: SessionIx) -> String {
        wire_id(&self.trace.sessions[session.ix()].id, &self.target.session_mark)
    }

    /// The session with this id on the wire.
    pub fn session(&self, wire_id: &str) -> Option<SessionIx> {
        let found = self.sessions.binary_search_by(|session| self.wire_id(*session).as_str().cmp(wire_id));
        found.ok().map(|at| self.sessions[at])
    }

    /// Where generate requests to a worker go.
    pub fn generate_site(&self, worker: WorkerId) -> Option<&Arc<Site>> {
        self.workers.get(&worker)
    }

    /// Where generate requests to the router go.
    pub fn router_site(&self) -> Option<&Arc<Site>> {
        self.router.as_ref()
    }

    /// Address of a control call to a worker.
    pub fn url(&self, worker: WorkerId, path: &str) -> Option<String> {
        let base = self.target.addresses.of(worker)?;
        Some(format!("{}{path}", base.url.trim_end_matches('/')))
    }

    /// Tells the driver; nobody there any more is the end of the run.
    pub async fn tell(&self, event: Event) {
        let _ = self.heard.send(Heard::Event(event)).await;
    }

    /// Tells the driver of a send that begins now; when that is.
    pub async fn begin(&self, what: Outgoing) -> Time {
        let slot = self.heard.reserve().await;
        let at = self.clock.now();
        if let Ok(slot) = slot {
            slot.send(Heard::Event(Event::Sent { what, at }));
        }
        at
    }

    /// Wall time left until the next bytes of an answer must have come: it was sent then, and the last ones came then. Up to
    /// the first token its own limit governs where there is one. `None`: nothing bounds it.
    pub fn wait_left(&self, sent: Time, heard: Time, has_token: bool) -> Option<(Duration, ErrorClass)> {
        let limits = &self.target.limits;
        let (limit, from, class) = match limits.first_token.filter(|_| !has_token) {
            Some(limit) => (limit, sent, ErrorClass::FirstTokenTimeout),
            None => (limits.stall?, heard, ErrorClass::Stalled),
        };
        Some((limit.saturating_sub(self.clock.wall(self.clock.now().since(from))), class))
    }

    /// Words for a limit that ran out, in time of the run as it was configured.
    pub fn too_long(&self, class: ErrorClass) -> String {
        let limits = &self.target.limits;
        let (words, limit) = match class {
            ErrorClass::FirstTokenTimeout => ("no first token within", limits.first_token),
            _ => ("no data for", limits.stall),
        };
        format!("{words} {} s", self.run_seconds(limit.unwrap_or_default()))
    }

    /// Seconds of the run in a wall time, to the millisecond: dividing by its speed has rounded them.
    fn run_seconds(&self, wall: Duration) -> f64 {
        self.clock.of_wall(wall).as_millis_f64().round() / 1e3
    }

    pub fn count_throttled(&self) {
        Counts::add(&self.http.counts.throttled, 1);
    }

    /// Chooses the legs of a request the client joins itself.
    pub fn join(&self, header: RoutingHeader, prompt: &[u64]) -> Result<(WorkerId, WorkerId), String> {
        let mut joiner = locked(&self.joiner);
        let eligible = |joiner: &Joiner, role: Role, count: usize| -> Vec<Option<u32>> {
            let ids = (0..count).map(|index| WorkerId::new(role, index as u16));
            let load = |id: WorkerId| joiner.in_flight.get(&id).copied().unwrap_or(0);
            ids.map(|id| (!joiner.down.contains_key(&id)).then(|| load(id))).collect()
        };
        let prefill = eligible(&joiner, Role::Prefill, self.target.addresses.prefill.len());
        let decode = eligible(&joiner, Role::Decode, self.target.addresses.decode.len());
        let (p, d) = joiner.router.select(RouteAsk { prompt, ..header.into() }, &prefill, &decode)?;
        Ok((WorkerId::new(Role::Prefill, p as u16), WorkerId::new(Role::Decode, d as u16)))
    }

    /// Joining legs takes the keys of their prompts.
    pub fn reads_prompts(&self) -> bool {
        self.target.legs == Legs::Direct && locked(&self.joiner).router.reads_prompts()
    }

    /// A number for two legs to meet by, below 2^63 as SGLang wants it.
    pub fn room(&self) -> u64 {
        locked(&self.joiner).rooms.u64() >> 1
    }

    /// Whether a worker answered when last looked at; who is down gets no legs.
    pub fn set_up(&self, worker: WorkerId, up: bool) {
        let down = &mut locked(&self.joiner).down;
        if up {
            down.remove(&worker);
        } else {
            down.insert(worker, true);
        }
    }

    /// The number of a worker's process: 0, 1, … in the order they were first seen. One that never names itself counts
    /// the times it was gone and came back.
    pub fn incarnation(&self, worker: WorkerId, raw: Option<&str>) -> u32 {
        let mut known = locked(&self.incarnations);
        let known = known.entry(worker).or_default();
        let restarted = std::mem::take(&mut known.lost);
        match raw {
            Some(raw) => match known.raw.iter().position(|seen| seen == raw) {
                Some(at) => at as u32,
                None => {
                    known.raw.push(raw.to_owned());
                    known.raw.len() as u32 - 1
                }
            },
            None if known.raw.is_empty() => {
                known.unnamed += u32::from(restarted);
                known.unnamed
            }
            None => known.raw.len() as u32 - 1,
        }
    }

    /// A call to a worker failed with these words. When nobody listened, what answers there next is another process.
    pub fn failed_at(&self, worker: WorkerId, message: &str) {
        if message.contains(REFUSED) {
            locked(&self.incarnations).entry(worker).or_default().lost = true;
        }
    }

    /// An answer came from a worker that nobody listed: counted, and into the ledger once for each.
    pub async fn met_stranger(&self, name: &str) {
        let name = words::short(name);
        if !self.observed.stranger(&name) {
            return;
        }
        let detail = format!("{name} served a request, and is no worker of this run");
        let notice = Heard::Notice { kind: LedgerKind::UnlistedWorker, worker: None, detail };
        let _ = self.heard.send(notice).await;
    }

    /// Keeps the token an answer wants sent back with the session's next turn.
    pub fn keep_echo(&self, session: SessionIx, value: HeaderValue) {
        locked(&self.echo).insert(session, value);
    }

    /// The token of a session's last answer.
    pub fn echo(&self, session: SessionIx) -> Option<HeaderValue> {
        locked(&self.echo).get(&session).cloned()
    }
}

impl OnWorker {
    pub fn new(line: &Arc<Line>, worker: WorkerId) -> OnWorker {
        *locked(&line.joiner).in_flight.entry(worker).or_default() += 1;
        OnWorker { line: Arc::clone(line), worker }
    }
}

impl Drop for OnWorker {
    fn drop(&mut self) {
        if let Some(count) = locked(&self.line.joiner).in_flight.get_mut(&self.worker) {
            *count -= 1;
        }
    }
}

/// No task panics with a lock held; if one did, the books are still whole.
pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
