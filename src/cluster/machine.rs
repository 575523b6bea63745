//! [`Cluster`]: workers, router, links and faults behind one machine told the time.
//!
//! Everything that takes time is a message in one heap, ordered by (time, order of creation). A message to a worker
//! carries the incarnation it was meant for; a worker that died since refuses it.
//! Invariants: every flight ends in exactly one answer; a flight that no worker answers is ended by its transfer time-out,
//! by an outage or by its client, who is told at once what had reached it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::base::{Dur, RequestIx, Role, SessionIx, Time, WorkerId};
use crate::cluster::agenda::Agenda;
use crate::cluster::faults::{Fault, Faults};
use crate::cluster::flight::Flight;
use crate::cluster::links::Links;
use crate::cluster::publish::{KvMail, KvWord, Publishing};
use crate::cluster::router::PdRouter;
use crate::cluster::site::Site;
use crate::cluster::{ClusterConfig, FaultKind};
use crate::engine::{Cx, DropReason, EngineConfig, Input, Output, Worker};
use crate::protocol::{Action, Answer, Event, Generate, LoadReport, Route, WorkerState};
use crate::record::TransferRecord;

/// See the module.
#[derive(Debug)]
pub struct Cluster {
    pub(super) config: ClusterConfig,
    pub(super) engine: EngineConfig,
    pub(super) block_size: u32,
    pub(super) sites: Vec<Site>,
    pub(super) router: PdRouter,
    pub(super) links: Links,
    pub(super) link_version: u64,
    pub(super) faults: Faults,
    pub(super) flights: BTreeMap<RequestIx, Flight>,
    /// Ended, on the way back to the client.
    pub(super) answers: BTreeMap<RequestIx, Answer>,
    /// Given up before they arrived.
    pub(super) unwanted: BTreeSet<RequestIx>,
    pub(super) requests: u64,
    pub(super) pairs: BTreeMap<(usize, usize), TransferRecord>,
    agenda: Agenda<Message>,
    pub(super) publishing: Option<Publishing>,
    /// Messages about KV events on their way.
    pub(super) kv_mails: usize,
    /// They take no time: the run has not begun.
    pub(super) kv_at_once: bool,
    pub(super) kv_words: VecDeque<(WorkerId, KvWord)>,
    pub(super) events: VecDeque<Event>,
    pub(super) notices: VecDeque<Notice>,
}

/// What an operator would find in the logs of the workers and of whoever plays tricks on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notice {
    /// A fault has begun.
    Fault {
        /// Which.
        kind: FaultKind,
        /// Worker it strikes.
        worker: Option<WorkerId>,
    },
    /// A decode worker dropped an idle session.
    SessionDropped {
        /// The worker.
        worker: WorkerId,
        /// The session.
        session: SessionIx,
        /// Why.
        reason: DropReason,
    },
}

/// Something that happens at its time.
#[derive(Debug)]
pub(super) enum Message {
    ToRouter(Generate),
    ToWorker {
        site: usize,
        incarnation: u32,
        input: Input,
    },
    /// A generate request straight to a worker.
    Direct {
        site: usize,
        generate: Generate,
    },
    Wake {
        site: usize,
    },
    ToClient(Event),
    /// An answer reaches the client, who may have given it up meanwhile.
    Answered(RequestIx),
    Refuse {
        request: RequestIx,
        status: u16,
        message: String,
    },
    TransferStarts(RequestIx),
    TransferFails(RequestIx),
    TransferTimesOut(RequestIx),
    LinkEnds {
        version: u64,
    },
    FaultBegins(usize),
    FaultEnds(usize),
    Discovered {
        site: usize,
        state: WorkerState,
    },
    Kv {
        site: usize,
        connection: u32,
        mail: KvMail,
    },
}

