//! `report SWEEP --goodput`: the cells of a sweep judged by other objectives, from their records; nothing is run or written.

use std::path::Path;

use crate::cli::found::{Asked, FoundRun};
use crate::cli::member::ANOTHER_RUN;
use crate::cli::sweep::folder::found;
use crate::cli::terminal::Terminal;
use crate::cli::threads::{in_order, processors};
use crate::results::Slos;
use crate::results::sweep::{CellResult, CellState, SweepCell, SweepReport, VIRTUAL_TIME};

/// The sweep in `folder` with the goodput of each cell anew. One whose records cannot be read any more has none, which is said
/// and noted.
pub fn judged(report: SweepReport, folder: &Path, slos: Slos, terminal: &Terminal) -> SweepReport {
    let SweepReport { sweep, mut cells, mut notes, .. } = report;
    let is_live = sweep.target != VIRTUAL_TIME;
    let results = in_order(cells.len(), processors(), |ix| {
        let is_done = cells[ix].state == CellState::Done;
        is_done.then(|| judge(&cells[ix], folder, slos, is_live, terminal))
    });
    for (cell, result) in cells.iter_mut().zip(results) {
        match result {
            None => {}
            Some(Ok((result, said))) => {
                cell.result = Some(result);
                notes.extend(said);
            }
            Some(Err(cause)) => {
                let note = format!("{}: its goodput is not known: {cause}", cell.folder);
                terminal.messages.warning(&note);
                notes.push(note);
                cell.result.iter_mut().for_each(|result| result.figures.forget_goodput());
            }
        }
    }
    SweepReport { notes, ..SweepReport::new(sweep, cells) }
}

/// Its result, and what is wrong with its files.
fn judge(
    cell: &SweepCell,
    folder: &Path,
    slos: Slos,
    is_live: bool,
    terminal: &Terminal,
) -> Result<(CellResult, Vec<String>), String> {
    if let Some(why) = found(folder, cell, is_live).is_not_it() {
        return Err(why.into());
    }
    let path = folder.join(&cell.folder);
    let run = FoundRun::open(&path, terminal).map_err(|failure| failure.to_string())?;
    if run.manifest.as_ref().map(|manifest| &manifest.run_id) != cell.run_id.as_ref() {
        return Err(ANOTHER_RUN.into());
    }
    let asked = Asked { slos: Some(slos), ..Asked::default() };
    let (summary, _) = run.summarise(&asked, terminal).map_err(|failure| failure.to_string())?;
    let json = serde_json::to_value(&summary).map_err(|error| error.to_string())?;
    let result = CellResult::of(&json).ok_or("its summary has no verdict")?;
    Ok((result, run.said()))
}
