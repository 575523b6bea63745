//! `report --export` and `--perfetto`: a run in the forms of other tools, to files or stdout.
//!
//! Files appear whole or not at all, and replace what had their name, but never a file of the run itself. Invariant: at most
//! one of all outputs is stdout, and then nothing else is printed there.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Args;
use flate2::{Compression, write::GzEncoder};

use crate::cli::exit::Failure;
use crate::cli::folder::{self, write_whole};
use crate::cli::found::FoundRun;
use crate::cli::stdout;
use crate::cli::terminal::Terminal;
use crate::record::LedgerEvent;
use crate::results::RunSummary;
use crate::results::export::{Aiperf, Csv, Exporter, Vllm};
use crate::results::perfetto::Perfetto;

/// Stands for standard output.
const STDOUT: &str = "-";

/// A trace of more requests is more than the page can hold.
const MANY_REQUESTS: usize = 500_000;

/// Bytes handed to a file at a time.
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

/// Forms of other tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Aiperf,
    Csv,
    Vllm,
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
        self.files().any(|file| file == Path::new(STDOUT))
    }

    fn files(&self) -> impl Iterator<Item = &Path> {
        self.exports.iter().map(|export| export.file.as_path()).chain(self.perfetto.as_deref())
    }

    /// Refuses outputs that would lie over each other or over the run, before any work.
    pub fn check(&self, found: &FoundRun) -> Result<(), Failure> {
        if self.is_some() && found.requests.exists() && !found.requests.is_file() {
            return Err(Failure::input(format!("{} can be read once only", found.requests.display()))
                .hint("an export reads the records again: give a file"));
        }
        let mut taken: Vec<&Path> = Vec::new();
        for file in self.files() {
            if taken.contains(&file) {
                return Err(Failure::input(format!("two outputs are to be written to {}", file.display()))
                    .hint("give each a file of its own"));
            }
            taken.push(file);
            let own = file.file_name().and_then(OsStr::to_str).is_some_and(folder::is_own_name);
            if own && is_in(file, &found.folder) || is_same(file, &found.requests) {
                return Err(
                    Failure::input(format!("{} is a file of the run itself", file.display())).hint("give another file")
                );
            }
            if file.is_dir() {
                return Err(Failure::input(format!("{} is a folder", file.display())).hint("give a file in it"));
            }
        }
        Ok(())
    }

    /// Writes all that is asked for.
    pub fn write(&self, found: &FoundRun, summary: &RunSummary, terminal: &Terminal) -> Result<(), Failure> {
        for Export { form, file } in &self.exports {
            let started_at = found.manifest.as_ref().map(|manifest| manifest.started_at.as_str());
            let mut exporter: Box<dyn Exporter> = match form {
                Form::Aiperf => Box::new(Aiperf::default()),
                Form::Csv => Box::new(Csv::default()),
                Form::Vllm => Box::new(Vllm::new(summary, started_at)),
            };
            to(file, |out| export(exporter.as_mut(), found, terminal, out))?;
            if exporter.left_out() > 0 {
                let text = format!("{}: without {} requests that were never sent", file.display(), exporter.left_out());
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
        to(file, |out| trace.write(out).map_err(Stop::Out))
    }
}

/// Why an output was not written.
enum Stop {
    /// It cannot be written.
    Out(io::Error),
    /// The run cannot be read.
    Run(Failure),
}

/// Gives `write` the file, whole or not at all, or stdout.
fn to(file: &Path, write: impl FnOnce(&mut dyn Write) -> Result<(), Stop>) -> Result<(), Failure> {
    let mut unread = None;
    let mut keep = |result: Result<(), Stop>| match result {
        Ok(()) => Ok(()),
        Err(Stop::Out(error)) => Err(error),
        Err(Stop::Run(failure)) => {
            unread = Some(failure);
            Err(io::Error::other("the run cannot be read"))
        }
    };
    let written = if file == Path::new(STDOUT) {
        stdout::print_with(|out| keep(write(out)))
    } else {
        let packs = file.extension().is_some_and(|ending| ending == "gz");
        write_whole(file, |out| if packs { pack(out, |out| keep(write(out))) } else { keep(write(out)) })
            .map_err(|error| Failure::broke(error).hint("choose another file"))
    };
    match unread {
        Some(failure) => Err(failure),
        None => written,
    }
}

fn pack(out: &mut dyn Write, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut packer = BufWriter::with_capacity(BUFFER, GzEncoder::new(out, Compression::default()));
    write(&mut packer)?;
    packer.into_inner().map_err(io::IntoInnerError::into_error)?.finish().map(drop)
}

fn export(exporter: &mut dyn Exporter, found: &FoundRun, terminal: &Terminal, out: &mut dyn Write) -> Result<(), Stop> {
    while let Some(columns) = exporter.next_pass(out).map_err(Stop::Out)? {
        let (mut begun, mut failed) = (false, None);
        // What was written of a table that turns out damaged cannot be taken back.
        let start = || if std::mem::replace(&mut begun, true) { Err(damaged(found)) } else { Ok(()) };
        let read = found.fold_batches(&columns, terminal, start, |(), batch| {
            exporter.batch(batch, out).map_err(|error| {
                failed = Some(error);
                Failure::broke("the output cannot be written")
            })
        });
        match (failed, read) {
            (Some(error), _) => return Err(Stop::Out(error)),
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
    let path = found.folder.join(folder::EVENTS);
    if found.manifest.is_none() || !path.is_file() {
        return Ok(trace);
    }
    let cannot = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let file = File::open(&path).map_err(|error| Failure::input(cannot(&error)))?;
    for (ix, line) in BufReader::with_capacity(BUFFER, file).lines().enumerate() {
        let line = line.map_err(|error| Failure::input(cannot(&error)))?;
        match serde_json::from_str::<LedgerEvent>(&line) {
            Ok(event) => trace.ledger(event),
            // As a killed run leaves its last line; the requests are worth a trace without it.
            Err(error) => {
                let text = format!("line {}: {error}; the events from there on are not in the trace", ix + 1);
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
