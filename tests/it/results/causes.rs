//! The cause lines: each is said when its evidence is there, and not when it is not.

use pdreplay::protocol::ErrorClass;
use pdreplay::record::{ExecutionMode, ModeReason, Outcome, RequestRecord};
use pdreplay::results::render::{self, Extras, Style};
use pdreplay::results::{Cause, RunSummary, SlotFacts, Verdict};

use super::story::{Story, story};
use crate::run::Scratch;

pub fn texts(summary: &RunSummary) -> Vec<&str> {
    summary.causes.iter().map(|line| line.text.as_str()).collect()
}

pub fn find<'a>(summary: &'a RunSummary, part: &str) -> Option<&'a str> {
    texts(summary).into_iter().find(|text| text.contains(part))
}

/// The story's fallbacks with another path and reason.
fn with_fallbacks(mode: ExecutionMode, reason: ModeReason) -> Story {
    let mut story = story();
    for record in fallbacks(&mut story) {
        (record.execution_mode, record.mode_reason) = (mode, reason);
    }
    story
}

fn fallbacks(story: &mut Story) -> impl Iterator<Item = &mut RequestRecord> {
    story.records.iter_mut().filter(|record| record.execution_mode.is_fallback())
}

fn slots(story: &mut Story) -> &mut SlotFacts {
    story.info.slots.as_mut().unwrap()
}

#[test]
fn a_cap_too_low_names_its_arithmetic_and_what_binds_next() {
    assert_eq!(
        texts(&story().summary()),
        [
            "3 slots (3 D × cap 1) < 6 sessions, slots are never released: 3 sessions never held one, 27 turns fell back",
            "next binder: raising the cap helps until 83K tokens / 35K mean peak context = about 2.4 sessions a D",
            "large sessions starve: mean peak input 38K against 31K of the others",
            "late sessions starve: mean arrival rank 5.0 against 2.0 of the others",
        ]
    );
}

#[test]
fn gaps_are_held_against_the_e2e_that_was_measured_and_against_no_estimate() {
    // Every gap is 6 s, and the fallbacks take 5.6 s.
    const PART: &str = "of think gaps";
    assert!(find(&story().summary(), PART).is_none(), "though the estimate before the run has it");
    let mut story = story();
    story.records.iter_mut().for_each(|record| record.scheduled_ns /= 2);
    let text = "time-scale 10 leaves 44 % of think gaps shorter than the E2E before them (0 % at time-scale 1)";
    assert_eq!(find(&story.summary(), PART), Some(text), "8 of the 9 gaps of three sessions of six");
    story.info.time_scale = None;
    story.records.iter_mut().for_each(|record| record.scheduled_ns = 0);
    let text = "time-scale inf leaves 100 % of think gaps shorter than the E2E before them";
    assert_eq!(find(&story.summary(), PART), Some(text));
    for record in &mut story.records {
        (record.outcome, record.error_class) = (Outcome::Error, Some("http-client".into()));
    }
    assert!(find(&story.summary(), PART).is_none(), "nothing was served");
}

#[test]
fn a_d_without_the_admission_endpoint_is_named_before_slots() {
    let with = |direct: bool| {
        let mut story = story();
        let is_direct = |record: &RequestRecord| record.execution_mode == ExecutionMode::KvcacheDirectToDSession;
        let keep = usize::from(direct);
        for record in story.records.iter_mut().filter(|record| is_direct(record)).skip(keep) {
            (record.execution_mode, record.mode_reason) =
                (ExecutionMode::FallbackAdmissionRejected, ModeReason::AdmissionFailed);
        }
        story.summary()
    };
    let none = with(false);
    assert!(texts(&none)[0].starts_with("admission calls failed: 24 turns did not go direct; "), "{:?}", texts(&none));
    let some = with(true);
    assert!(!texts(&some)[0].contains("admission") && find(&some, "admission calls failed: 23 turns").is_some());
    assert!(find(&story().summary(), "admission calls").is_none());
}

