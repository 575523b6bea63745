//! [`Endpoint`]: a TCP address of a publisher, one that can be connected to.

use std::fmt;

use crate::base::host_and_port;

/// A host and a port, as written, in lower case. Whether two are one server, [`Endpoint::place`] says.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// Name or address, without brackets, in lower case.
    pub host: String,
    /// From 1.
    pub port: u16,
}

/// Hosts that a publisher binds, and nobody connects to.
const ANY: [&str; 2] = ["0.0.0.0", "::"];

impl Endpoint {
    /// Reads `tcp://HOST:PORT`. The error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Endpoint, String> {
        let authority = text.strip_prefix("tcp://").ok_or("it does not begin with tcp://")?;
        if authority.starts_with('*') {
            return Err("* is where a publisher binds".into());
        }
        Endpoint::of_authority(authority)
    }

    /// Reads `HOST:PORT`; `http://` before it and a slash behind it are taken off.
    pub fn parse_http(text: &str) -> Result<Endpoint, String> {
        let rest = text.strip_prefix("http://").unwrap_or(text);
        Endpoint::of_authority(rest.strip_suffix('/').unwrap_or(rest))
    }

    fn of_authority(authority: &str) -> Result<Endpoint, String> {
        let (host, port) = host_and_port(authority)?;
        if ANY.contains(&host.as_str()) {
            return Err(format!("{host} is where a publisher binds"));
        }
        Ok(Endpoint { host: host.to_lowercase(), port: port.ok_or("it has no port")? })
    }

    /// `HOST:PORT`, an IPv6 address in brackets.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// The host, the same for all that are surely one: `localhost` is `127.0.0.1`. Names are not looked up.
    pub fn place_host(&self) -> &str {
        if self.host == "localhost" { "127.0.0.1" } else { &self.host }
    }

    /// The address, the same for all that are surely one server.
    pub fn place(&self) -> Endpoint {
        Endpoint { host: self.place_host().to_owned(), port: self.port }
    }

    /// The same host, another port; `None` above 65535.
    pub fn moved_by(&self, ports: u64) -> Option<Endpoint> {
        let port = u16::try_from(u64::from(self.port) + ports).ok()?;
        Some(Endpoint { host: self.host.clone(), port })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tcp://{}", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_connected_to() {
        let read = |text: &str| Endpoint::parse(text).map(|endpoint| endpoint.to_string());
        assert_eq!(read("tcp://10.0.0.1:18000"), Ok("tcp://10.0.0.1:18000".into()));
        assert_eq!(read("tcp://Engine-0.pods:1"), Ok("tcp://engine-0.pods:1".into()));
        assert_eq!(read("tcp://[::1]:18000"), Ok("tcp://[::1]:18000".into()));
        let refused = [
            "tcp://*:1",
            "tcp://0.0.0.0:1",
            "tcp://[::]:1",
            "ipc:///tmp/x",
            "tcp://a",
            "tcp://a:0",
            "tcp://a:65536",
            "",
        ];
        assert!(refused.iter().all(|text| read(text).is_err()), "{:?}", refused.map(read));
        let http = |text: &str| Endpoint::parse_http(text).map(|endpoint| endpoint.authority());
        assert_eq!(http("http://a:8000/"), Ok("a:8000".into()));
        assert_eq!(http("[::1]:8000"), Ok("[::1]:8000".into()));
    }
}
