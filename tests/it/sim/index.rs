//! The KV index in whole runs: emulated workers publish, the run follows, policies read, and what was promised is found.
//!
//! Tolerance: a promise is exact when nothing was in flight: no turn under way on any worker when it was made. The runs of
//! this module leave time between turns, so that this holds for every decision that was not blind.

use pdreplay::record::{ExecutionMode, IndexSight, LedgerKind, RequestRecord, StreamFacts};
use pdreplay::scenario::Scenario;
use pdreplay::sim::SimError;
use pdreplay::trace::Trace;

use super::{Played, case, conversations, play, scenario, trace, try_play};

const PD: &str = "
cluster = { prefill = 3, decode = 2 }
replay.mechanism = 'pd'
policy.name = 'car'";
const DP: &str = "
cluster = { prefill = 0, decode = 0, colocated = 3 }
replay.mechanism = 'dp'
policy.name = 'car'";
const KV_AWARE: &str = "
cluster = { prefill = 0, decode = 0, colocated = 3 }
replay.mechanism = 'dp'
policy = { name = 'kv-aware', kv_aware = { overlap = 'index' } }";

fn promised(record: &RequestRecord) -> u32 {
    record.index_hit_tokens_device.unwrap() + record.index_hit_tokens_host_only.unwrap()
}

/// Conversations with nothing in flight when a turn is placed.
fn quiet() -> Trace {
    conversations(6, 1.0, &[0.0, 20.0, 40.0, 60.0, 80.0])
}

#[track_caller]
fn promises_are_kept(played: &Played) -> usize {
    played.all_ok();
    for record in &played.records {
        assert_eq!(record.index_blind, Some(false), "{}/{}", record.session_id, record.turn_id);
        assert_eq!(Some(promised(record)), record.cached_tokens, "{}/{}", record.session_id, record.turn_id);
    }
    played.records.iter().filter(|record| promised(record) > 0).count()
}

/// Three rounds of the same prompts, each of whole blocks, long after each other.
fn repeated() -> Trace {
    let mut rows = Vec::new();
    for round in 0..3 {
        for (prompt, blocks) in [1u32, 2, 4, 5, 8].into_iter().enumerate() {
            let ids: Vec<String> = (0..blocks).map(|block| (prompt as u32 * 100 + block).to_string()).collect();
            rows.push(format!(
                r#"{{"session_id":"r{round}p{prompt}","turn_id":0,"timestamp":{},"input_length":{},"output_length":10,"hash_ids":[{}]}}"#,
                round * 500 + prompt * 100,
                64 * blocks,
                ids.join(",")
            ));
        }
    }
    trace(&rows.join("\n"))
}

fn streams(played: &Played) -> &[StreamFacts] {
    &played.end.facts.streams
}

#[test]
fn what_the_index_promises_is_what_workers_find() {
    for shape in [PD, DP, KV_AWARE] {
        for dialect in ["xllm", "vllm", "sglang"] {
            let played = play(&quiet(), &scenario(&[shape, &format!("kv_events.dialect = '{dialect}'")]));
            assert_eq!(promises_are_kept(&played), 24, "every turn but the first of each session: {shape} {dialect}");
            assert_eq!(streams(&played).len(), 3);
            for stream in streams(&played) {
                assert!(stream.synchronized && stream.gaps == 0 && stream.resyncs == 0, "{stream:?}");
                assert_eq!(stream.unsynced_ns, 0, "the run begins with streams in step");
                assert!(stream.events > 0 && stream.last_error.is_none(), "{stream:?}");
            }
        }
    }
}

#[test]
fn a_prompt_of_whole_blocks_that_is_cached_whole_is_promised_without_the_block_that_is_computed_anyhow() {
    let host = "
cluster = { prefill = 1, decode = 1 }
engine = { kv_pool_tokens = 640, page_size = 64, host_pool_tokens = 65536, reserved_decode_tokens = 16 }
replay.mechanism = 'pd'
policy.name = 'car'";
    for shape in [PD, DP, KV_AWARE, host] {
        for dialect in ["xllm", "vllm", "sglang"] {
            let played = play(&repeated(), &scenario(&[shape, &format!("kv_events.dialect = '{dialect}'")]));
            assert_eq!(promises_are_kept(&played), 8, "all but one block of the second and the third time: {shape}");
        }
    }
    for size in [16u32, 32, 48, 128] {
        let played = play(&repeated(), &scenario(&[PD, &format!("kv_events.block_size = {size}")]));
        for record in &played.records {
            let found = record.cached_tokens.unwrap();
            assert!(promised(record) <= found && promised(record) + size > found, "{size}: {record:?}");
        }
    }
}

