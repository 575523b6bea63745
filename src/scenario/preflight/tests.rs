//! Preflight on hand-made traces.

use super::*;
use crate::base::Dur;
use crate::base::words::is_range;
use crate::kv::{BlockPath, BlockTree};
use crate::replay::{FirstTurn, Schedule};
use crate::scenario::ConflictKind;
use crate::trace::{SessionTrace, TraceMeta};

/// Sessions `gap_s` apart, each of `turns` turns 10 s apart, 1,000 tokens of prompt more each turn.
fn trace(sessions: u32, turns: u32, gap_s: f64, first_input: u32) -> Trace {
    let mut all = Vec::new();
    for session in 0..sessions {
        for k in 0..turns {
            let at = f64::from(session) * gap_s + f64::from(k) * 10.0;
            all.push(TurnTrace {
                session: SessionIx(session),
                turn_id: k + 1,
                line: 0,
                request_id: None,
                timestamp: Dur::from_secs_f64(at).unwrap(),
                input_length: first_input + k * 1000,
                output_length: 100,
                cached_tokens: if k == 0 { 0 } else { first_input + (k - 1) * 1000 + 100 },
                prompt: BlockPath::EMPTY,
                context: BlockPath::EMPTY,
                extends_previous: k > 0,
                output_raised: false,
            });
        }
    }
    let of = |session: u32| SessionTrace {
        id: format!("s{session}"),
        turns: session * turns..(session + 1) * turns,
        incomplete: false,
    };
    Trace {
        meta: TraceMeta {
            name: "hand-made".into(),
            source: "test".into(),
            sha256: String::new(),
            format: "generated".into(),
            timestamp_unit: "s".into(),
            block_size: 64,
            block_size_source: "default".into(),
            origin_ns: 0,
        },
        sessions: (0..sessions).map(of).collect(),
        turns: all,
        tree: BlockTree::new(64),
        notices: Vec::new(),
    }
}

fn one_p_seven_d(cap_max: u32) -> Scenario {
    let mut scenario = Scenario::default();
    (scenario.cluster.prefill, scenario.cluster.decode) = (1, 7);
    scenario.admission.cap_max = cap_max;
    scenario
}

#[test]
fn twenty_eight_slots_starve_twenty_four_of_fifty_two_sessions() {
    let found = preflight(&one_p_seven_d(4), &trace(52, 10, 0.01, 2000));
    let slots = found.slots.clone().unwrap();
    assert_eq!((slots.total, slots.wanted, slots.starved), (28, 52, 24));
    assert_eq!(found.peak_live_sessions, 52);
    let sentence =
        "! 28 slots (7 D × cap 4) < 52 sessions, slots are never released: about 24 sessions will never hold one";
    assert!(found.lines().iter().any(|line| line == sentence), "{:#?}", found.lines());
    // Turns 3 to 10 of the 28 sessions with a slot.
    let direct = found.direct.unwrap();
    assert_eq!(direct.by_slots, 28.0 * 8.0 / 520.0);
    assert_eq!(direct.predicted, direct.by_slots);
}

#[test]
fn a_cap_of_sixteen_leaves_capacity_to_bind() {
    let found = preflight(&one_p_seven_d(16), &trace(52, 10, 0.01, 40_000));
    let slots = found.slots.clone().unwrap();
    assert_eq!((slots.total, slots.starved), (112, 0));
    // One pool of 83,000 tokens holds one context of 44,600; seven hold 13.03 of 52 live sessions.
    assert_eq!((found.capacity.sessions_per_worker, found.capacity.mean_context_tokens), (1, 44_600.0));
    let direct = found.direct.clone().unwrap();
    assert_eq!(direct.by_slots, 0.8);
    assert!((direct.by_capacity - 0.8 * (7.0 * 83_000.0 / 44_600.0) / 52.0).abs() < 1e-9);
    assert_eq!(direct.predicted, direct.by_capacity);
    assert!(found.lines().iter().any(|line| line.contains("KV capacity binds")), "{:#?}", found.lines());
    assert_eq!(found.capacity.overload, 52.0 * 49_100.0 / 581_000.0);
}

