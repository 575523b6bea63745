//! Charts of a run: paths over time, spread of latencies by path, direct shares of sessions, schedule lag.

use super::RunPage;
use super::chart::{Axis, Chart, Curve, Figure, Mark, Part, mode_color, short};
use super::columns::Columns;
use super::html::Html;
use super::tables::plain;
use crate::base::words::{count, percent, plural, seconds};
use crate::record::ExecutionMode;
use crate::results::render::summary::NO_SESSIONS_ON_D;
use crate::results::{Distribution, Percentile, RunSummary, Verdict};

/// Columns that are drawn as one, since a bar must be wide enough to be seen.
const TOGETHER: usize = 4;
/// Points of a curve.
const STEPS: u64 = 250;
/// Names of the five bins of direct shares.
const BINS: [&str; 5] = ["0–20 %", "20–40 %", "40–60 %", "60–80 %", "80–100 %"];

/// Shares of the modes over time.
pub(super) fn modes_over_time(run: &RunPage) -> Option<Figure> {
    let columns: Vec<[u64; ExecutionMode::ALL.len()]> = run
        .tally
        .modes
        .cells()
        .chunks(TOGETHER)
        .map(|chunk| std::array::from_fn(|mode| chunk.iter().map(|cell| cell[mode]).sum()))
        .collect();
    let width_s = run.tally.modes.width_ns() as f64 / 1e9 * TOGETHER as f64;
    let parts: Vec<(ExecutionMode, Vec<u64>)> = ExecutionMode::ALL
        .iter()
        .enumerate()
        .map(|(ix, mode)| (*mode, columns.iter().map(|cell| cell[ix]).collect::<Vec<u64>>()))
        .filter(|(_, values)| values.iter().any(|n| *n > 0))
        .collect();
    let says = first_and_second_half(&parts)?;
    let totals: Vec<u64> = columns.iter().map(|cell| cell.iter().sum()).collect();
    let rows = columns.iter().enumerate().filter(|(ix, _)| totals[*ix] > 0).map(|(ix, _)| {
        let shares = parts.iter().map(|(_, values)| percent(values[ix] as f64 / totals[ix] as f64));
        [seconds(ix as f64 * width_s * 1e3), count(totals[ix])].into_iter().chain(shares).collect()
    });
    let head: Vec<&str> =
        ["from", "requests sent"].into_iter().chain(parts.iter().map(|(mode, _)| mode.as_str())).collect();
    let table = plain(&head, rows);
    let part = |(mode, values): &(ExecutionMode, Vec<u64>)| Part {
        name: mode.to_string(),
        color: mode_color(*mode).into(),
        values: values.clone(),
    };
    let series = parts.iter().map(part).collect();
    Some(Figure {
        id: "chart-modes",
        title: "Paths over time".into(),
        says,
        note: format!("Share of the requests sent in each interval of {}, by execution mode.", seconds(width_s * 1e3)),
        legend: parts.iter().map(|(mode, _)| (mode.to_string(), mode_color(*mode).into())).collect(),
        chart: Some(Chart::Stacked { width_s, series, totals }),
        table,
    })
}

/// The mode whose share moved most between the halves of the run.
fn first_and_second_half(parts: &[(ExecutionMode, Vec<u64>)]) -> Option<String> {
    let all: u64 = parts.iter().flat_map(|(_, values)| values).sum();
    let (top, of_top) =
        parts.iter().map(|(mode, values)| (mode, values.iter().sum::<u64>())).max_by_key(|(_, n)| *n)?;
    if all == 0 {
        return None;
    }
    let middle = parts[0].1.len() / 2;
    let halves =
        |values: &[u64]| (values[..middle].iter().sum::<u64>() as f64, values[middle..].iter().sum::<u64>() as f64);
    let totals = parts.iter().map(|(_, values)| halves(values)).fold((0.0, 0.0), |a, b| (a.0 + b.0, a.1 + b.1));
    let mut says = format!("{top} carries {} of {} sent", percent(of_top as f64 / all as f64), plural(all, "request"));
    if totals.0 > 0.0 && totals.1 > 0.0 {
        let shares =
            parts.iter().map(|(mode, values)| (mode, halves(values).0 / totals.0, halves(values).1 / totals.1));
        let moved = shares.max_by(|a, b| (a.1 - a.2).abs().total_cmp(&(b.1 - b.2).abs()));
        if let Some((mode, before, after)) = moved.filter(|(_, a, b)| (a - b).abs() >= 0.01) {
            says += &format!(
                "; from the first half of the run to the second, {mode} goes from {} to {}",
                percent(before),
                percent(after)
            );
        }
    }
    Some(says + ".")
}

