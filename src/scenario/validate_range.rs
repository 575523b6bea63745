//! The range of every single number of a scenario, so that no sum of them leaves the clock of 64-bit nanoseconds.
//!
//! Rule: lengths and times of the run end at 1e9 s (31 years), costs of one call, message or set-up at 1 h. A length
//! above 0 is at least 1 ns: less would round to 0, which often means "no limit". The bounds are in `docs/scenarios.md`.

use super::error::Problem;
use super::model::Scenario;
use super::validate::problem;

/// Longest length or time of the run, seconds.
pub(super) const LONGEST_S: f64 = 1e9;
/// Longest cost of one call, message, set-up or iteration, milliseconds: 1 h.
pub(super) const HOUR_MS: f64 = 3.6e6;
/// Least and largest slow-down of one fault.
pub(super) const FACTOR: (f64, f64) = (1e-3, 1e4);
const NS_PER_S: f64 = 1e9;

/// What a number may be.
#[derive(Debug, Clone, Copy)]
struct Range {
    least: f64,
    most: f64,
    /// 0 is allowed although `least` is above it.
    zero: bool,
    /// What to know beside the range.
    hint: &'static str,
    inf: bool,
}

const SHARE: Range = Range::new(0.0, 1.0, "");
const SCALE: Range = Range { inf: true, ..Range::new(1e-6, 1e9, "10 is ten times faster, 0.5 half as fast") };
const GBYTES: Range = Range::new(1e-6, 1e9, "GB/s");

impl Range {
    const fn new(least: f64, most: f64, hint: &'static str) -> Range {
        Range { least, most, zero: false, hint, inf: false }
    }

    /// A length of the run, in units of which `per_s` make a second.
    const fn length(per_s: f64, hint: &'static str) -> Range {
        Range::new(per_s / NS_PER_S, LONGEST_S * per_s, hint)
    }

    const fn or_zero(self) -> Range {
        Range { zero: true, ..self }
    }

    fn holds(self, value: f64) -> bool {
        (self.least..=self.most).contains(&value) || (self.zero && value == 0.0) || (self.inf && value == f64::INFINITY)
    }

    fn remedy(self, value: f64) -> String {
        let zero = if self.zero { "0, or " } else { "" };
        let inf = if self.inf { ", or inf" } else { "" };
        let hint = if self.hint.is_empty() { String::new() } else { format!("; {}", self.hint) };
        let percent = self.most == 1.0 && value > 1.0 && value <= 100.0;
        let hint = if percent { "; 90 % is 0.9".into() } else { hint };
        format!("write {zero}a number from {} to {}{inf}{hint}", shown(self.least), shown(self.most))
    }

    fn refuse(self, key: &str, value: f64) -> Option<Problem> {
        (!self.holds(value)).then(|| problem(key, format!("is {}", shown(value)), self.remedy(value)))
    }
}

/// Every number outside its range.
pub(super) fn ranges(scenario: &Scenario, problems: &mut Vec<Problem>) {
    for (key, value, range) in numbers(scenario) {
        problems.extend(range.refuse(key, value));
    }
    let constant = Range::new(0.0, f64::MAX, "ms");
    let timing = &scenario.engine.timing;
    let constants = [timing.p0, timing.p1, timing.p2, timing.d0, timing.d1, timing.d2, timing.d3];
    let not_finite = |value: f64| !(0.0..=f64::MAX).contains(&value);
    for (name, value) in ["p0", "p1", "p2", "d0", "d1", "d2", "d3"].into_iter().zip(constants) {
        if not_finite(value) {
            let cause = format!("is {}", shown(value));
            problems.push(problem(format!("engine.timing.{name}"), cause, "write a finite number, 0 or more, in ms"));
        }
    }
    for (index, (_, ms)) in timing.small_prefill.iter().enumerate() {
        let range = Range { most: HOUR_MS, ..constant };
        problems.extend(range.refuse(&format!("engine.timing.small_prefill[{index}]"), *ms));
    }
    for (key, value, least, most) in counts(scenario) {
        if !(least..=most).contains(&value) {
            let remedy = match (value < least, least) {
                (true, 1) => "write at least 1".to_owned(),
                (true, _) => format!("write at least {least}"),
                (false, _) => format!("write at most {most}"),
            };
            problems.push(problem(key, format!("is {value}"), remedy));
        }
    }
}