#[test]
fn sessions_that_never_asked_are_not_short_of_slots() {
    let mut story = story();
    for ix in 3..6 {
        story.facts.sessions[ix].seed_asks = 0;
    }
    // s0 to s2 have a slot each; the refusals of the others are not for want of slots.
    assert!(find(&story.summary(), "< ").is_none());
    story.facts.sessions[3].seed_asks = 9;
    let summary = story.summary();
    assert!(texts(&summary)[0].contains("< 4 sessions, slots are never released: 1 session never held one"));
}

#[test]
fn slots_given_back_are_held_against_the_sessions_live_at_once() {
    let mut story = story();
    slots(&mut story).slot_release = "session-end".into();
    assert!(find(&story.summary(), "3 slots (3 D × cap 1) < 6 sessions live at once, slots are released at").is_some());
    // The sessions with a slot end before the others come: at most three at once.
    for record in story.records.iter_mut().filter(|record| record.session_id.as_str() > "s2") {
        for at in [record.sent_ns.as_mut(), Some(&mut record.ended_ns)].into_iter().flatten() {
            *at += 100_000_000_000;
        }
    }
    let summary = story.summary();
    assert!(find(&summary, "< ").is_none(), "{:?}", texts(&summary));
    assert!(find(&summary, "3 slots (3 D × cap 1) for 3 sessions live at once, yet 27 turns fell back").is_some());
}

#[test]
fn slots_enough_but_on_another_d_are_said_so() {
    let mut story = story();
    slots(&mut story).cap_max = Some(2);
    let summary = story.summary();
    assert_eq!(
        texts(&summary)[0],
        "6 slots (3 D × cap 2) for 6 sessions, yet 27 turns fell back: the D chosen had none left"
    );
    assert!(find(&summary, "next binder").is_none());
}

#[test]
fn a_known_capacity_shrinks_the_cap_as_contexts_grow() {
    let mut story = story();
    let facts = slots(&mut story);
    (facts.cap_max, facts.usable_tokens) = (Some(4), Some(74_700));
    let summary = story.summary();
    // Refused turns ask for 7,620 to 38,020 tokens: from 18,675 on the cap is below 4, from turn 5 on.
    let Some(Cause::CapShrinks { cap, shrunk_cap, fallbacks, .. }) =
        summary.causes.iter().map(|line| &line.cause).find(|cause| matches!(cause, Cause::CapShrinks { .. }))
    else {
        panic!("{:?}", texts(&summary))
    };
    assert_eq!((*cap, *shrunk_cap, *fallbacks), (4, 2, 18));
    assert_eq!(
        texts(&summary)[0],
        "the soft cap falls from 4 to 2 as contexts grow: 75K usable tokens / 29K mean size of the turns refused; \
         18 turns fell back"
    );
    assert!(texts(&summary)[1].ends_with("yet 9 turns fell back: the D chosen had none left"), "{:?}", texts(&summary));
    // Counter-scenarios: by what is new every turn is small, and a large pool shrinks no cap.
    slots(&mut story).footprint = "incremental".into();
    assert!(find(&story.summary(), "soft cap falls").is_none());
    let facts = slots(&mut story);
    (facts.footprint, facts.usable_tokens) = ("full".into(), Some(1_000_000));
    assert!(find(&story.summary(), "soft cap falls").is_none());
}

#[test]
fn capacity_is_named_when_it_binds_before_the_cap() {
    let mut story = with_fallbacks(ExecutionMode::FallbackNoCapacity, ModeReason::NoCapacity);
    slots(&mut story).cap_max = Some(16);
    let summary = story.summary();
    assert_eq!(
        texts(&summary)[0],
        "KV capacity binds before the cap of 16 at any one time: 83K tokens / 35K mean peak context = about 2.4 sessions \
         a D; 27 turns refused for room; 12 of 12 KV transfers on D0 (cluster.decode, engine.kv_pool_tokens)"
    );
    assert!(!summary.causes.iter().any(|line| matches!(line.cause, Cause::SessionCapStarvation(_))));
    slots(&mut story).cap_max = Some(2);
    assert!(texts(&story.summary())[0].starts_with("KV capacity binds at times within the cap of 2; 27 turns"));
}

