//! The one task that owns the node: messages in, outputs to the sheets of their exchanges, wakes to the nanosecond.
//!
//! The node lives in the time of the emulation: each of its wakes is handled at the time it was due, however late this
//! task runs, so lateness of the machine delays what is sent but never slows the emulation down.
//! Invariant: an input is handled after every wake that was due before it; after each, the node is drained.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::exchange::Sheet;
use super::inbox::Inbox;
use super::kv::{KvWord, ToKv};
use super::metrics::Timings;
use super::peer::{Address, Peers};
use super::triggers::Triggers;
use crate::base::Time;
use crate::kv::publish::Message as Frames;
use crate::live::clock::{Alarm, Clock};
use crate::node::{Exchange, HandedOver, NodeCounters, NodeInput, NodeOutput, WorkerNode};
use crate::protocol::LoadReport;
use crate::record::{TransferRecord, WorkerRecord};

/// Messages and wakes handled before other tasks get their turn.
const TURN: usize = 64;

/// What reaches the owner.
#[derive(Debug)]
pub(super) enum Message {
    /// An exchange begins; its outputs go to the sheet.
    Begin {
        /// Which.
        exchange: Exchange,
        /// Its first input.
        input: NodeInput,
        /// Where its outputs go.
        sheet: Arc<Sheet>,
    },
    /// An input that is not answered.
    Tell(NodeInput),
    /// The client of an exchange has left.
    Gone(Exchange),
    /// Someone wants to see the node.
    Look(oneshot::Sender<Look>),
    /// P has begun to send what a pull asked for.
    PullMoves(Exchange),
    /// A pull has ended.
    HandedOver(Exchange, Result<HandedOver, String>),
    /// A subscriber wants to know what happened from a sequence number on.
    Replay {
        /// The number.
        from: u64,
        /// Where the replies go.
        answer: oneshot::Sender<Vec<Frames>>,
    },
    /// A prefill worker has been told of this one's ingress, or cannot be.
    Told(Address),
}

/// The node as it is now.
#[derive(Debug)]
pub(super) struct Look {
    pub at: Time,
    pub load: LoadReport,
    pub record: WorkerRecord,
    pub transfers: Vec<TransferRecord>,
    pub counters: NodeCounters,
    pub timings: Timings,
}

/// See the module.
pub(super) struct Owner {
    node: WorkerNode,
    clock: Clock,
    sheets: BTreeMap<Exchange, Entry>,
    peers: Peers,
    triggers: Arc<Triggers>,
    /// Faults begun by count that the node knows of.
    begun: usize,
    timings: Timings,
    /// To whoever publishes its KV events.
    kv: Option<ToKv>,
}

struct Entry {
    sheet: Arc<Sheet>,
    began: Time,
    /// Last token.
    token: Option<Time>,
}

impl Owner {
    pub fn new(node: WorkerNode, clock: Clock, peers: Peers, triggers: Arc<Triggers>) -> Owner {
        Owner { node, clock, sheets: BTreeMap::new(), peers, triggers, begun: 0, timings: Timings::default(), kv: None }
    }

    /// KV events go there.
    pub fn publish_to(&mut self, kv: ToKv) {
        self.kv = Some(kv);
    }

    /// Until every sender is gone. Errors: the kernel gives no timer.
    pub async fn run(mut self, mut inbox: Inbox) -> io::Result<()> {
        let mut alarm = Alarm::new()?;
        let mut watch = self.triggers.watch();
        // The publisher's first batch: kept back, it would come late to whoever asks first.
        self.drain(self.clock.now());
        self.begin_faults(self.clock.now());
        loop {
            let wake = self.node.poll_timeout();
            tokio::select! {
                biased;
                message = inbox.next() => match message {
                    Some(message) => self.take(message),
                    None => return Ok(()),
                },
                // The triggers are ours too, so their news never end.
                Ok(()) = watch.changed() => self.begin_faults(self.clock.now()),
                woken = sleep(&mut alarm, &self.clock, wake) => woken?,
            }
            for _ in 1..TURN {
                let Ok(message) = inbox.next_now() else { break };
                self.take(message);
            }
            self.catch_up(self.clock.now());
            tokio::task::yield_now().await;
        }
    }

