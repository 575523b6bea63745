//! Work on several threads whose results come back in order.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Processors this program may use.
pub fn processors() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// `work` for every number below `count`, on up to `jobs` threads; the results by number.
pub fn in_order<T: Send>(count: usize, jobs: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let ended = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..jobs.min(count) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    let result = work(number);
                    ended.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push((number, result));
                }
            });
        }
    });
    let mut ended = ended.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    ended.sort_by_key(|(number, _)| *number);
    ended.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_by_number_whoever_made_them() {
        for jobs in [1, 2, 7] {
            assert_eq!(in_order(20, jobs, |number| number * 2), (0..20).map(|number| number * 2).collect::<Vec<_>>());
        }
        assert_eq!(in_order(0, 4, |number| number), Vec::<usize>::new());
    }
}