impl Cluster {
    /// A cold cluster. `config.router` must be resolved (no `auto`).
    pub fn new(config: &ClusterConfig, engine: &EngineConfig, block_size: u32, faults: Vec<Fault>) -> Cluster {
        let roles =
            [(Role::Prefill, config.prefill), (Role::Decode, config.decode), (Role::Colocated, config.colocated)];
        let ids = roles.into_iter().flat_map(|(role, count)| (0..count).map(move |index| WorkerId::new(role, index)));
        let faults = Faults::new(faults);
        let absent = faults.joiners();
        let sites = ids.map(|id| Site::new(id, engine, block_size, !absent.contains(&id))).collect();
        let mut cluster = Cluster {
            config: config.clone(),
            engine: engine.clone(),
            block_size,
            sites,
            router: PdRouter::new(&config.router),
            links: Links::new(config.prefill.into(), config.decode.into(), config.link.gbytes_per_s),
            link_version: 0,
            faults,
            flights: BTreeMap::new(),
            answers: BTreeMap::new(),
            unwanted: BTreeSet::new(),
            requests: 0,
            pairs: BTreeMap::new(),
            agenda: Agenda::default(),
            publishing: None,
            kv_mails: 0,
            kv_at_once: false,
            kv_words: VecDeque::new(),
            events: VecDeque::new(),
            notices: VecDeque::new(),
        };
        for worker in absent {
            cluster.events.push_back(Event::WorkerChanged { worker, state: WorkerState::Down });
        }
        for (fault, at) in cluster.faults.timed() {
            cluster.schedule(at, Message::FaultBegins(fault));
        }
        cluster
    }

    /// Takes what a client sends now.
    pub fn handle_action(&mut self, cx: Cx<'_>, action: Action) {
        let arrives = cx.now + self.hop();
        match action {
            Action::Generate(generate) => match generate.route {
                Route::Router(_) => self.schedule(arrives, Message::ToRouter(generate)),
                Route::Worker(worker) => {
                    let site = self.site(worker);
                    self.schedule(arrives, Message::Direct { site, generate });
                }
            },
            Action::OpenSession { call, worker, session } => {
                self.call(arrives, worker, Input::Open { call, session, idle_timeout: None });
            }
            Action::CloseSession { worker, session } => self.call(arrives, worker, Input::Close(session)),
            Action::Admit { call, worker, ask } => self.call(arrives, worker, Input::Admit { call, ask }),
            Action::Abort { request } => self.abandon(cx, request),
            Action::PollLoads => {
                self.schedule(arrives + self.hop(), Message::ToClient(Event::Loads(self.loads())));
            }
        }
    }

    /// Load of every worker that is alive.
    pub fn loads(&self) -> Vec<LoadReport> {
        self.sites.iter().filter_map(|site| site.worker.as_ref().map(Worker::load)).collect()
    }

    /// Call at the time of [`Cluster::poll_timeout`].
    pub fn handle_timeout(&mut self, cx: Cx<'_>) {
        while let Some(message) = self.agenda.due(cx.now) {
            self.deliver(cx, message);
        }
    }

