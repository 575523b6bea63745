//! Two sides against each other, from their records: what is paired, refused, left out and said.

use pdreplay::record::{ExecutionMode, ModeReason, Outcome, RequestRecord};
use pdreplay::results::diff::{
    COLUMNS, Comparison, ComparisonKind, DeltaVerdict, DiffReport, Difference, Options, Origin, Refused, Requests,
    RunInput, SideInput, StarvationChange,
};
use pdreplay::results::page::diff_page;
use pdreplay::results::render::{self, Format, Style};
use pdreplay::results::{Batch, Percentile, Percentiles, RunInfo, RunState, RunSummary};
use serde_json::{Value, json};

use super::schema::problems;
use super::story::{Story, story};
use super::{facts, info, records, request, summarise_with};

fn options(thresholds: &[&str]) -> Options {
    Options {
        percentiles: "50,90,99".parse().unwrap(),
        resamples: 100,
        seed: 1,
        confidence: 0.95,
        force: false,
        thresholds: thresholds.iter().map(|text| text.parse().unwrap()).collect(),
    }
}

fn requests(records: &[RequestRecord]) -> Requests {
    let mut batch = Batch::new(COLUMNS);
    records.iter().for_each(|record| batch.push(record));
    let mut requests = Requests::default();
    requests.push(&batch);
    requests
}

fn origin(trace: &str, scale: f64) -> Option<Origin> {
    let scenario = json!({"seed": 1, "replay": {"time_scale": scale}});
    Some(Origin { trace_sha256: trace.into(), arrival_scale: scale, think_scale: scale, scenario })
}

fn run_of(records: &[RequestRecord], summary: RunSummary, origin: Option<Origin>) -> RunInput {
    RunInput {
        path: "run".into(),
        run_id: "id".into(),
        damage: Vec::new(),
        doubt: None,
        summary,
        requests: requests(records),
        origin,
    }
}

fn run(records: &[RequestRecord]) -> RunInput {
    run_with(records, info(records.len() as u64, 0), None)
}

fn run_with(records: &[RequestRecord], info: RunInfo, origin: Option<Origin>) -> RunInput {
    let planned = facts(info.requests, &[]);
    run_of(records, summarise_with(records, percentiles(), &planned, &info), origin)
}

fn percentiles() -> Percentiles {
    "50,90,95,99".parse().unwrap()
}

fn side(runs: Vec<RunInput>) -> SideInput {
    SideInput { label: "side".into(), runs }
}

fn compare(a: Vec<RunInput>, b: Vec<RunInput>, options: Options) -> Result<DiffReport, Refused> {
    let comparison = Comparison::new(side(a), side(b), options)?;
    let draws = comparison.resampler().map(|resampler| {
        let chunks: Vec<_> = (0..resampler.chunks()).map(|chunk| resampler.draw(chunk)).collect();
        (0..chunks[0].len()).map(|figure| chunks.iter().flat_map(|chunk| chunk[figure].clone()).collect()).collect()
    });
    let report = comparison.report(draws.as_ref());
    let value = serde_json::to_value(&report).unwrap();
    let schema = DiffReport::schema().to_value();
    assert_eq!(problems(&value, &schema, &schema, ""), Vec::<String>::new());
    Ok(report)
}

/// So many sessions of three turns; turn n takes `of(session, n)` ms.
fn sessions(count: u32, of: impl Fn(u32, u32) -> f64) -> Vec<RequestRecord> {
    let turns = (0..count).flat_map(|session| (1..=3).map(move |turn| (session, turn)));
    turns
        .map(|(session, turn)| request(&format!("s{session}"), turn, 0, of(session, turn) / 2.0, of(session, turn)))
        .collect()
}

fn metric<'r>(report: &'r DiffReport, key: &str) -> &'r pdreplay::results::diff::MetricDelta {
    report.metric(key).unwrap_or_else(|| panic!("no {key}"))
}

fn text(report: &DiffReport) -> String {
    render::diff::text(report, render::diff::Shown::Headline, Style::default())
}

