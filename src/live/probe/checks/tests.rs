//! Facts in, table out: one story a test.

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::base::{Role, WorkerId};
use crate::cluster::RouterConfig;
use crate::live::probe::Probed;
use crate::live::probe::question::{Answers, Question};
use crate::live::probe::reply::Reply;
use crate::live::{Accounts, Addresses, Dialect, Endpoint, Limits, Retries, Secrets};
use crate::scenario::{HeaderConfig, Legs, OpenAiApi, RouterKind, ServedByConfig, TargetValue};

const WORKER: &str =
    "{\"version\":\"0.5.10\",\"max_total_num_tokens\":83000,\"page_size\":64,\"disaggregation_mode\":\"MODE\"}";

fn target() -> Target {
    let endpoint = |port: u16| Endpoint { url: format!("http://h:{port}"), bootstrap_port: Some(port + 1000) };
    let addresses = Addresses {
        router: Some("http://h:9000".into()),
        prefill: vec![endpoint(9100)],
        decode: vec![endpoint(9200), endpoint(9201)],
        ..Addresses::default()
    };
    let second = Duration::from_secs(1);
    Target {
        addresses,
        dialect: Dialect::Generate,
        legs: Legs::Router,
        router_kind: RouterKind::Auto,
        emulated: false,
        model: String::new(),
        session_mark: String::new(),
        baseline: Accounts::default(),
        absent: Vec::new(),
        warm: BTreeMap::new(),
        header: HeaderConfig::default(),
        route_map: None,
        served_by: ServedByConfig::default(),
        router_config: RouterConfig::default(),
        limits: Limits { connect: second, first_token: None, stall: None, control: second, pool_idle: 3 * second },
        retries: Retries { most: 0, backoff: second, longest: second },
        pool: 8,
        body_cache: 1 << 20,
        token_ids: (1000, 100),
        proxy: None,
        secrets: Secrets::default(),
    }
}

fn needs() -> Needs {
    Needs {
        two_legs: true,
        sessions: true,
        admission: true,
        loads: false,
        index: None,
        target_header: true,
        prefill_header: false,
        routing_key: false,
        kv_pool_tokens: 83_000,
    }
}

/// A worker that has everything, but for what `but` says.
fn worker(id: &str, but: &[(Question, u16, &str)]) -> WorkerFacts {
    let index = id[1..].parse().unwrap();
    let (role, mode) = if id.starts_with('P') { (Role::Prefill, "prefill") } else { (Role::Decode, "decode") };
    let models = "{\"data\":[{\"id\":\"m\",\"owned_by\":\"sglang\"}]}";
    let info = WORKER.replace("MODE", mode);
    let usual = [
        (Question::Health, 200, ""),
        (Question::ServerInfo, 200, info.as_str()),
        (Question::Models, 200, models),
        (Question::Loads, 200, "{\"loads\":[{}]}"),
        (Question::Admission, 200, "{\"can_admit\":true}"),
        (Question::OpenSession, 200, "\"x\""),
        (Question::CloseSession, 200, ""),
    ];
    let only_decode = [Question::Admission, Question::OpenSession, Question::CloseSession];
    let asked = usual.iter().chain(but).filter(|(asked, ..)| role == Role::Decode || !only_decode.contains(asked));
    let answers = asked.map(|(asked, status, body)| (*asked, Ok(Reply::new(*status, &[], body)))).collect();
    WorkerFacts::of(WorkerId::new(role, index), &format!("http://h:{}", 9200 + index), "", &Answers(answers))
}

fn router(kind: RouterKind) -> RouterFacts {
    let answers = Answers([(Question::Health, Ok(Reply::new(200, &[], "OK")))].into());
    RouterFacts { kind, version: "1.13.0".into(), ..RouterFacts::of("http://h:9000", &answers) }
}

fn served(ports: &[u16]) -> Vec<(u16, Probed)> {
    (0..).zip(ports).map(|(index, port)| (index, Probed::Served(format!("http://h:{port}")))).collect()
}

/// Probes of a router that has nobody at the index no list has: first and again.
fn routes(first: &[u16], again: &[(u16, u16)]) -> Routes {
    let again = again.iter().map(|(index, port)| (*index, Probed::Served(format!("http://h:{port}")))).collect();
    Routes { beyond: Some(Probed::NoWorker), first: served(first), again }
}

