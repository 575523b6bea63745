//! Files that `--html`, `--export`, `--perfetto` and `cluster up --kv-config` write, in one place for all of them.
//!
//! A regular file appears whole or not at all, packed when its name ends in `.gz`. Devices and pipes are written into, a
//! link stays and the file behind it is written. Invariant: nothing is replaced but an earlier output of the same form.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use flate2::{Compression, read::GzDecoder, write::GzEncoder};

use crate::cli::exit::Failure;
use crate::cli::folder::write_whole;
use crate::cli::{stdout, streams_file};

/// Stands for standard output.
const STDOUT: &str = "-";

/// Bytes handed on at a time.
const BUFFER: usize = 256 * 1024;

/// Links followed until it is a circle; as the kernel has it.
const MOST_LINKS: usize = 40;

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `profile_export.jsonl` of AIPerf.
    Aiperf,
    /// The records as a table.
    Csv,
    /// A page.
    Html,
    /// The file of KV streams that `cluster up` writes.
    KvStreams,
    /// A trace for ui.perfetto.dev.
    Perfetto,
    /// The result of `vllm bench serve`.
    Vllm,
}

impl Form {
    /// How every output of this form begins, in any case of letters.
    fn begin(self) -> &'static [u8] {
        match self {
            Form::Aiperf => br#"{"metadata":{"session_num":"#,
            Form::Csv => b"schema_version,run_id,",
            Form::Html => b"<!doctype html>",
            Form::KvStreams => b"{\n  \"streams\": [\n    {\n      \"dialect\": ",
            Form::Perfetto => br#"{"displayTimeUnit":"ms","traceEvents":["#,
            Form::Vllm => br#"{"backend": "pdreplay","#,
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Form::Aiperf => "aiperf export",
            Form::Csv => "csv export",
            Form::Html => "HTML page",
            Form::KvStreams => "file of KV streams that pdreplay wrote",
            Form::Perfetto => "Perfetto export",
            Form::Vllm => "vllm export",
        }
    }

    fn example(self) -> &'static str {
        match self {
            Form::Aiperf => "--export aiperf=profile_export.jsonl",
            Form::Csv => "--export csv=requests.csv",
            Form::Html => "--html run.html",
            Form::KvStreams => "--kv-config streams.json",
            Form::Perfetto => "--perfetto trace.json.gz",
            Form::Vllm => "--export vllm=vllm.json",
        }
    }

    fn is_packed(self, file: &Path) -> bool {
        !matches!(self, Form::Html | Form::KvStreams) && file.extension().is_some_and(|ending| ending == "gz")
    }
}

/// The output goes to stdout.
pub fn is_stdout(file: &Path) -> bool {
    file.as_os_str() == STDOUT
}

/// What was written of it cannot be taken back.
pub fn is_final(file: &Path) -> bool {
    is_stdout(file) || is_special(file)
}

/// Refuses a place for an output before any work is done for it.
pub fn check(file: &Path, form: Form) -> Result<(), Failure> {
    if is_stdout(file) {
        return Ok(());
    }
    let refuse = |cause: String| {
        Err(Failure::input(cause).hint(format!("give the name of another file, such as {}", form.example())))
    };
    let Ok(metadata) = fs::metadata(file) else {
        let place = behind_links(file);
        let parent = place.parent().filter(|parent| !parent.as_os_str().is_empty());
        return match parent.filter(|parent| !parent.is_dir()) {
            Some(parent) => refuse(format!("the folder {} for the {} does not exist", parent.display(), form.noun())),
            None if place.file_name().is_none() => refuse(format!("`{}` names no file", file.display())),
            None => Ok(()),
        };
    };
    if metadata.is_dir() {
        return refuse(format!("{} is a folder", file.display()));
    }
    if metadata.is_file() && metadata.len() > 0 && !is_earlier(file, form) {
        return refuse(format!("{} exists and is no {}, so it is not replaced", file.display(), form.noun()));
    }
    Ok(())
}

/// Where the output lies, however it is written: without links, also in its folders.
pub fn place(file: &Path) -> PathBuf {
    if is_stdout(file) {
        return file.to_path_buf();
    }
    let target = behind_links(file);
    if let Ok(place) = target.canonicalize() {
        return place;
    }
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (parent.canonicalize(), target.file_name()) {
        (Ok(parent), Some(name)) => parent.join(name),
        (_, _) => target,
    }
}

/// Gives `write` the file or stdout.
pub fn write(file: &Path, form: Form, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    if is_stdout(file) {
        return stdout::print_with(write);
    }
    let write = |out: &mut dyn Write| if form.is_packed(file) { pack(out, write) } else { write(out) };
    let written = if is_special(file) {
        write_into(file, write).map_err(|error| io::Error::other(format!("{}: {error}", file.display())))
    } else {
        write_whole(&behind_links(file), write).map(drop)
    };
    written.map_err(|error| Failure::broke(error).hint("choose another file").of_write())
}

/// A failure to write a file beside the run in `folder`, which is there as `how` says, such as `whole`.
pub fn beside(failure: Failure, how: &str, folder: &Path) -> Failure {
    let path = folder.display();
    failure.hint(format!(
        "the run itself is {how}, in {path}/: pdreplay report {path} shows it and writes such files anew"
    ))
}

/// A rename would take the place of a device or a pipe.
fn write_into(file: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let node = File::options().write(true).open(file)?;
    let mut out = BufWriter::with_capacity(BUFFER, node);
    let written = write(&mut out).and_then(|()| out.flush());
    // What is left after an error must not be tried again.
    drop(out.into_parts());
    written
}

fn pack(out: &mut dyn Write, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut packer = BufWriter::with_capacity(BUFFER, GzEncoder::new(out, Compression::default()));
    write(&mut packer)?;
    packer.into_inner().map_err(io::IntoInnerError::into_error)?.finish().map(drop)
}

/// Whether a file is an earlier output of this form.
fn is_earlier(file: &Path, form: Form) -> bool {
    let mut start = vec![0; form.begin().len()];
    let read = File::open(file).and_then(|mut opened| {
        if form.is_packed(file) { GzDecoder::new(opened).read_exact(&mut start) } else { opened.read_exact(&mut start) }
    });
    let begins = read.is_ok() && start.eq_ignore_ascii_case(form.begin());
    // Made by hand it may begin alike, unlike the other forms.
    begins && (form != Form::KvStreams || fs::read(file).is_ok_and(|text| streams_file::is_ours(&text)))
}

fn is_special(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|metadata| !metadata.is_file())
}

/// The file that links lead to, which need not exist.
fn behind_links(file: &Path) -> PathBuf {
    let mut file = file.to_path_buf();
    for _ in 0..MOST_LINKS {
        let Ok(next) = fs::read_link(&file) else { break };
        file = file.parent().unwrap_or(Path::new("")).join(next);
    }
    file
}