#[test]
fn a_run_against_itself_differs_in_nothing() {
    let records = sessions(8, |session, turn| f64::from(100 * turn + session));
    let report = compare(vec![run(&records)], vec![run(&records)], options(&["p99_e2e_ms>+0%"])).unwrap();
    assert_eq!(report.comparison, ComparisonKind::Identical);
    for metric in &report.metrics {
        assert!(metric.delta.is_none_or(|delta| delta == 0.0), "{metric:?}");
        assert!(metric.interval.is_none_or(|interval| (interval.lo, interval.hi) == (0.0, 0.0)), "{metric:?}");
        assert!(matches!(metric.verdict, DeltaVerdict::Same | DeltaVerdict::NotComparable), "{metric:?}");
    }
    assert!(report.transitions.iter().all(|row| row.from == row.to) && report.outcomes.changes.is_empty());
    assert!(report.splits.iter().all(|split| (split.delta_ms, split.mix_ms, split.within_ms) == (0.0, 0.0, 0.0)));
    assert!(!report.is_crossed() && text(&report).contains("no difference"));
}

#[test]
fn the_order_of_the_lines_does_not_matter_and_the_other_way_round_is_the_negative() {
    let a = sessions(6, |session, turn| f64::from(100 * turn + session));
    let mut b = sessions(6, |session, turn| f64::from(90 * turn + 3 * session));
    let forward = compare(vec![run(&a)], vec![run(&b)], options(&[])).unwrap();
    let backward = compare(vec![run(&b)], vec![run(&a)], options(&[])).unwrap();
    b.reverse();
    assert_eq!(compare(vec![run(&a)], vec![run(&b)], options(&[])).unwrap().metrics, forward.metrics);
    for (there, back) in forward.metrics.iter().zip(&backward.metrics) {
        assert_eq!(there.delta.map(|delta| -delta + 0.0), back.delta.map(|delta| delta + 0.0), "{}", there.key);
        let ends = |interval: Option<pdreplay::results::diff::Interval>| interval.map(|i| (i.lo, i.hi));
        if let (Some((lo, hi)), Some((back_lo, back_hi))) = (ends(there.interval), ends(back.interval)) {
            assert!((lo + back_hi).abs() < 1e-6 && (hi + back_lo).abs() < 1e-6, "{}", there.key);
        }
    }
}

#[test]
fn what_caches_and_the_index_spared_is_compared() {
    let mut a = sessions(4, |session, turn| f64::from(100 * turn + session));
    a.iter_mut().for_each(|record| (record.cached_tokens, record.ideal_hit_tokens) = (Some(500), 900));
    let mut b = sessions(4, |session, turn| f64::from(90 * turn + session));
    let faster = b.clone();
    for record in &mut b {
        (record.cached_tokens, record.ideal_hit_tokens) = (Some(800), 900);
        (record.index_hit_tokens_device, record.index_hit_tokens_host_only) = (Some(700), Some(150));
        record.index_blind = Some(record.turn_id == 1);
    }
    let report = compare(vec![run(&a)], vec![run(&b)], options(&["mean_recomputed_tokens>200"])).unwrap();
    let of = |key: &str| (metric(&report, key).a, metric(&report, key).b);
    assert_eq!(of("cached_token_share"), (Some(0.5), Some(0.8)));
    assert_eq!(of("mean_recomputed_tokens"), (Some(400.0), Some(100.0)));
    assert_eq!(of("index_blind_share"), (None, Some(1.0 / 3.0)));
    assert_eq!(of("index_over_promised_tokens"), (None, Some(12.0 * 50.0)));
    assert_eq!(of("index_under_promised_tokens"), (None, Some(0.0)));
    let shown = text(&report);
    assert!(shown.contains("cached_token_share") && shown.contains("index_over_promised_tokens"), "{shown}");
    let without = compare(vec![run(&a)], vec![run(&faster)], options(&[])).unwrap();
    assert!(!text(&without).contains("index_"), "what neither side has is not shown: {}", text(&without));
}

