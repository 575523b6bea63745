//! [`SessionTable`]: every change of belief goes through here, so that sets and sums stay true.

use crate::base::{Dur, SessionIx, Time};
use crate::kv::BlockTree;
use crate::sessions::given_back::GivenBack;
use crate::sessions::worker::WorkerSessions;
use crate::sessions::{Append, Loss, Residence, SessionState};
use crate::trace::TurnTrace;

#[derive(Debug, Clone, Copy)]
struct Slot {
    worker: u16,
    since: Time,
}

#[derive(Debug, Clone)]
struct Session {
    state: SessionState,
    slot: Option<Slot>,
    slot_hold: Dur,
    /// The part of it after the session's end.
    idle_hold: Dur,
    /// When its last turn ended.
    over: Option<Time>,
    /// Turns begun and not ended.
    busy: u32,
    last_used: Time,
    /// A worker that may still know the session.
    open_on: Option<u16>,
    /// Every turn since the held one continued its predecessor.
    contiguous: bool,
}

impl Session {
    /// Time until `now` that it has held this slot since it was over.
    fn held_idle(&self, slot: Slot, now: Time) -> Dur {
        self.over.map_or(Dur::ZERO, |over| now.since(slot.since.max(over)))
    }
}

/// See the module.
#[derive(Debug)]
pub struct SessionTable {
    sessions: Vec<Session>,
    workers: Vec<WorkerSessions>,
    given_back: GivenBack,
}

impl SessionTable {
    /// All sessions cold, `workers` workers empty.
    pub fn new(sessions: usize, workers: usize) -> SessionTable {
        let cold = Session {
            state: SessionState::Cold,
            slot: None,
            slot_hold: Dur::ZERO,
            idle_hold: Dur::ZERO,
            over: None,
            busy: 0,
            last_used: Time::ZERO,
            open_on: None,
            contiguous: false,
        };
        SessionTable {
            sessions: vec![cold; sessions],
            workers: vec![WorkerSessions::default(); workers],
            given_back: GivenBack::new(sessions),
        }
    }

    /// Makes room for workers up to `index`.
    pub fn add_worker(&mut self, index: u16) {
        let wanted = usize::from(index) + 1;
        if self.workers.len() < wanted {
            self.workers.resize(wanted, WorkerSessions::default());
        }
    }

    /// State of a session.
    pub fn state(&self, session: SessionIx) -> SessionState {
        self.sessions[session.ix()].state
    }

    /// Its residence, if it has one.
    pub fn residence(&self, session: SessionIx) -> Option<Residence> {
        match self.state(session) {
            SessionState::Resident(residence) => Some(residence),
            SessionState::Cold | SessionState::Seeding { .. } | SessionState::Evicted(_) => None,
        }
    }

    /// Turns of the session begun and not ended.
    pub fn busy(&self, session: SessionIx) -> u32 {
        self.sessions[session.ix()].busy
    }

    /// Worker whose slot the session holds.
    pub fn slot(&self, session: SessionIx) -> Option<u16> {
        self.sessions[session.ix()].slot.map(|slot| slot.worker)
    }

    /// Worker that may still know the session.
    pub fn open_on(&self, session: SessionIx) -> Option<u16> {
        self.sessions[session.ix()].open_on
    }

    /// Slots taken on a worker.
    pub fn slots(&self, worker: u16) -> u32 {
        self.workers[usize::from(worker)].slots
    }

    /// A seed on `worker`, with room for `cap` sessions, is refused for want of a slot: whether it would not have been, had
    /// every session given its slot back at its end.
    pub fn is_refused_by_ended(&mut self, session: SessionIx, worker: u16, cap: u32) -> bool {
        self.given_back.admits(session, worker, cap)
    }

    /// Tokens believed resident on a worker.
    pub fn resident_tokens(&self, worker: u16) -> u64 {
        self.workers[usize::from(worker)].tokens
    }

    /// Sessions believed resident and idle on a worker, least recently used first, with their tokens.
    pub fn idle_residents(&self, worker: u16) -> impl Iterator<Item = (SessionIx, u32)> {
        self.workers[usize::from(worker)].idle_resident.iter().map(|(_, session)| {
            let tokens = self.residence(*session).map_or(0, |residence| residence.tokens);
            (*session, tokens)
        })
    }

    /// The slot holder of a worker that has been idle longest.
    pub fn longest_idle_slot(&self, worker: u16) -> Option<SessionIx> {
        self.workers[usize::from(worker)].idle_slots.first().map(|(_, session)| *session)
    }

    /// Time the session has held a slot until `now`.
    pub fn slot_hold(&self, session: SessionIx, now: Time) -> Dur {
        let session = &self.sessions[session.ix()];
        session.slot_hold + session.slot.map_or(Dur::ZERO, |slot| now.since(slot.since))
    }

