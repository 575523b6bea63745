//! The hand-off: KV from P to D once it is computed there and has room here.

use crate::base::{Dur, RequestIx, Time};
use crate::cluster::FaultKind;
use crate::cluster::flight::{Prefilled, Transfer};
use crate::cluster::machine::{Cluster, Message};
use crate::engine::{Cx, Input};
use crate::protocol::ErrorClass;
use crate::record::TransferRecord;

impl Cluster {
    /// P has computed the KV: it waits for room on D, at most for the time-out.
    pub(super) fn prefilled(
        &mut self,
        cx: Cx<'_>,
        request: RequestIx,
        cached_tokens: u32,
        (arrived, started): (Time, Time),
    ) {
        let Some(flight) = self.flights.get_mut(&request) else { return };
        flight.prefilled = Some(Prefilled { at: cx.now, cached_tokens, arrived, started });
        let timeout = Dur::from_secs_f64(self.config.transfer_timeout_s).unwrap_or(Dur(u64::MAX));
        self.pair(request, |pair| pair.transfers += 1);
        self.schedule(cx.now + timeout, Message::TransferTimesOut(request));
        self.begin_transfer_if_ready(cx, request);
    }

    /// D has room for `tokens` of the prompt.
    pub(super) fn reserved(&mut self, cx: Cx<'_>, request: RequestIx, tokens: u32) {
        let Some(flight) = self.flights.get_mut(&request) else { return };
        flight.reserved = Some(tokens);
        self.begin_transfer_if_ready(cx, request);
    }

    /// The link is set up.
    pub(super) fn start_transfer(&mut self, cx: Cx<'_>, request: RequestIx) {
        let Some(flight) = self.flights.get(&request) else { return };
        let (Some(p), Some(d), Some(tokens)) = (flight.prefill, flight.decode, flight.reserved) else { return };
        let (from, to) = (self.sites[p].id, self.sites[d].id);
        if let Some(fault) = self.faults.strike_pair(FaultKind::TransferFailure, from, to) {
            self.schedule(cx.now + fault.after, Message::TransferFails(request));
            return;
        }
        if tokens == 0 {
            self.kv_arrived(cx, request);
            return;
        }
        let bytes = u64::from(tokens) * self.engine.kv_bytes_per_token;
        let factor = self.faults.pair_factor(from, to);
        self.links.start(cx.now, request, (from.index.into(), to.index.into()), bytes, factor);
        for end in [p, d] {
            if let Some(worker) = &mut self.sites[end].worker {
                worker.kv_moves(cx.now, request);
            }
        }
        self.pair(request, |pair| pair.bytes += bytes);
        self.replan_links();
    }

    /// The link whose end was planned for now.
    pub(super) fn end_transfers(&mut self, cx: Cx<'_>) {
        for request in self.links.ended(cx.now) {
            self.kv_arrived(cx, request);
        }
        self.replan_links();
    }

    /// A fault breaks the transfer.
    pub(super) fn fail_transfer(&mut self, cx: Cx<'_>, request: RequestIx) {
        self.give_up_transfer(cx, request, ErrorClass::KvTransferFailed, "transfer failed");
    }

    /// The KV has waited or moved too long.
    pub(super) fn time_out_transfer(&mut self, cx: Cx<'_>, request: RequestIx) {
        let still_open = self.flights.get(&request).is_some_and(|flight| flight.prefill_open());
        if still_open {
            self.give_up_transfer(cx, request, ErrorClass::KvTransferTimeout, "Decode instance could be dead");
        }
    }

    /// Plans the wake for the next end on the links; earlier plans are void.
    pub(super) fn replan_links(&mut self) {
        self.link_version += 1;
        if let Some(end) = self.links.next_end() {
            self.schedule(end, Message::LinkEnds { version: self.link_version });
        }
    }

    fn begin_transfer_if_ready(&mut self, cx: Cx<'_>, request: RequestIx) {
        let Some(flight) = self.flights.get_mut(&request) else { return };
        if flight.prefilled.is_some() && flight.reserved.is_some() && flight.transfer == Transfer::Waiting {
            flight.transfer = Transfer::Moving(cx.now);
            let setup = Dur::from_micros(self.config.link.setup_us);
            self.schedule(cx.now + setup, Message::TransferStarts(request));
        }
    }

    fn kv_arrived(&mut self, cx: Cx<'_>, request: RequestIx) {
        let Some(flight) = self.flights.get_mut(&request) else { return };
        let Transfer::Moving(started) = flight.transfer else { return };
        flight.transfer = Transfer::Arrived { started, arrived: cx.now };
        let (p, d) = (flight.prefill, flight.decode);
        if let Some(p) = p {
            self.feed(cx, p, Input::KvSent(request));
        }
        if let Some(d) = d {
            self.feed(cx, d, Input::KvArrived(request));
        }
    }

    fn give_up_transfer(&mut self, cx: Cx<'_>, request: RequestIx, class: ErrorClass, reason: &str) {
        let Some(flight) = self.flights.get(&request) else { return };
        let (Some(p), Some(d)) = (flight.prefill, flight.decode) else { return };
        let (from, to) = (self.sites[p].id, self.sites[d].id);
        let message = format!("KVTransferError from {from} to {to}: {reason}");
        let answer = flight.failed(&self.sites, class, Some(500), message);
        self.sites[p].transfer_errors += 1;
        self.sites[d].transfer_errors += 1;
        self.pair(request, |pair| pair.errors += 1);
        self.end_flight(cx, cx.now, answer);
    }

    fn pair(&mut self, request: RequestIx, change: impl FnOnce(&mut TransferRecord)) {
        let Some((p, d)) = self.flights.get(&request).and_then(|flight| flight.prefill.zip(flight.decode)) else {
            return;
        };
        let (prefill, decode) = (self.sites[p].id, self.sites[d].id);
        change(self.pairs.entry((p, d)).or_insert_with(|| TransferRecord {
            prefill_worker: prefill.to_string(),
            decode_worker: decode.to_string(),
            ..TransferRecord::default()
        }));
    }
}