#[test]
fn case_82_a_fast_failure_is_no_improvement() {
    let Some(bad) = records("82-failures-inside-percentiles", "records.jsonl") else { return };
    let good: Vec<RequestRecord> = bad
        .iter()
        .map(|record| RequestRecord {
            outcome: Outcome::Ok,
            e2e_ms: Some(1500.0),
            ttft_ms: Some(100.0),
            ..record.clone()
        })
        .collect();
    let report = compare(vec![run(&good)], vec![run(&bad)], options(&["bad_share>1%"])).unwrap();
    let p50 = metric(&report, "p50_e2e_ms");
    assert_eq!((p50.a, p50.b, p50.n_a, p50.n_b), (Some(1500.0), Some(1200.0), 10, 4));
    let endless = metric(&report, "p50_e2e_ms_with_failures");
    assert_eq!((endless.a, endless.b, endless.verdict), (Some(1500.0), None, DeltaVerdict::NotComparable));
    assert!(
        report.is_crossed() && report.notes[0].contains("headline withheld: 60.0 % truncated"),
        "{:?}",
        report.notes
    );
    let shown = text(&report);
    assert!(shown.contains("ok → truncated: 6 requests"), "{shown}");
    assert!(!serde_json::to_string(&report).unwrap().to_lowercase().contains("inf\""));
}

#[test]
fn case_83_nothing_is_above_the_maximum_and_nothing_lost() {
    let Some(records) = records("83-values-outside-the-histogram", "records.jsonl") else { return };
    let mut wide = options(&[]);
    wide.percentiles = "0,50,100".parse().unwrap();
    let mut run = run(&records);
    run.summary = summarise_with(&records, wide.percentiles.clone(), &facts(6, &[]), &info(6, 0));
    let mut again = self::run(&records);
    again.summary = run.summary.clone();
    let report = compare(vec![run], vec![again], wide).unwrap();
    let (least, most) = (metric(&report, "p0_e2e_ms"), metric(&report, "p100_e2e_ms"));
    assert_eq!((least.a, most.a, most.n_a), (Some(0.0), Some(1e8), 6));
    let points = report.curves.iter().flat_map(|curve| &curve.points);
    assert!(points.flat_map(|point| [point.a_ms, point.b_ms]).flatten().all(|ms| ms <= 1e8));
}

/// Steps of a distribution are no coarser than a per cent, and closer towards the tail; equal values are one step.
#[test]
fn distributions_have_the_percentiles_that_matter() {
    let of =
        |session: u64, scale: f64| request(&format!("s{session}"), 1, session, scale, scale * (session + 1) as f64);
    let side = |scale: f64| run(&(0..2000).map(|session| of(session, scale)).collect::<Vec<_>>());
    let report = compare(vec![side(1.0)], vec![side(2.0)], options(&[])).unwrap();
    let of = |name: &str| &report.curves.iter().find(|curve| curve.metric == name).unwrap().points;
    let percentiles: Vec<f64> = of("e2e").iter().map(|point| point.percentile).collect();
    let steps = || percentiles.windows(2).map(|two| (two[0], two[1] - two[0]));
    assert!((140..=200).contains(&percentiles.len()) && steps().all(|(_, step)| step > 0.0 && step <= 1.0));
    assert!(steps().all(|(at, step)| step <= (100.0 - at) / 5.0 + 1e-9 || at >= 99.7), "{percentiles:?}");
    assert_eq!((percentiles[0], percentiles.last()), (0.0, Some(&100.0)));
    // Every first token takes as long as the others.
    assert_eq!(of("ttft").iter().map(|point| point.percentile).collect::<Vec<_>>(), [0.0, 100.0]);
}

#[test]
fn case_85_parts_of_a_run_are_merged_before_they_are_ranked() {
    let folder = "85-percentiles-merged-from-parts";
    let (Some(d0), Some(d1)) = (records(folder, "records-d0.jsonl"), records(folder, "records-d1.jsonl")) else {
        return;
    };
    let whole = [d0.clone(), d1.clone()].concat();
    assert!(Requests::are_parts(&[&requests(&d0), &requests(&d1)]));
    assert!(!Requests::are_parts(&[&requests(&whole), &requests(&d1)]));
    let mut parts = requests(&d0);
    parts.append(requests(&d1));
    let mut merged = run(&whole);
    merged.requests = parts;
    let report = compare(vec![merged], vec![run(&whole)], options(&["p95_e2e_ms>+0%"])).unwrap();
    assert_eq!(report.comparison, ComparisonKind::Identical);
    let shown: Vec<f64> =
        ["p50", "p90", "p95", "mean"].map(|stat| metric(&report, &format!("{stat}_e2e_ms")).a.unwrap()).to_vec();
    assert_eq!(shown, [10.0, 10.0, 1000.0, 109.0]);
}

