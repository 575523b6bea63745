//! CAR by tables: instances with their loads and hits in, costs and choices out. `tests/data/kv/car.json` has the rules one
//! by one, case 65 the scores worked out from the published formula.

use std::collections::BTreeMap;

use pdreplay::base::{Role, SessionIx, WorkerId};
use pdreplay::kv::{BlockPath, BlockTree, Process, StreamOrigin, WorkerHit};
use pdreplay::policies::{
    ClusterView, HeaderMode, Policy, PolicyConfig, PolicyName, PolicyRequest, Selection, WorkerView,
};
use pdreplay::protocol::{LoadReport, RoutingHeader};
use pdreplay::record::CandidateScore;
use pdreplay::scenario::load_text;
use serde::Deserialize;
use serde_json::Value;

use crate::run::{case_path, root};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    case: String,
    title: String,
    #[serde(default)]
    input: u32,
    #[serde(default)]
    config: BTreeMap<String, Value>,
    #[serde(default)]
    instances: Vec<Instance>,
    #[serde(default = "one")]
    repeat: u32,
    #[serde(default = "yes")]
    index: bool,
    #[serde(default)]
    expect: Expect,
    /// A line of a scenario that is refused.
    refused: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Instance {
    name: String,
    /// `prefill`, `decode`, `default` or `mix`; a `mix` also has a `role`.
    kind: String,
    role: Option<String>,
    #[serde(default)]
    device: u32,
    #[serde(default)]
    host_only: u32,
    #[serde(default)]
    waiting: u32,
    /// A number, or `NaN` as text.
    usage: Option<Value>,
    #[serde(default = "yes")]
    up: bool,
    /// It has reported its load.
    #[serde(default = "yes")]
    load: bool,
    #[serde(default = "yes")]
    synced: bool,
    #[serde(default, rename = "static")]
    by_hand: bool,
    ranks: Option<Vec<Rank>>,
    #[serde(default)]
    dp_size: u32,
    incarnation: Option<u64>,
    view_incarnation: Option<u64>,
    register_ts: Option<u64>,
    view_register_ts: Option<u64>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(deny_unknown_fields)]
struct Rank {
    device: u32,
    host_only: u32,
    #[serde(default = "yes")]
    synced: bool,
}

/// By instance name.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct Expect {
    #[serde(deserialize_with = "given")]
    prefill: Option<Option<String>>,
    decode: Option<String>,
    nobody: bool,
    costs: BTreeMap<String, f64>,
    ratios: BTreeMap<String, f64>,
    sight: BTreeMap<String, String>,
    excluded: BTreeMap<String, String>,
    /// How often each was chosen in `repeat` choices, with one of its kind left out when never.
    picks: BTreeMap<String, u32>,
}

fn yes() -> bool {
    true
}

fn one() -> u32 {
    1
}

/// Tells a null that is there from nothing.
fn given<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(from).map(Some)
}

impl Instance {
    fn serves(&self) -> Role {
        match (self.kind.as_str(), self.role.as_deref()) {
            ("prefill", None) | ("mix", Some("prefill")) => Role::Prefill,
            ("decode", None) | ("mix", Some("decode")) => Role::Decode,
            ("default", None) => Role::Colocated,
            (kind, role) => panic!("{}: {kind} {role:?}", self.name),
        }
    }

    fn usage(&self) -> f64 {
        match &self.usage {
            None => 0.0,
            Some(Value::String(text)) => text.parse().unwrap(),
            Some(number) => number.as_f64().unwrap(),
        }
    }

    fn view(&self, worker: WorkerId) -> WorkerView {
        let load = LoadReport {
            worker,
            token_usage: self.usage(),
            capacity_tokens: 1000,
            num_running: 77,
            num_waiting: self.waiting,
            num_prealloc: 0,
            num_transfer: 0,
        };
        let process = Process { incarnation: self.incarnation, register_ts_ms: self.register_ts };
        WorkerView { up: self.up, load: self.load.then_some(load), process, ..WorkerView::default() }
    }

    fn hits(&self, worker: WorkerId) -> Vec<WorkerHit> {
        let process = Process { incarnation: self.view_incarnation, register_ts_ms: self.view_register_ts };
        let origin = if self.by_hand { StreamOrigin::Static } else { StreamOrigin::Discovered(process) };
        let alone = [Rank { device: self.device, host_only: self.host_only, synced: self.synced }];
        let ranks = self.ranks.as_deref().unwrap_or(&alone);
        let hit = |(rank, dp_rank): (&Rank, u32)| WorkerHit {
            worker,
            dp_rank,
            dp_size: self.dp_size,
            device_tokens: rank.device,
            host_only_tokens: rank.host_only,
            block_size: 4,
            synchronized: rank.synced,
            origin,
        };
        ranks.iter().zip(0u32..).map(hit).collect()
    }
}

