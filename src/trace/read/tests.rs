//! Files in, traces or plain words out.

use std::io::Write;

use proptest::prelude::*;

use super::*;
use crate::base::Dur;

const GOOD: &str = r#"{"session_id": "s1", "turn_id": 0, "timestamp": 0.0, "input_length": 300, "output_length": 20, "hash_ids": [1, 2, 3, 4, 5]}
{"session_id": "s2", "turn_id": 0, "timestamp": 0.4, "input_length": 200, "output_length": 10, "hash_ids": [1, 2, 9, 10]}
{"session_id": "s1", "turn_id": 1, "timestamp": 2.0, "input_length": 380, "output_length": 20, "hash_ids": [1, 2, 3, 4, 5, 6]}
"#;

fn read(text: impl AsRef<[u8]>) -> Result<Trace, TraceError> {
    read_bytes("t.jsonl", text.as_ref(), &ReadOptions::default())
}

fn wrong(text: impl AsRef<[u8]>) -> String {
    read(text).unwrap_err().to_string()
}

fn row(fields: &str) -> String {
    format!("{{\"session_id\":\"a\",\"timestamp\":0,\"input_length\":10,\"output_length\":1,{fields}}}")
}

fn codes(trace: &Trace) -> Vec<&'static str> {
    trace.notices.iter().map(|notice| notice.code).collect()
}

fn text_of<'t>(trace: &'t Trace, code: &str) -> &'t str {
    trace.notices.iter().find(|notice| notice.code == code).map_or("", |notice| &notice.text)
}

fn seconds(trace: &Trace) -> Vec<f64> {
    trace.turns.iter().map(|turn| turn.timestamp.as_secs_f64()).collect()
}

#[test]
fn mark_line_ends_blank_lines_and_a_missing_last_newline_change_nothing() {
    let plain = read(GOOD).unwrap();
    assert_eq!((plain.turns.len(), plain.sessions.len(), plain.meta.block_size), (3, 2, 64));
    let crlf = format!("\u{feff}{}", GOOD.trim_end().replace("}\n", "}  \r\n\r\n\t\r\n"));
    let odd = read(crlf).unwrap();
    assert_eq!(odd.turns.iter().map(|turn| turn.line).collect::<Vec<_>>(), [1, 7, 4]);
    assert_eq!(codes(&odd)[0], "byte-order-mark");
    let strip = |trace: &Trace| trace.turns.iter().map(|turn| (turn.prompt, turn.timestamp)).collect::<Vec<_>>();
    assert_eq!(strip(&plain), strip(&odd));
}

#[test]
fn packed_files_read_by_their_bytes_whatever_their_name() {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(GOOD.as_bytes()).unwrap();
    let gzip = gzip.finish().unwrap();
    let zstd = zstd::encode_all(GOOD.as_bytes(), 3).unwrap();
    for packed in [&gzip, &zstd] {
        let trace = read(packed).unwrap();
        assert_eq!(trace.turns.len(), 3);
        assert_eq!(trace.meta.sha256, hex(&Sha256::digest(packed)));
        let cut = wrong(&packed[..packed.len() / 2]);
        assert!(cut.contains("cut off or damaged"), "{cut}");
    }
    let plain = read_bytes("dir/t.jsonl.zst", GOOD.as_bytes(), &ReadOptions::default()).unwrap();
    assert_eq!((plain.meta.name.as_str(), codes(&plain)[0]), ("t", "not-compressed"));
}

