//! Scenario files as a user meets them: what ships, what is refused and in which words, what the flags do.

use std::fs;
use std::path::PathBuf;

use pdreplay::cluster::FaultKind;
use pdreplay::policies::PolicyName;
use pdreplay::replay::Mechanism;
use pdreplay::scenario::{
    Overlay, Scenario, ScenarioError, Severity, conflicts, fault_fields, fault_label, load, load_text, resolve_router,
    schema, shipped_scenarios, validate,
};
use proptest::prelude::*;
use serde_json::Value;

use crate::run::Scratch;

fn root(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("scenario-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("the folder of test files can be made");
    folder
}

fn resolved_default() -> Scenario {
    let mut scenario = Scenario::default();
    resolve_router(&mut scenario);
    scenario
}

fn set(assignments: &[&str]) -> Result<Scenario, ScenarioError> {
    let overlays = assignments.iter().map(|text| Overlay::set(text)).collect::<Result<Vec<_>, _>>()?;
    load(None, &overlays)
}

fn refusal(result: Result<Scenario, ScenarioError>) -> String {
    result.expect_err("should be refused").to_string()
}

#[test]
fn default_toml_is_the_built_in_default() {
    let text = fs::read_to_string(root("scenarios/default.toml")).unwrap();
    let scenario = load_text("default.toml", &text).unwrap();
    assert_eq!(scenario, resolved_default());
    assert_eq!((scenario.cluster.prefill, scenario.cluster.decode), (2, 6));
    assert_eq!((scenario.replay.mechanism, scenario.policy.name), (Mechanism::Kvc, PolicyName::KvAware));
    assert_eq!(load(None, &[]).unwrap(), scenario);
}

/// Every table of the schema with its keys, `""` for the top level.
fn keys(schema: &Value, at: &Value, path: &str, into: &mut Vec<(String, String)>) {
    let target = at.get("$ref").and_then(Value::as_str).and_then(|to| schema.pointer(&to[1..])).unwrap_or(at);
    let item = target.get("items").filter(|item| item.get("$ref").is_some());
    if let Some(item) = item {
        return keys(schema, item, path, into);
    }
    for (key, value) in target.get("properties").and_then(Value::as_object).into_iter().flatten() {
        into.push((path.into(), key.clone()));
        keys(schema, value, key, into);
    }
}

#[test]
fn default_toml_shows_every_key_in_its_table() {
    let text = fs::read_to_string(root("scenarios/default.toml")).unwrap();
    let mut shown = Vec::new();
    let mut table = String::new();
    for line in text.lines() {
        let line = line.trim_start_matches("# ").trim();
        if let Some(header) = line.strip_prefix('[') {
            let name = header.trim_start_matches('[').split(']').next().unwrap();
            table = name.rsplit('.').next().unwrap().into();
            let parent = name.rsplit('.').nth(1).unwrap_or("");
            shown.push((parent.into(), table.clone()));
        } else if let Some((key, _)) = line.split_once(" = ") {
            shown.push((table.clone(), key.into()));
        }
    }
    let schema = schema();
    let mut wanted = Vec::new();
    keys(&schema, &schema, "", &mut wanted);
    assert!(wanted.len() > 90, "the schema was walked: {} keys", wanted.len());
    let missing: Vec<_> = wanted.iter().filter(|key| !shown.contains(key)).collect();
    assert!(missing.is_empty(), "scenarios/default.toml lacks {missing:?}");
}

#[test]
fn the_docs_have_the_fields_of_every_kind_of_fault() {
    let docs = fs::read_to_string(root("docs/scenarios.md")).unwrap();
    let schema = schema();
    let kinds = schema["$defs"]["FaultKind"]["oneOf"].as_array().unwrap();
    assert!(!kinds.is_empty());
    for kind in kinds {
        let kind: FaultKind = serde_json::from_value(kind["const"].clone()).unwrap();
        let label = fault_label(kind);
        let row = docs.lines().find(|line| line.starts_with(&format!("| `{label}` |")));
        let row = row.unwrap_or_else(|| panic!("docs/scenarios.md has no row for {label}"));
        let fields = fault_fields(kind);
        let roles: Vec<String> = fields.roles.iter().map(|role| role.letter().to_string()).collect();
        assert_eq!(row.split('|').nth(2).unwrap().trim(), roles.join(", "), "{label}");
        let mut listed: Vec<&str> = row.split('`').skip(3).step_by(2).collect();
        let mut wanted: Vec<&str> = fields.needs.iter().chain(fields.takes).copied().collect();
        listed.sort_unstable();
        listed.dedup();
        wanted.sort_unstable();
        assert_eq!(listed, wanted, "{label}");
    }
}

#[test]
fn the_published_schema_is_the_one_of_the_code() {
    let path = root("docs/scenario.schema.json");
    let ours = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("PDREPLAY_BLESS").is_some() {
        fs::write(&path, &ours).unwrap();
    }
    let published = fs::read_to_string(&path).unwrap();
    assert!(published == ours, "docs/scenario.schema.json is old; run the tests once with PDREPLAY_BLESS=1");
}

#[test]
fn every_shipped_file_loads_by_name_and_by_path_alike() {
    let mut files: Vec<String> = fs::read_dir(root("scenarios"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter_map(|name| name.strip_suffix(".toml").map(String::from))
        .collect();
    files.sort();
    let mut shipped: Vec<String> = shipped_scenarios().map(String::from).collect();
    shipped.sort();
    assert_eq!(files, shipped);
    for name in &files {
        let path = root("scenarios").join(format!("{name}.toml"));
        let by_path = load(path.to_str(), &[]).unwrap();
        assert_eq!(by_path, load(Some(name), &[]).unwrap());
        assert_eq!(&by_path.name, name);
        assert!(!by_path.description.is_empty() || name == "default", "{name} says what it is");
        let refused = conflicts(&by_path).iter().any(|conflict| conflict.severity == Severity::Refuse);
        assert_eq!(refused, name.starts_with("v2-"), "{name}: {:?}", conflicts(&by_path));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("#:schema "), "{name} names its schema for editors");
    }
}

#[test]
fn the_published_conditions_are_in_the_files() {
    let shape = |name: &str| {
        let s = load(Some(name), &[]).unwrap();
        let c = &s.cluster;
        (c.prefill, c.decode, c.colocated, s.admission.cap_max, s.replay.arrival_scale, s.replay.concurrency)
    };
    assert_eq!(shape("v2-1p7d"), (1, 7, 0, 4, 10.0, 32));
    assert_eq!(shape("v2-2p6d"), (2, 6, 0, 4, 10.0, 32));
    assert_eq!(shape("v3-1p7d"), (1, 7, 0, 4, 10.0, 32));
    assert_eq!(shape("v3-2p6d-x1"), (2, 6, 0, 4, 1.0, 32));
    assert_eq!(shape("v4-1p7d"), (1, 7, 0, 16, 10.0, 32));
    assert_eq!(shape("v5-2p6d"), (2, 6, 0, 4, 10.0, 32));
    assert_eq!(shape("dp8"), (0, 0, 8, 4, 10.0, 32));
    assert_eq!(shape("burst-cap4"), (1, 7, 0, 4, 1.0, 0));
    assert_eq!(load(Some("v3-2p6d-x1"), &[]).unwrap().replay.think_scale, 1.0);
}

#[test]
fn presets_set_all_constants_and_keys_beside_them_override_one() {
    let text = "[engine.timing]\npreset = \"flat-50k\"\np0 = 3\n[cluster.link]\npreset = \"rdma\"\nsetup_us = 7";
    let scenario = load_text("x.toml", text).unwrap();
    let timing = &scenario.engine.timing;
    assert_eq!((timing.p0, timing.p1, timing.p2, timing.d0), (3.0, 0.02, 0.0, 3.843));
    assert_eq!((scenario.cluster.link.gbytes_per_s, scenario.cluster.link.setup_us), (24.6, 7));
    for (name, rate) in [("mooncake-tcp", 2.5), ("rdma", 24.6), ("nvlink", 200.0)] {
        let scenario = set(&[&format!("cluster.link.preset={name}")]).unwrap();
        assert_eq!(scenario.cluster.link.gbytes_per_s, rate);
    }
    let default = set(&["engine.timing.preset=h100-qwen3-30b-a3b-tp1", "cluster.link.preset=mooncake-tcp"]).unwrap();
    assert_eq!(default, resolved_default(), "the preset files equal the built-in constants");
}

#[test]
fn a_preset_may_be_a_file_beside_the_scenario() {
    let folder = folder("preset");
    fs::write(folder.join("link.toml"), "setup_us = 5\ngbytes_per_s = 50").unwrap();
    let text = "[cluster.link]\npreset = \"link.toml\"";
    fs::write(folder.join("a.toml"), text).unwrap();
    let scenario = load(folder.join("a.toml").to_str(), &[]).unwrap();
    assert_eq!((scenario.cluster.link.setup_us, scenario.cluster.link.gbytes_per_s), (5, 50.0));
    let again = load_text("elsewhere/run.toml", &scenario.to_toml().unwrap()).unwrap();
    assert_eq!(again, scenario, "a resolved scenario does not need the preset's file");
    fs::write(folder.join("link.toml"), "setup_us = 5").unwrap();
    let shown = folder.join("link.toml").display().to_string();
    assert_eq!(
        refusal(load(folder.join("a.toml").to_str(), &[])),
        format!("{shown}: `gbytes_per_s` is missing; a link preset file states all of gbytes_per_s, setup_us")
    );
}

#[test]
fn later_sources_win_key_by_key() {
    let folder = folder("merge");
    fs::write(folder.join("base.toml"), "[replay]\ntime_scale = 10\nconcurrency = 8\n[admission]\ncap_max = 2")
        .unwrap();
    fs::write(folder.join("child.toml"), "extends = \"./base.toml\"\n[replay]\nthink_scale = 1").unwrap();
    let overlays = [
        Overlay::shorthand("--policy", "policy.name", "sticky"),
        Overlay::set("admission.cap_max=16").unwrap(),
        Overlay::set("policy.name=default").unwrap(),
    ];
    let scenario = load(folder.join("child.toml").to_str(), &overlays).unwrap();
    assert_eq!((scenario.replay.arrival_scale, scenario.replay.think_scale), (10.0, 1.0));
    assert_eq!((scenario.replay.concurrency, scenario.admission.cap_max), (8, 16));
    assert_eq!(scenario.policy.name, PolicyName::Default);
}

#[test]
fn files_that_extend_each_other_are_refused() {
    let folder = folder("circle");
    fs::write(folder.join("a.toml"), "extends = \"b.toml\"").unwrap();
    fs::write(folder.join("b.toml"), "seed = 1\nextends = \"../x/../a.toml\"").unwrap();
    fs::write(folder.join("c.toml"), "extends = \"nowhere.toml\"").unwrap();
    fs::write(folder.join("b.toml"), "seed = 1\nextends = \"./a.toml\"").unwrap();
    let at = folder.display();
    assert_eq!(
        refusal(load(folder.join("a.toml").to_str(), &[])),
        format!(
            "{at}/b.toml:2:1: `extends` runs in a circle: {at}/a.toml → {at}/b.toml → {at}/a.toml; remove one of them"
        )
    );
    let text = refusal(load(folder.join("c.toml").to_str(), &[]));
    assert!(text.starts_with(&format!("{at}/nowhere.toml: no such file; ")), "{text}");
}

#[test]
fn bad_files_are_named_with_cause_and_remedy() {
    let folder = folder("bad");
    fs::write(folder.join("empty.toml"), " \n").unwrap();
    fs::write(folder.join("latin.toml"), b"name = \"caf\xe9\"").unwrap();
    let at = folder.display();
    for (file, message) in [
        ("", ": is a folder, not a scenario file; name a `.toml` file inside it"),
        ("/empty.toml", "/empty.toml: is empty; write a scenario into it, or leave `--scenario` out for the defaults"),
        ("/latin.toml", "/latin.toml: byte 11 is not UTF-8; save the file as UTF-8 text"),
    ] {
        let path = format!("{at}{file}");
        assert_eq!(refusal(load(Some(&path), &[])), format!("{at}{message}"));
    }
    let text = refusal(load(Some("v3-1p7"), &[]));
    let wanted =
        "--scenario v3-1p7: no scenario is called `v3-1p7`; did you mean `v3-1p7d`? write one of default, v2-1p7d";
    assert!(text.starts_with(wanted), "{text}");
    assert!(
        text.ends_with(", burst-cap4, live-embedded, live-sglang, live-openai, or the path of a `.toml` file"),
        "{text}"
    );
}

#[test]
fn bad_text_is_refused_at_its_place() {
    let table: &[(&str, &str)] = &[
        ("[admission]\ncap_mx = 3", "x.toml:2:1: unknown key `cap_mx` in [admission]; did you mean `cap_max`?"),
        ("polcy = 1", "x.toml:1:1: unknown key `polcy` in the top level; did you mean `policy`?"),
        (
            "[integrity]\nzzz = 1",
            "x.toml:2:1: unknown key `zzz` in [integrity]; known keys: max_bad_share, max_harness_pause_ms, max_schedule_lag_p99_ms",
        ),
        (
            "[admission]\n  cap_max = \"four\"",
            "x.toml:2:3: `admission.cap_max` is the string \"four\", but must be a whole number from 0 to 4294967295, \
             without quotes",
        ),
        (
            "[admission]\ncap_max = -1",
            "x.toml:2:1: `admission.cap_max` is -1, but must be a whole number from 0 to 4294967295, without quotes",
        ),
        (
            "cluster.prefill = 70000",
            "x.toml:1:9: `cluster.prefill` is 70000, but must be a whole number from 0 to 65535, without quotes",
        ),
        ("name = 3", "x.toml:1:1: `name` is 3, but must be a string in quotes"),
        ("admission = 3", "x.toml:1:1: `admission` is 3, but must be a table"),
        (
            "[policy]\nname = \"kvaware\"",
            "x.toml:2:1: `policy.name` is \"kvaware\"; did you mean `kv-aware`? allowed: default, sticky, kv-aware, \
             cache-aware, car",
        ),
        ("[replay]\nmechanism = \"zzz\"", "x.toml:2:1: `replay.mechanism` is \"zzz\"; allowed: dp, pd, kvc"),
        (
            "seed = 9223372036854775808",
            "x.toml:1:8: not valid TOML: whole numbers end at 9223372036854775807; write a smaller one",
        ),
        ("seed = 1\nseed = 2", "x.toml:2:1: not valid TOML: duplicate key"),
        (
            "[replay]\ntime_scale = 2\nthink_scale = 1",
            "x.toml:2:1: `replay.time_scale` sets `replay.think_scale` too; give `time_scale`, or the two scales",
        ),
        (
            "[replay]\narrival_scale = 0",
            "x.toml:2:1: `replay.arrival_scale` is 0; write a number from 1e-6 to 1e9, or inf; 10 is ten times faster, 0.5 half \
             as fast",
        ),
        (
            "[cluster.link]\npreset = \"tcp\"",
            "x.toml:2:1: no link preset is called `tcp`; write one of mooncake-tcp, rdma, nvlink, or the path of a `.toml` \
             file",
        ),
        (
            "[[fault]]\nat_s = 1",
            "x.toml:1:1: `fault[0].kind` is missing; write one of kill, restart, leave, join, slow-worker, slow-link, \
             transfer-failure, hang, admission-timeout, error-response, open-failure, router-restart, kv-event-drop, \
             kv-event-duplicate, kv-event-reorder, publisher-restart, kv-endpoint-wrong",
        ),
        (
            "[[fault]]\nkind = \"kill\"\nworker = \"D6\"",
            "x.toml:3:1: `fault[0].worker` names D6, but there are only D0 to D5; workers are counted from 0; name one that \
             exists",
        ),
        (
            "[[fault]]\nkind = \"kill\"\nworker = \"D0\"\nfactr = 3",
            "x.toml:4:1: unknown key `factr` in [fault[0]]; did you mean `factor`?",
        ),
    ];
    for (text, message) in table {
        assert_eq!(&refusal(load_text("x.toml", text)), message, "for {text}");
    }
}

#[test]
fn all_problems_of_a_file_are_told_at_once() {
    let text = "[admission]\ncap_mx = 3\nfootprnt = \"full\"\n[replay]\nmechanism = \"kv\"";
    assert_eq!(refusal(load_text("x.toml", text)).lines().count(), 3);
}

#[test]
fn flags_are_named_in_refusals() {
    for (assignment, message) in [
        (
            "admission.cap_max",
            "--set admission.cap_max: `admission.cap_max` is not KEY=VALUE; write for example admission.cap_max=16 (keys of \
             nested tables joined by dots)",
        ),
        (
            "admission.cap_mx=3",
            "--set admission.cap_mx=3: unknown key `cap_mx` in [admission]; did you mean `cap_max`?",
        ),
        (
            "admission.cap_max=many",
            "--set admission.cap_max=many: `admission.cap_max` is the string \"many\", but must be a whole number from 0 to \
             4294967295, without quotes",
        ),
        (
            "seed=18446744073709551615",
            "--set seed=18446744073709551615: `seed` is 18446744073709551615, which a scenario (TOML) cannot hold: \
             whole numbers end at 9223372036854775807, others at 1.8e308; write a smaller one",
        ),
        (
            "replay.max_gap_s=1e400",
            "--set replay.max_gap_s=1e400: `replay.max_gap_s` is 1e400, which a scenario (TOML) cannot hold: whole numbers \
             end at 9223372036854775807, others at 1.8e308; write a smaller one",
        ),
        (
            "policy.car.host_hit_weight=-.5",
            "--set policy.car.host_hit_weight=-.5: `policy.car.host_hit_weight` is -.5, and a number begins with a digit \
             (TOML); write -0.5",
        ),
        (
            "seed=9223372036854775807",
            "--set seed=9223372036854775807: `seed` is 9223372036854775807; write at most 9223372036854774807",
        ),
        ("admission.cap_max=0", "--set admission.cap_max=0: `admission.cap_max` is 0; write at least 1"),
        ("extends=a.toml", "--set extends=a.toml: `extends` belongs into a file; give the file itself as the scenario"),
        (
            "replay.mechanism=dp",
            "built-in default: `cluster.colocated` is 0, but mechanism `dp` runs on colocated workers; set it, for example \
             to 8, or choose mechanism `pd` or `kvc`",
        ),
    ] {
        assert_eq!(refusal(set(&[assignment])), message);
    }
}

#[test]
fn flag_values_are_toml_or_bare_words() {
    let scenario = set(&[
        "replay.time_scale=inf",
        "policy.name=sticky",
        "name=42",
        "engine.kv_pool_tokens=90_000",
        "fault=[{kind=\"kill\", worker=\"D1\", at_s=3}]",
    ])
    .unwrap();
    assert_eq!((scenario.replay.arrival_scale, scenario.replay.think_scale), (f64::INFINITY, f64::INFINITY));
    assert_eq!((scenario.name.as_str(), scenario.engine.kv_pool_tokens, scenario.fault.len()), ("42", 90_000, 1));
    let json = serde_json::to_string(&scenario).unwrap();
    assert_eq!(serde_json::from_str::<Scenario>(&json).unwrap(), scenario, "inf survives JSON");
    assert_eq!(load_text("x.toml", &scenario.to_toml().unwrap()).unwrap(), scenario, "and TOML");
}

#[test]
fn every_impossible_value_has_a_sentence() {
    let table: &[(&[&str], &str)] = &[
        (&["cluster.prefill=0"], "`cluster.prefill` is 0, but mechanism `kvc` needs at least one P"),
        (&["cluster.decode=0"], "`cluster.decode` is 0, but mechanism `kvc` needs at least one D"),
        (&["replay.think_scale=nan"], "`replay.think_scale` is NaN; write a number from 1e-6 to 1e9, or inf"),
        (&["replay.arrival_scale=-2"], "`replay.arrival_scale` is -2;"),
        (&["admission.usable_share=90"], "`admission.usable_share` is 90; write a number from 0 to 1; 90 % is 0.9"),
        (&["admission.usable_share=0"], "`admission.usable_share` is 0: no D would have room"),
        (&["policy.kv_aware.hard_cap=1.5"], "`policy.kv_aware.hard_cap` is 1.5;"),
        (&["engine.kv_pool_tokens=10"], "`engine.kv_pool_tokens` is 10, less than one page of 64 tokens"),
        (
            &["replay.stall_timeout_s=-1"],
            "`replay.stall_timeout_s` is -1; write 0, or a number from 1e-9 to 1e9; 0 is no limit",
        ),
        (&["replay.stall_timeout_s=inf"], "`replay.stall_timeout_s` is inf; write 0, or a number from 1e-9 to 1e9"),
        (&["engine.timing.d1=nan"], "`engine.timing.d1` is NaN; write a finite number, 0 or more"),
        (&["engine.timing.top_k=500"], "`engine.timing.top_k` is 500, more than the 128 experts"),
        (&["engine.timing.small_prefill=[[64, 14.0], [16, 13.8]]"], "`engine.timing.small_prefill` is not ascending"),
        (&["cluster.link.gbytes_per_s=0"], "`cluster.link.gbytes_per_s` is 0; write a number from 1e-6 to 1e9"),
        (&["integrity.max_bad_share=1"], ""),
        (&["name=../x"], "`name` is \"../x\", but names a folder"),
        (&["trace.preset="], "`trace.preset` is empty"),
        (
            &["fault=[{kind=\"slow-worker\", worker=\"D0\"}]"],
            "`fault[0].factor` is missing; a fault of kind `slow-worker`",
        ),
        (&["fault=[{kind=\"kill\", worker=\"D0\", at_s=1, after_requests=2}]"], "`fault[0].at_s` and `after_requests`"),
        (&["fault=[{kind=\"kill\", worker=\"D0\", factor=2}]"], "`fault[0].factor` has no meaning for a fault of kind"),
        (&["fault=[{kind=\"kill\", worker=\"decode-1\"}]"], "`fault[0].worker` is \"decode-1\", not a worker name"),
        (&["fault=[{kind=\"kill\", worker=\"W0\"}]"], "`fault[0].worker` names W0, but there is no W"),
        (
            &["fault=[{kind=\"transfer-failure\", worker=\"D0\", to=\"D1\"}]"],
            "`fault[0].worker` is D0, on the wrong end",
        ),
        (&["fault=[{kind=\"hang\"}]"], "`fault[0].worker` and `session` are both missing"),
        (&["fault=[{kind=\"hang\", worker=\"D0\", turn=2}]"], "`fault[0].turn` is given without `session`"),
        (
            &["fault=[{kind=\"error-response\", worker=\"D0\", status=200}]"],
            "`fault[0].status` is 200, not an HTTP error",
        ),
        (
            &["fault=[{kind=\"kill\", worker=\"D0\", at_s=-1}]"],
            "`fault[0].at_s` is -1; write 0, or a number from 1e-9 to 1e9",
        ),
    ];
    for (assignments, wanted) in table {
        match (set(assignments), wanted.is_empty()) {
            (Ok(_), true) => {}
            (Ok(_), false) => panic!("{assignments:?} was taken"),
            (Err(error), _) => {
                let text = error.to_string();
                assert!(!wanted.is_empty() && text.contains(wanted), "{assignments:?} gave {text}");
                assert!(
                    text.starts_with(&format!("--set {}", assignments[0])) || text.starts_with("built-in"),
                    "{text}"
                );
            }
        }
    }
}

#[test]
fn validate_reports_every_problem_not_only_the_first() {
    let mut scenario = Scenario::default();
    scenario.replay.think_scale = f64::NAN;
    scenario.replay.service_tokens_per_s = 0.0;
    scenario.cluster.decode = 0;
    let keys: Vec<String> = validate(&scenario).into_iter().map(|problem| problem.key).collect();
    assert_eq!(keys, ["cluster.decode", "replay.think_scale", "replay.service_tokens_per_s"]);
    assert!(validate(&Scenario::default()).is_empty());
}

proptest! {
    #[test]
    fn no_assignment_panics(
        key in "(replay|admission|engine|engine.timing|cluster.link|fault|policy|x)(\\.[a-z_]{1,12}){0,3}",
        known in prop::sample::select(vec![
            "replay.time_scale", "engine.timing.preset", "cluster.link.preset", "fault", "extends", "engine.timing",
            "engine.timing.small_prefill", "policy", "name", "trace.arrival",
        ]),
        value in "\\PC{0,30}",
        toml in prop::sample::select(vec![
            "nan", "inf", "-inf", "[]", "[[]]", "{}", "[{}]", "1e400", "\"\"", "\n", "1\nb=2", "{a={b={}}}", "[[1,2,3]]",
            "0x7fffffffffffffff", "-0.0", "2026-01-01", "true", "[{kind=\"kill\"}]", "{preset=1}", "{preset=\"a.toml\"}",
        ]),
        free in "\\PC{0,40}",
    ) {
        for assignment in [format!("{key}={value}"), format!("{known}={toml}"), format!("{known}={value}"),
                           format!("{key}={toml}"), free.clone()] {
            if let Err(error) = set(&[&assignment]) {
                prop_assert!(!error.problems.is_empty());
                prop_assert!(!error.to_string().is_empty());
            }
        }
        let _ = load_text("x.toml", &free);
        let _ = load_text("x.toml", &format!("{key} = {toml}"));
    }
}

#[test]
fn templates_are_shown_with_their_comments_and_listed_in_columns() {
    let scratch = Scratch::new();
    let shown = scratch.run(&["scenario", "show", "live-sglang", "--source"]).code(0).stdout;
    assert!(shown.contains("# --prefill/--decode/--router.") && shown.contains("name = \"default\""), "{shown}");
    scratch.write("mine.toml", &shown);
    scratch.run(&["scenario", "show", "mine.toml"]).code(0);
    scratch.run(&["scenario", "show", "nosuch", "--source"]).refused(&["`nosuch`", "scenario list"]);
    let listed = scratch.run(&["scenario", "list"]).code(0).stdout;
    let columns = listed.lines().map(|line| line.find("  ").map(|gap| line.len() - line[gap..].trim_start().len()));
    let columns: std::collections::BTreeSet<_> = columns.collect();
    assert_eq!(columns.len(), 1, "descriptions begin in one column: {listed}");
}

#[test]
fn a_shipped_name_with_an_extension_is_suggested() {
    for given in ["live-sglang.toml", "scenarios/live-sglan.toml"] {
        let refused = load(Some(given), &[]).map(|_| ()).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("{given}: no such file; did you mean")), "{refused}");
        assert!(refused.contains("the shipped scenario live-sglang?"), "{refused}");
    }
}
