//! [`Listing`]: instances written in a JSON file, `{"instances": [{"name": …}, …]}`, as inputs of the table.
//!
//! An entry has the keys of a registration in etcd and may have `http_address`, `current_type`, `backend` and `load`;
//! docs/kv-events.md has the format. A file has no leases: what is taken off it is gone at once. A text that cannot be read
//! changes nothing, and is told once. Owns no file.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::news::News;
use super::read::object;
use super::record::{ENGINE_KEYS, InstanceRecord, LoadReport, MOST_SHOWN, RECORD_KEYS, RawRecord};
use super::table::TableInput;
use crate::base::{from_json, nearest, shortened};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawListing {
    instances: Vec<RawRecord>,
}

#[derive(Debug, Clone, PartialEq)]
struct Entry {
    record: InstanceRecord,
    load: Option<LoadReport>,
}

/// See the module.
#[derive(Debug)]
pub struct Listing {
    file: String,
    text: Option<Vec<u8>>,
    entries: BTreeMap<String, Entry>,
    trouble: Option<String>,
}

impl Listing {
    /// Nothing is read yet. `file` is its name in messages.
    pub fn new(file: &str) -> Listing {
        Listing { file: file.to_owned(), text: None, entries: BTreeMap::new(), trouble: None }
    }

    /// What a look at the file gave: its text, or why it cannot be read.
    pub fn look(&mut self, seen: Result<Vec<u8>, String>) -> Vec<News> {
        let text = match seen {
            Ok(text) if self.text.as_ref() == Some(&text) && self.trouble.is_none() => return Vec::new(),
            Ok(text) => text,
            Err(why) => return self.refuse(why),
        };
        let entries = match read(&text) {
            Ok(entries) => entries,
            Err(why) => return self.refuse(why),
        };
        let mut news = Vec::new();
        let was_read = self.text.replace(text).is_some();
        if self.trouble.take().is_some() {
            let is = if was_read { "is in use again" } else { "is in use" };
            news.push(News::Mended(format!("{}: {is}", self.file)));
        }
        news.extend(differences(&self.entries, &entries));
        self.entries = entries;
        news
    }

    /// Whether a text could be read yet.
    pub fn was_read(&self) -> bool {
        self.text.is_some()
    }

    fn refuse(&mut self, why: String) -> Vec<News> {
        let why = shortened(&why, MOST_SHOWN);
        let is_known = self.trouble.as_ref() == Some(&why);
        let holds = if self.was_read() { "its last good state holds" } else { "nobody is followed" };
        let notice = format!("{}: {why}; until that is corrected, {holds}", self.file);
        self.trouble = Some(why);
        if is_known { Vec::new() } else { vec![News::Notice(notice)] }
    }
}

fn read(text: &[u8]) -> Result<BTreeMap<String, Entry>, String> {
    let text = object(text).map_err(|why| format!("{why}; write {{\"instances\": […]}}"))?;
    let raw: RawListing = from_json(text).map_err(|fault| format!("{fault}; {}", fault.remedy()))?;
    let mut entries = BTreeMap::new();
    for (ix, raw) in raw.instances.into_iter().enumerate() {
        let at = |why: String| format!("instances[{ix}]: {why}");
        refuse_unknown(&raw).map_err(at)?;
        let record = raw.record(&raw.name, None).map_err(at)?;
        let name = record.name.clone();
        if entries.insert(name.clone(), Entry { record, load: raw.load }).is_some() {
            return Err(at(format!("\"{name}\" is there already; names are unique")));
        }
    }
    Ok(entries)
}

fn refuse_unknown(raw: &RawRecord) -> Result<(), String> {
    let Some(key) = raw.rest.keys().find(|key| !ENGINE_KEYS.contains(&key.as_str())) else { return Ok(()) };
    let known = RECORD_KEYS.map(str::to_owned);
    Err(match nearest(key, &known) {
        Some(near) => format!("unknown key `{key}`; did you mean `{near}`?"),
        None => format!("unknown key `{key}`; known keys: {}", known.join(", ")),
    })
}

