//! How each file of a run was when it ended, kept in `run.json`: one that is missing, cut or changed later shows.
//!
//! Bytes are digested on their way to the file, and again before a file is read. XXH3 is as fast as memory and finds every
//! accident; it is no signature: who forges a file can forge its digest, too.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::{EVENTS, REQUESTS, REQUESTS_PARQUET, RUN, SESSIONS, SUMMARY, WORKERS};

/// Bytes read at a time.
const READ_BYTES: usize = 1 << 20;

/// Every run that ends leaves these beside its `run.json`.
const LEFT: [&str; 6] = [EVENTS, REQUESTS, REQUESTS_PARQUET, SESSIONS, SUMMARY, WORKERS];

/// The files of a run at its end, by name.
pub type LeftFiles = BTreeMap<String, LeftFile>;

/// A file at the end of its run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "Told")]
pub struct LeftFile {
    /// Its size, bytes.
    pub bytes: u64,
    /// XXH3 of its bytes, 128 bits in hex, as `xxhsum -H2` prints it. Runs of earlier versions have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xxh3_128: Option<String>,
}

/// The same as `run.json` tells it: earlier versions kept the size alone.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged, expecting = "its bytes, or an object of `bytes` and `xxh3_128`")]
enum Told {
    Size(u64),
    File {
        bytes: u64,
        #[serde(default)]
        xxh3_128: Option<String>,
    },
}

impl From<Told> for LeftFile {
    fn from(told: Told) -> LeftFile {
        match told {
            Told::Size(bytes) => LeftFile { bytes, xxh3_128: None },
            Told::File { bytes, xxh3_128 } => LeftFile { bytes, xxh3_128 },
        }
    }
}

impl LeftFile {
    /// What became of its bytes, now `content`, in words; `None` when they are the same, or nobody knows.
    pub fn change_of(&self, content: &[u8]) -> Option<String> {
        let then = self.xxh3_128.as_ref()?;
        let now = digest_text(xxh3_128(content));
        (now != *then).then(|| differs(&now, then))
    }

    /// The same of the file at `path`, which is read through. One that has another size, or cannot be read, shows otherwise.
    pub fn change_at(&self, path: &Path) -> Option<String> {
        let then = self.xxh3_128.as_ref()?;
        if fs::metadata(path).ok()?.len() != self.bytes {
            return None;
        }
        let now = digest_of(path).ok()?;
        (now != *then).then(|| differs(&now, then))
    }
}

/// What a run that told `files` told of `name`: all of it, or by an earlier version its size alone, or by one before that
/// nothing. Error: it told the digests of others, so its word on this one was taken away.
pub fn told<'a>(files: &'a LeftFiles, name: &str) -> Result<Option<&'a LeftFile>, String> {
    let file = files.get(name);
    let has_digest = |file: &LeftFile| file.xxh3_128.is_some();
    if !file.is_some_and(has_digest) && files.values().any(has_digest) {
        return Err(format!(
            "{RUN} tells no xxh3_128 of it, as it does of other files: {RUN} was changed after the run"
        ));
    }
    Ok(file)
}

/// What became of the content of the file `name` of `folder`, in words; see [`LeftFile::change_at`] and [`told`].
pub fn change(folder: &Path, files: &LeftFiles, name: &str) -> Option<String> {
    match told(files, name) {
        Ok(then) => then?.change_at(&folder.join(name)),
        Err(untold) => Some(untold),
    }
}

/// What became of the files of `folder` that a run told of, by their sizes: name and a sentence for each that differs, or of
/// which less is told than of the others.
pub fn damage(folder: &Path, files: &LeftFiles) -> Vec<(String, String)> {
    let differs = |name: &str| {
        let path = folder.join(name);
        let text = match (told(files, name), fs::metadata(&path).map(|now| now.len())) {
            (Err(untold), _) => untold,
            (Ok(then), Ok(now)) if then.is_none_or(|then| then.bytes == now) => return None,
            (Ok(then), Ok(now)) => {
                format!("has {now} bytes, not {}: cut or changed after the run", then.map_or(0, |then| then.bytes))
            }
            (Ok(None), Err(_)) => return None,
            (Ok(Some(_)), Err(_)) => "missing".into(),
        };
        Some((name.to_owned(), format!("{}: {text}", path.display())))
    };
    LEFT.into_iter().filter_map(differs).collect()
}

