//! `requests.parquet` read back: the same rows and the same summary as from the lines, and no byte of a damaged file panics.

use std::io::Cursor;

use pdreplay::base::Rng;
use pdreplay::record::{ExecutionMode, IndexSight, ModeReason, Outcome, RequestRecord, RunFacts};
use pdreplay::results::{Accumulator, Batch, COLUMNS, FrameError, FrameReader, FrameWriter, Kind, Percentiles};
use proptest::prelude::*;
use serde_json::Value;

use super::{info, request};

const WORDS: [&str; 8] = ["", "a", "größer, \"so\"", "line\nfeed", "\u{0}", "=1+1", "日本語", "D0"];

/// A record of odd values: nulls, odd strings, extremes of every whole number.
fn odd(rng: &mut Rng) -> RequestRecord {
    let pick = |rng: &mut Rng| WORDS[rng.below(8) as usize].to_owned();
    let mut record = request(&pick(rng), rng.below(5) as u32, rng.below(1_000_000), 10.0, 20.0);
    let maybe_word = |rng: &mut Rng| (rng.below(3) > 0).then(|| WORDS[rng.below(8) as usize].to_owned());
    let whole = |rng: &mut Rng| [0, 1, u64::MAX, u64::MAX / 2, rng.u64()][rng.below(5) as usize];
    let maybe_whole = |rng: &mut Rng| (rng.below(3) > 0).then(|| [0, u64::MAX, rng.u64()][rng.below(3) as usize]);
    let count = |rng: &mut Rng| [0, 1, u32::MAX, rng.below(1 << 20) as u32][rng.below(4) as usize];
    let maybe_count = |rng: &mut Rng| (rng.below(3) > 0).then(|| [0, u32::MAX, 7][rng.below(3) as usize]);
    let maybe_ms =
        |rng: &mut Rng| (rng.below(3) > 0).then(|| [-1.0, 0.0, 1e-9, rng.f64() * 1e6, 1e300][rng.below(5) as usize]);
    record.request_id = pick(rng);
    record.trace_request_id = maybe_word(rng);
    record.trace_line = count(rng);
    record.execution_mode = ExecutionMode::ALL[rng.below(ExecutionMode::ALL.len() as u64) as usize];
    record.mode_reason = ModeReason::ALL[rng.below(ModeReason::ALL.len() as u64) as usize];
    record.outcome = Outcome::ALL[rng.below(Outcome::ALL.len() as u64) as usize];
    [&mut record.prefill_worker, &mut record.decode_worker_intended, &mut record.decode_worker_actual]
        .into_iter()
        .for_each(|worker| *worker = maybe_word(rng));
    record.route_mismatch = rng.below(2) == 1;
    record.scheduled_ns = whole(rng);
    [&mut record.released_ns, &mut record.first_token_ns, &mut record.last_token_ns]
        .into_iter()
        .for_each(|time| *time = maybe_whole(rng));
    record.sent_ns = record.sent_ns.filter(|_| rng.below(3) > 0);
    let latencies = [
        &mut record.ttft_ms,
        &mut record.tpot_ms,
        &mut record.e2e_ms,
        &mut record.sched_ttft_ms,
        &mut record.sched_e2e_ms,
        &mut record.queue_cap_wait_ms,
        &mut record.prefill_ms,
        &mut record.kv_transfer_ms,
        &mut record.decode_queue_ms,
        &mut record.retry_wait_ms,
    ];
    latencies.into_iter().for_each(|latency| *latency = maybe_ms(rng));
    record.input_tokens = count(rng);
    record.expected_output_tokens = count(rng);
    record.cached_tokens = maybe_count(rng);
    record.index_hit_tokens_device = maybe_count(rng);
    record.index_blind = (rng.below(2) == 1).then(|| rng.below(2) == 1);
    record.index_worker = maybe_word(rng);
    record.index_sight = (rng.below(2) == 1).then(|| IndexSight::ALL[rng.below(IndexSight::ALL.len() as u64) as usize]);
    record.error_class = [None, Some("worker-lost".into()), Some("context-limit".into()), maybe_word(rng)]
        [rng.below(4) as usize]
        .clone();
    record.error_message = maybe_word(rng);
    record.http_status = (rng.below(2) == 1).then(|| [0, 200, u16::MAX][rng.below(3) as usize]);
    record.attempts = rng.below(4) as u32;
    record
}

fn records(seed: u64, count: usize) -> Vec<RequestRecord> {
    let mut rng = Rng::new(seed, 0);
    (0..count).map(|_| odd(&mut rng)).collect()
}

fn table(records: &[RequestRecord]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = FrameWriter::new(&mut out, records.len()).unwrap();
    records.iter().for_each(|record| writer.push(record).unwrap());
    writer.finish().unwrap();
    out
}