fn facts(workers: Vec<WorkerFacts>) -> Facts {
    let routes = routes(&[9201, 9200], &[(1, 9200), (1, 9200), (0, 9201), (0, 9201)]);
    Facts {
        workers,
        router: Some(router(RouterKind::Pdreplay)),
        routes: Some(routes),
        named: Vec::new(),
        serving: None,
        bootstrap: Vec::new(),
        shared: Vec::new(),
        other_urls: Vec::new(),
    }
}

fn all_well() -> Facts {
    facts(["P0", "D0", "D1"].map(|id| worker(id, &[])).to_vec())
}

#[track_caller]
fn find(checks: &[Check], name: &str) -> Check {
    checks.iter().find(|check| check.check == name).unwrap_or_else(|| panic!("no `{name}`: {checks:#?}")).clone()
}

/// The check of that name on a target with these facts.
#[track_caller]
fn check(facts: &Facts, name: &str) -> Check {
    find(&checks(&needs(), &target(), facts), name)
}

#[test]
fn only_our_own_router_hears_of_p() {
    let both = Needs { prefill_header: true, ..needs() };
    let mut found = all_well();
    assert_eq!(find(&checks(&both, &target(), &found), "prefill header").result, Verdict::Ok);
    for kind in [RouterKind::Smg, RouterKind::SglangRouter] {
        found.router = Some(router(kind));
        let told = find(&checks(&both, &target(), &found), "prefill header");
        assert_eq!(told.result, Verdict::Warn);
        assert!(told.detail.ends_with("does not know x-pdreplay-target-prefill"), "{}", told.detail);
        assert!(cautions(&both, &target(), &found).iter().any(|text| text.contains("live.legs = \"direct\"")));
        assert!(checks(&needs(), &target(), &found).iter().all(|check| check.check != "prefill header"));
    }
}

#[test]
fn a_target_that_has_everything_passes() {
    let found = checks(&needs(), &target(), &all_well());
    let bad: Vec<_> = found.iter().filter(|check| !matches!(check.result, Verdict::Ok | Verdict::Off)).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert_eq!(find(&found, "workers").detail, "3 answer, round trip up to 0.0 ms");
    assert_eq!(find(&found, "target header").detail, "D0=1 D1=0, each tried three times");
    assert_eq!(find(&found, "one token").detail, "answered 2 times over the run's own way");
    assert!(found.iter().all(|check| check.result == Verdict::Off || check.will_be_off.is_empty()));
}

#[test]
fn a_worker_that_does_not_answer_is_named_and_fails_where_it_was_the_last() {
    let mut dead = worker("D1", &[]);
    dead.health = super::super::facts::Health::Down("connection refused".into());
    let found = check(&facts(vec![worker("P0", &[]), worker("D0", &[]), dead]), "workers");
    assert_eq!((found.result, found.detail.as_str()), (Verdict::Warn, "D1 at http://h:9201: connection refused"));
    let mut gone = all_well();
    for worker in gone.workers.iter_mut().filter(|worker| worker.worker.role == Role::Decode) {
        worker.health = super::super::facts::Health::Down("connection refused".into());
    }
    assert_eq!(check(&gone, "workers").result, Verdict::Fail, "no run goes without any D");
}

#[test]
fn a_d_that_is_down_is_the_cause_before_the_router() {
    let mut found = all_well();
    found.workers[2].health = super::super::facts::Health::Down("connection refused".into());
    found.routes = Some(routes(&[9200], &[(0, 9200), (0, 9200)]));
    let told = check(&found, "target header");
    let cause = "D1 at http://h:9201: connection refused; so the router cannot use it: no index reaches D1";
    assert!(told.result == Verdict::Fail && told.detail.starts_with(cause), "{told:?}");
    assert!(told.remedy.starts_with("start the missing workers"), "{told:?}");
}

#[test]
fn a_worker_is_no_router() {
    let mut found = all_well();
    let told = |found: &Facts| role_fault(&target(), found).map(|(why, _)| why);
    assert_eq!(told(&found), None);
    let said = "{\"disaggregation_mode\":\"decode\"}";
    let answers = Answers([(Question::ServerInfo, Ok(Reply::new(200, &[], said)))].into());
    found.router = Some(RouterFacts::of("http://h:7", &answers));
    assert_eq!(told(&found).as_deref(), Some("the router at http://h:7 is a worker (decode)"));
    found.router = Some(RouterFacts::of("http://h:9100", &answers));
    assert_eq!(told(&found).as_deref(), Some("the router's address is that of P0"));
}

