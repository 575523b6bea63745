//! P and D: the rendezvous, its times, and what happens when one side is missing.

use super::bench::{End, Net, ask, disaggregated, tokens};
use crate::base::{Role, Time, WorkerId};
use crate::engine::EngineConfig;
use crate::node::worker::PULL_TIMEOUT;
use crate::node::{Bootstrap, GenerateAsk, NodeInput, NodeOutput};
use crate::protocol::{ErrorClass, Finish};

const P: usize = 0;
const D: usize = 1;

fn leg(room: u64, input: u32, output: u32) -> GenerateAsk {
    let bootstrap = Some(Bootstrap { host: "p".into(), port: 0, room });
    GenerateAsk { bootstrap, ..ask(tokens(room as u32, input), output) }
}

#[test]
fn phases_add_up_to_the_time_to_the_first_token() {
    let mut net = disaggregated(1, &[]);
    let (p, d) = net.send_both(P, D, 1, ask(tokens(0, 20_000), 5));
    net.run_for(60.0);
    let heard = net.heard(d);
    let phases = heard.length();
    let sum = [phases.prefill_queue, phases.prefill, phases.kv_transfer, phases.decode_queue];
    let sum: u64 = sum.iter().map(|phase| phase.expect("all phases occurred").ns()).sum();
    // Beside the phases: taking the prompt in, 6 ms + 2 µs a token.
    assert_eq!(heard.tokens_at[0].ns(), sum + 46_000_000);
    assert_eq!(phases.kv_transfer.unwrap().ns(), 786_432_000 + 1_000_000);
    let End::Finished { prefill_worker, .. } = heard.end() else { panic!("it has an end") };
    assert_eq!(prefill_worker.as_deref(), Some("P0"));
    // P answers when its KV has gone.
    let prefill = net.heard(p);
    assert_eq!((prefill.length().kv_transfer, prefill.ids.len()), (phases.kv_transfer, 0));
    assert!(prefill.ends[0].0 <= heard.tokens_at[0]);
    let pair = &net.nodes[P].transfers()[0];
    assert_eq!((pair.transfers, pair.errors, pair.bytes), (1, 0, 20_000 * 98_304));
}

#[test]
fn either_leg_may_come_first() {
    let mut net = disaggregated(1, &[]);
    let d = net.send(D, leg(1, 2000, 5));
    net.run_for(5.0);
    let p = net.send(P, leg(1, 2000, 5));
    let p2 = net.send(P, leg(2, 2000, 5));
    net.run_for(5.0);
    let d2 = net.send(D, leg(2, 2000, 5));
    net.run_for(5.0);
    for exchange in [p, d, p2, d2] {
        net.heard(exchange).length();
    }
    let waits = net.heard(d2).length().decode_queue.unwrap();
    assert!(waits.as_secs_f64() > 4.0, "the KV waited for D: {waits:?}");
}

#[test]
fn the_cached_tokens_of_a_decode_answer_are_those_of_its_prefill() {
    let mut net = disaggregated(1, &[]);
    net.send_both(P, D, 1, ask(tokens(0, 5000), 5));
    net.run_for(30.0);
    let (p, d) = net.send_both(P, D, 2, ask(tokens(0, 5000), 5));
    net.run_for(30.0);
    assert_eq!((net.heard(p).cached_tokens, net.heard(d).cached_tokens), (4992, 4992));
}

#[test]
fn transfers_share_egress_and_an_ingress_that_others_use() {
    // Two P send at once to one D: each gets half of the ingress once P hears of the other.
    let ids = [(Role::Prefill, 0), (Role::Decode, 0), (Role::Prefill, 1)].map(|(role, ix)| WorkerId::new(role, ix));
    let mut net = Net::new(&ids, &EngineConfig::default(), &[]);
    let (_, a) = net.send_both(0, 1, 1, ask(tokens(0, 20_000), 5));
    let (_, b) = net.send_both(2, 1, 2, ask(tokens(1, 20_000), 5));
    net.run_for(60.0);
    for exchange in [a, b] {
        let transfer = net.heard(exchange).length().kv_transfer.unwrap().as_millis_f64();
        assert!((transfer - (2.0 * 786.432 + 1.0)).abs() < 0.1, "{transfer}");
    }
    // Alone again, and with two from the same P.
    let (_, c) = net.send_both(0, 1, 3, ask(tokens(2, 20_000), 5));
    net.run_for(60.0);
    let transfer = net.heard(c).length().kv_transfer.unwrap().as_millis_f64();
    assert!((transfer - 787.432).abs() < 0.1, "{transfer}");
    assert_eq!(net.nodes[1].pulls_open(), 0);
}

