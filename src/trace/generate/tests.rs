//! The generator against its published statistics, over seeds and sizes.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;
use crate::base::Dur;
use crate::trace::Row;

fn spec(seed: u64) -> GenerateSpec {
    GenerateSpec { seed, ..GenerateSpec::default() }
}

fn value(plan: &Plan, name: &str) -> f64 {
    plan.statistics().iter().find(|statistic| statistic.name == name).expect("a known statistic").value
}

fn assert_targets(plan: &Plan) {
    for statistic in plan.statistics() {
        assert!(statistic.is_met(), "seed {}: {statistic:?}", plan.spec.seed);
    }
}

/// Nearest-rank quantile of whole numbers: a second way to count, beside the generator's own.
fn rank(values: &mut [u64], share: f64) -> u64 {
    values.sort_unstable();
    values[((values.len() - 1) as f64 * share).round() as usize]
}

fn within(value: f64, target: f64, share: f64) -> bool {
    (value / target - 1.0).abs() <= share
}

#[test]
fn every_published_number_is_hit_for_25_seeds() {
    for seed in 0..25 {
        let plan = Plan::new(&spec(seed)).unwrap();
        assert_targets(&plan);
        let aimed = plan.statistics().iter().filter(|statistic| statistic.target.is_some()).count();
        assert_eq!(aimed, 12, "all published numbers are targets");
    }
}

#[test]
fn the_trace_itself_has_the_published_numbers() {
    for seed in [0, 7, 42, u64::MAX] {
        let trace = generate(&spec(seed)).unwrap();
        assert_eq!((trace.turns.len(), trace.sessions.len()), (4_449, 52));
        assert_eq!(trace.sessions.iter().map(|s| s.turns.len()).max(), Some(150));
        assert!(within(trace.span().as_secs_f64(), 6_000.0, 0.02));
        let mut gaps = Vec::new();
        let mut peaks = Vec::new();
        for session in 0..52 {
            let turns = trace.turns_of(crate::base::SessionIx(session));
            gaps.extend(turns.windows(2).map(|pair| pair[1].timestamp.ns() - pair[0].timestamp.ns()));
            peaks.push(turns.iter().map(|turn| u64::from(turn.input_length)).max().unwrap());
        }
        for (share, published_s) in [(0.1, 1.6), (0.5, 2.5), (0.9, 7.8), (1.0, 261.0)] {
            let measured = Dur(rank(&mut gaps, share)).as_secs_f64();
            assert!(within(measured, published_s, 0.03), "seed {seed}: gap {share}: {measured}");
        }
        // 30 light sessions at 31,344 and 22 heavy ones at 56,011.
        let sum: u64 = peaks.iter().sum();
        assert!(within(sum as f64, 30.0 * 31_344.0 + 22.0 * 56_011.0, 0.03), "seed {seed}: peaks sum to {sum}");
        assert!(within(rank(&mut peaks, 1.0) as f64, 100_000.0, 0.03));
        let answers: u64 = trace.turns.iter().map(|turn| u64::from(turn.output_length)).sum();
        assert!(within(answers as f64 / 4_449.0, 240.0, 0.03));
    }
}

#[test]
fn the_eight_published_sessions_are_there() {
    let trace = generate(&spec(3)).unwrap();
    for (id, turns) in [("22080", 129), ("3840", 118), ("70560", 150), ("50400", 105)] {
        let session = trace.sessions.iter().find(|session| session.id == id).unwrap();
        assert_eq!(session.turns.len(), turns);
    }
    let ids: BTreeSet<u64> = trace.sessions.iter().map(|session| session.id.parse().unwrap()).collect();
    assert_eq!(ids.len(), 52);
    assert!(ids.iter().all(|id| id % 160 == 0 && *id < 80_000));
}

#[test]
fn no_turn_starts_before_its_predecessor_could_have_ended() {
    for seed in 0..25 {
        let trace = generate(&spec(seed)).unwrap();
        for session in &trace.sessions {
            let turns = &trace.turns[session.turns.start as usize..session.turns.end as usize];
            for pair in turns.windows(2) {
                let gap_ns = pair[1].timestamp.ns() - pair[0].timestamp.ns();
                let least_ns = 250_000_000 + u64::from(pair[0].output_length) * 1_000_000_000 / 190;
                assert!(gap_ns >= least_ns, "seed {seed}, session {}: {:?}", session.id, pair[0]);
            }
        }
    }
}

