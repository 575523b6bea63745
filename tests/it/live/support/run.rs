//! A live run of the binary against servers of a test, and its records.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::fake::Fake;
use crate::run::{Ran, Scratch};

/// Endpoint that the requests of a run are posted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    Generate,
    Completions,
    Chat,
}

/// A live run to be made: a trace, scenario keys, environment.
pub struct LiveRun {
    pub scratch: Scratch,
    args: Vec<String>,
    env: Vec<(String, String)>,
    /// Command in front of the binary's, such as a namespace.
    inside: Vec<String>,
}

/// What it left.
pub struct Played {
    pub scratch: Scratch,
    pub ran: Ran,
    pub took: Duration,
}

/// Folder of the run in its scratch directory.
pub const FOLDER: &str = "outputs/live";

/// How late a busy machine sends, and how long it stands still, fail no run.
pub const UNTIMED: [&str; 4] =
    ["--set", "integrity.max_schedule_lag_p99_ms=1e6", "--set", "integrity.max_harness_pause_ms=1e9"];

impl LiveRun {
    /// Of a trace (native JSONL), on whatever `--set` says. Late sends are no failure: how late they are is the machine's
    /// affair.
    pub fn of(trace: &str) -> LiveRun {
        let scratch = Scratch::new();
        scratch.write("trace.jsonl", trace);
        let args = ["replay", "trace.jsonl", "--target", "live", "--name", "live"].map(str::to_owned);
        let run = LiveRun { scratch, args: args.to_vec(), env: Vec::new(), inside: Vec::new() };
        run.args(&UNTIMED)
    }

    /// Against one colocated server.
    pub fn against(fake: &Fake, api: Api, trace: &str) -> LiveRun {
        LiveRun::of(trace).on(&fake.url(), api)
    }

    /// Against one colocated server at `url`.
    pub fn on(self, url: &str, api: Api) -> LiveRun {
        let target = if api == Api::Generate { "sglang" } else { "openai" };
        let run = self.set("replay.mechanism", "dp").set("live.target", target).set("policy.name", "default");
        let run = run.set("live.colocated", &format!("[\"{url}\"]"));
        match api {
            Api::Generate => run,
            Api::Completions => run.set("live.api", "completions"),
            Api::Chat => run.set("live.api", "chat"),
        }
    }

    pub fn set(mut self, key: &str, value: &str) -> LiveRun {
        self.args.extend(["--set".to_owned(), format!("{key}={value}")]);
        self
    }

    pub fn args(mut self, more: &[&str]) -> LiveRun {
        self.args.extend(more.iter().map(|arg| (*arg).to_owned()));
        self
    }

