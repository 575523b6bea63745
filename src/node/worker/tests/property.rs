//! Random requests, sessions, aborts, faults and clients that go away on one P and two D: every exchange ends once,
//! nothing is left.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::bench::{End, Net, ask, tokens};
use crate::base::{Role, Time, WorkerId};
use crate::engine::{EngineConfig, SessionTrim};
use crate::node::{Bootstrap, Exchange, GenerateAsk, NodeInput, NodeOutput};
use crate::protocol::{AdmitKind, Finish};

struct Step {
    action: u8,
    session: u32,
    input: u32,
    output: u32,
}

const FAULTS: [&str; 8] = [
    r#"{"kind":"hang","worker":"D0","after_requests":3,"times":2,"after_tokens":5}"#,
    r#"{"kind":"transfer-failure","worker":"P0","to":"D1","times":3,"after_s":0.2}"#,
    r#"{"kind":"error-response","worker":"D1","after_requests":5,"status":503,"times":2,"after_s":0.1}"#,
    r#"{"kind":"error-response","worker":"P0","session":"3","status":500,"times":1}"#,
    r#"{"kind":"admission-timeout","worker":"D0","at_s":1,"duration_s":2,"after_s":0.5}"#,
    r#"{"kind":"open-failure","worker":"D1","times":2,"status":500}"#,
    r#"{"kind":"slow-link","worker":"D0","factor":40,"at_s":0.5,"duration_s":30}"#,
    r#"{"kind":"slow-worker","worker":"P0","factor":5,"at_s":1,"duration_s":3}"#,
];

/// What was asked of the nodes.
#[derive(Default)]
struct Asked {
    generates: Vec<(usize, Exchange)>,
    calls: Vec<Exchange>,
    gone: BTreeSet<Exchange>,
}

fn apply(net: &mut Net, asked: &mut Asked, nth: u64, step: &Step) {
    let d = 1 + (step.session % 2) as usize;
    let name = step.session.to_string();
    let session = (step.action % 2 == 1).then(|| name.clone());
    let rid = Some(format!("{name}/{nth}"));
    let plain = GenerateAsk { rid, session, ..ask(tokens(step.session, step.input), step.output) };
    let bootstrap = Some(Bootstrap { host: "p".into(), port: 0, room: nth });
    match step.action {
        0..=5 => {
            let (p, on_d) = net.send_both(0, d, nth, plain);
            asked.generates.extend([(0, p), (d, on_d)]);
        }
        6 => asked.generates.push((d, net.send(d, GenerateAsk { bootstrap, ..plain }))),
        8 => asked.generates.push((0, net.send(0, GenerateAsk { bootstrap, ..plain }))),
        7 | 9 => asked.generates.push((d, net.send(d, plain))),
        10 | 11 => {
            let exchange = net.exchange();
            asked.calls.push(exchange);
            let timeout = (step.input.is_multiple_of(3)).then_some(1.5);
            net.put(d, NodeInput::Open { exchange, session: Some(name), timeout });
        }
        12 => net.put(d, NodeInput::Close(name)),
        13 => {
            let exchange = net.exchange();
            asked.calls.push(exchange);
            let kind = if step.input.is_multiple_of(2) { AdmitKind::Append } else { AdmitKind::Seed };
            let (append_tokens, output_tokens) = (step.input, step.output);
            net.put(d, NodeInput::Admit { exchange, session: name, kind, append_tokens, output_tokens });
        }
        14 => net.put(step.input as usize % 3, NodeInput::Abort(Some(format!("{name}/")))),
        _ => {
            if let Some(&(node, exchange)) = asked.generates.get(step.input as usize % asked.generates.len().max(1)) {
                asked.gone.insert(exchange);
                net.put(node, NodeInput::Gone(exchange));
            }
        }
    }
}

fn answered(net: &Net, call: Exchange) -> usize {
    let of = |output: &NodeOutput| match output {
        NodeOutput::Opened { exchange, .. }
        | NodeOutput::Admission { exchange, .. }
        | NodeOutput::Refused { exchange, .. } => *exchange == call,
        _ => false,
    };
    net.other.iter().filter(|(_, output)| of(output)).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn every_exchange_ends_once_and_nothing_is_left(
        pressure in any::<bool>(),
        radix in any::<bool>(),
        faults in prop::sample::subsequence(&FAULTS[..], 0..=4),
        steps in prop::collection::vec(
            (0u8..17, 0u32..6, 1u32..3500, 1u32..120, 0u64..600_000_000), 1..50
        ),
    ) {
        let session_trim = if pressure { SessionTrim::Pressure } else { SessionTrim::Admission };
        let engine = EngineConfig {
            kv_pool_tokens: 64 * 64,
            reserved_decode_tokens: 64,
            max_running: 6,
            chunk_tokens: 1024,
            decode_radix_cache: radix,
            session_trim,
            ..EngineConfig::default()
        };
        let ids = [(Role::Prefill, 0), (Role::Decode, 0), (Role::Decode, 1)].map(|(role, ix)| WorkerId::new(role, ix));
        let mut net = Net::new(&ids, &engine, &faults);
        let mut asked = Asked::default();
        for (nth, (action, session, input, output, wait_ns)) in (0..).zip(steps) {
            apply(&mut net, &mut asked, nth, &Step { action, session, input, output });
            net.run(Time(net.now.ns() + wait_ns));
        }
        // What waits for a stream that hangs, or for sessions to be trimmed, waits until its client or D gives up; then
        // another may hang.
        for _ in 0..3 {
            net.run_for(400.0);
            for (node, exchange) in &asked.generates {
                if matches!(net.heard(*exchange).ends.first(), Some((_, End::Hangs))) {
                    net.put(*node, NodeInput::Gone(*exchange));
                }
            }
        }
        for node in 1..3 {
            for session in 0..6 {
                net.put(node, NodeInput::Close(format!("{session}")));
            }
        }
        net.run_for(30_000.0);
        for (node, exchange) in &asked.generates {
            let heard = net.heard(*exchange);
            let gone = asked.gone.contains(exchange);
            prop_assert!(heard.ends.len() == 1 || (gone && heard.ends.is_empty()), "{:?}: {:?}", exchange, heard);
            if let Some((_, End::Finished { finish: Finish::Length, .. })) = heard.ends.first() {
                prop_assert!(heard.ids.is_empty() == (*node == 0), "P answers without tokens, D with");
            }
        }
        for call in &asked.calls {
            prop_assert_eq!(answered(&net, *call), 1);
        }
        net.run_for(400.0);
        prop_assert!(net.pulls.is_empty());
        for node in &net.nodes {
            prop_assert_eq!((node.works.len(), node.generates.len(), node.calls.len()), (0, 0, 0));
            prop_assert_eq!((node.rooms.len(), node.pulls.len(), node.pulls_open()), (0, 0, 0));
            prop_assert_eq!(node.load().token_usage, 0.0, "memory leaked on {}", node.config.id);
            prop_assert!(node.links.next_end().is_none());
        }
    }
}
