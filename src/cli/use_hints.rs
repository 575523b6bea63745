//! Command lines for a cluster that is up, ready to be pasted into a shell: an attempt, `doctor`, `replay`.
//!
//! Invariant: what a line asks for is the scenario that the cluster was started with, on the addresses it got.

use std::path::Path;

use crate::base::words::seconds;
use crate::cli::inputs::{NamedArgs, generate_trace};
use crate::live::Addresses;
use crate::policies::PolicyName;
use crate::replay::Mechanism;
use crate::scenario::{Scenario, preflight};

/// From so many seconds of the wall on, it is said how long a replay takes.
const LONG_S: f64 = 60.0;

/// See the module.
#[derive(Debug)]
pub struct UseHints<'a> {
    /// The scenario as it was asked for.
    pub asked: &'a NamedArgs,
    /// What came of it.
    pub scenario: Scenario,
}

impl UseHints<'_> {
    /// The lines; `streams` is the file that names the KV streams, where workers publish.
    pub fn lines(&self, addresses: &Addresses, streams: Option<&Path>) -> Vec<String> {
        let Some(router) = &addresses.router else { return Vec::new() };
        let body = r#"'{"text": "fix the bug", "sampling_params": {"max_new_tokens": 8}, "stream": true}'"#;
        let target = self.target(addresses, streams);
        let lines = [
            Some(format!("try it:    curl -N {router}/generate -H 'content-type: application/json' -d {body}")),
            Some(format!("check it:  pdreplay doctor{target}")),
            Some(format!("replay on: pdreplay replay --target live{target}")),
            self.length(),
            streams.map(|file| format!("streams:   {} names the KV streams", file.display())),
            Some("stop it:   Ctrl-C".to_owned()),
        ];
        lines.into_iter().flatten().collect()
    }

    /// Arguments that name scenario and target.
    fn target(&self, addresses: &Addresses, streams: Option<&Path>) -> String {
        let NamedArgs { scenario, policy, mechanism, set } = self.asked;
        let mut words: Vec<String> = Vec::new();
        let mut add = |flag: &str, value: &str| words.extend([flag.to_owned(), quoted(value)]);
        scenario.iter().for_each(|name| add("-s", name));
        policy.iter().for_each(|name| add("--policy", name));
        mechanism.iter().for_each(|name| add("--mechanism", name));
        set.iter().for_each(|assignment| add("--set", assignment));
        // Faults are the workers' own, whoever replays on them.
        if !self.scenario.fault.is_empty() {
            add("--set", "fault=[]");
        }
        add("--set", "live.target=sglang");
        if let Some(file) = streams.filter(|_| self.scenario.policy.reads_index()) {
            add("--set", &format!("kv_events.config={}", file.display()));
            // Listed streams are those of the processes sent to: of this cluster.
            if self.scenario.policy.name == PolicyName::Car {
                add("--set", "policy.car.static_streams=true");
            }
        }
        if self.scenario.replay.mechanism == Mechanism::Dp {
            addresses.colocated.iter().for_each(|at| add("--worker", &at.url));
        } else {
            addresses.router.iter().for_each(|url| add("--router", url));
            for at in &addresses.prefill {
                let port = at.bootstrap_port.map_or_else(String::new, |port| format!(" {port}"));
                add("--prefill", &format!("{}{port}", at.url));
            }
            addresses.decode.iter().for_each(|at| add("--decode", &at.url));
        }
        add("--emulation-speed", &self.scenario.live.emulation_speed.to_string());
        words.iter().map(|word| format!(" {word}")).collect()
    }

    /// How long the scenario's own trace takes, where that is long.
    fn length(&self) -> Option<String> {
        let trace = generate_trace(&self.scenario).ok()?;
        let takes_s = preflight(&self.scenario, &trace).planned_s / self.scenario.live.emulation_speed;
        (takes_s > LONG_S).then(|| {
            let takes = seconds(takes_s * 1e3);
            let faster = faster(self.scenario.replay.think_scale);
            format!("           {takes} with the scenario's own trace; name a trace file, or {faster}")
        })
    }
}

/// What to add for a run ten times as fast as at the scenario's own `scale`.
fn faster(scale: f64) -> String {
    if scale == 1.0 {
        "add --time-scale 10".to_owned()
    } else {
        format!("add --time-scale {} (now {scale})", scale * 10.0)
    }
}

/// As a word of a shell's command line.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_scale_is_named_that_is_faster_than_the_scenarios() {
        assert_eq!(faster(1.0), "add --time-scale 10");
        assert_eq!(faster(10.0), "add --time-scale 100 (now 10)");
        assert_eq!(faster(0.5), "add --time-scale 5 (now 0.5)");
    }

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quoted("http://127.0.0.1:9000"), "http://127.0.0.1:9000");
        assert_eq!(quoted("http://127.0.0.1:9001 8998"), "'http://127.0.0.1:9001 8998'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
