//! The tables of a run: modes, sessions, workers, transfer pairs.

use std::borrow::Cow;

use super::table::{Cell, Column, Table};
use crate::base::words::{count, percent, seconds, tokens};
use crate::record::{TransferRecord, WorkerRecord};
use crate::results::{Figure, ModeRow, Percentiles, RunSummary, SessionRow, WorkerRow};

/// A column with what its cells show of a row.
struct Field<R> {
    column: Column,
    cell: fn(&R) -> Cell,
}

impl<R> Field<R> {
    /// A number, shown everywhere.
    const fn new(key: &'static str, title: &'static str, cell: fn(&R) -> Cell) -> Self {
        Field {
            column: Column { title: Cow::Borrowed(title), key: Cow::Borrowed(key), left: false, on_terminal: true },
            cell,
        }
    }

    /// Text: aligned left.
    const fn left(mut self) -> Self {
        self.column.left = true;
        self
    }

    /// Left out on a terminal.
    const fn wide(mut self) -> Self {
        self.column.on_terminal = false;
        self
    }
}

/// Of columns that are percentiles a terminal has those asked for, where the run has a list of its own and any is in it.
fn chosen<R>(mut fields: Vec<Field<R>>, summary: &RunSummary) -> Vec<Field<R>> {
    let asked = summary.latencies.percentiles();
    let is_asked = |field: &Field<R>| match field.column.key.parse() {
        Ok(Figure::Percentile { percentile, .. }) => Some(asked.iter().any(|known| known == percentile)),
        Ok(Figure::Mean(_) | Figure::Run(_)) | Err(_) => None,
    };
    if asked != Percentiles::default() && fields.iter().any(|field| is_asked(field) == Some(true)) {
        for field in &mut fields {
            field.column.on_terminal = is_asked(field).unwrap_or(field.column.on_terminal);
        }
    }
    fields
}

fn build<R: serde::Serialize + Clone>(fields: Vec<Field<R>>, rows: &[R]) -> Table {
    let cells = rows.iter().map(|row| fields.iter().map(|field| (field.cell)(row)).collect()).collect();
    Table::new(fields.into_iter().map(|field| field.column).collect(), cells, &rows)
}

/// One row per execution mode, by falling count.
pub fn modes(summary: &RunSummary) -> Table {
    build(chosen(mode_fields(), summary), &summary.modes)
}

fn mode_fields() -> Vec<Field<ModeRow>> {
    let field = Field::<ModeRow>::new;
    vec![
        field("mode", "mode", |row| Cell::text(row.mode.as_str())).left(),
        field("share", "share", |row| Cell::number(row.share, percent)),
        field("n", "n", |row| Cell::count(row.n)),
        field("p50_ttft_ms", "TTFT p50", |row| Cell::number(row.p50_ttft_ms, seconds)),
        field("p90_ttft_ms", "TTFT p90", |row| Cell::number(row.p90_ttft_ms, seconds)).wide(),
        field("p99_ttft_ms", "TTFT p99", |row| Cell::number(row.p99_ttft_ms, seconds)).wide(),
        field("p50_e2e_ms", "E2E p50", |row| Cell::number(row.p50_e2e_ms, seconds)),
        field("p90_e2e_ms", "E2E p90", |row| Cell::number(row.p90_e2e_ms, seconds)).wide(),
        field("p99_e2e_ms", "E2E p99", |row| Cell::number(row.p99_e2e_ms, seconds)),
        field("mean_kv_transfer_ms", "xfer mean", |row| Cell::number(row.mean_kv_transfer_ms, seconds)),
        field("mean_prefilled_tokens", "prefilled mean", |row| Cell::number(row.mean_prefilled_tokens, tokens)).wide(),
        field("mean_recomputed_tokens", "recomp mean", |row| Cell::number(row.mean_recomputed_tokens, tokens)),
        field("bad_share", "bad", |row| Cell::number(row.bad_share, percent)),
        field("ok", "ok", |row| Cell::count(row.outcomes.ok)).wide(),
        field("truncated", "truncated", |row| Cell::count(row.outcomes.truncated)).wide(),
        field("aborted", "aborted", |row| Cell::count(row.outcomes.aborted)).wide(),
        field("error", "error", |row| Cell::count(row.outcomes.error)).wide(),
        field("timeout", "timeout", |row| Cell::count(row.outcomes.timeout)).wide(),
    ]
}

/// One row per session: the starved first, then by rising direct share, then by arrival.
pub fn sessions(summary: &RunSummary) -> Table {
    let mut rows = summary.sessions.clone();
    let share = |row: &SessionRow| row.direct_share.unwrap_or(f64::MAX);
    rows.sort_by(|a, b| {
        b.starved.cmp(&a.starved).then(share(a).total_cmp(&share(b))).then(a.arrival_rank.cmp(&b.arrival_rank))
    });
    build(chosen(session_fields(), summary), &rows)
}

