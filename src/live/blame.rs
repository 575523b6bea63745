//! Which leg is at fault when a request of two legs fails: the one rule of the router and of the client that joins legs.
//!
//! A leg that fails in the hand-off of the KV does so for the other leg's sake as often as for its own. So its words do
//! not decide at once: the other leg may say, within [`PATIENCE`], what happened. When both speak of the hand-off alone,
//! D's word counts, whose answer the client gets. Any other failure is the leg's own and decides at once.

use std::time::Duration;

/// Longest wall time for the other leg's word, once a request is lost already. Long beside the delays of a busy machine;
/// used up only by a leg that has nothing to say.
pub(super) const PATIENCE: Duration = Duration::from_millis(500);

/// Words of engines, emulated or real, on a hand-off that failed.
const HAND_OFF: [&str; 4] = ["kvtransfererror", "transfer failed", "handshake failed", "instance could be dead"];

/// These words of a failure are about the hand-off: the other leg may know better.
pub(super) fn is_of_hand_off(words: &str) -> bool {
    let words = words.to_ascii_lowercase();
    HAND_OFF.into_iter().any(|known| words.contains(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_on_the_hand_off_leave_the_blame_open() {
        for words in [
            "KVTransferError(bootstrap_room=5): transfer failed",
            "Decode handshake failed for request rank=0",
            "Prefill transfer failed for request rank=0 with exception KVTransferError(bootstrap_room=7)",
        ] {
            assert!(is_of_hand_off(words), "{words}");
        }
        for words in ["prefill failed on P0: server answered 500", "connection refused", "Abort in waiting queue", ""] {
            assert!(!is_of_hand_off(words), "{words}");
        }
    }
}
