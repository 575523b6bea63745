//! [`KeyMirror`]: the keys of the xLLM service's etcd namespace as inputs of the table.
//!
//! Layout of the public xLLM service: `XLLM:DEFAULT:`, `XLLM:PREFILL:`, `XLLM:DECODE:` or `XLLM:MIX:` and the instance's
//! name (its HTTP address), a registration as JSON; `XLLM:LOADMETRICS:` and the name, its load as JSON; all of it behind
//! `/NAMESPACE/` where there is one. The mirror knows what the registry last said, so that a whole listing after a broken
//! watch tells only what is different. Owns no connection.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use super::news::News;
use super::read::object;
use super::record::{InstanceRecord, InstanceType, LoadReport, MOST_SHOWN, RawRecord};
use super::table::TableInput;
use crate::base::{JsonFault, from_json, shortened};

const LOADS: &str = "XLLM:LOADMETRICS:";

/// See the module.
#[derive(Debug)]
pub struct KeyMirror {
    namespace: String,
    /// Registrations by key, as they could be read last.
    records: BTreeMap<String, Known>,
    /// Texts of loads by key.
    loads: BTreeMap<String, Vec<u8>>,
    /// What is wrong with keys, in words.
    troubles: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Known {
    text: Vec<u8>,
    record: Option<InstanceRecord>,
}

enum Key<'a> {
    Record(InstanceType, &'a str),
    Load(&'a str),
    Other,
}

fn prefix(kind: InstanceType) -> String {
    format!("XLLM:{}:", kind.as_str())
}

impl KeyMirror {
    /// Of a namespace as configured; empty: none.
    pub fn new(namespace: &str) -> KeyMirror {
        let namespace = match namespace.trim_matches('/') {
            "" => String::new(),
            name => format!("/{name}/"),
        };
        KeyMirror { namespace, records: BTreeMap::new(), loads: BTreeMap::new(), troubles: BTreeMap::new() }
    }

    /// Prefixes of the keys that matter, registrations before loads.
    pub fn prefixes(&self) -> Vec<String> {
        let kinds = InstanceType::ALL.into_iter().map(prefix);
        kinds.chain([LOADS.to_owned()]).map(|prefix| format!("{}{prefix}", self.namespace)).collect()
    }

    /// A key was written.
    pub fn put(&mut self, key: &str, text: &[u8]) -> Vec<News> {
        match self.kind_of(key) {
            Key::Record(kind, name) => {
                let read = read_record(name, kind, text);
                let trouble = read.as_ref().err().map(|why| format!("{why}; the instance stays as it was"));
                let put = read.iter().cloned().map(TableInput::Put).map(News::Table);
                let news = put.chain(self.note(key, trouble)).collect();
                let before = self.records.remove(key).and_then(|known| known.record);
                self.records.insert(key.to_owned(), Known { text: text.to_vec(), record: read.ok().or(before) });
                news
            }
            Key::Load(name) => {
                let read: Result<LoadReport, _> = from_value(text);
                let trouble = read.as_ref().err().map(|why| format!("{why}; the load stays as it was"));
                self.loads.insert(key.to_owned(), text.to_vec());
                read.into_iter().map(|load| heard(name, load)).chain(self.note(key, trouble)).collect()
            }
            Key::Other => Vec::new(),
        }
    }

    /// A key is gone, for whatever reason.
    pub fn delete(&mut self, key: &str) -> Vec<News> {
        let mended = self.note(key, None);
        self.removed(key).into_iter().map(News::Table).chain(mended).collect()
    }

    fn removed(&mut self, key: &str) -> Option<TableInput> {
        match self.kind_of(key) {
            Key::Record(_, name) => {
                let record = self.records.remove(key).and_then(|known| known.record)?;
                // An instance that changed its type is there under its other key.
                let other =
                    self.records.values().filter_map(|known| known.record.as_ref()).find(|other| other.name == name);
                Some(match other {
                    Some(other) => TableInput::Put(other.clone()),
                    None => TableInput::LeaseLost { name: record.name, identity: record.identity },
                })
            }
            Key::Load(name) => {
                self.loads.remove(key);
                Some(TableInput::LoadGone { name: name.to_owned() })
            }
            Key::Other => None,
        }
    }

    /// What is wrong with a key, of several with the first.
    pub fn trouble(&self) -> Option<String> {
        self.troubles.iter().next().map(|(key, why)| format!("registry key {key}: {why}"))
    }

    /// Notes what is wrong with a key now; what is to be told of it.
    fn note(&mut self, key: &str, trouble: Option<String>) -> Option<News> {
        if let Some(why) = trouble {
            self.troubles.insert(key.to_owned(), why.clone());
            return Some(News::Notice(format!("registry key {key}: {why}")));
        }
        self.troubles.remove(key)?;
        let mended = || News::Mended(format!("registry key {key}: what was wrong with it is over"));
        Some(self.trouble().map_or_else(mended, News::Notice))
    }

    /// All keys there are, after a time in which changes may have been missed. Keys that are as known are no news: what
    /// was written again unchanged does not count as a sign of life.
    pub fn relist(&mut self, keys: &[(String, Vec<u8>)]) -> Vec<News> {
        let listed: BTreeMap<&str, &[u8]> = keys.iter().map(|(key, text)| (key.as_str(), text.as_slice())).collect();
        let known = self.records.iter().map(|(key, known)| (key, &known.text)).chain(&self.loads);
        let is_gone = |key: &&String| !listed.contains_key(key.as_str());
        let gone: Vec<String> = known.map(|(key, _)| key).filter(is_gone).cloned().collect();
        let is_new = |key: &str, text: &[u8]| match (self.records.get(key), self.loads.get(key)) {
            (Some(known), _) => known.text != text,
            (None, Some(known)) => known != text,
            (None, None) => true,
        };
        let mut changed: Vec<(&str, &[u8])> = listed.into_iter().filter(|(key, text)| is_new(key, text)).collect();
        // Loads are of instances that must be there before.
        changed.sort_by_key(|(key, _)| matches!(self.kind_of(key), Key::Load(_)));
        let puts: Vec<News> = changed.into_iter().flat_map(|(key, text)| self.put(key, text)).collect();
        let deletes = gone.iter().flat_map(|key| self.delete(key)).collect();
        [puts, deletes].concat()
    }

    fn kind_of<'a>(&self, key: &'a str) -> Key<'a> {
        let Some(logical) = key.strip_prefix(&self.namespace) else { return Key::Other };
        if let Some(name) = logical.strip_prefix(LOADS) {
            return Key::Load(name);
        }
        let record = |kind| Some(Key::Record(kind, logical.strip_prefix(&prefix(kind))?));
        InstanceType::ALL.into_iter().find_map(record).unwrap_or(Key::Other)
    }
}