fn every_column() -> Vec<&'static str> {
    COLUMNS.iter().map(|column| column.name).collect()
}

/// Every row as JSON, from a table.
fn rows(bytes: &[u8]) -> Result<Vec<Value>, FrameError> {
    let columns = every_column();
    let mut reader = FrameReader::open(Cursor::new(bytes), &columns)?;
    let mut batch = Batch::new(&columns);
    let mut rows = Vec::new();
    while let Some(group) = reader.next_group()? {
        batch.adopt(group);
        assert_eq!(batch.first_row(), rows.len() as u64);
        rows.extend((0..batch.rows()).map(|row| as_json(&batch, row)));
    }
    Ok(rows)
}

fn as_json(batch: &Batch, row: usize) -> Value {
    fn json<T: serde::Serialize>(value: Option<T>) -> Value {
        serde_json::to_value(value).unwrap()
    }
    let value = |kind: Kind, name: &str| match kind {
        Kind::U32 => json(batch.u32(name).get(row)),
        Kind::U64 => json(batch.u64(name).get(row)),
        Kind::F64 => json(batch.f64(name).get(row)),
        Kind::Bool => json(batch.bool(name).get(row)),
        Kind::Label => json(batch.labels(name).get(row)),
        Kind::Text => json(batch.texts(name).get(row)),
    };
    COLUMNS.iter().map(|column| (column.name.to_owned(), value(column.kind, column.name))).collect()
}

/// The summary of the records as lines, one by one.
fn summary_of_lines(records: &[RequestRecord]) -> String {
    let mut accumulator = Accumulator::new(Percentiles::default());
    for record in records {
        let line = serde_json::to_string(record).unwrap();
        accumulator.push(&serde_json::from_str(&line).unwrap(), &[]);
    }
    finish(accumulator, records.len())
}

fn summary_of_table(bytes: &[u8], count: usize) -> String {
    let columns = Accumulator::columns();
    let mut reader = FrameReader::open(Cursor::new(bytes), &columns).unwrap();
    let mut batch = Batch::new(&columns);
    let mut accumulator = Accumulator::new(Percentiles::default());
    while let Some(group) = reader.next_group().unwrap() {
        batch.adopt(group);
        accumulator.push_batch(&batch);
    }
    finish(accumulator, count)
}

fn finish(accumulator: Accumulator, count: usize) -> String {
    let info = info(count as u64, 0);
    serde_json::to_string_pretty(&accumulator.finish(&RunFacts::default(), &info).unwrap()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn rows_and_summary_are_those_of_the_lines(seed in any::<u64>(), count in 0usize..400) {
        let records = records(seed, count);
        let bytes = table(&records);
        let lines: Vec<Value> = records.iter().map(|record| serde_json::to_value(record).unwrap()).collect();
        prop_assert_eq!(rows(&bytes).unwrap(), lines);
        prop_assert_eq!(summary_of_table(&bytes, count), summary_of_lines(&records));
    }

    #[test]
    fn flipped_bytes_are_an_error_or_other_values(seed in any::<u64>(), flips in 1usize..6) {
        let mut bytes = table(&records(1, 60));
        let mut rng = Rng::new(seed, 1);
        for _ in 0..flips {
            // Half of them where the footer is.
            let from = if rng.below(2) == 0 { 0 } else { bytes.len() as u64 * 3 / 4 };
            let at = from + rng.below(bytes.len() as u64 - from);
            bytes[at as usize] = rng.u64() as u8;
        }
        if let Ok(rows) = rows(&bytes) {
            prop_assert!(rows.len() < 1 << 20);
        }
    }
}

#[test]
fn several_row_groups_are_one_file() {
    let records: Vec<RequestRecord> = records(3, pdreplay::results::GROUP_ROWS + 5);
    let bytes = table(&records);
    assert_eq!(summary_of_table(&bytes, records.len()), summary_of_lines(&records));
}

#[test]
fn a_file_cut_anywhere_is_an_error() {
    let bytes = table(&records(5, 20));
    for length in (0..bytes.len()).step_by(5) {
        let error = rows(&bytes[..length]).unwrap_err().to_string();
        assert!(error.contains("not a whole Parquet file"), "{length}: {error}");
    }
    let error = rows(b"{\"schema_version\":1}\n{\"schema_version\":1}\n").unwrap_err().to_string();
    assert!(error.contains("not a whole Parquet file"), "{error}");
}

#[test]
fn a_newer_version_is_refused_by_name() {
    let mut record = request("s", 1, 0, 1.0, 2.0);
    record.schema_version = 7;
    assert!(rows(&table(&[record])).unwrap_err().to_string().contains("schema_version 7 is newer than 1"));
}
