//! Frames in whatever pieces they arrive.

use futures_util::FutureExt;
use proptest::prelude::*;

use crate::live::kv::zmq::frame::{Inbox, Item, encode_message};
use crate::live::kv::zmq::{Frames, Limits, ZmqError};

/// Feeds the bytes in pieces, the sizes taken in turn, and takes out what is whole after each.
fn read(bytes: &[u8], pieces: &[usize], limits: &Limits) -> (Vec<Item>, Option<ZmqError>) {
    let (mut inbox, mut items, mut rest) = (Inbox::new(limits), Vec::new(), bytes);
    let mut pieces = pieces.iter().cycle();
    while !rest.is_empty() {
        let size = pieces.next().copied().unwrap_or(1).min(rest.len());
        let mut piece = &rest[..size];
        let read = inbox.fill(&mut piece).now_or_never().expect("bytes are there").expect("a slice never fails");
        rest = &rest[read..];
        loop {
            match inbox.item() {
                Ok(Some(item)) => items.push(item),
                Ok(None) => break,
                Err(error) => return (items, Some(error)),
            }
        }
    }
    (items, None)
}

fn message() -> impl Strategy<Value = Frames> {
    let frame = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..20),
        (250usize..260).prop_map(|bytes| vec![1; bytes]),
        (65_530usize..200_000).prop_map(|bytes| vec![2; bytes]),
    ];
    prop::collection::vec(frame, 1..5)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn messages_survive_being_cut_anywhere(
        messages in prop::collection::vec(message(), 1..6),
        pieces in prop::collection::vec(prop_oneof![1usize..12, 1000usize..90_000], 1..8),
    ) {
        let bytes: Vec<u8> = messages.iter().flat_map(|message| encode_message(message)).collect();
        let pieces = if pieces.iter().sum::<usize>() < 1000 { vec![997] } else { pieces };
        let (items, error) = read(&bytes, &pieces, &Limits::default());
        prop_assert!(error.is_none());
        let wanted: Vec<Item> = messages.into_iter().map(Item::Message).collect();
        prop_assert!(items == wanted);
    }

    #[test]
    fn any_bytes_give_messages_within_the_limits_or_an_error(
        bytes in prop::collection::vec(prop_oneof![any::<u8>(), 0u8..8], 0..2000),
        pieces in prop::collection::vec(1usize..50, 1..5),
    ) {
        let limits = Limits { max_message_bytes: 300, max_frames: 3, ..Limits::default() };
        for item in read(&bytes, &pieces, &limits).0 {
            if let Item::Message(frames) = item {
                prop_assert!(frames.len() <= 3);
                prop_assert!(frames.iter().map(Vec::len).sum::<usize>() <= 300);
            }
        }
    }
}
