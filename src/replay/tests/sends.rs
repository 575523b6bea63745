//! A cluster that tells when it was really sent something: times, limits and ends go by its word.

use super::fake::{config, dur, trace};
use crate::base::{RequestIx, Role, Time, WorkerId};
use crate::policies::PolicyName;
use crate::protocol::{Action, AdmitAnswer, AdmitReason, Answer, CallId, Event, Finish, Outgoing, TokenRun};
use crate::record::{ExecutionMode, ModeReason, Outcome, RequestRecord};
use crate::replay::{FirstTurn, Replayer, ReplayerConfig, Schedule, WakeReason};
use crate::trace::Trace;

fn at(s: f64) -> Time {
    Time::ZERO + dur(s)
}

fn replayer<'t>(trace: &'t Trace, config: ReplayerConfig, ideal: &'t [u32]) -> Replayer<'t> {
    let mut replayer = Replayer::new(trace, config, ideal).with_told_sends(dur(2.0));
    replayer.handle_timeout(at(1.0));
    replayer
}

fn sent(replayer: &mut Replayer, when: f64, what: Outgoing) {
    replayer.handle_event(at(when), Event::Sent { what, at: at(when) });
}

fn last_word(replayer: &mut Replayer, when: f64, answer: Answer) {
    replayer.handle_event(at(when), Event::Finished(Box::new(answer)));
}

fn records(replayer: &mut Replayer) -> Vec<RequestRecord> {
    std::iter::from_fn(|| replayer.poll_record().map(|(record, _)| record)).collect()
}

fn actions(replayer: &mut Replayer) -> Vec<Action> {
    std::iter::from_fn(|| replayer.poll_action()).collect()
}

#[test]
fn lag_and_the_total_limit_go_by_the_send() {
    let trace = trace(&[("a", vec![(1, 1.0, 640, 20)])]);
    let mut config = config(PolicyName::Default, 1);
    config.replay.request_timeout_s = 5.0;
    let mut replayer = replayer(&trace, config, &[0]);
    assert!(matches!(actions(&mut replayer)[..], [Action::Generate(_)]));
    replayer.handle_timeout(at(9.0));
    assert!(!replayer.is_done(), "what was not sent has no limit");
    sent(&mut replayer, 11.0, Outgoing::Request(RequestIx(0)));
    assert_eq!(replayer.poll_timeout().map(|(at, _)| at), Some(at(16.0)));
    replayer.handle_timeout(at(16.0));
    last_word(&mut replayer, 16.1, Answer::unheard(RequestIx(0)));
    let record = &records(&mut replayer)[0];
    assert_eq!((record.outcome, record.sent_ns), (Outcome::Timeout, Some(at(11.0).ns())));
    assert_eq!((record.schedule_lag_ms, record.e2e_ms, record.admission_ms), (Some(10_000.0), Some(5000.0), Some(0.0)));
}

#[test]
fn a_late_generate_request_after_its_calls_is_lag_too() {
    let trace = trace(&[("a", vec![(1, 1.0, 640, 20)])]);
    let mut config = config(PolicyName::KvAware, 1);
    config.replay.first_turn = FirstTurn::Seed;
    config.replay.request_timeout_s = 60.0;
    let mut replayer = replayer(&trace, config, &[0]);
    let mut calls = Vec::new();
    let mut now = 1.0;
    // Every call goes out 0.1 s after its action and is answered 0.2 s after that.
    'calls: loop {
        for action in actions(&mut replayer) {
            let (call, worker, answer): (CallId, WorkerId, Event) = match action {
                Action::OpenSession { call, worker, .. } => {
                    (call, worker, Event::Opened { call, worker, result: Ok(0) })
                }
                Action::Admit { call, worker, .. } => {
                    let answer = AdmitAnswer {
                        can_admit: true,
                        reason: AdmitReason::Fits,
                        available_tokens: 80_000,
                        capacity_tokens: 83_000,
                        evicted: Vec::new(),
                        incarnation: 0,
                    };
                    (call, worker, Event::Admission { call, worker, result: Ok(answer) })
                }
                Action::Generate(_) => break 'calls,
                other => panic!("{other:?}"),
            };
            calls.push(worker);
            sent(&mut replayer, now + 0.1, Outgoing::Call(call));
            now += 0.3;
            replayer.handle_event(at(now), answer);
        }
    }
    assert!(!calls.is_empty(), "a session turn asks or opens first");
    sent(&mut replayer, now + 2.0, Outgoing::Request(RequestIx(0)));
    replayer.handle_timeout(at(100.0));
    last_word(&mut replayer, 100.0, Answer::unheard(RequestIx(0)));
    let record = &records(&mut replayer)[0];
    assert_eq!(record.sent_ns, Some(at(1.1).ns()), "the first call");
    assert!((record.schedule_lag_ms.unwrap() - 2100.0).abs() < 1e-6, "{record:?}");
    assert!((record.admission_ms.unwrap() - (now + 2.0 - 1.1) * 1e3).abs() < 1e-6, "{record:?}");
}

