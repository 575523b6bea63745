//! Discovery (DISC): each case of tests/data/kv/discovery.json is a configuration and either what refuses it, or what
//! happens in a registry and which streams follow from it. Keys and texts are those of etcd.

use std::collections::BTreeMap;
use std::fs;

use pdreplay::base::{Dur, Role, Time};
use pdreplay::kv::directory::{Directory, DirectoryOutput, KeyMirror, KvEventsConfig, News, TableInput};
use serde::Deserialize;
use serde_json::Value;

use crate::run::root;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    case: String,
    #[serde(default, rename = "what")]
    _what: String,
    config: Value,
    #[serde(default)]
    steps: Vec<Step>,
    #[serde(default)]
    refused: Vec<String>,
}

/// One moment: at most one thing happens, then the directory is looked at.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    at_ms: u64,
    /// Keys, without `XLLM:`, and values.
    #[serde(default)]
    put: BTreeMap<String, Value>,
    delete: Option<String>,
    /// Answer to the last probe.
    probed: Option<bool>,
    /// Instance and incarnation.
    #[serde(default)]
    heartbeat: BTreeMap<String, String>,
    #[serde(default)]
    role: BTreeMap<String, String>,
    /// Instance and state afterwards; null: it is gone.
    #[serde(default)]
    state: BTreeMap<String, Option<String>>,
    /// What is told of streams, in order.
    told: Vec<String>,
}

struct Run {
    directory: Directory,
    mirror: KeyMirror,
    probe: u64,
}

impl Run {
    fn take(&mut self, step: &Step) -> Vec<String> {
        let now = Time::ZERO + Dur::from_millis(step.at_ms);
        for input in self.inputs(step) {
            self.directory.handle_input(now, input);
        }
        self.directory.advance(now);
        let mut told = Vec::new();
        while let Some(output) = self.directory.poll_output() {
            told.extend(match output {
                DirectoryOutput::Probe { probe, .. } => {
                    self.probe = probe;
                    None
                }
                DirectoryOutput::State(_) | DirectoryOutput::Readmitted { .. } => None,
                DirectoryOutput::Subscribe(stream) => {
                    let replay = stream.replay.map(|replay| format!(" {replay}")).unwrap_or_default();
                    Some(format!("subscribe {}/{} {}{replay}", stream.key.instance, stream.key.dp_rank, stream.events))
                }
                DirectoryOutput::Unsubscribe { key, reason } => {
                    Some(format!("unsubscribe {}/{}: {}", key.instance, key.dp_rank, reason.as_str()))
                }
                DirectoryOutput::Excluded { instance, exclusion } => Some(format!("excluded {instance}: {exclusion}")),
            });
        }
        told
    }

    fn inputs(&mut self, step: &Step) -> Vec<TableInput> {
        let mut news = Vec::new();
        for (key, value) in &step.put {
            news.extend(self.mirror.put(&format!("XLLM:{key}"), value.to_string().as_bytes()));
        }
        news.extend(step.delete.iter().flat_map(|key| self.mirror.delete(&format!("XLLM:{key}"))));
        let of_registry = news.into_iter().map(|news| match news {
            News::Table(input) => input,
            News::Notice(text) | News::Mended(text) => panic!("{text}"),
            News::Listed => panic!("what has no reader is not listed"),
        });
        let probed = step.probed.map(|healthy| TableInput::Probed { probe: self.probe, healthy });
        let heartbeats = step.heartbeat.iter().map(|(name, incarnation)| TableInput::Heartbeat {
            name: name.clone(),
            incarnation: Some(incarnation.clone()),
            load: None,
        });
        let roles = step.role.iter().map(|(name, role)| {
            let role = if role == "DECODE" { Role::Decode } else { Role::Prefill };
            TableInput::Role { name: name.clone(), role }
        });
        of_registry.chain(probed).chain(heartbeats).chain(roles).collect()
    }

    fn state(&self, name: &str) -> Option<String> {
        self.directory.table().get(name).map(|instance| instance.state.as_str().to_owned())
    }
}

/// Whole lines, or, when the first one ends in `:` (line and column follow), parts of the one line.
fn check_refusal(case: &Case, said: &str) {
    let lines: Vec<&str> = said.lines().collect();
    if case.refused[0].ends_with(':') {
        assert_eq!(lines.len(), 1, "{}: {said}", case.case);
        for part in &case.refused {
            assert!(said.contains(part), "{}: `{part}` is not in `{said}`", case.case);
        }
    } else {
        assert_eq!(lines, case.refused, "{}", case.case);
    }
}

#[test]
fn conformance_of_discovery() {
    let text = fs::read(root().join("tests/data/kv/discovery.json")).unwrap();
    let cases: Vec<Case> = serde_json::from_slice(&text).unwrap();
    let numbered: Vec<u32> =
        (1..=9).filter(|n| cases.iter().any(|case| case.case.starts_with(&format!("DISC {n}")))).collect();
    assert_eq!(numbered, Vec::from_iter(1..=9), "every case of the family is there");
    for case in &cases {
        let config = KvEventsConfig::parse(case.config.to_string().as_bytes(), "c.json");
        let config = match config {
            Err(errors) => {
                assert!(!case.refused.is_empty(), "{}: {errors}", case.case);
                check_refusal(case, &errors.to_string());
                continue;
            }
            Ok(config) => config,
        };
        assert!(case.refused.is_empty() && !case.steps.is_empty(), "{}: was taken", case.case);
        let mut run = Run { directory: Directory::new(&config, Time::ZERO), mirror: KeyMirror::new(""), probe: 0 };
        // The first look is at an empty registry.
        run.directory.advance(Time::ZERO);
        for step in &case.steps {
            assert_eq!(run.take(step), step.told, "{} at {} ms", case.case, step.at_ms);
            for (name, state) in &step.state {
                assert_eq!(run.state(name), *state, "{}: {name} at {} ms", case.case, step.at_ms);
            }
        }
    }
}

#[test]
fn defaults_are_those_of_the_service() {
    let config = KvEventsConfig::parse(br#"{"discovery":{}}"#, "c.json").unwrap();
    let limits = config.limits;
    let found = [
        u64::from(config.max_streams),
        limits.max_blocks_per_stream.into(),
        limits.max_message_bytes,
        limits.max_buffered_bytes,
        limits.replay_timeout_ms,
        limits.resync_interval_ms,
    ];
    assert_eq!(found, [128, 262_144, 8_388_608, 16_777_216, 2_000, 30_000]);
    let pdreplay::kv::directory::Source::Discovery(rules) = config.source else { panic!("discovery") };
    assert_eq!((rules.event_port_offset, rules.replay_port_offset, rules.refresh_interval_ms), (10_000, 30_000, 1_000));
    assert_eq!((rules.form.block_size, rules.form.hash_seed, rules.form.topic.as_str()), (128, 1_024, ""));
}
