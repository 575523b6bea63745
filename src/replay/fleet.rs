//! The workers the policy chooses among, as the replayer counts and believes them.
//!
//! A request counts as in flight from the decision to its end. A load report is taken to know of what was decided
//! before it was asked for; the rest is counted apart, because the worker may not have had it yet.
//! Invariant: every booking is taken back exactly once.

use crate::base::{Role, WorkerId};
use crate::kv::Process;
use crate::policies::WorkerView;
use crate::protocol::LoadReport;

/// One request's share of a worker's load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Booking {
    pub worker: u16,
    pub tokens: u64,
    /// Loads asked for before it.
    polls: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Member {
    inflight_tokens: u64,
    capacity_heard: Option<u64>,
    /// The question its last report answers.
    heard_poll: u64,
    /// Bookings in flight made since the last question, …
    since_poll: u32,
    /// … and those made before it but since the question that was answered last.
    before_poll: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Fleet {
    role: Role,
    views: Vec<WorkerView>,
    members: Vec<Member>,
    capacity_known: Option<u64>,
    polls: u64,
}

impl Fleet {
    pub fn new(role: Role, workers: &[WorkerId], capacity_known: Option<u64>) -> Fleet {
        let mut fleet = Fleet { role, views: Vec::new(), members: Vec::new(), capacity_known, polls: 0 };
        for worker in workers.iter().filter(|worker| worker.role == role) {
            fleet.up(worker.index);
        }
        fleet
    }

    pub fn role(&self) -> Role {
        self.role
    }

    pub fn len(&self) -> usize {
        self.views.len()
    }

    pub fn views(&self) -> &[WorkerView] {
        &self.views
    }

    pub fn id(&self, index: u16) -> WorkerId {
        WorkerId::new(self.role, index)
    }

    pub fn is_up(&self, index: u16) -> bool {
        self.views.get(usize::from(index)).is_some_and(|view| view.up)
    }

    /// Index of a worker of the candidate role that is known.
    pub fn index(&self, worker: WorkerId) -> Option<u16> {
        (worker.role == self.role && usize::from(worker.index) < self.views.len()).then_some(worker.index)
    }

    /// The worker serves; a new one joins.
    pub fn up(&mut self, index: u16) {
        let wanted = usize::from(index) + 1;
        if self.views.len() < wanted {
            self.views.resize(wanted, WorkerView::default());
            self.members.resize(wanted, Member::default());
        }
        self.views[usize::from(index)].up = true;
    }

    /// The worker does not serve.
    pub fn down(&mut self, index: u16) {
        if let Some(view) = self.views.get_mut(usize::from(index)) {
            view.up = false;
            view.load = None;
        }
    }

    pub fn book(&mut self, index: u16) -> Booking {
        let view = &mut self.views[usize::from(index)];
        view.inflight += 1;
        view.assigned += 1;
        self.members[usize::from(index)].since_poll += 1;
        self.count_own(index);
        Booking { worker: index, tokens: 0, polls: self.polls }
    }

    /// The workers are asked for their loads.
    pub fn asked_loads(&mut self) {
        self.polls += 1;
        for member in &mut self.members {
            member.before_poll += std::mem::take(&mut member.since_poll);
        }
    }

    fn count_own(&mut self, index: u16) {
        let member = &self.members[usize::from(index)];
        self.views[usize::from(index)].own = member.since_poll + member.before_poll;
    }

    /// The booked request leaves, with so many tokens of its own.
    pub fn depart(&mut self, booking: &mut Booking, tokens: u64) {
        debug_assert_eq!(booking.tokens, 0, "a request leaves once");
        booking.tokens = tokens;
        self.members[usize::from(booking.worker)].inflight_tokens += tokens;
    }

    pub fn take_back(&mut self, booking: Booking) {
        let view = &mut self.views[usize::from(booking.worker)];
        view.inflight -= 1;
        let member = &mut self.members[usize::from(booking.worker)];
        member.inflight_tokens -= booking.tokens;
        if booking.polls == self.polls {
            member.since_poll -= 1;
        } else if booking.polls >= member.heard_poll {
            member.before_poll -= 1;
        }
        self.count_own(booking.worker);
    }

    pub fn heard_capacity(&mut self, index: u16, tokens: u64) {
        self.members[usize::from(index)].capacity_heard = Some(tokens);
    }

    pub fn heard_load(&mut self, report: LoadReport) {
        if let Some(index) = self.index(report.worker) {
            self.heard_capacity(index, report.capacity_tokens);
            self.views[usize::from(index)].load = Some(report);
            let member = &mut self.members[usize::from(index)];
            (member.heard_poll, member.before_poll) = (self.polls, 0);
            self.count_own(index);
        }
    }

    /// The worker spoke as process `incarnation`.
    pub fn heard_process(&mut self, index: u16, incarnation: u32) {
        if let Some(view) = self.views.get_mut(usize::from(index)) {
            view.process = Process { incarnation: Some(incarnation.into()), register_ts_ms: None };
        }
    }

    pub fn inflight_tokens(&self, index: u16) -> u64 {
        self.members[usize::from(index)].inflight_tokens
    }

    /// Tokens believed used over the capacity, where one is known or was heard.
    pub fn believed_usage(&self, index: u16, resident_tokens: u64) -> Option<f64> {
        let member = &self.members[usize::from(index)];
        let capacity = self.capacity_known.or(member.capacity_heard).filter(|capacity| *capacity > 0)?;
        Some((resident_tokens + member.inflight_tokens) as f64 / capacity as f64)
    }

    pub fn set_believed_usage(&mut self, index: u16, usage: Option<f64>) {
        self.views[usize::from(index)].believed_usage = usage;
    }
}
