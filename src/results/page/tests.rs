//! Pages of odd runs, from the library: what the figures say, and that nothing breaks them.

use std::collections::BTreeSet;

use super::columns::MOST_COLUMNS;
use super::{PageTally, RunPage, run_page, story, strip, workers};
use crate::record::{
    ExecutionMode, HarnessFacts, LedgerEvent, LedgerKind, ModeReason, Outcome, RequestRecord, RunFacts, SCHEMA_VERSION,
};
use crate::results::render::summary as words;
use crate::results::{Accumulator, Budgets, Percentiles, RunInfo, RunState, RunSummary, Slos};

fn record(session: &str, turn: u32, sent_ms: u64, e2e_ms: u64, mode: ExecutionMode) -> RequestRecord {
    let text = format!(
        r#"{{"schema_version":{SCHEMA_VERSION},"run_id":"t","session_id":"{session}","turn_id":{turn},"request_id":"{session}/{turn}",
        "trace_line":0,"policy":"p","mechanism":"kvc","execution_mode":"{mode}","mode_reason":"{}","decode_worker_actual":"D0",
        "route_mismatch":false,"placements":0,"scheduled_ns":{sent},"sent_ns":{sent},"ended_ns":{end},"ttft_ms":{ttft},
        "e2e_ms":{e2e_ms},"input_tokens":900,"append_tokens":900,"output_tokens":100,"expected_output_tokens":100,
        "assumed_hit_tokens":0,"ideal_hit_tokens":0,"outcome":"ok","attempts":1,"retractions":0}}"#,
        ModeReason::Mechanism,
        sent = sent_ms * 1_000_000,
        end = (sent_ms + e2e_ms) * 1_000_000,
        ttft = e2e_ms / 2,
    );
    serde_json::from_str(&text).unwrap()
}

fn event(at_ms: u64, kind: LedgerKind, session: &str) -> LedgerEvent {
    LedgerEvent {
        at_ns: at_ms * 1_000_000,
        kind,
        session_id: Some(session.into()),
        turn_id: None,
        worker: Some("D0".into()),
        detail: None,
        candidates: Vec::new(),
    }
}

fn info(records: &[RequestRecord]) -> RunInfo {
    RunInfo {
        name: "n".into(),
        trace: "t".into(),
        requests: records.len() as u64,
        sessions: 1,
        topology: "1P1D".into(),
        mechanism: "kvc".into(),
        policy: "p".into(),
        router_policy: String::new(),
        limits: String::new(),
        time_scale: None,
        time_scale_text: String::new(),
        planned_s: None,
        seed: 1,
        driver: "virtual time".into(),
        speed: 1.0,
        state: RunState::Completed,
        rebuilt: false,
        budgets: Budgets { max_bad_share: 0.01, max_schedule_lag_p99_ms: 50.0, max_harness_pause_ms: None },
        slos: Slos::default(),
        workers: vec!["D0".into()],
        slots: None,
        gaps: None,
        predicted_direct_share: None,
        predicted_direct_share_at_least: None,
        caches: None,
    }
}

fn summary(records: &[RequestRecord]) -> RunSummary {
    summary_with(records, &info(records))
}

fn summary_with(records: &[RequestRecord], info: &RunInfo) -> RunSummary {
    let mut accumulator = Accumulator::new(Percentiles::default());
    records.iter().for_each(|record| accumulator.push(record, &[]));
    accumulator.finish(&RunFacts::default(), info).unwrap()
}

fn tally(records: &[RequestRecord], events: Vec<LedgerEvent>) -> PageTally {
    let mut tally = PageTally::new(events.into_iter());
    records.iter().for_each(|record| tally.push(record));
    tally.finish();
    tally
}

fn page<'a>(summary: &'a RunSummary, tally: PageTally) -> RunPage<'a> {
    RunPage { name: "n", summary, tally, events: None, gaps: &[], wall_s: None }
}

#[test]
fn a_run_of_nothing_has_a_page_without_charts() {
    let summary = summary(&[]);
    let page = run_page(page(&summary, PageTally::default()));
    assert!(page.contains("No request has a record") && page.contains("id=\"figures-data\">[]<"), "{}", page.len());
}

/// Every line of the terminal's summary that is not a table or a chart of signs.
fn lines(summary: &RunSummary) -> Vec<String> {
    let [notes, rates] = [words::notes, words::rates].map(|of| of(summary));
    let index = summary.index.iter().map(words::index);
    let harness = summary.harness.iter().map(|facts| words::harness(facts, &summary.integrity));
    let causes = summary.causes.iter().map(|cause| cause.text.clone());
    let outcomes = words::outcomes(summary).map(|(_, words)| words);
    let rates = rates.into_iter().filter(|_| summary.integrity.verdict.shows_headline());
    let shares = words::fairness(summary).into_iter().chain(words::workers(summary));
    notes
        .into_iter()
        .chain(rates)
        .chain(index)
        .chain(harness)
        .chain(causes)
        .chain(outcomes)
        .chain(shares)
        .chain(words::lengths(summary))
        .collect()
}

