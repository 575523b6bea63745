//! Base URLs as a scenario names them: scheme, host, port, and nothing a client would have to guess about.
//!
//! Invariant: the URL of an [`Address`] is `scheme://host[:port]`, without a slash at the end and without secrets.

use crate::base::host_and_port;

/// A server's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// `scheme://host[:port]`.
    pub url: String,
    /// Host without brackets.
    pub host: String,
    /// Second word of `URL PORT`: port of the bootstrap server.
    pub bootstrap_port: Option<u16>,
}

impl Address {
    /// Reads `URL` or `URL PORT`. The error says what is wrong, without the text itself when that holds a password.
    pub fn parse(text: &str) -> Result<Address, String> {
        let (url, port) = match text.trim().split_once(char::is_whitespace) {
            Some((url, port)) => (url, Some(port.trim())),
            None => (text.trim(), None),
        };
        let bootstrap_port =
            port.map(|port| port.parse().map_err(|_| format!("\"{port}\" is no port from 0 to 65535"))).transpose()?;
        let (scheme, rest) = url.split_once("://").ok_or("it has no scheme such as http://")?;
        if !matches!(scheme, "http" | "https") {
            return Err(format!("its scheme is \"{scheme}\", not http or https"));
        }
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err("it holds a user or password, which would be written into results".into());
        }
        if path.trim_end_matches('/') == "/v1" {
            return Err("it ends in /v1, which is added by itself".into());
        }
        if !matches!(path, "" | "/") {
            let shown = path.split('?').next().unwrap_or_default();
            let query = if shown.len() < path.len() { "?…" } else { "" };
            return Err(format!("it has a path (\"{shown}{query}\"), but endpoints are added to a base URL"));
        }
        let (host, _) = host_and_port(authority)?;
        Ok(Address { url: format!("{scheme}://{authority}"), host, bootstrap_port })
    }

    /// What a text that is no address may have been meant for: with a scheme, without a path. `None`: it is not clear.
    pub fn meant(text: &str) -> Option<String> {
        let (url, port) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        let authority = rest.split(['/', '?', '#']).next()?;
        let meant = format!("{scheme}://{authority} {port}").trim_end().to_owned();
        Address::parse(&meant).is_ok().then_some(meant)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_an_address() {
        let read = |text: &str| Address::parse(text).map(|found| (found.url, found.host, found.bootstrap_port));
        let is = |url: &str, host: &str, port| Ok((url.to_owned(), host.to_owned(), port));
        assert_eq!(read("http://127.0.0.1:9101"), is("http://127.0.0.1:9101", "127.0.0.1", None));
        assert_eq!(read(" https://d0.example/ "), is("https://d0.example", "d0.example", None));
        assert_eq!(read("http://p0:9101 8998"), is("http://p0:9101", "p0", Some(8998)));
        assert_eq!(read("http://[::1]:9101"), is("http://[::1]:9101", "::1", None));
        assert_eq!(read("http://[::1]"), is("http://[::1]", "::1", None));
    }

    #[test]
    fn what_is_none() {
        let refused = [
            ("127.0.0.1:9101", "no scheme"),
            ("ftp://a", "not http or https"),
            ("http://", "no host"),
            ("http://:80", "no host"),
            ("http://a b", "no port"),
            ("http://a:0", "its port"),
            ("http://a:70000", "its port"),
            ("http://a:", "its port"),
            ("http://::1:9101", "in brackets"),
            ("http://[::1", "not closed"),
            ("http://[::x]:1", "no IPv6"),
            ("http://[::1]9101", "after ]"),
            ("http://a/v1", "ends in /v1"),
            ("http://a/v1/", "ends in /v1"),
            ("http://a/v1/completions", "a path"),
            ("http://a?x=1", "a path"),
            ("http://me:secret@a", "user or password"),
        ];
        for (text, cause) in refused {
            let found = Address::parse(text).unwrap_err();
            assert!(found.contains(cause), "{text}: {found}");
            assert!(!found.contains("secret"), "{found}");
        }
    }

    #[test]
    fn what_is_meant_is_an_address_or_nothing() {
        let meant = |text: &str| Address::meant(text);
        assert_eq!(meant("http://127.0.0.1:9301/v1").as_deref(), Some("http://127.0.0.1:9301"));
        assert_eq!(meant("10.0.0.1:30000 8998").as_deref(), Some("http://10.0.0.1:30000 8998"));
        assert_eq!(meant("https://a/v1/chat?x=1").as_deref(), Some("https://a"));
        for text in ["", "ftp://a", "a:0", "http://me:secret@a", "http://a b", "://"] {
            assert_eq!(meant(text), None, "{text}");
        }
    }
}