#[test]
fn every_turn_extends_the_previous_one_and_sessions_share_only_the_prefix() {
    let trace = generate(&spec(42)).unwrap();
    assert!(trace.notices.is_empty(), "{:?}", trace.notices);
    for session in &trace.sessions {
        let turns = &trace.turns[session.turns.start as usize..session.turns.end as usize];
        assert!(turns[1..].iter().all(|turn| turn.extends_previous));
        for pair in turns.windows(2) {
            assert_eq!(pair[1].cached_tokens, pair[0].input_length + pair[0].output_length);
        }
    }
    let firsts: Vec<_> =
        trace.sessions.iter().map(|session| trace.turns[session.turns.start as usize].prompt).collect();
    for pair in firsts.windows(2) {
        assert_eq!(trace.tree.common_depth(pair[0], pair[1]), 100 / 64);
    }
}

/// Every id a row shows has one predecessor, all rows have ceil(input / block) ids, and no last block is used twice.
#[test]
fn rows_are_prefix_chained_and_in_time_order() {
    for block_size in [1, 24, 64, 512, 4_096] {
        let small = GenerateSpec { sessions: 4, requests: Some(80), block_size, ..spec(5) };
        let plan = Plan::new(&small).unwrap();
        let mut parent = std::collections::BTreeMap::new();
        let mut tails = BTreeSet::new();
        let mut clock = 0;
        plan.each_row(|row: Row<'_>| -> Result<(), GenerateError> {
            let ids = row.hash_ids.unwrap();
            assert_eq!(ids.len(), row.input_length.div_ceil(block_size) as usize);
            for (depth, pair) in ids.windows(2).enumerate() {
                assert_eq!(*parent.entry(pair[1]).or_insert((depth, pair[0])), (depth, pair[0]));
            }
            if !row.input_length.is_multiple_of(block_size) {
                assert!(tails.insert(*ids.last().unwrap()), "a part-filled block appears once");
            }
            assert!(row.timestamp_ns >= clock);
            clock = row.timestamp_ns;
            Ok(())
        })
        .unwrap();
        assert_eq!(plan.request_count(), 80);
        assert!(parent.values().all(|(_, id)| !tails.contains(id)), "nothing follows a part-filled block");
    }
}

#[test]
fn a_seed_gives_one_trace() {
    let (a, b) = (Plan::new(&spec(9)).unwrap(), Plan::new(&spec(9)).unwrap());
    assert_eq!(a, b);
    assert_eq!(generate(&spec(9)).unwrap().turns, generate(&spec(9)).unwrap().turns);
    assert_eq!(a.sha256(), b.sha256());
    let other = Plan::new(&spec(10)).unwrap();
    assert_ne!(a.sha256(), other.sha256());
    assert_ne!(a.input, other.input);
}

#[test]
fn the_arrival_moves_starts_and_nothing_else() {
    let uniform = Plan::new(&spec(42)).unwrap();
    let burst = Plan::new(&GenerateSpec { arrival: Arrival::Burst, ..spec(42) }).unwrap();
    assert_eq!((&uniform.input, &uniform.pace), (&burst.input, &burst.pace));
    assert_ne!(uniform.start_ms, burst.start_ms);
}

#[test]
fn a_burst_starts_all_sessions_within_two_seconds() {
    for seed in 0..25 {
        let trace = generate(&GenerateSpec { arrival: Arrival::Burst, ..spec(seed) }).unwrap();
        let starts = trace.sessions.iter().map(|session| trace.turns[session.turns.start as usize].timestamp);
        assert!(starts.max().unwrap() < Dur::from_millis(2_000));
        // As long as the longest session: 150 turns of 4.8 s on average.
        let span_s = trace.span().as_secs_f64();
        assert!((600.0..1_200.0).contains(&span_s), "seed {seed}: {span_s}");
    }
}

