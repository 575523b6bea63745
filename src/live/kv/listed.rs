//! Streams that are listed by hand, held against the workers of a run before it begins: a wrong name, or hits that no
//! choice will count, would make it a run by load alone, which looks almost as good.

use std::collections::BTreeSet;

use thiserror::Error;

use crate::base::WorkerId;
use crate::kv::directory::{KvEventsConfig, Source};
use crate::live::Addresses;

/// What a run makes of listed streams.
#[derive(Debug, Clone, Copy)]
pub struct ListedRules {
    /// Their hits count.
    pub count: bool,
    /// A run without any of them in step is an error (`kv_events.require`).
    pub require: bool,
}

/// No listed stream is of a worker of the run, and one has to be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "{}; correct instance_name in the file of kv_events.config, or set kv_events.require = false to go on by load alone",
    .0.join("; ")
)]
pub struct NobodysStreams(Vec<String>);

/// What should be known of the listed streams of `config` in a run on the workers of `addresses`, a sentence each.
/// Errors: none is of a worker, against the rules.
pub fn listed_hints(
    config: &KvEventsConfig,
    addresses: &Addresses,
    rules: ListedRules,
) -> Result<Vec<String>, NobodysStreams> {
    let Source::Streams(streams) = &config.source else { return Ok(Vec::new()) };
    let instances: BTreeSet<&str> = streams.iter().map(|stream| stream.instance.as_str()).collect();
    let (known, strange): (Vec<&str>, Vec<&str>) =
        instances.into_iter().partition(|instance| worker_of(addresses, instance).is_some());
    let names = addresses.names().join(", ");
    let nobodys = |name: &&str| format!("stream {name} names no worker; names are {names}, or a worker's URL");
    let mut hints: Vec<String> = strange.iter().map(nobodys).collect();
    if known.is_empty() && rules.require {
        return Err(NobodysStreams(hints));
    }
    if !known.is_empty() && !rules.count {
        let hint = "the streams of kv_events.config are listed by hand, and policy car counts no hits of such: set \
                    policy.car.static_streams = true, unless the run is to choose by load alone";
        hints.push(hint.to_owned());
    }
    Ok(hints)
}

/// The worker that an instance of streams is: by name, URL, or host and port.
pub(super) fn worker_of(addresses: &Addresses, instance: &str) -> Option<WorkerId> {
    addresses.named(instance).or_else(|| addresses.named(&format!("http://{instance}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live::Endpoint;

    fn hints(instances: &[&str], count: bool, require: bool) -> Result<Vec<String>, NobodysStreams> {
        let endpoint = |port| Endpoint { url: format!("http://h:{port}"), bootstrap_port: None };
        let addresses = Addresses { prefill: vec![endpoint(1), endpoint(2)], ..Addresses::default() };
        let stream = |(at, name): (usize, &&str)| {
            serde_json::json!({
                "instance_name": name, "block_size": 64, "topic": "xllm-kv",
                "endpoint": format!("tcp://s{at}:5"), "replay_endpoint": format!("tcp://s{at}:6"),
            })
        };
        let streams: Vec<_> = instances.iter().enumerate().map(stream).collect();
        let text = serde_json::json!({ "streams": streams }).to_string();
        let config = KvEventsConfig::parse(text.as_bytes(), "kv.json").unwrap();
        listed_hints(&config, &addresses, ListedRules { count, require })
    }

    #[test]
    fn a_name_that_is_no_workers_is_told_and_refused_where_a_stream_is_required() {
        let strange = "stream XP0 names no worker; names are P0, P1, or a worker's URL";
        assert_eq!(hints(&["XP0"], true, false), Ok(vec![strange.to_owned()]));
        assert_eq!(hints(&["XP0"], false, false), Ok(vec![strange.to_owned()]), "one cause at a time");
        assert_eq!(hints(&["XP0", "P1"], true, true), Ok(vec![strange.to_owned()]), "one is enough");
        let refused = hints(&["XP0"], true, true).unwrap_err().to_string();
        assert!(refused.starts_with(strange) && refused.contains("kv_events.require = false"), "{refused}");
    }

    #[test]
    fn names_urls_and_ports_are_workers_and_hits_that_do_not_count_are_told() {
        for name in ["P0", "http://h:2", "h:1"] {
            assert_eq!(hints(&[name], true, true), Ok(Vec::new()), "{name}");
            let told = hints(&[name], false, true).unwrap();
            assert!(told.len() == 1 && told[0].contains("policy.car.static_streams = true"), "{told:?}");
        }
    }
}