    /// When [`Cluster::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.agenda.next()
    }

    /// What reaches the client now.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Something worth a line in the ledger that no client is told.
    pub fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.pop_front()
    }

    /// Generate requests that have neither ended nor been aborted.
    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    fn deliver(&mut self, cx: Cx<'_>, message: Message) {
        match message {
            Message::ToRouter(generate) => self.route(cx, generate),
            Message::Direct { site, generate } => self.go_direct(cx, site, generate),
            Message::ToWorker { site, incarnation, input } => self.reach_worker(cx, site, incarnation, input),
            // A wake that was moved since is stale.
            Message::Wake { site } if self.sites[site].wake != Some(cx.now) => {}
            Message::Wake { site } => {
                self.sites[site].wake = None;
                if let Some(worker) = &mut self.sites[site].worker {
                    worker.handle_timeout(cx);
                    self.drain(cx, site);
                }
            }
            Message::ToClient(event) => self.events.push_back(event),
            Message::Answered(request) => {
                let answer = self.answers.remove(&request);
                self.events.extend(answer.map(|answer| Event::Finished(Box::new(answer))));
            }
            Message::Refuse { request, status, message } => self.refuse(cx, request, status, message),
            Message::TransferStarts(request) => self.start_transfer(cx, request),
            Message::TransferFails(request) => self.fail_transfer(cx, request),
            Message::TransferTimesOut(request) => self.time_out_transfer(cx, request),
            Message::LinkEnds { version } if version == self.link_version => self.end_transfers(cx),
            Message::LinkEnds { .. } => {}
            Message::FaultBegins(fault) => self.begin_fault(cx, fault),
            Message::FaultEnds(fault) => self.end_fault(cx, fault),
            Message::Discovered { site, state } => self.discovered(site, state),
            Message::Kv { site, connection, mail } => self.take_mail(cx, site, connection, mail),
        }
    }

    /// Hands `input` to the worker now and takes what it has to say.
    pub(super) fn feed(&mut self, cx: Cx<'_>, site: usize, input: Input) {
        if let Some(worker) = &mut self.sites[site].worker {
            worker.handle_input(cx, input);
            self.drain(cx, site);
        }
    }

    pub(super) fn drain(&mut self, cx: Cx<'_>, site: usize) {
        while let Some((at, output)) = self.sites[site].worker.as_mut().and_then(Worker::poll_output) {
            match output {
                Output::Done(done) => self.leg_done(cx, at, site, *done),
                // These workers do not stream.
                Output::Tokens(_) => {}
                Output::Reserved { request, tokens } => self.reserved(cx, request, tokens),
                Output::Prefilled { request, cached_tokens, arrived, started } => {
                    self.prefilled(cx, request, cached_tokens, (arrived, started));
                }
                Output::Silent { request, since, output_tokens: _ } => {
                    let back = self.flights.get(&request).map_or(0, Flight::hops_back);
                    let delay = Dur(self.hop().ns() * back);
                    let quiet = Event::Silent { request, since: since + delay };
                    self.schedule(at + delay, Message::ToClient(quiet));
                }
                Output::SessionDropped { session, reason } => {
                    self.notices.push_back(Notice::SessionDropped { worker: self.sites[site].id, session, reason });
                }
                Output::Opened { call, result } => {
                    let worker = self.sites[site].id;
                    self.schedule(at + self.hop(), Message::ToClient(Event::Opened { call, worker, result }));
                }
                Output::Admission { call, answer } => {
                    let worker = self.sites[site].id;
                    let answered = Event::Admission { call, worker, result: Ok(answer) };
                    self.schedule(at + self.hop(), Message::ToClient(answered));
                }
            }
        }
        self.publish(cx, site);
        let wake = self.sites[site].worker.as_ref().and_then(Worker::poll_timeout);
        if let Some(at) = wake.filter(|at| self.sites[site].wake.is_none_or(|planned| *at < planned)) {
            self.sites[site].wake = Some(at);
            self.schedule(at, Message::Wake { site });
        }
    }

    pub(super) fn schedule(&mut self, at: Time, message: Message) {
        self.agenda.schedule(at, message);
    }

    pub(super) fn agenda_len(&self) -> usize {
        self.agenda.left()
    }

    pub(super) fn hop(&self) -> Dur {
        Dur::from_micros(self.config.hop_us)
    }

    /// Index of a worker's site. Panics for a worker the cluster was not built with: the scenario was checked.
    pub(super) fn site(&self, worker: WorkerId) -> usize {
        let found = self.sites.iter().position(|site| site.id == worker);
        found.unwrap_or_else(|| panic!("{worker} is no worker of this cluster"))
    }

    fn call(&mut self, arrives: Time, worker: WorkerId, input: Input) {
        let site = self.site(worker);
        let incarnation = self.sites[site].incarnation;
        self.schedule(arrives, Message::ToWorker { site, incarnation, input });
    }
}