#[test]
fn a_drain_takes_back_what_was_not_sent() {
    let row = || vec![(1, 1.0, 640, 20)];
    let trace = trace(&[("a", row()), ("b", row()), ("c", row())]);
    let mut replayer = replayer(&trace, config(PolicyName::Default, 1), &[0; 3]);
    let taken: Vec<Action> = (0..2).filter_map(|_| replayer.poll_action()).collect();
    assert!(matches!(&taken[..], [Action::Generate(a), Action::Generate(b)] if (a.request.0, b.request.0) == (0, 1)));
    sent(&mut replayer, 1.5, Outgoing::Request(RequestIx(0)));
    replayer.drain(at(2.0));
    assert_eq!(actions(&mut replayer), [Action::Abort { request: RequestIx(1) }], "the third never left");
    let ended = records(&mut replayer);
    assert!(ended.iter().all(|r| (r.outcome, r.sent_ns, r.attempts) == (Outcome::Skipped, None, 0)), "{ended:?}");
    assert_eq!((ended.len(), replayer.in_flight()), (2, 1));
    replayer.interrupt(at(3.0));
    last_word(&mut replayer, 3.0, Answer::unheard(RequestIx(0)));
    assert_eq!(records(&mut replayer)[0].outcome, Outcome::Cancelled);
}

/// What a client has of an answer: one token every half second from `first` on.
fn partial(request: u32, first: f64, tokens: u32) -> Answer {
    let runs: Vec<TokenRun> = vec![TokenRun { first: at(first), step: dur(0.5), count: tokens }];
    Answer {
        http_status: Some(200),
        decode_worker: Some(WorkerId::new(Role::Decode, 0)),
        cached_tokens: Some(64),
        output_tokens: tokens,
        first_token_at: Some(at(first)),
        last_token_at: runs.last().map(|run| run.last()),
        token_runs: runs,
        ..Answer::unheard(RequestIx(request))
    }
}

fn in_flight<'t>(trace: &'t Trace, ideal: &'t [u32]) -> Replayer<'t> {
    let mut config = config(PolicyName::Default, 1);
    (config.replay.request_timeout_s, config.replay.schedule) = (5.0, Schedule::Open);
    let mut replayer = replayer(trace, config, ideal);
    actions(&mut replayer);
    sent(&mut replayer, 1.0, Outgoing::Request(RequestIx(0)));
    replayer
}

#[test]
fn a_request_given_up_keeps_what_had_arrived_and_is_settled_without_it() {
    let trace = trace(&[("a", vec![(1, 1.0, 640, 20), (2, 2.0, 700, 20)])]);
    let mut replayer = in_flight(&trace, &[0; 2]);
    replayer.handle_timeout(at(6.0));
    // The next turn leaves at once; only the record waits.
    let next = actions(&mut replayer);
    assert!(matches!(&next[..], [Action::Abort { .. }, Action::OpenSession { .. }]), "{next:?}");
    assert_eq!((replayer.in_flight(), replayer.ended()), (1, 0));
    assert!(records(&mut replayer).is_empty());
    last_word(&mut replayer, 6.2, partial(0, 4.0, 6));
    let (record, runs) = replayer.poll_record().unwrap();
    let cause = (record.outcome, record.error_class.as_deref(), record.finish_reason.as_deref());
    assert_eq!(cause, (Outcome::Timeout, Some("total-timeout"), None), "as it was given up");
    assert_eq!((record.ended_ns, record.e2e_ms), (at(6.0).ns(), Some(5000.0)), "when it was given up");
    assert_eq!(record.output_tokens, 5, "what came after that does not count");
    assert_eq!(runs, [TokenRun { first: at(4.0), step: dur(0.5), count: 5 }]);
    assert_eq!((record.first_token_ns, record.last_token_ns), (Some(at(4.0).ns()), Some(at(6.0).ns())));
    assert_eq!((record.ttft_ms, record.tpot_ms), (Some(3000.0), None));
    assert_eq!((record.http_status, record.cached_tokens, record.attempts), (Some(200), Some(64), 1));
    assert_eq!(record.decode_worker_actual.as_deref(), Some("D0"));
    last_word(&mut replayer, 6.3, partial(0, 4.0, 6));
    assert!(replayer.poll_record().is_none(), "one record");
}

