//! Prefill side of the hand-off: rooms where the leg of a request and the pull of a decode worker meet.
//!
//! Either may come first. With both there, and the KV computed, the transfer sets up and moves on the links. A room
//! whose leg is lost is remembered for [`PULL_TIMEOUT`], so that a pull that comes late hears why.
//! Invariant: a room ends both its leg and its pull, once.

use crate::base::{Dur, RequestIx, Role, Time, WorkerId};
use crate::cluster::FaultKind;
use crate::engine::Input;
use crate::node::worker::decode::{PULL_TIMEOUT, transfer_error};
use crate::node::worker::patience::Wait;
use crate::node::worker::{Due, WorkerNode};
use crate::node::{Exchange, HandedOver, NodeOutput, Refusal};
use crate::protocol::{ErrorClass, Finish, Phases};
use crate::record::TransferRecord;

#[derive(Debug)]
pub(super) struct Room {
    leg: Leg,
    pull: Option<Pull>,
    /// Since when the transfer is set up or moves.
    moving: Option<Time>,
}

#[derive(Debug)]
enum Leg {
    /// The pull came first.
    Awaited,
    Computing(RequestIx),
    Computed(RequestIx, Prefilled),
    /// It failed, with these words.
    Lost(String),
}

#[derive(Debug, Clone, Copy)]
struct Prefilled {
    at: Time,
    cached_tokens: u32,
    arrived: Time,
    started: Time,
}

#[derive(Debug, Clone, Copy)]
struct Pull {
    exchange: Exchange,
    tokens: u32,
    decode: WorkerId,
}

impl Leg {
    fn request(&self) -> Option<RequestIx> {
        match self {
            Leg::Computing(request) | Leg::Computed(request, _) => Some(*request),
            Leg::Awaited | Leg::Lost(_) => None,
        }
    }
}

impl WorkerNode {
    /// A prefill leg comes to its room; false when another one has it.
    pub(super) fn join_leg(&mut self, room: u64, request: RequestIx) -> bool {
        let held = self.rooms.entry(room).or_insert(Room { leg: Leg::Awaited, pull: None, moving: None });
        let free = held.leg.request().is_none();
        if free {
            held.leg = Leg::Computing(request);
            self.patience.call_off(Wait::LostRoom(room));
        }
        free
    }

    /// The engine has computed the KV: it waits for its pull, at most for the time-out.
    pub(super) fn prefilled(&mut self, request: RequestIx, cached_tokens: u32, (arrived, started): (Time, Time)) {
        let Some(number) = self.room_of(request) else { return };
        let Some(room) = self.rooms.get_mut(&number) else { return };
        room.leg = Leg::Computed(request, Prefilled { at: self.now, cached_tokens, arrived, started });
        let timeout = Dur::from_secs_f64(self.config.cluster.transfer_timeout_s).unwrap_or(Dur(u64::MAX));
        self.patience.set(Wait::Kv(request), self.now + timeout);
        self.begin_if_ready(number);
    }

    /// A decode worker asks for the KV of a room.
    pub(super) fn pull(&mut self, exchange: Exchange, number: u64, tokens: u32, decode: WorkerId, flows: u32) {
        let refused = |status, message| NodeOutput::Refused { exchange, refusal: Refusal { status, message } };
        if !self.hear_ingress(decode, flows) {
            let count = self.config.cluster.decode;
            let message = format!("{decode} is no decode worker of this cluster; it has {count}");
            self.emit(refused(400, message));
            return;
        }
        let room = self.rooms.entry(number).or_insert(Room { leg: Leg::Awaited, pull: None, moving: None });
        let refusal = match (&room.leg, &room.pull) {
            (Leg::Lost(words), _) => Some(refused(500, words.clone())),
            (_, Some(_)) => Some(refused(400, format!("bootstrap room {number} has been pulled already"))),
            (Leg::Awaited | Leg::Computing(_) | Leg::Computed(..), None) => None,
        };
        if let Some(refusal) = refusal {
            self.emit(refusal);
            return;
        }
        room.pull = Some(Pull { exchange, tokens, decode });
        self.pulls.insert(exchange, number);
        self.pair(decode).transfers += 1;
        self.begin_if_ready(number);
    }

    /// A decode worker's word on its ingress; false when there is no such worker.
    pub(super) fn hear_ingress(&mut self, decode: WorkerId, flows: u32) -> bool {
        let known = decode.role == Role::Decode && decode.index < self.config.cluster.decode;
        if known {
            self.links.tell_ingress(self.now, decode.index.into(), flows);
        }
        known
    }

    /// The connection of a pull was closed: D has given the request up, or died.
    pub(super) fn pull_gone(&mut self, number: u64) {
        let Some(room) = self.rooms.get_mut(&number) else { return };
        room.pull = None;
        match room.leg.request() {
            Some(request) => {
                let message = transfer_error(number, "Decode instance could be dead, its connection was closed");
                self.abort(request, Finish::Abort { class: ErrorClass::KvTransferFailed, message });
            }
            None => {
                self.rooms.remove(&number);
                self.patience.call_off(Wait::LostRoom(number));
            }
        }
    }

    /// The link is set up.
    pub(super) fn start_transfer(&mut self, number: u64, request: RequestIx) {
        let Some((pull, _)) = self.moving_in(number, request) else { return };
        let (from, to) = (self.config.id, pull.decode);
        if let Some(fault) = self.faults.faults.strike_pair(FaultKind::TransferFailure, from, to) {
            self.agenda.schedule(self.now + fault.after, Due::TransferFails(number, request));
            return;
        }
        if pull.tokens == 0 {
            self.kv_sent(number, request);
            return;
        }
        let bytes = u64::from(pull.tokens) * self.config.engine.kv_bytes_per_token;
        let factor = self.faults.faults.pair_factor(from, to);
        self.links.start(self.now, request, (from.index.into(), to.index.into()), bytes, factor);
        self.worker.kv_moves(self.now, request);
        self.pair(to).bytes += bytes;
        self.emit(NodeOutput::PullMoves(pull.exchange));
    }