#[test]
fn one_server_under_two_names_fails_and_one_that_may_be_two_is_warned_of() {
    let of = |is_certain| Shared {
        first: WorkerId::new(Role::Decode, 0),
        second: WorkerId::new(Role::Decode, 1),
        at: "127.0.0.1:9200".parse().unwrap(),
        is_certain,
    };
    let told = "D0 (http://h:9200) and D1 (http://h:9201) are one server, at 127.0.0.1:9200";
    let certain = Facts { shared: vec![of(true)], ..all_well() };
    let found = check(&certain, "addresses");
    assert_eq!((found.result, found.detail.as_str()), (Verdict::Fail, told));
    assert_eq!(address_fault(&target(), &certain), Some((told.to_owned(), "list each worker once in [live]")));
    let doubtful = Facts { shared: vec![of(false)], ..all_well() };
    let found = check(&doubtful, "addresses");
    assert_eq!((found.result, found.detail), (Verdict::Warn, format!("it seems that {told}")));
    assert_eq!(address_fault(&target(), &doubtful), None);
    assert!(cautions(&needs(), &target(), &doubtful)[0].starts_with("addresses: it seems that D0"));
}

#[test]
fn a_router_is_no_worker_but_may_be_an_openai_server() {
    let said = "{\"emulated\":{\"worker\":\"router\",\"version\":\"0.1.0\"}}";
    let facts = facts(vec![worker("P0", &[(Question::ServerInfo, 200, said)]), worker("D0", &[])]);
    let (why, remedy) = role_fault(&target(), &facts).unwrap();
    assert!(why == "P0 is a router" && remedy.contains("prefill, decode, colocated or router"), "{why}; {remedy}");
    let openai = Target { dialect: Dialect::OpenAi(OpenAiApi::Chat), ..target() };
    assert_eq!(role_fault(&openai, &facts), None);
    let found = find(&checks(&needs(), &openai, &facts), "roles");
    assert_eq!((found.result, found.detail.as_str()), (Verdict::Warn, "P0 is a router"));
}

#[test]
fn addresses_under_the_wrong_role_fail() {
    let info = WORKER.replace("MODE", "prefill");
    let swapped = worker("D0", &[(Question::ServerInfo, 200, &info)]);
    let found = check(&facts(vec![worker("P0", &[]), swapped]), "roles");
    assert_eq!((found.result, found.detail.as_str()), (Verdict::Fail, "D0 says prefill"));
    let info = WORKER.replace("MODE\"", "prefill\",\"disaggregation_bootstrap_port\":8998");
    let facts = facts(vec![worker("P0", &[(Question::ServerInfo, 200, &info)])]);
    assert!(
        checks(&needs(), &target(), &facts).iter().all(|check| check.check != "bootstrap"),
        "a router sends its own"
    );
    let found = find(&checks(&needs(), &Target { legs: Legs::Direct, ..target() }, &facts), "bootstrap");
    assert_eq!(found.detail, "P0: it is at port 8998, not 10100, by the worker's own word");
    assert_eq!(found.result, Verdict::Fail);
    assert!(found.remedy.contains("\"http://h:9100 8998\""), "{found:#?}");
}

#[test]
fn a_bootstrap_server_that_refuses_fails_and_one_that_is_silent_is_questioned() {
    let direct = Target { legs: Legs::Direct, ..target() };
    let found = |result: Result<(), &str>| {
        let bootstrap = vec![(WorkerId::new(Role::Prefill, 0), result.map_err(str::to_owned))];
        find(&checks(&needs(), &direct, &Facts { bootstrap, ..all_well() }), "bootstrap").result
    };
    assert_eq!(found(Ok(())), Verdict::Ok);
    assert_eq!(found(Err("connection refused by h:10100")), Verdict::Fail);
    assert_eq!(found(Err("no answer within 3s")), Verdict::Warn);
}