#[test]
fn a_request_given_up_between_attempts_keeps_the_status_and_the_count() {
    let trace = trace(&[("a", vec![(1, 1.0, 640, 20)])]);
    let mut replayer = in_flight(&trace, &[0]);
    replayer.handle_timeout(at(6.0));
    let throttled =
        Answer { http_status: Some(503), attempts: 3, retry_wait: dur(1.5), ..Answer::unheard(RequestIx(0)) };
    last_word(&mut replayer, 6.0, throttled);
    let record = &records(&mut replayer)[0];
    assert_eq!((record.outcome, record.http_status), (Outcome::Timeout, Some(503)));
    assert_eq!((record.attempts, record.retry_wait_ms), (3, Some(1500.0)));
    assert_eq!((record.output_tokens, record.ttft_ms, record.cached_tokens), (0, None, None));
}

#[test]
fn a_last_word_that_does_not_come_is_done_without() {
    let trace = trace(&[("a", vec![(1, 1.0, 640, 20)])]);
    for stops in [false, true] {
        let mut replayer = in_flight(&trace, &[0]);
        if stops {
            replayer.interrupt(at(6.0));
        } else {
            replayer.handle_timeout(at(6.0));
        }
        assert!(!replayer.is_done());
        assert_eq!(replayer.poll_timeout(), Some((at(8.0), WakeReason::LastWord)));
        replayer.handle_timeout(at(8.0));
        let record = &records(&mut replayer)[0];
        let outcome = if stops { Outcome::Cancelled } else { Outcome::Timeout };
        assert_eq!((record.outcome, record.ended_ns, record.output_tokens), (outcome, at(6.0).ns(), 0));
        assert!(replayer.is_done());
    }
}

#[test]
fn an_answer_on_its_way_when_the_request_is_given_up_is_its_last_word() {
    let trace = trace(&[("a", vec![(1, 1.0, 640, 4)])]);
    let mut replayer = in_flight(&trace, &[0]);
    replayer.handle_timeout(at(6.0));
    last_word(&mut replayer, 6.0, Answer { finish: Finish::Length, ..partial(0, 4.0, 4) });
    let record = &records(&mut replayer)[0];
    assert_eq!((record.outcome, record.output_tokens), (Outcome::Timeout, 4), "it came too late");
}

#[test]
fn a_turn_given_up_in_its_open_took_no_other_path() {
    let trace = trace(&[("a", vec![(1, 1.0, 640, 20)])]);
    let mut config = config(PolicyName::KvAware, 1);
    config.replay.first_turn = FirstTurn::Seed;
    config.replay.request_timeout_s = 5.0;
    let mut replayer = replayer(&trace, config, &[0]);
    let opening = actions(&mut replayer);
    let Some(Action::OpenSession { call, .. }) = opening.last() else { panic!("{opening:?}") };
    sent(&mut replayer, 1.0, Outgoing::Call(*call));
    replayer.handle_timeout(at(6.0));
    let record = &records(&mut replayer)[0];
    assert_eq!((record.outcome, record.attempts), (Outcome::Timeout, 0));
    assert_eq!((record.execution_mode, record.mode_reason), (ExecutionMode::KvcacheSeed, ModeReason::OpenTimedOut));
}

#[test]
fn a_repeat_without_a_wait_waited_0() {
    let trace = trace(&[("a", vec![(1, 1.0, 640, 20)])]);
    for (attempts, waited) in [(1, None), (2, Some(0.0))] {
        let mut replayer = replayer(&trace, config(PolicyName::Default, 1), &[0]);
        actions(&mut replayer);
        sent(&mut replayer, 1.0, Outgoing::Request(RequestIx(0)));
        last_word(&mut replayer, 2.0, Answer { finish: Finish::Length, attempts, ..partial(0, 1.5, 20) });
        let record = &records(&mut replayer)[0];
        assert_eq!((record.attempts, record.retry_wait_ms), (u32::from(attempts), waited));
    }
}