/// Cumulative distributions of TTFT and E2E by mode.
pub(super) fn latencies(run: &RunPage) -> [Figure; 2] {
    let caution = match run.summary.integrity.verdict {
        Verdict::Valid => "",
        Verdict::Partial => " The run is partial: these are the requests that were done.",
        Verdict::Withheld | Verdict::Invalid => {
            " The headline is withheld; these are the ok requests alone, and may mislead."
        }
    };
    [("chart-ttft", "TTFT", 0), ("chart-e2e", "E2E", 1)].map(|(id, name, ix)| {
        let modes: Vec<(ExecutionMode, &Distribution)> =
            run.tally.latencies.iter().map(|(mode, both)| (*mode, &both[ix])).filter(|(_, d)| d.n() > 0).collect();
        Figure {
            id,
            title: format!("{name} by path, cumulative"),
            says: spread_words(name, &modes),
            note: format!("Of ok requests; logarithmic time axis. Scale shows the tail.{caution}"),
            legend: modes.iter().map(|(mode, _)| (mode.to_string(), mode_color(*mode).into())).collect(),
            chart: (!modes.is_empty()).then(|| Chart::Lines {
                x: Axis::log(name, "s"),
                y: Axis::linear("share of requests", "%"),
                series: modes.iter().map(curve).collect(),
                marks: Vec::new(),
                cumulative: true,
            }),
            table: quantiles(name, &modes),
        }
    })
}

fn curve((mode, distribution): &(ExecutionMode, &Distribution)) -> Curve {
    // A logarithmic axis has no zero: what took no time at all is drawn at a tenth of a millisecond.
    let first = distribution.min_ms().map(|ms| (ms, 0.0));
    let points = first.into_iter().chain(distribution.cumulative(STEPS));
    let points = points.map(|(ms, share)| [short(ms.max(0.1) / 1e3), short(share * 100.0)]);
    let dash = if mode.is_fallback() { "dashed" } else { "solid" };
    Curve { name: mode.to_string(), color: mode_color(*mode).into(), dash, points: points.collect() }
}

fn spread_words(name: &str, modes: &[(ExecutionMode, &Distribution)]) -> String {
    let median = |d: &Distribution| d.percentile_ms(Percentile::P50).unwrap_or(0.0);
    let by_median =
        |a: &&(ExecutionMode, &Distribution), b: &&(ExecutionMode, &Distribution)| median(a.1).total_cmp(&median(b.1));
    match (modes.iter().min_by(by_median), modes.iter().max_by(by_median)) {
        (Some((fast, a)), Some((slow, b))) if fast != slow => {
            format!("median {name} runs from {} ({fast}) to {} ({slow}).", seconds(median(a)), seconds(median(b)))
        }
        (Some((mode, d)), _) => format!(
            "{mode}: median {name} {}, p99 {}.",
            seconds(median(d)),
            seconds(d.percentile_ms(Percentile::P99).unwrap_or(0.0))
        ),
        (None, _) => "no request ended ok: there is no curve.".to_owned(),
    }
}

fn quantiles(name: &str, modes: &[(ExecutionMode, &Distribution)]) -> Html {
    let ladder =
        [Percentile::P50, Percentile::P90, Percentile::P95, Percentile::P99, Percentile::P999, Percentile::MAX];
    let rows = modes.iter().map(|(mode, distribution)| {
        let values =
            distribution.percentiles_ms(&ladder, 0).into_iter().map(|ms| ms.map_or_else(|| "–".into(), seconds));
        [mode.to_string(), count(distribution.n())].into_iter().chain(values).collect()
    });
    plain(&[&format!("{name} by path"), "n", "p50", "p90", "p95", "p99", "p99.9", "max"], rows)
}