#[test]
fn a_router_or_a_file_server_is_no_worker() {
    let info = "{\"emulated\":{\"worker\":\"router\",\"version\":\"0.1.0\"}}";
    let router =
        WorkerFacts::of(WorkerId::new(Role::Prefill, 0), "http://h:1", "", &answer(Question::ServerInfo, 200, info));
    assert_eq!(check(&facts(vec![router]), "roles").detail, "P0 is a router");
    let smg = Reply::new(404, &[("x-smg-error-code", "not_found")], "");
    let smg = WorkerFacts::of(
        WorkerId::new(Role::Decode, 0),
        "http://h:1",
        "",
        &Answers([(Question::Version, Ok(smg))].into()),
    );
    assert_eq!(check(&facts(vec![smg]), "roles").detail, "D0 is a router");
    let files =
        WorkerFacts::of(WorkerId::new(Role::Decode, 0), "http://h:1", "", &answer(Question::Health, 404, "<html>"));
    let found = check(&facts(vec![files]), "workers");
    assert_eq!(found.result, Verdict::Warn);
    assert!(found.detail.starts_with("D0 at http://h:1: answers, but has no /health"), "{found:#?}");
}

fn answer(asked: Question, status: u16, body: &str) -> Answers {
    Answers([(asked, Ok(Reply::new(status, &[], body)))].into())
}

#[test]
fn workers_behind_the_router_that_are_none_of_ours_are_told() {
    let mut more = all_well();
    let decode = ["http://h:9200/", "http://h:9201", "http://h:9300"].map(str::to_owned).to_vec();
    more.router = Some(RouterFacts { decode, ..router(RouterKind::Pdreplay) });
    let found = check(&more, "router's workers");
    assert_eq!(found.result, Verdict::Warn);
    assert_eq!(found.detail, "it lists 1 D that are none of ours: http://h:9300");
    let told = cautions(&needs(), &target(), &more);
    assert!(told.len() == 1 && told[0].contains("http://h:9300") && told[0].contains("--decode"), "{told:?}");
    assert_eq!(cautions(&needs(), &target(), &all_well()), [""; 0]);
}

#[test]
fn kv_events_concern_who_reads_an_index() {
    let mut found = all_well();
    let row = |found: &Facts, index| {
        let all = checks(&Needs { index, ..needs() }, &target(), found);
        find(&all, KV_EVENTS)
    };
    let silent = row(&found, None);
    assert_eq!((silent.result, silent.will_be_off.as_str(), silent.remedy.as_str()), (Verdict::Off, "", ""));
    assert!(silent.detail.contains("do not say whether") && silent.detail.contains("not needed"), "{}", silent.detail);
    found.workers[1].kv_events = Some(false);
    let wanted = row(&found, Some(Role::Prefill));
    assert_eq!(wanted.detail, "none are published");
    assert!(wanted.will_be_off.contains("hits count as 0") && wanted.remedy.contains("--kv-events FILE"));
    found.workers[1].kv_events = Some(true);
    assert_eq!(row(&found, Some(Role::Prefill)).result, Verdict::Ok);
}

#[test]
fn warm_caches_are_told_where_workers_say() {
    let mut warm = all_well();
    warm.workers[1].held_tokens = Some(0);
    assert_eq!(check(&warm, "caches").result, Verdict::Ok);
    warm.workers[2].held_tokens = Some(640);
    let found = check(&warm, "caches");
    assert_eq!((found.result, found.detail.as_str()), (Verdict::Warn, "D1 holds 640 tokens from before"));
    assert!(found.remedy.contains("/flush_cache"), "{found:#?}");
}

#[test]
fn a_clock_that_is_far_off_is_told() {
    let mut off = all_well();
    off.workers[0].clock_ahead_s = Some(-0.9);
    assert_eq!(check(&off, "clock").result, Verdict::Ok);
    off.workers[1].clock_ahead_s = Some(-41.6);
    let found = check(&off, "clock");
    assert_eq!((found.result, found.detail.as_str()), (Verdict::Warn, "D0 is 42 s behind us"));
}

#[test]
fn of_a_router_that_does_not_answer_only_that_is_said() {
    let mut down = all_well();
    let health = Health::Down("connection refused by h:9000".into());
    down.router = Some(RouterFacts { health, ..router(RouterKind::Auto) });
    let beyond = Some(Probed::Unanswered("connection refused by h:9000".into()));
    down.routes = Some(Routes { beyond, ..Routes::default() });
    let found = checks(&needs(), &target(), &down);
    let failed: Vec<_> = found.iter().filter(|check| check.result == Verdict::Fail).map(|check| check.check).collect();
    assert_eq!(failed, ["router"], "{found:#?}");
    assert!(found.iter().all(|check| !["router kind", "target header", "one token"].contains(&check.check)));
}

