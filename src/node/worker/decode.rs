//! Decode side of the hand-off: pulling KV from the prefill worker, and telling each how crowded the own ingress is.
//!
//! A pull is asked for once the engine has room, and ends with P's word, with the request, or by [`PULL_TIMEOUT`].
//! P divides the ingress by the transfers that move into it; a P sees its own only, so it is told when others' change
//! that. Who is asked is known by address.

use std::collections::BTreeMap;

use crate::base::{Dur, RequestIx};
use crate::engine::Input;
use crate::node::worker::patience::Wait;
use crate::node::worker::{Work, WorkerNode};
use crate::node::{Bootstrap, Exchange, HandedOver, NodeOutput};
use crate::protocol::{ErrorClass, Finish};

/// How long a decode worker waits for KV it has asked for: SGLang's default of both bootstrap and waiting time-outs.
/// Beside `transfer_timeout_s`, which is P's and begins once the KV is computed, it bounds what that one cannot: a P that
/// says nothing at all, though its connection holds. Virtual time has no such P. It is a constant because SGLang's users
/// leave it alone, and no scenario is about it.
pub const PULL_TIMEOUT: Dur = Dur::from_millis(300_000);

/// Where the KV of a decode leg is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pulling {
    /// Not asked for, or here.
    No,
    /// Asked for.
    Asked,
    /// On the link.
    Moving,
}

/// Transfers into this worker.
#[derive(Debug, Default)]
pub(super) struct Ingress {
    moving: u32,
    peers: BTreeMap<(String, u16), Peer>,
}

/// A prefill worker that was asked.
#[derive(Debug, Default)]
struct Peer {
    /// Pulls that have not ended.
    open: u32,
    /// Those of them on the link; it knows of these itself.
    moving: u32,
    /// Flows it was told of last.
    told: u32,
}

impl WorkerNode {
    /// The engine has room: asks for the KV.
    pub(super) fn reserved(&mut self, request: RequestIx, tokens: u32) {
        let Some(work) = self.works.get_mut(&request) else { return };
        let Some(bootstrap) = work.bootstrap.clone() else { return };
        work.pulling = Pulling::Asked;
        let (exchange, ingress_flows) = (work.exchange, self.ingress.moving);
        let peer = self.ingress.peers.entry(address(&bootstrap)).or_default();
        peer.open += 1;
        peer.told = ingress_flows;
        self.emit(NodeOutput::StartPull { exchange, bootstrap, tokens, ingress_flows });
        self.patience.set(Wait::Kv(request), self.now + PULL_TIMEOUT);
    }

    /// P says that the transfer has begun.
    pub(super) fn pull_moves(&mut self, exchange: Exchange) {
        let Some(&request) = self.generates.get(&exchange) else { return };
        let Some(work) = self.works.get_mut(&request).filter(|work| work.pulling == Pulling::Asked) else { return };
        work.pulling = Pulling::Moving;
        self.ingress.moving += 1;
        self.worker.kv_moves(self.now, request);
        if let Some(peer) = work.bootstrap.as_ref().and_then(|from| self.ingress.peers.get_mut(&address(from))) {
            peer.moving += 1;
        }
        self.tell_ingress();
    }

    /// P's last word on a pull.
    pub(super) fn handed_over(&mut self, exchange: Exchange, result: Result<HandedOver, String>) {
        let Some(&request) = self.generates.get(&exchange) else { return };
        let Some(work) = self.works.get_mut(&request).filter(|work| work.pulling != Pulling::No) else { return };
        let was = std::mem::replace(&mut work.pulling, Pulling::No);
        self.patience.call_off(Wait::Kv(request));
        let bootstrap = work.bootstrap.clone().unwrap_or_default();
        match result {
            Ok(over) => {
                work.cached_tokens = over.cached_tokens;
                work.over = Some((over, self.now));
                self.pull_ended(&bootstrap, was);
                self.feed(Input::KvArrived(request));
            }
            Err(reason) => {
                self.pull_ended(&bootstrap, was);
                self.transfer_errors += 1;
                let message = transfer_error(bootstrap.room, &reason);
                self.abort(request, Finish::Abort { class: ErrorClass::KvTransferFailed, message });
            }
        }
    }

    pub(super) fn time_out_pull(&mut self, request: RequestIx) {
        let Some(work) = self.works.get(&request).filter(|work| work.pulling != Pulling::No) else { return };
        let room = work.bootstrap.as_ref().map_or(0, |bootstrap| bootstrap.room);
        self.transfer_errors += 1;
        let waited = PULL_TIMEOUT.as_secs_f64();
        let message = transfer_error(room, &format!("Prefill instance sent no KV within {waited} s"));
        self.abort(request, Finish::Abort { class: ErrorClass::KvTransferTimeout, message });
    }

    /// A request has ended: its pull, if it is under way, is given up.
    pub(super) fn stop_pulling(&mut self, work: &Work) {
        if work.pulling != Pulling::No {
            self.emit(NodeOutput::StopPull(work.exchange));
            self.pull_ended(&work.bootstrap.clone().unwrap_or_default(), work.pulling);
        }
    }

    fn pull_ended(&mut self, from: &Bootstrap, was: Pulling) {
        let moved = u32::from(was == Pulling::Moving);
        self.ingress.moving -= moved;
        let key = address(from);
        if let Some(peer) = self.ingress.peers.get_mut(&key) {
            peer.open -= 1;
            peer.moving -= moved;
            if peer.open == 0 {
                self.ingress.peers.remove(&key);
            }
        }
        self.tell_ingress();
    }

    /// Tells every P whose picture of the ingress is wrong.
    fn tell_ingress(&mut self) {
        let flows = self.ingress.moving;
        for ((host, port), peer) in &mut self.ingress.peers {
            if peer.told.max(peer.moving) != flows {
                peer.told = flows;
                let bootstrap = Bootstrap { host: host.clone(), port: *port, room: 0 };
                self.outputs.push_back(NodeOutput::TellIngress { bootstrap, flows });
            }
        }
    }

    #[cfg(test)]
    pub(super) fn pulls_open(&self) -> u32 {
        self.ingress.moving + self.ingress.peers.values().map(|peer| peer.open).sum::<u32>()
    }
}

/// The words of SGLang.
pub(super) fn transfer_error(room: u64, reason: &str) -> String {
    format!("KVTransferError(bootstrap_room={room}): {reason}")
}

fn address(bootstrap: &Bootstrap) -> (String, u16) {
    (bootstrap.host.clone(), bootstrap.port)
}
