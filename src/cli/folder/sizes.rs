//! How large each file of a run was when it ended, kept in `run.json`: a file that is missing, cut or changed later shows.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::cli::folder::{EVENTS, REQUESTS, REQUESTS_PARQUET, SESSIONS, SUMMARY, WORKERS};

/// Bytes by name of the file.
pub type Sizes = BTreeMap<String, u64>;

/// The sizes of a run's files in `folder`; one that is not there has none.
pub fn sizes(folder: &Path) -> Sizes {
    let size = |name: &str| Some((name.to_owned(), fs::metadata(folder.join(name)).ok()?.len()));
    [REQUESTS, EVENTS, REQUESTS_PARQUET, SESSIONS, WORKERS, SUMMARY].into_iter().filter_map(size).collect()
}

/// What became of the files of `folder` since they had these sizes: name and a sentence for each that differs.
pub fn damage(folder: &Path, then: &Sizes) -> Vec<(String, String)> {
    let now = sizes(folder);
    let differs = |(name, then): (&String, &u64)| {
        let path = folder.join(name);
        let text = match now.get(name) {
            Some(now) if now == then => return None,
            Some(now) => format!("{}: has {now} bytes, not {then}: cut or changed after the run", path.display()),
            None => format!("{}: missing", path.display()),
        };
        Some((name.clone(), text))
    };
    then.iter().filter_map(differs).collect()
}
