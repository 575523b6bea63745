//! What each decode (or colocated) worker held over time: sessions, requests in flight, share of its pool.

use std::collections::BTreeMap;

use super::RunPage;
use super::chart::{Chart, Figure, Grid, short};
use super::columns::Columns;
use super::residency::Held;
use super::tables::plain;
use crate::base::WorkerId;
use crate::base::words::{count, percent, seconds};
use crate::results::RunSummary;

/// One worker in numbers a column.
struct Series {
    sessions: Vec<f64>,
    flight: Vec<f64>,
    /// Share of the pool, per cent; empty where its size is not known.
    usage: Vec<f64>,
}

/// Residency and usage by worker over time; `None` where no request reached one.
pub(super) fn over_time(run: &RunPage) -> Option<Figure> {
    let workers = &run.tally.residency.workers;
    let columns = run.tally.width().max(workers.values().map(|held| held.cells().len()).max()?);
    let pools = pools(run.summary);
    let mut rows: Vec<(&String, Series)> =
        workers.iter().map(|(name, held)| (name, series(held, columns, pools.get(name.as_str()).copied()))).collect();
    rows.sort_by_key(|(name, _)| (name.parse::<WorkerId>().ok(), *name));
    let width_s = run.tally.residency.width_ns() as f64 / 1e9;
    let grid = |name: &str, unit, of: fn(&Series) -> &Vec<f64>| {
        let values = rows.iter().map(|(_, row)| (0..columns).map(|ix| of(row).get(ix).map(|v| short(*v))).collect());
        // The sentence is of all of them.
        Grid { name: name.into(), unit, says: String::new(), values: values.collect(), notes: Vec::new() }
    };
    let has_sessions = rows.iter().any(|(_, row)| row.sessions.iter().any(|n| *n > 0.0));
    let has_usage = rows.iter().any(|(_, row)| !row.usage.is_empty());
    let mut grids = vec![grid("requests in flight, mean", "requests", |row| &row.flight)];
    if has_usage {
        grids.insert(0, grid("pool in use, estimated", "%", |row| &row.usage));
    }
    if has_sessions {
        grids.insert(0, grid("sessions resident", "sessions", |row| &row.sessions));
    }
    Some(Figure {
        id: "chart-workers",
        title: "Residency and use by worker".into(),
        says: words(&rows, has_sessions),
        note: "Counted from the records and events: sessions by their opens, closes and drops, at the end of each column; in \
               flight from send to end, the wait for P included. The pool in use is an estimate: contexts of resident \
               sessions and of other requests in flight, for which a D reserves room; above 100 % when more is under way \
               than fits. The worker table has what the workers themselves measured."
            .into(),
        legend: Vec::new(),
        table: table(&rows),
        chart: Some(Chart::Heat {
            x_name: "time of the run".into(),
            x: (0..columns).map(|ix| time(ix as f64 * width_s, width_s)).collect(),
            width_s: Some(width_s),
            y_name: "worker".into(),
            y: rows.iter().map(|(name, _)| (*name).clone()).collect(),
            grids,
        }),
    })
}

/// A time on the axis, no finer than the columns are.
fn time(at_s: f64, width_s: f64) -> String {
    if width_s >= 1.0 { format!("{} s", count(at_s as u64)) } else { seconds(at_s * 1e3) }
}

/// Pool of each worker, tokens: by its own word, else that of the scenario.
fn pools(summary: &RunSummary) -> BTreeMap<&str, u64> {
    let configured = summary.run.slots.as_ref().map(|slots| slots.kv_pool_tokens);
    let pool = |row: &crate::results::WorkerRow| row.account.as_ref().map(|own| own.capacity_tokens).or(configured);
    let pools = summary.workers.iter().filter_map(|row| Some((row.worker.as_str(), pool(row)?)));
    pools.filter(|(_, pool)| *pool > 0).collect()
}

fn series(held: &Columns<Held>, columns: usize, pool: Option<u64>) -> Series {
    let width_ns = held.width_ns() as f64;
    let (mut sessions, mut resident) = (0i64, 0i64);
    let mut series = Series { sessions: Vec::new(), flight: Vec::new(), usage: Vec::new() };
    for ix in 0..columns {
        let cell = held.cells().get(ix).copied().unwrap_or_default();
        sessions += cell.sessions;
        resident += cell.resident_tokens;
        series.sessions.push(sessions.max(0) as f64);
        series.flight.push(cell.flight_ns as f64 / width_ns);
        let tokens = resident.max(0) as f64 + cell.passing_token_ns as f64 / width_ns;
        series.usage.extend(pool.map(|pool| tokens / pool as f64 * 100.0));
    }
    series
}

fn words(rows: &[(&String, Series)], has_sessions: bool) -> String {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let by_flight = |a: &&(&String, Series), b: &&(&String, Series)| mean(&a.1.flight).total_cmp(&mean(&b.1.flight));
    let (Some((busiest, most)), Some((idlest, least))) = (rows.iter().max_by(by_flight), rows.iter().min_by(by_flight))
    else {
        return String::new();
    };
    let peak = rows.iter().flat_map(|(_, row)| &row.sessions).copied().fold(0.0, f64::max);
    let held = if has_sessions { format!("; at most {peak:.0} sessions are resident on one") } else { String::new() };
    format!(
        "mean requests in flight run from {:.2} on {idlest} to {:.2} on {busiest}{held}.",
        mean(&least.flight),
        mean(&most.flight)
    )
}

fn table(rows: &[(&String, Series)]) -> super::html::Html {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
    let peak = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let usage = |values: &[f64], of: fn(&[f64]) -> f64| {
        if values.is_empty() { "–".into() } else { percent(of(values) / 100.0) }
    };
    let row = |(name, row): &(&String, Series)| {
        vec![
            (*name).clone(),
            format!("{:.2}", mean(&row.sessions)),
            format!("{:.0}", peak(&row.sessions)),
            format!("{:.2}", mean(&row.flight)),
            format!("{:.1}", peak(&row.flight)),
            usage(&row.usage, |values| values.iter().sum::<f64>() / values.len() as f64),
            usage(&row.usage, |values| values.iter().copied().fold(0.0, f64::max)),
        ]
    };
    let head = [
        "worker",
        "sessions, mean",
        "sessions, peak",
        "in flight, mean",
        "in flight, peak of a column",
        "pool estimated, mean",
        "pool estimated, peak",
    ];
    plain(&head, rows.iter().map(row))
}
