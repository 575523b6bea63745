//! Limits of the decoder that no recorded vector reaches. The families of cases and properties are in `tests/it/kv/`.

use super::*;
use crate::kv::{BlockRemoved, Dialect, EngineHash, EventBatch, KvEvent, Tier};

/// `[1.0, [event, …]]`.
fn batch(events: &[Vec<u8>]) -> Vec<u8> {
    let mut payload = vec![0x92, 1, 0xdc];
    payload.extend((events.len() as u16).to_be_bytes());
    payload.extend(events.concat());
    payload
}

fn text(text: &[u8]) -> Vec<u8> {
    [&[0xda, (text.len() >> 8) as u8, text.len() as u8], text].concat()
}

/// A stored event without blocks that gives `group` its kind.
fn teaches(group: u16) -> Vec<u8> {
    let group = [&[0xcd][..], &group.to_be_bytes()].concat();
    let fields: [&[u8]; 5] = [b"\xa4type", b"\xabBlockStored", b"\xacblock_hashes", b"\x90", b"\xa9group_idx"];
    [&[0x84], &fields.concat()[..], &group, b"\xb2kv_cache_spec_kind", b"\xaefull_attention"].concat()
}

#[test]
fn only_so_many_attention_groups_are_remembered() {
    let mut decoder = Decoder::new(DecodeOptions::new(Dialect::Vllm, 4));
    let groups: Vec<Vec<u8>> = (0..1024).map(teaches).collect();
    assert_eq!(decoder.decode(&batch(&groups)).map(|batch| batch.events.len()), Ok(1024));
    // Those that are known are known still.
    assert!(decoder.decode(&batch(&groups[1000..])).is_ok());
    let error = decoder.decode(&batch(&[teaches(7), teaches(1024)])).expect_err("one group too many");
    assert_eq!((error.event, error.field), (Some(1), "group_idx"));
    assert_eq!(error.problem, DecodeProblem::TooManyGroups { limit: 1024 });
    decoder.reset();
    assert!(decoder.decode(&batch(&[teaches(1024)])).is_ok());
}

#[test]
fn a_long_text_is_cut_in_an_error() {
    let mut decoder = Decoder::new(DecodeOptions::new(Dialect::Xllm, 4));
    let event = [vec![0x91], text(&[b"\xff\n"[..].to_vec(), vec![b'x'; 500]].concat())].concat();
    let error = decoder.decode(&batch(&[event])).expect_err("no such type");
    let DecodeProblem::UnknownType { tag } = &error.problem else { panic!("{error}") };
    assert_eq!(*tag, format!("\u{fffd}\n{}", "x".repeat(62)));
    assert!(!error.to_string().contains('\n'), "one line: {error}");
}

#[test]
fn every_dialect_has_its_newest_form() {
    let current = [Dialect::Xllm, Dialect::Vllm, Dialect::Sglang].map(EncodeForm::current);
    assert_eq!(current, [EncodeForm::XLLM, EncodeForm::VLLM_0_26, EncodeForm::SGLANG_0_5_22]);
    for form in EncodeForm::ALL {
        let hosts = vec![KvEvent::Removed(BlockRemoved { hashes: vec![EngineHash(1)], tier: Tier::Host })];
        let batch = EventBatch { timestamp: 1.0, events: hosts.clone(), dp_rank: None, ignored: 0 };
        let payload = Encoder::new(form).batch(&batch);
        let decoded = Decoder::new(DecodeOptions::new(form.dialect(), 4)).decode(&payload).expect("our own bytes");
        assert_eq!(decoded.events, if form.has_media() { hosts } else { Vec::new() }, "{}", form.name());
    }
}
