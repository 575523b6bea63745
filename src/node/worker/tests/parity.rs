//! The same requests through the cluster of virtual time and through nodes wired without delay: the same cached tokens,
//! and the same times but for rounding.

use super::bench::{Heard, Net, ask};
use crate::base::{RequestIx, Role, SessionIx, Time, WorkerId};
use crate::cluster::{Cluster, ClusterConfig, RouterConfig, RouterPolicy};
use crate::engine::{Cx, EngineConfig};
use crate::kv::{BlockPath, BlockTree};
use crate::node::worker::tokens::{AnswerIds, BlockIds};
use crate::node::{Exchange, GenerateAsk, NodeInput};
use crate::protocol::{Action, Answer, CallId, Event, Finish, Generate, Route, RoutingHeader};
use crate::record::WorkerRecord;

const DECODE: u16 = 2;
/// An iteration's end is rounded up to a nanosecond: so much for a thousand of them, and what follows from it.
const BOUND_NS: u64 = 20_000;
/// Later than anything of the small trace.
const END: Time = Time(200_000_000_000);

/// One request of the small trace.
struct Turn {
    at: Time,
    session: u32,
    /// All of the prompt.
    prompt: Vec<u32>,
    /// What the body carries.
    shipped: usize,
    output: u32,
    /// It opens its session first and seeds it.
    seeds: bool,
}

impl Turn {
    fn direct(&self) -> bool {
        self.shipped < self.prompt.len()
    }

    fn decode(&self) -> u16 {
        self.session as u16 % DECODE
    }
}

/// Six sessions of four turns; the first two keep a session on D from their second turn on, the others never. The
/// first turns come close together, so that there are queues and shared links.
fn turns(sessions_on_d: u32) -> Vec<Turn> {
    let mut turns = Vec::new();
    for session in 0..6u32 {
        let mut prompt = super::bench::tokens(session, 9000 + 1700 * session);
        for turn in 0..4u32 {
            let at = Time(
                u64::from(session) * 150_000_000
                    + u64::from(turn) * 25_000_000_000
                    + u64::from(turn * session) * 7_000_000,
            );
            let added = if turn == 0 { 0 } else { 300 + 11 * session };
            prompt.extend(super::bench::tokens(1000 * (turn + 1) + session, added));
            let on_d = session < sessions_on_d && turn > 0;
            let shipped = if on_d && turn > 1 { added as usize } else { prompt.len() };
            let output = 40 + 30 * turn + session;
            turns.push(Turn { at, session, prompt: prompt.clone(), shipped, output, seeds: on_d && turn == 1 });
            prompt.extend(answer(&prompt, output));
        }
    }
    turns.sort_by_key(|turn| (turn.at, turn.session));
    turns
}

fn answer(prompt: &[u32], output: u32) -> Vec<u32> {
    let mut blocks = BlockIds::new(64, false);
    blocks.extend(prompt.iter().copied());
    AnswerIds::new(Vec::new(), blocks.hash()).range(0, output).collect()
}

fn config() -> ClusterConfig {
    let router = RouterConfig { decode_policy: RouterPolicy::ConsistentHashing, ..RouterConfig::default() };
    ClusterConfig { prefill: 1, decode: DECODE, colocated: 1, hop_us: 0, router, ..ClusterConfig::default() }
}

fn through_cluster(turns: &[Turn], colocated: bool, engine: &EngineConfig) -> (Vec<Answer>, Vec<WorkerRecord>) {
    let mut tree = BlockTree::new(64);
    let mut path = |tokens: &[u32]| {
        let mut blocks = BlockIds::new(64, false);
        blocks.extend(tokens.iter().copied());
        tree.insert(&blocks.ids, BlockPath::EMPTY)
    };
    let paths: Vec<_> = turns
        .iter()
        .map(|turn| {
            let context = [turn.prompt.clone(), answer(&turn.prompt, turn.output)].concat();
            (path(&turn.prompt), path(&context))
        })
        .collect();
    let mut cluster = Cluster::new(&config(), engine, 64, Vec::new());
    let mut answers = Vec::new();
    let run = |cluster: &mut Cluster, answers: &mut Vec<Answer>, until: Time| {
        while let Some(now) = cluster.poll_timeout().filter(|at| *at < until) {
            cluster.handle_timeout(Cx { now, tree: &tree, names: &() });
            while let Some(event) = cluster.poll_event() {
                if let Event::Finished(answer) = event {
                    answers.push(*answer);
                }
            }
        }
    };
    for (at, (turn, (prompt, context))) in turns.iter().zip(paths).enumerate() {
        run(&mut cluster, &mut answers, turn.at);
        let worker = WorkerId::new(Role::Decode, turn.decode());
        let session = SessionIx(turn.session);
        let cx = Cx { now: turn.at, tree: &tree, names: &() };
        if turn.seeds {
            cluster.handle_action(cx, Action::OpenSession { call: CallId(at as u64), worker, session });
        }
        let route = match (colocated, turn.direct()) {
            (true, _) => Route::Worker(WorkerId::new(Role::Colocated, 0)),
            (false, true) => Route::Worker(worker),
            (false, false) => Route::Router(RoutingHeader::TargetWorker(turn.decode())),
        };
        let generate = Generate {
            request: RequestIx(at as u32),
            session,
            route,
            session_params: turn.seeds || turn.direct(),
            prompt,
            context,
            input_tokens: turn.prompt.len() as u32,
            shipped_tokens: turn.shipped as u32,
            output_tokens: turn.output,
        };
        cluster.handle_action(cx, Action::Generate(generate));
    }
    run(&mut cluster, &mut answers, Time(u64::MAX / 4));
    answers.sort_by_key(|answer| answer.request);
    (answers, cluster.workers(END))
}