    /// The end of a transfer was planned for now.
    pub(super) fn end_transfers(&mut self) {
        for request in self.links.ended(self.now) {
            if let Some(number) = self.room_of(request) {
                self.kv_sent(number, request);
            }
        }
    }

    /// A fault breaks the transfer.
    pub(super) fn fail_transfer(&mut self, number: u64, request: RequestIx) {
        if self.moving_in(number, request).is_some() {
            self.fail_leg(request, ErrorClass::KvTransferFailed, &transfer_error(number, "transfer failed"));
        }
    }

    /// The KV has waited or moved too long.
    pub(super) fn time_out_transfer(&mut self, request: RequestIx) {
        let Some(number) = self.room_of(request) else { return };
        if self.rooms.get(&number).is_some_and(|room| room.leg.request() == Some(request)) {
            let puller = self.rooms.get(&number).and_then(|room| room.pull).map(|pull| pull.decode);
            let who = puller
                .map_or_else(|| "no pull came".to_owned(), |decode| format!("the transfer to {decode} did not end"));
            let words = transfer_error(number, &format!("Decode instance could be dead, {who} in time"));
            self.fail_leg(request, ErrorClass::KvTransferTimeout, &words);
        }
    }

    /// A prefill leg has ended in some other way: its room is lost, its pull is refused.
    pub(super) fn lose_leg(&mut self, number: u64, request: RequestIx, finish: &Finish) {
        let Some(room) = self.rooms.get_mut(&number).filter(|room| room.leg.request() == Some(request)) else { return };
        let words = match finish {
            Finish::Abort { message, .. } | Finish::Error { message, .. } => message.clone(),
            Finish::Length | Finish::Stop => "the prefill ended before its transfer".to_owned(),
        };
        room.leg = Leg::Lost(words.clone());
        room.moving = None;
        if let Some(pull) = room.pull.take() {
            self.pulls.remove(&pull.exchange);
            let refusal = Refusal { status: 500, message: words };
            self.emit(NodeOutput::Refused { exchange: pull.exchange, refusal });
        }
        self.links.cancel(self.now, request);
        self.patience.set(Wait::LostRoom(number), self.now + PULL_TIMEOUT);
    }

    pub(super) fn forget_room(&mut self, number: u64) {
        if self.rooms.get(&number).is_some_and(|room| matches!(room.leg, Leg::Lost(_))) {
            self.rooms.remove(&number);
        }
    }

    fn begin_if_ready(&mut self, number: u64) {
        let Some(room) = self.rooms.get_mut(&number) else { return };
        let (Leg::Computed(request, _), Some(_), None) = (&room.leg, room.pull, room.moving) else { return };
        let request = *request;
        room.moving = Some(self.now);
        let setup = Dur::from_micros(self.config.cluster.link.setup_us);
        self.agenda.schedule(self.now + setup, Due::TransferStarts(number, request));
    }

    /// The KV is at D: both ends are told, the leg is done.
    fn kv_sent(&mut self, number: u64, request: RequestIx) {
        let Some((pull, moving)) = self.moving_in(number, request) else { return };
        let Some(Room { leg: Leg::Computed(_, prefilled), .. }) = self.rooms.remove(&number) else { return };
        self.pulls.remove(&pull.exchange);
        let over = HandedOver {
            worker: self.config.id.to_string(),
            cached_tokens: prefilled.cached_tokens,
            prefill_queue: prefilled.started.since(prefilled.arrived),
            prefill: prefilled.at.since(prefilled.started),
            wait: moving.since(prefilled.at),
            transfer: self.now.since(moving),
        };
        let phases = Phases {
            prefill_queue: Some(over.prefill_queue),
            prefill: Some(over.prefill),
            kv_transfer: Some(over.transfer),
            decode_queue: None,
        };
        self.emit(NodeOutput::Pulled { exchange: pull.exchange, over });
        if let Some(mut work) = self.end(request, &Finish::Length) {
            work.cached_tokens = prefilled.cached_tokens;
            let last = work.progress(0);
            self.finished(work, Finish::Length, last, phases, 0);
        }
        self.feed(Input::KvSent(request));
    }

    /// The transfer of a leg has failed: the leg is aborted, its room lost.
    fn fail_leg(&mut self, request: RequestIx, class: ErrorClass, words: &str) {
        self.transfer_errors += 1;
        let pulled = self.room_of(request).and_then(|number| self.rooms.get(&number)).and_then(|room| room.pull);
        if let Some(pull) = pulled {
            self.pair(pull.decode).errors += 1;
        }
        self.abort(request, Finish::Abort { class, message: words.to_owned() });
    }

    /// The pull, and since when it is served, if this request's KV is on its way from this room.
    fn moving_in(&self, number: u64, request: RequestIx) -> Option<(Pull, Time)> {
        let room = self.rooms.get(&number).filter(|room| room.leg.request() == Some(request))?;
        room.pull.zip(room.moving)
    }

    fn room_of(&self, request: RequestIx) -> Option<u64> {
        self.works.get(&request)?.bootstrap.as_ref().map(|bootstrap| bootstrap.room)
    }

    fn pair(&mut self, decode: WorkerId) -> &mut TransferRecord {
        let prefill = self.config.id;
        self.pairs.entry(decode).or_insert_with(|| TransferRecord {
            prefill_worker: prefill.to_string(),
            decode_worker: decode.to_string(),
            ..TransferRecord::default()
        })
    }
}
