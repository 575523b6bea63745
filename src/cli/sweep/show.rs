//! What is printed of a sweep: after it, and by `report` on its folder, also while it is under way.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::base::words::{is_range, plural};
use crate::cli::exit::Failure;
use crate::cli::folder::{CELLS, SWEEP, Sealed, check_name};
use crate::cli::found::parse_json;
use crate::cli::member::{Found, Strays};
use crate::cli::output::json;
use crate::cli::page::{self, PageArgs};
use crate::cli::starving::Starving;
use crate::cli::stdout;
use crate::cli::sweep::folder::{found, take_result};
use crate::cli::terminal::Terminal;
use crate::cli::threads::{in_order, processors};
use crate::results::Figure;
use crate::results::page::sweep_page;
use crate::results::render::{
    Format, KNEE, PREDICTED_RANGE, Style, fitted_groups, in_slo, knees, noted, sweep_cells, sweep_groups, visible,
};
use crate::results::sweep::{CellState, SWEEP_VERSION, SweepCell, SweepGroup, SweepReport, VIRTUAL_TIME};

/// A sweep as it lies on the disk.
#[derive(Debug)]
pub struct FoundSweep {
    /// What its file says, and what is wrong with that among the notes.
    pub report: SweepReport,
    /// Why the file is not to be trusted, in words.
    pub broken: Option<String>,
}

/// The sweep at `path`, its folder or its `sweep.json`; `None` when there is none. Cells that ended since the file was written
/// are taken in; says when the file was changed, and which cells are not those it lists.
///
/// # Errors
/// When the file is none of ours, or lists what is no cell in its folder.
pub fn read_sweep(path: &Path, terminal: &Terminal) -> Result<Option<FoundSweep>, Failure> {
    let file = if path.is_dir() { path.join(SWEEP) } else { path.to_path_buf() };
    if file.file_name().is_none_or(|name| name != SWEEP) || !file.is_file() {
        return Ok(None);
    }
    let (mut report, broken): (SweepReport, _) = parse_json(&file, SWEEP_VERSION)?;
    if let Some(fault) = misplaced(&report.cells) {
        return Err(Failure::input(format!("{}: {fault}: changed after it was written", file.display()))
            .hint("the command of the sweep writes it anew from the cells that are there"));
    }
    let folder = file.parent().unwrap_or(Path::new(""));
    let is_live = report.sweep.target != VIRTUAL_TIME;
    let strays = strays(&report.cells, folder, is_live);
    let mut changed = false;
    for cell in report.cells.iter_mut().filter(|cell| cell.state == CellState::Missing) {
        changed |= found(folder, cell, is_live) == Found::Done && take_result(folder, cell);
    }
    let mut report = if changed { SweepReport::new(report.sweep, report.cells) } else { report };
    report.notes = broken.iter().cloned().chain(strays.notes(&file, "their rows")).collect();
    report.notes.iter().for_each(|note| terminal.messages.warning(note));
    Ok(Some(FoundSweep { report, broken }))
}

/// The cells that ended, by the file of the sweep, and are not in their folders as they ended.
fn strays(cells: &[SweepCell], folder: &Path, is_live: bool) -> Strays {
    let done: Vec<&SweepCell> = cells.iter().filter(|cell| cell.state == CellState::Done).collect();
    let mut strays = Strays::default();
    let found = in_order(done.len(), processors(), |ix| found(folder, done[ix], is_live));
    done.iter().zip(found).for_each(|(cell, found)| strays.add(&cell.folder, found));
    strays
}

/// Which cell is not in a folder of its own among the cells, in words.
fn misplaced(cells: &[SweepCell]) -> Option<String> {
    let mut seen = BTreeSet::new();
    cells.iter().enumerate().find_map(|(ix, SweepCell { folder, .. })| {
        let name = folder.strip_prefix(CELLS).and_then(|rest| rest.strip_prefix('/'));
        if name.is_none_or(|name| check_name(name).is_err()) {
            return Some(format!("cells[{ix}].folder is `{folder}`, but cells are in {CELLS}/NAME"));
        }
        (!seen.insert(folder)).then(|| format!("cells[{ix}].folder is `{folder}`, which is listed before"))
    })
}

/// How a sweep came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// All cells that were asked for came to an end; a filter may have left out others.
    Asked,
    /// By a signal.
    Interrupted,
    /// Not known: it is looked at from outside, and may be under way.
    Unknown,
}

