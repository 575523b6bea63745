//! `--target live` on the command line: its flags, and a target made ready for one run.
//!
//! Owns the order of things before a live run: secrets, embedded cluster, a look at the servers, open files. What is wrong
//! is told before a run folder is claimed.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::cluster::start_hint;
use crate::cli::exit::Failure;
use crate::cli::index::{feed_failure, feed_options};
use crate::cli::progress::Schedule;
use crate::cli::signals::Signals;
use crate::cli::terminal::Terminal;
use crate::live::cluster::ClusterError;
use crate::live::driver::{Beside, DriveOptions, LiveError, Shortage};
use crate::live::kv::service::Log;
use crate::live::kv::{RunIndex, embedded_feed, no_file_fault};
use crate::live::{self, Embedded, ResolveError, Resolved, SecretError, Target};
use crate::record::TargetFacts;
use crate::replay::{Observer, RunEnd};
use crate::results::CacheReset;
use crate::scenario::{IndexNeeds, KvSetup, Overlay, Scenario, Setup};
use crate::trace::Trace;

/// Longest wait for streams to come in step before a run, from the emulated cluster and from servers elsewhere.
const STREAMS_HERE: Duration = Duration::from_millis(300);
const STREAMS_ELSEWHERE: Duration = Duration::from_secs(2);

/// Time between two looks for a signal while a target is made.
const SIGNAL_LOOK: Duration = Duration::from_millis(20);

/// What requests are sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TargetArg {
    /// The emulated cluster, in virtual time.
    Virtual,
    /// What `[live]` of the scenario describes, in real time.
    Live,
}

/// Flags of a live target; each stands for a key of `[live]`.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Live target")]
pub struct LiveArgs {
    /// Clock of the run and of the emulated workers against the wall's: 10 is ten times faster. Emulated targets only.
    #[arg(long, value_name = "X", allow_hyphen_values = true)]
    emulation_speed: Option<String>,
    /// Base URL of the PD router.
    #[arg(long, value_name = "URL")]
    router: Option<String>,
    /// Base URL of P0, P1, …; repeat the flag for each. "URL PORT" names the bootstrap port, where P does not tell it.
    #[arg(long, value_name = "URL")]
    prefill: Vec<String>,
    /// Base URL of D0, D1, …; repeat the flag for each.
    #[arg(long, value_name = "URL")]
    decode: Vec<String>,
    /// Base URL of W0, W1, …: an OpenAI-compatible server, unless live.target says otherwise; repeat the flag for each.
    #[arg(long, value_name = "URL")]
    worker: Vec<String>,
    /// Environment variable with the API key.
    #[arg(long, value_name = "NAME")]
    api_key_env: Option<String>,
}

impl LiveArgs {
    /// The flags as scenario keys. Addresses name the kind of target too, where `is_embedded` says that nothing else does.
    pub fn overlays(&self, is_embedded: bool) -> Vec<Overlay> {
        let list = |urls: &[String]| {
            let quoted: Vec<String> = urls.iter().map(|url| format!("{url:?}")).collect();
            (!urls.is_empty()).then(|| format!("[{}]", quoted.join(", ")))
        };
        let (sglang, openai) =
            (self.router.is_some() || !self.prefill.is_empty() || !self.decode.is_empty(), !self.worker.is_empty());
        let kind = match (sglang, openai) {
            (true, _) => Some("sglang".to_owned()),
            (false, true) => Some("openai".to_owned()),
            (false, false) => None,
        };
        let flags = [
            ("--prefill, --decode, --router or --worker:", "live.target", kind.filter(|_| is_embedded)),
            ("--emulation-speed", "live.emulation_speed", self.emulation_speed.clone()),
            ("--router", "live.router", self.router.clone()),
            ("--prefill", "live.prefill", list(&self.prefill)),
            ("--decode", "live.decode", list(&self.decode)),
            ("--worker", "live.colocated", list(&self.worker)),
            ("--api-key-env", "live.api_key_env", self.api_key_env.clone()),
        ];
        let given = flags.into_iter().filter_map(|(flag, key, value)| Some((flag, key, value?)));
        given.map(|(flag, key, value)| Overlay::shorthand(flag, key, &value)).collect()
    }

    /// Flags given that name the address of a server.
    pub fn address_flags(&self) -> Vec<&'static str> {
        let flags = [
            ("--router", self.router.is_some()),
            ("--prefill", !self.prefill.is_empty()),
            ("--decode", !self.decode.is_empty()),
            ("--worker", !self.worker.is_empty()),
        ];
        flags.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| flag).collect()
    }

    /// Refuses the address of a server, or its key, for a run that sends nothing to it; `flag` would make it send.
    pub fn check(&self, target: TargetArg, flag: &str) -> Result<(), Failure> {
        let key = self.api_key_env.iter().map(|_| "--api-key-env");
        let given: Vec<&str> = self.address_flags().into_iter().chain(key).collect();
        if target == TargetArg::Live || given.is_empty() {
            return Ok(());
        }
        let cause = format!("{} names a server, but the run is in virtual time and sends nothing", given.join(", "));
        Err(Failure::input(cause).hint(format!("add {flag}, or leave {} out", given.join(", "))))
    }
}