#[test]
fn case_87_nothing_completed_is_not_comparable_and_never_passes_a_gate() {
    let Some(bad) = records("87-nothing-completed", "records.jsonl") else { return };
    let good: Vec<RequestRecord> = bad
        .iter()
        .map(|record| RequestRecord { outcome: Outcome::Ok, e2e_ms: Some(1500.0), ..record.clone() })
        .collect();
    let sides = [
        (good.clone(), bad.clone(), "B has no completed request"),
        (bad.clone(), good, "A has no"),
        (bad.clone(), bad, "neither"),
    ];
    for (a, b, reason) in sides {
        let report = compare(vec![run(&a)], vec![run(&b)], options(&["p99_e2e_ms>+5%"])).unwrap();
        let shown = text(&report);
        assert!(
            matches!(&report.comparison, ComparisonKind::NotComparable { reason: found } if found.contains(reason))
        );
        assert!(
            shown.contains("not comparable: ")
                && render::diff::markdown(&report, render::diff::Shown::Headline).contains("not comparable"),
            "{shown}"
        );
        assert_eq!(metric(&report, "p50_e2e_ms").verdict, DeltaVerdict::NotComparable);
        assert!(report.is_crossed() && !shown.contains("18446744073709551615"), "{shown}");
    }
}

#[test]
fn empty_and_one_element_groups_are_said_and_never_a_zero() {
    let one = vec![request("s", 1, 0, 1.0, 2.0)];
    let report = compare(vec![run(&one)], vec![run(&one)], options(&[])).unwrap();
    assert!(report.bootstrap.is_none() && report.notes.iter().any(|note| note.contains("one session alone")));
    let tpot = metric(&report, "mean_tpot_ms");
    assert_eq!((tpot.a, tpot.n_a, tpot.verdict), (None, 0, DeltaVerdict::NotComparable));
    let report = compare(vec![run(&[])], vec![run(&[])], options(&[])).unwrap();
    assert!(matches!(report.comparison, ComparisonKind::NotComparable { .. }));
    assert!(!text(&report).contains("NaN"));
}

#[test]
fn other_requests_are_refused_by_number_and_forced_over_those_of_both() {
    let a = sessions(6, |_, turn| f64::from(100 * turn));
    let b = sessions(5, |_, turn| f64::from(200 * turn));
    let refused = compare(vec![run(&a)], vec![run(&b)], options(&[])).unwrap_err();
    assert_eq!(refused.to_string(), "the populations differ: 3 requests in A alone, 0 in B alone, 15 in both");
    let force = Options { force: true, ..options(&["starved_sessions>0"]) };
    let report = compare(vec![run(&a)], vec![run(&b)], force).unwrap();
    assert_eq!(
        (report.paired.both, report.paired.only_a, report.forced[0].difference),
        (15, 3, Difference::Population)
    );
    assert_eq!(metric(&report, "mean_e2e_ms").n_a, 15);
    assert!(report.metric("completed").is_none() && report.metric("starved_sessions").is_none());
    // What was left out cannot be judged, and a gate does not open by itself.
    assert!(report.is_crossed() && text(&report).contains("are left out"), "{}", text(&report));
}

#[test]
fn what_an_unfinished_run_lacks_is_told_above_the_numbers_and_not_refused() {
    let a = sessions(6, |_, turn| f64::from(100 * turn));
    let cut = RunInfo { state: RunState::Unfinished, ..info(18, 6) };
    let report = compare(vec![run(&a)], vec![run_with(&a[..10], cut, None)], options(&[])).unwrap();
    assert_eq!((report.paired.both, report.paired.only_a), (10, 8));
    assert!(report.notes[0].starts_with("B (run): UNFINISHED: "), "{:?}", report.notes);
    let shown = text(&report);
    assert!(shown.find("UNFINISHED").unwrap() < shown.find("Figures").unwrap());
    assert!(report.metric("request_throughput").is_none());
}

