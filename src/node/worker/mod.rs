//! [`WorkerNode`]: one emulated worker behind a socket.
//!
//! Owns what lies between HTTP and the engine of one worker: exchanges and names to indices, token ids to blocks, the
//! time a request takes to come in, the rendezvous of the legs of a P/D request (`prefill.rs`, `decode.rs`) and faults.
//! What the engine does it does itself. Knows other workers only by their messages.
//! A wake that comes late moves nothing: everything due happens at its own time, in order, before what comes now.
//! Invariants: a generate exchange ends exactly once (`Finished`, `Refused`, `Hangs` or its client's `Gone`), a call is
//! answered once; whatever ended holds no memory here.

mod answer;
mod control;
mod decode;
mod faults;
mod generate;
mod names;
mod patience;
mod prefill;
mod publish;
mod report;
#[cfg(test)]
mod tests;
mod tokens;

use std::collections::{BTreeMap, VecDeque};

use crate::base::{RequestIx, SessionIx, Time, WorkerId};
use crate::cluster::{Agenda, Links};
use crate::engine::{Cx, Input, Job, Output, Worker};
use crate::kv::BlockTree;
use crate::node::worker::decode::{Ingress, Pulling};
use crate::node::worker::faults::NodeFaults;
use crate::node::worker::names::NodeNames;
use crate::node::worker::patience::Patience;
use crate::node::worker::prefill::Room;
use crate::node::worker::publish::Published;
use crate::node::worker::tokens::AnswerIds;
use crate::node::{Bootstrap, Exchange, HandedOver, NodeConfig, NodeInput, NodeOutput, Refusal};
use crate::record::TransferRecord;

pub use decode::PULL_TIMEOUT;
pub use report::NodeCounters;

/// See the module.
#[derive(Debug)]
pub struct WorkerNode {
    config: NodeConfig,
    worker: Worker,
    tree: BlockTree,
    /// Nodes and blocks of the tree beyond which it is compacted.
    tree_limit: u64,
    names: NodeNames,
    /// Absent where KV events are not published.
    published: Option<Published>,
    /// Generate requests that have not ended.
    works: BTreeMap<RequestIx, Work>,
    generates: BTreeMap<Exchange, RequestIx>,
    /// Open and admission calls that are not answered, and the session they are about.
    calls: BTreeMap<Exchange, SessionIx>,
    next_request: u32,
    /// Prefill: where legs meet.
    rooms: BTreeMap<u64, Room>,
    /// Prefill: pulls by their exchange.
    pulls: BTreeMap<Exchange, u64>,
    /// Prefill: own egress, and the ingress of every D as far as known.
    links: Links,
    /// Decode: own ingress.
    ingress: Ingress,
    faults: NodeFaults,
    agenda: Agenda<Due>,
    patience: Patience,
    outputs: VecDeque<NodeOutput>,
    now: Time,
    requests: u64,
    sessions_made: u64,
    aborted: u64,
    transfer_errors: u64,
    pairs: BTreeMap<WorkerId, TransferRecord>,
}

/// A generate request that has not ended.
#[derive(Debug)]
struct Work {
    exchange: Exchange,
    session: Option<SessionIx>,
    bootstrap: Option<Bootstrap>,
    answer: AnswerIds,
    /// What the engine will get, until it has it.
    job: Option<Job>,
    prompt_tokens: u32,
    cached_tokens: u32,
    /// Answer tokens that the client was told of.
    told: u32,
    /// A fault made its stream quiet: nothing more may be said.
    hangs: bool,
    /// Decode: where its KV is.
    pulling: Pulling,
    /// Decode: P's word, and when it came.
    over: Option<(HandedOver, Time)>,
}

/// Something that happens at its time.
#[derive(Debug)]
enum Due {
    /// A request has been taken in.
    Enter(RequestIx),
    /// The engine says something that leaves after the control calls of its boundary.
    Engine(Box<Output>),
    RefuseRequest(RequestIx, Refusal),
    RefuseCall(Exchange, Refusal),
    FaultBegins(usize, Time),
    FaultEnds(usize),
    TransferStarts(u64, RequestIx),
    TransferFails(u64, RequestIx),
}

