//! Per worker and per P→D pair: load, its spread over workers of a role, and where transfers fail.
//!
//! Invariant: every configured worker has a row, also one that got nothing, and means are taken over all of them.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::distribution::ms;
use super::seen::{Name, Seen};
use super::stats::{binomial_tail, share};
use super::vocabulary::Vocabulary;
use super::{Metric, Percentile, is_failure};
use crate::base::{Role, WorkerId};
use crate::record::{TransferRecord, WorkerRecord};

/// A worker is marked hot above this multiple of its role's mean.
const HOT_OVER_MEAN: f64 = 1.5;
/// Errors of a pair are concentrated when chance explains them with less than this probability …
const CONCENTRATED_BELOW: f64 = 0.01;
/// … and there are at least this many.
const CONCENTRATED_ERRORS: u64 = 3;

/// One row of the worker table.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct WorkerRow {
    /// Name, such as `D3`.
    pub worker: String,
    /// `prefill`, `decode` or `colocated`; `unknown` for a name of another form.
    pub role: String,
    /// Requests it served, by their records.
    pub requests: u64,
    /// Of these, truncated, aborted, failed or timed out.
    pub bad: u64,
    /// `requests` over the mean of its role.
    pub over_mean: Option<f64>,
    /// More than 1.5 times the mean of its role.
    pub hot: bool,
    /// E2E p50 of its ok requests, ms; exact.
    pub p50_e2e_ms: Option<f64>,
    /// E2E p95 of its ok requests, ms; exact.
    pub p95_e2e_ms: Option<f64>,
    /// E2E p99 of its ok requests, ms; exact.
    pub p99_e2e_ms: Option<f64>,
    /// Its own account of the run; null when it is missing (an unfinished run).
    pub account: Option<WorkerRecord>,
}

/// Spread of requests over the workers of one role.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct RoleSpread {
    /// The role.
    pub role: String,
    /// Workers configured.
    pub workers: u64,
    /// Workers that got no request.
    pub idle_workers: u64,
    /// Mean requests per configured worker.
    pub mean_requests: Option<f64>,
    /// Most requests over the mean.
    pub max_over_mean: Option<f64>,
    /// Largest distance of a worker from the mean, as a share of the mean: 0.1 is ± 10 %.
    pub spread: Option<f64>,
}

/// KV transfers by P→D pair.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Transfers {
    /// Transfers begun or waited for.
    pub total: u64,
    /// Those that failed or timed out.
    pub errors: u64,
    /// Every pair that saw a transfer.
    pub pairs: Vec<TransferRecord>,
    /// The pair with improbably many errors, if there is one.
    pub concentrated: Option<Concentration>,
}

/// A pair whose errors chance does not explain.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Concentration {
    /// Prefill worker.
    pub prefill_worker: String,
    /// Decode worker.
    pub decode_worker: String,
    /// Its errors.
    pub errors: u64,
    /// Its transfers.
    pub transfers: u64,
    /// Probability of this many errors or more on some pair if errors fell on pairs by their transfers: exact binomial
    /// tail times the number of pairs, at most 1.
    pub p_value: f64,
}

/// All workers, by the number of their name.
#[derive(Debug, Default)]
pub(super) struct WorkerTallies(Vec<WorkerTally>);

#[derive(Debug, Default)]
struct WorkerTally {
    requests: u64,
    bad: u64,
    e2e_ns: Vec<u64>,
}

impl WorkerTallies {
    pub(super) fn add(&mut self, request: &Seen) {
        for Name { ix, .. } in [request.prefill_worker, request.decode_worker_actual].into_iter().flatten() {
            let ix = ix as usize;
            if self.0.len() <= ix {
                self.0.resize_with(ix + 1, WorkerTally::default);
            }
            let tally = &mut self.0[ix];
            tally.requests += 1;
            tally.bad += u64::from(is_failure(request.outcome));
            if request.outcome.is_ok() {
                tally.e2e_ns.extend(request.ns(Metric::E2e));
            }
        }
    }

    /// Rows of every worker configured, accounted for or seen, by role and number.
    pub(super) fn rows(
        &mut self,
        names: &Vocabulary,
        configured: &[String],
        accounts: &[WorkerRecord],
    ) -> Vec<WorkerRow> {
        let accounts: BTreeMap<&str, &WorkerRecord> = accounts.iter().map(|a| (a.worker.as_str(), a)).collect();
        // One that was only meant for a request has a name and no request.
        let seen = names.list().iter().zip(&self.0).filter(|(_, tally)| tally.requests > 0).map(|(name, _)| name);
        let mut every: Vec<&str> =
            configured.iter().map(String::as_str).chain(accounts.keys().copied()).chain(seen).collect();
        every.sort_by_key(|name| (name.parse::<WorkerId>().ok(), *name));
        every.dedup();
        let mut nothing = WorkerTally::default();
        let row = |name: &str| {
            let tally = names.find(name).and_then(|ix| self.0.get_mut(ix as usize));
            tally.unwrap_or(&mut nothing).row(name, accounts.get(name).copied())
        };
        let mut rows: Vec<WorkerRow> = every.into_iter().map(row).collect();
        let means: BTreeMap<String, f64> =
            spreads(&rows).into_iter().filter_map(|spread| Some((spread.role, spread.mean_requests?))).collect();
        for row in &mut rows {
            let mean = means.get(&row.role).copied().filter(|mean| *mean > 0.0);
            row.over_mean = mean.map(|mean| row.requests as f64 / mean);
            row.hot = row.over_mean.is_some_and(|ratio| ratio > HOT_OVER_MEAN);
        }
        rows
    }
}