#[test]
fn sessions_that_share_a_d_may_exceed_its_pool_though_all_pools_would_do() {
    let mut scenario = one_p_seven_d(16);
    scenario.cluster.decode = 2;
    let found = preflight(&scenario, &trace(3, 10, 1.0, 36_000));
    // The first and the third on D0: over 83,000 tokens from the seventh turn of the first to its end.
    assert!(found.capacity.live_context_tokens < found.capacity.pool_tokens as f64);
    assert_eq!((found.capacity.crowded_workers, found.capacity.peak_worker_tokens), (1, 45_100 + 44_100));
    let share = found.capacity.crowded_share;
    assert!((0.2..0.6).contains(&share), "{share}");
    let direct = found.direct.clone().unwrap();
    assert_eq!((direct.at_least, direct.predicted), (17.0 / 30.0, 0.8));
    let says = |words: &str| found.lines().iter().any(|line| line.contains(words));
    assert!(
        says("; may bind on 1 of 2 D, ")
            && says(
                "direct-to-D 56.7 % (none while its D is over its pool) to 80.0 % of all requests: KV capacity may bind"
            )
    );
    assert!(found.lines()[1].starts_with("! KV "), "{:#?}", found.lines());
}

#[test]
fn where_sessions_move_no_direct_share_is_predicted() {
    let mut scenario = one_p_seven_d(4);
    scenario.policy.name = crate::policies::PolicyName::Car;
    let found = preflight(&scenario, &trace(4, 10, 1.0, 2000));
    assert_eq!(found.direct, None);
    let lines = found.lines().join("\n");
    assert!(
        lines.contains("direct-to-D not predicted: sessions move") && !lines.contains("direct-to-D about"),
        "{lines}"
    );
}

#[test]
fn slots_given_back_reach_sessions_that_come_later() {
    let apart = trace(52, 10, 200.0, 2000);
    let mut scenario = one_p_seven_d(1);
    assert_eq!(preflight(&scenario, &apart).slots.unwrap().starved, 45);
    scenario.admission.slot_release = SlotRelease::SessionEnd;
    let found = preflight(&scenario, &apart);
    assert_eq!((found.slots.unwrap().starved, found.peak_live_sessions), (0, 1));
}

#[test]
fn an_admission_by_the_worker_has_no_slots() {
    let mut scenario = one_p_seven_d(4);
    scenario.admission.seed = AdmissionBy::Worker;
    let found = preflight(&scenario, &trace(52, 10, 0.01, 2000));
    assert_eq!(found.slots, None);
    assert_eq!(found.direct.unwrap().by_slots, 0.8);
}

#[test]
fn a_known_capacity_lowers_the_cap() {
    let mut scenario = one_p_seven_d(16);
    scenario.admission.capacity_known = true;
    let trace = trace(4, 10, 0.01, 20_000);
    // 0.9 × 83,000 / 24,600 = 3.04; with the incremental footprint the cap is cap_max.
    assert_eq!(preflight(&scenario, &trace).slots.unwrap().cap, 3);
    scenario.admission.footprint = Footprint::Incremental;
    assert_eq!(preflight(&scenario, &trace).slots.unwrap().cap, 16);
}

#[test]
fn a_time_scale_pushes_gaps_under_the_service_time() {
    let mut scenario = one_p_seven_d(4);
    let trace = trace(5, 10, 100.0, 30_000);
    let at = |scenario: &Scenario| preflight(scenario, &trace);
    assert_eq!(at(&scenario).time_scale, "time-scale 1: 490 s");
    (scenario.replay.arrival_scale, scenario.replay.think_scale) = (100.0, 100.0);
    let found = at(&scenario);
    assert_eq!(found.time_scale, "time-scale 100: 490 s → 4.90 s");
    let gaps = found.gaps.clone().unwrap();
    assert_eq!((gaps.count, gaps.under_service_share, gaps.under_service_share_scaled), (45, 0.0, 1.0));
    assert!(found.prefill_load.unwrap().low > 1.0);
    (scenario.replay.arrival_scale, scenario.replay.think_scale) = (f64::INFINITY, f64::INFINITY);
    let found = at(&scenario);
    assert_eq!(found.time_scale, "time-scale inf: 490 s → as fast as causality allows");
    assert_eq!((found.peak_live_sessions, found.prefill_load), (5, None));
    scenario.replay.think_scale = 1.0;
    let sentence = "arrival-scale inf, think-scale 1: gaps between sessions are divided by inf, gaps inside a session by 1 \
                    (trace: 490 s)";
    assert_eq!(at(&scenario).time_scale, sentence);
}