    /// The part of [`SessionTable::slot_hold`] after the session's end.
    pub fn slot_hold_after_end(&self, session: SessionIx, now: Time) -> Dur {
        let session = &self.sessions[session.ix()];
        session.idle_hold + session.slot.map_or(Dur::ZERO, |slot| session.held_idle(slot, now))
    }

    /// How `turn` relates to what its session holds. Counts on [`SessionTable::begin_turn`] for every turn in order.
    pub fn append(&self, tree: &BlockTree, turn: &TurnTrace) -> Append {
        let Some(held) = self.residence(turn.session) else { return Append::NothingHeld };
        let same_blocks = || {
            held.blocks.depth > 0
                && held.blocks.depth == held.tokens / tree.block_size()
                && tree.common_depth(held.blocks, turn.prompt) == held.blocks.depth
        };
        match turn.input_length.checked_sub(held.tokens) {
            Some(more) if more > 0 && (self.sessions[turn.session.ix()].contiguous || same_blocks()) => {
                Append::Tokens(more)
            }
            Some(_) | None => Append::Broken,
        }
    }

    /// A turn begins; `extends_previous` is the trace's word on it.
    pub fn begin_turn(&mut self, session: SessionIx, extends_previous: bool) {
        self.leave_idle(session);
        let entry = &mut self.sessions[session.ix()];
        entry.busy += 1;
        entry.contiguous &= extends_previous;
    }

    /// A turn ended, however.
    pub fn end_turn(&mut self, session: SessionIx, now: Time) {
        let entry = &mut self.sessions[session.ix()];
        assert!(entry.busy > 0, "session {} ends a turn it did not begin", session.0);
        entry.busy -= 1;
        entry.last_used = now;
        self.join_idle(session);
    }

    /// The session's last turn has ended; a slot that it holds is of no use to it.
    pub fn end_session(&mut self, session: SessionIx, now: Time) {
        self.sessions[session.ix()].over.get_or_insert(now);
        self.given_back.end(session);
    }

    /// Gives the session a slot on `worker`; one it holds elsewhere is given back. True when it is a new one.
    pub fn take_slot(&mut self, session: SessionIx, worker: u16, now: Time) -> bool {
        if self.slot(session) == Some(worker) {
            return false;
        }
        self.release_slot(session, now);
        self.leave_idle(session);
        let entry = &mut self.sessions[session.ix()];
        entry.slot = Some(Slot { worker, since: now });
        self.workers[usize::from(worker)].slots += 1;
        if entry.over.is_none() {
            self.given_back.take(session, worker);
        }
        self.join_idle(session);
        true
    }

    /// Gives the session's slot back, if it holds one.
    pub fn release_slot(&mut self, session: SessionIx, now: Time) {
        self.leave_idle(session);
        let entry = &mut self.sessions[session.ix()];
        if let Some(slot) = entry.slot.take() {
            entry.slot_hold += now.since(slot.since);
            entry.idle_hold += entry.held_idle(slot, now);
            self.workers[usize::from(slot.worker)].slots -= 1;
            self.given_back.release(session, slot.worker);
        }
        self.join_idle(session);
    }

    /// The session is about to be placed on `worker`; what it held elsewhere is gone. `None`: placed the first time.
    pub fn seed(&mut self, session: SessionIx, worker: u16, after: Option<Loss>) {
        self.change(session, SessionState::Seeding { worker, after });
    }

    /// The placement came to nothing: back to where it was.
    pub fn unseed(&mut self, session: SessionIx) {
        if let SessionState::Seeding { after, .. } = self.state(session) {
            self.change(session, after.map_or(SessionState::Cold, SessionState::Evicted));
        }
    }

    /// `worker` opened the session.
    pub fn opened(&mut self, session: SessionIx, worker: u16) {
        self.sessions[session.ix()].open_on = Some(worker);
    }

    /// No worker knows the session any more.
    pub fn closed(&mut self, session: SessionIx) {
        self.sessions[session.ix()].open_on = None;
    }

    /// A session turn succeeded: this is held now.
    pub fn hold(&mut self, session: SessionIx, residence: Residence) {
        self.change(session, SessionState::Resident(residence));
        self.sessions[session.ix()].contiguous = true;
        self.sessions[session.ix()].open_on = Some(residence.worker);
    }

    /// The session's KV is lost. Returns what was believed.
    pub fn lose(&mut self, session: SessionIx, loss: Loss) -> Option<Residence> {
        let held = self.residence(session);
        self.change(session, SessionState::Evicted(loss));
        held
    }