/// Axes along which another load or another trace is sent.
const LOAD: [&str; 4] = ["time_scale", "arrival_scale", "think_scale", "scenario"];

/// Writes the page, and prints the table where there is none or a format was asked for; says what is missing, where the files are and what to do next.
pub fn show(
    report: &SweepReport,
    folder: &Path,
    page: &PageArgs,
    asked: Option<Format>,
    ended: Ended,
    terminal: &Terminal,
) -> Result<(), Failure> {
    let write = |target: &PathBuf| page::write(target, &sweep_page(report), terminal);
    let written = page.html.as_ref().map_or(Ok(()), write);
    if page.leaves_stdout_after(asked.is_some(), &written) {
        print(report, asked.unwrap_or_default(), terminal)?;
    }
    tell(report, folder, ended, terminal);
    let path = folder.display();
    written.map_err(|failure| {
        failure.hint(format!("the sweep is as it is in {path}/: pdreplay report {path} --html FILE"))
    })
}

fn print(report: &SweepReport, format: Format, terminal: &Terminal) -> Result<(), Failure> {
    let style = terminal.table_style();
    terminal.messages.settle();
    let text = match format {
        Format::Json => json(&Sealed::new(report).map_err(Failure::broke)?),
        Format::Csv => sweep_groups(report).render(format, style),
        Format::Markdown => {
            let words = in_slo(report).map_or_else(String::new, |words| format!("\n{words}\n"));
            sweep_groups(report).as_on_terminal().render(format, style) + &words
        }
        Format::Table => {
            let mut text = format!("{}\n\n", visible(&headline(report)));
            let (table, without) = fitted_groups(report, style.width);
            text += &table.render(format, Style { width: usize::MAX, ..style });
            if !without.is_empty() {
                let without = without.join(", ");
                text +=
                    &format!("left out, as the terminal is narrow: {without}; --format csv or --html FILE has them\n");
            }
            in_slo(report).iter().for_each(|words| text += &format!("{words}\n"));
            let is_range = |(low, high)| is_range(low, high);
            if report.groups.iter().filter_map(SweepGroup::predicted).any(is_range) {
                text += &format!("{PREDICTED_RANGE}\n");
            }
            if report.knees.iter().any(|knee| knee.knee.is_some()) {
                text += &format!("\n{KNEE}\n{}", knees(report).render(format, style));
            } else if !report.knees.is_empty() {
                text += &format!("\nno knee: {}\n", why_no_knee(report));
            }
            let is_broken = |cell: &SweepCell| matches!(cell.state, CellState::Failed | CellState::Refused);
            if report.cells.iter().any(is_broken) {
                text +=
                    &format!("\n{}", sweep_cells(report, CellState::Missing.as_str(), is_broken).render(format, style));
            }
            text
        }
    };
    stdout::print(&noted(&report.notes, format, text))
}

/// `caps · 240 cells: 48 points × 5 seeds · v3-1p7d · swe-bench-52 · virtual time`.
fn headline(report: &SweepReport) -> String {
    let sweep = &report.sweep;
    let (points, seeds) = (report.groups.len() as u64, sweep.seeds.len() as u64);
    let cells = plural(report.counts.planned.into(), "cell");
    let cells = if seeds > 1 { format!("{cells}: {} × {seeds} seeds", plural(points, "point")) } else { cells };
    let fixed: Vec<String> = sweep
        .axes
        .iter()
        .filter(|axis| axis.values.len() == 1)
        .map(|axis| format!("{} {}", axis.label, axis.values[0].label))
        .collect();
    let parts = [sweep.name.clone(), cells, sweep.scenario.clone(), sweep.trace.clone(), sweep.target.clone()];
    parts.into_iter().chain(fixed).collect::<Vec<_>>().join(" · ")
}

/// The reasons, each once, with the figures they hold for.
fn why_no_knee(report: &SweepReport) -> String {
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    for knee in &report.knees {
        match reasons.iter_mut().find(|(reason, _)| *reason == knee.reason) {
            Some((_, count)) => *count += 1,
            None => reasons.push((&knee.reason, 1)),
        }
    }
    let words: Vec<String> =
        reasons.iter().map(|(reason, count)| format!("{reason} ({})", plural(*count as u64, "curve"))).collect();
    words.join("; ")
}

