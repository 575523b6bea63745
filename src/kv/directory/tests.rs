//! States of instances as a table of what happens and what follows; properties of plans.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::base::{Dur, Role, Time};

fn at(ms: u64) -> Time {
    Time::ZERO + Dur::from_millis(ms)
}

fn record(name: &str, port: u16, kind: InstanceType) -> InstanceRecord {
    InstanceRecord {
        name: name.into(),
        address: Endpoint { host: "h".into(), port },
        kind,
        current: None,
        backend: None,
        dp_size: 1,
        identity: Identity::Incarnation("i1".into()),
    }
}

/// What happens to instance `a`.
#[derive(Debug, Clone, Copy)]
enum Happens {
    Put,
    PutOther,
    LeaseLost,
    LeaseLostOfOther,
    Withdrawn,
    Beat,
    BeatOfOther,
    ProbeOk,
    ProbeFails,
    Nothing,
}

/// When, in milliseconds, and what.
type History = [(u64, Happens)];

fn input(happens: Happens, probe: u64) -> Option<TableInput> {
    let name = || "a".to_owned();
    let other = || Identity::Incarnation("i2".into());
    let beat = |id: &str| TableInput::Heartbeat { name: name(), incarnation: Some(id.into()), load: None };
    let registered = record("a", 8000, InstanceType::Prefill);
    Some(match happens {
        Happens::Put => TableInput::Put(registered),
        Happens::PutOther => TableInput::Put(InstanceRecord { identity: other(), ..registered }),
        Happens::LeaseLost => TableInput::LeaseLost { name: name(), identity: registered.identity },
        Happens::LeaseLostOfOther => TableInput::LeaseLost { name: name(), identity: other() },
        Happens::Withdrawn => TableInput::Withdrawn { name: name() },
        Happens::Beat => beat("i1"),
        Happens::BeatOfOther => beat("i2"),
        Happens::ProbeOk => TableInput::Probed { probe, healthy: true },
        Happens::ProbeFails => TableInput::Probed { probe, healthy: false },
        Happens::Nothing => return None,
    })
}

/// Plays a history; what the table tells, with `probe` for a question.
fn play(history: &History) -> Vec<String> {
    let mut table = InstanceTable::new();
    let (mut probe, mut told) = (0, Vec::new());
    for (ms, happens) in history {
        match input(*happens, probe) {
            Some(input) => table.handle_input(at(*ms), input),
            None => table.advance(at(*ms)),
        }
        while let Some(output) = table.poll_output() {
            told.push(match output {
                TableOutput::Probe { probe: id, .. } => {
                    probe = id;
                    "probe".into()
                }
                TableOutput::Changed(change) => {
                    let name = |state: Option<InstanceState>| state.map_or("-", InstanceState::as_str);
                    format!("{}>{} {:?}", name(change.from), name(change.to), change.reason)
                }
            });
        }
    }
    told
}

#[test]
fn a_mark_before_the_configuration_is_skipped_and_an_array_is_named() {
    let whole = r#"{"discovery":{"event_port_offset":1,"replay_port_offset":2}}"#;
    let plain = KvEventsConfig::parse(whole.as_bytes(), "c.json");
    assert!(plain.is_ok(), "{plain:?}");
    assert_eq!(KvEventsConfig::parse(format!("\u{feff}{whole}").as_bytes(), "c.json"), plain);
    for text in ["[]", " \n[{}]", "null", "5", r#"{"discovery":[]}"#, r#"{"discovery":5}"#, r#"{"streams":[[]]}"#] {
        let refused = KvEventsConfig::parse(text.as_bytes(), "c.json").unwrap_err().to_string();
        assert!(refused.starts_with("c.json") && refused.contains("expected an object"), "{text} gave {refused}");
        assert!(!refused.contains("Raw"), "{refused}");
    }
}

