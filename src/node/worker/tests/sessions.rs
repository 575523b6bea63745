//! Sessions and admission of a decode node.

use super::bench::{Net, ask, disaggregated, tokens};
use crate::node::{Exchange, GenerateAsk, NodeInput, NodeOutput, Refusal};
use crate::protocol::{AdmitKind, AdmitReason, ErrorClass};

const P: usize = 0;
const D: usize = 1;

fn seeded(session: &str, input: u32, output: u32) -> (Net, Exchange) {
    let mut net = disaggregated(1, &[]);
    net.open(D, session);
    let seed = GenerateAsk { session: Some(session.into()), ..ask(tokens(0, input), output) };
    let (_, seed) = net.send_both(P, D, 1, seed);
    net.run_for(60.0);
    (net, seed)
}

fn append(session: &str, count: u32) -> GenerateAsk {
    GenerateAsk { session: Some(session.into()), ..ask(tokens(8, count), 20) }
}

fn admit(net: &mut Net, session: &str, kind: AdmitKind, tokens: u32) -> (AdmitReason, Vec<String>) {
    let exchange = net.exchange();
    let session = session.to_owned();
    net.put(D, NodeInput::Admit { exchange, session, kind, append_tokens: tokens, output_tokens: 10 });
    net.run_for(1.0);
    net.last(|output| match output {
        NodeOutput::Admission { exchange: of, reason, evicted, capacity_tokens: 83_000, .. } if *of == exchange => {
            Some((*reason, evicted.clone()))
        }
        _ => None,
    })
}

#[test]
fn an_append_brings_new_tokens_only_and_counts_the_whole_context() {
    let (mut net, seed) = seeded("s", 10_000, 50);
    assert_eq!((net.heard(seed).prompt_tokens, net.heard(seed).cached_tokens), (10_000, 0));
    let turn = net.send(D, append("s", 300));
    net.run_for(10.0);
    let heard = net.heard(turn);
    let phases = heard.length();
    assert_eq!((heard.prompt_tokens, heard.cached_tokens, heard.ids.len()), (10_350, 10_050, 20));
    assert!(phases.prefill.is_some() && phases.kv_transfer.is_none());
    assert_eq!(net.nodes[D].stats().prefilled_tokens, 300);
    net.put(D, NodeInput::Close("s".into()));
    assert_eq!((net.nodes[D].load().token_usage, net.nodes[D].counters().sessions_open), (0.0, 0));
}

#[test]
fn a_session_that_is_not_there_is_an_abort_with_one_token() {
    let mut net = disaggregated(1, &[]);
    let turn = net.send(D, append("gone", 300));
    net.run_for(10.0);
    let heard = net.heard(turn);
    let message = "Invalid request: session id gone does not exist";
    assert_eq!(heard.abort(), (ErrorClass::SessionNotFound, message));
    assert_eq!((heard.ids.len(), heard.prompt_tokens), (1, 1));
}

#[test]
fn a_prefill_leg_with_session_params_aborts_and_its_decode_leg_hears_of_it() {
    let mut net = disaggregated(1, &[]);
    net.open(D, "s");
    let seed = GenerateAsk { session: Some("s".into()), ..ask(tokens(0, 5000), 20) };
    let (p, d) = net.send_both(P, D, 4, seed.clone());
    net.put(P, NodeInput::Gone(p));
    net.put(D, NodeInput::Gone(d));
    // As stock routers post it: the session goes to both.
    let bootstrap = Some(crate::node::Bootstrap { host: "p".into(), port: 0, room: 5 });
    let both = GenerateAsk { bootstrap, ..seed };
    let (p, d) = (net.send(P, both.clone()), net.send(D, both));
    net.run_for(10.0);
    assert_eq!(net.heard(p).abort().0, ErrorClass::SessionNotFound);
    let (class, message) = net.heard(d).abort();
    assert_eq!(class, ErrorClass::KvTransferFailed);
    assert!(message.starts_with("KVTransferError(bootstrap_room=5): Invalid request: session id s"), "{message}");
}