#[test]
fn where_workers_admit_no_cap_is_named() {
    let mut story = with_fallbacks(ExecutionMode::FallbackNoCapacity, ModeReason::NoCapacity);
    slots(&mut story).cap_max = None;
    let summary = story.summary();
    assert!(texts(&summary)[0].starts_with("KV capacity binds: 83K tokens / 35K"), "{:?}", texts(&summary));
    assert!(texts(&summary).iter().all(|text| !text.contains("cap of") && !text.contains("slots")));
}

#[test]
fn refusals_for_other_reasons_are_no_want_of_room() {
    for reason in [ModeReason::AdmissionFailed, ModeReason::SessionBusy] {
        let story = with_fallbacks(ExecutionMode::FallbackAdmissionRejected, reason);
        assert!(find(&story.summary(), "KV capacity").is_none(), "{reason}");
    }
    let mut story = with_fallbacks(ExecutionMode::FallbackAdmissionRejected, ModeReason::NoCapacity);
    fallbacks(&mut story).take(20).for_each(|record| record.mode_reason = ModeReason::AdmissionFailed);
    assert!(find(&story.summary(), "; 7 turns refused for room").is_some());
}

#[test]
fn few_or_mixed_sessions_are_not_called_late() {
    let mut mixed = story();
    for (fact, rank) in mixed.facts.sessions.iter_mut().zip([2, 4, 6, 1, 3, 5]) {
        fact.arrival_rank = rank;
    }
    let summary = mixed.summary();
    assert!(find(&summary, "late sessions").is_none(), "{:?}", texts(&summary));
    let text = render::summary(&summary, &Extras::default(), Style::default());
    assert!(text.contains("mean arrival rank 3.0 vs 4.0") && !text.contains("arrival rank ≥"), "{text}");
    // One of two came later than the other: chance.
    let mut few = story();
    few.records.retain(|record| ["s0", "s5"].contains(&record.session_id.as_str()));
    few.facts.sessions.retain(|facts| ["s0", "s5"].contains(&facts.session_id.as_str()));
    (few.facts.planned, few.info.sessions) = (20, 2);
    let summary = few.summary();
    assert_eq!(summary.fairness.starved.as_ref().unwrap().arrival_rank.separation, Some(1.0));
    assert!(find(&summary, "sessions starve").is_none(), "{:?}", texts(&summary));
}

#[test]
fn turns_after_a_compaction_are_counted() {
    let mut story = story();
    assert!(find(&story.summary(), "compaction").is_none());
    for record in story.records.iter_mut().filter(|record| record.session_id.as_str() < "s2" && record.turn_id == 7) {
        (record.execution_mode, record.mode_reason) = (ExecutionMode::KvcacheReseed, ModeReason::ContextCompacted);
    }
    let line = "2 turns of 2 sessions did not continue the session's context (compaction): closed and reseeded";
    assert!(find(&story.summary(), line).is_some());
}

#[test]
fn the_cause_of_most_turns_comes_first() {
    let mut story = story();
    fallbacks(&mut story).skip(20).for_each(|record| {
        (record.execution_mode, record.mode_reason) = (ExecutionMode::FallbackNoCapacity, ModeReason::NoCapacity);
    });
    let starts = |summary: &RunSummary| texts(summary).iter().map(|text| text[..7].to_owned()).collect::<Vec<_>>();
    assert_eq!(starts(&story.summary())[..3], ["3 slots", "next bi", "KV capa"]);
    fallbacks(&mut story).skip(5).for_each(|record| {
        (record.execution_mode, record.mode_reason) = (ExecutionMode::FallbackNoCapacity, ModeReason::NoCapacity);
    });
    assert_eq!(starts(&story.summary())[..3], ["KV capa", "3 slots", "next bi"]);
}