impl WorkerNode {
    /// A cold worker. Panics for a fault with a bad worker name: the scenario was checked.
    pub fn new(config: NodeConfig) -> WorkerNode {
        let mut worker = Worker::new(config.id, config.incarnation, &config.engine, config.block_size);
        worker.stream_tokens();
        let cluster = &config.cluster;
        let prefill = usize::from(cluster.prefill).max(usize::from(config.id.index) + 1);
        let mut node = WorkerNode {
            worker,
            tree: BlockTree::new(config.block_size),
            tree_limit: generate::FIRST_COMPACTION,
            names: NodeNames::new(),
            published: None,
            works: BTreeMap::new(),
            generates: BTreeMap::new(),
            calls: BTreeMap::new(),
            next_request: 0,
            rooms: BTreeMap::new(),
            pulls: BTreeMap::new(),
            links: Links::new(prefill, cluster.decode.into(), cluster.link.gbytes_per_s),
            ingress: Ingress::default(),
            faults: NodeFaults::new(&config),
            agenda: Agenda::default(),
            patience: Patience::default(),
            outputs: VecDeque::new(),
            now: Time::ZERO,
            requests: 0,
            sessions_made: 0,
            aborted: 0,
            transfer_errors: 0,
            pairs: BTreeMap::new(),
            config,
        };
        node.plan_faults();
        node
    }

    /// Takes something in. `now` counts from the start of the run, which `at_s` of faults counts from too.
    pub fn handle_input(&mut self, now: Time, input: NodeInput) {
        self.advance(now);
        match input {
            NodeInput::Generate { exchange, ask } => self.generate(exchange, *ask),
            NodeInput::Gone(exchange) => self.gone(exchange),
            NodeInput::Open { exchange, session, timeout } => self.open(exchange, session, timeout),
            NodeInput::Close(session) => self.close(&session),
            NodeInput::Admit { exchange, session, kind, append_tokens, output_tokens } => {
                self.admit(exchange, &session, kind, (append_tokens, output_tokens));
            }
            NodeInput::Abort(rid) => self.abort_matching(rid.as_deref()),
            NodeInput::Flush(exchange) => self.flush(exchange),
            NodeInput::Pull { exchange, room, tokens, decode, ingress_flows } => {
                self.pull(exchange, room, tokens, decode, ingress_flows);
            }
            NodeInput::Ingress { decode, flows } => {
                self.hear_ingress(decode, flows);
            }
            NodeInput::FaultBegins { fault, at } => self.begin_fault(fault, at),
            NodeInput::PullMoves(exchange) => self.pull_moves(exchange),
            NodeInput::HandedOver { exchange, result } => self.handed_over(exchange, result),
        }
        self.advance(now);
    }

    /// Call at the time of [`WorkerNode::poll_timeout`], or later.
    pub fn handle_timeout(&mut self, now: Time) {
        self.advance(now);
    }

    /// When [`WorkerNode::handle_timeout`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Time> {
        let wakes = [self.agenda.next(), self.patience.next(), self.links.next_end(), self.worker.poll_timeout()];
        wakes.into_iter().flatten().min()
    }

    /// What leaves now.
    pub fn poll_output(&mut self) -> Option<NodeOutput> {
        self.outputs.pop_front()
    }

    /// Everything due by `now`, each at its time.
    fn advance(&mut self, now: Time) {
        while let Some(at) = self.poll_timeout().filter(|at| *at <= now) {
            self.now = self.now.max(at);
            if let Some(due) = self.agenda.due(self.now) {
                self.deliver(due);
            } else if let Some(wait) = self.patience.over(self.now) {
                self.give_up(wait);
            } else if self.links.next_end().is_some_and(|end| end <= self.now) {
                self.end_transfers();
            } else {
                let cx = Cx { now: self.now, tree: &self.tree, names: &self.names };
                self.worker.handle_timeout(cx);
                self.drain();
            }
        }
        self.now = self.now.max(now);
    }

    fn deliver(&mut self, due: Due) {
        match due {
            Due::Enter(request) => self.enter(request),
            Due::Engine(output) => self.engine_says(*output),
            Due::RefuseRequest(request, refusal) => self.refuse(request, refusal),
            Due::RefuseCall(exchange, refusal) => {
                if self.calls.remove(&exchange).is_some() {
                    self.outputs.push_back(NodeOutput::Refused { exchange, refusal });
                }
            }
            Due::FaultBegins(fault, at) => self.begin_fault(fault, at),
            Due::FaultEnds(fault) => self.end_fault(fault),
            Due::TransferStarts(room, request) => self.start_transfer(room, request),
            Due::TransferFails(room, request) => self.fail_transfer(room, request),
        }
    }

    /// Hands `input` to the engine now and takes what it has to say.
    fn feed(&mut self, input: Input) {
        self.worker.handle_input(Cx { now: self.now, tree: &self.tree, names: &self.names }, input);
        self.drain();
    }

    fn drain(&mut self) {
        while let Some((at, output)) = self.worker.poll_output() {
            if at > self.now {
                self.agenda.schedule(at, Due::Engine(Box::new(output)));
            } else {
                self.engine_says(output);
            }
        }
        self.publish();
    }

    fn emit(&mut self, output: NodeOutput) {
        self.outputs.push_back(output);
    }
}