/// A time or length of a fault, in seconds.
pub(super) fn seconds(key: &str, value: Option<f64>) -> Option<Problem> {
    Range::length(1.0, "seconds of the run").or_zero().refuse(key, value?)
}

/// A time scale, for [`super::sugar`].
pub(super) fn time_scale(key: &str, value: f64) -> Option<Problem> {
    SCALE.refuse(key, value)
}

/// The slow-down of one fault.
pub(super) fn factor(key: &str, value: Option<f64>) -> Option<Problem> {
    Range::new(FACTOR.0, FACTOR.1, "above 1 is slower").refuse(key, value?)
}

/// A number for people and for TOML: plain, or with an exponent when it would be long.
pub(super) fn shown(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 || !value.is_finite() || (1e-4..1e6).contains(&size) {
        value.to_string()
    } else {
        format!("{value:e}")
    }
}

fn numbers(scenario: &Scenario) -> Vec<(&'static str, f64, Range)> {
    let Scenario { cluster, engine, replay, policy, kv_events, admission, live, integrity, slo, .. } = scenario;
    let unlimited = Range::length(1.0, "0 is no limit").or_zero();
    vec![
        ("cluster.transfer_timeout_s", cluster.transfer_timeout_s, Range::length(1.0, "")),
        ("cluster.link.gbytes_per_s", cluster.link.gbytes_per_s, GBYTES),
        ("engine.ingest_base_ms", engine.ingest_base_ms, Range::new(1e-6, HOUR_MS, "3.6e6 ms is 1 h").or_zero()),
        ("engine.ingest_per_token_us", engine.ingest_per_token_us, Range::new(0.0, 1e6, "1e6 µs is 1 s a token")),
        ("engine.host_store_ms", engine.host_store_ms, Range::new(1e-6, HOUR_MS, "3.6e6 ms is 1 h").or_zero()),
        ("engine.retract_reload_gbytes_per_s", engine.retract_reload_gbytes_per_s, GBYTES),
        ("engine.session_idle_timeout_s", engine.session_idle_timeout_s, Range::length(1.0, "0 is never").or_zero()),
        ("replay.arrival_scale", replay.arrival_scale, SCALE),
        ("replay.think_scale", replay.think_scale, SCALE),
        ("replay.max_gap_s", replay.max_gap_s, unlimited),
        ("replay.arrival_jitter_ms", replay.arrival_jitter_ms, Range::length(1e3, "0 is none").or_zero()),
        ("replay.stall_timeout_s", replay.stall_timeout_s, unlimited),
        ("replay.request_timeout_s", replay.request_timeout_s, unlimited),
        ("replay.service_base_s", replay.service_base_s, Range::length(1.0, "").or_zero()),
        ("replay.service_tokens_per_s", replay.service_tokens_per_s, Range::new(1e-3, 1e9, "")),
        ("policy.kv_aware.hard_cap", policy.kv_aware.hard_cap, SHARE),
        ("policy.cache_aware.cache_threshold", policy.cache_aware.cache_threshold, SHARE),
        (
            "policy.cache_aware.balance_rel_threshold",
            policy.cache_aware.balance_rel_threshold,
            Range::new(1.0, 1e9, ""),
        ),
        ("policy.car.prefill_lambda", policy.car.prefill_lambda, SHARE),
        ("policy.car.host_hit_weight", policy.car.host_hit_weight, SHARE),
        ("policy.car.tie_epsilon", policy.car.tie_epsilon, SHARE),
        ("kv_events.warn_after_s", kv_events.warn_after_s, Range::length(1.0, "seconds of the run")),
        ("admission.usable_share", admission.usable_share, SHARE),
        ("live.connect_timeout_s", live.connect_timeout_s, Range::new(1e-3, 3600.0, "")),
        ("live.first_token_timeout_s", live.first_token_timeout_s, unlimited),
        ("live.control_timeout_s", live.control_timeout_s, Range::new(1e-3, 3600.0, "")),
        ("live.pool_idle_s", live.pool_idle_s, Range::new(1e-3, 3600.0, "").or_zero()),
        ("live.retry_wait_max_s", live.retry_wait_max_s, Range::new(1e-3, 3600.0, "").or_zero()),
        ("live.drain_s", live.drain_s, Range::new(1e-3, 3600.0, "").or_zero()),
        ("live.emulation_speed", live.emulation_speed, Range::new(1e-3, 1e4, "10 is ten times faster")),
        ("integrity.max_bad_share", integrity.max_bad_share, SHARE),
        ("integrity.max_schedule_lag_p99_ms", integrity.max_schedule_lag_p99_ms, Range::length(1e3, "").or_zero()),
        ("integrity.max_harness_pause_ms", integrity.max_harness_pause_ms, Range::length(1e3, "").or_zero()),
        ("slo.ttft_ms", slo.ttft_ms, Range::length(1e3, "0 is no objective").or_zero()),
        ("slo.tpot_ms", slo.tpot_ms, Range::length(1e3, "0 is no objective").or_zero()),
        ("slo.e2e_ms", slo.e2e_ms, Range::length(1e3, "0 is no objective").or_zero()),
    ]
}

