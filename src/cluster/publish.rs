//! KV events of the emulated workers: publishers, and the connections that one subscriber has to them.
//!
//! A message takes a hop, like any other; what is on its way over a connection that is gone never arrives.

use crate::base::{Dur, WorkerId};
use crate::cluster::FaultKind;
use crate::cluster::machine::{Cluster, Message};
use crate::cluster::outlet::{Outlet, Telling};
use crate::engine::Cx;
use crate::kv::BlockTokens;
use crate::kv::publish::{Calendar, Message as Frames, PublisherOptions};

/// How the workers publish.
#[derive(Debug, Clone, PartialEq)]
pub struct Publishing {
    /// Every publisher.
    pub options: PublisherOptions,
    /// Tokens of the trace's blocks.
    pub tokens: BlockTokens,
}

/// What reaches the subscriber from a worker's publisher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KvWord {
    /// It is subscribed.
    Connected,
    /// It is subscribed no longer, or could not be, and why.
    Disconnected(&'static str),
    /// A live message.
    Live(Frames),
    /// A reply to a request.
    Replay {
        /// Number of the request.
        attempt: u32,
        /// The reply.
        frames: Frames,
    },
}

/// What reaches a publisher.
#[derive(Debug)]
pub(super) enum KvAsk {
    Subscribe,
    Replay { attempt: u32, from: u64 },
}

/// A message of either direction.
#[derive(Debug)]
pub(super) enum KvMail {
    ToWorker(KvAsk),
    ToSubscriber(KvWord),
}

/// The subscriber's connection to a site.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Connection {
    number: u32,
    is_up: bool,
}

impl Cluster {
    /// Makes its workers publish their KV events. To be called before anything happens.
    pub fn start_publishing(&mut self, publishing: Publishing, cx: Cx<'_>) {
        self.publishing = Some(publishing);
        (0..self.sites.len()).for_each(|site| self.open_outlet(cx, site));
    }

    /// From now on talk about KV events takes no time, or a hop again: what is said before a run begins was said in time.
    pub fn talk_at_once(&mut self, at_once: bool) {
        self.kv_at_once = at_once;
    }

    /// Workers that publish now, each with its incarnation.
    pub fn publishers(&self) -> Vec<(WorkerId, u32)> {
        let publishes = self.sites.iter().filter(|site| site.outlet.is_some());
        publishes.map(|site| (site.id, site.incarnation)).collect()
    }

    /// A subscriber connects to a worker's publisher, in place of a connection it had.
    pub fn subscribe(&mut self, cx: Cx<'_>, worker: WorkerId) {
        let site = self.site(worker);
        let Connection { number, .. } = self.sites[site].connection;
        self.sites[site].connection = Connection { number: number + 1, is_up: false };
        self.mail(cx, site, KvMail::ToWorker(KvAsk::Subscribe));
    }

    /// A subscriber asks a worker's publisher for all that happened from sequence number `from` on.
    pub fn ask_replay(&mut self, cx: Cx<'_>, worker: WorkerId, attempt: u32, from: u64) {
        self.mail(cx, self.site(worker), KvMail::ToWorker(KvAsk::Replay { attempt, from }));
    }

    /// What reaches the subscriber now.
    pub fn poll_kv(&mut self) -> Option<(WorkerId, KvWord)> {
        self.kv_words.pop_front()
    }

    /// Nothing will happen any more but talk about KV events.
    pub fn is_idle(&self) -> bool {
        self.agenda_len() == self.kv_mails
    }

    /// A process has begun at `site`.
    pub(super) fn open_outlet(&mut self, cx: Cx<'_>, site: usize) {
        let (Some(publishing), Some(worker)) = (&self.publishing, &mut self.sites[site].worker) else { return };
        let telling = Telling { now: cx.now, tree: cx.tree, tokens: &publishing.tokens };
        self.sites[site].outlet = Outlet::new(&publishing.options, Calendar::VIRTUAL, worker, telling);
        self.send_out(cx, site);
    }

    /// The process at `site` has ended.
    pub(super) fn close_outlet(&mut self, cx: Cx<'_>, site: usize) {
        self.sites[site].outlet = None;
        if std::mem::take(&mut self.sites[site].connection.is_up) {
            self.mail(cx, site, KvMail::ToSubscriber(KvWord::Disconnected("the connection broke")));
        }
    }

