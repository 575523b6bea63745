//! Which worker of a run an instance is: by its HTTP server, where its registry says it, else by its name.
//!
//! The server comes first: it is where requests are sent, and what the addresses of its events follow from.

use std::collections::BTreeMap;

use super::coverage::IndexFault;
use crate::base::WorkerId;
use crate::kv::directory::{Endpoint, StreamKey};
use crate::live::Addresses;
use crate::live::probe::workers_at;

/// The worker that an instance is; `None`: nobody's, or it may be several.
pub(super) fn worker_of(addresses: &Addresses, instance: &str, http: Option<&Endpoint>) -> Option<WorkerId> {
    let by_http = http.and_then(|http| only(&at_http(addresses, http)));
    by_http.or_else(|| only(&by_name(addresses, instance)))
}

/// What is wrong with an instance: it is nobody, or more than one.
pub(super) fn whose_fault(addresses: &Addresses, instance: &str, http: Option<&Endpoint>) -> Option<IndexFault> {
    let (named, there) = (by_name(addresses, instance), http.map(|http| at_http(addresses, http)).unwrap_or_default());
    match (named.as_slice(), there.as_slice()) {
        ([name], [server]) if name != server => Some(two(instance, http, *name, *server)),
        (_, [_]) | ([_], _) => None,
        ([_, ..], _) => Some(several(instance, &listed(&named))),
        (_, [_, ..]) => Some(several(instance, &listed(&there))),
        ([], []) if addresses.is_shared_name(instance) => Some(several(instance, "several workers of that name")),
        ([], []) => Some(nobodys(instance, http, addresses)),
    }
}

/// Streams of several instances that are one worker and rank.
pub(super) fn doubled<'a>(
    streams: impl Iterator<Item = (&'a StreamKey, WorkerId)>,
    are_listed: bool,
) -> Vec<IndexFault> {
    let mut of: BTreeMap<(WorkerId, u32), Vec<String>> = BTreeMap::new();
    for (key, worker) in streams {
        of.entry((worker, key.dp_rank)).or_default().push(format!("{}/{}", key.instance, key.dp_rank));
    }
    let several = of.into_iter().filter(|(_, names)| names.len() > 1);
    let remedy = if are_listed {
        "keep one of them in the file of kv_events.config, or correct its instance_name or dp_rank"
    } else {
        "keep one of their registrations, or correct its name or http_address"
    };
    several
        .map(|((worker, rank), names)| IndexFault {
            what: format!("streams {} are of one worker and rank, {worker} rank {rank}", names.join(" and ")),
            effect: format!(
                "hits of {worker} count as the fewest of theirs, and as 0 while one of them is not in step"
            ),
            remedy: remedy.to_owned(),
        })
        .collect()
}

/// By a worker's name, its URL, or host and port.
fn by_name(addresses: &Addresses, instance: &str) -> Vec<WorkerId> {
    let as_url = || if instance.contains("://") { instance.to_owned() } else { format!("http://{instance}") };
    addresses.named(instance).map_or_else(|| at_url(addresses, &as_url()), |worker| vec![worker])
}

fn at_http(addresses: &Addresses, http: &Endpoint) -> Vec<WorkerId> {
    at_url(addresses, &format!("http://{}", http.authority()))
}

/// As it is written where it can be: every choice of a run asks.
fn at_url(addresses: &Addresses, url: &str) -> Vec<WorkerId> {
    addresses.named(url).map_or_else(|| workers_at(addresses, url), |worker| vec![worker])
}

fn only(workers: &[WorkerId]) -> Option<WorkerId> {
    match workers {
        [worker] => Some(*worker),
        _ => None,
    }
}

fn listed(workers: &[WorkerId]) -> String {
    workers.iter().map(WorkerId::to_string).collect::<Vec<_>>().join(" and ")
}

fn at(http: Option<&Endpoint>) -> String {
    http.map(|http| format!(" at {}", http.authority())).unwrap_or_default()
}

fn two(instance: &str, http: Option<&Endpoint>, name: WorkerId, server: WorkerId) -> IndexFault {
    IndexFault {
        what: format!("instance {instance}{} is {name} by its name and {server} by its HTTP address", at(http)),
        effect: format!("its streams count as those of {server}"),
        remedy: "correct its name or http_address in the registry".to_owned(),
    }
}