/// Both policies that read the index, every mechanism, D with and without a prefix cache.
#[test]
fn a_promise_names_its_worker_and_is_kept_where_that_one_computes() {
    for (policy, reads) in [("{ name = 'car' }", 'P'), ("{ name = 'kv-aware', kv_aware = { overlap = 'index' } }", 'D')]
    {
        for (mechanism, radix) in [("dp", false), ("pd", false), ("pd", true), ("kvc", false), ("kvc", true)] {
            let reads = if mechanism == "dp" { 'W' } else { reads };
            let shape = format!(
                "cluster = {{ prefill = 2, decode = 2, colocated = 2 }}\nengine.decode_radix_cache = {radix}\n\
                 engine.kv_bytes_per_token = 1\nreplay.mechanism = '{mechanism}'\npolicy = {policy}"
            );
            let is_seen = reads != 'D' || radix;
            for record in &play(&repeated(), &scenario(&[&shape])).records {
                holds(record, reads, is_seen);
            }
            let played = play(&quiet(), &scenario(&[&shape]));
            played.all_ok();
            for record in &played.records {
                holds(record, reads, is_seen);
            }
            let names: Vec<&str> = streams(&played).iter().map(|stream| stream.name.as_str()).collect();
            assert!(names.iter().all(|name| name.starts_with(reads)), "{shape}: {names:?}");
            if (reads, mechanism) == ('D', "pd") {
                // What D is promised to have is what P need not send.
                let sent: u64 = played.end.facts.transfers.iter().map(|pair| pair.bytes).sum();
                let rest = |record: &RequestRecord| u64::from(record.input_tokens - promised(record));
                assert_eq!(sent, played.records.iter().map(rest).sum::<u64>(), "{shape}");
                assert_eq!(is_seen, played.records.iter().any(|record| promised(record) > 0), "{shape}");
            }
        }
    }
}

/// One record under a policy that reads the caches of the workers with this letter.
#[track_caller]
fn holds(record: &RequestRecord, reads: char, is_seen: bool) {
    let unplaced = record.execution_mode == ExecutionMode::PdRouterTurn1 && reads == 'D';
    let Some(worker) = &record.index_worker else {
        let passes_by = record.execution_mode == ExecutionMode::KvcacheDirectToDSession || unplaced;
        assert!(passes_by, "{record:?}");
        let nothing = (record.index_hit_tokens_device, record.index_hit_tokens_host_only, record.index_blind);
        assert_eq!((nothing, record.index_sight), ((None, None, None), None), "{record:?}");
        return;
    };
    assert!(worker.starts_with(reads), "{record:?}");
    let sight = if is_seen { IndexSight::Synchronized } else { IndexSight::NoStream };
    assert_eq!((record.index_sight, record.index_blind), (Some(sight), Some(!is_seen)), "{record:?}");
    let computed = record.prefill_worker.as_ref().or(record.decode_worker_actual.as_ref());
    assert_eq!(computed == Some(worker), reads != 'D', "{record:?}");
    if computed == Some(worker) {
        assert_eq!(Some(promised(record)), record.cached_tokens, "{record:?}");
    }
}

#[test]
fn what_is_cached_of_a_prompt_is_what_the_p_that_computed_it_had() {
    let with = |radix: bool| {
        let shape = "cluster = { prefill = 3, decode = 1 }\nreplay.mechanism = 'pd'\npolicy.name = 'default'";
        play(&quiet(), &scenario(&[shape, &format!("engine.decode_radix_cache = {radix}")]))
    };
    let of_p = |played: &Played| {
        let told = |record: &RequestRecord| (record.cached_tokens, record.prefill_ms);
        played.records.iter().map(told).collect::<Vec<_>>()
    };
    let (without, with) = (with(false), with(true));
    assert_eq!(of_p(&without), of_p(&with), "D's cache saves P nothing");
    let sent = |played: &Played| played.end.facts.transfers.iter().map(|pair| pair.bytes).sum::<u64>();
    assert!(sent(&with) < sent(&without), "and the link something");
}

#[test]
fn other_sizes_of_blocks_promise_whole_blocks_of_theirs() {
    for size in [16u32, 48, 128] {
        let played = play(&quiet(), &scenario(&[PD, &format!("kv_events.block_size = {size}")]));
        played.all_ok();
        for record in &played.records {
            let found = record.cached_tokens.unwrap();
            assert!(promised(record) <= found && promised(record) + size > found, "{size}: {record:?}");
        }
    }
}