/// Sessions by direct share.
pub(super) fn direct_shares(summary: &RunSummary) -> Figure {
    let fairness = &summary.fairness;
    let with_share: u64 = fairness.histogram.iter().sum();
    let keeps_sessions = summary.starved_sessions().is_some();
    let says = if !keeps_sessions {
        format!("{NO_SESSIONS_ON_D}.")
    } else if with_share == 0 {
        "no session has a second turn that was sent, so none has a direct share.".to_owned()
    } else {
        let run =
            fairness.direct_share.map_or_else(String::new, |share| format!("; the run's share is {}", percent(share)));
        let low = fairness.histogram[0];
        let have = if low == 1 { "has" } else { "have" };
        format!("{} of {} {have} a direct share below 20 %{run}.", count(low), plural(with_share, "session"))
    };
    let without = if keeps_sessions { fairness.sessions_without_share } else { 0 };
    let rows = BINS
        .iter()
        .filter(|_| keeps_sessions)
        .zip(fairness.histogram)
        .map(|(bin, n)| vec![(*bin).to_owned(), count(n)]);
    let note =
        if without > 0 { format!("{} without a second turn sent.", plural(without, "session")) } else { String::new() };
    Figure {
        id: "chart-direct",
        title: "Sessions by direct share".into(),
        says,
        note,
        legend: Vec::new(),
        chart: (with_share > 0).then(|| Chart::Bars {
            y: Axis::linear("sessions", ""),
            categories: BINS.map(String::from).to_vec(),
            values: fairness.histogram.map(|n| n as f64).to_vec(),
            color: "direct".into(),
            colors: vec!["cap".into()],
        }),
        table: plain(&["direct share", "sessions"], rows),
    }
}

/// Schedule lag over time, in wall time as its budget is.
pub(super) fn schedule_lag(run: &RunPage) -> Figure {
    let integrity = &run.summary.integrity;
    let (budget, speed) = (integrity.max_schedule_lag_p99_ms, run.summary.run.speed);
    let columns = &run.tally.lag;
    let wall_ms = |ns: f64| ns / 1e6 / speed;
    let at_s = |ix: usize| (ix as f64 + 0.5) * columns.width_ns() as f64 / 1e9;
    let seen: Vec<(f64, f64, f64)> = columns
        .cells()
        .iter()
        .enumerate()
        .filter(|(_, lag)| lag.n > 0)
        .map(|(ix, lag)| (at_s(ix), wall_ms(lag.max_ns as f64), wall_ms(lag.sum_ns as f64 / lag.n as f64)))
        .collect();
    let largest = seen.iter().map(|(_, max, _)| *max).fold(0.0, f64::max);
    let is_live = run.summary.harness.is_some();
    let says = match integrity.schedule_lag_p99_ms {
        None => "no request has a schedule lag.".to_owned(),
        Some(_) if largest == 0.0 && !is_live => {
            "0 throughout: in virtual time the harness costs the run nothing.".to_owned()
        }
        Some(p99) => {
            let kept = if p99 > budget { "over" } else { "within" };
            format!(
                "p99 is {p99:.2} ms of wall time, {kept} the budget of {budget} ms; the largest is {largest:.1} ms."
            )
        }
    };
    let curve = |name: &str, color: &str, dash, of: fn(&(f64, f64, f64)) -> f64| Curve {
        name: name.into(),
        color: color.into(),
        dash,
        points: seen.iter().map(|point| [short(point.0), short(of(point))]).collect(),
    };
    let mut marks = vec![Mark { name: format!("budget of the p99, {budget} ms"), at: short(budget) }];
    marks.extend(
        integrity.schedule_lag_p99_ms.map(|p99| Mark { name: format!("p99 of the run, {p99:.2} ms"), at: short(p99) }),
    );
    let rows = thinned(columns).into_iter().map(|(from_s, lag)| {
        let figures = [lag.sum_ns as f64 / lag.n as f64, lag.max_ns as f64].map(|ns| format!("{:.2} ms", wall_ms(ns)));
        [seconds(from_s * 1e3), count(lag.n)].into_iter().chain(figures).collect()
    });
    let table =
        if largest > 0.0 { plain(&["from", "requests sent", "mean lag", "largest lag"], rows) } else { Html::new() };
    Figure {
        id: "chart-lag",
        title: "Schedule lag".into(),
        says,
        note: "How late the harness itself sent, in wall time; its budget is on the p99.".into(),
        legend: vec![("largest of each interval".into(), "k1".into()), ("mean of each interval".into(), "k0".into())],
        chart: (largest > 0.0).then(|| Chart::Lines {
            x: Axis::linear("time of the run", "s"),
            y: Axis::linear("schedule lag, wall time", "ms"),
            series: vec![curve("largest", "k1", "solid", |p| p.1), curve("mean", "k0", "dashed", |p| p.2)],
            marks,
            cumulative: false,
        }),
        table,
    }
}

/// Few enough rows for a table: columns merged by [`TOGETHER`].
fn thinned(columns: &Columns<super::tally::Lag>) -> Vec<(f64, super::tally::Lag)> {
    let mut merged = columns.clone();
    merged.widen(columns.width_ns() * TOGETHER as u64);
    let width_s = merged.width_ns() as f64 / 1e9;
    let rows = merged.cells().iter().enumerate().filter(|(_, lag)| lag.n > 0);
    rows.map(|(ix, lag)| (ix as f64 * width_s, *lag)).collect()
}