    /// Only the publisher begins anew.
    pub(super) fn restart_publisher(&mut self, cx: Cx<'_>, site: usize) {
        if let (Some(publishing), Some(outlet)) = (&self.publishing, &mut self.sites[site].outlet) {
            outlet.begin(Telling { now: cx.now, tree: cx.tree, tokens: &publishing.tokens });
            self.send_out(cx, site);
        }
    }

    /// The subscriber has a wrong address from now on, of one worker or of all.
    pub(super) fn lose_address(&mut self, cx: Cx<'_>, only: Option<usize>) {
        for site in (0..self.sites.len()).filter(|site| only.is_none_or(|only| only == *site)) {
            if std::mem::take(&mut self.sites[site].connection.is_up) {
                self.mail(cx, site, KvMail::ToSubscriber(KvWord::Disconnected("the connection broke")));
            }
        }
    }

    /// The address is right again: who was refused tries once more.
    pub(super) fn find_address(&mut self, cx: Cx<'_>, only: Option<usize>) {
        for site in (0..self.sites.len()).filter(|site| only.is_none_or(|only| only == *site)) {
            let Connection { number, is_up } = self.sites[site].connection;
            if number > 0 && !is_up && self.sites[site].outlet.is_some() {
                self.mail(cx, site, KvMail::ToWorker(KvAsk::Subscribe));
            }
        }
    }

    /// Tells of what the worker at `site` has just done.
    pub(super) fn publish(&mut self, cx: Cx<'_>, site: usize) {
        let place = &mut self.sites[site];
        if let (Some(publishing), Some(worker), Some(outlet)) = (&self.publishing, &mut place.worker, &mut place.outlet)
        {
            let telling = Telling { now: cx.now, tree: cx.tree, tokens: &publishing.tokens };
            outlet.step(worker, &mut self.faults, telling);
            self.send_out(cx, site);
        }
    }

    pub(super) fn take_mail(&mut self, cx: Cx<'_>, site: usize, connection: u32, mail: KvMail) {
        self.kv_mails -= 1;
        if connection != self.sites[site].connection.number {
            return;
        }
        match mail {
            KvMail::ToSubscriber(word) => self.kv_words.push_back((self.sites[site].id, word)),
            KvMail::ToWorker(KvAsk::Subscribe) => self.accept(cx, site),
            KvMail::ToWorker(KvAsk::Replay { attempt, from }) => self.replay(cx, site, attempt, from),
        }
    }

    fn accept(&mut self, cx: Cx<'_>, site: usize) {
        let worker = self.sites[site].id;
        let wrong = self.faults.strike(FaultKind::KvEndpointWrong, worker).is_some();
        let is_up = self.sites[site].outlet.is_some() && !wrong;
        self.sites[site].connection.is_up = is_up;
        let word = if is_up { KvWord::Connected } else { KvWord::Disconnected("connection refused") };
        self.mail(cx, site, KvMail::ToSubscriber(word));
    }

    fn replay(&mut self, cx: Cx<'_>, site: usize, attempt: u32, from: u64) {
        let place = &mut self.sites[site];
        let Some((publishing, outlet)) = self.publishing.as_ref().zip(place.outlet.as_mut()) else { return };
        let telling = Telling { now: cx.now, tree: cx.tree, tokens: &publishing.tokens };
        for frames in outlet.answer(from, telling) {
            self.mail(cx, site, KvMail::ToSubscriber(KvWord::Replay { attempt, frames }));
        }
    }

    fn send_out(&mut self, cx: Cx<'_>, site: usize) {
        let sent = self.sites[site].outlet.as_mut().map(Outlet::take_sent).unwrap_or_default();
        // Nobody listens, nobody hears.
        let heard = if self.sites[site].connection.is_up { sent } else { Vec::new() };
        for frames in heard {
            self.mail(cx, site, KvMail::ToSubscriber(KvWord::Live(frames)));
        }
    }

    fn mail(&mut self, cx: Cx<'_>, site: usize, mail: KvMail) {
        self.kv_mails += 1;
        let connection = self.sites[site].connection.number;
        let takes = if self.kv_at_once { Dur::ZERO } else { self.hop() };
        self.schedule(cx.now + takes, Message::Kv { site, connection, mail });
    }
}
