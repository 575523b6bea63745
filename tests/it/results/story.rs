//! A small run with a soft cap too low, told from its records: what a person reads, and what a spreadsheet gets.

use pdreplay::base::{Dur, Time};
use pdreplay::protocol::TokenRun;
use pdreplay::record::{
    AnswerFacts, CacheFacts, ExecutionMode, HarnessFacts, ModeReason, Outcome, PromptFacts, RequestRecord, RunFacts,
    SessionFacts, TransferRecord, WorkerRecord,
};
use pdreplay::results::render::{self, Extras, Format, Style};
use pdreplay::results::{
    Accumulator, GapFacts, Metric, Percentiles, RunInfo, RunState, RunSummary, SlotFacts, Verdict,
};

use super::{info, json, request};

/// Records, facts and info of one run.
pub struct Story {
    pub records: Vec<RequestRecord>,
    pub facts: RunFacts,
    pub info: RunInfo,
}

impl Story {
    pub fn summary(&self) -> RunSummary {
        let mut accumulator = Accumulator::new(Percentiles::default());
        self.records.iter().for_each(|record| accumulator.push(record, &[]));
        accumulator.finish(&self.facts, &self.info).unwrap()
    }
}

/// Six sessions of ten turns on 1P3D, cap 1: the first three are seeded and go direct, the later three fall back.
pub fn story() -> Story {
    let mut records = Vec::new();
    for turn in 1..=10 {
        for session in 0..6 {
            records.push(story_request(session, turn));
        }
    }
    let worker = |worker: &str, role: &str, usage: f64| WorkerRecord {
        worker: worker.into(),
        role: role.into(),
        requests: 20,
        prefilled_tokens: 412_000,
        cached_tokens: 1_240_000,
        output_tokens: 4_000,
        capacity_tokens: 83_000,
        usage_mean: usage / 2.0,
        usage_peak: usage,
        ..WorkerRecord::default()
    };
    let session = |ix: u32| SessionFacts {
        session_id: format!("s{ix}"),
        arrival_rank: ix + 1,
        planned_turns: 10,
        slot_hold_ns: if ix < 3 { 60_000_000_000 } else { 0 },
        seed_asks: 9,
        seed_rejections: if ix < 3 { 0 } else { 9 },
        usage_when_asked: Some(if ix < 3 { 0.2 } else { 0.7 }),
        ..SessionFacts::default()
    };
    let facts = RunFacts {
        workers: vec![
            worker("P0", "prefill", 0.3),
            worker("D0", "decode", 0.6),
            worker("D1", "decode", 0.7),
            worker("D2", "decode", 0.5),
        ],
        transfers: vec![TransferRecord {
            prefill_worker: "P0".into(),
            decode_worker: "D0".into(),
            transfers: 12,
            errors: 0,
            bytes: 40_000_000_000,
        }],
        sessions: (0..6).map(session).collect(),
        duration_ns: 60_000_000_000,
        planned: 60,
        ..RunFacts::default()
    };
    let info = RunInfo {
        trace: "swe-mini".into(),
        topology: "1P3D".into(),
        mechanism: "kvc".into(),
        policy: "kv-aware".into(),
        limits: "cap 1".into(),
        time_scale: Some(10.0),
        time_scale_text: "time-scale 10: 600 s → 60 s".into(),
        workers: ["P0", "D0", "D1", "D2"].map(String::from).to_vec(),
        slots: Some(SlotFacts {
            decode_workers: 3,
            cap_max: Some(1),
            usable_tokens: None,
            footprint: "full".into(),
            slot_release: "never".into(),
            kv_pool_tokens: 83_000,
        }),
        gaps: Some(GapFacts { short_share_at_1x: 0.12, short_share_at_scale: 0.78 }),
        ..info(60, 6)
    };
    Story { records, facts, info }
}