/// A pool that holds two of the six conversations, and a host that holds all.
const SMALL: &str = "
cluster = { prefill = 1, decode = 1 }
engine = { kv_pool_tokens = 1024, page_size = 64, host_pool_tokens = 65536, reserved_decode_tokens = 16 }
replay.mechanism = 'pd'
policy.name = 'car'";

#[test]
fn blocks_on_the_host_alone_are_promised_and_loaded_back() {
    for dialect in ["xllm", "vllm", "sglang"] {
        let events = format!("kv_events.dialect = '{dialect}'");
        let played = play(&quiet(), &scenario(&[SMALL, &events]));
        assert_eq!(promises_are_kept(&played), 24, "{dialect}");
        let host: u32 = played.records.iter().filter_map(|record| record.index_hit_tokens_host_only).sum();
        assert!(host > 1000, "{host} tokens on the host only, {dialect}");
    }
    let bare = SMALL.replace("host_pool_tokens = 65536, ", "");
    let played = play(&quiet(), &scenario(&[&bare]));
    assert!(promises_are_kept(&played) < 24, "without a host what left the device is gone, and the index knows");
}

#[track_caller]
fn faulty(fault: &str, more: &str) -> Played {
    faulty_scenario(&scenario(&[PD, more, fault]))
}

#[track_caller]
fn faulty_scenario(scenario: &Scenario) -> Played {
    let played = play(&quiet(), scenario);
    played.all_ok();
    played
}

fn reasons(played: &Played) -> String {
    let lines = played.noted(LedgerKind::KvStream).into_iter();
    lines.map(|line| line.detail.clone().unwrap()).collect::<Vec<_>>().join("\n")
}

/// Over-promised decisions, as their times.
fn over_promised(played: &Played) -> Vec<f64> {
    let over = played.records.iter().filter(|record| promised(record) > record.cached_tokens.unwrap());
    over.map(super::sent_s).collect()
}

#[test]
fn a_lost_batch_is_found_out_and_recovered_from() {
    for dialect in ["xllm", "vllm", "sglang"] {
        let fault = "fault = [{ kind = 'kv-event-drop', worker = 'P0', at_s = 10, times = 1 }]";
        let played = faulty(fault, &format!("kv_events.dialect = '{dialect}'"));
        let stream = &streams(&played)[0];
        assert!(stream.synchronized && stream.gaps == 1 && stream.resyncs == 1, "{dialect}: {stream:?}");
        assert!(over_promised(&played).is_empty(), "a store that was not heard of is not promised");
        assert!(reasons(&played).contains("is missing"), "{}", reasons(&played));
    }
}

#[test]
fn a_duplicate_and_a_batch_that_overtakes_are_no_truth() {
    for kind in ["kv-event-duplicate", "kv-event-reorder"] {
        let fault = format!("fault = [{{ kind = '{kind}', at_s = 10, duration_s = 30 }}]");
        let played = faulty(&fault, "");
        assert!(over_promised(&played).is_empty(), "{kind}");
        assert!(streams(&played).iter().all(|stream| stream.synchronized), "{kind}: {:?}", streams(&played));
        assert!(streams(&played).iter().any(|stream| stream.resyncs > 0), "{kind}: {:?}", streams(&played));
    }
}

#[test]
fn a_publisher_that_begins_anew_is_followed_anew() {
    for dialect in ["xllm", "vllm", "sglang"] {
        let fault = "fault = [{ kind = 'publisher-restart', worker = 'P1', at_s = 30 }]";
        let played = faulty(fault, &format!("kv_events.dialect = '{dialect}'"));
        let stream = &streams(&played)[1];
        assert!(stream.synchronized && stream.sequence.unwrap() < 40, "{dialect}: {stream:?}");
        assert!(over_promised(&played).is_empty(), "{dialect}");
    }
}

#[test]
fn a_worker_that_starts_again_is_promised_nothing_of_before() {
    for fault in [
        "fault = [{ kind = 'restart', worker = 'P0', at_s = 50 }]",
        "fault = [{ kind = 'kill', worker = 'P0', at_s = 50, duration_s = 5 }]",
    ] {
        let played = faulty(fault, "");
        assert!(over_promised(&played).is_empty(), "{fault}");
        assert!(streams(&played).iter().all(|stream| stream.synchronized), "{fault}: {:?}", streams(&played));
        assert!(reasons(&played).contains("connection broke"), "{}", reasons(&played));
        let rest = played.records.iter().filter(|record| super::sent_s(record) > 60.0);
        assert!(rest.filter(|record| promised(record) > 0).count() >= 6, "those of the other workers are promised");
    }
}

