//! [`RunManifest`], the schema of `run.json`: everything a run depends on, and how it ended.
//!
//! Written first with state `running`, once more at the end. All wall-clock facts of a run live here and nowhere
//! else, so the other files of two equal runs are equal byte by byte.

use std::fs;
use std::path::Path;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cli::exit::{Exit, Failure};
use crate::cli::folder::{HostFacts, LeftFiles, RUN};
use crate::cli::live::described;
use crate::cli::provenance::{VERSION, run_id};
use crate::record::{RunFacts, TargetFacts};
use crate::results::{RunInfo, RunState};
use crate::scenario::Scenario;
use crate::trace::{Trace, TraceStats};

/// Version of `run.json`.
pub const SCHEMA_VERSION: u32 = 1;

const TOOL: &str = "pdreplay";

/// `run.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunManifest {
    /// `pdreplay`.
    pub tool: String,
    /// Version of this file.
    pub schema_version: u32,
    /// Name of the run folder.
    pub name: String,
    /// Id in every record: scenario name and a digest of everything the run depends on.
    pub run_id: String,
    /// How far it came.
    pub state: ManifestState,
    /// Why it failed, when it did.
    pub failure: Option<String>,
    /// Exit code of the program, once known.
    pub exit_code: Option<u8>,
    /// Start, UTC.
    pub started_at: String,
    /// End, UTC.
    pub ended_at: Option<String>,
    /// Wall time from start to end, seconds.
    pub wall_seconds: Option<f64>,
    /// The time scale as a sentence.
    pub time_scale: String,
    /// Seed of everything random in the run.
    pub seed: u64,
    /// The scenario, every default filled in.
    pub scenario: Scenario,
    /// The trace.
    pub trace: TraceFacts,
    /// Version of pdreplay.
    pub version: String,
    /// What answered the requests, with its version.
    pub cluster: String,
    /// The target of a run in real time; null in virtual time.
    #[serde(default)]
    pub target: Option<TargetFacts>,
    /// Command line, secrets blanked.
    pub command_line: Vec<String>,
    /// The machine that ran.
    pub host: HostFacts,
    /// The run as its summary describes it.
    pub info: RunInfo,
    /// What the run left beside its requests, once it ended.
    pub facts: Option<RunFacts>,
    /// Size and digest of each file beside this one, once the run ended.
    #[serde(default)]
    pub files: LeftFiles,
}

/// How far a run came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ManifestState {
    /// Begun; a folder that still says so belongs to a run under way, or to one that was killed or crashed.
    Running,
    /// Every planned request ended by itself.
    Completed,
    /// Broken off by a signal; the records up to then are kept.
    Interrupted,
    /// A failed turn stopped it (`on_turn_failure = "stop-run"`).
    Stopped,
    /// It could not go on: results could not be written, or a fault of pdreplay itself.
    Failed,
}

/// Trace of a run: where it came from, how it was read, what is in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TraceFacts {
    /// Short name.
    pub name: String,
    /// Path as given, or `generated:<preset>`.
    pub source: String,
    /// Hex SHA-256.
    pub sha256: String,
    /// `native`, `mooncake` or `generated`.
    pub format: String,
    /// Unit of the timestamps.
    pub timestamp_unit: String,
    /// Tokens per block.
    pub block_size: u32,
    /// How the block size was found.
    pub block_size_source: String,
    /// First timestamp in the file's own clock, nanoseconds.
    pub origin_ns: u64,
    /// What the reader decided or found odd.
    pub notices: Vec<String>,
    /// Counts and distributions.
    pub statistics: serde_json::Value,
}

