//! The way to the task that owns the node: messages in the order they were sent.
//!
//! Invariant: whoever asks for something waits while too much of it lies here; a word on what is under way never waits,
//! so nothing that ends an exchange can stand behind what begins one. Such words need no bound of their own: at most one
//! for each exchange, two for each pull and one for each prefill worker.

use std::sync::Arc;

use tokio::sync::mpsc::error::TryRecvError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::owner::Message;

/// Held by a message until the owner takes it; words have none.
type Letter = (Message, Option<OwnedSemaphorePermit>);

/// The senders' side.
#[derive(Debug, Clone)]
pub(super) struct ToOwner {
    letters: mpsc::UnboundedSender<Letter>,
    places: Arc<Semaphore>,
}

/// The owner's side.
#[derive(Debug)]
pub(super) struct Inbox(mpsc::UnboundedReceiver<Letter>);

/// The owner is gone: the server stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Closed;

/// Both sides, with places for so many messages that ask for something.
pub(super) fn inbox(places: usize) -> (ToOwner, Inbox) {
    let (letters, inbox) = mpsc::unbounded_channel();
    (ToOwner { letters, places: Arc::new(Semaphore::new(places)) }, Inbox(inbox))
}

impl ToOwner {
    /// Sends what asks for something, once there is a place.
    pub async fn ask(&self, message: Message) -> Result<(), Closed> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| Closed)?;
        self.letters.send((message, Some(place))).map_err(|_| Closed)
    }

    /// Sends a word on what is under way, at once.
    pub fn say(&self, message: Message) {
        // Without an owner there is nothing left to be told.
        let _ = self.letters.send((message, None));
    }
}

impl Inbox {
    /// The next message; `None` once every sender is gone. Cancel-safe.
    pub async fn next(&mut self) -> Option<Message> {
        self.0.recv().await.map(|(message, _)| message)
    }

    /// The next message, if there is one.
    pub fn next_now(&mut self) -> Result<Message, TryRecvError> {
        self.0.try_recv().map(|(message, _)| message)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::node::{Exchange, NodeInput};

    #[tokio::test]
    async fn words_pass_when_every_place_is_taken_and_keep_their_order() {
        let (to_owner, mut inbox) = inbox(1);
        let tell = |name: &str| Message::Tell(NodeInput::Close(name.to_owned()));
        to_owner.ask(tell("a")).await.unwrap();
        let second = to_owner.ask(tell("b"));
        tokio::pin!(second);
        assert!(second.as_mut().now_or_never().is_none(), "the one place is taken");
        (0..3).for_each(|exchange| to_owner.say(Message::Gone(Exchange(exchange))));
        assert!(matches!(inbox.next().await, Some(Message::Tell(NodeInput::Close(name))) if name == "a"));
        second.await.unwrap();
        for exchange in 0..3 {
            assert!(matches!(inbox.next_now(), Ok(Message::Gone(of)) if of == Exchange(exchange)));
        }
        assert!(matches!(inbox.next().await, Some(Message::Tell(NodeInput::Close(name))) if name == "b"));
        assert!(inbox.next_now().is_err());
    }

    #[tokio::test]
    async fn who_waits_for_a_place_hears_that_the_owner_is_gone() {
        let (to_owner, inbox) = inbox(1);
        to_owner.ask(Message::Gone(Exchange(1))).await.unwrap();
        let waits = to_owner.ask(Message::Gone(Exchange(2)));
        tokio::pin!(waits);
        assert!(waits.as_mut().now_or_never().is_none());
        drop(inbox);
        assert_eq!(waits.await, Err(Closed));
        to_owner.say(Message::Gone(Exchange(3)));
    }
}
