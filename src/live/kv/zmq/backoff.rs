//! [`Backoff`]: how long to wait before connecting again.

use std::time::Duration;

use crate::base::Rng;

const FIRST: Duration = Duration::from_millis(100);
/// A connection that lasted this long starts the waits anew.
pub(super) const LONGEST: Duration = Duration::from_secs(2);

/// Waits of 100 ms doubling to 2 s, each shortened by up to a half at random, so that the streams of a publisher
/// that comes back do not all return at once.
pub(super) struct Backoff {
    next: Duration,
    rng: Rng,
}

impl Backoff {
    /// Streams with different `stream` draw independently.
    pub fn new(seed: u64, stream: u64) -> Backoff {
        Backoff { next: FIRST, rng: Rng::new(seed, stream) }
    }

    /// The next wait.
    pub fn wait(&mut self) -> Duration {
        let full = self.next;
        self.next = (full * 2).min(LONGEST);
        full.mul_f64(1.0 - self.rng.f64() / 2.0)
    }

    /// All is well: begin with the shortest wait again.
    pub fn reset(&mut self) {
        self.next = FIRST;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_two_seconds_and_the_seed_tells_them() {
        let waits = |seed| {
            let mut backoff = Backoff::new(seed, 0);
            (0..8).map(|_| backoff.wait()).collect::<Vec<_>>()
        };
        for (wait, full) in waits(1).into_iter().zip([100, 200, 400, 800, 1600, 2000, 2000, 2000]) {
            let full = Duration::from_millis(full);
            assert!(full / 2 <= wait && wait <= full, "{wait:?} of {full:?}");
        }
        assert_eq!(waits(1), waits(1));
        assert_ne!(waits(1), waits(2));
    }

    #[test]
    fn a_good_connection_starts_them_anew() {
        let mut backoff = Backoff::new(1, 0);
        for _ in 0..8 {
            backoff.wait();
        }
        backoff.reset();
        assert!(backoff.wait() <= FIRST);
    }
}