/// Of eight sessions, those that go direct; the first fails `failures` times.
fn served(direct: u32, failures: usize) -> Vec<RequestRecord> {
    let mut records = Vec::new();
    for session in 0..8u32 {
        for turn in 0..15 {
            let (later, fast) = if session < direct {
                (ExecutionMode::KvcacheDirectToDSession, 300)
            } else {
                (ExecutionMode::FallbackSessionCap, 4000)
            };
            let mode = if turn == 0 { ExecutionMode::PdRouterTurn1 } else { later };
            let sent = u64::from(turn) * 5000 + u64::from(session) * 100;
            records.push(record(&format!("s<{session}>"), turn, sent, fast, mode));
        }
    }
    for (ix, failed) in records.iter_mut().take(failures).enumerate() {
        failed.outcome = if ix == 0 { Outcome::Error } else { Outcome::Truncated };
        failed.error_class = Some(if ix == 0 { "timeout & <more>" } else { "session-not-found" }.into());
        failed.output_tokens = 3;
    }
    records
}

#[test]
fn every_line_of_the_terminal_stands_on_the_page() {
    let harness = HarnessFacts { connections: 7, http_requests: 41, driver_cpu_share: 0.25, ..HarnessFacts::default() };
    let rebuilt = |mut info: RunInfo| {
        info.rebuilt = true;
        info
    };
    let mut seen = BTreeSet::new();
    for records in [served(4, 0), served(4, 2), served(0, 0), served(1, 1), served(8, 30), Vec::new()] {
        for (facts, info) in [
            (RunFacts::default(), info(&records)),
            (RunFacts { harness: Some(harness.clone()), ..RunFacts::default() }, rebuilt(info(&records))),
        ] {
            let mut accumulator = Accumulator::new(Percentiles::default());
            records.iter().for_each(|record| accumulator.push(record, &[]));
            let summary = accumulator.finish(&facts, &info).unwrap();
            let shown = run_page(page(&summary, tally(&records, Vec::new())));
            let shown = shown.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&#39;", "'");
            let shown = shown.replace("&amp;", "&");
            for line in lines(&summary) {
                assert!(shown.contains(&line), "not on the page: {line}");
                seen.insert(line);
            }
        }
    }
    // What a newcomer missed, and one of each kind, was among them.
    for start in [
        "7 sessions are below 20 %; nobody is starved",
        "8 sessions are below 20 %; nobody is starved",
        "failures by class: timeout & <more> 1 (error)",
        "most common failure: session-not-found",
        "wanted 12,000 answer tokens, got ",
        "starved 4: ",
        "rebuilt from requests.jsonl",
        "completed: ",
        "client thread 25.0 % of a core",
        "1 decode: 120 requests",
        "truncated 1 (",
    ] {
        assert!(seen.iter().any(|line| line.starts_with(start)), "{start}: {seen:#?}");
    }
}

#[test]
fn latencies_have_the_units_of_the_markdown_report_with_failures_too() {
    let mut records: Vec<RequestRecord> =
        (0..4u32).map(|turn| record("s", turn, u64::from(turn) * 100, 40, ExecutionMode::PdRouter)).collect();
    records.iter_mut().for_each(|record| record.tpot_ms = Some(6.03));
    records[3].outcome = Outcome::Truncated;
    let mut summary = summary(&records);
    summary.integrity.verdict = crate::results::Verdict::Valid;
    let shown = run_page(page(&summary, PageTally::default()));
    let start = shown.find("with failures as endless").expect("a table with failures");
    let table = &shown[start..start + shown[start..].find("</table>").unwrap()];
    assert!(table.contains("6.03 ms") && table.contains("40.0 ms") && !table.contains(">0.0"), "{table}");
}

