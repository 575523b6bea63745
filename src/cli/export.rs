//! `report --export` and `--perfetto`: a run in the forms of other tools, to files or stdout.
//!
//! [`outfile`] writes them. Invariant: at most one of all outputs is stdout, and then nothing else is printed there; none
//! lies over another or over a file of the run.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;

use crate::base::from_json;
use crate::cli::exit::Failure;
use crate::cli::folder;
use crate::cli::found::FoundRun;
use crate::cli::outfile::{self, Form};
use crate::cli::terminal::Terminal;
use crate::record::LedgerEvent;
use crate::results::RunSummary;
use crate::results::export::{Aiperf, Csv, Exporter, Vllm};
use crate::results::perfetto::Perfetto;

/// A trace of more requests is more than the page can hold.
const MANY_REQUESTS: usize = 500_000;

/// Bytes read from a file at a time.
const BUFFER: usize = 256 * 1024;

/// Flags of other forms.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Other forms (beside the table)")]
pub struct ExportArgs {
    /// Writes the requests as `csv`, as `aiperf` (profile_export.jsonl) or as `vllm` (bench serve --save-detailed); `-` is stdout.
    #[arg(long = "export", value_name = "FORMAT=FILE")]
    exports: Vec<Export>,
    /// Writes a trace for ui.perfetto.dev: sessions, workers and links, a span for each phase; `.gz` packs it.
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
}

/// A form and where it goes.
#[derive(Debug, Clone)]
struct Export {
    form: Form,
    file: PathBuf,
}

impl FromStr for Export {
    type Err = String;

    fn from_str(text: &str) -> Result<Export, String> {
        let (form, file) = text.split_once('=').ok_or("write FORMAT=FILE, such as csv=requests.csv")?;
        let form = match form {
            "aiperf" => Form::Aiperf,
            "csv" => Form::Csv,
            "vllm" => Form::Vllm,
            _ => return Err(format!("`{form}` is no form; there are aiperf, csv and vllm")),
        };
        if file.is_empty() {
            return Err("no file is given; write FORMAT=FILE, or FORMAT=- for standard output".into());
        }
        Ok(Export { form, file: file.into() })
    }
}

impl ExportArgs {
    /// Something is asked for.
    pub fn is_some(&self) -> bool {
        !self.exports.is_empty() || self.perfetto.is_some()
    }

    /// Something goes to stdout, so that nothing else may.
    pub fn takes_stdout(&self) -> bool {
        self.files().any(|(file, _)| outfile::is_stdout(file))
    }

    fn files(&self) -> impl Iterator<Item = (&Path, Form)> {
        let exports = self.exports.iter().map(|export| (export.file.as_path(), export.form));
        exports.chain(self.perfetto.as_deref().map(|file| (file, Form::Perfetto)))
    }

    /// Refuses outputs, also the `page`, that would lie over each other, over the run or over foreign files, before any work.
    pub fn check(&self, page: Option<&Path>, found: &FoundRun) -> Result<(), Failure> {
        if self.is_some() && found.requests.exists() && !found.requests.is_file() {
            return Err(Failure::input(format!("{} can be read once only", found.requests.display()))
                .hint("an export reads the records again: give a file"));
        }
        for (file, _) in self.files().chain(page.map(|file| (file, Form::Html))) {
            let place = outfile::place(file);
            let own = place.file_name().and_then(OsStr::to_str).is_some_and(folder::is_own_name);
            if own && is_in(&place, &found.folder) || is_same(&place, &found.requests) {
                return Err(
                    Failure::input(format!("{} is a file of the run itself", file.display())).hint("give another file")
                );
            }
        }
        self.check_places(page)
    }

    /// The same of a run that is still to come, but for its own files, which are in a folder of their own.
    pub fn check_places(&self, page: Option<&Path>) -> Result<(), Failure> {
        let mut taken: Vec<PathBuf> = Vec::new();
        for (file, form) in self.files().chain(page.map(|file| (file, Form::Html))) {
            let place = outfile::place(file);
            if taken.contains(&place) {
                return Err(Failure::input(format!("two outputs are to be written to {}", file.display()))
                    .hint("give each a file of its own"));
            }
            outfile::check(file, form)?;
            taken.push(place);
        }
        Ok(())
    }