fn read_record(name: &str, kind: InstanceType, text: &[u8]) -> Result<InstanceRecord, String> {
    let raw: RawRecord = from_value(text)?;
    raw.record(name, Some(kind)).map_err(|why| shortened(&why, MOST_SHOWN))
}

/// The value of a key.
fn from_value<T: DeserializeOwned>(text: &[u8]) -> Result<T, String> {
    let told = |fault: JsonFault| shortened(&format!("{fault}; {}", fault.remedy()), MOST_SHOWN);
    from_json(object(text).map_err(str::to_owned)?).map_err(told)
}

fn heard(name: &str, load: LoadReport) -> News {
    News::Table(TableInput::Heartbeat { name: name.to_owned(), incarnation: None, load: Some(load) })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGINE: &str = r#"{"name":"h:8000","rpc_address":"h:9000","type":1,"dp_size":2,"incarnation_id":"i1",
        "register_ts_ms":5,"addrs":[],"cluster_ids":[1],"k_cache_ids":[],"v_cache_ids":[],"device_ips":[],"ports":[],
        "ttft_profiling_data":[[1,2.0]],"tpot_profiling_data":[]}"#;

    fn entry(key: &str, text: &str) -> (String, Vec<u8>) {
        (key.to_owned(), text.as_bytes().to_vec())
    }

    #[test]
    fn a_listing_tells_what_is_different() {
        let mut mirror = KeyMirror::new("prod/");
        assert_eq!(mirror.prefixes()[1], "/prod/XLLM:PREFILL:");
        let load = entry("/prod/XLLM:LOADMETRICS:h:8000", r#"{"waiting_requests_num":3,"gpu_cache_usage_perc":0.5}"#);
        let record = entry("/prod/XLLM:PREFILL:h:8000", ENGINE);
        let other = entry("/prod/XLLM:SERVICE:MASTER", "x");
        let all = [load.clone(), record.clone(), other];
        let told = mirror.relist(&all);
        let [News::Table(TableInput::Put(put)), News::Table(TableInput::Heartbeat { load: Some(heard), .. })] =
            &told[..]
        else {
            panic!("{told:?}")
        };
        assert_eq!((put.name.as_str(), put.dp_size, put.identity.incarnation()), ("h:8000", 2, Some("i1")));
        assert_eq!(heard.waiting_requests_num, 3);
        assert_eq!(mirror.relist(&all), [], "nothing is different");
        let told = mirror.relist(&[load]);
        assert!(matches!(&told[..], [News::Table(TableInput::LeaseLost { .. })]), "{told:?}");
        let told = mirror.relist(&[record]);
        assert!(
            matches!(&told[..], [News::Table(TableInput::Put(_)), News::Table(TableInput::LoadGone { .. })]),
            "{told:?}"
        );
    }

    #[test]
    fn an_instance_that_changed_its_type_is_not_lost() {
        let mut mirror = KeyMirror::new("");
        mirror.put("XLLM:PREFILL:h:8000", ENGINE.as_bytes());
        mirror.put("XLLM:MIX:h:8000", ENGINE.replace("\"type\":1", "\"type\":3").as_bytes());
        let told = mirror.delete("XLLM:PREFILL:h:8000");
        let [News::Table(TableInput::Put(put))] = &told[..] else { panic!("{told:?}") };
        assert_eq!(put.kind, InstanceType::Mix);
        assert!(matches!(mirror.delete("XLLM:MIX:h:8000")[..], [News::Table(TableInput::LeaseLost { .. })]));
        assert_eq!(mirror.delete("XLLM:MIX:h:8000"), []);
    }

    #[test]
    fn a_trouble_is_told_to_be_over_when_no_key_has_one() {
        let mut mirror = KeyMirror::new("");
        let keys = ["XLLM:PREFILL:h:8000", "XLLM:LOADMETRICS:h:8000"];
        keys.iter().for_each(|key| assert!(matches!(&mirror.put(key, b"{")[..], [News::Notice(_)])));
        let told = mirror.put(keys[0], ENGINE.as_bytes());
        let [News::Table(TableInput::Put(_)), News::Notice(other)] = &told[..] else { panic!("{told:?}") };
        assert_eq!((mirror.trouble().as_ref(), other.contains(keys[1])), (Some(other), true));
        let told = mirror.delete(keys[1]);
        assert!(matches!(&told[..], [News::Table(TableInput::LoadGone { .. }), News::Mended(_)]), "{told:?}");
        assert_eq!(mirror.trouble(), None);
    }

    #[test]
    fn what_cannot_be_read_changes_nothing() {
        let mut mirror = KeyMirror::new("");
        mirror.put("XLLM:PREFILL:h:8000", ENGINE.as_bytes());
        let cases = [
            ("{", "at line 1 column 1; correct it there"),
            ("[]", "expected an object"),
            ("5", "expected an object"),
            (r#"{"type":9}"#, "write DEFAULT (0)"),
            (r#"{"dp_size":-1}"#, "`dp_size` is -1"),
            (r#"{"dp_size":"2"}"#, "dp_size: invalid type: string \"2\", expected a whole number"),
            (r#"{"http_address":"h"}"#, "it has no port"),
        ];
        for (text, why) in cases {
            let told = mirror.put("XLLM:PREFILL:h:8000", text.as_bytes());
            let [News::Notice(said)] = &told[..] else { panic!("{text}: {told:?}") };
            assert!(said.contains("XLLM:PREFILL:h:8000") && said.contains(why), "{text}: {said}");
        }
        let told = mirror.delete("XLLM:PREFILL:h:8000");
        let is_last_good = matches!(&told[..], [News::Table(TableInput::LeaseLost { .. }), News::Mended(_)]);
        assert!(is_last_good, "{told:?}");
    }
}
