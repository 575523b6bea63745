//! What the harness itself costs, and how late its loop is.
//!
//! The lag is that of a timer on the driver's own runtime: whatever holds up the loop holds it up as well.

use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use rustix::time::{ClockId, clock_gettime};

use crate::live::clock::{Alarm, Clock};
use crate::live::driver::descriptors::Descriptors;
use crate::record::HarnessFacts;

/// Time between two samples of the lag.
const SAMPLE_EVERY: Duration = Duration::from_millis(10);

/// Longest lag told apart, microseconds: 1 h.
const LONGEST_US: u64 = 3_600_000_000;

/// Running measurement; made on the driver's thread, inside its runtime.
pub(super) struct Sampler {
    wall: Clock,
    driver_cpu_s: f64,
    process_cpu_s: f64,
    lags_us: Arc<Mutex<Histogram<u64>>>,
}

impl Sampler {
    /// Starts to measure.
    pub fn start() -> Sampler {
        let wall = Clock::start(1.0);
        let lags_us = Arc::new(Mutex::new(Histogram::new_with_max(LONGEST_US, 3).expect("the bounds are allowed")));
        tokio::spawn(sample(wall, Arc::clone(&lags_us)));
        Sampler {
            wall,
            driver_cpu_s: seconds(ClockId::ThreadCPUTime),
            process_cpu_s: seconds(ClockId::ProcessCPUTime),
            lags_us,
        }
    }

    /// What was measured so far.
    pub fn facts(&self, descriptors: Descriptors) -> HarnessFacts {
        let lags = self.lags_us.lock().unwrap_or_else(PoisonError::into_inner);
        let lag_ms = |us: u64| (!lags.is_empty()).then_some(us as f64 / 1e3);
        let driver_cpu_s = seconds(ClockId::ThreadCPUTime) - self.driver_cpu_s;
        HarnessFacts {
            loop_lag_p50_ms: lag_ms(lags.value_at_quantile(0.5)),
            loop_lag_p99_ms: lag_ms(lags.value_at_quantile(0.99)),
            loop_lag_max_ms: lag_ms(lags.max()),
            driver_cpu_s,
            driver_cpu_share: driver_cpu_s / self.wall.now().as_secs_f64().max(1e-9),
            process_cpu_s: seconds(ClockId::ProcessCPUTime) - self.process_cpu_s,
            rss_peak_bytes: rss_peak_bytes(&fs::read_to_string("/proc/self/status").unwrap_or_default()),
            descriptors_needed: descriptors.needed,
            descriptors_limit: descriptors.limit,
            ..HarnessFacts::default()
        }
    }
}

async fn sample(wall: Clock, lags_us: Arc<Mutex<Histogram<u64>>>) {
    // Without a timer there is no lag to tell; the loop itself reports that it has none.
    let Ok(mut alarm) = Alarm::new() else { return };
    loop {
        let due = wall.now() + wall.of_wall(SAMPLE_EVERY);
        if alarm.wait_until(&wall, due).await.is_err() {
            return;
        }
        let lag_us = wall.now().since(due).ns() / 1000;
        lags_us.lock().unwrap_or_else(PoisonError::into_inner).saturating_record(lag_us);
    }
}

fn seconds(clock: ClockId) -> f64 {
    let time = clock_gettime(clock);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn rss_peak_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_as_the_kernel_writes_it() {
        assert_eq!(rss_peak_bytes("Name:\tpdreplay\nVmHWM:\t    7168 kB\nVmRSS:\t 5000 kB\n"), Some(7168 * 1024));
        assert_eq!(rss_peak_bytes("Name:\tpdreplay\n"), None);
    }

    #[test]
    fn a_loop_that_is_held_up_shows_in_the_lag() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let facts = runtime.block_on(async {
            let sampler = Sampler::start();
            tokio::time::sleep(Duration::from_millis(15)).await;
            // By its own use of the processor: on a busy machine the wall's time is somebody else's.
            let until = seconds(ClockId::ThreadCPUTime) + 0.05;
            while seconds(ClockId::ThreadCPUTime) < until {}
            tokio::time::sleep(Duration::from_millis(5)).await;
            sampler.facts(Descriptors { needed: 7, limit: 100 })
        });
        assert!(facts.loop_lag_max_ms.unwrap() >= 20.0, "{facts:?}");
        assert!(facts.driver_cpu_s >= 0.05 && facts.driver_cpu_share > 0.0, "{facts:?}");
        assert_eq!((facts.descriptors_needed, facts.descriptors_limit), (7, 100));
    }
}