#[test]
fn who_leaves_has_no_stream_and_who_joins_has_one() {
    let leave = faulty("fault = [{ kind = 'leave', worker = 'P0', at_s = 50 }]", "");
    assert!(!streams(&leave)[0].synchronized && streams(&leave)[0].events > 0, "{:?}", streams(&leave));
    let join = faulty("fault = [{ kind = 'join', worker = 'P2', at_s = 15 }]", "");
    assert!(streams(&join)[2].synchronized, "{:?}", streams(&join));
    assert_eq!(streams(&join).len(), 3);
}

#[test]
fn a_wrong_address_leaves_the_index_empty_and_says_so() {
    let text = case("68-kv-aware-with-an-empty-index/trace.jsonl");
    let wrong = "cluster = { prefill = 2, decode = 2 }\nreplay.mechanism = 'pd'\npolicy.name = 'car'
        fault = [{ kind = 'kv-endpoint-wrong' }]";
    let played = play(&trace(&text), &scenario(&[wrong]));
    played.all_ok();
    for record in &played.records {
        assert_eq!((record.index_blind, promised(record)), (Some(true), 0));
    }
    for stream in streams(&played) {
        assert!(!stream.synchronized && stream.events == 0, "{stream:?}");
    }
    let warned = played.noted(LedgerKind::IndexNotInStep);
    assert_eq!(warned.len(), 2, "one line a stream");
    assert!(warned[0].detail.as_ref().unwrap().contains("connection refused"), "{warned:?}");
    let required = scenario(&[wrong, "kv_events.require = true"]);
    let Err(SimError::NoIndex(error)) = try_play(&trace(&text), &required) else { panic!("it went on") };
    assert!(error.to_string().contains(": P0: connection refused"), "{error}");
}

#[test]
fn an_address_that_is_put_right_is_found() {
    let played = faulty("fault = [{ kind = 'kv-endpoint-wrong', duration_s = 30 }]", "");
    let (early, late): (Vec<_>, Vec<_>) = played.records.iter().partition(|record| super::sent_s(record) < 30.0);
    assert!(early.iter().all(|record| record.index_blind == Some(true)));
    assert!(late.iter().all(|record| record.index_blind == Some(false)));
    assert!(over_promised(&played).is_empty());
}

#[test]
fn a_run_with_an_index_is_the_same_each_time() {
    let run = || faulty("fault = [{ kind = 'kv-event-reorder', at_s = 10, duration_s = 30 }]", "");
    let (one, other) = (run(), run());
    assert_eq!(one.records, other.records);
    assert_eq!(one.ledger, other.ledger);
    assert_eq!(one.end.facts, other.end.facts);
}

#[test]
fn a_fault_of_events_moves_no_other_draw() {
    // A policy that does not read the index, and turns that are moved at random: what is drawn for them must not depend on
    // which faults of events there are.
    let sticky = PD.replace("'car'", "'sticky'");
    let with =
        |more: &str, fault: &str| faulty_scenario(&scenario(&[&sticky, "kv_events.enabled = 'on'", more, fault]));
    let jitter = "replay.arrival_jitter_ms = 900.0";
    let plain = with(jitter, "");
    let sent = |played: &Played| played.records.iter().map(super::sent_s).collect::<Vec<_>>();
    assert_ne!(sent(&plain), sent(&with("", "")), "the jitter is drawn");
    let window = |kind: &str| format!("fault = [{{ kind = '{kind}', at_s = 10, duration_s = 30 }}]");
    let mut faults =
        ["kv-event-drop", "kv-event-duplicate", "kv-event-reorder", "kv-endpoint-wrong"].map(window).to_vec();
    faults.push("fault = [{ kind = 'publisher-restart', worker = 'P0', at_s = 30 }]".into());
    let times = |record: &RequestRecord| (super::sent_s(record), record.e2e_ms, record.decode_worker_actual.clone());
    for fault in &faults {
        let faulty = with(jitter, fault);
        assert!(faulty.records.iter().map(times).eq(plain.records.iter().map(times)), "{fault}");
        assert!(streams(&faulty) != streams(&plain), "{fault} was noticed");
    }
}
