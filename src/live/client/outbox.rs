//! [`Outbox`]: bodies of generate requests, built only when there is room for them.
//!
//! First come, first built. Owns no socket: a body gives its room back when a socket has taken the last byte of it, or
//! nobody wants it any more. Invariant: bodies that were built and not sent take [`ROOM`] bytes at most, or are one alone.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::live::Target;
use crate::live::client::body::{Bodies, Body, Rendezvous};
use crate::live::client::line::locked;
use crate::protocol::Generate;
use crate::trace::Trace;

/// Bytes of bodies that wait for their sockets: 256 MiB.
const ROOM: usize = 256 << 20;
/// Room is given out in pieces of so many bytes.
const PIECE: usize = 1 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Outbox {
    bodies: Mutex<Bodies>,
    pieces: usize,
    room: Arc<Semaphore>,
}

/// A body with its room.
#[derive(Debug)]
pub(super) struct Parcel {
    body: Body,
    room: Arc<OwnedSemaphorePermit>,
}

/// What a socket takes.
struct Load {
    json: Vec<u8>,
    _room: Arc<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Load {
    fn as_ref(&self) -> &[u8] {
        &self.json
    }
}

impl Outbox {
    pub fn new(trace: &Arc<Trace>, target: &Target) -> Outbox {
        Outbox::with_room(trace, target, ROOM)
    }

    fn with_room(trace: &Arc<Trace>, target: &Target, room: usize) -> Outbox {
        let pieces = room / PIECE;
        Outbox { bodies: Mutex::new(Bodies::new(trace, target)), pieces, room: Arc::new(Semaphore::new(pieces)) }
    }

    /// The body of a request that is sent `copies` times over, once there is room.
    pub async fn parcel(&self, generate: &Generate, copies: usize) -> Parcel {
        let size = locked(&self.bodies).size(generate) * copies;
        let pieces = size.div_ceil(PIECE).clamp(1, self.pieces);
        let pieces = u32::try_from(pieces).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.room).acquire_many_owned(pieces).await.expect("the room is never closed");
        let body = locked(&self.bodies).build(generate);
        Parcel { body, room: Arc::new(room) }
    }
}

impl Parcel {
    /// For the one leg there is, or for D.
    pub fn whole(self, meet: Option<&Rendezvous>) -> Bytes {
        Bytes::from_owner(Load { json: self.body.whole(meet), _room: self.room })
    }

    /// For P: the same without `session_params`.
    pub fn for_prefill(&self, meet: &Rendezvous) -> Bytes {
        Bytes::from_owner(Load { json: self.body.for_prefill(meet), _room: Arc::clone(&self.room) })
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::live::client::tests::support::{block_on, generate_of, target, two_turns};

    #[test]
    fn a_body_is_built_when_there_is_room_in_the_order_asked_for() {
        let trace = two_turns();
        let generate = generate_of(&trace, 0);
        block_on(async {
            let outbox = Outbox::with_room(&trace, &target(&[]), 4 * PIECE);
            let first = outbox.parcel(&generate, 1).await.whole(None);
            let second = outbox.parcel(&generate, 1).await.whole(None);
            let mut third = Box::pin(outbox.parcel(&generate, 1));
            let mut fourth = Box::pin(outbox.parcel(&generate, 1));
            assert!((&mut third).now_or_never().is_none() && (&mut fourth).now_or_never().is_none());
            // What hyper holds while it writes.
            let rest = first.slice(10..);
            drop(first);
            assert!((&mut third).now_or_never().is_none(), "a part of it is still to be sent");
            drop(rest);
            assert!((&mut fourth).now_or_never().is_none());
            let third = (&mut third).now_or_never().expect("its turn");
            drop(third);
            assert!((&mut fourth).now_or_never().is_some());
            drop(second);
        });
    }

    #[test]
    fn a_body_beyond_all_room_goes_alone_and_size_is_an_upper_bound() {
        let trace = two_turns();
        let generate = generate_of(&trace, 1);
        block_on(async {
            let outbox = Outbox::with_room(&trace, &target(&[]), PIECE);
            let whole = outbox.parcel(&generate, 2).await.whole(None);
            assert!(whole.len() > PIECE && whole.len() <= locked(&outbox.bodies).size(&generate));
            assert!(outbox.parcel(&generate_of(&trace, 0), 1).now_or_never().is_none());
        });
    }
}
