//! The codec: recorded vectors of every release, cases W1 to W16 and more, cases 74 and 75, and encoding as it was decoded.

use std::fs;

use pdreplay::kv::wire::{
    DecodeOptions, Decoder, EncodeForm, Encoder, FrameError, ReplayReply, end_frames, live_frames, parse_live,
    parse_replay, parse_request, replay_frames, request_frames,
};
use pdreplay::kv::{BlockRemoved, BlockStored, Dialect, EngineHash, EventBatch, KvEvent, Tier};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::batches;
use crate::run::{case_path, root};

fn data(file: &str) -> Value {
    let text = fs::read_to_string(root().join("tests/data/kv").join(file)).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().unwrap();
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn frames(hex: &Value) -> Vec<Vec<u8>> {
    hex.as_array().unwrap().iter().map(bytes).collect()
}

fn dialect(name: &Value) -> Dialect {
    serde_json::from_value(name.clone()).unwrap()
}

fn hashes(hashes: &[EngineHash]) -> Vec<u64> {
    hashes.iter().map(|hash| hash.0).collect()
}

/// An event as the data files write it.
fn written(event: &KvEvent) -> Value {
    match event {
        KvEvent::Stored(stored) => json!({"stored": {
            "hashes": hashes(&stored.hashes), "parent": stored.parent.map(|parent| parent.0), "tokens": stored.tokens,
            "block_size": stored.block_size, "tier": stored.tier, "bigram": stored.bigram,
        }}),
        KvEvent::Removed(removed) => json!({"removed": {"hashes": hashes(&removed.hashes), "tier": removed.tier}}),
        KvEvent::Cleared => json!("cleared"),
        KvEvent::Foreign { hashes: blocks } => json!({"foreign": hashes(blocks)}),
    }
}

fn check_message(decoder: &mut Decoder, message: &Value, name: &str) {
    if message["reset"] == true {
        decoder.reset();
    }
    let decoded = decoder.decode(&bytes(&message["hex"]));
    if let Some(words) = message["error"].as_str() {
        let error = decoded.expect_err(name).to_string();
        assert!(error.contains(words), "{name}: {error:?} does not say {words:?}");
        return;
    }
    let batch = decoded.unwrap_or_else(|error| panic!("{name}: {error}"));
    let events: Vec<Value> = batch.events.iter().map(written).collect();
    assert_eq!(json!(events), message["events"], "{name}");
    assert_eq!(json!(batch.ignored), message["ignored"], "{name}");
}

#[test]
fn cases_w1_to_w16_and_more_batches() {
    for case in data("wire.json")["batches"].as_array().unwrap() {
        let mut options = DecodeOptions::new(dialect(&case["dialect"]), 4);
        options.dp_rank = case["rank"].as_u64().map(|rank| rank as u32);
        if let Some(limit) = case["max_message_bytes"].as_u64() {
            options.max_message_bytes = limit as usize;
        }
        let mut decoder = Decoder::new(options);
        for message in case["messages"].as_array().unwrap() {
            check_message(&mut decoder, message, case["name"].as_str().unwrap());
        }
    }
}

/// Sequence of a message (none for the end of a replay) and the other frame that matters.
fn parse(kind: &str, frames: &[Vec<u8>]) -> Result<(Option<u64>, Option<String>), FrameError> {
    let text = |bytes: &[u8]| Some(String::from_utf8(bytes.to_vec()).unwrap());
    Ok(match kind {
        "live" => {
            let live = parse_live(frames)?;
            assert_eq!(live.payload, frames[2]);
            (Some(live.sequence), text(live.topic))
        }
        "replay" => match parse_replay(frames)? {
            ReplayReply::End => (None, None),
            ReplayReply::Batch { topic, sequence, payload } => {
                assert_eq!(Some(payload), frames.last().map(Vec::as_slice));
                assert_eq!(topic, (frames.len() == 4).then(|| frames[1].as_slice()));
                (Some(sequence), None)
            }
        },
        "request" => {
            let request = parse_request(frames)?;
            (Some(request.from), text(request.identity))
        }
        other => panic!("{other} is no kind of message"),
    })
}

#[test]
fn cases_w11_to_w13_and_more_frames() {
    for case in data("wire.json")["frames"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let parsed = parse(case["kind"].as_str().unwrap(), &frames(&case["frames"]));
        if let Some(words) = case["error"].as_str() {
            let error = parsed.expect_err(name).to_string();
            assert!(error.contains(words), "{name}: {error:?} does not say {words:?}");
            continue;
        }
        let (sequence, text) = parsed.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(sequence, case["sequence"].as_u64(), "{name}");
        assert_eq!(sequence.is_none(), case["end"] == true, "{name}");
        assert_eq!(text.as_deref(), case["topic"].as_str().or(case["identity"].as_str()), "{name}");
    }
}

#[test]
fn frames_come_back_as_they_went() {
    let live = live_frames("kv", 7, vec![1]);
    assert_eq!(parse("live", &live), Ok((Some(7), Some("kv".into()))));
    for topic in [None, Some("kv")] {
        assert_eq!(parse("replay", &replay_frames(topic, 7, vec![1])), Ok((Some(7), None)));
        assert_eq!(parse("replay", &end_frames(topic)), Ok((None, None)));
    }
    let mut request = request_frames(258);
    request.insert(0, b"me".to_vec());
    assert_eq!(parse("request", &request), Ok((Some(258), Some("me".into()))));
}

/// What a vector says, by its own JSON: a second reading that shares nothing with the decoder.
fn meant(event: &Value) -> Value {
    const PLACES: [&str; 8] =
        ["type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "cache_salt"];
    let get = |key: &str| match event.as_array() {
        Some(array) if array[0] == "BlockRemoved" && key == "medium" => array.get(2).cloned().unwrap_or_default(),
        Some(array) => {
            let place = PLACES.iter().position(|place| *place == key).unwrap();
            array.get(place).cloned().unwrap_or_default()
        }
        None => event[key].clone(),
    };
    let hash = |hash: &Value| match hash["bin"].as_str() {
        Some(hex) => u64::from_str_radix(&hex[hex.len() - 16..], 16).unwrap(),
        None => hash.as_u64().unwrap_or_else(|| hash.as_i64().unwrap().cast_unsigned()),
    };
    let all = get("block_hashes").as_array().map(|all| all.iter().map(hash).collect::<Vec<_>>());
    let tier = match get("medium").as_str().unwrap_or("gpu").to_lowercase().as_str() {
        "gpu" => "device",
        _ => "host",
    };
    match get("type").as_str().unwrap() {
        "BlockStored" if !get("cache_salt").is_null() => json!({"foreign": all}),
        "BlockStored" => {
            let given = get("token_ids");
            let given = given.as_array().unwrap();
            let firsts = given.iter().map(|token| token.get(0).unwrap_or(token));
            let beyond = given.last().and_then(|token| token.get(1));
            let tokens: Vec<&Value> = firsts.chain(beyond).collect();
            let parent = Some(get("parent_block_hash")).filter(|parent| !parent.is_null()).map(|parent| hash(&parent));
            json!({"stored": {
                "hashes": all, "parent": parent, "tokens": tokens, "block_size": get("block_size"), "tier": tier,
                "bigram": beyond.is_some(),
            }})
        }
        "BlockRemoved" => json!({"removed": {"hashes": all, "tier": tier}}),
        _ => json!("cleared"),
    }
}

#[test]
fn every_recorded_vector_means_what_its_json_says() {
    let vectors = data("vectors.json");
    let vectors = vectors.as_object().unwrap();
    assert_eq!(vectors.len(), 26);
    for (name, vector) in vectors {
        let options = DecodeOptions::new(dialect(&json!(name.split(['-', ' ', '<']).next().unwrap())), 4);
        let batch = Decoder::new(options).decode(&bytes(&vector["hex"])).unwrap_or_else(|e| panic!("{name}: {e}"));
        let events: Vec<Value> = batch.events.iter().map(written).collect();
        let meant: Vec<Value> = vector["json"][1].as_array().unwrap().iter().map(meant).collect();
        assert_eq!(events, meant, "{name}");
        assert_eq!(batch.timestamp, 1.5, "{name}");
        assert_eq!(batch.dp_rank.map(u64::from), vector["json"][2].as_u64(), "{name}");
    }
}

#[test]
fn every_release_is_encoded_byte_for_byte() {
    let vectors = data("vectors.json");
    for (name, form) in [
        ("vllm-0.9.0 stored", EncodeForm::VLLM_0_9),
        ("vllm-0.9.0 removed", EncodeForm::VLLM_0_9),
        ("vllm cleared array", EncodeForm::VLLM_0_10),
        ("vllm-0.10..0.12 stored", EncodeForm::VLLM_0_10),
        ("vllm-0.10..0.16 removed", EncodeForm::VLLM_0_16),
        ("vllm-0.16 stored", EncodeForm::VLLM_0_16),
        ("vllm-0.20 stored group0", EncodeForm::VLLM_0_20),
        ("vllm-0.20..0.23 removed", EncodeForm::VLLM_0_22),
        ("vllm-0.22/0.23 stored kind", EncodeForm::VLLM_0_22),
        ("vllm-0.24..0.33 stored map", EncodeForm::VLLM_0_24),
        ("vllm cpu placeholder (tokenless)", EncodeForm::VLLM_0_26),
        ("vllm-0.24+ removed map", EncodeForm::VLLM_0_26),
        ("vllm-0.24+ cleared map", EncodeForm::VLLM_0_26),
        ("sglang<=0.5.5 stored", EncodeForm::SGLANG_0_4_7),
        ("sglang-0.5.9..0.5.16 stored", EncodeForm::SGLANG_0_5_9),
        ("sglang-0.5.9..0.5.16 removed", EncodeForm::SGLANG_0_5_18),
        ("sglang-0.5.20..0.5.23 stored map bigram", EncodeForm::SGLANG_0_5_20),
        ("sglang-0.5.20+ removed map", EncodeForm::SGLANG_0_5_22),
        ("xllm stored device", EncodeForm::XLLM),
        ("xllm stored host tokenless", EncodeForm::XLLM),
        ("xllm removed device", EncodeForm::XLLM),
        ("xllm cleared", EncodeForm::XLLM),
    ] {
        let recorded = bytes(&vectors[name]["hex"]);
        let batch = Decoder::new(DecodeOptions::new(form.dialect(), 4)).decode(&recorded).unwrap();
        assert_eq!(Encoder::new(form).batch(&batch), recorded, "{name} as {}", form.name());
    }
}

/// What is left of the stored blocks when all messages of a case have been decoded: hash and first token.
fn left(path: &str, dialect: Dialect) -> Vec<(u64, Option<u32>)> {
    let mut left = Vec::new();
    let mut decoder = Decoder::new(DecodeOptions { dp_rank: Some(0), ..DecodeOptions::new(dialect, 4) });
    for line in fs::read_to_string(case_path(path)).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["frames_hex"].is_null() {
            continue;
        }
        let frames = frames(&line["frames_hex"]);
        let live = parse_live(&frames).unwrap();
        assert_eq!((Some(live.sequence), live.topic), (line["meaning"]["seq"].as_u64(), b"xllm-kv".as_slice()));
        for event in decoder.decode(live.payload).unwrap().events {
            match event {
                KvEvent::Stored(BlockStored { hashes, tokens, block_size, tier: Tier::Device, .. }) => {
                    let firsts = tokens.iter().step_by(block_size as usize).copied();
                    left.extend(hashes.iter().map(|hash| hash.0).zip(firsts.map(Some)));
                }
                KvEvent::Removed(BlockRemoved { hashes, tier: Tier::Device }) => {
                    left.retain(|(hash, _)| !hashes.contains(&EngineHash(*hash)));
                }
                other => panic!("{path}: {other:?}"),
            }
        }
    }
    left
}

#[test]
fn case_74_maps_and_arrays_are_the_same_events() {
    for file in ["frames-map-extra", "frames-array", "frames-map-minimal"] {
        let path = format!("74-events-as-maps-and-as-arrays/{file}.jsonl");
        for dialect in [Dialect::Xllm, Dialect::Vllm, Dialect::Sglang] {
            assert_eq!(left(&path, dialect), [(11, Some(1)), (12, Some(5))], "{path} {dialect:?}");
        }
    }
}

#[test]
fn case_75_hashes_in_every_integer_form() {
    let left = left("75-hash-values-in-every-integer-form/frames.jsonl", Dialect::Xllm);
    assert_eq!(left, [(100, Some(10)), (40_000, Some(20)), (0x1819_1a1b_1c1d_1e1f, Some(50))]);
}

proptest! {
    /// In every form, whichever way blocks are named.
    #[test]
    fn what_is_encoded_is_decoded(
        (form, batch) in batches::form().prop_flat_map(|form| (Just(form), batches::batch(form)))
    ) {
        let payload = Encoder::new(form).batch(&batch);
        // Blocks are as large as they are: none is a partial one.
        let mut decoder = Decoder::new(DecodeOptions::new(form.dialect(), 1));
        prop_assert_eq!(decoder.decode(&payload), Ok(batch));
    }
}

#[test]
fn what_a_release_cannot_say_is_left_out() {
    let removed = |tier| KvEvent::Removed(BlockRemoved { hashes: vec![EngineHash(1)], tier });
    let events = vec![removed(Tier::Device), removed(Tier::Host), KvEvent::Cleared];
    let batch = EventBatch { timestamp: 1.0, events, dp_rank: Some(2), ignored: 0 };
    let payload = Encoder::new(EncodeForm::VLLM_0_9).batch(&batch);
    let decoded = Decoder::new(DecodeOptions::new(Dialect::Vllm, 4)).decode(&payload).unwrap();
    assert_eq!((decoded.dp_rank, decoded.events), (None, vec![removed(Tier::Device), KvEvent::Cleared]));
}

/// JSON as MessagePack, in the widest forms.
fn packed(value: &Value, into: &mut Vec<u8>) {
    let head = |into: &mut Vec<u8>, mark: u8, len: usize| {
        into.push(mark);
        into.extend((len as u32).to_be_bytes());
    };
    match value {
        Value::Null => into.push(0xc0),
        Value::Bool(is) => into.push(0xc2 + u8::from(*is)),
        Value::Number(number) => match number.as_u64() {
            Some(whole) => into.extend([&[0xcf][..], &whole.to_be_bytes()].concat()),
            None => into.extend([&[0xcb][..], &number.as_f64().unwrap().to_be_bytes()].concat()),
        },
        Value::String(text) => {
            head(into, 0xdb, text.len());
            into.extend(text.as_bytes());
        }
        Value::Array(items) => {
            head(into, 0xdd, items.len());
            items.iter().for_each(|item| packed(item, into));
        }
        Value::Object(fields) => {
            head(into, 0xdf, fields.len());
            for (key, value) in fields {
                packed(&json!(key), into);
                packed(value, into);
            }
        }
    }
}

#[test]
fn the_examples_of_the_documentation_are_one_batch_in_every_dialect() {
    let text = fs::read_to_string(root().join("docs/kv-events.md")).unwrap();
    let (_, wire) = text.split_once("\n## Wire\n").unwrap();
    let examples: Vec<Value> = wire
        .split("```json\n")
        .skip(1)
        .map(|rest| serde_json::from_str(rest.split("```").next().unwrap()).unwrap())
        .collect();
    let is_map = |example: &Value| example[1][0].is_object();
    assert!(examples.len() == 2 && is_map(&examples[0]) && examples[1][1][0].is_array(), "{examples:#?}");
    let wanted = json!([
        {"stored": {"hashes": [1001, 1002], "parent": null, "tokens": [1, 2, 3, 4, 5, 6, 7, 8], "block_size": 4, "tier": "device", "bigram": false}},
        {"stored": {"hashes": [1001], "parent": null, "tokens": [], "block_size": 0, "tier": "host", "bigram": false}},
        {"removed": {"hashes": [1002], "tier": "device"}}, "cleared",
    ]);
    for dialect in [Dialect::Xllm, Dialect::Vllm, Dialect::Sglang] {
        for example in &examples {
            let mut bytes = Vec::new();
            packed(example, &mut bytes);
            let mut decoder =
                Decoder::new(DecodeOptions { dialect, block_size: 4, dp_rank: Some(0), max_message_bytes: 1 << 20 });
            let batch = decoder.decode(&bytes).unwrap();
            assert_eq!(batch.timestamp, 1_767_225_600.25);
            let events: Vec<Value> = batch.events.iter().map(written).collect();
            assert_eq!(json!(events), wanted, "{dialect:?}: {example}");
        }
    }
}
