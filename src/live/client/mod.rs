//! The live client: [`protocol::Action`](crate::protocol::Action)s in, HTTP out, answers back as
//! [`protocol::Event`](crate::protocol::Event)s.
//!
//! Owns how things are said on the wire: bodies, headers, both legs of a request, streams and what their ends mean.
//! Decides nothing about sessions, policies or caps, and repeats nothing unless the target's retries say so.
//! Invariants: every `Generate` ends in exactly one `Finished`, aborted or not; every call with a `CallId` is answered
//! exactly once, time-outs included. Everything runs as tasks of the runtime that calls [`Client::perform`].

mod body;
mod broken;
mod control;
mod counts;
mod dial;
mod event;
mod fault;
mod flight;
mod http;
mod landing;
mod leg;
mod line;
mod mask;
mod observed;
mod outbox;
mod patience;
mod reply;
mod response;
mod retry;
mod routes;
mod site;
mod sse;
mod tally;
#[cfg(test)]
mod tests;
mod tokens;
mod wire;
mod words;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use crate::base::{RequestIx, SessionIx, WorkerId};
use crate::cluster::prefix_keys;
use crate::live::clock::Clock;
use crate::live::probe::RouteMap;
use crate::live::{Heard, Target};
use crate::protocol::{Action, AdmitAsk, CallId, Event, Generate, LoadReport, Outgoing};
use crate::trace::Trace;

use flight::Flight;
use landing::Course;
use line::{Line, locked};
use outbox::Outbox;

pub use control::Looker;
pub(in crate::live) use dial::loopbacks;
pub(in crate::live) use fault::{CLOSED, REFUSED};

pub use counts::ClientCounters;
pub use http::{ClientError, Http};
pub use observed::Seen;
pub use reply::{Reply, shortened};
pub use routes::{Prober, Probing};
pub use sse::{SseParser, TooLong};
pub use words::error_message;

/// See the module.
#[derive(Debug)]
pub struct Client {
    trace: Arc<Trace>,
    line: Arc<Line>,
    /// Requests on their way; a word into one gives it up.
    flights: Arc<Mutex<BTreeMap<RequestIx, oneshot::Sender<()>>>>,
    closes: BTreeMap<(WorkerId, SessionIx), Closing>,
}

/// Ends when a `close_session` has been answered, or given up.
type Closing = watch::Receiver<()>;

impl Client {
    /// A client of `target` for the turns of `trace`; what it hears goes to `heard`.
    pub fn new(
        trace: &Arc<Trace>,
        target: Arc<Target>,
        clock: Clock,
        heard: mpsc::Sender<Heard>,
    ) -> Result<Client, ClientError> {
        let outbox = Outbox::new(trace, &target);
        // Rooms must differ between clients of one cluster, and need not be the same again.
        let seed = RandomState::new().hash_one("rooms");
        Ok(Client {
            trace: Arc::clone(trace),
            line: Arc::new(Line::new(target, clock, heard, outbox, trace, seed)?),
            flights: Arc::default(),
            closes: BTreeMap::new(),
        })
    }

    /// Does it, without waiting: what comes of it is heard later. Needs a running runtime.
    pub fn perform(&mut self, action: Action) {
        match action {
            Action::Generate(generate) => self.generate(generate),
            Action::OpenSession { call, worker, session } => self.open(call, worker, session),
            Action::CloseSession { worker, session } => self.close_session(worker, session),
            Action::Admit { call, worker, ask } => self.admit(call, worker, ask),
            Action::Abort { request } => {
                // One that has ended just now has told its end.
                let flight = locked(&self.flights).remove(&request);
                let _ = flight.map(|give_up| give_up.send(()));
            }
            Action::PollLoads => {
                let line = Arc::clone(&self.line);
                tokio::spawn(async move { line.tell(Event::Loads(control::loads(&line).await)).await });
            }
        }
    }

    /// Loads of the workers that tell theirs within so long.
    pub async fn loads(&self, bound: Duration) -> Vec<LoadReport> {
        control::loads_within(&self.line, bound).await
    }

