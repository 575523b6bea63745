//! A node that runs for days: what is over is forgotten.

use super::bench::{FOREVER, Net, ask, disaggregated, tokens};
use crate::base::{Role, WorkerId};
use crate::engine::EngineConfig;
use crate::engine::Timing;
use crate::node::{GenerateAsk, NodeInput};

/// A worker that costs nothing, so that many requests pass.
fn swift() -> EngineConfig {
    let timing = Timing { p0: 0.01, p1: 0.0, p2: 0.0, d0: 0.01, d1: 0.0, d2: 0.0, d3: 0.0, ..Timing::default() };
    EngineConfig {
        timing,
        ingest_base_ms: 0.0,
        ingest_per_token_us: 0.0,
        kv_pool_tokens: 6400,
        ..EngineConfig::default()
    }
}

#[test]
fn two_hundred_thousand_prompts_leave_no_more_than_the_cache_holds() {
    let mut net = Net::new(&[WorkerId::new(Role::Colocated, 0)], &swift(), &[]);
    let mut most = 0;
    let keeper = tokens(0, 640);
    for round in 0..10_000u32 {
        let kept = net.send(0, ask(keeper.clone(), 1));
        let others: Vec<_> = (1..20).map(|nth| net.send(0, ask(tokens(round * 20 + nth, 64), 1))).collect();
        net.run(FOREVER);
        for one in others {
            net.heard.remove(&one).unwrap().length();
        }
        let kept = net.heard.remove(&kept).unwrap().cached_tokens;
        assert!(kept == 576 || round == 0, "what is held is found, before and after a compaction: {kept}");
        most = most.max(net.nodes[0].tree.block_count() as usize + net.nodes[0].tree.node_count());
    }
    assert!(most <= (1 << 15) + 3 * 20, "{most} blocks and nodes");
    let node = &net.nodes[0];
    assert_eq!((node.works.len(), node.generates.len(), node.agenda.iter().count(), node.names.len()), (0, 0, 0, 0));
}

#[test]
fn closed_sessions_are_forgotten_and_open_ones_are_not() {
    let mut net = disaggregated(1, &[]);
    net.open(1, "kept");
    for nth in 0..5000 {
        let name = format!("s{nth}");
        net.open(1, &name);
        net.put(1, NodeInput::Close(name.clone()));
        let lost = net.send(1, GenerateAsk { session: Some(format!("never{nth}")), ..ask(vec![1], 1) });
        net.put(1, NodeInput::Gone(lost));
    }
    net.run_for(1.0);
    assert!(net.nodes[1].names.len() < 5000, "{} names", net.nodes[1].names.len());
    let turn = net.send(1, GenerateAsk { session: Some("kept".into()), ..ask(tokens(0, 100), 3) });
    net.run_for(10.0);
    net.heard(turn).length();
}