/// Digests what is written through it.
pub struct Digested<W> {
    out: W,
    digest: Box<Xxh3>,
    bytes: u64,
}

impl<W> Digested<W> {
    /// Of what goes to `out`, which is empty.
    pub fn new(out: W) -> Digested<W> {
        Digested { out, digest: Box::new(Xxh3::new()), bytes: 0 }
    }

    /// What was written so far.
    pub fn left(&self) -> LeftFile {
        LeftFile { bytes: self.bytes, xxh3_128: Some(digest_text(self.digest.digest128())) }
    }

    /// Where it is written to.
    pub fn out(&self) -> &W {
        &self.out
    }
}

impl<W: Write> Write for Digested<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.digest.update(&bytes[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl<W> std::fmt::Debug for Digested<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Digested").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// The digest of `content`, in hex.
pub fn digest_text_of(content: &[u8]) -> String {
    digest_text(xxh3_128(content))
}

fn digest_of(path: &Path) -> io::Result<String> {
    let (mut file, mut digest, mut buffer) = (File::open(path)?, Box::new(Xxh3::new()), vec![0; READ_BYTES]);
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(digest_text(digest.digest128())),
            Ok(read) => digest.update(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn digest_text(digest: u128) -> String {
    format!("{digest:032x}")
}

fn differs(now: &str, then: &str) -> String {
    format!("its xxh3_128 is {now}, not {then}: changed after the run")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_the_published_algorithm_however_it_is_written() {
        // XXH128 of the empty input, from the vectors of the xxHash project.
        assert_eq!(
            Digested::new(Vec::<u8>::new()).left().xxh3_128.as_deref(),
            Some("99aa06d3014798d86001c324468d497f")
        );
        let content: Vec<u8> = (0..5000u32).flat_map(u32::to_le_bytes).collect();
        let mut out = Digested::new(Vec::new());
        content.chunks(77).for_each(|part| out.write_all(part).unwrap());
        assert_eq!(out.left(), LeftFile { bytes: 20_000, xxh3_128: Some(digest_text_of(&content)) });
        assert_eq!(out.left().change_of(&content), None);
        assert!(out.left().change_of(&content[1..]).unwrap().contains("changed after the run"));
    }

    #[test]
    fn earlier_runs_told_sizes_alone() {
        let files: LeftFiles =
            serde_json::from_str(r#"{"a":7,"b":{"bytes":8,"xxh3_128":"00"},"c":{"bytes":9}}"#).unwrap();
        let told: Vec<_> = files.values().map(|file| (file.bytes, file.xxh3_128.as_deref())).collect();
        assert_eq!(told, [(7, None), (8, Some("00")), (9, None)]);
        let refused = serde_json::from_str::<LeftFiles>(r#"{"a":"7"}"#).unwrap_err().to_string();
        assert!(refused.contains("an object of `bytes`"), "{refused}");
    }

    #[test]
    fn a_word_that_is_missing_among_others_is_damage() {
        let files: LeftFiles = serde_json::from_str(r#"{"a":{"bytes":8,"xxh3_128":"00"},"b":{"bytes":9}}"#).unwrap();
        assert_eq!(told(&files, "a").unwrap(), files.get("a"));
        for name in ["b", "c"] {
            assert!(told(&files, name).unwrap_err().contains("tells no xxh3_128 of it"), "{name}");
        }
        assert_eq!(told(&LeftFiles::new(), "a"), Ok(None));
        let sizes: LeftFiles = serde_json::from_str(r#"{"a":7,"b":{"bytes":8}}"#).unwrap();
        assert_eq!(told(&sizes, "b"), Ok(sizes.get("b")));
    }
}