#[test]
fn states_follow_leases_probes_and_heartbeats() {
    use Happens::{
        Beat, BeatOfOther, LeaseLost, LeaseLostOfOther, Nothing, ProbeFails, ProbeOk, Put, PutOther, Withdrawn,
    };
    let comes = "->ACTIVE Registered";
    let table: &[(&History, &[&str])] = &[
        (&[(0, Put), (5, Put), (9, Beat), (99_999, Nothing)], &[comes]),
        (&[(0, Put), (5, PutOther)], &[comes, "ACTIVE>- Replaced", comes]),
        (&[(0, Put), (5, Withdrawn), (6, Withdrawn), (7, Beat)], &[comes, "ACTIVE>- Withdrawn"]),
        (&[(0, Put), (5, LeaseLostOfOther), (99_999, Nothing)], &[comes]),
        (
            &[(0, Put), (5, LeaseLost), (6, LeaseLost), (7, ProbeOk)],
            &[comes, "probe", "ACTIVE>LEASE_LOST ProbeAnswered"],
        ),
        // Registering again ends the question; its answer is nobody's.
        (&[(0, Put), (5, LeaseLost), (6, Put), (7, ProbeFails), (9_999, Nothing)], &[comes, "probe"]),
        // Two attempts, a pause of 100 ms between them; silence of 1000 ms is an answer.
        (&[(0, Put), (5, LeaseLost), (1_004, Nothing), (1_005, Nothing), (1_104, Nothing)], &[comes, "probe"]),
        (
            &[(0, Put), (5, LeaseLost), (1_005, Nothing), (1_105, Nothing), (1_200, ProbeOk)],
            &[comes, "probe", "probe", "ACTIVE>LEASE_LOST ProbeAnswered"],
        ),
        (
            &[(0, Put), (0, LeaseLost), (10, ProbeFails), (110, Nothing), (120, ProbeFails)],
            &[comes, "probe", "probe", "ACTIVE>SUSPECT ProbeFailed"],
        ),
        // 3000 ms without a heartbeat, from the answer or the last heartbeat.
        (
            &[(0, Put), (0, LeaseLost), (10, ProbeOk), (3_009, Nothing)],
            &[comes, "probe", "ACTIVE>LEASE_LOST ProbeAnswered"],
        ),
        (
            &[(0, Put), (0, LeaseLost), (10, ProbeOk), (3_009, Beat), (3_010, BeatOfOther), (6_009, Nothing)],
            &[comes, "probe", "ACTIVE>LEASE_LOST ProbeAnswered", "LEASE_LOST>SUSPECT Silent"],
        ),
        // 15 s a suspect, from the moment it became one, however late somebody looks.
        (
            &[(0, Put), (0, LeaseLost), (10, ProbeOk), (18_010, Nothing)],
            &[
                comes,
                "probe",
                "ACTIVE>LEASE_LOST ProbeAnswered",
                "LEASE_LOST>SUSPECT Silent",
                "SUSPECT>- SuspectTooLong",
            ],
        ),
        (
            &[(0, Put), (0, LeaseLost), (10, ProbeOk), (18_009, Beat), (18_010, Put)],
            &[
                comes,
                "probe",
                "ACTIVE>LEASE_LOST ProbeAnswered",
                "LEASE_LOST>SUSPECT Silent",
                "SUSPECT>LEASE_LOST Heartbeat",
                "LEASE_LOST>ACTIVE Registered",
            ],
        ),
    ];
    for (history, told) in table {
        assert_eq!(play(history), *told, "{history:?}");
    }
}