/// Instances at a policy's desk.
struct Desk {
    policy: Policy,
    names: BTreeMap<String, String>,
    prefill: Vec<WorkerView>,
    workers: Vec<WorkerView>,
    role: Role,
    hits: Option<Vec<WorkerHit>>,
    input: u32,
}

impl Desk {
    fn new(case: &Case) -> Desk {
        let car = case.config.iter().map(|(key, value)| format!("policy.car.{key} = {value}\n")).collect::<String>();
        let config = load_text("car.toml", &format!("policy.name = 'car'\n{car}")).unwrap().policy;
        let mut views: BTreeMap<Role, Vec<WorkerView>> = BTreeMap::new();
        let (mut names, mut hits) = (BTreeMap::new(), Vec::new());
        for instance in &case.instances {
            let list = views.entry(instance.serves()).or_default();
            let worker = WorkerId::new(instance.serves(), list.len() as u16);
            list.push(instance.view(worker));
            hits.extend(instance.hits(worker));
            names.insert(worker.to_string(), instance.name.clone());
        }
        let role = if views.contains_key(&Role::Colocated) { Role::Colocated } else { Role::Decode };
        Desk {
            policy: Policy::new(&config, 1),
            names,
            prefill: views.remove(&Role::Prefill).unwrap_or_default(),
            workers: views.remove(&role).unwrap_or_default(),
            role,
            hits: case.index.then_some(hits),
            input: case.input,
        }
    }

    fn ask(&mut self) -> Option<Selection> {
        let view = ClusterView {
            role: self.role,
            workers: &self.workers,
            prefill: &self.prefill,
            hits: self.hits.as_deref(),
            header_mode: HeaderMode::TargetLegs,
            tree: &BlockTree::new(64),
        };
        let request =
            PolicyRequest { session: SessionIx(0), prompt: BlockPath::EMPTY, input_tokens: self.input, excluded: None };
        self.policy.select(&view, &request)
    }

    /// Names of the prefill worker and the answering one.
    fn chosen(&self, selection: Selection) -> (Option<String>, String) {
        let name = |worker: WorkerId| self.names[&worker.to_string()].clone();
        (selection.prefill.map(name), name(selection.worker))
    }

    fn score(&self, name: &str) -> &CandidateScore {
        let found = self.policy.explanation().iter().find(|score| self.names[&score.worker] == name);
        found.unwrap_or_else(|| panic!("{name} is not in {:?}", self.policy.explanation()))
    }
}

fn near(a: Option<f64>, b: f64) -> bool {
    a.is_some_and(|a| (a - b).abs() < 1e-12)
}

fn check(case: &Case) {
    let told = format!("{}: {}", case.case, case.title);
    if let Some(line) = &case.refused {
        let error = load_text("car.toml", line).expect_err(&told).to_string();
        return assert!(error.contains("write a number from 0 to 1"), "{told}: {error}");
    }
    let mut desk = Desk::new(case);
    let first = desk.ask();
    let expect = &case.expect;
    assert_eq!(first.is_none(), expect.nobody, "{told}");
    for (name, cost) in &expect.costs {
        assert!(near(desk.score(name).cost, *cost), "{told}: {name} {:?}", desk.score(name));
    }
    for (name, ratio) in &expect.ratios {
        // Without an index a ratio counts as 0 and is not told: nobody was asked for it.
        let told_ratio = desk.score(name).hit_ratio;
        assert_eq!(told_ratio.is_some(), case.index, "{told}: {name}");
        assert!(near(told_ratio.or(Some(0.0)), *ratio), "{told}: {name} {:?}", desk.score(name));
    }
    for (name, sight) in &expect.sight {
        assert_eq!(desk.score(name).index.as_ref(), Some(sight), "{told}: {name}");
    }
    for (name, why) in &expect.excluded {
        let score = desk.score(name);
        assert_eq!((score.excluded.as_ref(), score.cost), (Some(why), None), "{told}: {name}");
    }
    let Some(first) = first else { return };
    let (prefill, decode) = desk.chosen(first);
    if let Some(wanted) = &expect.prefill {
        assert_eq!(&prefill, wanted, "{told}");
    }
    if let Some(wanted) = &expect.decode {
        assert_eq!(&decode, wanted, "{told}");
    }
    let legs = first.prefill.map(|p| RoutingHeader::TargetLegs { prefill: p.index, decode: first.worker.index });
    assert_eq!(first.header, legs.unwrap_or(RoutingHeader::TargetWorker(first.worker.index)), "{told}");
    let mut picks = BTreeMap::new();
    let mut selection = Some(first);
    for _ in 0..case.repeat {
        let selection = selection.take().or_else(|| desk.ask()).expect(&told);
        let (prefill, decode) = desk.chosen(selection);
        for name in prefill.into_iter().chain([decode]) {
            *picks.entry(name).or_insert(0) += 1;
        }
    }
    for (name, wanted) in &expect.picks {
        assert_eq!(picks.get(name), Some(wanted), "{told}: {picks:?}");
    }
}

