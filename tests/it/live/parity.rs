//! The same scenario in virtual time and over loopback sockets: the same decisions, nearly the same latencies.
//!
//! What is decided must be equal record by record. Latencies may differ by what sockets and a busy machine add: they are
//! held from below tightly and from above loosely, in times of the run, which goes ten times faster than the wall's. Each
//! of these tests has the machine to itself.

use std::collections::BTreeMap;

use serde_json::Value;

use super::support::run::{UNTIMED, row};
use crate::cli::records;
use crate::run::Scratch;
use crate::turn::alone;

const SPEED: &str = "10";

/// Time between two turns of any sessions, seconds of the run: 200 ms of the wall's, ten times what a turn takes.
const APART_S: f64 = 2.0;

/// Three sessions of four turns; every turn has ended long before the next one of any session is due.
fn golden() -> String {
    let turns = |session: &str, at_s: f64| -> String {
        (0..4).map(|turn| row(session, turn, at_s + 3.0 * APART_S * f64::from(turn), 700 + 320 * turn, 12)).collect()
    };
    ["a", "b", "c"].iter().zip([0.0, APART_S, 2.0 * APART_S]).map(|(session, at_s)| turns(session, at_s)).collect()
}

struct Both {
    sim: Vec<Value>,
    live: Vec<Value>,
}

impl Both {
    fn play(settings: &[&str]) -> Both {
        let scratch = Scratch::new();
        scratch.write("trace.jsonl", &golden());
        let play = |name: &str, more: &[&str]| {
            let sets: Vec<&str> = settings.iter().flat_map(|setting| ["--set", *setting]).collect();
            let args = [&["replay", "trace.jsonl", "-q", "--allow-conflict", "--name", name], more, &sets].concat();
            // A late send on a busy machine breaks a budget, which is not what is tested.
            let ran = scratch.run(&[&args[..], &UNTIMED].concat()).code(0);
            assert!(ran.stderr.is_empty(), "{}", ran.stderr);
            let mut found = records(&scratch, &format!("outputs/{name}"));
            found.sort_by_key(|record| record["request_id"].as_str().unwrap().to_owned());
            found
        };
        let sim = play("sim", &[]);
        let live = play("live", &["--target", "live", "--emulation-speed", SPEED]);
        let prompts = &scratch.json("outputs/live/run.json")["facts"]["harness"]["prompts"];
        assert_eq!((&prompts["compared"], &prompts["differing"]), (&live.len().into(), &0.into()), "whole contexts");
        Both { sim, live }
    }

    #[track_caller]
    fn decide_alike(&self) -> &Both {
        const FIELDS: [&str; 13] = [
            "request_id",
            "execution_mode",
            "mode_reason",
            "decode_worker_intended",
            "decode_worker_actual",
            "prefill_worker",
            "route_mismatch",
            "placements",
            "append_tokens",
            "cached_tokens",
            "assumed_hit_tokens",
            "output_tokens",
            "outcome",
        ];
        assert_eq!(self.sim.len(), self.live.len());
        for (sim, live) in self.sim.iter().zip(&self.live) {
            let of = |record: &Value| FIELDS.map(|field| (field, record[field].clone()));
            assert_eq!(of(sim), of(live), "virtual and live differ");
        }
        self
    }

    /// Quantiles of a latency: the live ones are no smaller but for rounding, and larger by at most so much: the median
    /// by `at_most_ms`, the ninth decile by twice that.
    #[track_caller]
    fn takes_alike(&self, field: &str, at_most_ms: f64) -> &Both {
        let quantile = |records: &[Value], share: f64| {
            let mut values: Vec<f64> = records.iter().map(|record| record[field].as_f64().unwrap()).collect();
            values.sort_by(f64::total_cmp);
            values[(share * values.len() as f64) as usize]
        };
        for (share, more) in [(0.5, at_most_ms), (0.9, 2.0 * at_most_ms)] {
            let (sim, live) = (quantile(&self.sim, share), quantile(&self.live, share));
            assert!(live > 0.95 * sim - 1.0, "{field} at {share}: live {live} ms is below virtual {sim} ms");
            assert!(live < sim + more, "{field} at {share}: live {live} ms is far above virtual {sim} ms");
        }
        self
    }
}

