//! Nodes of one cluster with a network of no delay between them, in virtual time.

use std::collections::BTreeMap;

use crate::base::{Role, Time, WorkerId};
use crate::cluster::{ClusterConfig, FaultConfig, Strikes};
use crate::engine::EngineConfig;
use crate::node::{Bootstrap, Exchange, GenerateAsk, NodeConfig, NodeInput, NodeOutput, Progress, Refusal, WorkerNode};
use crate::protocol::{ErrorClass, Finish, Phases};

pub const FOREVER: Time = Time(u64::MAX / 4);

/// What a client has of one exchange.
#[derive(Debug, Default, Clone)]
pub struct Heard {
    pub ids: Vec<u32>,
    pub tokens_at: Vec<Time>,
    pub prompt_tokens: u32,
    pub cached_tokens: u32,
    pub ends: Vec<(Time, End)>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum End {
    Finished { finish: Finish, phases: Phases, prefill_worker: Option<String> },
    Refused(Refusal),
    Hangs,
}

impl Heard {
    pub fn end(&self) -> &End {
        assert_eq!(self.ends.len(), 1, "one end an exchange: {self:?}");
        &self.ends[0].1
    }

    pub fn length(&self) -> &Phases {
        match self.end() {
            End::Finished { finish: Finish::Length, phases, .. } => phases,
            other => panic!("not a whole answer: {other:?}"),
        }
    }

    pub fn abort(&self) -> (ErrorClass, &str) {
        match self.end() {
            End::Finished { finish: Finish::Abort { class, message }, .. } => (*class, message),
            other => panic!("not aborted: {other:?}"),
        }
    }

    pub fn refusal(&self) -> (u16, &str) {
        match self.end() {
            End::Refused(refusal) => (refusal.status, &refusal.message),
            other => panic!("not refused: {other:?}"),
        }
    }
}

pub struct Net {
    pub nodes: Vec<WorkerNode>,
    pub now: Time,
    pub heard: BTreeMap<Exchange, Heard>,
    /// Everything beside answers to generate requests, with the node that said it.
    pub other: Vec<(usize, NodeOutput)>,
    /// Exchange of a pull at P: the D's node and its exchange.
    pub pulls: BTreeMap<Exchange, (usize, Exchange)>,
    next: u64,
}

pub fn fault(text: &str) -> FaultConfig {
    serde_json::from_str(text).unwrap()
}

pub fn colocated() -> Net {
    Net::new(&[WorkerId::new(Role::Colocated, 0)], &EngineConfig::default(), &[])
}

/// P0, then so many D.
pub fn disaggregated(decode: u16, faults: &[&str]) -> Net {
    let ds = (0..decode).map(|index| WorkerId::new(Role::Decode, index));
    let ids: Vec<_> = std::iter::once(WorkerId::new(Role::Prefill, 0)).chain(ds).collect();
    Net::new(&ids, &EngineConfig::default(), faults)
}

/// An ask without anything special.
pub fn ask(input_ids: Vec<u32>, max_new_tokens: u32) -> GenerateAsk {
    GenerateAsk { input_ids, max_new_tokens, ..GenerateAsk::default() }
}

/// `count` tokens that nobody else's prompt `of` begins with.
pub fn tokens(of: u32, count: u32) -> Vec<u32> {
    (0..count).map(|at| of.wrapping_mul(100_003).wrapping_add(at)).collect()
}

impl Net {
    pub fn new(ids: &[WorkerId], engine: &EngineConfig, faults: &[&str]) -> Net {
        let cluster = ClusterConfig { prefill: 2, decode: 3, ..ClusterConfig::default() };
        let faults: Vec<FaultConfig> = faults.iter().map(|text| fault(text)).collect();
        let strikes = Strikes::of(&faults);
        let node = |id: &WorkerId| {
            WorkerNode::new(NodeConfig {
                id: *id,
                incarnation: 0,
                engine: engine.clone(),
                cluster: cluster.clone(),
                block_size: 64,
                faults: faults.clone(),
                strikes: Some(strikes.clone()),
            })
        };
        Net {
            nodes: ids.iter().map(node).collect(),
            now: Time::ZERO,
            heard: BTreeMap::new(),
            other: Vec::new(),
            pulls: BTreeMap::new(),
            next: 0,
        }
    }

    pub fn exchange(&mut self) -> Exchange {
        self.next += 1;
        Exchange(self.next)
    }

    pub fn put(&mut self, node: usize, input: NodeInput) {
        self.nodes[node].handle_input(self.now, input);
        self.carry(node);
    }

    pub fn send(&mut self, node: usize, ask: GenerateAsk) -> Exchange {
        let exchange = self.exchange();
        self.heard.insert(exchange, Heard::default());
        self.put(node, NodeInput::Generate { exchange, ask: Box::new(ask) });
        exchange
    }

