//! Choices as tables: the workers' counts and the blocks sent so far on one side, the choice and its reason on the other.

use proptest::prelude::*;

use super::*;
use crate::base::Role;
use crate::protocol::{LoadReport, RoutingHeader};

const REASON: fn(&Selection) -> (u16, &'static str) = |chosen| (chosen.worker.index, chosen.reason.as_str());

fn workers(inflight: &[u32]) -> Vec<WorkerView> {
    inflight.iter().map(|inflight| WorkerView { up: true, inflight: *inflight, ..WorkerView::default() }).collect()
}

fn usage(mut workers: Vec<WorkerView>, usage: &[f64]) -> Vec<WorkerView> {
    for (worker, usage) in workers.iter_mut().zip(usage) {
        worker.believed_usage = Some(*usage);
    }
    workers
}

struct Desk {
    policy: Policy,
    tree: BlockTree,
    header_mode: HeaderMode,
}

impl Desk {
    fn new(name: PolicyName, edit: impl FnOnce(&mut PolicyConfig)) -> Desk {
        let mut config = PolicyConfig { name, ..PolicyConfig::default() };
        edit(&mut config);
        Desk { policy: Policy::new(&config, 100), tree: BlockTree::new(64), header_mode: HeaderMode::TargetWorker }
    }

    fn path(&mut self, ids: &[u64]) -> BlockPath {
        self.tree.insert(ids, BlockPath::EMPTY)
    }

    fn sent(&mut self, session: u32, worker: u16, ids: &[u64]) {
        let path = self.path(ids);
        self.policy.sent(&self.tree, SessionIx(session), worker, path);
    }

    fn served(&mut self, session: u32, worker: u16) {
        self.policy.served(&self.tree, SessionIx(session), worker, BlockPath::EMPTY);
    }

    fn ask(&mut self, workers: &[WorkerView], session: u32, ids: &[u64], excluded: Option<u16>) -> Option<Selection> {
        let prompt = self.path(ids);
        let view = ClusterView {
            role: Role::Decode,
            workers,
            prefill: &[],
            hits: None,
            header_mode: self.header_mode,
            tree: &self.tree,
        };
        let input_tokens = ids.len() as u32 * 64 + 10;
        self.policy.select(&view, &PolicyRequest { session: SessionIx(session), prompt, input_tokens, excluded })
    }
}

#[test]
fn default_goes_round_those_up() {
    let mut desk = Desk::new(PolicyName::Default, |_| {});
    desk.header_mode = HeaderMode::None;
    let mut three = workers(&[9, 0, 0]);
    let mut next = |three: &[WorkerView]| desk.ask(three, 0, &[], None).map(|chosen| chosen.worker.index);
    assert_eq!([next(&three), next(&three), next(&three), next(&three)], [Some(0), Some(1), Some(2), Some(0)]);
    three[1].up = false;
    assert_eq!([next(&three), next(&three)], [Some(2), Some(0)]);
    assert_eq!(next(&[]), None);
    assert_eq!(desk.ask(&three, 0, &[], None).unwrap().header, RoutingHeader::None);
}

#[test]
fn sticky_stays_with_whoever_answered_and_moves_once() {
    let mut desk = Desk::new(PolicyName::Sticky, |_| {});
    desk.header_mode = HeaderMode::RoutingKey;
    let mut three = workers(&[0, 0, 0]);
    let first = desk.ask(&three, 7, &[], None).unwrap();
    assert_eq!(REASON(&first), (0, "rotation"));
    assert_eq!(first.header, RoutingHeader::RoutingKey(SessionIx(7)));
    desk.served(7, 2);
    assert_eq!(REASON(&desk.ask(&three, 7, &[], None).unwrap()), (2, "bound"));
    three[2].up = false;
    three[0].inflight = 1;
    assert_eq!(REASON(&desk.ask(&three, 7, &[], None).unwrap()), (1, "bound-worker-gone"));
    desk.served(7, 1);
    three[2].up = true;
    three.push(three[2]);
    assert_eq!(REASON(&desk.ask(&three, 7, &[], None).unwrap()), (1, "bound"));
    assert_eq!(REASON(&desk.ask(&three, 8, &[], None).unwrap()), (2, "rotation"));
    desk.policy.forget(SessionIx(7));
    assert_eq!(REASON(&desk.ask(&three, 7, &[], None).unwrap()), (3, "rotation"));
}

#[test]
fn kv_aware_orders_overlap_sticky_inflight_assigned() {
    let new = || Desk::new(PolicyName::KvAware, |_| {});
    let mut desk = new();
    assert_eq!(REASON(&desk.ask(&workers(&[1, 0, 0]), 0, &[1, 2], None).unwrap()), (1, "least-loaded"));
    let mut assigned = workers(&[0, 0, 0]);
    (assigned[0].assigned, assigned[1].assigned) = (3, 2);
    assert_eq!(desk.ask(&assigned, 0, &[1, 2], None).unwrap().worker.index, 2);
    // Overlap 2 on worker 1 beats overlap 1 on the session's own worker 0 only by the bonus of 1: equal, sticky wins.
    let mut desk = new();
    desk.sent(0, 1, &[1, 2, 3]);
    desk.sent(5, 0, &[1]);
    let chosen = desk.ask(&workers(&[0, 0]), 5, &[1, 2, 9], None).unwrap();
    assert_eq!((chosen.worker.index, chosen.assumed_hit_tokens), (0, 64));
    let chosen = desk.ask(&workers(&[0, 9]), 5, &[1, 2, 3], None).unwrap();
    assert_eq!((REASON(&chosen), chosen.assumed_hit_tokens), ((1, "overlap"), 192));
    assert_eq!(chosen.header, RoutingHeader::TargetWorker(1));
    // Without any overlap the worker used last wins over an idler one.
    let mut desk = new();
    desk.sent(5, 1, &[]);
    assert_eq!(REASON(&desk.ask(&workers(&[0, 9]), 5, &[7], None).unwrap()), (1, "last-used"));
    desk.policy.forget(SessionIx(5));
    assert_eq!(REASON(&desk.ask(&workers(&[0, 9]), 5, &[7], None).unwrap()), (0, "least-loaded"));
}

#[test]
fn an_excluded_worker_is_chosen_only_when_alone() {
    let mut desk = Desk::new(PolicyName::KvAware, |_| {});
    desk.sent(0, 0, &[1, 2]);
    let mut two = workers(&[0, 5]);
    assert_eq!(desk.ask(&two, 0, &[1, 2], Some(0)).unwrap().worker.index, 1);
    two[1].up = false;
    assert_eq!(desk.ask(&two, 0, &[1, 2], Some(0)).unwrap().worker.index, 0);
}

#[test]
fn capacity_aware_caps_the_overlap_and_drops_full_workers() {
    let mut desk = Desk::new(PolicyName::KvAware, |config| {
        config.kv_aware.capacity_aware = true;
        config.kv_aware.overlap_cap_blocks = 2;
        config.kv_aware.hard_cap = 0.9;
    });
    desk.sent(0, 0, &[1, 2, 3, 4]);
    desk.sent(1, 1, &[1, 2]);
    let ask = |desk: &mut Desk, at: &[f64]| {
        desk.ask(&usage(workers(&[0; 3]), at), 0, &[1, 2, 3, 4], None).unwrap().worker.index
    };
    assert_eq!(ask(&mut desk, &[0.5, 0.4, 0.0]), 1, "overlap 4 and 2 count the same");
    assert_eq!(ask(&mut desk, &[0.5, 0.5, 0.0]), 0, "then the sticky one");
    assert_eq!(ask(&mut desk, &[0.95, 0.91, 0.9]), 2, "above the cap is no candidate");
    assert_eq!(ask(&mut desk, &[0.95, 0.91, 0.92]), 1, "unless all are");
    let mut reported = usage(workers(&[0; 3]), &[0.1, 0.1, 0.1]);
    reported[0].load = Some(LoadReport {
        worker: crate::base::WorkerId::new(Role::Decode, 0),
        token_usage: 0.99,
        capacity_tokens: 100,
        num_running: 0,
        num_waiting: 0,
        num_prealloc: 0,
        num_transfer: 0,
    });
    let chosen = desk.ask(&reported, 0, &[1, 2, 3, 4], None).unwrap();
    assert_eq!(chosen.worker.index, 1, "a report outranks the belief");
}

#[test]
fn cache_aware_follows_the_prefix_unless_load_is_uneven() {
    let mut desk = Desk::new(PolicyName::CacheAware, |_| {});
    assert_eq!(REASON(&desk.ask(&workers(&[1, 0]), 0, &[1, 2, 3], None).unwrap()), (1, "least-loaded"));
    desk.sent(0, 1, &[1, 2, 3, 4]);
    let chosen = desk.ask(&workers(&[0, 5]), 0, &[1, 2, 3, 4, 5], None).unwrap();
    assert_eq!((REASON(&chosen), chosen.assumed_hit_tokens), ((1, "overlap"), 256));
    let short = desk.ask(&workers(&[0, 5]), 0, &[1, 12, 13, 14], None).unwrap();
    assert_eq!(REASON(&short), (0, "least-loaded"), "1 of 4 blocks is below the threshold of 0.3");
    let uneven = desk.ask(&workers(&[0, 65]), 0, &[1, 2, 3, 4], None).unwrap();
    assert_eq!((REASON(&uneven), uneven.assumed_hit_tokens), ((0, "imbalance"), 0));
    let relative = desk.ask(&workers(&[200, 265]), 0, &[1, 2, 3, 4], None).unwrap();
    assert_eq!(REASON(&relative), (1, "overlap"), "265 is not above 1.5 times 200");
}

proptest! {
    /// The marks answer as the sets of prefixes they stand for, also when workers join late.
    #[test]
    fn assumed_blocks_are_the_longest_prefix_ever_sent(
        sends in prop::collection::vec((0u16..12, prop::collection::vec(0u64..3, 0..7)), 0..30),
        asked in prop::collection::vec(0u64..3, 0..7),
    ) {
        let mut tree = BlockTree::new(16);
        let mut marks = AssumedBlocks::default();
        for (worker, ids) in &sends {
            let path = tree.insert(ids, BlockPath::EMPTY);
            marks.mark(&tree, path, *worker);
        }
        let path = tree.insert(&asked, BlockPath::EMPTY);
        for worker in 0..12 {
            let common = |ids: &Vec<u64>| ids.iter().zip(&asked).take_while(|(a, b)| a == b).count() as u32;
            let longest = sends.iter().filter(|(w, _)| *w == worker).map(|(_, ids)| common(ids)).max().unwrap_or(0);
            prop_assert_eq!(marks.overlap(&tree, path, worker), longest);
        }
    }
}