#[test]
fn the_header_sets_block_size_and_unit_and_flags_win() {
    let header =
        "{\"format\":\"pdreplay-trace\",\"version\":1,\"block_size\":100,\"timestamp_unit\":\"ms\",\"by\":\"me\"}\n";
    let text = format!(
        "{header}{{\"session_id\":1,\"timestamp\":1500,\"input_length\":250,\"output_length\":5,\"hash_ids\":[7,8]}}"
    );
    let trace = read(&text).unwrap();
    assert_eq!(
        (trace.meta.block_size, trace.meta.block_size_source.as_str(), trace.meta.origin_ns),
        (100, "header", 1_500_000_000)
    );
    assert_eq!((trace.turns[0].line, trace.sessions[0].id.as_str()), (2, "1"));
    let options =
        ReadOptions { block_size: Some(90), timestamp_unit: Some(TimeUnit::Micros), ..ReadOptions::default() };
    let trace = read_bytes("t", text.as_bytes(), &options).unwrap();
    assert_eq!(
        (trace.meta.block_size, trace.meta.block_size_source.as_str(), trace.meta.origin_ns),
        (90, "flag", 1_500_000)
    );
    assert_eq!(codes(&trace).iter().filter(|code| **code == "header-overridden").count(), 2);
    let wrong_header = |old: &str, new: &str| wrong(text.replacen(old, new, 1));
    assert!(wrong_header("\"version\":1", "\"version\":2").starts_with("t.jsonl:1: header: `version` 2 is not known"));
    assert!(wrong_header("\"ms\"", "\"min\"").contains("`timestamp_unit`: `min` is not a unit of time"));
    for (size, words) in [
        ("0", "`block_size` is 0; write a whole number of tokens from 1 to 4294967295"),
        ("18446744073709551615", "`block_size` is 18446744073709551615; write a whole number"),
        ("-1", "`block_size` is -1;"),
        ("\"64\"", "`block_size` is \"64\";"),
        ("64,\"block_size\":64", "header: duplicate field `block_size`"),
    ] {
        let error = wrong_header("100", size);
        assert!(error.contains(words) && !error.contains("column"), "{error}");
    }
    assert!(wrong_header("\"version\":1,", "").contains("`version` is missing; write 1"));
    assert!(wrong_header("\"ms\"", "7").contains("`timestamp_unit`: 7 is not a unit of time"));
    assert!(wrong(header).contains("has no rows"));
}

#[test]
fn unknown_fields_and_every_kind_of_session_id_are_taken() {
    let text = r#"{"chat_id":1,"parent_chat_id":-1,"src":{"a":[1,{"b":"]}"}]},"session_id":9007199254740993,"turn_id":1,"timestamp":0.5,"input_length":3e2,"output_length":1.0,"hash_ids":[1,2,3,4],"type":null,"ok":true}
{"session_id":"9007199254740992","turn_id":1,"timestamp":1,"input_length":64,"output_length":1,"hash_ids":[1]}
{"session_id":"tab\tand \u00e9","turn_id":1,"timestamp":1,"input_length":64,"output_length":1,"hash_ids":[]}"#;
    let blocks_of_64 = ReadOptions { block_size: Some(64), ..ReadOptions::default() };
    let error = read_bytes("t.jsonl", text.as_bytes(), &blocks_of_64).unwrap_err().to_string();
    assert!(error.contains("t.jsonl:3: `hash_ids`: 0 ids for 64 tokens in blocks of 64; 1 would fit"), "{error}");
    let trace = read(text.replace("[]", "[ 18446744073709551615 ]")).unwrap();
    let ids: Vec<&str> = trace.sessions.iter().map(|session| session.id.as_str()).collect();
    assert_eq!(ids, ["9007199254740993", "9007199254740992", "tab\tand é"]);
    assert_eq!(trace.tree.ids(trace.turns[2].prompt), [u64::MAX]);
    assert_eq!((trace.turns[0].input_length, trace.turns[0].prompt.depth), (300, 4));
}

#[test]
fn turns_without_numbers_are_numbered_by_time() {
    let text = "{\"session_id\":\"a\",\"timestamp\":0.4,\"input_length\":90,\"output_length\":1}\n\
                {\"session_id\":\"a\",\"timestamp\":0.3,\"input_length\":10,\"output_length\":1}\n";
    let trace = read(text).unwrap();
    assert_eq!(trace.turns.iter().map(|turn| (turn.line, turn.turn_id)).collect::<Vec<_>>(), [(2, 1), (1, 2)]);
    let mixed = format!("{}\n{}", row("\"turn_id\":1"), row("\"x\":1"));
    assert!(wrong(mixed).contains("t.jsonl:2: `turn_id`: is missing, but line 1 of the same session has one"));
}