#[test]
fn kv_that_nobody_pulls_fails_after_the_time_out() {
    let mut net = disaggregated(1, &[]);
    let p = net.send(P, leg(7, 1000, 5));
    net.run_for(31.0);
    assert!(net.heard(p).ends.is_empty());
    net.run_for(2.0);
    let (class, message) = net.heard(p).abort();
    assert_eq!(class, ErrorClass::KvTransferTimeout);
    assert!(message.starts_with("KVTransferError(bootstrap_room=7): Decode instance could be dead"), "{message}");
    assert_eq!(net.nodes[P].load().token_usage, 0.0);
    // The pull comes too late and hears why.
    let d = net.send(D, leg(7, 1000, 5));
    net.run_for(1.0);
    let (class, message) = net.heard(d).abort();
    assert_eq!(class, ErrorClass::KvTransferFailed);
    assert!(message.contains("Decode instance could be dead"), "{message}");
    net.run_for(301.0);
    assert!(net.nodes[P].rooms.is_empty(), "a lost room is forgotten");
}

#[test]
fn a_decode_leg_does_not_wait_for_ever() {
    let mut net = disaggregated(1, &[]);
    let d = net.send(D, leg(3, 1000, 5));
    net.run(Time(PULL_TIMEOUT.ns()));
    assert!(net.heard(d).ends.is_empty());
    net.run_for(1.0);
    assert_eq!(net.heard(d).abort().0, ErrorClass::KvTransferTimeout);
    assert_eq!((net.nodes[D].load().token_usage, net.nodes[P].rooms.len(), net.pulls.len()), (0.0, 0, 0));
}

#[test]
fn whoever_goes_takes_the_other_leg_along() {
    // (seconds, which leg's client goes): in prefill, on the link.
    for (wait, p_goes) in [(0.1, true), (0.1, false), (0.8, true), (0.8, false)] {
        let mut net = disaggregated(1, &[]);
        let (p, d) = net.send_both(P, D, 1, ask(tokens(0, 20_000), 5));
        net.run_for(wait);
        net.put(if p_goes { P } else { D }, NodeInput::Gone(if p_goes { p } else { d }));
        net.run_for(40.0);
        let (gone, other) = if p_goes { (p, d) } else { (d, p) };
        assert!(net.heard(gone).ends.is_empty());
        let (class, message) = net.heard(other).abort();
        assert_eq!(class, ErrorClass::KvTransferFailed, "{message}");
        assert!(message.starts_with("KVTransferError(bootstrap_room=1): "), "{message}");
        for node in &net.nodes {
            assert_eq!((node.load().token_usage, node.in_flight()), (0.0, 0));
        }
    }
}

#[test]
fn a_full_decode_worker_makes_the_kv_wait_on_prefill() {
    let mut net = disaggregated(1, &[]);
    net.open(D, "s");
    let big = GenerateAsk { session: Some("s".into()), ..ask(tokens(0, 40_000), 2000) };
    let (_, first) = net.send_both(P, D, 1, big);
    net.run_for(5.0);
    let (_, second) = net.send_both(P, D, 2, ask(tokens(1, 42_500), 5));
    net.run_for(4.0);
    assert_eq!(net.nodes[D].load().num_prealloc, 1);
    assert_eq!(net.nodes[P].counters().queues.sending, 1);
    net.run_for(60.0);
    net.heard(first).length();
    net.heard(second).length();
}

#[test]
fn a_room_is_used_by_one_request_at_a_time() {
    let mut net = disaggregated(1, &[]);
    let (first, second) = (net.send(P, leg(1, 1000, 5)), net.send(P, leg(1, 1000, 5)));
    let message = "bootstrap room 1 is in use by another request";
    assert_eq!(net.heard(second).abort(), (ErrorClass::BadRequest, message));
    let pull = |net: &mut Net, decode| {
        let exchange = net.exchange();
        net.put(P, NodeInput::Pull { exchange, room: 1, tokens: 1000, decode, ingress_flows: 0 });
        net.other.iter().find_map(|(_, output)| match output {
            NodeOutput::Refused { exchange: of, refusal } if *of == exchange => Some(refusal.clone()),
            _ => None,
        })
    };
    let unknown = pull(&mut net, WorkerId::new(Role::Decode, 9)).unwrap();
    assert_eq!(unknown.message, "D9 is no decode worker of this cluster; it has 3");
    assert_eq!(pull(&mut net, WorkerId::new(Role::Decode, 0)), None);
    let again = pull(&mut net, WorkerId::new(Role::Decode, 1)).unwrap();
    assert_eq!((again.status, again.message.as_str()), (400, "bootstrap room 1 has been pulled already"));
    net.put(P, NodeInput::Gone(first));
    assert!(matches!(net.nodes[P].in_flight(), 0));
}

#[test]
fn an_abort_on_prefill_reaches_decode() {
    let mut net = disaggregated(1, &[]);
    let ask = GenerateAsk { rid: Some("s/1".into()), ..ask(tokens(0, 20_000), 5) };
    let (p, d) = net.send_both(P, D, 1, ask);
    net.run_for(0.8);
    net.put(P, NodeInput::Abort(Some("s/1".into())));
    assert!(matches!(net.heard(p).end(), End::Finished { finish: Finish::Abort { .. }, .. }));
    assert_eq!(net.heard(d).abort().1, "KVTransferError(bootstrap_room=1): Abort in waiting queue");
    net.run_for(1.0);
    assert!(net.nodes.iter().all(|node| node.load().token_usage == 0.0));
}
