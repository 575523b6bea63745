//! Faults of the node's own worker and links.

use super::bench::{End, FOREVER, Net, ask, disaggregated, tokens};
use crate::base::{Role, Time, WorkerId};
use crate::engine::EngineConfig;
use crate::node::{GenerateAsk, NodeInput, NodeOutput, Refusal};
use crate::protocol::{AdmitKind, ErrorClass};

const P: usize = 0;
const D: usize = 1;

fn colocated(faults: &[&str]) -> Net {
    Net::new(&[WorkerId::new(Role::Colocated, 0)], &EngineConfig::default(), faults)
}

fn named(rid: &str) -> GenerateAsk {
    GenerateAsk { rid: Some(rid.into()), ..ask(tokens(0, 500), 20) }
}

fn refusals(net: &Net) -> Vec<Refusal> {
    let refusal = |output: &NodeOutput| match output {
        NodeOutput::Refused { refusal, .. } => Some(refusal.clone()),
        _ => None,
    };
    net.other.iter().filter_map(|(_, output)| refusal(output)).collect()
}

#[test]
fn a_stream_goes_quiet_behind_so_many_tokens() {
    let mut net = colocated(&[r#"{"kind":"hang","worker":"W0","session":"s/x","turn":2,"after_tokens":7}"#]);
    let quiet = net.send(0, named("s/x/2"));
    let others = [net.send(0, named("s/x/3")), net.send(0, named("s/2")), net.send(0, ask(tokens(0, 9), 20))];
    net.run(FOREVER);
    assert_eq!((net.heard(quiet).end(), net.heard(quiet).ids.len()), (&End::Hangs, 7));
    for other in others {
        net.heard(other).length();
    }
    assert_eq!(net.nodes[0].in_flight(), 1);
    net.put(0, NodeInput::Abort(Some("s/x/2".into())));
    assert_eq!((net.nodes[0].in_flight(), net.nodes[0].load().token_usage), (0, 0.0));
    net.heard(quiet).end();
}

#[test]
fn a_stream_may_hang_from_the_start() {
    let mut net = colocated(&[r#"{"kind":"hang","worker":"W0","times":1}"#]);
    let (quiet, next) = (net.send(0, named("a/1")), net.send(0, named("a/2")));
    net.run(FOREVER);
    assert_eq!((net.heard(quiet).end(), net.heard(quiet).ids.len()), (&End::Hangs, 0));
    net.heard(next).length();
    net.put(0, NodeInput::Gone(quiet));
    assert_eq!(net.nodes[0].in_flight(), 0);
}

#[test]
fn requests_are_refused_from_a_count_on_and_so_many_times() {
    let text = r#"{"kind":"error-response","worker":"W0","after_requests":2,"status":503,"times":2,"after_s":0.5}"#;
    let mut net = colocated(&[text]);
    let mut sent: Vec<_> = (0..2).map(|_| net.send(0, named("a/1"))).collect();
    net.put(0, NodeInput::FaultBegins { fault: 0, at: net.now });
    sent.extend((0..4).map(|_| net.send(0, named("a/1"))));
    net.run(FOREVER);
    let refused: Vec<bool> = sent.iter().map(|sent| matches!(net.heard(*sent).end(), End::Refused(_))).collect();
    assert_eq!(refused, [false, false, true, true, false, false]);
    let words = "request failed on W0: server answered 503";
    assert_eq!((net.heard(sent[2]).refusal(), net.heard(sent[2]).ends[0].0), ((503, words), Time(500_000_000)));
}

#[test]
fn a_refused_prefill_leg_ends_its_decode_leg() {
    let mut net = disaggregated(1, &[r#"{"kind":"error-response","worker":"P0","status":500,"after_s":1}"#]);
    let (p, d) = net.send_both(P, D, 1, ask(tokens(0, 5000), 5));
    net.run_for(2.0);
    assert_eq!(net.heard(p).refusal(), (500, "prefill failed on P0: server answered 500"));
    assert_eq!(net.heard(d).abort().0, ErrorClass::KvTransferFailed);
}

#[test]
fn control_calls_fail_as_long_as_the_fault_lasts() {
    let admission = r#"{"kind":"admission-timeout","worker":"D0","at_s":1,"duration_s":2,"after_s":0.25}"#;
    let mut net = disaggregated(1, &[admission, r#"{"kind":"open-failure","worker":"D0","times":1,"status":507}"#]);
    net.open(D, "s");
    let admit = |net: &mut Net| {
        let exchange = net.exchange();
        let (session, kind) = ("s".to_owned(), AdmitKind::Seed);
        net.put(D, NodeInput::Admit { exchange, session, kind, append_tokens: 1, output_tokens: 1 });
        net.run_for(0.5);
    };
    net.open(D, "s");
    assert_eq!((refusals(&net).len(), refusals(&net)[0].status, net.nodes[D].counters().sessions_open), (1, 507, 1));
    assert_eq!(refusals(&net)[0].message, "open_session failed on D0");
    admit(&mut net);
    assert_eq!(refusals(&net).len(), 1, "not yet");
    net.run_for(1.0);
    admit(&mut net);
    let late = Refusal { status: 504, message: "admission call to D0 timed out".into() };
    assert_eq!(refusals(&net)[1..], [late]);
    net.run_for(2.0);
    admit(&mut net);
    assert_eq!(refusals(&net).len(), 2, "over");
}

#[test]
fn a_failed_transfer_is_told_to_both_legs() {
    let text = r#"{"kind":"transfer-failure","worker":"P0","to":"D0","times":1,"after_s":1.0}"#;
    let mut net = disaggregated(1, &[text]);
    let (p, d) = net.send_both(P, D, 5, ask(tokens(0, 1000), 5));
    net.run_for(5.0);
    for leg in [p, d] {
        let words = net.heard(leg).abort();
        assert_eq!(words.0, ErrorClass::KvTransferFailed);
        assert!(words.1.ends_with("KVTransferError(bootstrap_room=5): transfer failed"), "{}", words.1);
    }
    let (_, next) = net.send_both(P, D, 6, ask(tokens(0, 1000), 5));
    net.run_for(5.0);
    net.heard(next).length();
    let pair = &net.nodes[P].transfers()[0];
    assert_eq!((pair.transfers, pair.errors), (2, 1));
    assert!(net.nodes.iter().all(|node| node.counters().transfer_failures == 1));
}

#[test]
fn slow_workers_and_links_are_slow_while_it_lasts() {
    let slow = r#"{"kind":"slow-worker","worker":"W0","factor":3,"duration_s":10}"#;
    let mut net = colocated(&[slow]);
    let first = net.send(0, ask(tokens(0, 1000), 1));
    net.run_for(20.0);
    let second = net.send(0, ask(tokens(1, 1000), 1));
    net.run_for(20.0);
    let prefill = |exchange| net.heard(exchange).length().prefill.unwrap().as_millis_f64();
    assert!((prefill(first) / prefill(second) - 3.0).abs() < 0.001);
    for text in [
        r#"{"kind":"slow-link","worker":"P0","factor":2,"duration_s":10}"#,
        r#"{"kind":"slow-link","worker":"D0","factor":2,"duration_s":10}"#,
        r#"{"kind":"slow-link","worker":"P0","to":"D0","factor":2,"duration_s":10}"#,
    ] {
        let mut net = disaggregated(2, &[text]);
        let (_, first) = net.send_both(P, D, 1, ask(tokens(0, 20_000), 5));
        net.run_for(20.0);
        let (_, second) = net.send_both(P, D, 2, ask(tokens(1, 20_000), 5));
        net.run_for(20.0);
        let moved = |exchange| net.heard(exchange).length().kv_transfer.unwrap().as_millis_f64() - 1.0;
        assert!((moved(first) / moved(second) - 2.0).abs() < 0.001, "{text}");
    }
}

#[test]
fn what_has_struck_in_one_process_does_not_strike_in_another() {
    let text = r#"{"kind":"error-response","session":"s","status":503,"times":2}"#;
    let both = [WorkerId::new(Role::Colocated, 0), WorkerId::new(Role::Colocated, 1)];
    let mut net = Net::new(&both, &EngineConfig::default(), &[text]);
    let mut refused = |node, rid| {
        let sent = net.send(node, named(rid));
        net.run(FOREVER);
        matches!(net.heard(sent).end(), End::Refused(_))
    };
    let struck = [(0, "s/1"), (1, "t/1"), (1, "s/2"), (0, "s/3"), (1, "s/3")].map(|(node, rid)| refused(node, rid));
    assert_eq!(struck, [true, false, true, false, false]);
}

#[test]
fn of_two_legs_a_fault_that_names_neither_strikes_ps() {
    let mut net = disaggregated(1, &[r#"{"kind":"error-response","session":"s","status":503,"times":2}"#]);
    for room in 1..=2 {
        let (p, d) = net.send_both(P, D, room, named("s/1"));
        net.run_for(2.0);
        assert_eq!(net.heard(p).refusal(), (503, "prefill failed on P0: server answered 503"));
        assert_eq!(net.heard(d).abort().0, ErrorClass::KvTransferFailed);
    }
    let (_, d) = net.send_both(P, D, 3, named("s/1"));
    net.run_for(2.0);
    net.heard(d).length();
}

#[test]
fn a_count_that_was_reached_before_the_start_is_taken_up() {
    let text =
        |s| format!(r#"{{"kind":"error-response","worker":"W0","status":503,"after_requests":1,"duration_s":{s}}}"#);
    let mut net = colocated(&[&text(2), &text(20)]);
    net.now = Time(10_000_000_000);
    for (fault, status) in [(0, None), (1, Some(503))] {
        net.put(0, NodeInput::FaultBegins { fault, at: Time(1_000_000_000) });
        let sent = net.send(0, named("a/1"));
        net.run_for(1.0);
        let refused = matches!(net.heard(sent).end(), End::Refused(_));
        assert_eq!(refused, status.is_some(), "fault {fault}");
    }
}

#[test]
fn a_node_that_starts_late_takes_up_what_is_in_force() {
    let over = r#"{"kind":"error-response","worker":"W0","status":500,"at_s":1,"duration_s":2}"#;
    let lasts = r#"{"kind":"error-response","worker":"W0","status":503,"at_s":1,"duration_s":20}"#;
    let mut net = colocated(&[over, lasts]);
    net.now = Time(10_000_000_000);
    let one = net.send(0, named("a/1"));
    assert_eq!(net.heard(one).refusal().0, 503);
}