#[test]
fn unusable_timestamps_are_all_listed() {
    let mut text = String::from(GOOD);
    for value in ["NaN", "Infinity", "1e999", "null", "-1", "\"1\"", "[1]", "1e30"] {
        text += &format!(
            "{{\"session_id\":\"x\",\"turn_id\":0,\"timestamp\":{value},\"input_length\":1,\"output_length\":1}}\n"
        );
    }
    let error = wrong(text);
    for (line, words) in [
        (4, "NaN is not a usable number"),
        (5, "Infinity is not"),
        (6, "1e999 is not a usable number"),
        (7, "is missing or null, but other rows have one"),
        (8, "-1 is negative"),
        (9, "\"1\" is not a number"),
        (10, "[1] is not a number"),
        (11, "1e30 is not a usable number"),
    ] {
        assert!(error.contains(&format!("t.jsonl:{line}: `timestamp`: {words}")), "{line} {error}");
    }
    assert!(error.starts_with("t.jsonl: 8 problems"), "{error}");
}

#[test]
fn a_file_without_any_timestamp_is_a_closed_loop() {
    let text = "{\"session_id\":\"a\",\"input_length\":9,\"output_length\":1}\n{\"session_id\":\"b\",\"timestamp\":null,\"input_length\":9,\"output_length\":1}";
    let trace = read(text).unwrap();
    assert_eq!(codes(&trace), ["no-timestamps", "ids-minted"]);
    assert_eq!((trace.span(), trace.meta.origin_ns, trace.meta.block_size_source.as_str()), (Dur::ZERO, 0, "default"));
}

#[test]
fn lengths_are_checked_by_line_and_field() {
    let base = |from: &str, to: &str| wrong(row("\"turn_id\":1").replace(from, to));
    for (from, to, words) in [
        ("\"input_length\":10", "\"input_length\":0", "t.jsonl:1: `input_length`: is 0"),
        ("\"input_length\":10", "\"input_length\":4294967296", "`input_length`: 4294967296 is too large"),
        (
            "\"input_length\":10",
            "\"input_length\":4294967285",
            "`input_length`: 4294967285 is above the limit of 100000000",
        ),
        ("\"output_length\":1", "\"output_length\":100000001", "`output_length`: 100000001 is above the limit"),
        ("\"turn_id\":1", "\"output_length\":1", "`output_length`: is given twice in this row; keep one"),
        ("\"turn_id\":1", "\"timestamp\":null", "`timestamp`: is given twice in this row; keep one"),
        ("input_length", "Input_Length", "t.jsonl:1: `Input_Length`: is not a field; write `input_length`"),
        ("timestamp", "timeStamp", "`timeStamp`: is not a field; write `timestamp`"),
        ("turn_id", "hashIds", "`hashIds`: is not a field; write `hash_ids`"),
        ("\"input_length\":10", "\"input_length\":-4", "`input_length`: -4 is negative"),
        ("\"input_length\":10", "\"input_length\":12.5", "`input_length`: 12.5 is not a whole number"),
        ("\"input_length\":10", "\"input_length\":\"10\"", "`input_length`: \"10\" is not a number"),
        ("\"input_length\":10", "\"other\":10", "`input_length`: is missing"),
        ("\"output_length\":1", "\"output_length\":null", "`output_length`: is missing"),
        ("\"turn_id\":1", "\"turn_id\":true", "`turn_id`: true is not a number"),
        ("\"turn_id\":1", "\"cached_tokens\":11", "`cached_tokens`: 11 exceeds the prompt of 10 tokens"),
        ("\"turn_id\":1", "\"hash_ids\":[-1]", "`hash_ids`: `-1` is not a whole number"),
        (
            "\"turn_id\":1",
            "\"hash_ids\":[18446744073709551616]",
            "`hash_ids`: `18446744073709551616` is not a whole number",
        ),
        ("\"turn_id\":1", "\"hash_ids\":\"1\"", "`hash_ids`: \"1\" is not a list"),
        ("\"turn_id\":1", "\"request_id\":[1]", "`request_id`: [1] is neither a string nor a whole number"),
        ("\"session_id\":\"a\"", "\"session_id\":1.5", "`session_id`: 1.5 is neither"),
        ("\"session_id\":\"a\"", "\"session_id\":\"\"", "`session_id`: is empty"),
    ] {
        let error = base(from, to);
        assert!(error.contains(words), "{to}: {error}");
    }
    let trace = read(row("\"turn_id\":1").replace("\"output_length\":1", "\"output_length\":0")).unwrap();
    assert!(trace.turns[0].output_raised && trace.turns[0].output_length == 1);
    assert!(text_of(&trace, "zero-outputs-raised").contains("line 1"));
}

