//! The published cases of reports that lied.

use pdreplay::record::{Outcome, RequestRecord};
use pdreplay::results::render::{self, Extras, Format, Style};
use pdreplay::results::{Cause, Metric, Percentiles, RunInfo, Verdict};

use super::{facts, info, json, records, request, summarise, summarise_with};

fn close(found: Option<f64>, expected: f64) {
    let found = found.unwrap();
    assert!((found - expected).abs() <= 0.0005 * expected, "{found} is not {expected}");
}

#[test]
fn case_82_failures_are_neither_fast_answers_nor_dropped() {
    let Some(records) = records("82-failures-inside-percentiles", "records.jsonl") else { return };
    let summary = summarise(&records);
    let e2e = summary.latencies.of(Metric::E2e);
    assert_eq!((e2e.n, e2e.n_excluded), (4, 6));
    close(e2e.median_ms, 1200.0);
    assert_eq!((summary.outcomes.ok, summary.outcomes.truncated), (4, 6));
    let value = json(&summary);
    assert!(value["p50_e2e_ms_with_failures"].is_null() && value["p50_e2e_ms"].is_number());
    assert_eq!(summary.integrity.verdict, Verdict::Withheld);
    let text = render::summary(&summary, &Extras::default(), Style::default());
    assert!(text.contains("ok 4 (40.0 %) · truncated 6 (60.0 %)"), "{text}");
    assert!(text.contains("withheld: 60.0 % truncated") && text.contains("session missing"), "{text}");
    assert!(!text.contains("0.09") && !text.contains("0.08"), "{text}");
    assert!(!serde_json::to_string(&summary).unwrap().to_lowercase().contains("inf"));
}

#[test]
fn case_82_the_first_token_of_an_answer_given_up_is_no_latency() {
    let mut records: Vec<_> = (0..4).map(|nth| request("s", nth, 0, 100.0, 1000.0)).collect();
    for (turn, outcome) in [(4, Outcome::Timeout), (5, Outcome::Cancelled)] {
        records.push(RequestRecord { outcome, output_tokens: 7, ..request("s", turn, 0, 1.0, 5.0) });
    }
    let summary = summarise(&records);
    for metric in [Metric::Ttft, Metric::SchedTtft, Metric::E2e] {
        let latency = summary.latencies.of(metric);
        assert_eq!((latency.n, latency.n_excluded), (4, 2), "{metric:?}");
        assert_eq!(latency.min_ms, Some(if metric == Metric::E2e { 1000.0 } else { 100.0 }), "{metric:?}");
    }
    assert_eq!((summary.total_output_tokens, summary.completed), (4 * 20, 4), "throughput is of answers that are ok");
    assert!(summary.modes.iter().all(|mode| mode.p50_ttft_ms.is_none_or(|ms| ms >= 99.0)), "{:?}", summary.modes);
}

#[test]
fn case_83_nothing_is_outside_the_histogram() {
    let Some(records) = records("83-values-outside-the-histogram", "records.jsonl") else { return };
    let summary = summarise(&records);
    let e2e = summary.latencies.of(Metric::E2e);
    assert_eq!((e2e.n, e2e.min_ms, e2e.max_ms), (6, Some(0.0), Some(1e8)));
    close(e2e.rungs.last().unwrap().ms, 1e8);
}

#[test]
fn case_85_percentiles_of_parts_are_never_averaged() {
    let folder = "85-percentiles-merged-from-parts";
    let (Some(a), Some(b)) = (records(folder, "records-d0.jsonl"), records(folder, "records-d1.jsonl")) else { return };
    let forward = summarise(&[a.clone(), b.clone()].concat());
    let backward = summarise(&[b, a].concat());
    let e2e = forward.latencies.of(Metric::E2e);
    let ladder: Vec<f64> = e2e.rungs.iter().take(3).map(|rung| rung.ms.unwrap().round()).collect();
    assert_eq!(ladder, [10.0, 10.0, 1000.0]);
    close(e2e.mean_ms, 109.0);
    let per_worker: Vec<_> = forward.workers.iter().map(|row| (row.worker.as_str(), row.p95_e2e_ms)).collect();
    assert_eq!(per_worker, [("D0", Some(10.0)), ("D1", Some(1000.0))]);
    assert_eq!(e2e.rungs, backward.latencies.of(Metric::E2e).rungs);
}

