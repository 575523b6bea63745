//! The sockets a worker publishes KV events on: PUB for what happens, ROUTER for what happened.
//!
//! A task of its own holds them: the owner never waits for a subscriber. Requests go through the owner, so that what is
//! answered is as of the last message sent.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::{mpsc, oneshot};

use super::inbox::ToOwner;
use super::owner::Message;
use crate::kv::publish::{Calendar, Message as Frames, PublisherOptions};
use crate::kv::wire::parse_request;
use crate::live::clock::Clock;
use crate::live::kv::zmq::{Endpoint, PubSocket, QueueLimits, Replies, RouterSocket, ZmqError};

/// Pause before an address that is taken is tried again.
const AGAIN: Duration = Duration::from_millis(100);

/// What a worker publishes, and where.
#[derive(Debug, Clone)]
pub struct KvPublishing {
    /// The publisher.
    pub publisher: PublisherOptions,
    /// Live events.
    pub events: Endpoint,
    /// Replays.
    pub replay: Endpoint,
}

/// What the owner tells the task.
#[derive(Debug)]
pub(super) enum KvWord {
    /// A message to all who subscribe.
    Send(Frames),
    /// Whether anybody is to find the sockets.
    Listen(bool),
}

/// To the task; words wait without bound only while an address is taken.
pub(super) type ToKv = mpsc::UnboundedSender<KvWord>;

/// Bound sockets and their task's other ends.
pub(super) struct KvSockets {
    options: KvPublishing,
    to_owner: ToOwner,
    words: mpsc::UnboundedReceiver<KvWord>,
    bound: Option<(PubSocket, RouterSocket)>,
}

impl KvSockets {
    /// Binds. Errors: an address cannot be had.
    pub async fn bind(options: KvPublishing, to_owner: ToOwner) -> io::Result<(ToKv, KvSockets)> {
        let (tell, words) = mpsc::unbounded_channel();
        let bound = Some(bind(&options, &to_owner).await?);
        Ok((tell, KvSockets { options, to_owner, words, bound }))
    }

    /// Until the owner is gone.
    pub async fn run(mut self) {
        while let Some(word) = self.words.recv().await {
            match (word, &mut self.bound) {
                (KvWord::Send(frames), Some((events, _))) => drop(events.send(&frames)),
                (KvWord::Listen(false), bound) => {
                    if let Some((events, replay)) = bound.take() {
                        events.close().await;
                        replay.close().await;
                    }
                }
                (KvWord::Listen(true), None) => self.bound = Some(self.bind_again().await),
                // Nobody listens, or all do already.
                (KvWord::Send(_), None) | (KvWord::Listen(true), Some(_)) => {}
            }
        }
    }

    async fn bind_again(&self) -> (PubSocket, RouterSocket) {
        loop {
            match bind(&self.options, &self.to_owner).await {
                Ok(bound) => return bound,
                Err(_) => tokio::time::sleep(AGAIN).await,
            }
        }
    }
}

async fn bind(options: &KvPublishing, to_owner: &ToOwner) -> io::Result<(PubSocket, RouterSocket)> {
    let events = PubSocket::bind(&options.events, QueueLimits::default()).await.map_err(of("events"))?;
    let to_owner = to_owner.clone();
    let answer = move |request: Frames| {
        let to_owner = to_owner.clone();
        async move { Box::new(replies(to_owner, request).await.into_iter()) as Replies }
    };
    Ok((events, RouterSocket::bind_slow(&options.replay, answer).await.map_err(of("replays"))?))
}

/// Which socket cannot be had.
fn of(what: &'static str) -> impl Fn(ZmqError) -> io::Error {
    move |error| io::Error::other(format!("KV events, socket for {what}: {error}"))
}

/// Nothing, where nobody asks for anything that makes sense.
async fn replies(to_owner: ToOwner, request: Frames) -> Vec<Frames> {
    let Ok(from) = parse_request(&request).map(|request| request.from) else { return Vec::new() };
    let (answer, answered) = oneshot::channel();
    if to_owner.ask(Message::Replay { from, answer }).await.is_err() {
        return Vec::new();
    }
    answered.await.unwrap_or_default()
}

/// The calendar by a clock that may be faster: a batch's time stamp is the time of day at which it is made.
#[expect(clippy::disallowed_methods, reason = "time stamps of publishers are points of the calendar")]
pub(super) fn calendar(clock: &Clock) -> Calendar {
    let (unix, speed) = (SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(), clock.speed());
    Calendar { epoch_s: unix.as_secs_f64() - clock.now().as_secs_f64() / speed, speed }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Dur;

    #[test]
    fn time_stamps_are_the_time_of_day_however_fast_the_clock_is() {
        for speed in [0.5, 1.0, 1000.0] {
            let clock = Clock::start(speed);
            let calendar = calendar(&clock);
            let a_minute = Dur((60e9 * speed) as u64);
            let later = calendar.unix_s(clock.now() + a_minute) - calendar.unix_s(clock.now());
            assert!((later - 60.0).abs() < 1.0, "{speed}: {later} s");
        }
    }
}
