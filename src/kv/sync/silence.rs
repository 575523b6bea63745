//! A subscription that brings nothing though its publisher goes on: its topic is another than the publisher's, or its
//! connection is dead on the way.
//!
//! Owns the evidence, of two kinds: the publisher's topic, which replies of later releases name; and calibrations that find
//! the publisher ahead while no message comes. A publisher that says nothing is never ahead, so an idle one gives none.

use crate::base::Time;
use crate::kv::sync::change::Flaw;
use crate::kv::sync::machine::StreamSync;
use crate::kv::sync::topic::{Whose, shown};
use crate::kv::sync::{SyncOutput, SyncReason, SyncState};

/// Calibrations without a message between them that find the publisher ahead, until the subscription counts as silent. One
/// may find what was published before the subscription was taken up.
const MOST_ROUNDS: u32 = 2;
/// Subscriptions in a row found silent, until only a message brings the stream back in step.
const MOST_SUBSCRIPTIONS: u32 = 2;

/// What speaks against the subscription since the last message it brought.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Silence {
    /// Calibrations of this subscription that found the publisher ahead.
    rounds: u32,
    /// Subscriptions that were given up for it.
    subscriptions: u32,
}

impl Silence {
    /// There is another connection.
    pub fn reconnected(&mut self) {
        self.rounds = 0;
    }

    /// Nothing but a message is taken as a sign that it is better now.
    pub fn is_lasting(self) -> bool {
        self.subscriptions >= MOST_SUBSCRIPTIONS
    }

    fn is_proved(self) -> bool {
        self.rounds >= MOST_ROUNDS
    }
}

impl StreamSync {
    /// The subscription brought a message.
    pub(super) fn heard(&mut self, now: Time) {
        self.silence = Silence::default();
        let is_in_doubt = self.served.is_none() && self.standing.reason == SyncReason::SilentSubscription;
        if !is_in_doubt || self.attempt.is_some() {
            return;
        }
        if self.can_ask() {
            self.ask_at = Some(now);
        } else {
            self.trouble(now, self.waits());
        }
    }

    /// A calibration ended, which found the publisher ahead of all that had arrived or not.
    pub(super) fn calibrated(&mut self, now: Time, is_ahead: bool) {
        self.silence.rounds += u32::from(is_ahead);
        if self.silence.is_proved() {
            // What the replay overtook may still arrive.
            self.ask_at = Some(now + self.options.replay_timeout);
        }
    }

    /// Gives the subscription up for another, once it is proved to be silent.
    pub(super) fn is_given_up(&mut self, now: Time) -> bool {
        if self.served.is_none() || !self.silence.is_proved() {
            return false;
        }
        self.silence.subscriptions += 1;
        let flaw = self.silent();
        self.lose(now, SyncState::Unsynced, flaw, true);
        // It asks when the new connection is there.
        self.ask_at = None;
        self.outputs.push_back(SyncOutput::Reconnect);
        true
    }

    /// What is wrong, and what to compare.
    pub(super) fn silent(&self) -> Flaw {
        let Flaw { reason, detail } = self.unheard();
        Flaw::new(reason, format!("the publisher goes on, but {detail}"))
    }

    /// No batch of the followed publisher arrived.
    pub(super) fn unheard(&self) -> Flaw {
        let topic = &self.options.topic;
        let until = if self.silence.is_lasting() { "; not in step until one does" } else { "" };
        let why =
            self.topic.of_others().map_or_else(|| ": is `topic` the publisher's?".to_owned(), |it| format!("; {it}"));
        Flaw::new(SyncReason::SilentSubscription, format!("no batch of the topic {topic:?} arrives{until}{why}"))
    }

    /// A replay may name its publisher's topic: what another one holds is not the stream's. An empty one says nothing: a
    /// publisher that has one may leave it out.
    pub(super) fn check_topic(&mut self, found: &[u8]) -> Result<(), Flaw> {
        let whose = if found.is_empty() { Whose::Ours } else { self.topic.hear(found) };
        match whose {
            Whose::Ours => Ok(()),
            Whose::Successor => {
                self.decoder.reset();
                let detail = format!("the publisher's topic is {} now: another publisher", shown(found));
                Err(Flaw::new(SyncReason::Restarted, detail))
            }
            Whose::Foreign => Err(self.topic_of_replies(found)),
        }
    }

    fn topic_of_replies(&self, found: &[u8]) -> Flaw {
        let (wanted, name) = (&self.options.topic, shown(found));
        if self.live.is_none() && !found.starts_with(wanted.as_bytes()) {
            let detail = format!("the publisher's topic is {name}, so nothing of it arrives; `topic` is {wanted:?}");
            return Flaw::new(SyncReason::SilentSubscription, detail);
        }
        let reason = if self.live.is_none() { SyncReason::SilentSubscription } else { SyncReason::BadReplay };
        let detail = self.topic.another("replies", found);
        Flaw::new(reason, format!("{detail}; or `replay_endpoint` is the other's"))
    }
}