fn counts(scenario: &Scenario) -> [(&'static str, u64, u64, u64); 28] {
    const HOUR_US: u64 = 3_600_000_000;
    const LONGEST_MS: u64 = 1_000_000_000_000;
    const POOL: u64 = 1_000_000_000_000;
    const WORKERS: u64 = 1024;
    // The 1,000 replicas there may be count up from it, and must fit into TOML too.
    const SEED: u64 = i64::MAX as u64 - 1000;
    let Scenario { cluster, engine, replay, kv_events, admission, live, .. } = scenario;
    [
        ("seed", scenario.seed, 0, SEED),
        ("cluster.prefill", cluster.prefill.into(), 0, WORKERS),
        ("cluster.decode", cluster.decode.into(), 0, WORKERS),
        ("cluster.colocated", cluster.colocated.into(), 0, WORKERS),
        ("cluster.hop_us", cluster.hop_us, 0, HOUR_US),
        ("cluster.discovery_delay_ms", cluster.discovery_delay_ms, 0, LONGEST_MS),
        ("cluster.link.setup_us", cluster.link.setup_us, 0, HOUR_US),
        ("engine.kv_pool_tokens", engine.kv_pool_tokens, 1, POOL),
        ("engine.page_size", engine.page_size.into(), 1, 1 << 20),
        ("engine.chunk_tokens", engine.chunk_tokens.into(), 1, u32::MAX.into()),
        ("engine.max_running", engine.max_running.into(), 1, 1 << 14),
        ("engine.reserved_decode_tokens", engine.reserved_decode_tokens.into(), 0, 100_000_000),
        ("engine.context_limit_tokens", engine.context_limit_tokens, 0, POOL),
        ("engine.host_pool_tokens", engine.host_pool_tokens, 0, POOL),
        ("engine.admission_cost_us", engine.admission_cost_us, 0, HOUR_US),
        ("engine.kv_bytes_per_token", engine.kv_bytes_per_token, 1, 1_000_000_000),
        ("replay.load_poll_ms", replay.load_poll_ms, 1, LONGEST_MS),
        ("kv_events.block_size", kv_events.block_size.into(), 0, 1 << 20),
        ("kv_events.max_blocks_per_stream", kv_events.max_blocks_per_stream, 1, 1 << 30),
        ("kv_events.resync_interval_ms", kv_events.resync_interval_ms, 0, LONGEST_MS),
        ("kv_events.replay_timeout_ms", kv_events.replay_timeout_ms, 1, 3_600_000),
        ("live.retries", live.retries.into(), 0, 100),
        ("live.retry_backoff_ms", live.retry_backoff_ms, 0, 60_000),
        ("live.health_poll_ms", live.health_poll_ms, 0, LONGEST_MS),
        ("live.body_cache_mib", live.body_cache_mib.into(), 1, 1 << 20),
        ("live.token_id_count", live.token_id_count.into(), 2, 1 << 31),
        ("admission.cap_max", admission.cap_max.into(), 1, u32::MAX.into()),
        ("admission.open_attempts", admission.open_attempts.into(), 1, 1000),
    ]
}
