//! [`Shared`]: two workers of a list that are one server, and a worker that the router knows by another address, by the
//! addresses that names lead to.
//!
//! Owns the look-up of names and what follows from it. A name that cannot be looked up here, or that a proxy looks up,
//! says nothing.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use futures_util::future::join_all;
use tokio::net::lookup_host;
use tokio::time::timeout;

use crate::base::{Role, WorkerId};
use crate::live::client::loopbacks;
use crate::live::{Addresses, Target};
use crate::scenario::Address;

/// Two workers that lead to one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shared {
    /// The first that was listed.
    pub first: WorkerId,
    /// The other one.
    pub second: WorkerId,
    /// Where both are.
    pub at: SocketAddr,
    /// Nothing else can be meant. Two names of one address may be two servers behind one entrance, and the two addresses
    /// of loopback two servers on one port.
    pub is_certain: bool,
}

/// Where a base URL leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    /// A name of the network's: neither an address nor `localhost`.
    is_name: bool,
    addresses: Vec<SocketAddr>,
}

/// Every pair of workers that lead to one server, each look-up within `limit`.
pub(super) async fn shared(target: &Target, limit: Duration) -> Vec<Shared> {
    pairs(&places(target, target.addresses.workers().map(|(id, endpoint)| (id, endpoint.url.as_str())), limit).await)
}

/// Those of the router's `listed` decode workers that are a D of ours under another address, each look-up within `limit`.
pub(super) async fn other_urls(target: &Target, listed: &[String], limit: Duration) -> Vec<(String, WorkerId)> {
    let decode = || target.addresses.workers().filter(|(id, _)| id.role == Role::Decode);
    let written = |url: &str| decode().any(|(_, endpoint)| endpoint.url == url);
    let listed = listed.iter().map(|url| url.trim_end_matches('/').to_owned()).filter(|url| !written(url));
    let listed: Vec<String> = listed.collect();
    if listed.is_empty() {
        return Vec::new();
    }
    let ours = places(target, decode().map(|(id, endpoint)| (id, endpoint.url.as_str())), limit);
    let theirs = places(target, listed.iter().map(|url| (url.clone(), url.as_str())), limit);
    let (ours, theirs) = tokio::join!(ours, theirs);
    theirs.into_iter().filter_map(|(url, place)| Some((url, only_one(&ours, &place)?))).collect()
}

/// The workers at the HTTP server of this base URL, by what needs no look-up: hosts as written, addresses, `localhost`, which may
/// be two.
pub fn workers_at(addresses: &Addresses, url: &str) -> Vec<WorkerId> {
    let place = |url: &str| {
        let (host, port) = host_of(url)?;
        Some((fixed(&host).ok_or(host), port))
    };
    let is_same = |ours: &str| match (place(ours), place(url)) {
        (Some((Ok(ours), port)), Some((Ok(theirs), other))) => {
            port == other && ours.iter().any(|ip| theirs.contains(ip))
        }
        (Some((Err(ours), port)), Some((Err(theirs), other))) => (ours, port) == (theirs, other),
        (_, _) => false,
    };
    addresses.workers().filter(|(_, endpoint)| is_same(&endpoint.url)).map(|(worker, _)| worker).collect()
}

/// The only worker that is surely at this place.
fn only_one(ours: &[(WorkerId, Place)], place: &Place) -> Option<WorkerId> {
    let mut there = ours.iter().filter(|(_, own)| own.common(place).is_some_and(|(_, is_certain)| is_certain));
    let (worker, _) = there.next()?;
    there.next().is_none().then_some(*worker)
}

/// Where each of these base URLs leads to; one that is none is left out.
async fn places<'a, K>(target: &Target, urls: impl Iterator<Item = (K, &'a str)>, limit: Duration) -> Vec<(K, Place)> {
    let has_proxy = target.proxy.is_some();
    let hosts = urls.filter_map(|(whose, url)| Some((whose, host_of(url)?)));
    join_all(hosts.map(async |(whose, (host, port))| {
        let fixed = fixed(&host);
        let is_name = fixed.is_none();
        let addresses = match fixed {
            Some(ips) => ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect(),
            None if has_proxy => Vec::new(),
            None => looked_up(&host, port, limit).await,
        };
        (whose, Place { is_name, addresses })
    }))
    .await
}

async fn looked_up(host: &str, port: u16, limit: Duration) -> Vec<SocketAddr> {
    match timeout(limit, lookup_host((host, port))).await {
        Ok(Ok(found)) => found.map(|at| SocketAddr::new(plain(at.ip()), port)).collect(),
        // Whoever connects is told why not.
        Ok(Err(_)) | Err(_) => Vec::new(),
    }
}

/// Host and port of a base URL; its scheme's port where it names none.
fn host_of(url: &str) -> Option<(String, u16)> {
    let address = Address::parse(url).ok()?;
    let authority = address.url.split_once("://")?.1;
    let after_host = authority.rsplit_once(']').map_or(authority, |(_, rest)| rest);
    let port = after_host.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
    let of_scheme = if address.url.starts_with("https:") { 443 } else { 80 };
    Some((address.host.to_ascii_lowercase(), port.unwrap_or(of_scheme)))
}

/// Addresses of a host that nobody needs to look up: it is one, or is `localhost`, which the client takes for both.
fn fixed(host: &str) -> Option<Vec<IpAddr>> {
    if host == "localhost" {
        return Some(loopbacks().into());
    }
    host.parse().ok().map(|ip| vec![plain(ip)])
}

