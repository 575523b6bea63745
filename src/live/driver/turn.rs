//! The loop: what is due goes out at its time; what sockets say goes in as it comes.
//!
//! Invariants: while a request has no record, the loop waits for a timer of the replayer, a word of the client or both;
//! whatever woke it, and however far behind it is, every round hears the client, the observer and the timers, and lets the
//! tasks run.

use std::io;
use std::time::Duration;

use tokio::select;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::base::{Dur, Time, WorkerId};
use crate::live::Heard;
use crate::live::client::Client;
use crate::live::clock::{Alarm, Clock};
use crate::live::driver::Ends;
use crate::live::driver::relay::{Halt, Told};
use crate::live::driver::teller::{Gone, Teller};
use crate::protocol::{Action, Event, WorkerState};
use crate::record::{LedgerEvent, LedgerKind};
use crate::replay::{Progress, Replayer};

/// Wall time between two words on progress.
const PROGRESS_EVERY: Duration = Duration::from_millis(50);
/// Messages taken in before timers are looked at again.
const HEARD_AT_ONCE: usize = 64;
/// Actions begun before messages and timers are looked at again.
pub(super) const BEGUN_AT_ONCE: usize = 32;

/// What the loop needs of a client.
pub(super) trait Wire {
    /// Begins an action; never waits.
    fn perform(&mut self, action: Action);
}

impl Wire for Client {
    fn perform(&mut self, action: Action) {
        Client::perform(self, action);
    }
}

/// The loop and what it owns.
pub(super) struct Turning<'t, W> {
    pub replayer: Replayer<'t>,
    pub wire: W,
    pub clock: Clock,
    /// Latest end of a request.
    pub ended: Time,
    /// The observer broke the run off.
    pub broken_off: bool,
    /// Workers that have not answered so far, of those that did not before the run.
    pub absent: Vec<WorkerId>,
    hears: mpsc::Receiver<Heard>,
    told: Teller,
    halted: oneshot::Receiver<Halt>,
    /// Nobody takes anything any more.
    deaf: bool,
    drain: Dur,
    drained_at: Option<Time>,
    progress_at: Time,
}

impl<'t, W: Wire> Turning<'t, W> {
    pub fn new(replayer: Replayer<'t>, wire: W, ends: Ends, hears: mpsc::Receiver<Heard>, drain: Duration) -> Self {
        let Ends { clock, told, halted } = ends;
        Turning {
            replayer,
            wire,
            ended: Time::ZERO,
            broken_off: false,
            absent: Vec::new(),
            hears,
            told: Teller::new(told),
            halted,
            deaf: false,
            drain: clock.of_wall(drain),
            drained_at: None,
            progress_at: Time::ZERO,
            clock,
        }
    }

    /// Runs until every request has its record. Error: no timer.
    pub async fn run(mut self) -> io::Result<Self> {
        let mut alarm = Alarm::new()?;
        alarm.sleep(self.clock.until_start()).await?;
        loop {
            if self.carry() {
                // The tasks of the actions must get to their sockets, also when the next turn is already due.
                yield_now().await;
            } else if self.replayer.is_done() {
                break;
            } else {
                self.wait(&mut alarm).await?;
            }
            self.look_around();
        }
        self.tell_progress();
        let settled = self.told.settle();
        self.heed(settled);
        Ok(self)
    }

    /// Takes in what comes until every control call is answered, at most so long: a session that was being opened when
    /// the run was broken off is closed again.
    pub async fn linger(&mut self, longest: Duration) {
        let until = self.clock.now() + self.clock.of_wall(longest);
        while self.replayer.awaits_calls() {
            let Ok(Some(heard)) = timeout(self.clock.until(until), self.hears.recv()).await else { return };
            self.hear(heard);
            while self.carry() {}
        }
    }

    /// Waits until something is due, said or wished.
    async fn wait(&mut self, alarm: &mut Alarm) -> io::Result<()> {
        let timer = self.replayer.poll_timeout().map(|(at, _)| at);
        let due = timer.into_iter().chain(self.drained_at).chain([self.progress_at]).min().unwrap_or(Time::MAX);
        select! {
            waited = alarm.wait_until(&self.clock, due) => waited?,
            Some(heard) = self.hears.recv() => self.hear(heard),
            halt = &mut self.halted, if !self.broken_off => self.halt(halt.unwrap_or(Halt::Now)),
        }
        Ok(())
    }