    fn take(&mut self, message: Message) {
        let now = self.clock.now();
        self.catch_up(now);
        self.begin_faults(now);
        match message {
            Message::Begin { exchange, input, sheet } => {
                self.sheets.insert(exchange, Entry { sheet, began: now, token: None });
                self.node.handle_input(now, input);
            }
            Message::Tell(input) => self.node.handle_input(now, input),
            Message::Gone(exchange) => {
                if self.sheets.remove(&exchange).is_some() {
                    self.node.handle_input(now, NodeInput::Gone(exchange));
                }
            }
            Message::Look(asker) => {
                let look = Look {
                    at: now,
                    load: self.node.load(),
                    record: self.node.record(now),
                    transfers: self.node.transfers(),
                    counters: self.node.counters(),
                    timings: self.timings.clone(),
                };
                // Who asked may have left.
                let _ = asker.send(look);
            }
            Message::PullMoves(exchange) => self.node.handle_input(now, NodeInput::PullMoves(exchange)),
            Message::HandedOver(exchange, result) => {
                if self.peers.pull_ended(exchange) {
                    self.node.handle_input(now, NodeInput::HandedOver { exchange, result });
                }
            }
            Message::Told(address) => self.peers.told(address),
            Message::Replay { from, answer } => {
                // Who asked may have left.
                let _ = answer.send(self.node.replay_events(now, from));
            }
        }
        self.drain(now);
    }

    /// Tells the node of the counts that were reached.
    fn begin_faults(&mut self, now: Time) {
        for (fault, at) in self.triggers.begun(self.begun) {
            self.begun += 1;
            self.catch_up(now);
            self.node.handle_input(now, NodeInput::FaultBegins { fault, at });
            self.drain(now);
        }
    }

    /// Every wake up to `now`, each at its own time.
    fn catch_up(&mut self, now: Time) {
        while let Some(at) = self.node.poll_timeout().filter(|at| *at <= now) {
            self.node.handle_timeout(at);
            self.drain(at);
        }
    }

    fn drain(&mut self, now: Time) {
        while let Some(output) = self.node.poll_output() {
            self.pass_on(now, output);
        }
    }

    fn pass_on(&mut self, now: Time, output: NodeOutput) {
        match output {
            NodeOutput::Progress(progress) => {
                if let Some(entry) = self.sheets.get_mut(&progress.exchange) {
                    self.timings.tokens(now, entry.began, entry.token, progress.new_ids.len());
                    entry.token = Some(now);
                    entry.sheet.progress(progress);
                }
            }
            NodeOutput::Hangs(exchange) => {
                if let Some(entry) = self.sheets.get(&exchange) {
                    entry.sheet.hangs();
                }
            }
            NodeOutput::PullMoves(exchange) => {
                if let Some(entry) = self.sheets.get(&exchange) {
                    entry.sheet.moves();
                }
            }
            NodeOutput::Finished { exchange, ref last, ref phases, .. } => {
                if let Some(entry) = self.sheets.get(&exchange) {
                    if !last.new_ids.is_empty() {
                        self.timings.tokens(now, entry.began, entry.token, last.new_ids.len());
                    }
                    self.timings.finished(now, entry.began, phases);
                }
                self.end(exchange, output);
            }
            NodeOutput::Refused { exchange, .. }
            | NodeOutput::Opened { exchange, .. }
            | NodeOutput::Admission { exchange, .. }
            | NodeOutput::Flushed { exchange, .. }
            | NodeOutput::Pulled { exchange, .. } => self.end(exchange, output),
            NodeOutput::StartPull { exchange, bootstrap, tokens, ingress_flows } => {
                self.peers.pull(exchange, bootstrap, tokens, ingress_flows);
            }
            NodeOutput::KvEvents(frames) => self.tell_kv(KvWord::Send(frames)),
            NodeOutput::KvReachable(is_reachable) => self.tell_kv(KvWord::Listen(is_reachable)),
            NodeOutput::StopPull(exchange) => self.peers.stop_pull(exchange),
            NodeOutput::TellIngress { bootstrap, flows } => self.peers.tell(&bootstrap, flows),
        }
    }

    fn tell_kv(&self, word: KvWord) {
        if let Some(kv) = &self.kv {
            // The sockets go with the server.
            let _ = kv.send(word);
        }
    }

    fn end(&mut self, exchange: Exchange, output: NodeOutput) {
        if let Some(entry) = self.sheets.remove(&exchange) {
            entry.sheet.end(output);
        }
    }
}

impl Drop for Owner {
    /// Handlers that outlive the node must not wait for it.
    fn drop(&mut self) {
        for entry in self.sheets.values() {
            entry.sheet.lose();
        }
    }
}

/// Waits for the node's next wake; for ever when it has none.
async fn sleep(alarm: &mut Alarm, clock: &Clock, wake: Option<Time>) -> io::Result<()> {
    match wake {
        Some(at) => alarm.wait_until(clock, at).await,
        None => std::future::pending().await,
    }
}