/// A target that a run can be sent to at once.
#[derive(Debug)]
pub struct Ready {
    /// For the driver.
    pub target: Target,
    /// For the driver.
    pub options: DriveOptions,
    /// For `run.json`.
    pub facts: TargetFacts,
    /// What should be known beforehand, a sentence each.
    pub hints: Vec<String>,
    /// What was done to the servers' caches, where that was asked for.
    pub caches: Option<CacheReset>,
    cluster: Option<Embedded>,
    index: Option<RunIndex>,
}

impl Ready {
    /// Makes the target of a scenario ready: starts the embedded cluster, or looks at the servers.
    /// `peak_live`: sessions live at once as planned.
    pub fn make(scenario: &Scenario, trace: &Trace, setup: &Setup, peak_live: u32) -> Result<Ready, Failure> {
        let found = live::read_secrets(&scenario.live)?;
        let is_bounded = scenario.replay.concurrency > 0 || scenario.replay.max_sessions > 0;
        let at_once = (!is_bounded).then(|| peak_live.saturating_mul(2));
        let descriptors = live::descriptors(scenario, trace.sessions.len(), at_once)?;
        let start = || Embedded::start(scenario, setup, trace.meta.block_size);
        let cluster = scenario.live.is_embedded().then(start).transpose().map_err(not_started)?;
        let addresses = cluster.as_ref().map(Embedded::addresses);
        let Resolved { target, facts, warnings } =
            live::resolve(scenario, addresses, found.secrets, trace.sessions.len())?;
        let mut hints = found.hints;
        hints.extend(descriptors.warning());
        hints.extend(warnings);
        let index = match &setup.kv {
            Some(kv) => Some(follow(scenario, kv, cluster.as_ref(), &target, &mut hints)?),
            None => None,
        };
        let options = DriveOptions {
            speed: scenario.live.emulation_speed,
            drain: Duration::from_secs_f64(scenario.live.drain_s),
            health_poll: health_poll(scenario),
            descriptors,
            clock: cluster.as_ref().and_then(Embedded::clock),
        };
        Ok(Ready { target, options, facts, hints, caches: None, cluster, index })
    }

    /// Makes it while looking at `signals`, for one of several runs: a server that is silent holds up nobody who wants the
    /// end. `None`: a signal came, and the run is not begun; what is being made goes with the program.
    pub fn make_unless(
        signals: &Signals,
        scenario: &Scenario,
        trace: &Arc<Trace>,
        setup: &Setup,
        peak_live: u32,
    ) -> Result<Option<Ready>, Failure> {
        let (tell, made) = sync_channel(1);
        let (scenario, trace, setup) = (scenario.clone(), Arc::clone(trace), setup.clone());
        // Nobody takes it any more after a signal.
        let make = move || drop(tell.send(Ready::make(&scenario, &trace, &setup, peak_live)));
        let maker = thread::Builder::new().name("target".into()).spawn(make).map_err(Failure::broke)?;
        while signals.caught().is_none() {
            match made.recv_timeout(SIGNAL_LOOK) {
                Ok(ready) => return ready.map(|ready| signals.caught().is_none().then_some(ready)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    resume_unwind(maker.join().expect_err("it ends without a word only by a panic"))
                }
            }
        }
        Ok(None)
    }

    /// Replays in real time. An embedded node that failed by itself fails the run: its records would be about that.
    pub fn drive(
        self,
        trace: &Arc<Trace>,
        setup: Setup,
        observer: &mut (dyn Observer + Send),
    ) -> Result<RunEnd, Failure> {
        let Ready { target, options, mut cluster, index, .. } = self;
        let notices = cluster.as_mut().and_then(Embedded::notices);
        let beside = Beside { notices, index };
        let ended = live::driver::drive(trace, setup, target, options, beside, observer).map_err(stopped)?;
        cluster.map(Embedded::stop).transpose().map_err(Failure::broke)?;
        Ok(ended)
    }

    /// When what is planned for so many seconds of the run will be over.
    pub fn schedule(&self, planned_s: f64) -> Schedule {
        Schedule { planned_s, speed: self.options.speed, drain_s: self.options.drain.as_secs_f64() }
    }

    /// Says what the run is sent to, and what should be known.
    pub fn tell(&self, scenario: &Scenario, terminal: &Terminal) {
        terminal.messages.note(format!("  live: {}", described(&self.facts)));
        self.hints.iter().for_each(|hint| terminal.messages.warning(hint));
        if let Some(warning) = unlimited(scenario) {
            terminal.messages.warning(warning);
        }
    }
}

/// An embedded cluster that cannot be had, and what to do.
pub fn not_started(error: ClusterError) -> Failure {
    let hint = start_hint(&error);
    Failure::broke(error).hint(hint)
}