#[test]
fn a_load_is_of_one_process() {
    let mut table = InstanceTable::new();
    let registered = record("a", 8000, InstanceType::Prefill);
    table.handle_input(at(0), TableInput::Put(registered.clone()));
    assert_eq!(table.get("a").unwrap().load, None);
    let load = LoadReport { waiting_requests_num: 3, gpu_cache_usage_perc: 0.5 };
    let heartbeat = TableInput::Heartbeat { name: "a".into(), incarnation: None, load: Some(load) };
    table.handle_input(at(7), heartbeat.clone());
    let heard = table.get("a").unwrap().load.unwrap();
    assert_eq!((heard.waiting_requests_num, heard.gpu_cache_usage_perc, heard.received), (3, 0.5, at(7)));
    table.handle_input(at(8), TableInput::Put(registered.clone()));
    assert!(table.get("a").unwrap().load.is_some(), "the same process");
    table.handle_input(at(9), TableInput::LoadGone { name: "a".into() });
    assert_eq!(table.get("a").unwrap().load, None);
    table.handle_input(at(10), heartbeat);
    table.handle_input(at(11), TableInput::Put(InstanceRecord { identity: Identity::Unknown, ..registered }));
    assert_eq!(table.get("a").unwrap().load, None, "another process");
}

#[test]
fn a_mix_decodes_first_where_nobody_does() {
    let mut table = InstanceTable::new();
    for name in ["a", "b"] {
        table.handle_input(at(0), TableInput::Put(record(name, 8000, InstanceType::Mix)));
    }
    let role = |table: &InstanceTable, name| table.get(name).unwrap().role;
    assert_eq!((role(&table, "a"), role(&table, "b")), (Role::Decode, Role::Prefill));
    table.handle_input(at(1), TableInput::Role { name: "a".into(), role: Role::Prefill });
    table.handle_input(at(1), TableInput::Put(record("w", 8000, InstanceType::Default)));
    table.handle_input(at(1), TableInput::Role { name: "w".into(), role: Role::Decode });
    assert_eq!((role(&table, "a"), role(&table, "w")), (Role::Prefill, Role::Colocated), "only a MIX changes its role");
}

/// Roles of the instances told at one moment, by name.
fn roles(instances: &[(&str, InstanceType, Option<Role>)], order: &[usize]) -> Vec<(String, Role)> {
    let mut table = InstanceTable::new();
    let put = |ix: &usize| {
        let (name, kind, current) = instances[*ix];
        TableInput::Put(InstanceRecord { current, ..record(name, 8000 + *ix as u16, kind) })
    };
    table.handle_inputs(at(0), order.iter().map(put));
    table.instances().map(|instance| (instance.record.name.clone(), instance.role)).collect()
}

proptest! {
    /// What one look finds is one state: nobody's role depends on the order in which it is told.
    #[test]
    fn roles_follow_from_what_there_is_and_from_no_order(
        kinds in prop::collection::vec((0usize..4, prop::option::of(prop::bool::ANY)), 1..6),
        order in Just((0..6).collect::<Vec<usize>>()).prop_shuffle(),
    ) {
        let names = ["a", "b", "c", "d", "e", "f"];
        let named = kinds.iter().zip(names).map(|((kind, decodes), name)| {
            let current = decodes.map(|decodes| if decodes { Role::Decode } else { Role::Prefill });
            let kind = InstanceType::ALL[*kind];
            (name, kind, current.filter(|_| kind == InstanceType::Mix))
        });
        let instances: Vec<_> = named.collect();
        let straight: Vec<usize> = (0..instances.len()).collect();
        let shuffled: Vec<usize> = order.into_iter().filter(|ix| *ix < instances.len()).collect();
        let found = roles(&instances, &straight);
        prop_assert_eq!(&found, &roles(&instances, &shuffled));
        let said = |(_, kind, current): &&(&str, InstanceType, Option<Role>)| {
            *kind == InstanceType::Decode || *current == Some(Role::Decode)
        };
        let is_unsaid = |(_, kind, current): &(&str, InstanceType, Option<Role>)| *kind == InstanceType::Mix && current.is_none();
        let decoding = instances.iter().filter(said).count();
        let first = instances.iter().find(|it| is_unsaid(it)).filter(|_| decoding == 0);
        for (instance, (name, role)) in instances.iter().zip(&found).filter(|(instance, _)| is_unsaid(instance)) {
            let wanted = if first.is_some_and(|first| first.0 == instance.0) { Role::Decode } else { Role::Prefill };
            prop_assert_eq!(*role, wanted, "{}", name);
        }
    }
}