    /// Takes in what was said, wished and has become due.
    fn look_around(&mut self) {
        for _ in 0..HEARD_AT_ONCE {
            let Ok(heard) = self.hears.try_recv() else { break };
            self.hear(heard);
        }
        match self.halted.try_recv() {
            _ if self.broken_off => {}
            Ok(halt) => self.halt(halt),
            Err(TryRecvError::Closed) => self.halt(Halt::Now),
            Err(TryRecvError::Empty) => {}
        }
        let passed = self.told.pass_on();
        self.heed(passed);
        let now = self.clock.now();
        self.replayer.handle_timeout(now);
        if self.drained_at.is_some_and(|at| now >= at) {
            self.drained_at = None;
            self.interrupt();
        }
        if now >= self.progress_at {
            self.tell_progress();
            self.progress_at = now + self.clock.of_wall(PROGRESS_EVERY);
        }
    }

    fn halt(&mut self, halt: Halt) {
        self.broken_off = true;
        self.told.hurry();
        match halt {
            Halt::Drain => {
                self.hear_all();
                let now = self.clock.now();
                self.replayer.drain(now);
                self.drained_at = Some(now + self.drain);
            }
            Halt::Now => self.interrupt(),
        }
    }

    fn interrupt(&mut self) {
        self.hear_all();
        self.replayer.interrupt(self.clock.now());
    }

    /// Nothing that was sent may be taken as unsent when the run is broken off.
    fn hear_all(&mut self) {
        while let Ok(heard) = self.hears.try_recv() {
            self.hear(heard);
        }
    }

    fn hear(&mut self, heard: Heard) {
        let now = self.clock.now();
        match heard {
            Heard::Event(event) => {
                if let Event::WorkerChanged { worker, state: WorkerState::Up { .. } } = &event {
                    self.absent.retain(|absent| absent != worker);
                }
                self.replayer.handle_event(now, event);
            }
            Heard::Notice { kind, worker, detail } => {
                let worker = worker.map(|worker| worker.to_string());
                self.note(now, kind, worker, detail);
            }
        }
    }

    /// Writes a ledger line that the replayer has no word for.
    pub fn note(&mut self, now: Time, kind: LedgerKind, worker: Option<String>, detail: String) {
        let event = LedgerEvent {
            at_ns: now.ns(),
            kind,
            session_id: None,
            turn_id: None,
            worker,
            detail: Some(detail),
            candidates: Vec::new(),
        };
        self.tell(Told::Ledger(Box::new(event)));
    }

    /// Begins some of what is to be done, then hands out what was produced; true when something was begun.
    fn carry(&mut self) -> bool {
        let mut begun = 0;
        while begun < BEGUN_AT_ONCE
            && let Some(action) = self.replayer.poll_action()
        {
            self.wire.perform(action);
            begun += 1;
        }
        while let Some(line) = self.replayer.poll_ledger() {
            self.tell(Told::Ledger(Box::new(line)));
        }
        while let Some((record, tokens)) = self.replayer.poll_record() {
            self.ended = self.ended.max(Time(record.ended_ns));
            self.tell(Told::Record(Box::new(record), tokens));
        }
        begun > 0
    }

    fn tell_progress(&mut self) {
        let progress = Progress {
            now: self.clock.now(),
            planned: self.replayer.planned(),
            ended: self.replayer.ended(),
            in_flight: self.replayer.in_flight(),
        };
        self.tell(Told::Progress(progress));
    }

    fn tell(&mut self, told: Told) {
        if !self.deaf {
            let taken = self.told.tell(told);
            self.heed(taken);
        }
    }

    /// An observer that has gone has failed and stops the run, whatever it wished before.
    fn heed(&mut self, taken: Result<(), Gone>) {
        if taken.is_err() && !self.deaf {
            (self.deaf, self.broken_off, self.drained_at) = (true, true, None);
            self.replayer.interrupt(self.clock.now());
        }
    }
}