    /// Generate requests that have not ended.
    #[cfg(test)]
    pub fn in_flight(&self) -> usize {
        locked(&self.flights).len()
    }

    /// What went over the wire so far.
    pub fn counters(&self) -> ClientCounters {
        self.line.http.counts.now()
    }

    /// What was noticed of the target so far, beside its answers.
    pub fn seen(&self) -> Seen {
        self.line.observed.now()
    }

    /// Health and counters of workers, beside the run.
    pub fn looker(&self) -> Looker {
        Looker::new(Arc::clone(&self.line))
    }

    /// Values of the target header by which the router's workers are reached. Without one, D `d` is index `d`.
    pub fn set_route_map(&self, map: RouteMap) {
        self.line.routes.set_map(map);
    }

    /// How to find the route map anew when answers show that it is old. Without one it stays.
    pub fn set_prober(&self, prober: Prober) {
        self.line.routes.set_prober(prober);
    }

    /// Waits until every `close_session` sent so far has been answered, at most so long.
    pub async fn close(&mut self, bound: Duration) {
        let closes = std::mem::take(&mut self.closes);
        let all = async {
            for closing in closes.into_values() {
                ended(Some(closing)).await;
            }
        };
        // What is not closed by then, the server closes itself.
        let _ = timeout(bound, all).await;
    }

    fn generate(&mut self, generate: Generate) {
        let (tree, request) = (&self.trace.tree, generate.request);
        let prompt = if self.line.reads_prompts() { prefix_keys(tree.ids(generate.prompt)) } else { Vec::new() };
        let flight = Flight { session_id: self.line.wire_id(generate.session), prompt, generate };
        let (line, flights) = (Arc::clone(&self.line), Arc::clone(&self.flights));
        let (give_up, given_up) = oneshot::channel();
        let before = locked(&self.flights).insert(request, give_up);
        assert!(before.is_none(), "request {request:?} is on its way once");
        tokio::spawn(async move {
            let mut course = Course::default();
            tokio::select! {
                biased;
                _ = given_up => {}
                () = flight.fly(&line, &mut course) => {}
            }
            let (answer, mut end) = course.answer(&line, &flight.generate);
            end.settle().await;
            // First: whoever hears of the end finds it out of the books.
            locked(&flights).remove(&request);
            line.tell(Event::Finished(Box::new(answer))).await;
            end.drain().await;
        });
    }

    fn open(&mut self, call: CallId, worker: WorkerId, session: SessionIx) {
        let (line, id, closing) = (Arc::clone(&self.line), self.line.wire_id(session), self.closing(worker, session));
        tokio::spawn(async move {
            line.begin(Outgoing::Call(call)).await;
            ended(closing).await;
            let result = control::open(&line, worker, &id).await;
            line.tell(Event::Opened { call, worker, result }).await;
        });
    }

    fn close_session(&mut self, worker: WorkerId, session: SessionIx) {
        let (line, id, before) = (Arc::clone(&self.line), self.line.wire_id(session), self.closing(worker, session));
        let (done, closing) = watch::channel(());
        self.closes.retain(|_, closing| closing.has_changed().is_ok());
        self.closes.insert((worker, session), closing);
        tokio::spawn(async move {
            ended(before).await;
            control::close(&line, worker, &id).await;
            drop(done);
        });
    }

    fn admit(&mut self, call: CallId, worker: WorkerId, ask: AdmitAsk) {
        let (line, id) = (Arc::clone(&self.line), self.line.wire_id(ask.session));
        let closing = self.closing(worker, ask.session);
        tokio::spawn(async move {
            line.begin(Outgoing::Call(call)).await;
            ended(closing).await;
            let result = control::admit(&line, worker, &id, ask).await;
            line.tell(Event::Admission { call, worker, result }).await;
        });
    }

    /// Calls about one session on one worker keep their order: what follows a close waits for it.
    fn closing(&self, worker: WorkerId, session: SessionIx) -> Option<Closing> {
        self.closes.get(&(worker, session)).cloned()
    }
}

async fn ended(closing: Option<Closing>) {
    if let Some(mut closing) = closing {
        while closing.changed().await.is_ok() {}
    }
}