#[test]
fn car_cases() {
    let text = std::fs::read_to_string(root().join("tests/data/kv/car.json")).unwrap();
    let cases: Vec<Case> = serde_json::from_str(&text).unwrap();
    let numbers: std::collections::BTreeSet<&str> = cases.iter().map(|case| case.case.as_str()).collect();
    assert_eq!(numbers.len(), 15, "every rule has its cases: {numbers:?}");
    cases.iter().for_each(check);
}

/// The tables of case 65: one side each, with an idle worker on the other.
#[test]
fn case_65_scores_and_turns() {
    let text = std::fs::read_to_string(case_path("65-scores-of-cache-aware-routing/scores.json")).unwrap();
    let tables: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(tables.len(), 12);
    for table in &tables {
        let side = table["side"].as_str().unwrap();
        let instance = |at: usize, row: &Value| {
            let mut row = row.as_object().unwrap().clone();
            row.remove("input");
            if let Some(usage) = row.remove("cache_usage") {
                row.insert("usage".into(), usage);
            }
            row.insert("name".into(), at.to_string().into());
            row.insert("kind".into(), side.into());
            Value::Object(row)
        };
        let rows = table["candidates"].as_array().unwrap();
        let other = if side == "prefill" { "decode" } else { "prefill" };
        let mut instances: Vec<Value> = rows.iter().enumerate().map(|(at, row)| instance(at, row)).collect();
        instances.push(serde_json::json!({ "name": "other", "kind": other }));
        let mut config = serde_json::Map::new();
        for (theirs, ours) in [("lambda", "prefill_lambda"), ("host_weight", "host_hit_weight")] {
            config.extend(table.get(theirs).map(|value| (ours.to_owned(), value.clone())));
        }
        let chosen: Vec<String> = table["chosen"].as_array().unwrap().iter().map(Value::to_string).collect();
        let each = 30 / chosen.len() as u32;
        let picks: BTreeMap<&String, u32> = chosen.iter().map(|name| (name, each)).collect();
        let scores = table["scores"].as_array().unwrap().iter().enumerate();
        let costs: BTreeMap<String, &Value> = scores.map(|(at, score)| (at.to_string(), score)).collect();
        let case = serde_json::json!({
            "case": "65", "title": table["name"], "input": rows[0].get("input").unwrap_or(&Value::from(1)),
            "config": config, "instances": instances, "repeat": 30, "expect": { "costs": costs, "picks": picks },
        });
        check(&serde_json::from_value(case).unwrap());
    }
}

#[test]
fn what_was_sent_since_the_report_waits_too_unless_switched_off() {
    for (count_own, wanted) in [(true, (4, 1)), (false, (3, 0))] {
        let mut config = PolicyConfig { name: PolicyName::Car, ..PolicyConfig::default() };
        config.car.count_own = count_own;
        let instance = |waiting| serde_json::json!({ "name": "x", "kind": "prefill", "waiting": waiting });
        let view = |waiting| {
            let instance: Instance = serde_json::from_value(instance(waiting)).unwrap();
            WorkerView { own: 1, ..instance.view(WorkerId::new(Role::Prefill, 0)) }
        };
        let mut desk = Desk {
            policy: Policy::new(&config, 1),
            names: BTreeMap::from([("P0".into(), "a".into()), ("P1".into(), "b".into()), ("D0".into(), "d".into())]),
            prefill: vec![view(3), view(0)],
            workers: vec![view(0)],
            role: Role::Decode,
            hits: None,
            input: 10,
        };
        desk.ask().unwrap();
        let waiting = |name| desk.score(name).waiting.unwrap();
        assert_eq!((waiting("a"), waiting("b")), wanted);
    }
}