#[test]
fn missing_admission_is_a_warning_that_says_what_is_lost() {
    let stock = worker("D0", &[(Question::Admission, 404, "{\"detail\":\"Not Found\"}")]);
    let found = check(&facts(vec![stock.clone()]), "admission");
    assert_eq!((found.result, found.detail.as_str()), (Verdict::Warn, "D0: 404: Not Found"));
    assert!(found.will_be_off.contains("direct appends") && found.remedy.contains("--mechanism pd"));
    let without = Needs { admission: false, sessions: false, ..needs() };
    assert_eq!(find(&checks(&without, &target(), &facts(vec![stock])), "admission").result, Verdict::Off);
}

#[test]
fn kvc_cannot_run_without_sessions() {
    let refused = "{\"error\":{\"message\":\"Streaming sessions are disabled.\"}}";
    let found = check(&facts(vec![worker("D0", &[(Question::OpenSession, 400, refused)])]), "sessions");
    assert_eq!(found.result, Verdict::Fail);
    assert!(found.remedy.contains("--enable-streaming-session"));
}

#[test]
fn loads_matter_to_policies_that_read_them() {
    let old = facts(vec![worker("D0", &[(Question::Loads, 404, ""), (Question::GetLoad, 200, "[{}]")])]);
    let none = facts(vec![worker("D0", &[(Question::Loads, 404, "")])]);
    let verdict = |facts: &Facts, loads| find(&checks(&Needs { loads, ..needs() }, &target(), facts), "loads").result;
    assert_eq!((verdict(&old, true), verdict(&old, false)), (Verdict::Warn, Verdict::Off));
    assert_eq!((verdict(&none, true), verdict(&none, false)), (Verdict::Fail, Verdict::Off));
}

#[test]
fn a_router_that_ignores_the_header_is_found_out() {
    let found = |routes: Routes| {
        let found = check(&Facts { routes: Some(routes), ..all_well() }, "target header");
        assert_eq!(found.result, Verdict::Fail);
        assert!(found.remedy.contains("consistent_hashing"), "{found:#?}");
        found.detail
    };
    let turns = routes(&[9201, 9200], &[(1, 9201), (1, 9200)]);
    assert_eq!(found(turns), "x-smg-target-worker: 1 reached D0, then D1");
    let beyond = Routes { beyond: Some(Probed::Served("http://h:9201".into())), ..Routes::default() };
    assert_eq!(found(beyond), "x-smg-target-worker: 65535 is an index no list has, yet D1 served it");
}

#[test]
fn a_map_that_was_tried_once_is_no_sure_one() {
    let once = Facts { routes: Some(routes(&[9201, 9200], &[(1, 9200), (1, 9200)])), ..all_well() };
    let found = check(&once, "target header");
    assert_eq!((found.result, found.detail.contains("no time")), (Verdict::Warn, true), "{found:#?}");
}

#[test]
fn a_d_that_no_index_reaches_fails() {
    let mut shed = all_well();
    let first = [served(&[9201]), vec![(1, Probed::NoWorker)]].concat();
    shed.routes = Some(Routes { first, ..Routes::default() });
    let found = check(&shed, "target header");
    assert_eq!((found.result, found.detail.as_str()), (Verdict::Fail, "no index reaches D0"));
    let mut nameless = all_well();
    nameless.routes = Some(Routes { first: vec![(0, Probed::Nameless)], ..Routes::default() });
    assert!(check(&nameless, "target header").remedy.contains("served_by"));
}

/// Probes by name, each D once there and once back: who answered.
fn named(probes: &[(&str, Probed)]) -> Check {
    let named = probes.iter().map(|(worker, probed)| (worker.parse().unwrap(), probed.clone())).collect();
    let facts = Facts { routes: None, named, ..all_well() };
    let header = HeaderConfig { target_value: TargetValue::Url, ..HeaderConfig::default() };
    find(&checks(&needs(), &Target { header, ..target() }, &facts), "target header")
}