/// Starts what feeds the index, and gives its streams a moment to come in step. `hints` gets what should be known of them.
fn follow(
    scenario: &Scenario,
    kv: &KvSetup,
    cluster: Option<&Embedded>,
    target: &Target,
    hints: &mut Vec<String>,
) -> Result<RunIndex, Failure> {
    let speed = scenario.live.emulation_speed;
    let file = &scenario.kv_events.config;
    let (options, longest) = match cluster {
        Some(cluster) => (embedded_feed(cluster.kv_addresses(), &kv.follow, speed), STREAMS_HERE),
        None if file.is_empty() => (embedded_feed(&BTreeMap::new(), &kv.follow, speed), Duration::ZERO),
        None => (feed_options(file, None, Log::silent())?, STREAMS_ELSEWHERE),
    };
    let (setup, addresses) = (kv.follow.clone(), target.addresses.clone());
    let mut index = RunIndex::start(options, cluster.is_some(), setup, addresses, speed).map_err(feed_failure)?;
    index.settle(longest);
    // What the run's own cluster publishes is known, and what its policy looks for in vain is a conflict.
    if let Some(needs) = IndexNeeds::of(scenario).filter(|_| cluster.is_none()) {
        let faults = match file.is_empty() {
            true => vec![no_file_fault(&needs)],
            false => index.faults(&needs).map_err(Failure::input)?,
        };
        hints.extend(faults.iter().map(ToString::to_string));
    }
    Ok(index)
}

/// Period of the looks in wall time; not so short that looks are all the workers do.
fn health_poll(scenario: &Scenario) -> Option<Duration> {
    const LEAST: Duration = Duration::from_millis(20);
    let live = &scenario.live;
    let every = Duration::from_secs_f64(live.health_poll_ms as f64 / 1e3 / live.emulation_speed);
    (live.health_poll_ms > 0).then(|| every.max(LEAST))
}

/// A run in real time ends by itself only when silence has a limit.
fn unlimited(scenario: &Scenario) -> Option<String> {
    let replay = &scenario.replay;
    let endless = replay.stall_timeout_s == 0.0 && replay.request_timeout_s == 0.0;
    endless.then(|| {
        "replay.stall_timeout_s and replay.request_timeout_s are 0: a stream that goes quiet is waited for for ever"
            .into()
    })
}

/// A target in a line: `sglang, 1 P 2 D behind smg 1.13.0`.
pub fn described(facts: &TargetFacts) -> String {
    let role = |letter: char| facts.workers.iter().filter(|worker| worker.worker.starts_with(letter)).count();
    let counts = ['P', 'D', 'W'].map(|letter| (letter, role(letter))).into_iter().filter(|(_, count)| *count > 0);
    let workers = counts.map(|(letter, count)| format!("{count} {letter}")).collect::<Vec<_>>().join(" ");
    let engines = facts.workers.iter().filter(|worker| !worker.engine.is_empty());
    let mut engines: Vec<String> = engines.map(|worker| format!("{} {}", worker.engine, worker.version)).collect();
    engines.sort();
    engines.dedup();
    let engines = engines.iter().map(|engine| engine.trim_end()).collect::<Vec<_>>().join(", ");
    let engines = if engines.is_empty() { String::new() } else { format!(" ({engines})") };
    format!("{}, {workers}{engines}{}", facts.kind, way(facts))
}

/// The driver label of a run: what its records mean depends on it.
pub fn driver_label(facts: &TargetFacts) -> String {
    let speed = facts.emulation_speed;
    let clock = if speed == 1.0 { String::new() } else { format!(" × {speed}") };
    let emulated = if facts.emulated && facts.kind != "embedded" { " (emulated)" } else { "" };
    format!("real time{clock}, {}{emulated}{}", facts.kind, way(facts))
}

/// How requests get to two legs: ` behind smg 1.13.0`, or nothing.
fn way(facts: &TargetFacts) -> String {
    match (&facts.router, facts.legs.as_deref()) {
        (Some(router), _) => format!(" behind {} {}", router.kind, router.version).trim_end().to_owned(),
        (None, Some("direct")) => ", legs joined by the client".into(),
        (None, _) => String::new(),
    }
}

/// A live run that could not go to its end.
fn stopped(error: LiveError) -> Failure {
    match error {
        LiveError::Observer(error) => crate::cli::drive::broken(error),
        LiveError::Client(error) => Failure::input(error),
        LiveError::NoIndex(error) => Failure::input(error),
        error @ LiveError::Start(_) => Failure::broke(error),
    }
}

impl From<ResolveError> for Failure {
    /// What is configured wrong, or not there: input. No runtime: ours.
    fn from(error: ResolveError) -> Failure {
        match error {
            ResolveError::Start(_) => Failure::broke(error),
            ResolveError::Client(_)
            | ResolveError::Down { .. }
            | ResolveError::SameServer { .. }
            | ResolveError::Roles { .. }
            | ResolveError::UnknownRouter { .. }
            | ResolveError::SessionsReachP { .. }
            | ResolveError::Bootstrap { .. }
            | ResolveError::Routes { .. }
            | ResolveError::Unreached { .. }
            | ResolveError::Speed { .. } => Failure::input(error),
        }
    }
}

impl From<SecretError> for Failure {
    fn from(error: SecretError) -> Failure {
        Failure::input(error)
    }
}

impl From<Shortage> for Failure {
    fn from(error: Shortage) -> Failure {
        Failure::input(error)
    }
}