#[test]
fn a_listing_with_a_mix_before_or_behind_its_decoder_is_the_same() {
    for [mix, decoder] in [["a", "z"], ["z", "a"]] {
        let text = format!(
            r#"{{"instances":[{{"name":"{mix}:1","type":"MIX","load":{{"waiting_requests_num":3,"gpu_cache_usage_perc":0.5}}}},{{"name":"{decoder}:1","type":"DECODE"}}]}}"#
        );
        let mut directory = Directory::new(&rules(128, (10_000, 30_000)), at(0));
        let news = Listing::new("r.json").look(Ok(text.into_bytes()));
        let input = |news| match news {
            News::Table(input) => input,
            other => panic!("{other:?}"),
        };
        directory.handle_inputs(at(0), news.into_iter().map(input));
        let followed: Vec<String> = directory.streams().map(|stream| stream.key.instance.clone()).collect();
        assert_eq!(followed, [format!("{mix}:1")]);
        assert!(directory.table().get(&followed[0]).unwrap().load.is_some(), "its load came behind its registration");
        assert_eq!(directory.excluded()[&format!("{decoder}:1")], Exclusion::Decodes);
    }
}

#[test]
fn who_is_left_out_by_rule_is_named_with_the_reason() {
    let mut directory = Directory::new(&rules(128, (10_000, 30_000)), at(0));
    let of = |backend: &str, name: &str, port, kind| {
        TableInput::Put(InstanceRecord { backend: Some(backend.into()), ..record(name, port, kind) })
    };
    let prefill = InstanceType::Prefill;
    let inputs =
        [of("sglang", "b", 1, prefill), of("xllm", "c", 2, prefill), of("sglang", "z", 3, InstanceType::Decode)];
    directory.handle_inputs(at(0), inputs);
    let told: Vec<(String, String)> =
        directory.excluded().iter().map(|(name, why)| (name.clone(), why.to_string())).collect();
    let named = |name: &str, why: &str| (name.to_owned(), why.to_owned());
    assert_eq!(told, [named("b", "backend sglang, the dialect is xllm"), named("z", "it decodes")]);
    assert!(directory.excluded().values().all(Exclusion::is_by_rule));
    while directory.poll_output().is_some() {}
    for (kind, backend, reason) in
        [(InstanceType::Decode, "xllm", DropReason::Role), (prefill, "vllm", DropReason::Backend)]
    {
        directory.handle_input(at(2_000), of("xllm", "c", 2, prefill));
        directory.refresh(at(2_000));
        while directory.poll_output().is_some() {}
        directory.handle_input(at(2_001), of(backend, "c", 2, kind));
        directory.refresh(at(2_001));
        let told: Vec<_> = std::iter::from_fn(|| directory.poll_output()).collect();
        let key = StreamKey { instance: "c".into(), dp_rank: 0 };
        assert!(told.contains(&DirectoryOutput::Unsubscribe { key, reason }), "{told:?}");
    }
}

/// One registration: name, port, type, ranks, process.
type Registered = (u8, u16, usize, u32, u8);

fn history() -> impl Strategy<Value = Vec<(Registered, bool)>> {
    let ports = prop_oneof![8_000..8_006_u16, 55_530..55_540_u16];
    prop::collection::vec(((0..6_u8, ports, 0..4_usize, 1..5_u32, 0..3_u8), any::<bool>()), 1..40)
}

fn rules(max_streams: u32, offsets: (u16, u16)) -> KvEventsConfig {
    let text = format!(
        r#"{{"max_streams":{max_streams},"discovery":{{"event_port_offset":{},"replay_port_offset":{}}}}}"#,
        offsets.0, offsets.1
    );
    KvEventsConfig::parse(text.as_bytes(), "c.json").unwrap()
}

