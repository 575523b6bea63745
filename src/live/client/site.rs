//! [`Site`]: where generate requests are posted, and what of their heads is the same every time.

use std::io::Write as _;
use std::sync::Arc;

use reqwest::Url;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};

use super::broken::is_loopback;
use super::wire::{Limits, Place};

/// See the module.
#[derive(Debug)]
pub(super) struct Site {
    pub url: Url,
    /// `None`: TLS, a proxy or a user in the URL, which the general client knows how to deal with.
    pub plain: Option<Plain>,
}

/// A site that is spoken to without anything in between.
#[derive(Debug)]
pub(super) struct Plain {
    pub place: Arc<Place>,
    /// Request line and first headers.
    start: Vec<u8>,
    /// Headers of every request, unless it has its own of that name.
    always: HeaderMap,
}

impl Site {
    /// `always`: headers that every request has; `has_proxy`: for hosts that are not on loopback.
    pub fn new(url: Url, limits: Limits, always: &HeaderMap, has_proxy: bool) -> Site {
        let is_plain = url.scheme() == "http" && url.username().is_empty() && url.password().is_none();
        let plain = (is_plain && (!has_proxy || is_loopback(&url))).then(|| Plain::new(&url, limits, always));
        Site { url, plain }
    }
}

impl Plain {
    fn new(url: &Url, limits: Limits, always: &HeaderMap) -> Plain {
        let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
        // Left out where it is the scheme's own.
        let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
        let (path, host) = (url.path(), url.host_str().unwrap_or_default());
        let mut start =
            format!("POST {path}{query} HTTP/1.1\r\nhost: {host}{port}\r\ncontent-type: application/json\r\n");
        if !always.contains_key(ACCEPT) {
            start.push_str("accept: */*\r\n");
        }
        let mut always = always.clone();
        always.remove(CONTENT_TYPE);
        Plain { place: Place::new(url.clone(), limits), start: start.into(), always }
    }

    /// The head of a request with these headers and a body of so many bytes.
    pub fn head(&self, headers: &HeaderMap, length: usize) -> Vec<u8> {
        let mut head = Vec::with_capacity(self.start.len() + 256);
        head.extend_from_slice(&self.start);
        let always = self.always.iter().filter(|(name, _)| !headers.contains_key(*name));
        for (name, value) in always.chain(headers) {
            head.extend_from_slice(name.as_str().as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        // Into memory: it cannot fail.
        let _ = write!(head, "content-length: {length}\r\n\r\n");
        head
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use reqwest::header::HeaderValue;

    use super::*;
    use crate::live::clock::Clock;

    fn site(url: &str, always: &[(&'static str, &'static str)], has_proxy: bool) -> Site {
        let limits = Limits {
            connect: Duration::from_secs(1),
            idle: Duration::from_secs(1),
            most_idle: 1,
            clock: Clock::start(1.0),
        };
        Site::new(Url::parse(url).unwrap(), limits, &map(always), has_proxy)
    }

    fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
        headers.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value))).collect()
    }

    #[test]
    fn a_head_has_every_header_once() {
        let always = [("x-team", "blue"), ("accept", "text/*"), ("x-key", "mine")];
        let site = site("http://h:81/a?b=c", &always, false);
        let head = site.plain.unwrap().head(&map(&[("x-key", "its own")]), 7);
        let wanted = "POST /a?b=c HTTP/1.1\r\nhost: h:81\r\ncontent-type: application/json\r\nx-team: blue\r\naccept: text/*\r\n\
                      x-key: its own\r\ncontent-length: 7\r\n\r\n";
        assert_eq!(String::from_utf8(head).unwrap(), wanted);
    }

    #[test]
    fn the_port_of_the_scheme_is_left_out_and_an_ipv6_address_has_its_brackets() {
        let host = |url: &str| {
            let head = site(url, &[], false).plain.unwrap().head(&HeaderMap::new(), 0);
            String::from_utf8(head).unwrap().lines().nth(1).unwrap().to_owned()
        };
        assert_eq!((host("http://h:80/a"), host("http://[::1]:81")), ("host: h".into(), "host: [::1]:81".into()));
    }

    #[test]
    fn tls_users_and_proxies_are_not_plain() {
        let is_plain = |url: &str, has_proxy| site(url, &[], has_proxy).plain.is_some();
        assert!(is_plain("http://h/", false) && is_plain("http://127.0.0.2/", true) && is_plain("http://[::1]/", true));
        assert!(!is_plain("https://h/", false) && !is_plain("http://h/", true) && !is_plain("http://me:x@h/", false));
    }
}