/// The address that a connection really goes to: IPv4 written as IPv6 is IPv4, and any address is this machine's own.
fn plain(ip: IpAddr) -> IpAddr {
    let [v6, v4] = loopbacks();
    match ip.to_canonical() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V6(_) => v6,
        IpAddr::V4(_) => v4,
    }
}

impl Place {
    /// Where both are, and whether nothing else can be meant.
    fn common(&self, other: &Place) -> Option<(SocketAddr, bool)> {
        let common = self.addresses.iter().find(|at| other.addresses.contains(at));
        let twins = || self.addresses.iter().find(|at| is_loopback(at) && has_twin(at, &other.addresses));
        common.map(|at| (*at, !(self.is_name && other.is_name))).or_else(|| twins().map(|at| (*at, false)))
    }
}

fn pairs(places: &[(WorkerId, Place)]) -> Vec<Shared> {
    let pair = |(first, place): &(WorkerId, Place), (second, other): &(WorkerId, Place)| {
        let (at, is_certain) = place.common(other)?;
        Some(Shared { first: *first, second: *second, at, is_certain })
    };
    let all = places.iter().enumerate();
    all.flat_map(|(nth, first)| places[nth + 1..].iter().filter_map(move |second| pair(first, second))).collect()
}

fn is_loopback(at: &SocketAddr) -> bool {
    loopbacks().contains(&at.ip())
}

/// The same port of the other loopback address.
fn has_twin(at: &SocketAddr, others: &[SocketAddr]) -> bool {
    others.iter().any(|other| is_loopback(other) && other.port() == at.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(index: u16, url: &str, found: &[&str]) -> (WorkerId, Place) {
        let (host, port) = host_of(url).unwrap();
        let fixed = fixed(&host);
        let is_name = fixed.is_none();
        let ips = fixed.unwrap_or_else(|| found.iter().map(|ip| plain(ip.parse().unwrap())).collect());
        let addresses = ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
        (WorkerId::new(Role::Decode, index), Place { is_name, addresses })
    }

    /// Certainty of the pair that two URLs are; names lead to the address beside them.
    fn pair(first: (&str, &[&str]), second: (&str, &[&str])) -> Option<bool> {
        let found = pairs(&[place(0, first.0, first.1), place(1, second.0, second.1)]);
        assert!(found.len() <= 1);
        found.first().map(|shared| shared.is_certain)
    }

    #[test]
    fn one_server_is_known_however_it_is_written() {
        let same = [
            ("http://localhost:1", "http://127.0.0.1:1"),
            ("http://localhost:1", "http://[::1]:1"),
            ("http://LOCALHOST:1", "http://localhost:1"),
            ("http://0.0.0.0:1", "http://127.0.0.1:1"),
            ("http://[::ffff:127.0.0.1]:1", "http://127.0.0.1:1"),
            ("http://[0:0::1]:1", "http://[::1]:1"),
            ("http://10.0.0.7", "http://10.0.0.7:80"),
            ("https://10.0.0.7", "https://10.0.0.7:443"),
        ];
        for (first, second) in same {
            assert_eq!(pair((first, &[]), (second, &[])), Some(true), "{first} {second}");
        }
        assert_eq!(pair(("http://d0:1", &["10.0.0.7"]), ("http://10.0.0.7:1", &[])), Some(true));
    }

    #[test]
    fn a_worker_is_known_by_the_routers_address_where_it_is_the_only_one_there() {
        let known =
            |ours: &[(WorkerId, Place)], theirs: (&str, &[&str])| only_one(ours, &place(9, theirs.0, theirs.1).1);
        let ours = [place(0, "http://localhost:1", &[]), place(1, "http://d1:2", &["10.0.0.7"])];
        assert_eq!(known(&ours, ("http://127.0.0.1:1", &[])), Some(ours[0].0));
        assert_eq!(known(&ours, ("http://10.0.0.7:2", &[])), Some(ours[1].0));
        assert_eq!(known(&ours, ("http://127.0.0.1:2", &[])), None);
        assert_eq!(known(&ours, ("http://other:2", &["10.0.0.7"])), None, "two servers behind one entrance, perhaps");
        let twice = [place(0, "http://d0:1", &["10.0.0.7"]), place(1, "http://d1:1", &["10.0.0.7"])];
        assert_eq!(known(&twice, ("http://10.0.0.7:1", &[])), None);
    }

    #[test]
    fn two_servers_are_two() {
        let other = [
            ("http://localhost:1", "http://127.0.0.1:2"),
            ("http://127.0.0.2:1", "http://127.0.0.1:1"),
            ("http://10.0.0.7:1", "http://10.0.0.8:1"),
            ("http://10.0.0.7", "https://10.0.0.7"),
        ];
        for (first, second) in other {
            assert_eq!(pair((first, &[]), (second, &[])), None, "{first} {second}");
        }
        assert_eq!(pair(("http://d0:1", &[]), ("http://d1:1", &[])), None, "names that lead nowhere say nothing");
        assert_eq!(pair(("http://d0:1", &["10.0.0.7"]), ("http://d1:1", &["10.0.0.8"])), None);
    }

    #[test]
    fn two_names_of_one_address_and_both_loopbacks_may_be_two_servers() {
        let (first, second) = (("http://d0:1", &["10.0.0.7"][..]), ("http://d1:1", &["10.0.0.8", "10.0.0.7"][..]));
        assert_eq!(pair(first, second), Some(false));
        assert_eq!(pair(("http://127.0.0.1:1", &[]), ("http://[::1]:1", &[])), Some(false));
        assert_eq!(pair(("http://127.0.0.1:1", &[]), ("http://[::1]:2", &[])), None);
    }
}
