//! Between the driver's thread and the observer's: what a run produces one way, the wish to stop the other.
//!
//! Invariant: once the driver has ended, everything it told has reached the observer, or the observer's first error ended
//! the run.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::live::clock::Clock;
use crate::protocol::TokenRun;
use crate::record::{LedgerEvent, RequestRecord};
use crate::replay::{Observer, Progress};

/// Longest time until the observer is asked again whether to go on.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Time in which more may come before what has come is taken: waking this thread for each record would cost the driver
/// more than the record.
const GATHER: Duration = Duration::from_millis(10);

/// From the driver.
#[derive(Debug)]
pub(super) enum Told {
    Record(Box<RequestRecord>, Vec<TokenRun>),
    Ledger(Box<LedgerEvent>),
    Progress(Progress),
}

/// To the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Halt {
    /// Send nothing more; what is in flight may end.
    Drain,
    /// Nothing more can be taken.
    Now,
}

/// Hands everything over until the driver has gone. An error of the observer stops the driver and is returned at once.
pub(super) fn relay(
    tells: Receiver<Told>,
    clock: Clock,
    halt: oneshot::Sender<Halt>,
    observer: &mut dyn Observer,
) -> io::Result<()> {
    let mut relay = Relay { observer, halt: Some(halt), last: None };
    let relayed = relay.until_gone(&tells, clock);
    if relayed.is_err() {
        relay.halt(Halt::Now);
    }
    relayed
}

struct Relay<'o> {
    observer: &'o mut dyn Observer,
    /// Gone once the driver was told to stop.
    halt: Option<oneshot::Sender<Halt>>,
    last: Option<Progress>,
}

impl Relay<'_> {
    fn until_gone(&mut self, tells: &Receiver<Told>, clock: Clock) -> io::Result<()> {
        loop {
            match tells.recv_timeout(ASK_EVERY) {
                Ok(told) => {
                    self.take(told)?;
                    // Nobody unparks it; an early wake would cost nothing but itself.
                    thread::park_timeout(GATHER);
                    tells.try_iter().try_for_each(|told| self.take(told))?;
                    self.observer.idle()?;
                }
                // The driver waits for the target; the observer may wish to stop all the same.
                Err(RecvTimeoutError::Timeout) => {
                    let still = self.last.map(|last| Progress { now: clock.now(), ..last });
                    still.into_iter().for_each(|progress| self.ask(progress));
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
    }

    fn take(&mut self, told: Told) -> io::Result<()> {
        match told {
            Told::Record(record, tokens) => self.observer.record(&record, &tokens),
            Told::Ledger(event) => self.observer.ledger(&event),
            Told::Progress(progress) => {
                self.last = Some(progress);
                self.ask(progress);
                Ok(())
            }
        }
    }

    fn ask(&mut self, progress: Progress) {
        if self.observer.progress(&progress).is_break() {
            self.halt(Halt::Drain);
        }
    }

    fn halt(&mut self, how: Halt) {
        if let Some(halt) = self.halt.take() {
            // A driver that has gone needs no word.
            let _ = halt.send(how);
        }
    }
}