fn story_request(session: u32, turn: u32) -> RequestRecord {
    let lucky = session < 3;
    let (mode, reason, ttft, e2e) = match (turn, lucky) {
        (1, _) => (ExecutionMode::PdRouterTurn1, ModeReason::FirstTurn, 400.0, 1000.0),
        (2, true) => (ExecutionMode::KvcacheSeed, ModeReason::NeverSeeded, 1500.0, 2500.0),
        (_, true) => (ExecutionMode::KvcacheDirectToDSession, ModeReason::Admitted, 43.0, 495.0),
        (_, false) => (ExecutionMode::FallbackSessionCap, ModeReason::SessionCap, 3700.0, 5600.0),
    };
    let at_ms = u64::from(turn * 6000 + session * 100);
    let mut record = request(&format!("s{session}"), turn, at_ms, ttft, e2e);
    let is_direct = mode == ExecutionMode::KvcacheDirectToDSession;
    let worker = format!("D{}", session % 3);
    (record.execution_mode, record.mode_reason) = (mode, reason);
    record.prefill_worker = (!is_direct).then(|| "P0".into());
    (record.decode_worker_intended, record.decode_worker_actual) = (Some(worker.clone()), Some(worker));
    record.kv_transfer_ms = (!is_direct).then_some(900.0);
    record.input_tokens = turn * if lucky { 3_100 } else { 3_800 };
    record.ideal_hit_tokens = record.input_tokens.saturating_sub(400);
    record.cached_tokens = Some(if is_direct { record.ideal_hit_tokens } else { 0 });
    record
}

/// The failure of two counters: turns after the first are aborted on a worker that does not know them.
fn two_counters() -> Story {
    let mut story = story();
    for record in story.records.iter_mut().filter(|record| record.turn_id > 1 && record.turn_id % 3 != 0) {
        record.outcome = Outcome::Truncated;
        record.output_tokens = 1;
        record.e2e_ms = Some(80.0);
        record.route_mismatch = true;
        record.finish_reason = Some("abort".into());
        record.error_class = Some("session-not-found".into());
        record.error_message = Some(format!("Invalid request: session id {} does not exist", record.session_id));
    }
    story.info.policy = "default".into();
    story.facts.counters_diverged_after = Some(3);
    story.facts.beliefs_corrected = 36;
    story
}

const GOLDEN: &str = "\
swe-mini · 60 requests, 6 sessions · 1P3D kvc/kv-aware cap 1 · time-scale 10: 600 s → 60 s · seed 42
  virtual time, 0.08 s

outcome   ok 60 · truncated 0 · aborted 0 · error 0 · timeout 0 · skipped 0 · run valid
latency   TTFT p50 0.400 s  p90 3.70 s  p99 3.70 s     E2E p50 1.00 s  p90 5.60 s  p99 5.60 s
          completed: 1.00 requests/s, 20 answer tokens/s from first send to last end (60.1 s)

mode                                          share   n  TTFT p50  E2E p50  E2E p99  xfer mean  recomp mean    bad
pd-router-fallback-large-append-session-cap  45.0 %  27    3.70 s   5.60 s   5.60 s    0.900 s          22K  0.0 %
kvcache-direct-to-d-session                  40.0 %  24   0.043 s  0.495 s  0.495 s          –            0  0.0 %
pd-router-turn1                              10.0 %   6   0.400 s   1.00 s   1.00 s    0.900 s         3.0K  0.0 %
kvcache-seed                                  5.0 %   3    1.50 s   2.50 s   2.50 s    0.900 s         5.8K  0.0 %

sessions  direct share   0–20 % ████████ 3   20–40 %   40–60 %   60–80 %   80–100 % ████████ 3
          run 44.4 % of turns after the first · two-peaked, starvation suspected · bimodality 1.00
            mean E2E over sessions: Gini 0.37 · Jain 0.64
          starved 3: peak input 38K vs 31K · reason session-cap · arrival rank ≥ 4
            believed use of D when asked 70 % vs 20 % · slot never held · on D0 1/2 D1 1/2 D2 1/2
workers   1 prefill: 36 requests · peak usage 30 %
          3 decode: 20 requests each · peak usage 70 %