    /// Both legs of a request, as a client without a router posts them; `session` goes to D alone.
    pub fn send_both(&mut self, p: usize, d: usize, room: u64, ask: GenerateAsk) -> (Exchange, Exchange) {
        let bootstrap = Some(Bootstrap { host: "p".into(), port: p as u16, room });
        let ask = GenerateAsk { bootstrap, ..ask };
        let prefill = self.send(p, GenerateAsk { session: None, ..ask.clone() });
        (prefill, self.send(d, ask))
    }

    pub fn open(&mut self, node: usize, session: &str) {
        let exchange = self.exchange();
        self.put(node, NodeInput::Open { exchange, session: Some(session.into()), timeout: None });
    }

    pub fn run(&mut self, until: Time) {
        let mut wakes = 0;
        while let Some(at) = self.nodes.iter().filter_map(WorkerNode::poll_timeout).min().filter(|at| *at <= until) {
            assert!(at >= self.now, "a wake lies in the past");
            self.now = at;
            for node in 0..self.nodes.len() {
                if self.nodes[node].poll_timeout() == Some(at) {
                    self.nodes[node].handle_timeout(at);
                    self.carry(node);
                }
            }
            wakes += 1;
            assert!(wakes < 1_000_000, "the nodes spin");
        }
        if until < FOREVER {
            self.now = self.now.max(until);
        }
    }

    pub fn run_for(&mut self, seconds: f64) {
        self.run(Time(self.now.ns() + (seconds * 1e9) as u64));
    }

    pub fn heard(&self, exchange: Exchange) -> &Heard {
        &self.heard[&exchange]
    }

    /// The last output of the kind that `of` picks.
    pub fn last<T>(&self, of: impl Fn(&NodeOutput) -> Option<T>) -> T {
        self.other.iter().rev().find_map(|(_, output)| of(output)).expect("such an output")
    }

    fn carry(&mut self, node: usize) {
        while let Some(output) = self.nodes[node].poll_output() {
            match output {
                NodeOutput::Progress(progress) => self.progress(progress),
                NodeOutput::Finished { exchange, finish, last, phases, prefill_worker, .. } => {
                    self.progress(last);
                    self.ended(exchange, End::Finished { finish, phases, prefill_worker });
                }
                NodeOutput::Hangs(exchange) => self.ended(exchange, End::Hangs),
                NodeOutput::Refused { exchange, refusal } => match self.pulls.remove(&exchange) {
                    Some((d, of)) => {
                        self.put(d, NodeInput::HandedOver { exchange: of, result: Err(refusal.message) });
                    }
                    None if self.heard.contains_key(&exchange) => self.ended(exchange, End::Refused(refusal)),
                    None => self.other.push((node, NodeOutput::Refused { exchange, refusal })),
                },
                NodeOutput::StartPull { exchange, bootstrap, tokens, ingress_flows } => {
                    let pull = self.exchange();
                    self.pulls.insert(pull, (node, exchange));
                    let decode = self.nodes[node].config.id;
                    let room = bootstrap.room;
                    let input = NodeInput::Pull { exchange: pull, room, tokens, decode, ingress_flows };
                    self.put(bootstrap.port.into(), input);
                }
                NodeOutput::StopPull(exchange) => {
                    let pull = self.pulls.iter().find(|(_, of)| **of == (node, exchange)).map(|(pull, _)| *pull);
                    if let Some(pull) = pull {
                        self.pulls.remove(&pull);
                        let p = self.nodes.iter().position(|node| node.config.id.role == Role::Prefill).unwrap();
                        self.put(p, NodeInput::Gone(pull));
                    }
                }
                NodeOutput::TellIngress { bootstrap, flows } => {
                    let decode = self.nodes[node].config.id;
                    self.put(bootstrap.port.into(), NodeInput::Ingress { decode, flows });
                }
                NodeOutput::PullMoves(exchange) => {
                    let (d, of) = self.pulls[&exchange];
                    self.put(d, NodeInput::PullMoves(of));
                }
                NodeOutput::Pulled { exchange, over } => {
                    let (d, of) = self.pulls.remove(&exchange).expect("a pull is answered once");
                    self.put(d, NodeInput::HandedOver { exchange: of, result: Ok(over) });
                }
                other @ (NodeOutput::Opened { .. }
                | NodeOutput::Admission { .. }
                | NodeOutput::Flushed { .. }
                | NodeOutput::KvEvents(_)
                | NodeOutput::KvReachable(_)) => {
                    self.other.push((node, other));
                }
            }
        }
    }

    fn progress(&mut self, progress: Progress) {
        let heard = self.heard.get_mut(&progress.exchange).expect("an exchange of a client");
        assert!(heard.ends.is_empty(), "nothing follows the end");
        heard.tokens_at.extend(progress.new_ids.iter().map(|_| self.now));
        heard.ids.extend(progress.new_ids);
        assert_eq!(heard.ids.len(), progress.completion_tokens as usize, "every token is brought once");
        (heard.prompt_tokens, heard.cached_tokens) = (progress.prompt_tokens, progress.cached_tokens);
    }

    fn ended(&mut self, exchange: Exchange, end: End) {
        self.heard.get_mut(&exchange).expect("an exchange of a client").ends.push((self.now, end));
    }
}