#[test]
fn broken_json_names_line_and_column() {
    let error = wrong(format!("{GOOD}\n{{\"session_id\": \"s\", \"turn_id\" 1}}"));
    assert!(error.contains("t.jsonl:5:31: is not valid JSON: expected `:`"), "{error}");
    let nested = wrong(row("\"hash_ids\":[[1],2]"));
    assert!(nested.contains("t.jsonl:1:"), "{nested}");
    let mut bytes = GOOD.as_bytes().to_vec();
    bytes.extend(b"{\"session_id\":\"\xff\"}");
    assert!(wrong(bytes).contains("t.jsonl:4: is not UTF-8 text"));
}

#[test]
fn what_follows_an_object_on_its_line_is_named() {
    for (join, words) in [
        (",\n", "trailing characters; a comma follows the object, JSONL has none between rows"),
        (" ", "trailing characters; another object follows, write one a line"),
        ("\r", "trailing characters; the rows end in bare carriage returns, convert the line ends to newlines"),
        ("x\n", "is not valid JSON: trailing characters\n"),
    ] {
        let error = wrong(format!("{}{join}{}\n", row("\"turn_id\":1"), row("\"turn_id\":2"))) + "\n";
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn headers_in_other_places_and_of_other_formats_are_named() {
    let header = "{\"format\":\"pdreplay-trace\",\"version\":1,\"block_size\":64}\n";
    for (text, words) in [
        (
            format!("{header}{GOOD}{header}{GOOD}"),
            "t.jsonl:5: is a header line, but a header may only be the first line",
        ),
        (format!("{header}{header}{GOOD}"), "t.jsonl:2: is a header line"),
        (
            header.replace("pdreplay-trace", "other") + GOOD,
            "t.jsonl:1: looks like a header of format \"other\", which is not read",
        ),
        (
            header.replace("\"format\":\"pdreplay-trace\",", "") + GOOD,
            "t.jsonl:1: looks like a header without `format`",
        ),
    ] {
        let error = wrong(text);
        assert!(error.contains("1 problem in its rows") && error.contains(words), "{error}");
    }
    let row =
        "{\"session_id\":\"a\",\"format\":\"x\",\"version\":2,\"timestamp\":0,\"input_length\":9,\"output_length\":1}";
    assert_eq!(read(row).unwrap().turns.len(), 1, "a row may carry such fields");
}

#[test]
fn delays_in_place_of_all_times_are_refused() {
    let text = "{\"session_id\":\"x\",\"input_length\":100,\"output_length\":5}\n\
                {\"session_id\":\"x\",\"delay\":10,\"input_length\":200,\"output_length\":5}\n";
    let error = wrong(text);
    assert!(error.contains("1 problem") && error.contains("t.jsonl:2: `timestamp`: is missing; a `delay`"), "{error}");
    assert!(read(text.replace("10,", "null,")).is_ok());
}

#[test]
fn empty_id_lists_everywhere_are_no_ids() {
    let trace = read(row("\"hash_ids\":[]").replace(":10,", ":300,")).unwrap();
    assert_eq!((trace.meta.block_size, trace.meta.block_size_source.as_str()), (64, "default"));
    assert!(text_of(&trace, "ids-minted").starts_with("1 of 1 row has no `hash_ids`"), "{:?}", trace.notices);
    let one = read(row("\"hash_ids\":[7]").replace(":10,", ":300,")).unwrap();
    assert!(
        text_of(&one, "block-size-inferred").contains("fits 1 of 1 row (any from 151 up would)"),
        "{:?}",
        one.notices
    );
}

#[test]
fn the_longest_prompts_without_ids_are_read_and_too_many_blocks_refused() {
    let long =
        |session: u32| format!("{{\"session_id\":{session},\"input_length\":100000000,\"output_length\":100000000}}\n");
    assert_eq!(read(long(1)).unwrap().turns[0].prompt.depth, 1_562_500);
    let options = ReadOptions { block_size: Some(1), ..ReadOptions::default() };
    let text = long(1) + &long(2);
    let error = read_bytes("t", text.as_bytes(), &options).unwrap_err().to_string();
    assert!(error.contains("need more than 268435456 blocks of their own"), "{error}");
}

#[test]
fn the_list_of_problems_is_cut_but_counted() {
    let options = ReadOptions { max_errors: 3, ..ReadOptions::default() };
    let text = "{}\n".repeat(10);
    let TraceError::Rows(errors) = read_bytes("t", text.as_bytes(), &options).unwrap_err() else { panic!("rows") };
    assert_eq!((errors.listed.len(), errors.total), (3, 20));
    assert!(errors.to_string().ends_with("and 17 more"), "{errors}");
}

#[test]
fn other_kinds_of_file_are_named() {
    for (bytes, words) in [
        (&b""[..], "has no rows"),
        (b" \r\n\n", "has no rows"),
        (b"PAR1\x15\x04", "a Parquet file"),
        (b"ARROW1\0\0", "an Arrow file"),
        (b"PK\x03\x04", "a zip archive"),
        (b"\xff\xfe{\0", "UTF-16"),
        (b"{\0\"\0a\0", "UTF-16 text"),
        (b"\0{\0\"\0a", "UTF-16 text"),
        (b"\xff\xfe\0\0{\0\0\0", "UTF-32 text"),
        (b"{\0\0\0\"\0\0\0", "UTF-32 text"),
        (b"[{\"a\":1}]", "a JSON array"),
        (b"{\n \"a\": 1\n}", "JSON spread over several lines"),
        (b"\x7fELF\0\0", "a binary file"),
        (b"TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,3\n", "a CSV file"),
        (b"hello\n", "plain text"),
        (b"{\"chat_id\":1,\"timestamp\":1,\"input_length\":1,\"output_length\":1,\"turn\":1}", "a Bailian trace"),
    ] {
        assert!(wrong(bytes).contains(words), "{}", wrong(bytes));
    }
}

#[test]
fn the_unit_is_decided_per_file_and_said() {
    let file = |times: &[&str]| {
        let rows = times.iter().enumerate().map(|(at, time)| {
            format!("{{\"session_id\":\"q{at}\",\"turn_id\":0,\"timestamp\":{time},\"input_length\":100,\"output_length\":10}}\n")
        });
        rows.collect::<String>()
    };
    let whole = file(&["0", "250", "1500", "1750", "4000"]);
    let trace = read(&whole).unwrap();
    assert_eq!(seconds(&trace), [0.0, 250.0, 1500.0, 1750.0, 4000.0]);
    assert!(text_of(&trace, "timestamp-unit").contains("span 4000 s, mean arrival gap 1000 s"));
    assert!(text_of(&trace, "timestamp-unit-doubtful").contains("`--timestamp-unit ms`"));
    let options = ReadOptions { timestamp_unit: Some(TimeUnit::Millis), ..ReadOptions::default() };
    let trace = read_bytes("t", whole.as_bytes(), &options).unwrap();
    assert_eq!((seconds(&trace), trace.meta.timestamp_unit.as_str()), (vec![0.0, 0.25, 1.5, 1.75, 4.0], "ms"));
    assert!(text_of(&trace, "timestamp-unit").contains("span 4 s, mean arrival gap 1 s"));
    for (zeros, unit) in [("", "s"), ("000", "ms"), ("000000", "us"), ("000000000", "ns")] {
        let times = ["1785412800", "1785412801", "1785412804"].map(|time| format!("{time}{zeros}"));
        let trace = read(file(&times.each_ref().map(String::as_str))).unwrap();
        assert_eq!((seconds(&trace), trace.meta.timestamp_unit.as_str()), (vec![0.0, 1.0, 4.0], unit));
        assert_eq!(text_of(&trace, "timestamp-unit-doubtful"), "");
    }
}

#[test]
fn mooncake_rows_are_sessions_of_their_own() {
    let text = "{\"timestamp\": 27000, \"input_length\": 1030, \"output_length\": 52, \"hash_ids\": [46, 47, 2354]}\n\
                {\"timestamp\": 30000, \"input_length\": 1024, \"output_length\": 5, \"hash_ids\": [46, 47]}\n";
    let trace = read(text).unwrap();
    let ids: Vec<&str> = trace.sessions.iter().map(|session| session.id.as_str()).collect();
    assert_eq!((ids, seconds(&trace)), (vec!["row-1", "row-2"], vec![0.0, 3.0]));
    assert_eq!(
        (trace.meta.format.as_str(), trace.meta.block_size, trace.meta.block_size_source.as_str()),
        ("mooncake", 512, "format")
    );
    assert_eq!(trace.tree.common_depth(trace.turns[0].prompt, trace.turns[1].prompt), 2);
    let options = ReadOptions { format: Some(Format::Mooncake), ..ReadOptions::default() };
    let with_sessions = text.replace("{\"timestamp\"", "{\"session_id\": \"x\", \"timestamp\"");
    let trace = read_bytes("t", with_sessions.as_bytes(), &options).unwrap();
    assert_eq!((trace.sessions.len(), trace.meta.timestamp_unit.as_str(), trace.turns[1].turn_id), (1, "ms", 2));
    let mixed = format!("{GOOD}{text}");
    assert!(wrong(mixed).contains("t.jsonl:4: `session_id`: is missing"));
}

#[test]
fn incremental_rows_are_refused_with_the_reason() {
    let text = "{\"session_id\":\"x\",\"timestamp\":0,\"input_length\":1024,\"output_length\":5,\"hash_ids\":[1,2]}\n\
                {\"session_id\":\"x\",\"delay\":10,\"input_length\":600,\"output_length\":5,\"hash_ids\":[3,4]}\n";
    let error = wrong(text);
    assert!(error.starts_with("t.jsonl:2: incremental rows: session x"), "{error}");
    let whole = wrong(text.replace("600", "1500").replace("[3,4]", "[1,2,3]"));
    assert!(whole.contains("t.jsonl:2: `timestamp`: is missing; a `delay`"), "{whole}");
}

#[test]
fn a_wrong_block_size_is_seen_as_one() {
    let options = ReadOptions { block_size: Some(16), ..ReadOptions::default() };
    let error = read_bytes("t", GOOD.as_bytes(), &options).unwrap_err().to_string();
    assert!(
        error.contains("3 of 3 rows with ids do not fit blocks of 16") && error.contains("pass `--block-size 64`"),
        "{error}"
    );
    let trace = read(GOOD).unwrap();
    assert!(
        text_of(&trace, "block-size-inferred").contains("fits 3 of 3 rows (any from 55 to 66 would)"),
        "{:?}",
        trace.notices
    );
}

proptest! {
    #[test]
    fn damage_never_panics_and_is_named(at in 0usize..360, byte in any::<u8>(), cut in any::<bool>()) {
        let mut bytes = GOOD.as_bytes().to_vec();
        let at = at % bytes.len();
        if cut { bytes.truncate(at) } else { bytes[at] = byte }
        match read(&bytes) {
            Ok(trace) => prop_assert!(trace.turns.len() <= 3),
            Err(TraceError::Rows(errors)) => {
                prop_assert!(errors.listed.iter().all(|error| (1..=4).contains(&error.line)), "{}", errors);
            }
            Err(error) => prop_assert!(error.to_string().starts_with("t.jsonl"), "{}", error),
        }
    }

    #[test]
    fn damaged_packed_files_never_panic(at in 0usize..400, byte in any::<u8>()) {
        let mut packed = zstd::encode_all(GOOD.as_bytes(), 3).unwrap();
        let at = at % packed.len();
        packed[at] = byte;
        let _ = read(&packed);
    }
}