#[test]
fn turns_held_up_weigh_with_turns_that_lost_their_path_and_what_chance_explains_is_last() {
    let mut story = story();
    for record in story.records.iter_mut().filter(|record| record.prefill_worker.is_some()) {
        record.prefill_queue_ms = record.ttft_ms.map(|ttft| ttft * 0.9);
    }
    story.facts.transfers[0].errors = 2;
    story.facts.workers[2].restarts = 50;
    let refused = fallbacks(&mut story).next().unwrap();
    (refused.outcome, refused.error_class) = (Outcome::Error, Some(ErrorClass::ContextLimit.as_str().into()));
    let summary = story.summary();
    let all = texts(&summary);
    let at = |part: &str| all.iter().position(|text| text.contains(part)).unwrap_or_else(|| panic!("{part}: {all:#?}"));
    // 35 of 36 turns through P, nine tenths of their TTFT, are more than 27 turns; one request is less.
    assert_eq!(at("turns through P wait"), 0, "{all:#?}");
    assert_eq!(at("turns fell back"), 1, "{all:#?}");
    assert!(at("1 request of 1 session refused") < at("nothing was lost"), "{all:#?}");
    assert_eq!(at("on no link or worker more than chance explains"), all.len() - 1, "{all:#?}");
}

#[test]
fn failures_are_noted_by_class_once_whatever_their_share() {
    let mut story = story();
    story.info.budgets.max_bad_share = 0.1;
    let noted = |story: &Story| {
        let text = render::summary(&story.summary(), &Extras::default(), Style::default());
        text.lines().find(|line| line.contains("failures by class")).map(|line| line.trim().to_owned())
    };
    assert_eq!(noted(&story), None);
    for record in &mut story.records[10..13] {
        (record.outcome, record.error_class) = (Outcome::Truncated, Some(ErrorClass::SessionNotFound.as_str().into()));
    }
    story.records[13].outcome = Outcome::Timeout;
    let line = noted(&story).unwrap();
    assert!(line.ends_with("session-not-found 3 (truncated) · unclassified 1 (timeout)"), "{line}");
    assert!(render::markdown(&story.summary(), &Extras::default()).contains("failures by class: session-not-found 3"));
    // Above the budget the note on the most common failure says it, with its words.
    story.info.budgets.max_bad_share = 0.01;
    assert_eq!(noted(&story), None);
    assert!(story.summary().integrity.notes[0].starts_with("most common failure: session-not-found"));
}

#[test]
fn a_run_without_success_says_so_once() {
    let mut story = story();
    for record in &mut story.records {
        record.outcome = Outcome::Error;
        record.error_class = Some("context-limit".into());
        record.error_message = Some("too long".into());
    }
    let summary = story.summary();
    assert_eq!(summary.integrity.verdict, Verdict::Withheld);
    assert_eq!(texts(&summary)[0], "no request completed: 60 failed, 60 of them context-limit");
    let text = render::summary(&summary, &Extras::default(), Style::default());
    assert_eq!(text.matches("too long").count(), 1, "{text}");
    assert!(find(&super::story::story().summary(), "no request completed").is_none());
}

#[test]
fn sessions_that_do_not_match_are_noted() {
    let notes = |story: &Story| story.summary().integrity.notes.join("; ");
    let mut story = story();
    assert_eq!(notes(&story), "");
    story.facts.sessions[5].session_id = "elsewhere".into();
    let found = notes(&story);
    assert!(found.contains("1 session of the run left no record"), "{found}");
    assert!(found.contains("1 session with records unknown to the run"), "{found}");
    // A killed run knows its sessions by number only.
    story.facts.sessions.clear();
    story.info.sessions = 8;
    assert_eq!(notes(&story), "2 sessions of the run left no record");
}