fn session_fields() -> Vec<Field<SessionRow>> {
    let field = Field::<SessionRow>::new;
    vec![
        field("session_id", "session", |row| Cell::text(&row.session_id)).left(),
        field("starved", "", |row| Cell {
            shown: if row.starved { "starved" } else { "" }.into(),
            raw: row.starved.to_string(),
        })
        .left(),
        field("arrival_rank", "rank", |row| Cell::count(row.arrival_rank.into())),
        field("turns", "turns", |row| Cell::count(row.turns)),
        field("peak_input_tokens", "peak in", |row| Cell::number(Some(row.peak_input_tokens.into()), tokens)),
        field("direct_share", "direct", |row| Cell::number(row.direct_share, percent)),
        field("fallback_share", "fallback", |row| Cell::number(row.fallback_share, percent)),
        field("reseeds", "reseeds", |row| Cell::count(row.reseeds)),
        field("p50_e2e_ms", "E2E p50", |row| Cell::number(row.p50_e2e_ms, seconds)),
        field("p99_e2e_ms", "E2E p99", |row| Cell::number(row.p99_e2e_ms, seconds)),
        field("slot_hold_s", "slot held", |row| {
            let held = Cell::number(row.slot_hold_s, |held| seconds(held * 1e3));
            if row.slot_hold_s == Some(0.0) { Cell { shown: "never".into(), ..held } } else { held }
        }),
        field("main_reason", "main reason", |row| Cell::text(row.main_reason.map_or("", |reason| reason.as_str())))
            .left()
            .wide(),
        field("pinned_worker", "pinned", |row| Cell::text(row.pinned_worker.as_deref().unwrap_or(""))).left().wide(),
        field("workers", "on", |row| Cell::text(row.workers.join(" "))).left(),
        field("pattern", "pattern", |row| Cell { shown: run_lengths(&row.pattern), raw: row.pattern.clone() }).left(),
    ]
}

/// `.SDDDDDR` → `.SD×5R`: runs of four and more are counted.
fn run_lengths(pattern: &str) -> String {
    let letters: Vec<char> = pattern.chars().collect();
    let runs = letters.chunk_by(|a, b| a == b).map(|run| match run.len() {
        n if n < 4 => run.iter().collect(),
        n => format!("{}×{n}", run[0]),
    });
    runs.collect()
}

/// One row per configured worker.
pub fn workers(summary: &RunSummary) -> Table {
    build(chosen(worker_fields(), summary), &summary.workers)
}

fn worker_fields() -> Vec<Field<WorkerRow>> {
    fn account(row: &WorkerRow, of: fn(&WorkerRecord) -> f64, show: fn(f64) -> String) -> Cell {
        Cell::number(row.account.as_ref().map(of), show)
    }
    fn share(row: &WorkerRow, of: fn(&WorkerRecord) -> Option<f64>) -> Cell {
        Cell::number(row.account.as_ref().and_then(of), percent)
    }
    fn whole(value: f64) -> String {
        count(value as u64)
    }
    let field = Field::<WorkerRow>::new;
    vec![
        field("worker", "worker", |row| Cell::text(&row.worker)).left(),
        field("role", "role", |row| Cell::text(&row.role)).left(),
        field("requests", "requests", |row| Cell::count(row.requests)),
        field("over_mean", "×mean", |row| {
            Cell::number(row.over_mean, |ratio| format!("{ratio:.2}{}", if ratio > 1.5 { "!" } else { " " }))
        }),
        field("bad", "bad", |row| Cell::count(row.bad)),
        field("p50_e2e_ms", "E2E p50", |row| Cell::number(row.p50_e2e_ms, seconds)),
        field("p95_e2e_ms", "E2E p95", |row| Cell::number(row.p95_e2e_ms, seconds)).wide(),
        field("p99_e2e_ms", "E2E p99", |row| Cell::number(row.p99_e2e_ms, seconds)).wide(),
        field("prefilled_tokens", "prefilled", |row| account(row, |a| a.prefilled_tokens as f64, tokens)),
        field("cached_tokens", "cached", |row| account(row, |a| a.cached_tokens as f64, tokens)),
        field("output_tokens", "output", |row| account(row, |a| a.output_tokens as f64, tokens)),
        field("usage_mean", "use mean", |row| account(row, |a| a.usage_mean, percent)),
        field("usage_peak", "use peak", |row| account(row, |a| a.usage_peak, percent)),
        field("busy_share", "busy", |row| account(row, |a| a.busy_share, percent)),
        field("link_busy_share", "link", |row| share(row, |a| a.link_busy_share)).wide(),
        field("stalled_by_link_share", "stalled by link", |row| share(row, |a| a.stalled_by_link_share)).wide(),
        field("stalled_by_room_share", "stalled by room", |row| share(row, |a| a.stalled_by_room_share)).wide(),
        field("evicted_tokens", "evicted", |row| account(row, |a| a.evicted_tokens as f64, tokens)),
        field("session_trims", "trims", |row| account(row, |a| a.session_trims as f64, whole)),
        field("transfer_errors", "xfer err", |row| account(row, |a| a.transfer_errors as f64, whole)),
        field("retractions", "retract", |row| account(row, |a| a.retractions as f64, whole)),
        field("sessions_peak", "sessions peak", |row| account(row, |a| a.sessions_peak as f64, whole)).wide(),
        field("queue_peak", "queue peak", |row| account(row, |a| a.queue_peak as f64, whole)),
        field("restarts", "restarts", |row| account(row, |a| a.restarts.into(), whole)).wide(),
    ]
}

/// One row per P→D pair that saw a transfer.
pub fn transfers(summary: &RunSummary) -> Table {
    let field = Field::<TransferRecord>::new;
    let fields = vec![
        field("prefill_worker", "P", |pair| Cell::text(&pair.prefill_worker)).left(),
        field("decode_worker", "D", |pair| Cell::text(&pair.decode_worker)).left(),
        field("transfers", "transfers", |pair| Cell::count(pair.transfers)),
        field("errors", "errors", |pair| Cell::count(pair.errors)),
        field("bytes", "GB", |pair| Cell {
            shown: format!("{:.1}", pair.bytes as f64 / 1e9),
            raw: pair.bytes.to_string(),
        }),
    ];
    build(fields, &summary.transfers.pairs)
}
