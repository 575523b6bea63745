//! Files that appear whole or not at all: written under a temporary name, synced, then renamed.
//!
//! Invariant: a reader who finds the final name finds a complete file; a file that failed leaves nothing behind.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::cli::folder::jsonl::at_path;
use crate::cli::folder::{Digested, LeftFile};

/// A file under its temporary name; gone when dropped before [`Part::publish`].
#[derive(Debug)]
pub struct Part {
    path: PathBuf,
    part: PathBuf,
    file: File,
}

impl Part {
    /// Begins the file that will be `path`.
    pub fn create(path: PathBuf) -> io::Result<Part> {
        let part = part_of(&path);
        let file = File::create(&part).map_err(|error| at_path(&path, error))?;
        Ok(Part { path, part, file })
    }

    /// Another handle to write through.
    pub fn handle(&self) -> io::Result<File> {
        self.file.try_clone().map_err(|error| self.blame(error))
    }

    /// An error met while writing, with the path it concerns.
    pub fn blame(&self, error: io::Error) -> io::Error {
        at_path(&self.path, error)
    }

    /// Gives the file its name, once its bytes are on the disk.
    pub fn publish(self) -> io::Result<()> {
        self.file.sync_all().and_then(|()| fs::rename(&self.part, &self.path)).map_err(|error| self.blame(error))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Published, it is gone already; half a file would only take room on a disk that may be full.
        let _ = fs::remove_file(&self.part);
    }
}

/// Writes `path` with what `write` writes, and tells what that was.
pub fn write_whole(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<LeftFile> {
    let part = Part::create(path.to_path_buf())?;
    let mut out = BufWriter::new(Digested::new(&part.file));
    write(&mut out).and_then(|()| out.flush()).map_err(|error| part.blame(error))?;
    let left = out.get_ref().left();
    drop(out);
    part.publish().map(|()| left)
}

/// Temporary name beside `path`: `.<file>.part`.
pub fn part_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.part"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_part() {
        let dir = std::env::temp_dir().join(format!("pdreplay-whole-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("summary.json");
        write_whole(&path, |out| out.write_all(b"old")).unwrap();
        let error = write_whole(&path, |out| {
            out.write_all(b"half")?;
            Err(io::Error::other("no space"))
        });
        assert!(error.unwrap_err().to_string().contains("summary.json"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert!(!part_of(&path).exists());
        fs::remove_dir_all(&dir).unwrap();
    }
}
