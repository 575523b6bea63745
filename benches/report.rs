//! Writes a run folder of many records, for `scripts/bench_report.sh` and `scripts/bench_diff.sh`.
//!
//! Its argument is a run folder as `pdreplay replay` left it; its records follow themselves again and again, later turns of the
//! same sessions, until there are as many as wanted. All files are written by the library's own writers, so that `report` and
//! `diff` read a folder like any other: `cargo bench --bench report -- FROM TO RECORDS`.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;

use pdreplay::record::{RequestRecord, RunFacts};
use pdreplay::results::{Accumulator, FrameWriter, Percentiles, RunInfo, read_requests};
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_128;

const BUFFER: usize = 1 << 20;

/// What the records of the run that is repeated are, taken together.
struct Base {
    records: Vec<RequestRecord>,
    /// First send to last end.
    span_ns: u64,
    most_turns: u32,
}

fn base(from: &Path) -> Result<Base, Box<dyn Error>> {
    let file = BufReader::with_capacity(BUFFER, File::open(from.join("requests.jsonl"))?);
    let records = read_requests(file).collect::<Result<Vec<_>, _>>()?;
    let span_ns = records.iter().map(|record| record.ended_ns).max().unwrap_or(0);
    let most_turns = records.iter().map(|record| record.turn_id + 1).max().unwrap_or(1);
    Ok(Base { records, span_ns, most_turns })
}

/// The record in round `round`: later, and later turns.
fn shifted(record: &RequestRecord, base: &Base, round: u32) -> RequestRecord {
    let mut record = record.clone();
    let later = base.span_ns * u64::from(round);
    record.turn_id += base.most_turns * round;
    record.request_id = format!("{}/{}", record.session_id, record.turn_id);
    record.trace_line += base.records.len() as u32 * round;
    record.scheduled_ns += later;
    record.ended_ns += later;
    for time in [&mut record.released_ns, &mut record.sent_ns, &mut record.first_token_ns, &mut record.last_token_ns] {
        *time = time.map(|time| time + later);
    }
    record
}

fn lines<T: serde::Serialize>(path: &Path, values: &[T]) -> Result<(), Box<dyn Error>> {
    let mut out = BufWriter::new(File::create(path)?);
    for value in values {
        serde_json::to_writer(&mut out, value)?;
        out.write_all(b"\n")?;
    }
    Ok(out.flush()?)
}

fn write_run(from: &Path, to: &Path, wanted: u64) -> Result<(), Box<dyn Error>> {
    let base = base(from)?;
    let mut run: Value = serde_json::from_str(&fs::read_to_string(from.join("run.json"))?)?;
    fs::create_dir_all(to)?;
    let mut requests = BufWriter::with_capacity(BUFFER, File::create(to.join("requests.jsonl"))?);
    let table = BufWriter::with_capacity(BUFFER, File::create(to.join("requests.parquet"))?);
    let mut table = FrameWriter::new(table, wanted as usize)?;
    let mut accumulator = Accumulator::new(Percentiles::default());
    let mut turns = std::collections::BTreeMap::<String, u32>::new();
    for at in 0..wanted {
        let (round, at) = (at / base.records.len() as u64, at % base.records.len() as u64);
        let record = shifted(&base.records[at as usize], &base, round as u32);
        serde_json::to_writer(&mut requests, &record)?;
        requests.write_all(b"\n")?;
        table.push(&record)?;
        accumulator.push(&record, &[]);
        *turns.entry(record.session_id).or_insert(0) += 1;
    }
    requests.flush()?;
    table.finish()?;
    let mut info: RunInfo = serde_json::from_value(run["info"].clone())?;
    let mut facts: RunFacts = serde_json::from_value(run["facts"].clone())?;
    (info.requests, facts.planned) = (wanted, wanted);
    facts.sessions.retain_mut(|session| {
        session.planned_turns = turns.get(&session.session_id).copied().unwrap_or(0);
        session.planned_turns > 0
    });
    info.sessions = facts.sessions.len() as u64;
    let summary = accumulator.finish(&facts, &info)?;
    lines(&to.join("sessions.jsonl"), &summary.sessions)?;
    lines(&to.join("workers.jsonl"), &facts.workers)?;
    fs::copy(from.join("events.jsonl"), to.join("events.jsonl"))?;
    let mut out = BufWriter::new(File::create(to.join("summary.json"))?);
    serde_json::to_writer_pretty(&mut out, &summary)?;
    out.flush()?;
    let files = run["files"].as_object_mut().ok_or("run.json names no files: the run did not end")?;
    for (name, file) in files.iter_mut() {
        let content = fs::read(to.join(name))?;
        *file = json!({"bytes": content.len(), "xxh3_128": format!("{:032x}", xxh3_128(&content))});
    }
    run.as_object_mut().map(|run| run.remove("xxh3_128"));
    run["name"] = to.file_name().unwrap_or_default().to_string_lossy().into();
    (run["info"], run["facts"]) = (serde_json::to_value(&info)?, serde_json::to_value(&facts)?);
    serde_json::to_writer_pretty(BufWriter::new(File::create(to.join("run.json"))?), &run)?;
    println!("{}: {wanted} records, {} sessions", to.display(), info.sessions);
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let [from, to, wanted] = args.as_slice() else {
        return Err("usage: cargo bench --bench report -- FROM TO RECORDS (FROM: a run folder)".into());
    };
    write_run(Path::new(from), Path::new(to), wanted.parse()?)
}