#[test]
fn a_pool_keeps_its_agents_busy_and_no_more() {
    for workers in [1, 4, 32, 1_000_000] {
        let pool = GenerateSpec { arrival: Arrival::Pool, pool_workers: workers, ..spec(42) };
        let live = value(&Plan::new(&pool).unwrap(), "live_sessions_max");
        let agents = f64::from(workers.min(52));
        assert!((agents * 0.9..=agents).contains(&live), "{workers} agents, {live} sessions live");
    }
}

#[test]
fn ten_times_the_sessions_keep_the_statistics() {
    for seed in [1, 42] {
        let plan = Plan::new(&GenerateSpec { sessions: 520, ..spec(seed) }).unwrap();
        assert_eq!(plan.request_count(), 44_490);
        assert_targets(&plan);
        assert_eq!(value(&plan, "heavy_sessions"), 220.0);
        assert!(within(value(&plan, "span_s"), 60_000.0, 0.001));
        assert!(within(value(&plan, "growth_mean_tokens"), 465.0, 0.03));
    }
}

#[test]
fn a_hundred_times_the_sessions_keep_the_statistics() {
    let plan = Plan::new(&GenerateSpec { sessions: 5_200, ..spec(42) }).unwrap();
    assert_eq!(plan.request_count(), 444_900);
    assert_targets(&plan);
    let ids: BTreeSet<u32> = plan.sessions.iter().map(|planned| planned.session.id).collect();
    assert_eq!(ids.len(), 5_200);
}

#[test]
fn small_and_odd_sizes_have_exactly_what_was_asked() {
    for (sessions, requests) in
        [(1, 1), (1, 150), (2, 3), (3, 200), (6, 514), (20, 3_000), (20, 1_220), (52, 52), (40, 1_801)]
    {
        for seed in 0..5 {
            let odd = GenerateSpec { sessions, requests: Some(requests), output_mean: 100.0, ..spec(seed) };
            let trace = generate(&odd).unwrap();
            assert_eq!((trace.sessions.len(), trace.turns.len()), (sessions as usize, requests as usize));
        }
    }
}

#[test]
fn an_asked_span_is_met() {
    for span_s in [1_500.0, 20_000.0] {
        let plan = Plan::new(&GenerateSpec { span_s: Some(span_s), ..spec(4) }).unwrap();
        assert!(within(value(&plan, "span_s"), span_s, 0.001));
    }
}

#[test]
fn asked_means_are_met() {
    let asked = GenerateSpec {
        output_mean: 150.0,
        peak_light: 25_000,
        peak_heavy: 70_000,
        peak_max: 180_000,
        heavy_sessions: Some(30),
        shared_prefix: 4_096,
        ..spec(11)
    };
    assert_targets(&Plan::new(&asked).unwrap());
}

#[test]
fn a_mean_that_does_not_fit_is_said_in_a_notice() {
    let single = GenerateSpec { sessions: 3, requests: Some(3), ..spec(1) };
    let trace = generate(&single).unwrap();
    assert!(
        trace.notices.iter().any(|n| n.code == "target-missed" && n.text.contains("peak_light")),
        "{:?}",
        trace.notices
    );
}