/// Follows what a directory tells, as a subscriber would.
fn follow(directory: &mut Directory, followed: &mut BTreeMap<StreamKey, Subscription>) -> usize {
    let mut words = 0;
    while let Some(output) = directory.poll_output() {
        match output {
            DirectoryOutput::Subscribe(stream) => {
                let open: Vec<&Endpoint> = followed
                    .values()
                    .flat_map(|stream| [Some(&stream.events), stream.replay.as_ref()])
                    .flatten()
                    .collect();
                assert!(!open.contains(&&stream.events), "two streams on {}", stream.events);
                assert!(!stream.replay.iter().any(|replay| open.contains(&replay) || *replay == stream.events));
                assert_eq!(followed.insert(stream.key.clone(), stream), None, "one stream a rank");
                words += 1;
            }
            DirectoryOutput::Unsubscribe { key, .. } => {
                assert!(followed.remove(&key).is_some(), "what is left was followed");
                words += 1;
            }
            DirectoryOutput::Excluded { .. } => words += 1,
            DirectoryOutput::State(_) | DirectoryOutput::Readmitted { .. } | DirectoryOutput::Probe { .. } => {}
        }
    }
    words
}

proptest! {
    #[test]
    fn no_address_is_followed_twice_and_instances_are_whole(
        history in history(), max_streams in 1..8_u32, offsets in prop_oneof![Just((10_000, 30_000)), Just((10_000, 10_002))],
    ) {
        let config = rules(max_streams, offsets);
        let mut directory = Directory::new(&config, at(0));
        let mut followed = BTreeMap::new();
        for (ix, ((name, port, kind, dp_size, process), withdraw)) in history.into_iter().enumerate() {
            let now = at(ix as u64 * 500);
            let name = format!("n{name}");
            let input = if withdraw && ix % 3 == 0 {
                TableInput::Withdrawn { name }
            } else {
                let identity = Identity::Incarnation(process.to_string());
                TableInput::Put(InstanceRecord { dp_size, identity, ..record(&name, port, InstanceType::ALL[kind]) })
            };
            directory.handle_input(now, input);
            follow(&mut directory, &mut followed);
            directory.refresh(now);
            follow(&mut directory, &mut followed);
            directory.refresh(now);
            prop_assert_eq!(follow(&mut directory, &mut followed), 0, "a second look tells nothing");
            prop_assert!(followed.len() <= max_streams as usize);
            prop_assert!(directory.streams().eq(followed.values()));
            for instance in directory.table().instances() {
                let name = &instance.record.name;
                let ranks = followed.keys().filter(|key| key.instance == *name).count() as u32;
                let is_excluded = directory.excluded().contains_key(name);
                let wanted = if instance.role == Role::Decode || is_excluded { 0 } else { instance.record.dp_size };
                prop_assert_eq!(ranks, wanted, "{}", name);
            }
        }
    }

    #[test]
    fn any_text_is_taken_or_refused(text in "\\PC{0,60}", key in "[a-z_]{1,12}", number in any::<i64>()) {
        let words = [text.clone(), format!("{{\"{key}\":{number}}}"), format!("{{\"discovery\":{{\"{key}\":{number}}}}}")];
        for word in words {
            if let Err(errors) = KvEventsConfig::parse(word.as_bytes(), "c.json") {
                prop_assert!(!errors.problems.is_empty());
            }
            let mut listing = Listing::new("r.json");
            listing.look(Ok(word.clone().into_bytes()));
            KeyMirror::new("").put("XLLM:PREFILL:h:1", word.as_bytes());
        }
    }
}

/// Instances by name and port, as a registry's states that follow each other.
fn state(instances: &[(&str, u16)]) -> Vec<TableInput> {
    instances.iter().map(|(name, port)| TableInput::Put(record(name, *port, InstanceType::Prefill))).collect()
}