fn several(instance: &str, which: &str) -> IndexFault {
    IndexFault {
        what: format!("stream {instance} may be of {which}"),
        effect: "what it tells is of no use".to_owned(),
        remedy: "name it by the worker's URL, as the run's own addresses have it".to_owned(),
    }
}

fn nobodys(instance: &str, http: Option<&Endpoint>, addresses: &Addresses) -> IndexFault {
    let names = addresses.names().join(", ");
    let remedy = match http {
        Some(_) => "correct its name or http_address in the registry, or the run's own addresses",
        None => "correct instance_name in the file of kv_events.config",
    };
    IndexFault {
        what: format!("stream {instance}{} names no worker; names are {names}, or a worker's HTTP address", at(http)),
        effect: "what it tells is of no use".to_owned(),
        remedy: remedy.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::live;

    fn addresses(urls: &[&str]) -> Addresses {
        let endpoint = |url: &&str| live::Endpoint { url: (*url).to_owned(), bootstrap_port: None };
        Addresses { prefill: urls.iter().map(endpoint).collect(), ..Addresses::default() }
    }

    fn http(text: &str) -> Option<Endpoint> {
        Some(Endpoint::parse_http(text).unwrap())
    }

    #[test]
    fn an_instance_is_the_worker_at_its_server_and_what_does_not_agree_is_told() {
        let mut run = addresses(&["http://10.0.0.1:8000", "http://10.0.0.2:8000"]);
        let of = |run: &Addresses, name: &str, http: Option<Endpoint>| {
            let fault = whose_fault(run, name, http.as_ref()).map(|fault| fault.what);
            (worker_of(run, name, http.as_ref()).map(|worker| worker.to_string()), fault)
        };
        let is = |name: &str| Some(name.to_owned());
        assert_eq!(of(&run, "P0", None), (is("P0"), None));
        assert_eq!(of(&run, "10.0.0.2:8000", None), (is("P1"), None));
        assert_eq!(of(&run, "engine-a", http("10.0.0.2:8000")), (is("P1"), None));
        assert_eq!(of(&run, "P0", http("10.0.0.9:8000")), (is("P0"), None), "another way to the same server");
        let swapped = of(&run, "P0", http("10.0.0.2:8000"));
        let what = "instance P0 at 10.0.0.2:8000 is P0 by its name and P1 by its HTTP address";
        assert_eq!(swapped, (is("P1"), is(what)));
        let nobody = of(&run, "P7", None).1.unwrap();
        assert!(nobody.starts_with("stream P7 names no worker"), "{nobody}");
        for worker in ["P0", "P1"] {
            run.learn_name(worker.parse().unwrap(), "vllm");
        }
        assert_eq!(of(&run, "vllm", None), (None, is("stream vllm may be of several workers of that name")));
    }

    #[test]
    fn localhost_may_be_two_workers() {
        let run = addresses(&["http://127.0.0.1:8000", "http://[::1]:8000"]);
        for (name, server) in [("localhost:8000", None), ("engine", http("localhost:8000"))] {
            assert_eq!(worker_of(&run, name, server.as_ref()), None);
            let fault = whose_fault(&run, name, server.as_ref()).unwrap();
            assert_eq!(fault.what, format!("stream {name} may be of P0 and P1"));
        }
    }

    #[test]
    fn two_streams_of_one_worker_and_rank_are_named() {
        let key = |instance: &str, dp_rank| StreamKey { instance: instance.to_owned(), dp_rank };
        let (p0, p1): (WorkerId, WorkerId) = ("P0".parse().unwrap(), "P1".parse().unwrap());
        let keys =
            [(key("P0", 0), p0), (key("P0", 1), p0), (key("h:1", 0), p0), (key("P1", 0), p1), (key("h:2", 1), p1)];
        for (are_listed, remedy) in [(true, "instance_name or dp_rank"), (false, "name or http_address")] {
            let faults = doubled(keys.iter().map(|(key, worker)| (key, *worker)), are_listed);
            let [fault] = &faults[..] else { panic!("{faults:?}") };
            assert_eq!(fault.what, "streams P0/0 and h:1/0 are of one worker and rank, P0 rank 0");
            assert!(fault.effect.contains("hits of P0") && fault.remedy.contains(remedy), "{fault}");
        }
    }
}