#[test]
fn impossible_knobs_are_refused_with_a_remedy() {
    let good = GenerateSpec::default();
    let cases: Vec<(GenerateSpec, &str)> = vec![
        (GenerateSpec { sessions: 0, ..good.clone() }, "sessions is 0"),
        (GenerateSpec { sessions: 100_001, ..good.clone() }, "sessions is 100001"),
        (GenerateSpec { block_size: 0, ..good.clone() }, "block_size is 0"),
        (GenerateSpec { pool_workers: 0, ..good.clone() }, "pool_workers is 0"),
        (GenerateSpec { requests: Some(51), ..good.clone() }, "at least one request per session"),
        (GenerateSpec { requests: Some(7_801), ..good.clone() }, "at most 7800 requests"),
        (GenerateSpec { span_s: Some(f64::NAN), ..good.clone() }, "span_s is NaN"),
        (GenerateSpec { span_s: Some(-1.0), ..good.clone() }, "span_s is -1"),
        (GenerateSpec { output_mean: f64::INFINITY, ..good.clone() }, "output_mean is inf"),
        (GenerateSpec { output_mean: 0.0, ..good.clone() }, "output_mean is 0"),
        (GenerateSpec { output_mean: 900.0, ..good.clone() }, "answer tokens at most"),
        (GenerateSpec { pool_setup_s: f64::NAN, ..good.clone() }, "pool_setup_s is NaN"),
        (GenerateSpec { heavy_sessions: Some(53), ..good.clone() }, "at most 52"),
        (GenerateSpec { peak_light: 5_000, ..good.clone() }, "below the longest first prompt of 5672"),
        (GenerateSpec { peak_heavy: 30_000, ..good.clone() }, "peak_heavy is 30000, below peak_light 31344"),
        (GenerateSpec { peak_max: 50_000, ..good.clone() }, "peak_max is 50000, below peak_heavy 56011"),
        (GenerateSpec { peak_max: u32::MAX, ..good.clone() }, "above the limit"),
        (GenerateSpec { shared_prefix: u32::MAX, ..good.clone() }, "above the limit"),
        (GenerateSpec { span_s: Some(100.0), ..good.clone() }, "the longest session of this seed lasts"),
        (GenerateSpec { span_s: Some(100.0), arrival: Arrival::Burst, ..good.clone() }, "leave it out"),
        (GenerateSpec { sessions: 1, span_s: Some(9_000.0), ..good }, "single session"),
    ];
    for (spec, words) in cases {
        let error = generate(&spec).expect_err(words).to_string();
        assert!(error.contains(words), "`{error}` does not say `{words}`");
    }
}

#[test]
fn names_are_read_and_unknown_ones_refused() {
    for arrival in [Arrival::Uniform, Arrival::Pool, Arrival::Burst] {
        assert_eq!(arrival.as_str().parse(), Ok(arrival));
        assert_eq!(serde_json::to_string(&arrival).unwrap(), format!("\"{}\"", arrival.as_str()));
    }
    assert_eq!(Preset::SweBench52.as_str().parse(), Ok(Preset::SweBench52));
    assert!("swe".parse::<Preset>().unwrap_err().to_string().contains("swe-bench-52"));
    assert!("poisson".parse::<Arrival>().unwrap_err().to_string().contains("uniform, pool or burst"));
}

#[test]
fn a_spec_survives_json() {
    let spec = GenerateSpec { requests: Some(500), sessions: 10, ..spec(7) };
    let text = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<GenerateSpec>(&text).unwrap(), spec);
    assert!(serde_json::from_str::<GenerateSpec>("{\"sesions\": 3}").is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn any_spec_is_refused_or_met(
        seed: u64,
        sessions in 1u32..12,
        turns in 1.0f64..160.0,
        block_size in prop_oneof![1u32..10, 16u32..5_000],
        shared_prefix in 0u32..20_000,
        output_mean in 0.01f64..250.0,
        peaks in (15_000u32..60_000, 0u32..60_000, 0u32..60_000),
        heavy in prop::option::of(0u32..14),
        arrival in prop_oneof![Just(Arrival::Uniform), Just(Arrival::Pool), Just(Arrival::Burst)],
        pool_workers in 1u32..60,
    ) {
        let requests = (f64::from(sessions) * turns) as u32;
        let spec = GenerateSpec {
            sessions,
            requests: Some(requests),
            block_size,
            shared_prefix,
            output_mean,
            peak_light: peaks.0,
            peak_heavy: peaks.0 + peaks.1,
            peak_max: peaks.0 + peaks.1 + peaks.2,
            heavy_sessions: heavy,
            arrival,
            pool_workers,
            ..spec(seed)
        };
        let Ok(trace) = generate(&spec) else { return Ok(()) };
        prop_assert_eq!((trace.sessions.len(), trace.turns.len()), (sessions as usize, requests as usize));
        for session in &trace.sessions {
            let turns = &trace.turns[session.turns.start as usize..session.turns.end as usize];
            prop_assert!(turns[1..].iter().all(|turn| turn.extends_previous));
            prop_assert!(turns[0].input_length >= shared_prefix);
        }
    }
}