#[test]
fn case_87_nothing_completed_is_said_once_with_its_cause() {
    let Some(records) = records("87-nothing-completed", "records.jsonl") else { return };
    let summary = summarise(&records);
    assert_eq!((summary.completed, summary.failed, summary.request_throughput), (0, 5, Some(0.0)));
    let e2e = summary.latencies.of(Metric::E2e);
    assert_eq!((e2e.n, e2e.n_excluded, e2e.min_ms, e2e.mean_ms), (0, 5, None, None));
    assert_eq!(summary.integrity.reason.as_deref(), Some("no completed request"));
    assert_eq!((summary.errors.len(), summary.errors[0].count), (1, 5));
    let text = render::summary(&summary, &Extras::default(), Style::default());
    assert!(text.contains("no request completed: 5 failed"), "{text}");
    assert_eq!(text.matches("connection refused 127.0.0.1:9").count(), 1, "{text}");
    assert!(!text.contains("0.000 s") && !text.contains("18446744073709551615"), "{text}");
}

#[test]
fn case_88_percentiles_are_taken_as_written() {
    let Some(records) = records("88-percentile-written-as-a-fraction", "records.jsonl") else { return };
    let with = |list: &str| {
        let list: Percentiles = list.parse().unwrap();
        json(&summarise_with(&records, list, &facts(20, &[]), &info(20, 0)))
    };
    let value = with("50,90,99.9");
    close(value["p50_e2e_ms"].as_f64(), 10.0);
    close(value["p90_e2e_ms"].as_f64(), 10.0);
    close(value["p99.9_e2e_ms"].as_f64(), 1000.0);
    let ends = with("0,100");
    assert_eq!((ends["p0_e2e_ms"].as_f64(), ends["p100_e2e_ms"].as_f64()), (Some(10.0), Some(1000.0)));
    let fraction = with("0.5");
    assert!(fraction["p0.5_e2e_ms"].is_number() && fraction["p50_e2e_ms"].is_null());
    assert!(fraction["percentile_notes"][0].as_str().unwrap().contains("did you mean 50?"));
}

#[test]
fn case_89_short_answers_are_counted_and_never_rated_as_long() {
    let Some(records) = records("89-shorter-than-the-trace-asked-for", "records.jsonl") else { return };
    let summary = summarise(&records);
    let lengths = summary.lengths;
    assert_eq!((lengths.wanted_tokens, lengths.got_tokens), (2048, 1533));
    assert_eq!((lengths.shorter, lengths.shorter_but_ok, lengths.requests), (2, 2, 4));
    close(summary.output_throughput, 1533.0 / 3.1);
    let text = render::summary(&summary, &Extras::default(), Style::default());
    assert!(text.contains("wanted 2,048 answer tokens, got 1,533 (74.9 %); 2 of 4 requests shorter"), "{text}");
}

#[test]
fn case_67_workers_that_got_nothing_are_in_the_table() {
    let Some(records) = records("67-workers-that-got-nothing", "records.jsonl") else { return };
    let configured = |names: &[&str]| {
        let mut info = info(120, 0);
        info.workers = names.iter().map(|name| String::from(*name)).collect();
        summarise_with(&records, Percentiles::default(), &facts(120, &[]), &info)
    };
    let five = configured(&["P0", "D0", "D1", "D2", "D3", "D4"]);
    let counts: Vec<(&str, u64)> = five.workers.iter().skip(1).map(|row| (row.worker.as_str(), row.requests)).collect();
    assert_eq!(counts, [("D0", 40), ("D1", 38), ("D2", 42), ("D3", 0), ("D4", 0)]);
    let decode = five.spread.iter().find(|spread| spread.role == "decode").unwrap();
    assert_eq!((decode.max_over_mean, five.workers[3].hot), (Some(1.75), true));
    let text = render::summary(&five, &Extras::default(), Style::default());
    assert!(text.contains("2 of 5 decode workers got no request"), "{text}");
    let table = render::workers(&five).render(Format::Table, Style::default());
    assert_eq!(table.lines().count(), 7, "{table}");

    let three = configured(&["D0", "D1", "D2"]);
    assert_eq!(three.spread[0].max_over_mean, Some(1.05));
    assert!(three.causes.is_empty());
}

