//! A cluster that tells when it was really sent something: times, limits and ends go by its word.

use super::fake::{config, dur, trace};
use crate::base::{RequestIx, Time, WorkerId};
use crate::policies::PolicyName;
use crate::protocol::{Action, AdmitAnswer, AdmitReason, CallId, Event, Outgoing};
use crate::record::{Outcome, RequestRecord};
use crate::replay::{FirstTurn, Replayer, ReplayerConfig};
use crate::trace::Trace;

fn at(s: f64) -> Time {
    Time::ZERO + dur(s)
}

fn replayer<'t>(trace: &'t Trace, config: ReplayerConfig, ideal: &'t [u32]) -> Replayer<'t> {
    let mut replayer = Replayer::new(trace, config, ideal).with_told_sends();
    replayer.handle_timeout(at(1.0));
    replayer
}

fn sent(replayer: &mut Replayer, when: f64, what: Outgoing) {
    replayer.handle_event(at(when), Event::Sent { what, at: at(when) });
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
    assert_eq!(records(&mut replayer)[0].outcome, Outcome::Cancelled);
}
