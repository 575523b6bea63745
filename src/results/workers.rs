//! Per worker: load, and its spread over workers of a role.
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
use crate::record::WorkerRecord;

/// A worker is marked hot above this multiple of its role's mean.
const HOT_OVER_MEAN: f64 = 1.5;
/// … and chance does it with less than this probability.
const HOT_BELOW: f64 = 0.01;

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
    workers > 1 && most as f64 > HOT_OVER_MEAN * mean && p_value < HOT_BELOW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_sort_by_number() {
        let names = ["D10", "D2", "P0", "odd"].map(String::from);
        let rows = WorkerTallies::default().rows(&Vocabulary::default(), &names, &[]);
        let order: Vec<&str> = rows.iter().map(|row| row.worker.as_str()).collect();
        assert_eq!(order, ["odd", "P0", "D2", "D10"]);
    }
}
