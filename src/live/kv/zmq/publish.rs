//! [`PubSocket`]: a bound PUB socket with a bounded queue for each subscriber.
//!
//! Sending never waits: what a subscriber has no room for is dropped whole for that subscriber, as libzmq does at its
//! high-water mark, and a gap in the publisher's sequence numbers is how the subscriber learns of it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Notify;

use super::connection::Connection;
use super::endpoint::Stream;
use super::frame::{Command, Item, encode_message};
use super::greeting::Role;
use super::limits::OF_LISTENERS;
use super::listen::Listening;
use super::{Endpoint, ZmqError};

/// Topics of one subscriber; one that wants more is let go.
const MAX_TOPICS: usize = 1024;

/// What may wait for one subscriber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueLimits {
    /// Messages; the engines' default is 100,000.
    pub messages: usize,
    /// Bytes of all of them. A single larger message is still taken when nothing else waits.
    pub bytes: usize,
}

impl Default for QueueLimits {
    /// 100,000 messages, 64 MiB.
    fn default() -> QueueLimits {
        QueueLimits { messages: 100_000, bytes: 64 << 20 }
    }
}

/// What became of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sent {
    /// Subscribers that it waits for.
    pub queued: usize,
    /// Subscribers that had no room for it.
    pub dropped: usize,
}

/// A bound PUB socket. Its tasks end with it.
pub struct PubSocket {
    listening: Listening,
    subscribers: Arc<Subscribers>,
}

impl PubSocket {
    /// Binds and serves subscribers from now on.
    pub async fn bind(endpoint: &Endpoint, queue: QueueLimits) -> Result<PubSocket, ZmqError> {
        let subscribers = Arc::new(Subscribers { queue, all: Mutex::default() });
        let known = Arc::clone(&subscribers);
        let serve = move |stream| {
            let known = Arc::clone(&known);
            async move {
                // A subscriber that breaks the protocol, or leaves, is gone; PUB has nobody to tell.
                let _ = serve(stream, &known).await;
            }
        };
        Ok(PubSocket { listening: Listening::start(endpoint, serve).await?, subscribers })
    }

    /// Where it listens, with the port that the system gave in place of 0.
    pub fn endpoint(&self) -> &Endpoint {
        self.listening.endpoint()
    }

    /// Hands a message to every subscriber with a topic that its first frame begins with.
    pub fn send(&self, frames: &[impl AsRef<[u8]>]) -> Sent {
        let topic = frames.first().map(AsRef::as_ref).unwrap_or_default();
        self.subscribers.send(topic, &encode_message(frames))
    }

    /// Subscribers to what begins with `topic`, at this moment.
    pub fn subscribers_of(&self, topic: &[u8]) -> usize {
        self.subscribers.lock().values().filter(|subscriber| subscriber.wants(topic)).count()
    }

    /// Closes the port and every connection before it returns; what waits in queues is lost.
    pub async fn close(self) {
        self.listening.close().await;
    }
}

struct Subscribers {
    queue: QueueLimits,
    all: Mutex<BTreeMap<u64, Subscriber>>,
}

#[derive(Default)]
struct Subscriber {
    /// As often as each was subscribed to: it takes as many cancellations.
    topics: Vec<Vec<u8>>,
    waiting: VecDeque<Bytes>,
    bytes: usize,
    wake: Arc<Notify>,
}

impl Subscriber {
    fn wants(&self, topic: &[u8]) -> bool {
        self.topics.iter().any(|prefix| topic.starts_with(prefix))
    }

    fn has_room(&self, bytes: usize, limits: QueueLimits) -> bool {
        self.waiting.is_empty() || (self.waiting.len() < limits.messages && self.bytes + bytes <= limits.bytes)
    }
}

impl Subscribers {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Subscriber>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, topic: &[u8], message: &Bytes) -> Sent {
        let mut sent = Sent::default();
        for subscriber in self.lock().values_mut().filter(|subscriber| subscriber.wants(topic)) {
            if !subscriber.has_room(message.len(), self.queue) {
                sent.dropped += 1;
                continue;
            }
            subscriber.bytes += message.len();
            subscriber.waiting.push_back(message.clone());
            subscriber.wake.notify_one();
            sent.queued += 1;
        }
        sent
    }

    fn join(&self) -> Seat<'_> {
        let mut all = self.lock();
        let id = all.last_key_value().map_or(0, |(id, _)| id + 1);
        let wake = Arc::clone(&all.entry(id).or_default().wake);
        Seat { subscribers: self, id, wake }
    }
}

/// A connection's place among the subscribers, given up when dropped.
struct Seat<'a> {
    subscribers: &'a Subscribers,
    id: u64,
    wake: Arc<Notify>,
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.subscribers.lock().remove(&self.id);
    }
}

impl Seat<'_> {
    fn with<T: Default>(&self, act: impl FnOnce(&mut Subscriber) -> T) -> T {
        self.subscribers.lock().get_mut(&self.id).map(act).unwrap_or_default()
    }

    fn pop(&self) -> Option<Bytes> {
        self.with(|subscriber| {
            let message = subscriber.waiting.pop_front()?;
            subscriber.bytes -= message.len();
            Some(message)
        })
    }

    /// Whether the number of topics is still within its limit.
    fn subscribe(&self, change: Subscription<'_>) -> bool {
        self.with(|subscriber| {
            match change {
                Subscription::To(topic) => subscriber.topics.push(topic.to_owned()),
                Subscription::Cancel(topic) => {
                    if let Some(at) = subscriber.topics.iter().position(|known| known == topic) {
                        subscriber.topics.swap_remove(at);
                    }
                }
            }
            subscriber.topics.len() <= MAX_TOPICS
        })
    }
}

#[derive(Clone, Copy)]
enum Subscription<'a> {
    To(&'a [u8]),
    Cancel(&'a [u8]),
}

/// 3.0 subscribes with a message, 3.1 with a command. Anything else that a subscriber says means nothing to a PUB.
fn subscription(item: &Item) -> Option<Subscription<'_>> {
    match item {
        Item::Message(frames) => match frames.first()?.split_first()? {
            (1, topic) => Some(Subscription::To(topic)),
            (0, topic) => Some(Subscription::Cancel(topic)),
            _ => None,
        },
        Item::Command(Command { name, data }) => match name.as_slice() {
            b"SUBSCRIBE" => Some(Subscription::To(data)),
            b"CANCEL" => Some(Subscription::Cancel(data)),
            _ => None,
        },
    }
}

async fn serve(stream: Stream, subscribers: &Subscribers) -> Result<(), ZmqError> {
    let mut connection = Connection::shake_hands(stream, Role::Pub, &OF_LISTENERS).await?;
    let seat = subscribers.join();
    loop {
        if connection.is_idle()
            && let Some(message) = seat.pop()
        {
            connection.queue(message);
        }
        let is_idle = connection.is_idle();
        tokio::select! {
            item = connection.next() => {
                let item = item?;
                if let Some(change) = item.as_ref().and_then(subscription) && !seat.subscribe(change) {
                    return Ok(());
                }
            }
            () = seat.wake.notified(), if is_idle => {}
        }
    }
}