    /// `worker` speaks as process `incarnation`. When that is newer than the one known, everything it held as the old
    /// process is lost and its slots are free; returns those sessions.
    pub fn heard(&mut self, worker: u16, incarnation: u32, now: Time) -> Vec<SessionIx> {
        let entry = &mut self.workers[usize::from(worker)];
        let newer = entry.incarnation.is_some_and(|known| known < incarnation);
        entry.incarnation = Some(entry.incarnation.map_or(incarnation, |known| known.max(incarnation)));
        if !newer {
            return Vec::new();
        }
        for session in std::mem::take(&mut entry.lost_when_down) {
            if self.state(session) == SessionState::Evicted(Loss::WorkerGone) {
                self.change(session, SessionState::Evicted(Loss::WorkerRestarted));
                self.closed(session);
            }
        }
        self.lose_all(worker, Loss::WorkerRestarted, now)
    }

    /// `worker` is down or left: what it held is lost and its slots are free; returns those sessions.
    pub fn gone(&mut self, worker: u16, now: Time) -> Vec<SessionIx> {
        let lost = self.lose_all(worker, Loss::WorkerGone, now);
        self.workers[usize::from(worker)].lost_when_down.extend(&lost);
        lost
    }

    /// A session turn ended well on a worker that is down by now.
    pub fn gone_with(&mut self, session: SessionIx, worker: u16) {
        self.lose(session, Loss::WorkerGone);
        self.workers[usize::from(worker)].lost_when_down.push(session);
    }

    fn lose_all(&mut self, worker: u16, loss: Loss, now: Time) -> Vec<SessionIx> {
        let lost: Vec<SessionIx> = self.workers[usize::from(worker)].resident.iter().copied().collect();
        for &session in &lost {
            self.lose(session, loss);
            if loss == Loss::WorkerRestarted {
                self.closed(session);
            }
        }
        // Whoever is busy gives its slot back when its turn ends.
        let idle: Vec<SessionIx> =
            self.workers[usize::from(worker)].idle_slots.iter().map(|(_, session)| *session).collect();
        for session in lost.iter().copied().chain(idle) {
            if self.slot(session) == Some(worker) {
                self.release_slot(session, now);
            }
        }
        self.given_back.gone(worker);
        lost
    }

    fn change(&mut self, session: SessionIx, state: SessionState) {
        self.leave_idle(session);
        if let SessionState::Resident(old) = self.state(session) {
            let worker = &mut self.workers[usize::from(old.worker)];
            worker.resident.remove(&session);
            worker.tokens -= u64::from(old.tokens);
        }
        if let SessionState::Resident(new) = state {
            let worker = &mut self.workers[usize::from(new.worker)];
            worker.resident.insert(session);
            worker.tokens += u64::from(new.tokens);
        }
        self.sessions[session.ix()].state = state;
        self.join_idle(session);
    }

    fn leave_idle(&mut self, session: SessionIx) {
        let entry = &self.sessions[session.ix()];
        let key = (entry.last_used, session);
        if entry.busy == 0 {
            if let Some(slot) = entry.slot {
                self.workers[usize::from(slot.worker)].idle_slots.remove(&key);
            }
            if let SessionState::Resident(at) = entry.state {
                self.workers[usize::from(at.worker)].idle_resident.remove(&key);
            }
        }
    }

    fn join_idle(&mut self, session: SessionIx) {
        let entry = &self.sessions[session.ix()];
        let key = (entry.last_used, session);
        if entry.busy == 0 {
            if let Some(slot) = entry.slot {
                self.workers[usize::from(slot.worker)].idle_slots.insert(key);
            }
            if let SessionState::Resident(at) = entry.state {
                self.workers[usize::from(at.worker)].idle_resident.insert(key);
            }
        }
    }

    /// Recomputes every set and sum from the sessions and compares; it visits all sessions.
    #[cfg(test)]
    pub(crate) fn check(&self) -> Result<(), String> {
        for (index, worker) in (0u16..).zip(&self.workers) {
            let mut seen = WorkerSessions {
                incarnation: worker.incarnation,
                lost_when_down: worker.lost_when_down.clone(),
                ..WorkerSessions::default()
            };
            for (entry, session) in self.sessions.iter().zip((0..).map(SessionIx)) {
                let key = (entry.last_used, session);
                if entry.slot.is_some_and(|slot| slot.worker == index) {
                    seen.slots += 1;
                    if entry.busy == 0 {
                        seen.idle_slots.insert(key);
                    }
                }
                if let SessionState::Resident(at) = entry.state
                    && at.worker == index
                {
                    seen.resident.insert(session);
                    seen.tokens += u64::from(at.tokens);
                    if entry.busy == 0 {
                        seen.idle_resident.insert(key);
                    }
                }
            }
            if seen != *worker {
                return Err(format!("worker {index}: the sessions say {seen:?}, the table {worker:?}"));
            }
        }
        Ok(())
    }
}
