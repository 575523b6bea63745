//! Where a written trace goes: stdout or a file, packed by its ending (`.gz`, `.zst`).
//!
//! A file that exists is refused without `--overwrite`, and appears whole or not at all.

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use clap::Args;
use flate2::{Compression, write::GzEncoder};

use crate::cli::exit::Failure;
use crate::cli::folder::write_whole;
use crate::cli::stdout;
use crate::cli::terminal::Terminal;
use crate::trace::{Trace, write_native};

/// Level of zstd: small files at the speed of the disk.
const ZSTD_LEVEL: i32 = 9;

/// Flags of commands that write a trace.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub struct TargetArgs {
    /// File to write; an ending of .gz or .zst packs it. Default: stdout.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Replace the file when it exists.
    #[arg(long, requires = "output")]
    overwrite: bool,
}

impl TargetArgs {
    /// Refuses a file that exists, before any work.
    pub fn check(&self) -> Result<(), Failure> {
        match &self.output {
            Some(path) if path.exists() && !self.overwrite => Err(Failure::input(format!("{} exists", path.display()))
                .hint("give another --output, or --overwrite to replace it")),
            Some(_) | None => Ok(()),
        }
    }

    /// Writes `trace` as native JSONL.
    pub fn write(&self, trace: &Trace, terminal: &Terminal) -> Result<(), Failure> {
        let Some(path) = self.output.as_ref().filter(|path| path.as_os_str() != "-") else {
            return stdout::print_with(|mut out| write_native(trace, &mut out));
        };
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default();
        write_whole(path, |out| write_packed(trace, ending, out))
            .map_err(|error| Failure::broke(error).hint("choose another --output"))?;
        let (requests, sessions) = (trace.turns.len(), trace.sessions.len());
        terminal.messages.note(format!("{}: {requests} requests in {sessions} sessions", path.display()));
        Ok(())
    }
}

fn write_packed(trace: &Trace, ending: &str, mut out: &mut dyn Write) -> io::Result<()> {
    match ending {
        "gz" => {
            let mut packer = BufWriter::new(GzEncoder::new(out, Compression::default()));
            write_native(trace, &mut packer)?;
            packer.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?;
        }
        "zst" => {
            let mut packer = BufWriter::new(zstd::Encoder::new(out, ZSTD_LEVEL)?);
            write_native(trace, &mut packer)?;
            packer.into_inner().map_err(io::IntoInnerError::into_error)?.finish()?;
        }
        _ => write_native(trace, &mut out)?,
    }
    Ok(())
}