    /// Writes all that is asked for.
    pub fn write(&self, found: &FoundRun, summary: &RunSummary, terminal: &Terminal) -> Result<(), Failure> {
        for export in &self.exports {
            let left_out = match export.write(found, summary, terminal) {
                // The lines are read from the begin, for a file that begins anew.
                Err(Stop::Damaged) if !outfile::is_final(&export.file) => {
                    export.write(&found.without_table(), summary, terminal)
                }
                written => written,
            };
            let left_out = left_out.map_err(|stop| stop.failure(found))?;
            if left_out > 0 {
                let text = format!("{}: without {left_out} requests that were never sent", export.file.display());
                terminal.messages.note(text);
            }
        }
        let Some(file) = &self.perfetto else { return Ok(()) };
        let trace = perfetto(found, terminal)?;
        if trace.requests() > MANY_REQUESTS {
            terminal.messages.warning(format!(
                "{}: {} requests are more than ui.perfetto.dev may load; its trace_processor_shell can serve them",
                file.display(),
                trace.requests()
            ));
        }
        outfile::write(file, Form::Perfetto, |out| trace.write(out))
    }
}

impl Export {
    /// Writes it; requests that it leaves out.
    fn write(&self, found: &FoundRun, summary: &RunSummary, terminal: &Terminal) -> Result<u64, Stop> {
        let started_at = found.manifest.as_ref().map(|manifest| manifest.started_at.as_str());
        let mut exporter: Box<dyn Exporter> = match self.form {
            Form::Aiperf => Box::new(Aiperf::default()),
            Form::Vllm => Box::new(Vllm::new(summary, started_at)),
            // The last three are never asked for by `--export`.
            Form::Csv | Form::Html | Form::KvStreams | Form::Perfetto => Box::new(Csv::default()),
        };
        let mut stopped = None;
        let written = outfile::write(&self.file, self.form, |out| {
            export(exporter.as_mut(), found, terminal, out).map_err(|stop| match stop {
                Stop::Out(error) => error,
                stop => {
                    stopped = Some(stop);
                    io::Error::other("the run cannot be read")
                }
            })
        });
        match (stopped, written) {
            (Some(stop), _) => Err(stop),
            (None, written) => written.map(|()| exporter.left_out()).map_err(Stop::Run),
        }
    }
}

/// Why an output was not written.
enum Stop {
    /// It cannot be written.
    Out(io::Error),
    /// `requests.parquet` turned out damaged after some of it was written.
    Damaged,
    /// The run cannot be read, or the output not be finished.
    Run(Failure),
}

impl Stop {
    fn failure(self, found: &FoundRun) -> Failure {
        match self {
            Stop::Out(error) => Failure::broke(error),
            Stop::Damaged => damaged(found),
            Stop::Run(failure) => failure,
        }
    }
}

fn export(exporter: &mut dyn Exporter, found: &FoundRun, terminal: &Terminal, out: &mut dyn Write) -> Result<(), Stop> {
    while let Some(columns) = exporter.next_pass(out).map_err(Stop::Out)? {
        let (mut begun, mut is_damaged, mut failed) = (false, false, None);
        let start = || {
            is_damaged = std::mem::replace(&mut begun, true);
            if is_damaged { Err(damaged(found)) } else { Ok(()) }
        };
        let read = found.fold_batches(&columns, terminal, start, |(), batch| {
            exporter.batch(batch, out).map_err(|error| {
                failed = Some(error);
                Failure::broke("the output cannot be written")
            })
        });
        match (failed, read) {
            (Some(error), _) => return Err(Stop::Out(error)),
            (None, Err(_)) if is_damaged => return Err(Stop::Damaged),
            (None, read) => read.map_err(Stop::Run)?,
        }
    }
    Ok(())
}

fn damaged(found: &FoundRun) -> Failure {
    let table = found.folder.join(folder::REQUESTS_PARQUET);
    Failure::input(format!("{} is damaged", table.display()))
        .hint(format!("move it away: then {} is read", found.requests.display()))
}

fn perfetto(found: &FoundRun, terminal: &Terminal) -> Result<Perfetto, Failure> {
    let workers = found.manifest.as_ref().map(|manifest| manifest.info.workers.as_slice()).unwrap_or_default();
    let start = || Ok(Perfetto::new(workers));
    let mut trace = found.fold_batches(Perfetto::columns(), terminal, start, |trace, batch| {
        trace.push(batch);
        Ok(())
    })?;
    let path = found.events(terminal);
    if found.manifest.is_none() || !path.is_file() {
        return Ok(trace);
    }
    let cannot = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = File::open(&path).map_err(|error| Failure::input(cannot(&error)))?;
    for (ix, line) in BufReader::with_capacity(BUFFER, file).lines().enumerate() {
        let line = line.map_err(|error| Failure::input(cannot(&error)))?;
        match from_json::<LedgerEvent>(line.as_bytes()) {
            Ok(event) => trace.ledger(event),
            // As a killed run leaves its last line; the requests are worth a trace without it.
            Err(fault) => {
                let why = fault.in_line();
                let text = format!("line {}: {why}; the events from there on are not in the trace", ix + 1);
                terminal.messages.warning(cannot(&text));
                break;
            }
        }
    }
    Ok(trace)
}

fn is_in(file: &Path, folder: &Path) -> bool {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    is_same(parent, folder)
}

fn is_same(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}