fn differences(old: &BTreeMap<String, Entry>, new: &BTreeMap<String, Entry>) -> Vec<News> {
    let mut inputs = Vec::new();
    let gone = old.keys().filter(|name| !new.contains_key(*name));
    inputs.extend(gone.map(|name| TableInput::Withdrawn { name: name.clone() }));
    for (name, entry) in new {
        let before = old.get(name);
        if before.map(|before| &before.record) != Some(&entry.record) {
            inputs.push(TableInput::Put(entry.record.clone()));
        }
        let is_same_process = before.is_some_and(|before| before.record.identity == entry.record.identity);
        let load_before = before.filter(|_| is_same_process).and_then(|before| before.load);
        inputs.extend(match (load_before, entry.load) {
            (Some(_), None) => Some(TableInput::LoadGone { name: name.clone() }),
            (before, Some(load)) if before != Some(load) => {
                Some(TableInput::Heartbeat { name: name.clone(), incarnation: None, load: Some(load) })
            }
            _ => None,
        });
    }
    inputs.into_iter().map(News::Table).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(listing: &mut Listing, text: &str) -> Vec<News> {
        listing.look(Ok(text.as_bytes().to_vec()))
    }

    fn only_notice(news: &[News]) -> &str {
        let [News::Notice(text)] = news else { panic!("{news:?}") };
        text
    }

    #[test]
    fn a_look_tells_what_is_different() {
        let mut listing = Listing::new("r.json");
        let one = r#"{"instances":[{"name":"a","http_address":"h:8000","type":"PREFILL"}]}"#;
        let told = look(&mut listing, one);
        assert!(matches!(&told[..], [News::Table(TableInput::Put(record))] if record.dp_size == 1), "{told:?}");
        assert_eq!(look(&mut listing, one), []);
        let loaded = one.replace(r#""name""#, r#""load":{"waiting_requests_num":1,"gpu_cache_usage_perc":0.1},"name""#);
        let told = look(&mut listing, &loaded);
        assert!(matches!(&told[..], [News::Table(TableInput::Heartbeat { load: Some(_), .. })]), "{told:?}");
        let told = look(&mut listing, one);
        assert!(matches!(&told[..], [News::Table(TableInput::LoadGone { .. })]), "{told:?}");
        let told = look(&mut listing, r#"{"instances":[]}"#);
        assert!(matches!(&told[..], [News::Table(TableInput::Withdrawn { .. })]), "{told:?}");
    }

    #[test]
    fn before_the_first_good_state_none_is_promised() {
        let mut listing = Listing::new("r.json");
        for trouble in [Err("cannot be opened: No such file".to_owned()), Ok(b"{".to_vec())] {
            let told = listing.look(trouble);
            let said = only_notice(&told);
            assert!(said.ends_with("nobody is followed") && !said.contains("last good state"), "{said}");
        }
        assert!(!listing.was_read());
        assert_eq!(look(&mut listing, r#"{"instances":[]}"#), [News::Mended("r.json: is in use".into())]);
    }

    #[test]
    fn a_name_that_is_no_address_is_told_as_the_name_it_is() {
        let told = look(&mut Listing::new("r.json"), r#"{"instances":[{"name":"p0","type":0}]}"#);
        let wanted = "instances[0]: `name` \"p0\" is no HTTP address: it has no port; write HOST:PORT, or give `http_address` beside it";
        assert!(only_notice(&told).contains(wanted), "{told:?}");
    }

    #[test]
    fn a_broken_file_keeps_the_last_good_state_and_says_so_once() {
        let mut listing = Listing::new("r.json");
        let good = r#"{"instances":[{"name":"h:8000","type":0}]}"#;
        look(&mut listing, good);
        let broken = [
            (r#"{"instances":[{"#, "line 1 column 15; correct it there"),
            (r#"{"instances":[5]}"#, "instances[0]: invalid type: integer `5`, expected an object at line 1 column 15"),
            (r#"{"instances":[{"name":"h:1","type":0},{"name":7}]}"#, "instances[1].name: invalid type: integer `7`"),
            (r#"{"instances":[{"name":"h:1","type":1.5}]}"#, "instances[0].type: expected DEFAULT (0), PREFILL (1)"),
            (r#"{"instances":[{"name":"h:1","load":{}}]}"#, "instances[0].load: missing field `waiting_requests_num`"),
            (r#"{"instances":[{"name":"h:8000"}]}"#, "`type` is missing"),
            (r#"{"instances":[{"name":"h:8000","type":0,"dp_sise":2}]}"#, "did you mean `dp_size`?"),
            (r#"{"instances":[{"name":"h","type":0}]}"#, "it has no port"),
            (r#"{"instances":[{"name":"h:1","type":0},{"name":"h:1","type":0}]}"#, "names are unique"),
            (r#"{"instances":[{"name":"h:1","type":"MIX","current_type":"DEFAULT"}]}"#, "write PREFILL or DECODE"),
        ];
        for (text, cause) in broken {
            let told = look(&mut listing, text);
            let said = only_notice(&told);
            assert!(said.contains(cause) && said.contains("r.json"), "{said}");
            assert_eq!(look(&mut listing, text), [], "once");
        }
        let told = listing.look(Err("not found".into()));
        assert!(only_notice(&told).contains("last good state"));
        assert_eq!(look(&mut listing, good), [News::Mended("r.json: is in use again".into())]);
        assert_eq!(look(&mut listing, good), []);
    }
}