#[test]
fn the_strip_shows_the_longest_path_and_every_failure() {
    let mut records = vec![
        record("a", 1, 0, 1000, ExecutionMode::PdRouterTurn1),
        record("a", 2, 2000, 3000, ExecutionMode::KvcacheDirectToDSession),
        record("a", 3, 9000, 1000, ExecutionMode::KvcacheDirectToDSession),
    ];
    records[2].outcome = Outcome::Truncated;
    let summary = summary(&records);
    let figure = strip::sessions_over_time(&page(&summary, tally(&records, Vec::new())));
    let chart = serde_json::to_value(figure.chart.unwrap()).unwrap();
    let cells = chart["orders"][0]["rows"][0]["cells"].as_str().unwrap();
    let kinds: Vec<char> = cells.chars().filter(|c| *c != ' ').fold(Vec::new(), |mut kinds, c| {
        if kinds.last() != Some(&c) {
            kinds.push(c);
        }
        kinds
    });
    let name = |letter: &char| {
        let classes = chart["classes"].as_array().unwrap();
        let class = classes.iter().find(|class| class["letter"] == letter.to_string()).unwrap();
        class["name"].as_str().unwrap().to_owned()
    };
    let names: Vec<String> = kinds.iter().map(name).collect();
    assert_eq!(names, ["pd-router-turn1", "kvcache-direct-to-d-session", "failed, whatever its path"]);
    assert!(cells.contains("  "), "thinking is empty: {cells}");
}

#[test]
fn many_sessions_become_bands_and_a_long_run_few_columns() {
    let mut records = Vec::new();
    for session in 0..450u64 {
        records.push(record(&format!("s{session}"), 1, session * 60_000, 5_000, ExecutionMode::PdRouter));
    }
    let summary = summary(&records);
    let figure = strip::sessions_over_time(&page(&summary, tally(&records, Vec::new())));
    let chart = serde_json::to_value(figure.chart.unwrap()).unwrap();
    let rows = chart["orders"][0]["rows"].as_array().unwrap();
    assert_eq!((rows.len(), rows[0]["label"].as_str()), (90, Some("5 sessions, ranks 1–5")));
    assert!(chart["columns"].as_u64().unwrap() as usize <= MOST_COLUMNS);
    assert!(figure.note.contains("5 neighbours"), "{}", figure.note);
}

#[test]
fn a_session_closed_as_its_last_turn_ends_is_gone() {
    let records = vec![
        record("a", 1, 0, 1000, ExecutionMode::KvcacheSeed),
        record("a", 2, 2000, 1000, ExecutionMode::KvcacheDirectToDSession),
        record("b", 1, 9000, 1000, ExecutionMode::PdRouter),
    ];
    let events = vec![event(0, LedgerKind::SessionOpened, "a"), event(3000, LedgerKind::SessionClosed, "a")];
    let summary = summary(&records);
    let figure = workers::over_time(&page(&summary, tally(&records, events))).unwrap();
    let chart = serde_json::to_value(figure.chart.unwrap()).unwrap();
    assert_eq!(chart["grids"][0]["name"], "sessions resident");
    let resident: Vec<f64> =
        chart["grids"][0]["values"][0].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect();
    assert_eq!((resident[1], resident.last()), (1.0, Some(&0.0)));
}

#[test]
fn a_run_without_sessions_on_d_has_no_chart_of_direct_shares() {
    let records = [("a", 1, 0), ("a", 2, 2000), ("b", 1, 100), ("b", 2, 2100)];
    let records = records.map(|(session, turn, at)| record(session, turn, at, 1000, ExecutionMode::DpColocated));
    let summary = summary_with(&records, &RunInfo { mechanism: "dp".into(), ..info(&records) });
    let figure = story::direct_shares(&summary);
    assert!(figure.chart.is_none() && figure.table.is_empty() && figure.note.is_empty());
    assert_eq!(figure.says, "no sessions are kept on D, so nothing can go direct.");
    let page = run_page(page(&summary, tally(&records, Vec::new())));
    assert!(page.contains("No session can starve: no sessions are kept on D, so nothing can go direct."));
}

#[test]
fn the_words_of_a_chart_are_its_own() {
    let records = vec![
        record("a", 1, 0, 1000, ExecutionMode::PdRouterTurn1),
        record("a", 2, 2000, 100, ExecutionMode::KvcacheDirectToDSession),
        record("b", 1, 3000, 1000, ExecutionMode::PdRouterTurn1),
        record("b", 2, 9000, 900, ExecutionMode::FallbackSessionCap),
    ];
    let summary = summary(&records);
    let figure = story::direct_shares(&summary);
    assert_eq!(figure.says, "1 of 2 sessions has a direct share below 20 %; the run's share is 50.0 %.");
    let run = page(&summary, tally(&records, Vec::new()));
    let [_, e2e] = story::latencies(&run);
    assert_eq!(e2e.says, "median E2E runs from 0.100 s (kvcache-direct-to-d-session) to 1.00 s (pd-router-turn1).");
    let lag = story::schedule_lag(&run);
    assert!(lag.chart.is_none() && lag.says == "no request has a schedule lag.", "{}", lag.says);
}