#[test]
fn a_header_with_names_is_ok_only_when_every_d_was_reached_by_its_own() {
    let by = |port: u16| Probed::Served(format!("http://h:{port}"));
    let found = named(&[("D0", by(9200)), ("D1", by(9201)), ("D1", by(9201)), ("D0", by(9200))]);
    assert_eq!((found.result, found.detail.as_str()), (Verdict::Ok, "each of 2 D was reached by its URL, twice"));
    let fails = [
        (
            vec![("D0", by(9200)), ("D1", by(9201)), ("D1", by(9200)), ("D0", by(9201))],
            "D1: served by D0, D0: served by D1",
        ),
        (vec![("D0", Probed::NoWorker)], "D0: the router knows no worker by its URL"),
        (vec![("D0", Probed::Failed("500: no".into()))], "D0: 500: no"),
        (vec![("D0", by(9999))], "D0: served by http://h:9999"),
    ];
    for (probes, detail) in fails {
        let found = named(&probes);
        assert_eq!((found.result, found.detail.as_str()), (Verdict::Fail, detail));
    }
    let nameless = [("D0", Probed::Nameless), ("D1", Probed::Nameless)];
    for untold in [&nameless[..], &[("D0", by(9200))]] {
        assert_eq!(named(untold).result, Verdict::Warn, "{untold:?}");
    }
}

#[test]
fn a_run_is_warned_of_who_is_dead_and_of_no_probe_that_nobody_sent() {
    let mut dead = all_well();
    dead.routes = None;
    dead.workers[0].health = Health::Down("connection refused".into());
    let header = HeaderConfig { target_value: TargetValue::Id, ..HeaderConfig::default() };
    let target = Target { header, ..target() };
    let said = cautions(&needs(), &target, &dead);
    let down = |said: &String| said.starts_with("workers: ") && said.contains("requests to these workers fail");
    assert!(said.iter().any(down) && !said.iter().any(|said| said.starts_with("target header")), "{said:#?}");
    dead.workers[0].health = Health::Up;
    assert!(!cautions(&needs(), &target, &dead).iter().any(down));
}

#[test]
fn what_routers_do_unasked_is_said() {
    let mut real = all_well();
    real.router = Some(router(RouterKind::Smg));
    let found = check(&real, "router defaults");
    assert_eq!(found.result, Verdict::Warn);
    assert!(found.remedy.contains("--disable-worker-overload-protection"));
    assert_eq!(check(&real, "router kind").detail, "smg 1.13.0");
    real.router = Some(router(RouterKind::Auto));
    assert_eq!(check(&real, "router kind").result, Verdict::Fail, "a replay is refused");
    let said = Target { router_kind: RouterKind::Smg, ..target() };
    assert_eq!(find(&checks(&needs(), &said, &real), "router kind").result, Verdict::Warn);
    let wrong = Target { router_kind: RouterKind::Smg, ..target() };
    assert_eq!(find(&checks(&needs(), &wrong, &all_well()), "router kind").result, Verdict::Fail);
}

#[test]
fn a_router_that_does_not_know_a_d_is_questioned() {
    let mut other = all_well();
    let decode = ["http://h:9200/", "http://h:9300"].map(str::to_owned).to_vec();
    other.router = Some(RouterFacts { decode, ..router(RouterKind::Smg) });
    let found = check(&other, "router's workers");
    assert_eq!(found.result, Verdict::Warn);
    assert_eq!(found.detail, "it lists http://h:9200/, http://h:9300, not D1");
}

#[test]
fn a_missing_key_is_told_before_anything_else_of_it() {
    let locked = worker("D0", &[(Question::Models, 401, "")]);
    let found = check(&facts(vec![locked]), "authorization");
    assert_eq!(found.result, Verdict::Fail);
    assert!(found.remedy.contains("live.api_key_env"));
}

#[test]
fn another_capacity_than_the_scenarios_is_a_warning() {
    let needs = Needs { kv_pool_tokens: 100_000, ..needs() };
    let found = find(&checks(&needs, &target(), &all_well()), "KV capacity");
    assert_eq!((found.result, found.remedy.as_str()), (Verdict::Warn, "set engine.kv_pool_tokens = 83000"));
}

#[test]
fn a_model_that_is_not_served_fails() {
    let other = Target { model: "other".into(), ..target() };
    let found = find(&checks(&needs(), &other, &all_well()), "model");
    assert_eq!(found.result, Verdict::Fail);
    assert!(found.remedy.contains("live.model = \"m\""), "{found:#?}");
}

#[test]
fn many_are_told_as_some() {
    assert_eq!(some_of(["a", "b", "c", "d"]), "a, b, c, d");
    assert_eq!(some_of(["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
}
