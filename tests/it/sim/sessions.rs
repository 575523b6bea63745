//! Sessions on decode workers: dropped when idle, lost with their worker, moved when it leaves.

use pdreplay::record::{LedgerKind, ModeReason, Outcome};

use super::{case, conversations, play, scenario, sent_s, trace};

#[test]
fn case_60_an_idle_session_is_dropped_and_placed_again() {
    let text = case("60-idle-session-evicted/trace.jsonl");
    let cluster = "
cluster.prefill = 1
cluster.decode = 1
replay.first_turn = 'seed'
engine.session_idle_timeout_s = 30";
    for admission in ["worker", "router"] {
        let admission = format!("admission.append = '{admission}'");
        let slow = play(&trace(&text), &scenario(&[cluster, &admission]));
        if admission.contains("worker") {
            slow.all_ok();
            assert_eq!(slow.path("s"), "SDRDR");
            let reasons = slow.reasons("s");
            assert_eq!([reasons[2], reasons[4]], [ModeReason::EvictedIdle; 2]);
            assert_eq!(slow.end.facts.beliefs_corrected, 2, "the replayer learns it from the worker");
        } else {
            // Nobody asks the worker first: the turns that find the session gone are aborted, and say so.
            assert_eq!(slow.path("s"), "SDD!RD!");
            assert_eq!(slow.of("s", 2).outcome, Outcome::Truncated);
        }
        assert_eq!(slow.end.facts.workers.iter().map(|worker| worker.session_timeouts).sum::<u64>(), 2);
        let fast = play(&trace(&text), &scenario(&[cluster, &admission, "replay.time_scale = 10"]));
        fast.all_ok();
        assert_eq!(fast.path("s"), "SDDDD");
    }
}

#[test]
fn case_62_a_restarted_worker_has_nothing_and_is_believed_to_have_nothing() {
    let text = case("62-decode-worker-restarts/trace.jsonl");
    let cluster = "
cluster.prefill = 1
cluster.decode = 2
replay.first_turn = 'seed'
policy.name = 'sticky'
fault = [{ kind = 'restart', worker = 'D0', at_s = 10 }]";
    let played = play(&trace(&text), &scenario(&[cluster]));
    played.all_ok();
    let on = |worker: &str| {
        ["s0", "s1", "s2", "s3"].into_iter().filter(|session| played.worker(session, 0) == worker).collect::<Vec<_>>()
    };
    let (restarted, other) = (on("D0"), on("D1"));
    assert_eq!((restarted.len(), other.len()), (2, 2));
    for session in restarted {
        assert_eq!(played.path(session), "SDRD");
        assert_eq!(played.reasons(session)[2], ModeReason::WorkerRestarted);
        let reseed = played.of(session, 2);
        assert_eq!((reseed.append_tokens, played.worker(session, 3)), (reseed.input_tokens, "D0"));
        assert_eq!(played.of(session, 3).cached_tokens, Some(reseed.input_tokens + 10), "all of it is there again");
    }
    for session in other {
        assert_eq!(played.path(session), "SDDD");
    }
    let restarts: Vec<_> =
        played.end.facts.workers.iter().map(|worker| (worker.worker.as_str(), worker.restarts)).collect();
    assert_eq!(restarts, [("P0", 0), ("D0", 1), ("D1", 0)]);
    // A session holds its slot up to the restart and from its reseed on, not in between.
    for session in &played.end.facts.sessions {
        let whole = played.end.facts.duration_ns - played.of(&session.session_id, 0).sent_ns.unwrap();
        let gap = whole - session.slot_hold_ns;
        let lost = played.path(&session.session_id) == "SDRD";
        assert_eq!(lost, gap > 3_900_000_000, "{} did without a slot for {gap} ns", session.session_id);
    }
}

#[test]
fn a_restart_nobody_noticed_yet_costs_at_most_one_turn() {
    // Discovery takes longer than the run: only an answer can tell.
    let cluster = "
cluster.prefill = 1
cluster.decode = 2
cluster.discovery_delay_ms = 60_000
replay.first_turn = 'seed'
policy.name = 'sticky'
fault = [{ kind = 'restart', worker = 'D0', at_s = 10 }]";
    let trace = conversations(4, 0.1, &[0.0, 5.0, 15.0, 20.0, 25.0]);
    for (admission, most_bad) in [("worker", 0), ("router", 1)] {
        let played = play(&trace, &scenario(&[cluster, &format!("admission.append = '{admission}'")]));
        let bad = played.records.iter().filter(|record| !record.outcome.is_ok()).count();
        assert!(bad <= most_bad, "{admission}: {bad} turns of the restarted worker failed");
        let found_out = (0..4).filter(|k| played.path(&format!("s{k}")).contains('R')).count();
        assert_eq!(found_out, 2, "{admission}: both sessions are placed again");
        assert!((0..4).all(|k| played.path(&format!("s{k}")).ends_with('D')), "{admission}");
    }
}