#[test]
fn one_request_a_session_at_a_time_and_one_session_a_name() {
    let (mut net, _) = seeded("s", 1000, 5);
    let (first, second) = (net.send(D, append("s", 100)), net.send(D, append("s", 100)));
    net.open(D, "s");
    let refusal = net.last(|output| match output {
        NodeOutput::Refused { refusal, .. } => Some(refusal.clone()),
        _ => None,
    });
    let message = "Failed to open the session. Check if a session with the same id is still open.".to_owned();
    assert_eq!(refusal, Refusal { status: 400, message });
    net.run_for(10.0);
    net.heard(first).length();
    let message = "Streaming session already has an active request.";
    assert_eq!(net.heard(second).abort(), (ErrorClass::SessionBusy, message));
}

#[test]
fn an_aborted_turn_gives_its_kv_back_and_the_session_stays_open() {
    let (mut net, _) = seeded("s", 10_000, 50);
    let held = net.nodes[D].load().token_usage;
    let turn = net.send(D, GenerateAsk { max_new_tokens: 900, ..append("s", 300) });
    net.run_for(1.0);
    net.put(D, NodeInput::Gone(turn));
    net.run_for(1.0);
    assert!(held > 0.1 && net.nodes[D].load().token_usage == 0.0 && net.nodes[D].counters().sessions_open == 1);
}

#[test]
fn a_reseed_replaces_what_the_session_held() {
    let (mut net, _) = seeded("s", 10_000, 50);
    let again = GenerateAsk { session: Some("s".into()), ..ask(tokens(3, 2000), 10) };
    let (_, again) = net.send_both(P, D, 2, again);
    net.run_for(60.0);
    net.heard(again).length();
    let turn = net.send(D, append("s", 100));
    net.run_for(10.0);
    assert_eq!((net.heard(turn).prompt_tokens, net.heard(turn).cached_tokens), (2110, 2010));
}

#[test]
fn a_session_has_its_own_time_out() {
    let mut net = disaggregated(1, &[]);
    let (own, bad, made) = (net.exchange(), net.exchange(), net.exchange());
    net.open(D, "for-ever");
    net.put(D, NodeInput::Open { exchange: own, session: Some("short".into()), timeout: Some(5.0) });
    net.put(D, NodeInput::Open { exchange: bad, session: Some("bad".into()), timeout: Some(f64::NAN) });
    net.put(D, NodeInput::Open { exchange: made, session: None, timeout: Some(7.0) });
    let name = net.last(|output| match output {
        NodeOutput::Opened { exchange, session } if *exchange == made => Some(session.clone()),
        _ => None,
    });
    assert!(name.len() == 32 && name.bytes().all(|digit| digit.is_ascii_hexdigit()), "{name}");
    let refused = net.last(|output| match output {
        NodeOutput::Refused { exchange, refusal } if *exchange == bad => Some(refusal.clone()),
        _ => None,
    });
    assert_eq!(
        (refused.status, refused.message.as_str()),
        (400, "timeout must be a number of seconds above 0, got NaN.")
    );
    assert_eq!(net.nodes[D].counters().sessions_open, 3);
    net.run_for(4.9);
    let late = net.send(D, append("short", 100));
    net.run_for(3.0);
    net.heard(late).length();
    assert_eq!(net.nodes[D].counters().sessions_open, 2, "the one that was used lives");
    net.run_for(10.0);
    assert_eq!((net.nodes[D].counters().sessions_open, net.nodes[D].counters().sessions_dropped), (1, 2));
}

#[test]
fn admission_names_the_sessions_it_trims() {
    let mut net = disaggregated(1, &[]);
    for (room, session) in (0..).zip(["a", "b", "c"]) {
        net.open(D, session);
        let seed = GenerateAsk { session: Some(session.into()), ..ask(tokens(room as u32, 25_000), 10) };
        net.send_both(P, D, room, seed);
        net.run_for(60.0);
    }
    assert_eq!(admit(&mut net, "b", AdmitKind::Append, 100), (AdmitReason::Fits, vec![]));
    assert_eq!(admit(&mut net, "nobody", AdmitKind::Append, 100), (AdmitReason::SessionNotFound, vec![]));
    let (reason, evicted) = admit(&mut net, "d", AdmitKind::Seed, 50_000);
    assert_eq!((reason, evicted), (AdmitReason::FitsAfterTrim, vec!["a".into(), "b".into()]));
    assert_eq!(admit(&mut net, "d", AdmitKind::Seed, 90_000).0, AdmitReason::NoCapacity);
    let turn = net.send(D, append("a", 100));
    net.run_for(10.0);
    assert_eq!(net.heard(turn).abort().0, ErrorClass::SessionNotFound);
}