#[test]
fn a_run_names_the_cap_that_was_applied() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/traces/sample-6.jsonl");
    let causes = |more: &[&str]| {
        let scratch = Scratch::new();
        let small = ["--set", "engine.kv_pool_tokens=6000", "--set", "cluster.decode=1", "--name", "run"];
        scratch.run(&[&["replay", trace], &small[..], more].concat()).code(0);
        scratch.json("outputs/run/summary.json")["causes"].to_string()
    };
    let by_router = causes(&[]);
    assert!(by_router.contains("before the cap of 4") && by_router.contains("4 slots (1 D × cap 4)"), "{by_router}");
    assert!(!by_router.contains("soft cap falls"), "{by_router}");
    let by_worker = causes(&["--set", "admission.seed=worker"]);
    assert!(by_worker.contains("KV capacity binds: 6.0K") && !by_worker.contains("cap 4"), "{by_worker}");
    let known = causes(&["--set", "admission.capacity_known=true"]);
    assert!(known.contains("the soft cap falls from 4 to "), "{known}");
}

#[test]
fn a_queue_that_is_most_of_the_wait_is_named() {
    let mut story = story();
    let of_queue = |story: &mut Story, share: f64| {
        for record in story.records.iter_mut().filter(|record| record.prefill_worker.is_some()) {
            record.prefill_queue_ms = record.ttft_ms.map(|ttft| ttft * share);
        }
    };
    of_queue(&mut story, 0.9);
    story.facts.workers[0].busy_share = 0.52;
    story.facts.workers[0].queue_peak = 7;
    let summary = story.summary();
    let line = find(&summary, "turns through P wait").unwrap_or_else(|| panic!("{:?}", texts(&summary)));
    assert_eq!(
        line,
        "turns through P wait 2.67 s of 2.97 s mean TTFT in its queue: 1 prefill worker busy 52 %, up to 7 waiting for one"
    );
    of_queue(&mut story, 0.4);
    assert!(find(&story.summary(), "turns through P wait").is_none());
}

#[test]
fn a_restart_counts_what_was_lost_with_it() {
    let mut story = story();
    story.facts.workers[2].restarts = 1;
    assert!(find(&story.summary(), "1 worker restart (D1): nothing was lost").is_some());
    let of_s0 = |turn: u32| move |record: &&mut RequestRecord| record.session_id == "s0" && record.turn_id == turn;
    let lost = story.records.iter_mut().find(of_s0(4)).unwrap();
    (lost.outcome, lost.error_class) = (Outcome::Error, Some(ErrorClass::WorkerLost.as_str().into()));
    let again = story.records.iter_mut().find(of_s0(5)).unwrap();
    (again.execution_mode, again.mode_reason) = (ExecutionMode::KvcacheReseed, ModeReason::PreviousTurnFailed);
    let summary = story.summary();
    let said = "1 worker restart (D1): 1 request of 1 session lost with it (";
    let line = find(&summary, said).unwrap_or_else(|| panic!("{:?}", texts(&summary)));
    assert!(line.ends_with("), 1 reseed because of it"), "{line}");
    // An answer that broke off is the restart's doing where it was on that worker, and no other's.
    for (worker, explained) in [("D1", true), ("D0", false)] {
        let broken = story.records.iter_mut().find(of_s0(4)).unwrap();
        broken.error_class = Some(ErrorClass::ConnectionClosed.as_str().into());
        broken.decode_worker_actual = Some(worker.into());
        broken.prefill_worker = None;
        let summary = story.summary();
        assert_eq!(find(&summary, said).is_some(), explained, "{:?}", texts(&summary));
    }
    // A prefill that failed is the restart's doing where it was on that P, whatever D it was for.
    for (prefill, explained) in [("D1", true), ("P0", false)] {
        let failed = story.records.iter_mut().find(of_s0(4)).unwrap();
        failed.error_class = Some(ErrorClass::PrefillFailed.as_str().into());
        (failed.prefill_worker, failed.decode_worker_actual) = (Some(prefill.into()), Some("D1".into()));
        let summary = story.summary();
        assert_eq!(find(&summary, said).is_some(), explained, "{:?}", texts(&summary));
    }
}

