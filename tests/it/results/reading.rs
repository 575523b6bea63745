//! Reading `requests.jsonl` back.

use std::io::{self, BufReader, Read};

use pdreplay::record::RunFacts;
use pdreplay::results::{Accumulator, Percentiles, RecordError, RunState, SummaryError, Verdict, read_requests};

use super::{facts, info, json, request};

fn lines(n: u32) -> String {
    (0..n).map(|turn| serde_json::to_string(&request("s", turn, 1000, 100.0, 500.0)).unwrap() + "\n").collect()
}

#[test]
fn what_was_written_is_read() {
    let records: Vec<_> = read_requests(lines(3).as_bytes()).map(Result::unwrap).collect();
    assert_eq!(records[2], request("s", 2, 1000, 100.0, 500.0));
    assert_eq!(read_requests(&b"\n \r\n"[..]).count(), 0);
}

#[test]
fn a_half_last_line_is_reported_and_not_fatal() {
    let mut text = lines(2);
    text.truncate(text.len() - 40);
    let read: Vec<_> = read_requests(text.as_bytes()).collect();
    assert!(read[0].is_ok() && read.len() == 2);
    let error = read[1].as_ref().unwrap_err();
    assert!(!error.is_fatal() && error.to_string().starts_with("line 2: cut off after"), "{error}");
}

#[test]
fn a_whole_last_line_without_line_feed_counts() {
    assert!(read_requests(lines(2).trim_end().as_bytes()).all(|record| record.is_ok()));
}

#[test]
fn half_a_line_in_the_middle_is_fatal() {
    let text = lines(1)[..50].to_string() + "\n" + &lines(1);
    let read: Vec<_> = read_requests(text.as_bytes()).collect();
    assert_eq!(read.len(), 1, "nothing is read past an error");
    let error = read[0].as_ref().unwrap_err();
    assert!(error.is_fatal() && error.to_string().starts_with("line 1: "), "{error}");
}

#[test]
fn a_newer_file_is_refused_by_its_version() {
    let newer = lines(1).replace("\"schema_version\":1", "\"schema_version\":2");
    for text in [newer.clone(), newer.replace("\"turn_id\"", "\"turn_number\"")] {
        let error = read_requests(text.as_bytes()).next().unwrap().unwrap_err();
        assert!(matches!(error, RecordError::Newer { line: 1, found: 2 }) && error.is_fatal(), "{error}");
    }
}

#[test]
fn a_wrong_field_is_named() {
    let text = lines(1).replace("\"turn_id\":0", "\"turn_id\":\"zero\"");
    let error = read_requests(text.as_bytes()).next().unwrap().unwrap_err().to_string();
    assert!(error.contains("line 1") && error.contains("zero") && error.contains("column"), "{error}");
}

#[test]
fn a_broken_disk_is_an_error_not_an_end() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("disk on fire"))
        }
    }
    let error = read_requests(BufReader::new(Broken)).next().unwrap().unwrap_err();
    assert!(error.is_fatal() && error.to_string().contains("disk on fire"));
}

#[test]
fn a_killed_run_is_summed_up_as_far_as_it_got() {
    let mut info = info(10, 1);
    (info.state, info.rebuilt) = (RunState::Unfinished, true);
    let mut accumulator = Accumulator::new(Percentiles::default());
    read_requests(lines(4).as_bytes()).for_each(|record| accumulator.push(&record.unwrap(), &[]));
    let summary = accumulator.finish(&RunFacts::default(), &info).unwrap();
    assert_eq!((summary.integrity.planned, summary.integrity.recorded), (10, 4));
    assert_eq!(summary.integrity.verdict, Verdict::Partial);
    let notes = summary.integrity.notes.join("; ");
    assert!(notes.contains("4 of 10 requests have a record") && notes.contains("rebuilt"), "{notes}");
    assert_eq!(json(&summary)["n_itl"], 0);
    assert_eq!(summary.sessions[0].slot_hold_s, None);
}

#[test]
fn a_request_that_vanished_is_an_error() {
    let mut accumulator = Accumulator::new(Percentiles::default());
    accumulator.push(&request("s", 0, 0, 1.0, 2.0), &[]);
    let error = accumulator.finish(&facts(2, &[]), &info(2, 1)).unwrap_err();
    assert_eq!(error, SummaryError::Unaccounted { planned: 2, recorded: 1 });
}
