//! The `index` section and its cause: promises against what was found, blindness, an index that never had a hit.

use pdreplay::record::{IndexSight, Outcome, RequestRecord, StreamFacts};
use pdreplay::results::Cause;
use pdreplay::results::render::{self, Extras, Style};

use super::story::{Story, story};

/// The story under CAR: promised (device, host only), found, blind, in turn.
fn with_promises(promises: &[(u32, u32, u32, bool)]) -> Story {
    let mut story = story();
    story.info.policy = "car".into();
    story.info.workers.push("P1".into());
    let placed = story.records.iter_mut().zip(promises.iter().cycle());
    placed.for_each(|(record, promise)| promised(record, *promise));
    story
}

fn promised(record: &mut RequestRecord, (device, host, found, blind): (u32, u32, u32, bool)) {
    record.index_worker = record.prefill_worker.clone().or_else(|| record.decode_worker_actual.clone());
    record.index_sight = Some(if blind { IndexSight::NotSynchronized } else { IndexSight::Synchronized });
    record.index_hit_tokens_device = Some(device);
    record.index_hit_tokens_host_only = Some(host);
    record.index_blind = Some(blind);
    record.cached_tokens = Some(found);
}

fn stream(name: &str, synchronized: bool, events: u64) -> StreamFacts {
    StreamFacts {
        name: name.into(),
        endpoint: format!("tcp://127.0.0.1:1800{}", &name[1..]),
        synchronized,
        events,
        last_error: (!synchronized).then(|| "connection refused".into()),
        ..StreamFacts::default()
    }
}

#[test]
fn over_and_under_promised_tokens_do_not_cancel_out() {
    let mut story = with_promises(&[(100, 20, 60, false), (0, 0, 60, true)]);
    story.facts.streams = vec![stream("P0", true, 70), stream("P1", false, 0)];
    story.records[0].outcome = Outcome::Error;
    let summary = story.summary();
    let index = summary.index.as_ref().unwrap();
    assert_eq!((index.decisions, index.with_hits, index.blind, index.blind_share), (60, 30, 30, Some(0.5)));
    let kept = index.kept;
    assert_eq!(kept.compared, 59, "a request that failed tells nothing");
    assert_eq!((kept.promised_device_tokens, kept.promised_host_only_tokens), (2900, 580));
    assert_eq!((kept.found_tokens, kept.over_promised_tokens, kept.under_promised_tokens), (3540, 29 * 60, 30 * 60));
    assert!(summary.causes.iter().all(|line| !matches!(line.cause, Cause::RanAsLoadOnly(_))));
    assert_eq!(index.computed_elsewhere, 0);
    let text = render::summary(&summary, &Extras::default(), Style { width: 300, ..Style::default() });
    let line = text.lines().find(|line| line.starts_with("index")).unwrap();
    assert!(line.contains("60 decisions · blind 30 (50.0 %)") && line.contains("1 of 2 streams in step"), "{line}");
    assert!(line.contains("promised 3.5K tokens (device 2.9K, host only 580) · found 3.5K"), "{line}");
    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!(json["index"]["over_promised_tokens"], 29 * 60);
    assert_eq!(json["index"]["streams"][1]["last_error"], "connection refused");
}

#[test]
fn case_68_an_index_without_a_hit_is_the_first_cause() {
    let mut story = with_promises(&[(0, 0, 60, true)]);
    story.records.iter_mut().for_each(|record| record.index_worker = Some("P0".into()));
    story.facts.streams = vec![stream("P0", false, 0), stream("P1", false, 0)];
    let summary = story.summary();
    assert_eq!(
        summary.causes[0].text,
        "ran as load-only: the hit term of policy car was 0 in all 60 decisions; P0 at tcp://127.0.0.1:18000 was not in step: \
         connection refused"
    );
    let mut story = with_promises(&[(0, 0, 60, false)]);
    story.facts.streams = vec![stream("P0", true, 9)];
    let text = &story.summary().causes[0].text;
    assert!(text.ends_with("all 60 decisions; 1 of 1 stream in step, 9 events heard"), "{text}");
    let mut off = self::story();
    off.info.policy = "car".into();
    assert_eq!(off.summary().causes[0].text, "ran as load-only: policy car had no KV index to read");
}