#[test]
fn little_evidence_makes_capacity_the_next_binder() {
    let mut story = story();
    let trimmed = story.records.iter_mut().find(|record| record.turn_id == 5).unwrap();
    (trimmed.execution_mode, trimmed.mode_reason) = (ExecutionMode::KvcacheReseed, ModeReason::EvictedTrim);
    slots(&mut story).cap_max = Some(4);
    let summary = story.summary();
    let said = "next binder: KV capacity before the cap of 4: 83K tokens / 35K mean peak context = about 2.4 sessions a D; \
                1 reseed after a trim";
    assert!(find(&summary, said).is_some(), "{:?}", texts(&summary));
}

#[test]
fn a_slot_given_back_by_a_failed_turn_is_held_again() {
    let mut story = story();
    story.facts.sessions[3].slot_hold_ns = 1_000_000_000;
    let said = "3 slots (3 D × cap 1) < 6 sessions, slots are given back by a failed turn only: 4 sessions held one at some \
                time, 2 never, 27 turns fell back";
    assert!(find(&story.summary(), said).is_some(), "{:?}", texts(&story.summary()));
}

#[test]
fn a_run_that_fell_far_behind_its_schedule_is_noted() {
    let mut story = story();
    let noted = |story: &Story| story.summary().integrity.notes.iter().any(|note| note.contains("for a planned"));
    story.info.planned_s = Some(50.0);
    assert!(!noted(&story));
    story.info.planned_s = Some(20.0);
    assert!(noted(&story));
}

#[test]
fn trims_on_one_d_name_it() {
    let mut story = with_fallbacks(ExecutionMode::FallbackNoCapacity, ModeReason::NoCapacity);
    for (worker, trims) in [(1, 1), (2, 1), (3, 18)] {
        story.facts.workers[worker].session_trims = trims;
    }
    assert!(find(&story.summary(), "27 turns refused for room; 18 of 20 trims on D2").is_some());
    story.facts.workers[1].session_trims = 17;
    assert!(find(&story.summary(), "trims on").is_none());
}

#[test]
fn a_share_just_over_the_budget_is_seen_to_be_over_it() {
    let mut story = story();
    for record in &mut story.records[10..12] {
        record.outcome = Outcome::Error;
    }
    story.info.budgets.max_bad_share = 0.033;
    let reason = story.summary().integrity.reason.unwrap();
    assert_eq!(reason, "3.33 % error (budget 3.3 %: integrity.max_bad_share)");
}

#[test]
fn slots_that_sessions_keep_beyond_their_end_are_named_where_others_are_refused_for_them() {
    let mut story = story();
    let line = "sessions that have ended hold slots";
    assert!(find(&story.summary(), line).is_none(), "nobody counted");
    for (ix, facts) in story.facts.sessions.iter_mut().enumerate() {
        facts.slot_after_end_ns = Some(facts.slot_hold_ns / 4);
        facts.refused_by_ended = Some(if ix < 4 { 0 } else { 7 });
    }
    let summary = story.summary();
    assert_eq!(
        texts(&summary)[2],
        "sessions that have ended hold slots: 25.0 % of all slot time is after a last turn, at least 14 refusals of 2 sessions \
         (2 starved) for want of one; admission.slot_release = \"session-end\" gives them back"
    );
    for facts in &mut story.facts.sessions {
        facts.refused_by_ended = Some(0);
    }
    assert!(find(&story.summary(), line).is_none(), "nobody is refused for it");
}