    /// Runs it by another program, which is given the binary and its arguments.
    pub fn inside(mut self, before: &[&str]) -> LiveRun {
        self.inside = before.iter().map(|arg| (*arg).to_owned()).collect();
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> LiveRun {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Arguments of another command about the same target: the scenario keys alone.
    pub fn args_of(&self, command: &str) -> Vec<String> {
        let keys = self.args.windows(2).filter(|pair| pair[0] == "--set").flatten().cloned();
        [command.to_owned()].into_iter().chain(keys).collect()
    }

    /// Runs it to its end.
    pub fn play(self) -> Played {
        self.start().wait()
    }

    /// Starts it; what it prints is kept for [`Playing::wait`].
    pub fn start(self) -> Playing {
        let args: Vec<&str> = self.args.iter().map(String::as_str).collect();
        let mut command = self.scratch.command(&args);
        if let [program, before @ ..] = self.inside.as_slice() {
            let mut outer = Command::new(program);
            outer.args(before).arg(command.get_program()).args(command.get_args());
            command = outer;
            command.current_dir(self.scratch.path()).stdin(Stdio::null());
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        let began = Instant::now();
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Playing { scratch: Some(self.scratch), child: Some(child), began }
    }
}

/// A run under way.
pub struct Playing {
    scratch: Option<Scratch>,
    child: Option<Child>,
    began: Instant,
}

impl Playing {
    /// Waits for its end.
    pub fn wait(mut self) -> Played {
        let ran = Ran::of(self.child.take().unwrap().wait_with_output().unwrap());
        Played { scratch: self.scratch.take().unwrap(), ran, took: self.began.elapsed() }
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_some()
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Sends it a signal.
    pub fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([format!("-{name}"), self.id().to_string()]).status().unwrap();
        assert!(sent.success(), "no {name} could be sent");
    }

    /// Memory in use, KiB; `None` once it has ended.
    pub fn rss_kib(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        line.trim().trim_end_matches(" kB").parse().ok()
    }

    /// Requests that have ended so far.
    pub fn ended(&self) -> usize {
        let records = self.scratch.as_ref().unwrap().join(FOLDER).join("requests.jsonl");
        std::fs::read_to_string(records).map_or(0, |text| text.lines().count())
    }
}

impl Drop for Playing {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Played {
    /// Ended with `code`.
    #[track_caller]
    pub fn code(self, code: i32) -> Played {
        assert_eq!(self.ran.code, Some(code), "{:#?}", self.ran);
        self
    }

    /// Its records, in order of session and turn.
    #[track_caller]
    pub fn records(&self) -> Vec<Value> {
        assert!(self.scratch.join(FOLDER).join("requests.jsonl").exists(), "no records: {:#?}", self.ran);
        let mut records = crate::cli::records(&self.scratch, FOLDER);
        records.sort_by_key(|record| (record["session_id"].to_string(), record["turn_id"].as_u64()));
        records
    }

    /// The only record.
    #[track_caller]
    pub fn record(&self) -> Value {
        let mut records = self.records();
        assert_eq!(records.len(), 1, "{records:#?}");
        records.remove(0)
    }

    /// Outcomes add up, and what is not whole is not ok.
    #[track_caller]
    pub fn sound(&self) {
        let records = self.records();
        assert_eq!(self.summary()["integrity"]["planned"].as_u64(), Some(records.len() as u64));
        for record in &records {
            let is_whole = record["output_tokens"] == record["expected_output_tokens"];
            assert!(record["outcome"] != "ok" || is_whole, "counted ok: {record:#}");
            assert!(record["outcome"] == "ok" || record["error_class"].is_string(), "no cause: {record:#}");
        }
    }

    pub fn summary(&self) -> Value {
        self.scratch.json(&format!("{FOLDER}/summary.json"))
    }

    pub fn manifest(&self) -> Value {
        self.scratch.json(&format!("{FOLDER}/run.json"))
    }

    /// Times each outcome occurs.
    #[track_caller]
    pub fn count(&self, outcome: &str) -> usize {
        self.records().iter().filter(|record| record["outcome"] == outcome).count()
    }
}

/// One row of a trace.
pub fn row(session: &str, turn: u32, at_s: f64, input: u32, output: u32) -> String {
    let blocks = input / 64;
    let own = session.bytes().fold(7u64, |own, byte| (own * 31 + u64::from(byte)) % 1_000_000);
    let ids: Vec<String> = (0..blocks).map(|block| format!("{}", own * 10_000 + u64::from(block))).collect();
    format!(
        "{{\"session_id\":\"{session}\",\"turn_id\":{turn},\"timestamp\":{at_s},\"input_length\":{input},\
         \"output_length\":{output},\"hash_ids\":[{}]}}\n",
        ids.join(",")
    )
}

/// A trace of one request that asks for `tokens`.
pub fn one(tokens: u32) -> String {
    row("s", 0, 0.0, 30, tokens)
}

/// Milliseconds between two `_ns` fields of a record.
#[track_caller]
pub fn ms_between(record: &Value, from: &str, to: &str) -> f64 {
    let at = |field: &str| record[field].as_u64().unwrap_or_else(|| panic!("no {field}: {record:#}")) as f64;
    (at(to) - at(from)) / 1e6
}