#[test]
fn other_traces_and_time_scales_are_refused_and_leave_out_what_is_meaningless() {
    let records = sessions(4, |_, turn| f64::from(100 * turn));
    let with = |origin: Option<Origin>| vec![run_with(&records, info(12, 4), origin)];
    let refused = compare(with(origin("aa", 1.0)), with(origin("bb", 10.0)), options(&[])).unwrap_err();
    let differences: Vec<Difference> = refused.0.iter().map(|forced| forced.difference).collect();
    assert_eq!(differences, [Difference::Trace, Difference::TimeScale]);
    let force = Options { force: true, ..options(&[]) };
    let scales = compare(with(origin("aa", 1.0)), with(origin("aa", 10.0)), force.clone()).unwrap();
    assert!(scales.metric("request_throughput").is_none() && scales.metric("mean_sched_e2e_ms").is_none());
    assert!(scales.metric("mean_e2e_ms").is_some() && !scales.transitions.is_empty());
    assert_eq!(scales.scenario_changes[0].key, "replay.time_scale");
    let traces = compare(with(origin("aa", 1.0)), with(origin("bb", 1.0)), force).unwrap();
    assert!(traces.bootstrap.is_none() && traces.transitions.is_empty() && traces.sessions.rows.is_empty());
    assert_eq!(traces.comparison, ComparisonKind::Different);
}

#[test]
fn runs_of_a_side_that_are_no_repeats_are_refused() {
    let whole = sessions(4, |_, turn| f64::from(100 * turn));
    let refused = compare(vec![run(&whole), run(&whole[..9])], vec![run(&whole)], options(&[])).unwrap_err();
    assert!(refused.to_string().contains("the runs of A are no repeats of each other: 3 requests"), "{refused}");
}

/// The story with cap enough for all: the fallbacks of the later sessions go direct.
fn freed() -> Story {
    let mut freed = story();
    for record in freed.records.iter_mut().filter(|record| record.execution_mode.is_fallback()) {
        record.execution_mode = ExecutionMode::KvcacheDirectToDSession;
        record.mode_reason = ModeReason::Admitted;
        record.e2e_ms = Some(500.0);
    }
    freed
}

fn told(story: &Story) -> RunInput {
    run_of(&story.records, story.summary(), None)
}

#[test]
fn sessions_that_were_freed_or_became_starved_are_named_with_the_causes_of_both_sides() {
    let report = compare(vec![told(&story())], vec![told(&freed())], options(&["became_starved>0"])).unwrap();
    assert_eq!((report.sessions.starved_a, report.sessions.starved_b), (Some(3), Some(0)));
    assert_eq!(report.sessions.freed.as_deref().unwrap(), ["s3", "s4", "s5"]);
    assert!(report.a.causes[0].text.contains("3 slots (3 D × cap 1) < 6 sessions"), "{:?}", report.a.causes);
    assert!(!report.b.causes.iter().any(|cause| cause.text.contains("slots (3 D")), "{:?}", report.b.causes);
    let row = &report.sessions.rows[3];
    assert_eq!((row.session_id.as_str(), row.change), ("s3", Some(StarvationChange::Freed)));
    assert_eq!(row.a.as_ref().unwrap().main_reason, Some(ModeReason::SessionCap));
    assert!(!report.is_crossed() && text(&report).contains("freed: s3 (direct 0 % → 100 %, session-cap)"));
    let back = compare(vec![told(&freed())], vec![told(&story())], options(&["became_starved>0"])).unwrap();
    assert_eq!((back.sessions.became_starved.as_ref().unwrap().len(), back.is_crossed()), (3, true));
}

/// The same requests on workers that keep no sessions.
fn colocated() -> Story {
    let mut story = story();
    for record in &mut story.records {
        (record.execution_mode, record.mode_reason) = (ExecutionMode::DpColocated, ModeReason::Mechanism);
    }
    story.info.mechanism = "dp".into();
    story
}

#[test]
fn sessions_that_are_not_kept_on_d_have_no_direct_share_and_never_wanted_a_slot() {
    let summary = colocated().summary();
    for row in &summary.sessions {
        assert_eq!((row.direct_share, row.slot_hold_s, row.slot_after_end_s), (None, None, None));
    }
    assert_eq!((summary.fairness.direct_share, summary.fairness.histogram), (None, [0; 5]));
    let table = render::sessions(&summary).render(Format::Table, Style::default());
    assert!(!table.contains("never") && table.contains(" – "), "{table}");
}