why       3 slots (3 D × cap 1) < 6 sessions, slots are never released: 3 sessions never held one, 27 turns fell back
          next binder: raising the cap helps until 83K tokens / 35K mean peak context = about 2.4 sessions a D
          large sessions starve: mean peak input 38K against 31K of the others
          late sessions starve: mean arrival rank 5.0 against 2.0 of the others
files     outputs/x/  (summary.json)
";

#[test]
fn the_summary_reads_from_outcome_to_cause() {
    let extras = Extras { wall_s: Some(0.08), files: Some("outputs/x/  (summary.json)".into()) };
    let text = render::summary(&story().summary(), &extras, Style::default());
    assert_eq!(text, GOLDEN, "\n{text}");
}

#[test]
fn no_line_is_wider_than_the_terminal() {
    for (story, width) in [(story(), 120), (two_counters(), 120), (story(), 60), (two_counters(), 40)] {
        let summary = story.summary();
        let style = Style { color: false, width };
        let pages = [
            render::summary(&summary, &Extras::default(), style),
            render::modes(&summary).render(Format::Table, style),
            render::sessions(&summary).render(Format::Table, style),
            render::workers(&summary).render(Format::Table, style),
            render::transfers(&summary).render(Format::Table, style),
        ];
        for line in pages.iter().flat_map(|page| page.lines()) {
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }
}

#[test]
fn colour_only_repeats_what_words_say() {
    let summary = two_counters().summary();
    let plain = render::summary(&summary, &Extras::default(), Style::default());
    let coloured = render::summary(&summary, &Extras::default(), Style { color: true, width: 120 });
    let mut stripped = coloured.clone();
    for code in ["\u{1b}[1m", "\u{1b}[31m", "\u{1b}[32m", "\u{1b}[0m"] {
        stripped = stripped.replace(code, "");
    }
    assert!(!plain.contains('\u{1b}') && coloured.contains('\u{1b}'));
    assert_eq!(stripped, plain);
}

#[test]
fn two_counters_withhold_the_headline_and_are_named() {
    let summary = two_counters().summary();
    assert_eq!(summary.integrity.verdict, Verdict::Withheld);
    assert_eq!(summary.integrity.reason.as_deref(), Some("60.0 % truncated (budget 1 %: integrity.max_bad_share)"));
    assert_eq!(
        summary.causes[0].text,
        "policy default with kvc: replay and router counters diverged after request 3; 36 requests found no session \
         where the router sent them"
    );
    let text = render::summary(&summary, &Extras::default(), Style::default());
    assert!(text.contains("latency   withheld: 60.0 % truncated (budget 1 %: integrity.max_bad_share)\n"), "{text}");
    assert!(text.contains("most common failure: session-not-found ×36 (truncated)"), "{text}");
    assert!(!text.contains("TTFT p50 0."), "{text}");
    assert_eq!(summary.sessions[0].pattern, ".TDTTDTTDT");
    assert_eq!((summary.errors[0].count, summary.errors[0].sessions), (36, 6));
}

#[test]
fn a_late_harness_makes_a_run_invalid() {
    let mut story = story();
    story.records.iter_mut().for_each(|record| record.schedule_lag_ms = Some(12.0));
    let summary = story.summary();
    assert_eq!(summary.integrity.verdict, Verdict::Invalid);
    let text = render::summary(&summary, &Extras::default(), Style::default());
    assert!(
        text.contains("latency   INVALID: schedule lag p99 12.0 ms (budget 5 ms: integrity.max_schedule_lag_p99_ms)"),
        "{text}"
    );
}

#[test]
fn a_harness_that_stood_still_makes_the_run_invalid() {
    let mut story = story();
    let mut paused = |max_ms, budget_ms| {
        story.facts.harness = Some(HarnessFacts { loop_lag_max_ms: Some(max_ms), ..HarnessFacts::default() });
        story.info.budgets.max_harness_pause_ms = budget_ms;
        story.summary()
    };
    for (max_ms, budget_ms) in [(250.0, Some(250.0)), (2998.0, None)] {
        let integrity = paused(max_ms, budget_ms).integrity;
        assert_eq!((integrity.verdict, integrity.harness_pause_ms), (Verdict::Valid, Some(max_ms)));
    }
    let summary = paused(2998.4, Some(250.0));
    assert_eq!(summary.integrity.verdict, Verdict::Invalid);
    assert!(summary.integrity.notes[0].starts_with("the harness stood still for 2998 ms of wall time in one piece"));
    let text = render::summary(&summary, &Extras::default(), Style::default());
    let words =
        "latency   INVALID: the harness stood still for 2998 ms (budget 250 ms: integrity.max_harness_pause_ms)";
    assert!(text.contains(words), "{text}");
}

#[test]
fn workers_that_never_answered_are_named() {
    let mut story = story();
    let never_answered = vec!["P1".to_owned(), "D3".to_owned()];
    story.facts.harness = Some(HarnessFacts { never_answered, ..HarnessFacts::default() });
    let notes = story.summary().integrity.notes;
    assert!(notes.len() == 1 && notes[0].starts_with("never answered, before the run or in it: P1 D3;"), "{notes:#?}");
}

#[test]
fn the_harness_is_told_and_judged_in_wall_time() {
    let mut story = story();
    story.info.speed = 10.0;
    story.records.iter_mut().for_each(|record| record.schedule_lag_ms = Some(44.0));
    story.facts.harness = Some(HarnessFacts {
        loop_lag_p50_ms: Some(0.1),
        loop_lag_p99_ms: Some(6.0),
        loop_lag_max_ms: Some(7.0),
        ..HarnessFacts::default()
    });
    let summary = story.summary();
    assert_eq!(summary.integrity.verdict, Verdict::Valid);
    let notes = summary.integrity.notes.join("\n");
    assert!(notes.contains("the driver's loop woke late: p99 6.0 ms of wall time"), "{notes}");
    let text = render::summary(&summary, &Extras::default(), Style::default());
    let line = "harness   wall time: schedule lag p99 4.4 ms (budget 5 ms: integrity.max_schedule_lag_p99_ms)\n";
    assert!(text.contains("loop lag p50 0.1 ms  p99 6.0 ms  max 7.0 ms"), "{text}");
    assert!(text.contains(line), "{text}");
    story.info.speed = 2.0;
    assert_eq!(story.summary().integrity.verdict, Verdict::Invalid);
}

#[test]
fn caches_that_were_warm_are_noted() {
    let mut story = story();
    let mut noted = |held: &[(&str, u64)]| {
        let warm_caches = held.iter().map(|(worker, held)| ((*worker).to_owned(), *held)).collect();
        story.facts.harness = Some(HarnessFacts { warm_caches, ..HarnessFacts::default() });
        story.summary().integrity.notes
    };
    let cold = "first-token times and cached tokens are not those of a cold start";
    assert_eq!(noted(&[("W0", 25_216)]), [format!("caches were warm: W0 held 25,216 tokens before the run; {cold}")]);
    let five = ["D0", "D1", "D2", "D3", "D4"].map(|worker| (worker, 10));
    assert_eq!(
        noted(&five),
        [format!("caches were warm: D0, D1, D2, D3 and 1 more held 50 tokens before the run; {cold}")]
    );
    assert_eq!(noted(&[]), [""; 0]);
}

#[test]
fn other_prompts_and_workers_than_the_runs_are_told_once_with_their_figures() {
    let mut story = story();
    let strangers = [("http://x:1", 3), ("http://x:2", 12), ("x3", 1), ("x4", 1), ("x5", 1)];
    story.facts.harness = Some(HarnessFacts {
        prompts: PromptFacts { compared: 60, differing: 12, sent_tokens: 12_000, counted_tokens: 13_500, untold: 0 },
        unlisted_workers: strangers.map(|(name, requests)| (name.to_owned(), requests)).into(),
        ..HarnessFacts::default()
    });
    let notes = story.summary().integrity.notes;
    let of = |words: &str| notes.iter().filter(|note| note.contains(words)).collect::<Vec<_>>();
    let prompts = of("the server counted another length in 12 of 60 prompts: 13,500 tokens for 12,000 sent;");
    assert!(prompts.len() == 1 && prompts[0].ends_with("are void"), "{notes:#?}");
    let strangers = of("http://x:2 (12 requests), http://x:1 (3 requests), x3 (1 request), x4 (1 request) and 1 more;");
    assert_eq!(strangers.len(), 1, "{notes:#?}");
    story.facts.harness = Some(HarnessFacts {
        prompts: PromptFacts { compared: 60, ..PromptFacts::default() },
        ..HarnessFacts::default()
    });
    assert_eq!(story.summary().integrity.notes, Vec::<String>::new());
}

#[test]
fn counts_that_contradict_the_text_are_noted() {
    let mut story = story();
    let answers = AnswerFacts { told: 60, uncounted: 3, chunks: 1200, led: 2 };
    story.facts.harness = Some(HarnessFacts { answers, ..HarnessFacts::default() });
    let said = [
        "the server counted 0 tokens, or far fewer than chunks with text, in 3 of 60 answers: taken as one for each of 1,200 chunks;",
        "the server's count of tokens ran ahead of the text, or fell, in 2 of 60 answers:",
    ];
    let notes = story.summary().integrity.notes;
    assert!(notes.len() == 2 && notes.iter().zip(said).all(|(note, said)| note.starts_with(said)), "{notes:#?}");
    story.facts.harness =
        Some(HarnessFacts { answers: AnswerFacts { told: 60, ..AnswerFacts::default() }, ..HarnessFacts::default() });
    assert_eq!(story.summary().integrity.notes, Vec::<String>::new());
}

#[test]
fn what_servers_do_not_tell_of_their_caches_is_missing_and_not_0() {
    let mut story = story();
    let of_caches = |story: &mut Story, prompts: PromptFacts, caches: CacheFacts| {
        story.facts.harness = Some(HarnessFacts { prompts, caches, ..HarnessFacts::default() });
        story.summary().integrity.notes
    };
    let told = PromptFacts { compared: 59, untold: 1, ..PromptFacts::default() };
    let caches = CacheFacts { told: 59, untold: 1, ..CacheFacts::default() };
    assert_eq!(of_caches(&mut story, told, caches), Vec::<String>::new());
    let beyond = CacheFacts { told: 60, beyond: 2, prompt_tokens: 2000, cached_tokens: 3500, untold: 0 };
    let notes = of_caches(&mut story, told, beyond);
    let said = "the server told more cached than the prompt has in 2 of 60 answers: 3,500 tokens for prompts of 2,000;";
    assert!(notes.len() == 1 && notes[0].starts_with(said), "{notes:#?}");

    for record in &mut story.records {
        record.cached_tokens = None;
    }
    let nothing = (PromptFacts { untold: 60, ..told }, CacheFacts { untold: 60, ..CacheFacts::default() });
    let notes = of_caches(&mut story, PromptFacts { compared: 0, ..nothing.0 }, nothing.1);
    let said = ["no answer told the length of its prompt", "no answer told what the server found cached"];
    assert!(notes.len() == 2 && std::iter::zip(&notes, said).all(|(note, said)| note.starts_with(said)), "{notes:#?}");
    let summary = story.summary();
    for row in &summary.modes {
        assert_eq!((row.mean_prefilled_tokens, row.mean_recomputed_tokens), (None, None), "{row:?}");
    }
}

#[test]
fn an_interrupted_run_is_marked_with_what_was_done() {
    let mut story = story();
    story.info.state = RunState::Interrupted;
    for record in story.records.iter_mut().skip(30) {
        let cancelled = record.turn_id == 6 && record.session_id == "s0";
        record.outcome = if cancelled { Outcome::Cancelled } else { Outcome::Skipped };
        record.execution_mode = if cancelled { record.execution_mode } else { ExecutionMode::NotSent };
        (record.ttft_ms, record.e2e_ms, record.sched_ttft_ms, record.sched_e2e_ms) = (None, None, None, None);
        record.output_tokens = 0;
        record.sent_ns = cancelled.then_some(record.scheduled_ns);
    }
    let summary = story.summary();
    assert_eq!(summary.integrity.verdict, Verdict::Partial);
    let text = render::summary(&summary, &Extras::default(), Style::default());
    assert!(text.contains("PARTIAL") && text.contains("30 of 60 requests ran to an end, 1 cancelled, 29 never sent"));
    assert_eq!(
        (summary.sessions[0].pattern.as_str(), summary.sessions[3].pattern.as_str()),
        (".SDDD-----", ".FFFF-----")
    );
    assert_eq!(summary.sessions[0].direct_share, Some(3.0 / 5.0), "turns never sent say nothing about routing");
    assert_eq!((summary.lengths.requests, summary.lengths.shorter), (30, 0));
}

#[test]
fn equal_runs_give_equal_bytes_and_no_number_is_endless() {
    let text = || serde_json::to_string_pretty(&story().summary()).unwrap();
    let (a, b) = (text(), text());
    assert_eq!(a, b);
    for word in ["NaN", "nan", "Infinity", "1e308", "18446744073709551615"] {
        assert!(!a.contains(word), "{word}");
    }
}

#[test]
fn keys_are_those_of_the_known_benchmark() {
    let value = json(&story().summary());
    for key in [
        "duration",
        "completed",
        "failed",
        "total_input_tokens",
        "total_output_tokens",
        "request_throughput",
        "output_throughput",
        "total_token_throughput",
        "mean_ttft_ms",
        "median_ttft_ms",
        "std_ttft_ms",
        "p50_ttft_ms",
        "p99_ttft_ms",
        "p99.9_e2e_ms",
        "p99_e2e_ms_with_failures",
        "n_e2e",
        "n_excluded_e2e",
        "mean_kv_transfer_ms",
    ] {
        assert!(value[key].is_number(), "{key}: {}", value[key]);
    }
    assert!(value["mean_itl_ms"].is_null() && value["mean_tpot_ms"].is_null());
}

#[test]
fn token_gaps_are_counted_by_token() {
    let mut accumulator = Accumulator::new(Percentiles::default());
    let ms = Dur::from_millis;
    let run = |first: u64, step: u64, count: u32| TokenRun { first: Time(0) + ms(first), step: ms(step), count };
    let mut record = request("s", 1, 0, 100.0, 180.0);
    accumulator.push(&record, &[run(100, 0, 1), run(140, 0, 3), run(180, 0, 4)]);
    record.outcome = Outcome::Truncated;
    accumulator.push(&record, &[run(100, 10, 5)]);
    let summary = accumulator.finish(&super::facts(2, &[]), &info(2, 1)).unwrap();
    let itl = summary.latencies.of(Metric::Itl);
    assert_eq!((itl.n, itl.n_excluded, itl.max_ms, itl.min_ms), (7, 4, Some(40.0), Some(0.0)));
    assert!((itl.mean_ms.unwrap() - 80.0 / 7.0).abs() < 1e-9);
}

#[test]
fn tables_go_to_spreadsheets_and_documents_in_full() {
    let summary = story().summary();
    let style = Style::default();
    let csv = render::sessions(&summary).render(Format::Csv, style);
    assert!(csv.lines().all(|line| line.split(',').count() == 15), "{csv}");
    assert!(csv.contains("s3,true,4,10,38000,0,1,0,5600,5600,0,session-cap,D0,D0,.FFFFFFFFF\n"), "{csv}");
    let markdown = render::modes(&summary).render(Format::Markdown, style);
    assert!(markdown.starts_with("| mode | share | n | TTFT p50 | TTFT p90 |"), "{markdown}");
    let rows: serde_json::Value = serde_json::from_str(&render::workers(&summary).render(Format::Json, style)).unwrap();
    assert_eq!((rows[1]["worker"].as_str(), rows[1]["requests"].as_u64()), (Some("D0"), Some(20)));
    assert!("yaml".parse::<Format>().unwrap_err().to_string().contains("table, json, csv or markdown"));
}