impl WorkerTally {
    /// Sorts what it has.
    fn row(&mut self, name: &str, account: Option<&WorkerRecord>) -> WorkerRow {
        self.e2e_ns.sort_unstable();
        let percentile_ms = |percentile: Percentile| percentile.of_sorted(&self.e2e_ns).map(ms);
        WorkerRow {
            worker: name.into(),
            role: account.map_or_else(|| role_of(name).into(), |account| account.role.clone()),
            requests: self.requests,
            bad: self.bad,
            over_mean: None,
            hot: false,
            p50_e2e_ms: percentile_ms(Percentile::P50),
            p95_e2e_ms: percentile_ms(Percentile::P95),
            p99_e2e_ms: percentile_ms(Percentile::P99),
            account: account.cloned(),
        }
    }
}

fn role_of(name: &str) -> &'static str {
    match name.parse::<WorkerId>().map(|worker| worker.role) {
        Ok(Role::Prefill) => "prefill",
        Ok(Role::Decode) => "decode",
        Ok(Role::Colocated) => "colocated",
        Err(_) => "unknown",
    }
}

/// Spread per role, roles in the order of the rows.
pub(super) fn spreads(rows: &[WorkerRow]) -> Vec<RoleSpread> {
    rows.chunk_by(|a, b| a.role == b.role)
        .map(|rows| {
            let workers = rows.len() as u64;
            let mean = share(rows.iter().map(|row| row.requests).sum(), workers);
            let over_mean = |requests: u64| mean.filter(|mean| *mean > 0.0).map(|mean| requests as f64 / mean);
            let distance = |row: &WorkerRow| over_mean(row.requests).map(|ratio| (ratio - 1.0).abs());
            RoleSpread {
                role: rows[0].role.clone(),
                workers,
                idle_workers: rows.iter().filter(|row| row.requests == 0).count() as u64,
                mean_requests: mean,
                max_over_mean: rows.iter().map(|row| row.requests).max().and_then(over_mean),
                spread: rows.iter().filter_map(distance).max_by(f64::total_cmp),
            }
        })
        .collect()
}

/// Whether one of so many workers got far more than the mean, and more than chance gives one of them.
pub(super) fn is_hot(most: u64, all: u64, workers: u64) -> bool {
    let Some(mean) = share(all, workers) else { return false };
    let p_value = binomial_tail(most, all, 1.0 / workers as f64) * workers as f64;
    workers > 1 && most as f64 > HOT_OVER_MEAN * mean && p_value < CONCENTRATED_BELOW
}

/// Sums the pairs and tests whether the errors sit on one of them.
pub(super) fn transfers(pairs: &[TransferRecord]) -> Transfers {
    let total = pairs.iter().map(|pair| pair.transfers).sum();
    let errors = pairs.iter().map(|pair| pair.errors).sum();
    let test = |pair: &TransferRecord| Concentration {
        prefill_worker: pair.prefill_worker.clone(),
        decode_worker: pair.decode_worker.clone(),
        errors: pair.errors,
        transfers: pair.transfers,
        p_value: share(pair.transfers, total)
            .map_or(1.0, |expected| binomial_tail(pair.errors, errors, expected) * pairs.len() as f64)
            .min(1.0),
    };
    let candidates = pairs.iter().filter(|pair| pair.errors >= CONCENTRATED_ERRORS).map(test);
    Transfers {
        total,
        errors,
        pairs: pairs.to_vec(),
        concentrated: candidates
            .min_by(|a, b| a.p_value.total_cmp(&b.p_value))
            .filter(|found| found.p_value < CONCENTRATED_BELOW),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(p: &str, d: &str, transfers: u64, errors: u64) -> TransferRecord {
        TransferRecord { prefill_worker: p.into(), decode_worker: d.into(), transfers, errors, bytes: 0 }
    }

    #[test]
    fn errors_on_one_of_six_pairs_are_concentrated() {
        let mut pairs: Vec<_> = (0..6).map(|d| pair("P0", &format!("D{d}"), 100, 1)).collect();
        assert_eq!(transfers(&pairs).concentrated, None);
        pairs[2].errors = 20;
        let found = transfers(&pairs).concentrated.unwrap();
        assert_eq!((found.decode_worker.as_str(), found.errors), ("D2", 20));
        assert!(found.p_value < 1e-6);
    }

    #[test]
    fn one_failed_transfer_is_no_pattern() {
        let found = transfers(&[pair("P0", "D2", 10, 1), pair("P1", "D2", 10, 0)]);
        assert_eq!((found.total, found.errors, found.concentrated), (20, 1, None));
    }

    #[test]
    fn workers_sort_by_number() {
        let names = ["D10", "D2", "P0", "odd"].map(String::from);
        let rows = WorkerTallies::default().rows(&Vocabulary::default(), &names, &[]);
        let order: Vec<&str> = rows.iter().map(|row| row.worker.as_str()).collect();
        assert_eq!(order, ["odd", "P0", "D2", "D10"]);
    }
}
