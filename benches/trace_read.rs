//! Speed of reading a native trace of over 100 MB, in MB/s of the text, one thread.
//!
//! Makes its input in the system's temporary folder: interleaved sessions whose prompts grow, as a recorder writes them.
//! Prints the median of several reads: `cargo bench --bench trace_read`.

#![allow(clippy::disallowed_methods, clippy::print_stdout, reason = "a benchmark reads the clock and prints")]

use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Instant;

use pdreplay::base::Rng;
use pdreplay::trace::{ReadOptions, TraceStats, ideal_hits, read_path, write_native};

const SESSIONS: usize = 520;
const TURNS: u32 = 86;
const BLOCK: u64 = 64;
const ROUNDS: usize = 7;

struct Session {
    ids: Vec<u64>,
    input: u64,
    time_ms: u64,
}

/// Rows as the field writes them: the part-filled last block has an id of its own.
fn text() -> Result<String, Box<dyn Error>> {
    let mut rng = Rng::new(1, 0);
    let mut fresh = 1u64;
    let mut text = String::new();
    let start = |at: u64| Session { ids: vec![0], input: 2_000 + at % 1_500, time_ms: at * 900 };
    let mut sessions: Vec<Session> = (0..SESSIONS as u64).map(start).collect();
    for turn in 1..=TURNS {
        for (at, session) in sessions.iter_mut().enumerate() {
            let output = 20 + rng.below(440);
            while session.ids.len() < session.input.div_ceil(BLOCK) as usize {
                session.ids.push(fresh);
                fresh += 1;
            }
            let time = session.time_ms as f64 / 1e3;
            write!(
                text,
                "{{\"session_id\":{at},\"turn_id\":{turn},\"chat_id\":{at},\"parent_chat_id\":-1,\"timestamp\":{time},\
                 \"input_length\":{},\"output_length\":{output},\"hash_ids\":[",
                session.input
            )?;
            for (place, id) in session.ids.iter().enumerate() {
                write!(text, "{}{id}", if place == 0 { "" } else { "," })?;
            }
            text.push_str("]}\n");
            session.ids.truncate((session.input / BLOCK) as usize);
            session.input += output + rng.below(450);
            session.time_ms += 1_000 + rng.below(7_000);
        }
    }
    Ok(text)
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn measure(label: &str, path: &Path, bytes: usize) -> Result<(), Box<dyn Error>> {
    let mut samples = Vec::new();
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let trace = read_path(path, &ReadOptions::default())?;
        samples.push(start.elapsed().as_secs_f64());
        assert_eq!(trace.turns.len(), SESSIONS * TURNS as usize);
    }
    let seconds = median(samples);
    println!(
        "{label:<12} {:>7.1} MB text {:>8.1} ms {:>7.0} MB/s",
        bytes as f64 / 1e6,
        seconds * 1e3,
        bytes as f64 / 1e6 / seconds
    );
    Ok(())
}

fn timed<T>(label: &str, work: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = work();
    println!("{label:<12} {:>24.1} ms", start.elapsed().as_secs_f64() * 1e3);
    result
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("pdreplay-trace-read-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let (plain, packed) = (folder.join("trace.jsonl"), folder.join("trace.jsonl.zst"));
    let text = text()?;
    fs::write(&plain, &text)?;
    fs::write(&packed, zstd::encode_all(text.as_bytes(), 3)?)?;
    let bytes = text.len();
    drop(text);
    measure("plain", &plain, bytes)?;
    measure("zstd", &packed, bytes)?;
    let trace = read_path(&plain, &ReadOptions::default())?;
    let stats = timed("statistics", || TraceStats::of(&trace));
    let hits = timed("ideal hits", || ideal_hits(&trace));
    assert_eq!((stats.requests as usize, hits.len()), (trace.turns.len(), trace.turns.len()));
    timed("write", || write_native(&trace, &mut std::io::sink()))?;
    fs::remove_dir_all(&folder)?;
    Ok(())
}
