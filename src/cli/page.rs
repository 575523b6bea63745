//! `--html FILE`: reads what a page needs beyond the summary, and writes pages.
//!
//! Invariant: [`outfile`] writes every page.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::base::words::count;
use crate::cli::exit::Failure;
use crate::cli::found::{Asked, Beside, FoundRun};
use crate::cli::ledger;
use crate::cli::outfile::{self, Form};
use crate::cli::replicas::Replicas;
use crate::cli::stdout;
use crate::cli::terminal::Terminal;
use crate::results::RunSummary;
use crate::results::page::{PageTally, RunPage, replicas_page, run_page};
use crate::results::render::Table;

/// Where a page goes.
#[derive(Debug, Clone, Args)]
pub struct PageArgs {
    /// Write one self-contained HTML page with charts and tables to FILE in place of what is printed; `-` for stdout. It
    /// needs no network. With --format or --json both come out.
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub html: Option<PathBuf>,
}

impl PageArgs {
    /// Refuses a place for a page before any work is done for it, and stdout for both the page and what is printed.
    pub fn check(&self, prints: bool) -> Result<(), Failure> {
        let Some(target) = &self.html else { return Ok(()) };
        if prints && outfile::is_stdout(target) {
            return Err(Failure::input(
                "both the page and what --format or --json prints are to go to standard output",
            )
            .hint("give the page a file, such as --html run.html"));
        }
        outfile::check(target, Form::Html)
    }

    /// Something is printed: there is no page, or its format was asked for.
    pub fn leaves_stdout(&self, prints: bool) -> bool {
        self.html.is_none() || prints
    }

    /// The same when the files are written or could not be: then what they would have held is printed in their place.
    pub fn leaves_stdout_after(&self, prints: bool, written: &Result<(), Failure>) -> bool {
        let takes_stdout = self.html.as_deref().is_some_and(outfile::is_stdout);
        self.leaves_stdout(prints) || written.is_err() && !takes_stdout
    }
}

/// Writes a page, and says where it is and how large.
pub fn write(target: &Path, page: &str, terminal: &Terminal) -> Result<(), Failure> {
    if outfile::is_stdout(target) {
        return stdout::print(page);
    }
    outfile::write(target, Form::Html, |out| out.write_all(page.as_bytes()))?;
    terminal.messages.note(format!("page {} ({} KB)", target.display(), count((page.len() as u64).div_ceil(1000))));
    Ok(())
}

/// The page of a run, and its summary.
pub fn of_run(found: &FoundRun, asked: &Asked, terminal: &Terminal) -> Result<(String, RunSummary), Failure> {
    let mut gaps = Vec::new();
    let path = found.events(terminal);
    let counted = match found.manifest.is_some().then(|| ledger::count(&path)) {
        Some(Ok(ledger)) => {
            ledger.cut_off.iter().for_each(|cut_off| found.say(cut_off, terminal));
            Some(ledger.table)
        }
        Some(Err(failure)) => {
            terminal.messages.warning(&failure);
            gaps.push(format!("{failure}; sessions that left a worker are not known"));
            None
        }
        None => {
            gaps.push(
                "made from a file of records alone: events, and sessions that left a worker, are not known".into(),
            );
            None
        }
    };
    let events = || counted.as_ref().and_then(|_| ledger::each(&path)).into_iter().flatten();
    let start = || PageTally::new(events());
    let beside = Beside { columns: &PageTally::columns(), start: &start, add: PageTally::push_batch };
    let (summary, _, tally) = found.summarise_beside(asked, &beside, terminal)?;
    let manifest = found.manifest.as_ref();
    let name = manifest.map_or_else(|| found.requests.display().to_string(), |manifest| manifest.name.clone());
    let wall_s = manifest.and_then(|manifest| manifest.wall_seconds);
    let page =
        run_page(RunPage { name: &name, summary: &summary, tally, events: counted.as_ref(), gaps: &gaps, wall_s });
    Ok((page, summary))
}

/// The page of a folder of replicas.
pub fn of_replicas(run: &Path, replicas: &Replicas) -> String {
    let row = |replica: &crate::cli::replicas::Replica| {
        vec![replica.folder.clone(), replica.seed.to_string(), replica.exit_code.to_string()]
    };
    let table = Table::plain(&["folder", "seed", "exit_code"], replicas.replicas.iter().map(row).collect());
    let failed = replicas.replicas.iter().filter(|replica| replica.exit_code != 0).count() as u64;
    let failed = (failed > 0).then(|| {
        format!(
            "{failed} of {} replicas ended with an exit code other than 0: a broken budget or an interruption",
            replicas.replicas.len()
        )
    });
    let notes: Vec<String> = replicas.notes.iter().cloned().chain(replicas.shortfall()).chain(failed).collect();
    let folder = if run.is_dir() { run } else { run.parent().unwrap_or(run) };
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_path_buf());
    let name = folder.file_name().map_or_else(|| "replicas".into(), |name| name.to_string_lossy().into_owned());
    replicas_page(&name, &replicas.bands, &table, &notes)
}
