//! [`Seats`]: how many connections a server has at once, and who goes when there are too many.
//!
//! A server without a limit dies of its descriptors: whoever opens connections and says nothing takes them all. Here the
//! one that was of no use for longest makes room for the next. Invariant: never more than `most` at once, those apart that
//! are just being told that there is no room.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Nobody goes who came, or was answered, less than this ago: a caller has time to ask.
const LEAST_STAY: Duration = Duration::from_millis(250);

/// See the module.
#[derive(Debug)]
pub(super) struct Seats {
    most: usize,
    taken: Mutex<BTreeMap<u64, Arc<Seat>>>,
    next: AtomicU64,
    refused: AtomicU64,
    evicted: AtomicU64,
}

#[derive(Debug)]
struct Seat {
    since: Mutex<Instant>,
    leave: Notify,
}

/// A connection's place, given back when it is dropped.
#[derive(Debug)]
pub(super) struct Taken {
    seats: Arc<Seats>,
    number: u64,
    seat: Arc<Seat>,
}

/// What there is to tell of [`Seats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SeatCounts {
    /// Connections now.
    pub open: usize,
    /// Most at once.
    pub most: usize,
    /// Callers told that there is no room.
    pub refused: u64,
    /// Connections closed to make room.
    pub evicted: u64,
}

impl Seats {
    /// At most `most` at once.
    pub fn new(most: usize) -> Arc<Seats> {
        let (next, refused, evicted) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Seats { most, taken: Mutex::default(), next, refused, evicted })
    }

    /// A place for a caller, if need be the one of whoever was answered longest ago. `None`: all are in use.
    pub fn take(self: &Arc<Seats>) -> Option<Taken> {
        let mut taken = lock(&self.taken);
        if taken.len() >= self.most && !self.evict_one(&mut taken, LEAST_STAY) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let seat = Arc::new(Seat { since: Mutex::new(Instant::now()), leave: Notify::new() });
        taken.insert(number, Arc::clone(&seat));
        Some(Taken { seats: Arc::clone(self), number, seat })
    }

    /// Closes the connection that was answered longest ago, however long that is; whether there was any.
    pub fn make_room(&self) -> bool {
        self.evict_one(&mut lock(&self.taken), Duration::ZERO)
    }

    fn evict_one(&self, taken: &mut BTreeMap<u64, Arc<Seat>>, least_stay: Duration) -> bool {
        let since = |seat: &Seat| *lock(&seat.since);
        let Some((&number, seat)) = taken.iter().min_by_key(|(_, seat)| since(seat)) else { return false };
        if since(seat).elapsed() < least_stay {
            return false;
        }
        // A permit stays until the connection looks.
        seat.leave.notify_one();
        taken.remove(&number);
        self.evicted.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// Counts so far.
    pub fn counts(&self) -> SeatCounts {
        SeatCounts {
            open: lock(&self.taken).len(),
            most: self.most,
            refused: self.refused.load(Ordering::Relaxed),
            evicted: self.evicted.load(Ordering::Relaxed),
        }
    }
}

impl Taken {
    /// Ready when somebody else needs the place more.
    pub async fn wanted(&self) {
        self.seat.leave.notified().await;
    }

    /// The stream of this connection: what is written to it counts as an answer.
    pub fn watch(&self, stream: TcpStream) -> Watched {
        Watched { stream, seat: Arc::clone(&self.seat) }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        lock(&self.seats.taken).remove(&self.number);
    }
}

/// A stream whose writes are noted.
#[derive(Debug)]
pub(super) struct Watched {
    stream: TcpStream,
    seat: Arc<Seat>,
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(1..)) = written {
            *lock(&self.seat.since) = Instant::now();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn whoever_was_answered_longest_ago_makes_room() {
        let seats = Seats::new(2);
        let first = seats.take().unwrap();
        let second = seats.take().unwrap();
        assert!(seats.take().is_none(), "both have just come");
        tokio::time::sleep(LEAST_STAY).await;
        *lock(&first.seat.since) = Instant::now();
        let third = seats.take().unwrap();
        second.wanted().await;
        assert_eq!(seats.counts(), SeatCounts { open: 2, most: 2, refused: 1, evicted: 1 });
        drop(second);
        assert_eq!(seats.counts().open, 2, "its place was taken already");
        drop((first, third));
        assert_eq!(seats.counts().open, 0);
    }
}