#[test]
fn case_70_sticky_moves_only_what_has_lost_its_worker() {
    let text = case("70-sticky-while-workers-come-and-go/trace.jsonl");
    let cluster = "
cluster.prefill = 1
cluster.decode = 4
replay.first_turn = 'seed'
policy.name = 'sticky'
admission.cap_max = 20
fault = [{ kind = 'join', worker = 'D3', at_s = 4 }, { kind = 'leave', worker = 'D1', at_s = 14 }]";
    let played = play(&trace(&text), &scenario(&[cluster]));
    played.all_ok();
    let mut moved = 0;
    for k in 0..30 {
        let session = format!("s{k:02}");
        let home = played.worker(&session, 0);
        assert_eq!(home, ["D0", "D1", "D2"][k % 3], "{session}: an even start");
        assert_eq!([1, 2].map(|turn| played.worker(&session, turn)), [home; 2], "{session} stays");
        if home == "D1" {
            moved += 1;
            assert_ne!(played.worker(&session, 3), "D1");
            assert_eq!((played.path(&session).as_str(), played.reasons(&session)[3]), ("SDDR", ModeReason::WorkerGone));
        } else {
            assert_eq!((played.worker(&session, 3), played.path(&session).as_str()), (home, "SDDD"));
        }
    }
    assert_eq!(moved, 10);
    let moves: Vec<_> = played.end.facts.sessions.iter().map(|session| session.migrations).collect();
    assert_eq!((moves.iter().sum::<u32>(), moves.iter().max()), (10, Some(&1)), "once each");
}

#[test]
fn a_worker_that_joins_serves_new_sessions_only() {
    let cluster = "
cluster.prefill = 1
cluster.decode = 3
replay.first_turn = 'seed'
policy.name = 'kv-aware'
admission.cap_max = 20
fault = [{ kind = 'join', worker = 'D2', at_s = 3 }]";
    let played = play(&conversations(12, 1.0, &[0.0, 8.0, 16.0]), &scenario(&[cluster]));
    played.all_ok();
    let first_on_d2 = played.records.iter().filter(|record| record.decode_worker_actual.as_deref() == Some("D2"));
    assert!(first_on_d2.clone().count() > 0, "the newcomer is used");
    assert!(first_on_d2.clone().map(sent_s).all(|sent| sent >= 4.0), "discovery takes a second");
    for k in 0..12 {
        assert_eq!(played.path(&format!("s{k}")), "SDD", "s{k} stays");
    }
}

#[test]
fn a_worker_killed_for_good_is_replaced_by_the_others() {
    let cluster = "
cluster.prefill = 1
cluster.decode = 2
replay.first_turn = 'seed'
fault = [{ kind = 'kill', worker = 'D0', at_s = 10 }]";
    for policy in ["sticky", "kv-aware"] {
        let policy = format!("policy.name = '{policy}'");
        let played = play(&conversations(4, 0.1, &[0.0, 5.0, 15.0, 20.0]), &scenario(&[cluster, &policy]));
        played.all_ok();
        for session in ["s0", "s1", "s2", "s3"] {
            let lost = played.worker(session, 0) == "D0";
            assert_eq!(played.path(session), if lost { "SDRD" } else { "SDDD" }, "{policy} {session}");
            assert_eq!([2, 3].map(|turn| played.worker(session, turn)), ["D1"; 2]);
            assert_eq!(played.reasons(session)[2] == ModeReason::WorkerGone, lost);
        }
        assert_eq!(played.noted(LedgerKind::WorkerDown).len(), 1);
    }
}

#[test]
fn a_kill_fails_what_is_inside_and_keeps_the_tokens_sent() {
    let cluster = "
cluster.prefill = 1
cluster.decode = 1
engine.timing.d0 = 100
replay.first_turn = 'seed'
fault = [{ kind = 'kill', worker = 'D0', at_s = 0.5 }]";
    let played = play(&conversations(1, 0.0, &[0.0, 5.0]), &scenario(&[cluster]));
    let lost = played.of("s0", 0);
    assert_eq!(lost.outcome, Outcome::Error);
    assert!((1..10).contains(&lost.output_tokens), "{lost:#?}");
    assert!(lost.error_message.as_deref().unwrap().contains("D0 died"));
    // The only worker is gone: the next turn is refused by the router, in words.
    let after = played.of("s0", 1);
    assert_eq!((after.outcome, after.http_status), (Outcome::Error, Some(503)), "{after:#?}");
    assert!(after.error_message.as_deref().unwrap().contains("decode worker"));
}
