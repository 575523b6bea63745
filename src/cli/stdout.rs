//! Data on stdout: whole or not at all, and quiet when the reader has gone.
//!
//! `pdreplay … | head` ends without an error; a full disk behind `> file` is one.
//! Invariant: nothing but results is written here.

use std::io::{self, BufWriter, ErrorKind, Write};

use serde::Serialize;

use crate::cli::exit::Failure;

/// Prints `text`, with a line feed at its end; nothing when it is empty.
pub fn print(text: &str) -> Result<(), Failure> {
    print_with(|out| {
        out.write_all(text.as_bytes())?;
        if text.is_empty() || text.ends_with('\n') { Ok(()) } else { out.write_all(b"\n") }
    })
}

/// Prints `value` as indented JSON.
pub fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print_with(|out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        out.write_all(b"\n")
    })
}

/// Prints what `write` writes.
pub fn print_with(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    match write(&mut out).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {
            // The reader wanted no more; what is left in the buffer must not be tried again.
            drop(out.into_parts());
            Ok(())
        }
        Err(error) => {
            drop(out.into_parts());
            Err(Failure::broke(format!("cannot write to standard output: {error}")))
        }
    }
}