#[test]
fn case_71_starved_sessions_are_seen_at_a_glance() {
    let Some(records) = records("71-starved-sessions-must-be-visible", "records.jsonl") else { return };
    let info = RunInfo { mechanism: "kvc".into(), ..info(records.len() as u64, 0) };
    let summary = summarise_with(&records, Percentiles::default(), &facts(records.len() as u64, &[]), &info);
    let fairness = &summary.fairness;
    assert_eq!((fairness.histogram, fairness.two_peaked, fairness.bimodality), ([3, 0, 0, 0, 3], true, Some(1.0)));
    let shares: Vec<(u64, u64)> = summary.sessions.iter().map(|row| (row.direct_turns, row.later_turns)).collect();
    assert_eq!(shares.iter().filter(|share| **share == (9, 9)).count(), 3);
    assert_eq!(shares.iter().filter(|share| **share == (0, 9)).count(), 3);
    let modes: Vec<(u64, f64)> = summary.modes.iter().map(|row| (row.n, row.p50_e2e_ms.unwrap().round())).collect();
    assert_eq!(modes, [(27, 500.0), (27, 5000.0), (6, 1000.0)]);
    let e2e = summary.latencies.of(Metric::E2e);
    close(e2e.mean_ms, 2575.0);
    close(e2e.median_ms, 1000.0);
    let starved = fairness.starved.as_ref().unwrap();
    assert_eq!(starved.sessions, ["s4", "s5", "s6"]);
    assert_eq!(starved.main_reason.map(|reason| reason.as_str()), Some("session-cap"));
    assert_eq!((starved.peak_input_tokens.starved, starved.peak_input_tokens.others), (Some(56_000.0), Some(31_000.0)));
    assert!(summary.causes.iter().any(|line| matches!(line.cause, Cause::LargeSessionsStarve { .. })));
    let text = render::summary(&summary, &Extras::default(), Style::default());
    assert!(text.contains("two-peaked, starvation suspected"), "{text}");
    assert!(text.contains("starved 3: peak input 56K vs 31K · reason session-cap"), "{text}");
    let table = render::sessions(&summary).render(Format::Table, Style::default());
    let firsts: Vec<&str> = table.lines().skip(1).take(3).map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(firsts, ["s4", "s5", "s6"], "{table}");
}

#[test]
fn tokens_of_failed_requests_are_got_but_no_throughput() {
    let Some(mut records) = records("89-shorter-than-the-trace-asked-for", "records.jsonl") else { return };
    let whole = summarise(&records);
    let lost = u64::from(records[0].output_tokens);
    records[0].outcome = Outcome::Truncated;
    let summary = summarise(&records);
    assert_eq!(summary.lengths.got_tokens, whole.lengths.got_tokens);
    assert_eq!(summary.total_output_tokens, whole.total_output_tokens - lost);
    assert_eq!(summary.lengths.got_tokens - summary.total_output_tokens, lost);
    let lengths = render::summary(&summary, &Extras::default(), Style::default());
    assert!(lengths.contains(&format!("got 1,533 (74.9 %, {lost} of them of failed requests)")), "{lengths}");
}

#[test]
fn where_the_whole_run_is_below_the_line_nobody_is_called_starved() {
    let Some(mut records) = records("71-starved-sessions-must-be-visible", "records.jsonl") else { return };
    // The direct sessions end after their second turn: 3 of 30 later turns of the run are direct.
    let first = records[0].turn_id;
    let goes_direct = |id: &str| ["s1", "s2", "s3"].contains(&id);
    records.retain(|record| !goes_direct(&record.session_id) || record.turn_id <= first + 1);
    let requests = records.len() as u64;
    let info = RunInfo { mechanism: "kvc".into(), ..info(requests, 0) };
    let summary = summarise_with(&records, Percentiles::default(), &facts(requests, &[]), &info);
    let fairness = &summary.fairness;
    assert_eq!((fairness.histogram, fairness.two_peaked, fairness.direct_share), ([3, 0, 0, 0, 3], true, Some(0.1)));
    assert_eq!(fairness.starved, None);
    let text = render::summary(&summary, &Extras::default(), Style::default());
    let both = "3 sessions are below 20 %; nobody is starved beside the others, as the run itself is not above 20 %";
    let plain = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(plain.contains(both) && !text.contains("starvation suspected"), "{text}");
    assert_eq!(summary.starved_sessions(), Some(3), "what a gate and a sweep count");
    assert!(render::markdown(&summary, &Extras::default()).contains(both));
    assert!(!text.contains("sessions starve"), "{text}");
}
