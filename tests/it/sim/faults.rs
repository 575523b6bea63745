//! Slow workers and links, admission that does not answer, routers that forget.

use pdreplay::record::{LedgerKind, ModeReason};

use super::{EXACT, arrivals, conversations, near, play, scenario};

#[test]
fn a_slow_worker_is_slow_while_it_lasts() {
    let cluster = "
cluster.colocated = 1
replay.mechanism = 'dp'
policy.name = 'default'
fault = [
    { kind = 'slow-worker', worker = 'W0', factor = 4, at_s = 1, duration_s = 4 },
    { kind = 'slow-worker', worker = 'W0', factor = 2, at_s = 0, duration_s = 6 },
]";
    let played = play(&arrivals(4, 2.0, 64, 10), &scenario(&[EXACT, cluster]));
    // Both at once are 8 times slower; the end of one leaves the other.
    near(["q00", "q03"].map(|session| played.of(session, 0).e2e_ms.unwrap()), &[1000.0, 500.0]);
    let both = played.of("q01", 0).e2e_ms.unwrap();
    // From 2 s to 5 s at 400 ms a step, the step under way ends as it began, the rest at 100 ms.
    near([both], &[400.0 * 8.0 + 2.0 * 100.0]);
}

#[test]
fn a_long_macro_step_notices_that_its_worker_became_slow() {
    let cluster = "
cluster.colocated = 1
replay.mechanism = 'dp'
policy.name = 'default'
fault = [{ kind = 'slow-worker', worker = 'W0', factor = 10, at_s = 1 }]";
    let played = play(&arrivals(1, 0.0, 64, 100), &scenario(&[EXACT, cluster]));
    // 20 tokens in the first second, 80 at half a second each.
    near([played.records[0].e2e_ms.unwrap()], &[1000.0 + 80.0 * 500.0]);
}

#[test]
fn a_slow_link_slows_its_own_transfers() {
    let link = |fault: &str| {
        let exact = EXACT
            .replace("gbytes_per_s = 1e9", "gbytes_per_s = 1")
            .replace("kv_bytes_per_token = 1", "kv_bytes_per_token = 1000000");
        let cluster = "cluster.prefill = 1\ncluster.decode = 2\nreplay.mechanism = 'pd'\npolicy.name = 'default'";
        let played = play(&arrivals(2, 5.0, 100, 2), &scenario(&[&exact, cluster, fault]));
        ["q00", "q01"].map(|session| played.of(session, 0).kv_transfer_ms.unwrap())
    };
    let of = |aim: &str| link(&format!("fault = [{{ kind = 'slow-link', factor = 7, {aim} }}]"));
    near(link(""), &[100.0, 100.0]);
    near(of("worker = 'P0'"), &[700.0, 700.0]);
    near(of("worker = 'D1'"), &[100.0, 700.0]);
    near(of("worker = 'P0', to = 'D0'"), &[700.0, 100.0]);
    near(of("worker = 'P0', at_s = 2, duration_s = 1"), &[100.0, 100.0]);
    // Strikes in the middle of a transfer, and ends there: 50 ms of work, 0.7 s for the next 100, then the rest.
    near(of("worker = 'P0', to = 'D0', at_s = 0.1, duration_s = 0.14"), &[50.0 + 140.0 + 30.0, 100.0]);
}

#[test]
fn admission_that_does_not_answer_leads_to_the_plain_path() {
    let cluster = "
cluster.prefill = 1
cluster.decode = 1
replay.first_turn = 'seed'
fault = [{ kind = 'admission-timeout', worker = 'D0', after_s = 2, times = 1 }]";
    let played = play(&conversations(1, 0.0, &[0.0, 5.0, 10.0]), &scenario(&[cluster]));
    played.all_ok();
    assert_eq!(played.reasons("s0")[1], ModeReason::AdmissionFailed);
    assert_eq!(played.path("s0"), "SFD", "the session is still there for the turn after");
    assert!(played.of("s0", 1).admission_ms.unwrap() >= 2000.0);
    assert_eq!(played.noted(LedgerKind::AdmissionFailed).len(), 1);
    // The answer that never comes is bounded by the limit of the request, if there is one.
    let limited =
        play(&conversations(1, 0.0, &[0.0, 5.0, 10.0]), &scenario(&[cluster, "replay.request_timeout_s = 1"]));
    assert_eq!(limited.path("s0"), "SF!D");
}

#[test]
fn calls_inside_a_worker_that_dies_are_answered() {
    // The admission call takes 3 s on the loop; the worker dies meanwhile.
    for after in ["kill", "restart"] {
        let cluster = format!(
            "
cluster.prefill = 1
cluster.decode = 2
engine.admission_cost_us = 3_000_000
replay.first_turn = 'seed'
policy.name = 'kv-aware'
fault = [{{ kind = '{after}', worker = 'D0', at_s = 6 }}]"
        );
        let played = play(&conversations(4, 0.0, &[0.0, 5.0, 20.0]), &scenario(&[&cluster]));
        let failed = played.noted(LedgerKind::AdmissionFailed);
        assert!(!failed.is_empty() && failed.iter().all(|event| event.at_ns < 6_001_000_000), "{after}: {failed:?}");
        // The plain path that follows may still name the dead worker until discovery tells; then all goes on.
        let bad = played.records.iter().filter(|record| !record.outcome.is_ok());
        assert!(bad.clone().all(|record| record.turn_id == 1 && after == "kill"), "{:#?}", bad.collect::<Vec<_>>());
    }
}

#[test]
fn a_router_that_restarts_forgets_keys_but_no_request() {
    let cluster = "
cluster.prefill = 1
cluster.decode = 3
cluster.router.decode_policy = 'manual'
replay.mechanism = 'pd'
policy.name = 'sticky'";
    let turns = [0.0, 5.0, 10.0];
    let calm = play(&conversations(4, 0.1, &turns), &scenario(&[cluster]));
    calm.all_ok();
    for session in ["s0", "s1", "s2", "s3"] {
        assert!((1..3).all(|turn| calm.worker(session, turn) == calm.worker(session, 0)), "{session} sticks");
    }
    // s0 left out, the map is filled anew in another order.
    let restart = "fault = [{ kind = 'router-restart', at_s = 5.05 }]";
    let played = play(&conversations(4, 0.1, &turns), &scenario(&[cluster, restart]));
    played.all_ok();
    let moved: Vec<_> = ["s0", "s1", "s2", "s3"]
        .into_iter()
        .filter(|session| played.worker(session, 1) != played.worker(session, 0))
        .collect();
    assert_eq!(moved, ["s1", "s2", "s3"], "keys seen again later land in turn from the start");
    assert_eq!(played.noted(LedgerKind::Fault).len(), 1);
    for session in ["s1", "s2", "s3"] {
        assert_eq!(played.worker(session, 2), played.worker(session, 1), "{session} sticks again");
    }
}