#[test]
fn before_servers_that_are_not_ours_a_line_of_the_cost_model_says_so() {
    let found = preflight(&one_p_seven_d(4), &trace(5, 10, 100.0, 30_000));
    let (own, foreign) = (found.lines(), found.lines_for_a_server());
    for (own, foreign) in own.iter().zip(&foreign) {
        let is_model = ["KV ", "prefill work", "gaps shorter", "direct-to-D"].iter().any(|part| own.contains(part));
        let tail = if is_model { " (by the scenario's cost model)" } else { "" };
        assert_eq!(*foreign, format!("{own}{tail}"));
    }
    assert!(own.len() == foreign.len() && own != foreign);
}

#[test]
fn turns_no_worker_can_take_are_named() {
    let mut scenario = one_p_seven_d(4);
    scenario.engine.context_limit_tokens = 8192;
    let found = preflight(&scenario, &trace(2, 3, 1.0, 7000));
    let sentence = "! 2 turns of 2 sessions over engine.context_limit_tokens = 8,192 tokens will be refused (s0, s1)";
    assert_eq!(found.lines()[1], sentence);
    // 7,000, 8,000 and 9,000 tokens of prompt, 100 of answer each.
    assert_eq!((found.over_limit.turns, found.over_limit.sessions), (2, vec!["s0".to_string(), "s1".to_string()]));
}

#[test]
fn service_time_follows_the_formulas() {
    let mut scenario = one_p_seven_d(4);
    let trace = trace(1, 3, 1.0, 20_000);
    let turns = trace.turns_of(SessionIx(0));
    // Turn 3: 900 new tokens on 21,100; 100 answer tokens at a mean context of 22,050.
    let prefill = 22.558 + 9.855e-3 * 900.0 + 1.2787e-6 * 900.0 * 21_550.0;
    let step = 3.843 + 0.1029 * 8.0 + 0.0684 + 32.51e-6 * 22_050.0;
    let direct_s = (6.0 + 1.8 + prefill + 100.0 * step) / 1000.0;
    assert!((Service::new(&scenario).unloaded_s(turns, 2) - direct_s).abs() < 1e-9);
    scenario.engine.timing.small_prefill = vec![(500, 10.0), (1300, 30.0)];
    let table_s = direct_s + (20.0 - 22.558 - 9.855e-3 * 900.0) / 1000.0;
    assert!((Service::new(&scenario).unloaded_s(turns, 2) - table_s).abs() < 1e-9);
}

#[test]
fn nothing_breaks_without_sessions_or_with_one_turn() {
    for mechanism in [Mechanism::Dp, Mechanism::Pd, Mechanism::Kvc] {
        for schedule in [Schedule::Open, Schedule::Think, Schedule::OpenStrict] {
            let mut scenario = Scenario::default();
            (scenario.replay.mechanism, scenario.replay.schedule) = (mechanism, schedule);
            scenario.cluster.colocated = 8;
            let empty = preflight(&scenario, &trace(0, 0, 0.0, 0));
            assert_eq!((empty.requests, empty.peak_live_sessions, empty.gaps.clone()), (0, 0, None));
            assert!(!empty.lines().is_empty());
            let single = preflight(&scenario, &trace(1, 1, 0.0, 100));
            assert_eq!((single.requests, single.peak_live_sessions), (1, 1));
            let json = serde_json::to_string(&single).unwrap();
            assert_eq!(serde_json::from_str::<Preflight>(&json).unwrap(), single);
        }
    }
}

#[test]
fn conflicts_head_the_report() {
    let mut scenario = one_p_seven_d(4);
    scenario.policy.name = crate::policies::PolicyName::Default;
    let found = preflight(&scenario, &trace(1, 1, 0.0, 100));
    assert!(found.refuses());
    assert_eq!(found.conflicts[0].kind, ConflictKind::TwoCounters);
    assert!(found.lines().iter().any(|line| line.ends_with(", were it not for the conflict")));
    assert!(found.lines()[0].starts_with("! conflict, refused without --allow-conflict: policy default with kvc"));
}