#[test]
fn no_stream_is_followed_that_no_state_of_the_registry_describes() {
    let config = br#"{"discovery":{"event_port_offset":1,"replay_port_offset":2,"refresh_interval_ms":500}}"#;
    let config = KvEventsConfig::parse(config, "c.json").unwrap();
    // A refresh is due whenever a state arrives, so it would look between two words of it.
    let (mut directory, mut now) = (Directory::new(&config, at(0)), 0);
    let collision = state(&[("v0", 25_000), ("v1", 25_000)]);
    let alone = [state(&[("v0", 65_000)]), vec![TableInput::Withdrawn { name: "v1".into() }]].concat();
    let mut followed = Vec::new();
    for inputs in [&alone, &collision, &alone, &collision] {
        now += 500;
        directory.handle_inputs(at(now), inputs.clone());
        while let Some(output) = directory.poll_output() {
            if let DirectoryOutput::Subscribe(stream) = output {
                followed.push(stream.events.to_string());
            }
        }
    }
    assert_eq!(followed, ["tcp://h:65001", "tcp://h:65001"]);
}

/// Instances that have an address not theirs alone, by making every address: what the rules must find without.
fn sharing(rules: &Discovery, instances: &[InstanceRecord]) -> BTreeMap<String, (Endpoint, Vec<String>)> {
    let mut owners: BTreeMap<Endpoint, Vec<&str>> = BTreeMap::new();
    for record in instances {
        for offset in [rules.event_port_offset, rules.replay_port_offset] {
            for rank in 0..record.dp_size {
                let endpoint = record.address.moved_by(u64::from(offset) + u64::from(rank)).unwrap();
                owners.entry(endpoint).or_default().push(&record.name);
            }
        }
    }
    let mut found = BTreeMap::new();
    for (endpoint, names) in owners.into_iter().filter(|(_, names)| names.len() > 1) {
        let distinct: std::collections::BTreeSet<&str> = names.into_iter().collect();
        let all: Vec<String> = distinct.iter().map(|&name| name.to_owned()).collect();
        for name in distinct {
            found.entry(name.to_owned()).or_insert((endpoint.clone(), all.clone()));
        }
    }
    found
}

proptest! {
    #[test]
    fn collisions_are_those_of_all_addresses(
        instances in prop::collection::vec((0u16..20, 1u32..6, 0u8..2), 0..12),
        offsets in prop_oneof![Just((100, 200)), Just((100, 103)), Just((103, 100))],
    ) {
        let config = rules(128, offsets);
        let Source::Discovery(discovery) = &config.source else { unreachable!() };
        let records: Vec<InstanceRecord> = instances
            .into_iter()
            .enumerate()
            .map(|(ix, (port, dp_size, host))| {
                let address = Endpoint::parse_http(&format!("h{host}:{}", 1000 + port)).unwrap();
                InstanceRecord { dp_size, address, ..record(&format!("n{ix:02}"), 1, InstanceType::Prefill) }
            })
            .collect();
        let mut directory = Directory::new(&config, at(0));
        records.iter().for_each(|record| directory.handle_input(at(0), TableInput::Put(record.clone())));
        directory.refresh(at(0));
        let wanted = sharing(discovery, &records);
        let found: BTreeMap<String, (Endpoint, usize)> = directory
            .excluded()
            .iter()
            .map(|(name, exclusion)| match exclusion {
                Exclusion::Collision { endpoint, instances, others } => {
                    prop_assert_eq!(&wanted[name].1[..instances.len()], instances.as_slice());
                    Ok((name.clone(), (endpoint.clone(), instances.len() + others)))
                }
                other => panic!("{other}"),
            })
            .collect::<Result<_, TestCaseError>>()?;
        let wanted = wanted.into_iter().map(|(name, (endpoint, all))| (name, (endpoint, all.len()))).collect();
        prop_assert_eq!(found, wanted);
    }
}

