//! Sweep files: their points in order, and every refusal by its line.

use std::path::Path;

use super::file::parse;
use super::*;
use crate::policies::PolicyName;
use crate::replay::Mechanism;

fn read(text: &str) -> Sweep {
    parse("x.toml", text, Path::new(""), &SweepFlags::default()).unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(text: &str) -> String {
    parse("x.toml", text, Path::new(""), &SweepFlags::default()).unwrap_err().to_string()
}

fn rows(sweep: &Sweep) -> Vec<String> {
    sweep.points.iter().map(|point| sweep.labels(point).join(" ")).collect()
}

#[test]
fn points_come_in_the_order_of_the_file_the_last_axis_fastest() {
    let sweep = read("[axes]\npolicy = ['sticky', 'kv-aware']\ncap = [8, 2]\n'replay.time_scale' = [1.5, 'inf']");
    let wanted = [
        "sticky 8 1.5",
        "sticky 8 inf",
        "sticky 2 1.5",
        "sticky 2 inf",
        "kv-aware 8 1.5",
        "kv-aware 8 inf",
        "kv-aware 2 1.5",
        "kv-aware 2 inf",
    ];
    assert_eq!(rows(&sweep), wanted);
    let last = sweep.points[7].scenario.as_ref().unwrap();
    assert_eq!((last.policy.name, last.admission.cap_max), (PolicyName::KvAware, 2));
    assert_eq!((last.replay.arrival_scale, last.replay.think_scale), (f64::INFINITY, f64::INFINITY));
    let numbers: Vec<Option<f64>> = sweep.axes[2].values.iter().map(|value| value.number).collect();
    assert_eq!(numbers, [Some(1.5), None]);
    assert_eq!((sweep.head.name.as_str(), sweep.seeds.as_slice(), sweep.cells()), ("x", &[42][..], 8));
}

#[test]
fn dotted_nested_and_quoted_keys_are_the_same() {
    for text in
        ["[axes]\nadmission.cap_max = [4]", "[axes.admission]\ncap_max = [4]", "[axes]\n'admission.cap_max' = [4]"]
    {
        let sweep = read(text);
        assert_eq!((sweep.axes[0].key.as_str(), rows(&sweep)), ("admission.cap_max", vec!["4".to_owned()]));
    }
}

#[test]
fn repeats_take_the_next_seeds_and_jitter_where_there_is_none() {
    let jitter = |sweep: &Sweep| sweep.points[0].scenario.as_ref().unwrap().replay.arrival_jitter_ms;
    let sweep = read("[sweep]\nrepeats = 2\n[axes]\nseed = [1, 10]");
    assert_eq!((sweep.seeds.as_slice(), sweep.axes.len(), jitter(&sweep)), (&[1, 2, 10, 11][..], 0, 1.0));
    assert_eq!(jitter(&read("[axes]\ncap = [4]")), 0.0);
    assert_eq!(jitter(&read("[sweep]\nrepeats = 2\njitter_ms = 0\n[axes]\ncap = [4]")), 0.0);
    assert_eq!(jitter(&read("[sweep]\nrepeats = 2\n[set]\nreplay.arrival_jitter_ms = 0.0\n[axes]\ncap = [4]")), 0.0);
    assert_eq!(jitter(&read("[sweep]\njitter_ms = 7\n[axes]\ncap = [4]")), 7.0);
    assert_eq!(read("[set]\nseed = 5\n[axes]\ncap = [4]").seeds, [5]);
}

#[test]
fn a_topology_brings_what_it_needs_unless_the_file_says_otherwise() {
    let sweep = read("[sweep]\nscenario = 'v3-1p7d'\n[axes]\ntopology = ['2p6d', 'dp8', '4W']");
    let shape = |point: &Point| {
        let scenario = point.scenario.as_ref().unwrap();
        let cluster = &scenario.cluster;
        (cluster.prefill, cluster.decode, cluster.colocated, scenario.replay.mechanism, scenario.policy.name)
    };
    let shapes: Vec<_> = sweep.points.iter().map(shape).collect();
    let dp = |workers| (0, 0, workers, Mechanism::Dp, PolicyName::CacheAware);
    assert_eq!(shapes, [(2, 6, 0, Mechanism::Kvc, PolicyName::KvAware), dp(8), dp(4)]);
    let said = read("[set]\npolicy = 'sticky'\n[axes]\ntopology = ['dp8']");
    assert_eq!(shape(&said.points[0]).4, PolicyName::Sticky);
}

#[test]
fn a_scenario_may_be_an_axis() {
    let sweep = read("[set]\nengine.kv_pool_tokens = 90000\n[axes]\nscenario = ['v3-1p7d', 'dp8']\ncap = [2]");
    let names: Vec<_> = sweep.points.iter().map(|point| point.scenario.as_ref().unwrap()).collect();
    assert_eq!(
        names.iter().map(|s| (s.name.as_str(), s.admission.cap_max)).collect::<Vec<_>>(),
        [("v3-1p7d", 2), ("dp8", 2)]
    );
    assert!(names.iter().all(|scenario| scenario.engine.kv_pool_tokens == 90_000));
}

#[test]
fn cells_are_taken_out_and_added() {
    let sweep = read(
        "[axes]\npolicy = ['sticky', 'kv-aware']\ncap = [2, 4]\n\
         [[exclude]]\npolicy = 'sticky'\ncap = [4]\n[[cell]]\npolicy = 'sticky'\ncap = 64",
    );
    assert_eq!(rows(&sweep), ["sticky 2", "kv-aware 2", "kv-aware 4", "sticky 64"]);
    let listed = read("[[cell]]\npolicy = 'sticky'\ncap = 2\n[[cell]]\npolicy = 'kv-aware'\ncap = 4");
    assert_eq!(rows(&listed), ["sticky 2", "kv-aware 4"]);
}

#[test]
fn a_point_that_is_refused_is_a_point_with_its_error() {
    let sweep = read("[axes]\nengine.chunk_tokens = [8192, 0]");
    let refused = sweep.points[1].scenario.as_ref().unwrap_err().to_string();
    assert!(sweep.points[0].scenario.is_ok() && refused.starts_with("x.toml:2:30: `engine.chunk_tokens`"), "{refused}");
}

#[test]
fn every_refusal_names_its_line_its_cause_and_a_way_out() {
    let cases = [
        ("[axes]\ncapp = [4]", "x.toml:2:1: unknown key `capp` in [axes]; did you mean `cap`?"),
        ("[axes]\nadmission.cap_maxx = [4]", "did you mean `admission.cap_max`?"),
        ("[axes]\ncap = []", "x.toml:2:1: `cap` has no values; give at least one"),
        ("[axes]\ncap = 4", "x.toml:2:1: `cap` is 4, but must be a list of values, such as `cap = [4]`"),
        ("[axes]\ncap = [4,\n 'x']", "x.toml:3:2: `admission.cap_max` is the string \"x\", but must be a whole number"),
        ("[axes]\ncap = [4, 2, 4]", "x.toml:2:14: `cap` has the value 4 twice; leave one out"),
        (
            "[axes]\ncap = [4]\nadmission.cap_max = [2]",
            "x.toml:3:11: `admission.cap_max` and the axis `cap` set the same key",
        ),
        ("[axes]\ncap = [4]\n[set]\ncap = 2", "x.toml:4:1: `cap` and the axis `cap` set the same key"),
        ("[axes]\nadmission = [4]", "`admission` is a table; name a key in it, such as `admission."),
        ("[axes]\nextends = ['a']", "unknown key `extends`"),
        (
            "[axes]\ntopology = ['2d6p']",
            "x.toml:2:13: `topology` is \"2d6p\"; write prefill and decode workers as in 2p6d",
        ),
        ("[axes]\npolicy = ['kvaware']", "x.toml:2:11: `policy.name` is \"kvaware\"; did you mean `kv-aware`?"),
        ("[axes]\ntime_scale = [0]", "x.toml:2:15: `replay.time_scale` is 0"),
        (
            "[sweep]\nrepeat = 3\n[axes]\ncap = [4]",
            "x.toml:2:1: unknown key `repeat` in [sweep]; did you mean `repeats`?",
        ),
        (
            "[sweep]\nrepeats = 0\n[axes]\ncap = [4]",
            "x.toml:2:1: `sweep.repeats` is 0, but must be a whole number from 1",
        ),
        ("[sweep]\nname = 'a/b'\n[axes]\ncap = [4]", "x.toml:2:1: `sweep.name` is \"a/b\", which cannot name a folder"),
        (
            "[sweep]\nscenario = 'v3-1p8d'\n[axes]\ncap = [4]",
            "x.toml:2:1: no scenario is called `v3-1p8d`; did you mean `v3-1p7d`?",
        ),
        ("[sweep]\nrepeats = 3\n[axes]\nseed = [1, 2]", "`axes.seed` with repeats = 3 runs seed 2 twice"),
        (
            "[sweeps]\n[axes]\ncap = [4]",
            "x.toml:1:2: unknown key `sweeps` in the top level of a sweep; did you mean `sweep`?",
        ),
        ("[sweep]\nname = 'a'", "`axes` is missing; write for example `[axes]`"),
        ("[axes]\ncap = [4]\n[[exclude]]\ncap = 5", "x.toml:4:1: `cap` is \"5\"; allowed: 4"),
        ("[axes]\ncap = [4]\n[[exclude]]\npolicy = 'sticky'", "x.toml:4:1: unknown key `policy` in [[exclude]]"),
        ("[axes]\ncap = [4]\n[[exclude]]\ncap = 4", "leave no cell: all of them are excluded"),
        ("[axes]\ncap = [4]\n[[exclude]]", "x.toml:3:1: [[exclude]] names no axis"),
        ("[axes]\ncap = [4]\n[[cell]]\ncap = 4", "this cell is there already"),
        (
            "[axes]\ncap = [4]\npolicy = ['sticky']\n[[cell]]\ncap = 8",
            "`policy` is missing; a cell has a value on each axis",
        ),
        ("[set]\ntopology = '2p6d'\n[axes]\ncap = [4]", "`topology` is not for [set]"),
        (
            "[axes]\ncap = [1,2,3,4,5,6,7,8,9,10,11]\nseed = [1]\n[sweep]\nrepeats = 1000",
            "span 11000 cells, and a sweep has 10000 at most",
        ),
    ];
    for (text, wanted) in cases {
        let refused = refusal(text);
        assert!(refused.contains(wanted), "{text}\n  gives  {refused}\n  wanted {wanted}");
    }
}

#[test]
fn flags_stand_over_the_file() {
    let flags = |set: &str, repeats| SweepFlags { set: vec![Overlay::set(set).unwrap()], repeats };
    let text = "[axes]\ncap = [4]";
    let sweep = parse("x.toml", text, Path::new(""), &flags("engine.kv_pool_tokens=90000", Some(2))).unwrap();
    assert_eq!((sweep.points[0].scenario.as_ref().unwrap().engine.kv_pool_tokens, sweep.seeds.len()), (90_000, 2));
    let refused = parse("x.toml", text, Path::new(""), &flags("admission.cap_max=8", None)).unwrap_err().to_string();
    assert!(refused.starts_with("--set admission.cap_max=8: `admission.cap_max` and the axis `cap` set"), "{refused}");
}

#[test]
fn every_shipped_sweep_loads_and_none_of_its_points_is_refused() {
    for name in crate::scenario::shipped_sweeps() {
        let sweep = load_sweep(name, &SweepFlags::default()).unwrap();
        assert!(sweep.head.name == name && !sweep.head.description.is_empty(), "{name}");
        for point in &sweep.points {
            let scenario = point.scenario.as_ref().unwrap_or_else(|error| panic!("{name}: {error}"));
            let refused = crate::scenario::conflicts(scenario)
                .into_iter()
                .any(|c| c.severity == crate::scenario::Severity::Refuse);
            assert!(!refused, "{name}: {:?}", sweep.labels(point));
        }
    }
    assert_eq!(load_sweep("cap-policy", &SweepFlags::default()).unwrap().cells(), 240);
    let refused = load_sweep("cap-polcy", &SweepFlags::default()).unwrap_err().to_string();
    assert!(refused.contains("no sweep is called `cap-polcy`; did you mean `cap-policy`?"), "{refused}");
}