/// 800 ms of the run are 80 ms of the wall's: more than ten sends and receives take on a machine that others use as well.
fn alike(settings: &[&str]) -> Both {
    let _alone = alone();
    let both = Both::play(settings);
    both.decide_alike().takes_alike("ttft_ms", 800.0).takes_alike("e2e_ms", 1000.0);
    both
}

fn modes(both: &Both) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for record in &both.live {
        *counts.entry(record["execution_mode"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    counts
}

const P1D2: &str = "cluster={prefill=1, decode=2}";

#[test]
fn sessions_on_d_by_kv_aware() {
    let both = alike(&[P1D2, "replay.mechanism=kvc", "policy.name=kv-aware"]);
    let wanted = [("kvcache-direct-to-d-session", 6), ("kvcache-seed", 3), ("pd-router-turn1", 3)];
    assert_eq!(modes(&both), wanted.map(|(mode, count)| (mode.to_owned(), count)).into());
}

#[test]
fn sessions_that_find_no_slot() {
    let both = alike(&[P1D2, "replay.mechanism=kvc", "policy.name=kv-aware", "admission.cap_max=1"]);
    assert_eq!(modes(&both)["pd-router-fallback-large-append-session-cap"], 3, "{:?}", modes(&both));
}

#[test]
fn plain_pd_by_default_and_by_sticky() {
    alike(&[P1D2, "replay.mechanism=pd", "policy.name=default"]);
    alike(&[P1D2, "replay.mechanism=pd", "policy.name=sticky"]);
}

#[test]
fn colocated_workers_by_cache_aware() {
    let settings = ["cluster={prefill=0, decode=0, colocated=2}", "replay.mechanism=dp", "policy.name=cache-aware"];
    alike(&settings);
}

#[test]
fn legs_joined_by_the_client() {
    alike(&[P1D2, "replay.mechanism=kvc", "policy.name=kv-aware", "live.legs=direct"]);
}

/// Idle, and with hits that weigh nothing, P and D take turns, each by its own count: P0 P1 P0 …, D0 D1 D2 D0 ….
#[test]
fn both_legs_by_car_through_the_router_and_by_the_client() {
    let _alone = alone();
    for legs in ["live.legs=router", "live.legs=direct"] {
        let car = ["policy.name=car", "policy.car.prefill_lambda=0", "replay.mechanism=pd", legs];
        let both = Both::play(&[&["cluster={prefill=2, decode=3}"], &car[..]].concat());
        both.decide_alike();
        let mut records: Vec<&Value> = both.live.iter().collect();
        records.sort_by_key(|record| record["sent_ns"].as_u64().unwrap());
        let legs = |record: &&Value| {
            format!(
                "{}{}",
                record["prefill_worker"].as_str().unwrap(),
                record["decode_worker_actual"].as_str().unwrap()
            )
        };
        let found: Vec<String> = records.iter().map(legs).collect();
        let wanted: Vec<String> = (0..12).map(|at| format!("P{}D{}", at % 2, at % 3)).collect();
        assert_eq!(found, wanted);
    }
}

/// With the streams of both runs in step, hits and choices are the same: what the wire takes is far below the time between
/// two turns.
#[test]
fn car_by_what_the_index_holds() {
    let _alone = alone();
    let settings = ["cluster={prefill=2, decode=2}", "policy.name=car", "replay.mechanism=pd", "live.legs=direct"];
    let both = Both::play(&settings);
    both.decide_alike();
    let fields = ["index_hit_tokens_device", "index_hit_tokens_host_only", "index_blind"];
    for (sim, live) in both.sim.iter().zip(&both.live) {
        let of = |record: &Value| fields.map(|field| record[field].clone());
        assert_eq!(of(sim), of(live), "{}", sim["request_id"]);
    }
    assert!(both.live.iter().any(|record| record["index_hit_tokens_device"].as_u64() > Some(0)));
}