/// With an address for each rank they would be gigabytes.
#[test]
fn instances_of_absurd_size_cost_no_more_than_themselves() {
    let mut directory = Directory::new(&rules(128, (10_000, 30_000)), at(0));
    for ix in 0..2_000 {
        let record = InstanceRecord { dp_size: 20_000, ..record(&format!("n{ix}"), 8000, InstanceType::Prefill) };
        directory.handle_input(at(0), TableInput::Put(record));
    }
    let good =
        InstanceRecord { address: Endpoint::parse_http("good:1").unwrap(), ..record("n", 1, InstanceType::Prefill) };
    directory.handle_input(at(0), TableInput::Put(good));
    directory.refresh(at(1));
    assert_eq!((directory.streams().count(), directory.excluded().len()), (1, 2_000));
    assert_eq!(directory.excluded()["n7"], Exclusion::MaxStreams { ranks: 20_000, taken: 0, most: 128 });
}

/// A plan is made of what changed alone: a load is no reason to make one.
#[test]
fn only_what_matters_to_streams_makes_another_revision() {
    let mut directory = Directory::new(&rules(128, (10_000, 30_000)), at(0));
    directory.handle_input(at(0), TableInput::Put(record("n", 8000, InstanceType::Mix)));
    let before = directory.table().revision();
    let load = Some(LoadReport { waiting_requests_num: 1, gpu_cache_usage_perc: 0.5 });
    let name = || "n".to_owned();
    directory.handle_input(at(1), TableInput::Heartbeat { name: name(), incarnation: None, load });
    directory.handle_input(at(1), TableInput::LoadGone { name: name() });
    assert_eq!(directory.table().revision(), before);
    let mut last = before;
    for input in [
        TableInput::Role { name: name(), role: Role::Prefill },
        TableInput::Put(InstanceRecord { dp_size: 2, ..record("n", 8000, InstanceType::Mix) }),
        TableInput::Withdrawn { name: name() },
    ] {
        directory.handle_input(at(2), input);
        assert!(directory.table().revision() > last);
        last = directory.table().revision();
    }
}

#[test]
fn a_name_or_address_of_any_length_is_told_in_a_short_line() {
    let long = "n".repeat(1 << 20);
    let texts = [
        format!(r#"{{"instances":[{{"name":"{long}","http_address":"h:1","type":0}}]}}"#),
        format!(r#"{{"instances":[{{"name":"n","http_address":"{long}","type":0}}]}}"#),
        format!(r#"{{"instances":[{{"name":"n:1","type":"{long}"}}]}}"#),
        format!(r#"{{"instances":[{{"name":"n:1","type":0,"{long}":0}}]}}"#),
        format!(r#"{{"instances":"{long}"}}"#),
    ];
    for text in texts {
        let told = Listing::new("r.json").look(Ok(text.clone().into_bytes()));
        let [News::Notice(said)] = &told[..] else { panic!("{told:?}") };
        assert!(said.len() < 600, "{} bytes", said.len());
        let told = KeyMirror::new("").put("XLLM:PREFILL:h:1", text.as_bytes());
        assert!(told.iter().all(|news| !matches!(news, News::Notice(said) if said.len() > 600)));
    }
}

#[test]
fn a_listing_is_one_object_with_or_without_a_mark_before_it() {
    let good = r#"{"instances":[{"name":"h:1","type":0}]}"#;
    let mut listing = Listing::new("r.json");
    assert!(matches!(&listing.look(Ok(format!("\u{feff}{good}").into_bytes()))[..], [News::Table(TableInput::Put(_))]));
    for text in ["[]", r#"[[{"name":"h:1","type":0}]]"#, " [1]", "7", "null", "\u{feff}[]"] {
        let told = Listing::new("r.json").look(Ok(text.into()));
        let [News::Notice(said)] = &told[..] else { panic!("{text}: {told:?}") };
        assert!(said.contains("expected an object") && !said.contains("Raw"), "{text}: {said}");
    }
}