#[test]
fn an_idle_session_gives_its_slot_to_one_that_asks() {
    // Fourteen sessions take turns on seven slots: with idle-lru each is seeded, and loses the slot before its next turn.
    let mut scenario = one_p_seven_d(1);
    let at = |scenario: &Scenario| {
        let found = preflight(scenario, &trace(14, 10, 0.5, 2000));
        (found.slots.unwrap().starved, found.direct.unwrap().by_slots)
    };
    assert_eq!(at(&scenario), (7, 7.0 * 8.0 / 140.0));
    scenario.admission.slot_release = SlotRelease::IdleLru;
    let (starved, by_slots) = at(&scenario);
    assert_eq!(starved, 0);
    assert!(by_slots < 0.1, "{by_slots}");
    // Slots for all: nobody has to give one up.
    scenario.admission.cap_max = 2;
    assert_eq!(at(&scenario), (0, 0.8));
}

#[test]
fn a_first_turn_that_seeds_makes_the_second_go_direct() {
    let mut scenario = one_p_seven_d(4);
    let at = |scenario: &Scenario, turns: u32| preflight(scenario, &trace(40, turns, 0.5, 2000));
    assert_eq!(at(&scenario, 10).direct.unwrap().by_slots, 28.0 * 8.0 / 400.0);
    assert_eq!(at(&scenario, 1).slots.unwrap().wanted, 0);
    scenario.replay.first_turn = FirstTurn::Seed;
    let found = at(&scenario, 10);
    assert_eq!(found.direct.unwrap().by_slots, 28.0 * 9.0 / 400.0);
    let slots = at(&scenario, 1).slots.unwrap();
    assert_eq!((slots.wanted, slots.starved), (40, 12), "sessions of one turn take slots too");
}

#[test]
fn prompts_that_share_iterations_do_not_queue_all_run_long() {
    // One prompt of 100 tokens each 10 ms: 23.5 ms alone on either of two P, but the fixed 22.6 ms are shared.
    let mut scenario = Scenario::default();
    (scenario.cluster.prefill, scenario.cluster.decode) = (2, 6);
    let mut trace = trace(2000, 1, 0.01, 100);
    trace.turns.iter_mut().for_each(|turn| turn.output_length = 10);
    let found = preflight(&scenario, &trace);
    assert!(found.peak_live_sessions < 50, "{} live", found.peak_live_sessions);
    let load = found.prefill_load.clone().unwrap();
    let full = 100.0 / 8192.0 * (22.558 + 9.855e-3 * 8192.0) + 1.2787e-6 * 5000.0;
    assert!((load.low - full / 20.0).abs() < 1e-3 && (load.high - 23.55 / 20.0).abs() < 1e-2, "{load:?}");
    let sentence = "  prefill work 0.06 to 1.18 of what 2 workers can do in the planned time, by batching and \
                    cache hits: prompts may queue";
    assert!(found.lines().iter().any(|line| line == sentence), "{:#?}", found.lines());
}

#[test]
fn a_long_prompt_pays_for_each_of_its_iterations() {
    let scenario = Scenario::default();
    let alone = Service::new(&scenario).alone_s(prefill::Prompt { new: 20_000.0, cached: 0.0 });
    assert!((alone * 1e3 - (3.0 * 22.558 + 9.855e-3 * 20_000.0 + 1.2787e-6 * 2e8)).abs() < 1e-9);
    let mut server = prefill::Server::default();
    let half = prefill::Prompt { new: 4096.0, cached: 0.0 };
    let service = Service::new(&scenario);
    let ends = [0.0, 0.01, 0.02, 0.03].map(|arrived| server.prefill(&service, arrived, half));
    let fixed = 22.558e-3;
    // The first is under way when the others come: the second opens an iteration, the third fills it.
    let each = service.alone_s(half);
    assert!((ends[1] - 2.0 * each).abs() < 1e-9 && (ends[2] - (3.0 * each - fixed)).abs() < 1e-9, "{ends:?}");
    assert!((ends[3] - (4.0 * each - fixed)).abs() < 1e-9, "{ends:?}");
}

#[test]
fn a_range_is_said_where_kv_room_decides_who_goes_direct() {
    let found = preflight(&one_p_seven_d(16), &trace(52, 10, 0.01, 40_000));
    let load = found.prefill_load.clone().unwrap();
    assert!(load.low * 2.0 < load.high, "{load:?}");
}

