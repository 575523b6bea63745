//! Skew over workers on either side.

use super::report::{RoleDelta, Sides, WorkerChanges, WorkerDelta};
use crate::results::{RoleSpread, RunSummary, WorkerRow};

/// Of one run of each side.
pub(super) fn changes(a: &RunSummary, b: &RunSummary) -> WorkerChanges {
    let roles = merged(&a.spread, &b.spread, |spread| spread.role.as_str());
    let rows = merged(&a.workers, &b.workers, |row| row.worker.as_str());
    let role = |(of_a, of_b): (Option<&RoleSpread>, Option<&RoleSpread>)| RoleDelta {
        role: of_a.or(of_b).map_or_else(String::new, |spread| spread.role.clone()),
        workers: sides((of_a, of_b), |spread| spread.map_or(0, |spread| spread.workers)),
        idle: sides((of_a, of_b), |spread| spread.map_or(0, |spread| spread.idle_workers)),
        max_over_mean: sides((of_a, of_b), |spread| spread.and_then(|spread| spread.max_over_mean)),
        spread: sides((of_a, of_b), |spread| spread.and_then(|spread| spread.spread)),
        hot: Sides { a: hot(&a.workers, of_a), b: hot(&b.workers, of_b) },
    };
    let worker = |(of_a, of_b): (Option<&WorkerRow>, Option<&WorkerRow>)| WorkerDelta {
        worker: of_a.or(of_b).map_or_else(String::new, |row| row.worker.clone()),
        role: of_a.or(of_b).map_or_else(String::new, |row| row.role.clone()),
        requests: sides((of_a, of_b), |row| row.map(|row| row.requests)),
        over_mean: sides((of_a, of_b), |row| row.and_then(|row| row.over_mean)),
        p99_e2e_a_ms: of_a.and_then(|row| row.p99_e2e_ms),
        p99_e2e_b_ms: of_b.and_then(|row| row.p99_e2e_ms),
        usage_mean: sides((of_a, of_b), |row| row.and_then(|row| row.account.as_ref()).map(|a| a.usage_mean)),
    };
    WorkerChanges { roles: roles.map(role).collect(), rows: rows.map(worker).collect() }
}

fn sides<R, T>((a, b): (Option<&R>, Option<&R>), of: impl Fn(Option<&R>) -> T) -> Sides<T> {
    Sides { a: of(a), b: of(b) }
}

fn hot(rows: &[WorkerRow], spread: Option<&RoleSpread>) -> Vec<String> {
    let of_role = rows.iter().filter(|row| row.hot && spread.is_some_and(|spread| spread.role == row.role));
    of_role.map(|row| row.worker.clone()).collect()
}

/// Rows of the same name side by side, those of A first.
fn merged<'r, R>(
    a: &'r [R],
    b: &'r [R],
    name: impl Fn(&R) -> &str + Copy + 'r,
) -> impl Iterator<Item = (Option<&'r R>, Option<&'r R>)> {
    let of_a = a.iter().map(move |row| (Some(row), b.iter().find(|other| name(other) == name(row))));
    let of_b = b.iter().filter(move |row| !a.iter().any(|other| name(other) == name(row)));
    of_a.chain(of_b.map(|row| (None, Some(row))))
}