#[test]
fn what_is_not_judged_for_want_of_sessions_on_d_is_no_0() {
    let gates = ["became_starved>0", "freed_sessions<1", "starved_sessions>+0", "direct_share<-5%", "bimodality>+0"];
    let cases = [
        (colocated(), story(), "A keeps no sessions on D", "starved – → 3: A keeps no sessions on D", [None, Some(3)]),
        (story(), colocated(), "B keeps no sessions on D", "starved 3 → –: B keeps no sessions on D", [Some(3), None]),
        (
            colocated(),
            colocated(),
            "A keeps no sessions on D; B keeps no sessions on D",
            "starved – → –: neither side keeps sessions on D",
            [None, None],
        ),
    ];
    for (a, b, why, line, starved) in cases {
        let report = compare(vec![told(&a)], vec![told(&b)], options(&gates)).unwrap();
        for (gate, judged) in gates.iter().zip(&report.thresholds) {
            let key = gate.split(['<', '>']).next().unwrap();
            assert_eq!(judged.text, format!("{key} cannot be judged: {why}"));
            assert_eq!((judged.value, judged.crossed), (None, true), "{gate}");
        }
        let sessions = &report.sessions;
        assert_eq!([sessions.starved_a, sessions.starved_b], starved);
        let lists = [&sessions.became_starved, &sessions.freed, &sessions.still_starved];
        assert!(lists.into_iter().all(Option::is_none) && sessions.rows.iter().all(|row| row.change.is_none()));
        let sides = sessions.rows.iter().flat_map(|row| [(&row.a, starved[0]), (&row.b, starved[1])]);
        for (side, judged) in sides.map(|(side, judged)| (side.as_ref().unwrap(), judged)) {
            assert_eq!((side.starved_in.is_some(), side.direct_share.is_some()), (judged.is_some(), judged.is_some()));
        }
        if report.comparison != ComparisonKind::Identical {
            let text = text(&report).split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(text.contains(line), "{text}");
            assert!(diff_page(&report).contains(line));
        }
    }
}

#[test]
fn a_page_says_first_that_a_gate_failed() {
    let gate =
        |gates: &[&str]| diff_page(&compare(vec![told(&story())], vec![told(&freed())], options(gates)).unwrap());
    let said = "<strong>--fail-on FAILED: 1 of 2 conditions · figures: ";
    assert!(gate(&["freed_sessions>2", "became_starved>0"]).contains(said));
    let kept = gate(&["became_starved>0"]);
    assert!(!kept.contains("FAILED") && kept.contains("does not cross became_starved"), "{kept}");
}

