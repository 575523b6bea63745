//! Requests given up on the wire: all about them is settled but the record, which waits for what of the answer had arrived.
//!
//! The last word adds figures to a record and to the ledger, and moves nothing: no belief, no policy, no turn. One that
//! does not come within its time is done without.

use crate::base::{RequestIx, Time};
use crate::protocol::Answer;
use crate::replay::Replayer;
use crate::replay::record::{Ending, Sent};
use crate::replay::schedule::Wake;
use crate::replay::turn::{TimerKey, Turn};

/// A turn that ended before its answer.
#[derive(Debug)]
pub(super) struct GivenUp {
    turn: Turn,
    ending: Ending,
    at: Time,
    timer: Option<TimerKey>,
}

impl Replayer<'_> {
    /// Closes the stream of a turn that ends so; its record is written when the cluster has told what had arrived.
    pub(super) fn await_last_word(&mut self, now: Time, request: RequestIx, turn: Turn, ending: Ending) {
        self.book(request);
        let timer = self.last_word_wait.map(|wait| self.arm(now + wait, Wake::LastWord(request)));
        self.given_up.insert(request, GivenUp { turn, ending, at: now, timer });
    }

    /// What had arrived of a request that was given up.
    pub(super) fn take_last_word(&mut self, now: Time, answer: Answer) {
        let request = answer.request;
        let Some(given_up) = self.given_up.remove(&request) else { return };
        self.note_mismatch(now, &answer, given_up.turn.intended, given_up.turn.router_send);
        let planned = self.trace.turn(request);
        let answer = answer.until(given_up.at);
        let heard = Ending::answered(answer, planned.input_length, planned.output_length);
        self.write_last(now, request, GivenUp { ending: given_up.ending.having(heard), ..given_up });
    }

    /// Writes the record of a request that was given up without what had arrived.
    pub(super) fn write_given_up(&mut self, now: Time, request: RequestIx) {
        if let Some(given_up) = self.given_up.remove(&request) {
            self.write_last(now, request, given_up);
        }
    }

    fn write_last(&mut self, now: Time, request: RequestIx, given_up: GivenUp) {
        self.timers.disarm(given_up.timer);
        self.write(given_up.at, request, Sent::Yes(&given_up.turn), given_up.ending);
        self.close_when_done(now);
    }
}