fn through_nodes(turns: &[Turn], colocated: bool, engine: &EngineConfig) -> (Vec<Heard>, Vec<WorkerRecord>) {
    let ids = if colocated {
        vec![WorkerId::new(Role::Colocated, 0)]
    } else {
        [(Role::Prefill, 0), (Role::Decode, 0), (Role::Decode, 1)].map(|(role, ix)| WorkerId::new(role, ix)).to_vec()
    };
    let mut net = Net::new(&ids, engine, &[]);
    let mut sent: Vec<Exchange> = Vec::new();
    for (room, turn) in (0..).zip(turns) {
        net.run(Time(turn.at.ns() - u64::from(turn.at.ns() > 0)));
        net.now = turn.at;
        let (node, name) = (1 + usize::from(turn.decode()), turn.session.to_string());
        let tail = turn.prompt[turn.prompt.len() - turn.shipped..].to_vec();
        let session = (turn.seeds || turn.direct()).then(|| name.clone());
        let ask = GenerateAsk { session, ..ask(tail, turn.output) };
        if turn.seeds {
            let exchange = net.exchange();
            net.put(node, NodeInput::Open { exchange, session: Some(name), timeout: None });
        }
        sent.push(match (colocated, turn.direct()) {
            (true, _) => net.send(0, ask),
            (false, true) => net.send(node, ask),
            (false, false) => net.send_both(0, node, room, ask).1,
        });
    }
    net.run(super::bench::FOREVER);
    let heard = sent.iter().map(|exchange| net.heard(*exchange).clone()).collect();
    (heard, net.nodes.iter().map(|node| node.record(END)).collect())
}

/// What both say of their workers, which is returned: only roles that the nodes have.
fn compare_workers(expected: &[WorkerRecord], found: Vec<WorkerRecord>) -> Vec<WorkerRecord> {
    let near = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() < 1e-5,
        (a, b) => a == b,
    };
    for found in &found {
        let expected = expected.iter().find(|expected| expected.worker == found.worker).unwrap();
        let of_links = |of: &WorkerRecord| [of.link_busy_share, of.stalled_by_link_share, of.stalled_by_room_share];
        let shares = of_links(expected).into_iter().zip(of_links(found));
        let alike = shares.chain([(Some(expected.busy_share), Some(found.busy_share))]).all(|(a, b)| near(a, b));
        assert!(alike, "{expected:#?} {found:#?}");
    }
    found
}

fn compare(sessions_on_d: u32, colocated: bool, engine: &EngineConfig) -> (u32, Vec<WorkerRecord>) {
    let turns = turns(sessions_on_d);
    let (expected, workers) = through_cluster(&turns, colocated, engine);
    let (found, told) = through_nodes(&turns, colocated, engine);
    assert_eq!((expected.len(), found.len()), (turns.len(), turns.len()));
    for ((turn, expected), found) in turns.iter().zip(&expected).zip(&found) {
        let what = format!("session {} at {}", turn.session, turn.at);
        assert_eq!(expected.finish, Finish::Length, "{what}");
        let phases = found.length();
        assert_eq!(
            (found.cached_tokens, found.ids.len() as u32),
            (expected.cached_tokens.unwrap_or(0), expected.output_tokens),
            "{what}"
        );
        assert_eq!(found.prompt_tokens as usize, turn.prompt.len(), "{what}");
        let near = |a: u64, b: u64, of: &str| assert!(a.abs_diff(b) <= BOUND_NS, "{what}: {of} {a} and {b}");
        let first_and_last = [expected.first_token_at, expected.last_token_at].map(|at| at.unwrap().ns());
        near(found.tokens_at[0].ns(), first_and_last[0], "first token");
        near(found.tokens_at.last().unwrap().ns(), first_and_last[1], "last token");
        for (found, expected, of) in [
            (phases.prefill_queue, expected.phases.prefill_queue, "prefill queue"),
            (phases.prefill, expected.phases.prefill, "prefill"),
            (phases.kv_transfer, expected.phases.kv_transfer, "transfer"),
            (phases.decode_queue, expected.phases.decode_queue, "decode queue"),
        ] {
            assert_eq!(found.is_some(), expected.is_some(), "{what}: {of}");
            near(found.map_or(0, |found| found.ns()), expected.map_or(0, |expected| expected.ns()), of);
        }
    }
    (found.iter().map(|heard| heard.cached_tokens).sum(), compare_workers(&workers, told))
}

fn compare_cached(sessions_on_d: u32, colocated: bool) {
    let (cached, _) = compare(sessions_on_d, colocated, &EngineConfig::default());
    assert!(cached > 100_000, "the trace is about caches: {cached}");
}

#[test]
fn prefill_and_decode_nodes_do_what_the_cluster_does() {
    compare_cached(0, false);
}

#[test]
fn sessions_on_decode_nodes_do_what_the_cluster_does() {
    compare_cached(2, false);
}

#[test]
fn a_colocated_node_does_what_the_cluster_does() {
    compare_cached(0, true);
}

#[test]
fn a_prefill_node_whose_pool_is_full_of_kv_stands_still_as_long_as_in_the_cluster() {
    let small = EngineConfig { kv_pool_tokens: 24_000, ..EngineConfig::default() };
    let (_, workers) = compare(0, false, &small);
    let of_p0 = &workers[0];
    assert!(of_p0.stalled_by_link_share.is_some_and(|share| share > 0.0), "{of_p0:#?}");
    assert!(of_p0.stalled_by_room_share.is_some_and(|share| share > 0.0), "{of_p0:#?}");
    assert!(workers.iter().all(|worker| worker.link_busy_share.is_some_and(|share| share > 0.0)), "{workers:#?}");
}
