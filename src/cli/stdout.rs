//! Data on stdout: whole or not at all, and quiet when the reader has gone.
//!
//! `pdreplay … | head` ends without an error; a full disk behind `> file` is one.
//! Invariant: nothing but results is written here.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
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

/// Whether whoever read it has gone, which only a write would tell otherwise. Never of a file.
pub fn reader_has_gone() -> bool {
    has_gone(&io::stdout())
}

fn has_gone(out: &impl AsFd) -> bool {
    let gone = PollFlags::ERR | PollFlags::HUP;
    let mut asked = [PollFd::new(out, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut asked, Some(&at_once)).is_ok() && asked[0].revents().intersects(gone)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_reader_that_has_gone_is_known_without_a_write() {
        let (reader, writer) = io::pipe().unwrap();
        assert!(!has_gone(&writer));
        drop(reader);
        assert!(has_gone(&writer));
        assert!(!has_gone(&File::options().write(true).open("/dev/null").unwrap()));
    }
}
