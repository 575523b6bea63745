//! `report REPLICAS --goodput`: replicas judged by other objectives, from their records; nothing is run or written.

use std::path::Path;

use super::{FIGURES, Replica, Replicas};
use crate::cli::found::{Asked, FoundRun};
use crate::cli::terminal::Terminal;
use crate::cli::threads::{in_order, processors};
use crate::results::{Figure, Figures, RunState, Slos, bands};

/// What is judged by objectives.
const JUDGED: [Figure; 2] = [Figure::REQUEST_GOODPUT, Figure::SLO_ATTAINMENT];

impl Replicas {
    /// These, in `folder`, with the goodput of each anew. One whose records cannot be read any more has none, which is said and
    /// noted; the other figures stay as they are.
    pub fn judged(mut self, folder: &Path, slos: Slos, terminal: &Terminal) -> Replicas {
        let read = in_order(self.replicas.len(), processors(), |ix| judge(&self.replicas[ix], folder, slos, terminal));
        let mut figures = Vec::new();
        for (replica, found) in self.replicas.iter().zip(read) {
            match found {
                Ok(found) => figures.extend(found),
                Err(cause) => {
                    let note = format!("{}: its goodput is not known: {cause}", replica.folder);
                    terminal.messages.warning(&note);
                    self.notes.push(note);
                }
            }
        }
        self.notes.push(format!("request_goodput, slo_attainment: requests that ended ok within {slos} (ms)"));
        self.bands.retain(|band| !JUDGED.contains(&band.figure));
        self.bands.extend(bands(&JUDGED, figures.iter()));
        self.bands.sort_by_key(|band| FIGURES.iter().position(|figure| *figure == band.figure));
        self
    }
}

/// Figures of a replica; `None` for one that did not run to its end, which is in no band.
fn judge(replica: &Replica, folder: &Path, slos: Slos, terminal: &Terminal) -> Result<Option<Figures>, String> {
    if let Some(why) = replica.found(folder).is_not_it() {
        return Err(why.into());
    }
    let run = FoundRun::open(&folder.join(&replica.folder), terminal).map_err(|failure| failure.to_string())?;
    let asked = Asked { slos: Some(slos), ..Asked::default() };
    let (summary, _) = run.summarise(&asked, terminal).map_err(|failure| failure.to_string())?;
    Ok((summary.run.state != RunState::Interrupted).then(|| Figures::of_summary(&summary)))
}