impl TraceFacts {
    /// Of a trace as read.
    pub fn of(trace: &Trace) -> TraceFacts {
        let meta = trace.meta.clone();
        TraceFacts {
            name: meta.name,
            source: meta.source,
            sha256: meta.sha256,
            format: meta.format,
            timestamp_unit: meta.timestamp_unit,
            block_size: meta.block_size,
            block_size_source: meta.block_size_source,
            origin_ns: meta.origin_ns,
            notices: trace.notices.iter().map(|notice| format!("{}: {}", notice.code, notice.text)).collect(),
            statistics: serde_json::to_value(TraceStats::of(trace)).unwrap_or_default(),
        }
    }
}

impl RunManifest {
    /// Of a run about to begin in the folder `name`.
    pub fn begin(
        name: &str,
        scenario: &Scenario,
        trace: &Trace,
        info: &RunInfo,
        target: Option<&TargetFacts>,
    ) -> RunManifest {
        RunManifest {
            tool: TOOL.into(),
            schema_version: SCHEMA_VERSION,
            name: name.into(),
            run_id: run_id(scenario, trace),
            state: ManifestState::Running,
            failure: None,
            exit_code: None,
            started_at: Timestamp::now().to_string(),
            ended_at: None,
            wall_seconds: None,
            time_scale: info.time_scale_text.clone(),
            seed: scenario.seed,
            scenario: scenario.clone(),
            trace: TraceFacts::of(trace),
            version: VERSION.into(),
            cluster: target.map_or_else(|| format!("emulated {VERSION}"), described),
            target: target.cloned(),
            command_line: redact(std::env::args_os().map(|arg| arg.to_string_lossy().into_owned())),
            host: HostFacts::read(),
            info: info.clone(),
            facts: None,
            files: LeftFiles::new(),
        }
    }

    /// The run ended by itself or by a signal.
    pub fn end(&mut self, info: RunInfo, facts: RunFacts, files: LeftFiles, exit: Exit) {
        self.state = match info.state {
            RunState::Completed => ManifestState::Completed,
            RunState::Interrupted => ManifestState::Interrupted,
            RunState::Stopped => ManifestState::Stopped,
            RunState::Unfinished => ManifestState::Failed,
        };
        self.exit_code = Some(exit as u8);
        self.info = info;
        self.facts = Some(facts);
        self.files = files;
    }

    /// The run could not go on.
    pub fn fail(&mut self, failure: &Failure) {
        self.state = ManifestState::Failed;
        self.failure = Some(failure.to_string());
        self.exit_code = Some(failure.exit as u8);
    }

    /// Stamps the end.
    pub fn stamp(&mut self, wall_seconds: f64) {
        self.ended_at = Some(Timestamp::now().to_string());
        self.wall_seconds = Some(wall_seconds);
    }
}

/// Whether `folder` holds a `run.json` of ours, of whatever version.
pub fn is_run(folder: &Path) -> bool {
    #[derive(Deserialize)]
    struct Mark {
        tool: String,
    }
    let text = fs::read(folder.join(RUN)).unwrap_or_default();
    serde_json::from_slice::<Mark>(&text).is_ok_and(|mark| mark.tool == TOOL)
}

/// `args` with what looks like a secret blanked: values of keys that name one, and user info in URLs.
pub fn redact(args: impl Iterator<Item = String>) -> Vec<String> {
    let mut blank_next = false;
    args.map(|arg| {
        if std::mem::take(&mut blank_next) {
            return "***".to_owned();
        }
        let (key, value) = arg.split_once('=').map_or((arg.as_str(), None), |(key, value)| (key, Some(value)));
        if names_secret(key) {
            blank_next = value.is_none() && key.starts_with("--");
            return if value.is_some() { format!("{key}=***") } else { arg };
        }
        blank_user(&arg)
    })
    .collect()
}

fn names_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let last = key.rsplit(['.', '-', '_']).next().unwrap_or_default();
    matches!(last, "key" | "token" | "secret" | "password" | "authorization")
}

fn blank_user(arg: &str) -> String {
    let Some((scheme, rest)) = arg.split_once("://") else {
        return arg.to_owned();
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://***@{host}{path}"),
        None => arg.to_owned(),
    }
}