#[test]
fn groups_say_how_their_starved_sessions_are_counted_and_single_runs_need_not() {
    let starved = |a: Vec<RunInput>, b| {
        let report = compare(a, b, options(&[])).unwrap();
        text(&report).split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let one = starved(vec![told(&story())], vec![told(&freed())]);
    assert!(one.contains("starved 3 → 0: 3 freed"), "{one}");
    let group = || vec![told(&story()), told(&freed()), told(&story())];
    let many = starved(group(), vec![told(&freed()), told(&freed())]);
    let said =
        "starved (below 20 % in more than half of the repeats; starved_sessions is the mean over them) 3 → 0: 3 freed";
    assert!(many.contains(said), "{many}");
}

#[test]
fn requests_that_end_otherwise_have_the_class_of_their_failure() {
    let mut failing = freed();
    let failed = &mut failing.records[4];
    (failed.outcome, failed.error_class) = (Outcome::Truncated, Some("session-not-found".into()));
    let report = compare(vec![told(&freed())], vec![told(&failing)], options(&[])).unwrap();
    let text = text(&report);
    assert!(text.contains("ok → truncated: 1 request"), "{text}");
    assert!(text.contains("failures of B by class: session-not-found 1 (truncated)"), "{text}");
    assert!(!text.contains("failures of A"), "{text}");
}

#[test]
fn the_split_and_the_transitions_say_where_the_difference_comes_from() {
    let report = compare(vec![told(&story())], vec![told(&freed())], options(&[])).unwrap();
    let split = &report.splits[0];
    assert_eq!(split.metric, "e2e");
    assert!((split.mix_ms + split.within_ms - split.delta_ms).abs() < 1e-9 * split.mean_a_ms);
    assert!(split.mix_ms < 0.0 && split.mix_ms.abs() > split.within_ms.abs(), "{split:?}");
    let moved = report.transitions.iter().find(|row| row.from != row.to).unwrap();
    assert_eq!((moved.from, moved.to), (ExecutionMode::FallbackSessionCap, ExecutionMode::KvcacheDirectToDSession));
    assert_eq!((moved.count, report.transitions.iter().map(|row| row.count).sum::<u64>()), (27, 60));
}

#[test]
fn repeats_give_the_noise_and_a_difference_inside_it_is_called_so() {
    let repeat = |base: f64| run(&sessions(5, |session, turn| base + f64::from(10 * turn + session)));
    let inside = compare(
        vec![repeat(100.0), repeat(110.0), repeat(120.0)],
        vec![repeat(105.0), repeat(115.0), repeat(125.0)],
        options(&[]),
    )
    .unwrap();
    let mean = metric(&inside, "mean_e2e_ms");
    // s = 10, t(4) = 2.776: 2.776 · 10 · √(2/3).
    assert!((mean.noise.unwrap() - 22.67).abs() < 0.01, "{mean:?}");
    assert_eq!((mean.verdict, mean.n_a), (DeltaVerdict::InsideNoise, 45));
    assert!(text(&inside).contains("inside the noise of 3 repeats"));
    let outside =
        compare(vec![repeat(100.0), repeat(101.0)], vec![repeat(200.0), repeat(201.0)], options(&[])).unwrap();
    assert_eq!(metric(&outside, "mean_e2e_ms").verdict, DeltaVerdict::Worse);
    let alone = compare(vec![repeat(100.0)], vec![repeat(200.0)], options(&[])).unwrap();
    assert_eq!((metric(&alone, "mean_e2e_ms").noise, alone.noise), (None, None));
}

#[test]
fn a_turn_that_the_trace_repeats_is_paired_by_its_line() {
    let twice = |first: f64, second: f64| {
        let mut records =
            vec![request("s", 1, 0, 1.0, first), request("s", 1, 0, 1.0, second), request("t", 1, 0, 1.0, 5.0)];
        (records[0].trace_line, records[1].trace_line) = (2, 3);
        records
    };
    let mut swapped = twice(10.0, 20.0);
    swapped.swap(0, 1);
    let report = compare(vec![run(&twice(10.0, 20.0))], vec![run(&swapped)], options(&[])).unwrap();
    assert_eq!((report.comparison, report.paired.both), (ComparisonKind::Identical, 3));
}

#[test]
fn a_percentile_of_a_condition_is_computed_for_it() {
    let records = sessions(4, |_, turn| f64::from(100 * turn));
    let given = Options { percentiles: Percentiles::only(Percentile::P50), ..options(&["p95_e2e_ms>+5%"]) };
    assert_eq!(given.wanted_percentiles(), "50,95".parse().unwrap());
    let report = compare(vec![run(&records)], vec![run(&records)], given).unwrap();
    assert!(report.metric("p95_e2e_ms").is_some() && !report.is_crossed());
}

#[test]
fn words_from_outside_have_no_power_over_markdown_or_a_terminal() {
    let hostile = "a|b<img>`x`*\u{1b}[2J";
    let records = |ms: f64| (1..4).map(|turn| request(hostile, turn, 0, 1.0, ms)).collect::<Vec<_>>();
    let mut b = records(2.0);
    b[0].outcome = Outcome::Error;
    let report = compare(vec![run(&records(3.0))], vec![run(&b)], options(&[])).unwrap();
    let markdown = render::diff::markdown(&report, render::diff::Shown::Headline);
    assert!(markdown.contains(r"a\|b\<img\>\`x\`\*") && !markdown.contains('\u{1b}'), "{markdown}");
    assert!(!text(&report).contains('\u{1b}'));
    let value: Value = serde_json::to_value(&report).unwrap();
    assert_eq!(value["sessions"]["rows"][0]["session_id"], hostile);
}
