//! The `index` section and its cause: promises against what was found, blindness, an index that never had a hit.

use pdreplay::record::{Outcome, RequestRecord, StreamFacts};
use pdreplay::results::Cause;
use pdreplay::results::render::{self, Extras, Style};

use super::story::{Story, story};

/// The story under CAR: promised (device, host only), found, blind, in turn.
fn with_promises(promises: &[(u32, u32, u32, bool)]) -> Story {
    let mut story = story();
    story.info.policy = "car".into();
    let placed = story.records.iter_mut().zip(promises.iter().cycle());
    placed.for_each(|(record, promise)| promised(record, *promise));
    story
}

fn promised(record: &mut RequestRecord, (device, host, found, blind): (u32, u32, u32, bool)) {
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
    let text = render::summary(&summary, &Extras::default(), Style { width: 300, ..Style::default() });
    let line = text.lines().find(|line| line.starts_with("index")).unwrap();
    assert!(line.contains("60 decisions · blind 30 (50.0 %)") && line.contains("1 of 2 streams in step"), "{line}");
    let json = serde_json::to_value(&summary).unwrap();
    assert_eq!(json["index"]["over_promised_tokens"], 29 * 60);
    assert_eq!(json["index"]["streams"][1]["last_error"], "connection refused");
}

#[test]
fn case_68_an_index_without_a_hit_is_the_first_cause() {
    let mut story = with_promises(&[(0, 0, 60, true)]);
    story.facts.streams = vec![stream("P0", false, 0), stream("P1", false, 0)];
    let summary = story.summary();
    assert_eq!(
        summary.causes[0].text,
        "ran as load-only: the hit term of policy car was 0 in all 60 decisions; no stream was in step at the end, 0 events \
         heard (P0 at tcp://127.0.0.1:18000: connection refused)"
    );
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
