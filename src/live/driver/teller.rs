//! The driver's end of the channel to the observer.
//!
//! While the run goes on, a full channel holds the driver up, and the schedule lag shows it: memory is bounded. Once it is
//! broken off nothing holds it up, or answers under way would be given up for a slow disk's sake: what the observer has
//! not taken waits here, at most as much as was planned.

use std::collections::VecDeque;
use std::sync::mpsc::{SyncSender, TrySendError};

use super::relay::Told;

/// The observer has gone.
#[derive(Debug)]
pub(super) struct Gone;

#[derive(Debug)]
pub(super) struct Teller {
    told: SyncSender<Told>,
    waiting: VecDeque<Told>,
    waits: bool,
}

impl Teller {
    pub fn new(told: SyncSender<Told>) -> Teller {
        Teller { told, waiting: VecDeque::new(), waits: true }
    }

    /// Hands something over, after all that was told before.
    pub fn tell(&mut self, told: Told) -> Result<(), Gone> {
        if self.waits {
            return self.told.send(told).map_err(|_| Gone);
        }
        self.waiting.push_back(told);
        self.pass_on()
    }

    /// From now on it waits for nobody, until [`Teller::settle`].
    pub fn hurry(&mut self) {
        self.waits = false;
    }

    /// Hands over what there is room for.
    pub fn pass_on(&mut self) -> Result<(), Gone> {
        while let Some(told) = self.waiting.pop_front() {
            match self.told.try_send(told) {
                Ok(()) => {}
                Err(TrySendError::Full(told)) => {
                    self.waiting.push_front(told);
                    break;
                }
                Err(TrySendError::Disconnected(_)) => return Err(Gone),
            }
        }
        Ok(())
    }

    /// Hands over all that waits, however long that takes, and waits again from now on.
    pub fn settle(&mut self) -> Result<(), Gone> {
        self.waits = true;
        self.waiting.drain(..).try_for_each(|told| self.told.send(told).map_err(|_| Gone))
    }
}