#[test]
fn a_policy_that_reads_no_index_has_no_section() {
    let summary = story().summary();
    assert_eq!(summary.index, None);
    let text = render::summary(&summary, &Extras::default(), Style::default());
    assert!(!text.lines().any(|line| line.starts_with("index")), "{text}");
}

/// What became of the choices of the story, by the worker chosen and how it was seen; streams beside it.
fn seen(sights: &[(&str, IndexSight)], promised: u32, streams: Vec<StreamFacts>) -> Story {
    let mut story = with_promises(&[(0, 0, 0, true)]);
    for (record, (worker, sight)) in story.records.iter_mut().zip(sights.iter().cycle()) {
        record.index_worker = Some((*worker).into());
        (record.index_sight, record.index_blind) = (Some(*sight), Some(*sight != IndexSight::Synchronized));
        record.index_hit_tokens_device = Some(if *sight == IndexSight::Synchronized { promised } else { 0 });
    }
    story.facts.streams = streams;
    story
}

#[test]
fn each_cause_of_blindness_is_named_whether_all_choices_were_blind_or_some() {
    let cases = [
        (IndexSight::NoStream, "P1", vec![], "no stream is of P1"),
        (
            IndexSight::NoStream,
            "D1",
            vec![stream("P0", true, 3)],
            "no stream is of D1: a D publishes with engine.decode_radix_cache = true only",
        ),
        (
            IndexSight::NoStream,
            "P1",
            vec![stream("X1/0", true, 3), stream("X2/0", true, 3)],
            "no stream is of P1; streams X1/0, X2/0 are of no worker of the run",
        ),
        (
            IndexSight::NotSynchronized,
            "P1",
            vec![stream("P1", false, 0)],
            "P1 at tcp://127.0.0.1:18001 was not in step: connection refused",
        ),
        (
            IndexSight::StaticStream,
            "P1",
            vec![stream("P1", true, 3)],
            "streams listed by hand count only with policy.car.static_streams = true, and those of P1 are",
        ),
        (
            IndexSight::OtherProcess,
            "P1",
            vec![stream("P1", true, 3)],
            "the stream of P1 was of another process than the one that served",
        ),
    ];
    for (sight, worker, streams, why) in cases {
        let all = seen(&[(worker, sight)], 0, streams.clone()).summary();
        let text = &all.causes[0].text;
        assert!(text.starts_with("ran as load-only: ") && text.ends_with(why), "{text}");
        let seeing = ("P0", IndexSight::Synchronized);
        let some = seen(&[(worker, sight), seeing, seeing], 64, streams).summary();
        let line = some.causes.iter().find(|line| matches!(line.cause, Cause::IndexPartlyBlind(_)));
        let text = &line.unwrap_or_else(|| panic!("{sight}: {:?}", some.causes)).text;
        assert_eq!(text, &format!("20 of 60 choices by the KV index (33.3 %) were blind: {why}"));
        let blind = &some.index.unwrap().blindness.blind_workers;
        assert_eq!((blind[0].worker.as_str(), blind[0].sight, blind[0].decisions), (worker, sight, 20));
    }
}

#[test]
fn what_another_worker_computed_is_not_compared() {
    let mut story = with_promises(&[(100, 0, 60, false)]);
    for record in story.records.iter_mut().filter(|record| record.prefill_worker.is_some()) {
        record.index_worker = record.decode_worker_actual.clone();
    }
    let through_p = story.records.iter().filter(|record| record.prefill_worker.is_some()).count() as u64;
    let index = story.summary().index.unwrap();
    assert_eq!((index.computed_elsewhere, index.kept.compared), (through_p, 60 - through_p));
    assert_eq!(index.kept.over_promised_tokens, 40 * (60 - through_p));
    // Runs of earlier versions do not name the worker.
    story.records.iter_mut().for_each(|record| record.index_worker = None);
    assert_eq!(story.summary().index.unwrap().kept.compared, 60);
}