/// Words against numbers, for every combination of extremes.
#[test]
fn words_agree_with_numbers_at_the_extremes() {
    let traces = [
        trace(0, 0, 0.0, 0),
        trace(1, 1, 0.0, 100),
        trace(1, 10, 0.0, 2000),
        trace(52, 1, 0.0, 2000),
        trace(52, 10, 0.0, 40_000),
        trace(52, 10, 1000.0, 2000),
        trace(20_000, 1, 0.01, 100),
    ];
    for trace in &traces {
        for (mechanism, schedule) in [Mechanism::Dp, Mechanism::Pd, Mechanism::Kvc].into_iter().zip([
            Schedule::Open,
            Schedule::Think,
            Schedule::Open,
        ]) {
            for (scale, pool, cap, release) in [
                (1.0, 83_000, 4, SlotRelease::Never),
                (10.0, 64, 4, SlotRelease::Never),
                (f64::INFINITY, 83_000, 1, SlotRelease::SessionEnd),
                (1e9, 50_000_000, 1000, SlotRelease::IdleLru),
                (0.001, 45_000, 1, SlotRelease::Never),
            ] {
                let mut scenario = one_p_seven_d(cap);
                scenario.cluster.colocated = 8;
                (scenario.replay.mechanism, scenario.replay.schedule) = (mechanism, schedule);
                (scenario.replay.arrival_scale, scenario.replay.think_scale) = (scale, scale);
                (scenario.engine.kv_pool_tokens, scenario.admission.slot_release) = (pool, release);
                agrees(&preflight(&scenario, trace));
            }
        }
    }
}

fn agrees(found: &Preflight) {
    let lines = found.lines();
    let text = lines.join("\n");
    let says = |words: &str| text.contains(words);
    assert!(lines.len() <= 8 + found.conflicts.len(), "{text}");
    assert!(!says("NaN") && !says(" 1 sessions") && !says(" 1 requests"), "{text}");
    assert!(lines[found.conflicts.len() + 1..].is_sorted_by_key(|line| !line.starts_with('!')), "{text}");
    let none_fits = found.requests > 0 && found.over_limit.turns == found.requests;
    assert_eq!(says("no turn fits"), none_fits, "{text}");
    if none_fits || found.requests == 0 {
        assert!(!says("bind") && !says("slot") && !says("live at once"), "{text}");
        return;
    }
    let starved = found.slots.as_ref().is_some_and(|slots| slots.starved > 0);
    assert_eq!(says("will never hold") || says("before a slot is released"), starved, "{text}");
    if let Some(slots) = &found.slots {
        assert_eq!(says("no session asks for one"), slots.wanted == 0, "{text}");
        assert_eq!(says(" ≥ "), slots.wanted > 0 && slots.total >= u64::from(slots.wanted), "{text}");
    }
    if let Some(direct) = &found.direct {
        assert!(direct.predicted <= direct.appendable && direct.by_capacity <= direct.appendable, "{direct:?}");
        assert_eq!(says("no turn can be appended"), direct.appendable == 0.0, "{text}");
        assert!(direct.at_least <= direct.predicted, "{direct:?}");
        let is_range = is_range(direct.at_least, direct.predicted);
        assert_eq!(says("direct-to-D about"), direct.appendable > 0.0 && !is_range, "{text}");
        let free = direct.appendable > 0.0 && direct.predicted == direct.appendable && !is_range;
        assert_eq!(says("neither slots nor KV capacity bind"), free, "{text}");
        let by_slots = direct.by_slots < direct.by_capacity;
        assert_eq!(says("slots bind (") || says("slots bind before"), by_slots, "{text}");
        assert_eq!(says("KV capacity binds"), direct.by_capacity < direct.by_slots, "{text}");
    }
    if let Some(load) = &found.prefill_load {
        assert!(load.low <= load.high + 1e-9, "{load:?}");
        assert_eq!(says("queue all run long"), load.low > 1.0, "{text}");
        assert_eq!(says("may queue"), load.low <= 1.0 && load.high > 1.0, "{text}");
    }
    let full = found.capacity.live_context_tokens > found.capacity.pool_tokens as f64;
    assert_eq!(says("! KV "), full || found.capacity.crowded_workers > 0, "{text}");
    assert_eq!(says("may bind on"), found.capacity.crowded_workers > 0, "{text}");
    let pool = found.capacity.pool_tokens / u64::from(found.capacity.workers);
    assert_eq!(found.capacity.crowded_workers > 0, found.capacity.peak_worker_tokens > pool, "{text}");
}
