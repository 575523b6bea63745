//! Trace and scenario as named on the command line, resolved into what a run depends on.
//!
//! Owns the flags that `replay`, `preflight` and `scenario show` share, and those of every command about a scenario. Each short flag stands for one scenario key,
//! so a value is checked in one place whichever way it was given. `--set` is applied last and wins.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::cli::exit::Failure;
use crate::cli::live::LiveArgs;
use crate::cli::messages::Messages;
use crate::cli::provenance::run_id;
use crate::policies::PolicyName;
use crate::results::Slos;
use crate::scenario::{self, Overlay, Scenario, Setup};
use crate::trace::generate::{GenerateError, GenerateSpec, generate};
use crate::trace::{Format, ReadOptions, TimeUnit, Trace, read_path};

/// The scenario itself, and the flags that every command about one takes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Scenario")]
pub struct NamedArgs {
    /// Scenario file, or the name of a shipped one (`pdreplay scenario list`). Default: the built-in defaults.
    #[arg(long, short, value_name = "FILE|NAME")]
    pub scenario: Option<String>,
    /// Who chooses the D.
    #[arg(long, value_name = "POLICY", value_parser = PossibleValuesParser::new(PolicyName::ALL.map(PolicyName::as_str)))]
    pub policy: Option<String>,
    /// What may be done there: `dp` colocated workers, `pd` plain prefill/decode, `kvc` decode-resident sessions.
    #[arg(long, value_name = "MECHANISM", value_parser = ["dp", "pd", "kvc"])]
    pub mechanism: Option<String>,
    /// Any scenario key, such as `admission.cap_max=16`; may be repeated; wins over the other flags.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

/// Scenario and the flags that change a run of it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Scenario")]
pub struct ScenarioArgs {
    #[command(flatten)]
    pub named: NamedArgs,
    /// Seed of everything random in the run: arrival jitter; without jitter it changes nothing. The trace's own seed is
    /// `trace.seed`.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Divide all gaps between intended send times: 10 is ten times faster, `inf` as fast as causality allows.
    #[arg(long, visible_alias = "speedup", value_name = "S", allow_hyphen_values = true)]
    pub time_scale: Option<String>,
    /// The same for the gaps between the sessions' arrivals alone.
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    pub arrival_scale: Option<String>,
    /// The same for the gaps inside a session alone.
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    pub think_scale: Option<String>,
    /// When a turn is due: `open` at its timestamp but after the previous turn, `think` the recorded think time after
    /// the previous turn, `open-strict` at its timestamp whatever the previous turn does.
    #[arg(long, value_name = "MODE", value_parser = ["open", "think", "open-strict"])]
    pub schedule: Option<String>,
    /// Most requests on the wire; 0: no limit.
    #[arg(long, value_name = "N")]
    pub concurrency: Option<u32>,
    /// Most sessions begun and not ended; 0: no limit.
    #[arg(long, value_name = "N")]
    pub max_sessions: Option<u32>,
    /// What follows a failed turn: the session goes on, the session stops, the run stops.
    #[arg(long, value_name = "WHAT", value_parser = ["continue", "stop-session", "stop-run"])]
    pub on_turn_failure: Option<String>,
    /// Objectives in ms that a request should keep to count as good, such as `ttft:2000,e2el:60000` (vLLM's names): goodput is
    /// the rate of those. They change nothing of the run.
    #[arg(long, value_name = "METRIC:MS,…")]
    pub goodput: Option<Slos>,
    #[command(flatten)]
    pub live: LiveArgs,
}

/// How a trace file is read.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Reading the trace")]
pub struct ReadingArgs {
    /// Format of the file; default: by its first line.
    #[arg(long, value_name = "FORMAT", value_parser = PossibleValuesParser::new(Format::ALL.map(Format::as_str)))]
    pub trace_format: Option<String>,
    /// Unit of the timestamps; default: the format's (native seconds, Mooncake milliseconds) or the header's.
    #[arg(long, value_name = "UNIT", value_parser = PossibleValuesParser::new(TimeUnit::ALL.map(TimeUnit::as_str)))]
    pub timestamp_unit: Option<String>,
    /// Tokens per block of the hash ids; default: the header's, or inferred.
    #[arg(long, value_name = "TOKENS")]
    pub block_size: Option<NonZeroU32>,
}

/// Trace and scenario of a run.
#[derive(Debug, Clone, Args)]
pub struct InputArgs {
    /// Trace file: native or Mooncake JSONL, also .gz and .zst. Default: the trace the scenario generates.
    #[arg(value_name = "TRACE")]
    pub trace: Option<PathBuf>,
    #[command(flatten)]
    pub reading: ReadingArgs,
    #[command(flatten)]
    pub scenario: ScenarioArgs,
}

/// What a run depends on.
#[derive(Debug)]
pub struct Inputs {
    /// The trace.
    pub trace: Arc<Trace>,
    /// The scenario, frozen.
    pub scenario: Scenario,
}

impl InputArgs {
    /// Reads trace and scenario.
    pub fn resolve(&self) -> Result<Inputs, Failure> {
        if let Some(path) = self.trace.as_ref().filter(|path| path.to_string_lossy().contains("://")) {
            return Err(Failure::input(format!("{} is an address, not a trace file", path.display()))
                .hint("repeat the flag for each address, as in `--decode A --decode B`"));
        }
        let scenario = self.scenario.resolve()?;
        let trace = match &self.trace {
            Some(path) => self.reading.read(path)?,
            None => generate_trace(&scenario)?,
        };
        Ok(Inputs { trace: Arc::new(trace), scenario })
    }
}

impl Inputs {
    /// What a run of them is built from. The last check: from here on nothing is wrong with the input.
    pub fn setup(&self) -> Result<Setup, Failure> {
        Ok(Setup::new(&self.scenario, &self.trace, &run_id(&self.scenario, &self.trace))?)
    }
}

impl ReadingArgs {
    /// Reads the trace file at `path`.
    pub fn read(&self, path: &Path) -> Result<Trace, Failure> {
        let options = ReadOptions {
            format: Format::ALL.into_iter().find(|format| self.trace_format.as_deref() == Some(format.as_str())),
            timestamp_unit: TimeUnit::ALL
                .into_iter()
                .find(|unit| self.timestamp_unit.as_deref() == Some(unit.as_str())),
            block_size: self.block_size.map(NonZeroU32::get),
            ..ReadOptions::default()
        };
        read_path(path, &options).map_err(Failure::input)
    }
}

/// Says what the reader or generator decided or found odd.
pub fn tell_notices(trace: &Trace, messages: &Messages) {
    trace.notices.iter().for_each(|notice| messages.note(format!("{}: {}", trace.meta.name, notice.text)));
}

/// The trace of the built-in scenario.
pub fn built_in() -> Result<Trace, Failure> {
    generate_trace(&Scenario::default())
}

/// The trace a scenario brings along.
pub fn generate_trace(scenario: &Scenario) -> Result<Trace, Failure> {
    let config = &scenario.trace;
    let at =
        |key: &'static str| move |error: GenerateError| Failure::input(format!("scenario key trace.{key}: {error}"));
    let spec = GenerateSpec {
        preset: config.preset.parse().map_err(at("preset"))?,
        arrival: config.arrival.parse().map_err(at("arrival"))?,
        seed: config.seed,
        ..GenerateSpec::default()
    };
    generate(&spec).map_err(Failure::input)
}

impl NamedArgs {
    /// The scenario with the flags of a command applied: `own` ones, and those of a live target.
    pub fn resolve(&self, own: Vec<Overlay>, live: &LiveArgs) -> Result<Scenario, Failure> {
        let flags = [("--policy", "policy.name", &self.policy), ("--mechanism", "replay.mechanism", &self.mechanism)];
        let given = flags.into_iter().filter_map(|(flag, key, value)| Some((flag, key, value.as_ref()?)));
        let mut overlays: Vec<Overlay> = given.map(|(flag, key, value)| Overlay::shorthand(flag, key, value)).collect();
        overlays.extend(own);
        let named = scenario::load(self.scenario.as_deref(), &[])?;
        overlays.extend(live.overlays(named.live.is_embedded() && !self.sets("live.target")));
        for assignment in &self.set {
            overlays.push(Overlay::set(assignment)?);
        }
        Ok(scenario::load(self.scenario.as_deref(), &overlays)?)
    }

