//! [`StreamsFile`]: the file that names the KV streams of a cluster that is up, for `kv_events.config` and `index serve`.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::base::WorkerId;
use crate::cli::exit::Failure;
use crate::cli::outfile::{self, Form};
use crate::kv::Dialect;
use crate::kv::publish::PublisherOptions;
use crate::live::cluster::KvAddress;
use crate::live::url_at;

/// Names tried for a file of our own.
const NAMES: u32 = 100;

/// See the module. Dropping it removes one that nobody asked for.
#[derive(Debug)]
pub struct StreamsFile {
    path: PathBuf,
    is_wanted: bool,
}

impl StreamsFile {
    /// Refuses a place for the file before anything is started for it.
    pub fn check(wanted: &Path) -> Result<(), Failure> {
        outfile::check(wanted, Form::KvStreams)?;
        if outfile::is_final(wanted) {
            let cause = format!("`--kv-config {}` names no file that can be read again", wanted.display());
            return Err(Failure::input(cause).hint("name a file, such as --kv-config streams.json"));
        }
        Ok(())
    }

    /// At `wanted`, replacing one of an earlier cluster; else in the directory for temporary files.
    pub fn write(wanted: Option<&Path>, streams: &Streams) -> Result<StreamsFile, Failure> {
        let text = streams.text();
        let is_wanted = wanted.is_some();
        let failed = |path: &Path, error: io::Error| {
            let cause = format!("cannot write the file of KV streams {}: {error}", path.display());
            Failure::broke(cause).hint("name another place with `--kv-config FILE`")
        };
        if let Some(path) = wanted {
            outfile::write(path, Form::KvStreams, |out| out.write_all(text.as_bytes()))?;
            // The lines that name it may be used elsewhere.
            let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
            return Ok(StreamsFile { path, is_wanted });
        }
        let path = |nth: u32| std::env::temp_dir().join(format!("pdreplay-kv-{}-{nth}.json", std::process::id()));
        // What is there under such a name, a link too, was left by another process of this number.
        for path in (0..NAMES).map(path) {
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(mut file) => {
                    file.write_all(text.as_bytes()).map_err(|error| failed(&path, error))?;
                    return Ok(StreamsFile { path, is_wanted });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(&path, error)),
            }
        }
        Err(failed(&path(NAMES), io::ErrorKind::AlreadyExists.into()))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for StreamsFile {
    fn drop(&mut self) {
        if !self.is_wanted {
            // Somebody else's clearing up is as good.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// What the file holds.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Streams {
    streams: Vec<Stream>,
}

/// In an order of keys that people and tools do not come to: it tells a file of ours.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stream {
    dialect: Dialect,
    topic: String,
    block_size: u32,
    instance_name: String,
    dp_rank: u32,
    endpoint: String,
    replay_endpoint: String,
}

/// What the file says of publishers of this form at these addresses.
pub fn streams_of(form: &PublisherOptions, workers: &BTreeMap<WorkerId, KvAddress>) -> Streams {
    let stream = |(worker, at): (&WorkerId, &KvAddress)| Stream {
        dialect: form.form.dialect(),
        topic: form.topic.clone(),
        block_size: form.block_size,
        instance_name: worker.to_string(),
        dp_rank: form.dp_rank,
        endpoint: reachable(at.events),
        replay_endpoint: reachable(at.replay),
    };
    Streams { streams: workers.iter().map(stream).collect() }
}

/// Whether a file of this text is one that a cluster on loopback wrote: it is so to the letter, and of nothing else.
pub fn is_ours(text: &[u8]) -> bool {
    let Ok(Streams { streams }) = serde_json::from_slice::<Streams>(text) else { return false };
    let is_own = |stream: &Stream| {
        let are_local = [&stream.endpoint, &stream.replay_endpoint].map(|endpoint| is_local(endpoint));
        stream.instance_name.parse::<WorkerId>().is_ok() && are_local == [true, true]
    };
    streams.iter().all(is_own) && Streams { streams }.text().as_bytes() == text
}

fn is_local(endpoint: &str) -> bool {
    let address = endpoint.strip_prefix("tcp://").and_then(|address| address.parse::<SocketAddr>().ok());
    address.is_some_and(|address| address.ip().is_loopback())
}

impl Streams {
    fn text(&self) -> String {
        // Numbers and texts always have a form in JSON.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

/// As one connects to it from here.
fn reachable(address: SocketAddr) -> String {
    url_at(address).replacen("http://", "tcp://", 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::directory::{KvEventsConfig, Source};
    use crate::scenario::{KvSetup, load_text};

    #[test]
    fn the_file_is_one_that_can_be_read_whatever_the_scenario() {
        let more =
            ["", "kv_events = { dialect = 'vllm', block_size = 16, topic = 'kv' }", "kv_events.dialect = 'sglang'"];
        for more in more {
            let scenario = load_text("s.toml", &format!("policy.name = 'car'\n{more}")).unwrap();
            let form = KvSetup::new(&scenario, 64).unwrap().publishing.options;
            let at = |port| SocketAddr::from(([0, 0, 0, 0], port));
            let address = |port| KvAddress { events: at(port), replay: at(port + 1) };
            let workers = [("P0", 7000), ("P1", 7002)].map(|(name, port)| (name.parse().unwrap(), address(port)));
            let text = streams_of(&form, &BTreeMap::from(workers)).text();
            assert!(is_ours(text.as_bytes()), "{text}");
            let config = KvEventsConfig::parse(text.as_bytes(), "kv.json").unwrap_or_else(|errors| panic!("{errors}"));
            let Source::Streams(streams) = config.source else { panic!("{text}") };
            let found = streams.iter().map(|it| (it.instance.as_str(), it.events.to_string())).collect::<Vec<_>>();
            assert_eq!(found, [("P0", "tcp://127.0.0.1:7000".to_owned()), ("P1", "tcp://127.0.0.1:7002".to_owned())]);
            assert_eq!((streams[0].form.block_size, &streams[0].form.topic), (form.block_size, &form.topic), "{more}");
            assert_eq!(streams[0].form.dialect, form.form.dialect());
        }
    }

    #[test]
    fn a_file_that_differs_in_anything_is_somebody_elses() {
        let stream = |instance_name: &str, endpoint: &str| Stream {
            dialect: Dialect::Vllm,
            topic: "kv".into(),
            block_size: 64,
            instance_name: instance_name.into(),
            dp_rank: 0,
            endpoint: endpoint.into(),
            replay_endpoint: "tcp://127.0.0.1:7001".into(),
        };
        let text = |name, endpoint| Streams { streams: vec![stream(name, endpoint)] }.text();
        let own = text("P0", "tcp://127.0.0.1:7000");
        assert!(is_ours(own.as_bytes()), "{own}");
        assert!(is_ours(text("W12", "tcp://[::1]:7000").as_bytes()));
        let sorted: serde_json::Value = serde_json::from_str(&own).unwrap();
        let more = own.replace("\"topic\"", "\"recovery\": \"history\",\n      \"topic\"");
        for other in [
            text("pod-0", "tcp://127.0.0.1:7000"),
            text("P0", "tcp://10.0.0.1:7000"),
            text("P0", "tcp://localhost:7000"),
            format!("{sorted:#}\n"),
            more,
            own.trim_end().to_owned(),
            own.replace("  ", " "),
            own.replace("\"streams\"", "\"max_streams\": 9, \"streams\""),
            own[..own.len() / 2].to_owned(),
        ] {
            assert!(other != own && !is_ours(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn a_file_nobody_asked_for_is_gone_with_the_cluster() {
        let none = Streams { streams: Vec::new() };
        let file = StreamsFile::write(None, &none).unwrap();
        let other = StreamsFile::write(None, &none).unwrap();
        assert_ne!(file.path(), other.path(), "what is there stays");
        for file in [file, other] {
            let path = file.path().to_owned();
            assert!(path.is_file());
            drop(file);
            assert!(!path.exists());
        }
        let missing = StreamsFile::write(Some(Path::new("/proc/no/such.json")), &none).unwrap_err();
        assert!(missing.to_string().contains("/proc/no/such.json"), "{missing}");
    }
}