/// Where sessions starve among the cells of a sweep in `folder` that `is_meant` takes.
pub fn starving(report: &SweepReport, folder: &Path, is_meant: impl Fn(&SweepCell) -> bool) -> Starving {
    let judged = report.cells.iter().filter(|cell| is_meant(cell)).filter_map(|cell| {
        let starved = cell.result.as_ref()?.figures.get(Figure::STARVED_SESSIONS);
        Some((starved.map(|n| n as u64), folder.join(&cell.folder).display().to_string()))
    });
    Starving::in_each("cell", judged)
}

/// What to do about cells that have not run to their end.
fn how_on(ended: Ended) -> [&'static str; 2] {
    match ended {
        Ended::Asked => ["", "the same command without --filter runs them"],
        Ended::Interrupted => ["interrupted: ", "the same command goes on with them"],
        Ended::Unknown => ["", "the command of the sweep goes on with them, without the --filter if it had one"],
    }
}

fn tell(report: &SweepReport, folder: &Path, ended: Ended, terminal: &Terminal) {
    let (counts, path) = (&report.counts, folder.display());
    if let Some(what) = &report.sweep.between_cells {
        terminal.messages.note(what);
    }
    if counts.missing > 0 {
        let [why, how] = how_on(ended);
        let (missing, planned) = (counts.missing, counts.planned);
        terminal.messages.warning(format!("{why}{missing} of {planned} cells have not run to their end: {how}"));
    }
    if counts.without_headline > 0 {
        let is_withheld = |group: &&SweepGroup| group.counts.without_headline > 0;
        let reason = report.groups.iter().filter(is_withheld).find_map(|group| group.reason.as_deref());
        let text = format!(
            "{} of {} cells have no headline, so their points show no latencies: {}",
            counts.without_headline,
            counts.planned,
            reason.unwrap_or_default()
        );
        terminal.messages.warning(text);
    }
    terminal.messages.note(format!("files: {path}/  (sweep.json, sweep.parquet, a run folder a cell in cells/)"));
    let (worst, best) = extremes(report, folder);
    if let Some(worst) = worst {
        let cell = format!("{path}/{}", worst.folder);
        terminal.messages.note(format!("look into one: pdreplay report {cell} --sessions"));
        if let Some(best) = best.filter(|best| best.number != worst.number) {
            terminal.messages.note(format!("compare two: pdreplay diff {cell} {path}/{}", best.folder));
        }
    }
}

/// The first cell that is there to be read.
pub fn first_cell<'r>(report: &'r SweepReport, folder: &Path) -> Option<&'r SweepCell> {
    report.cells.iter().find(|cell| is_there(report, cell, folder))
}

/// The cell ended, and is in its folder as it ended.
fn is_there(report: &SweepReport, cell: &SweepCell, folder: &Path) -> bool {
    cell.state == CellState::Done && found(folder, cell, report.sweep.target != VIRTUAL_TIME) == Found::Done
}

/// The first cells of the points with the longest and the shortest p99 of E2E that may be read; without those, any that is
/// done. Of those that are there.
fn extremes<'r>(report: &'r SweepReport, folder: &Path) -> (Option<&'r SweepCell>, Option<&'r SweepCell>) {
    let of = |group: &SweepGroup| Some((group.shown(Figure::P99_E2E)?.mean, group.at.clone()));
    let mut points: Vec<(f64, Vec<u32>)> = report.groups.iter().filter_map(of).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let first = |at: &Vec<u32>| {
        let mut cells = report.cells.iter().filter(|cell| cell.at == *at);
        cells.find(|cell| is_there(report, cell, folder))
    };
    // A comparison is refused where the load or the requests differ.
    let alike = |at: &Vec<u32>, other: &Vec<u32>| {
        let axes = report.sweep.axes.iter().enumerate();
        let is_load = |key: &str| LOAD.iter().any(|load| key == *load || key.ends_with(&format!(".{load}")));
        axes.filter(|(_, axis)| is_load(&axis.key) || axis.key.starts_with("trace."))
            .all(|(ix, _)| at.get(ix) == other.get(ix))
    };
    match points.iter().rev().find_map(|(_, at)| first(at)) {
        Some(worst) => {
            let best = points.iter().filter(|(_, at)| alike(at, &worst.at)).find_map(|(_, at)| first(at));
            (Some(worst), best)
        }
        None => (first_cell(report, folder), None),
    }
}