    /// Whether `--set` names this key.
    pub fn sets(&self, key: &str) -> bool {
        self.set.iter().any(|assignment| assignment.split('=').next().is_some_and(|name| name.trim() == key))
    }
}

impl ScenarioArgs {
    /// The scenario with the flags applied.
    pub fn resolve(&self) -> Result<Scenario, Failure> {
        self.named.resolve(self.shorthands(), &self.live)
    }

    fn shorthands(&self) -> Vec<Overlay> {
        let number = |value: Option<u32>| value.map(|number| number.to_string());
        let flags = [
            ("--seed", "seed", self.seed.map(|seed| seed.to_string())),
            ("--time-scale", "replay.time_scale", self.time_scale.clone()),
            ("--arrival-scale", "replay.arrival_scale", self.arrival_scale.clone()),
            ("--think-scale", "replay.think_scale", self.think_scale.clone()),
            ("--schedule", "replay.schedule", self.schedule.clone()),
            ("--concurrency", "replay.concurrency", number(self.concurrency)),
            ("--max-sessions", "replay.max_sessions", number(self.max_sessions)),
            ("--on-turn-failure", "replay.on_turn_failure", self.on_turn_failure.clone()),
        ];
        let given = flags.into_iter().filter_map(|(flag, key, value)| Some((flag, key, value?)));
        let given = given.map(|(flag, key, value)| Overlay::shorthand(flag, key, &value));
        given.chain(self.goodput.iter().flat_map(objectives)).collect()
    }
}

/// `--goodput` as scenario keys.
pub fn objectives(slos: &Slos) -> impl Iterator<Item = Overlay> + use<> {
    let keys = [("slo.ttft_ms", slos.ttft_ms), ("slo.tpot_ms", slos.tpot_ms), ("slo.e2e_ms", slos.e2e_ms)];
    keys.into_iter().filter_map(|(key, ms)| Some(Overlay::shorthand("--goodput", key, &ms?.to_string())))
}
