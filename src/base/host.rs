//! `host[:port]` of an address, whatever its scheme.

/// Splits `host[:port]`; the brackets of an IPv6 address are taken off. The error says what is wrong with it.
pub fn host_and_port(authority: &str) -> Result<(String, Option<u16>), String> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("the bracket of its IPv6 address is not closed")?;
            host.parse::<core::net::Ipv6Addr>().map_err(|_| format!("[{host}] is no IPv6 address"))?;
            (host, port.strip_prefix(':').or((port.is_empty()).then_some("")).ok_or("after ] comes :PORT")?)
        }
        None if authority.matches(':').count() > 1 => return Err("an IPv6 address stands in brackets: [::1]".into()),
        None => authority.split_once(':').unwrap_or((authority, "")),
    };
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
    if host.is_empty() || !host.chars().all(is_host) {
        return Err("it has no host name".into());
    }
    let has_port = authority.ends_with(':') || !port.is_empty();
    let port = match port.parse::<u16>() {
        _ if !has_port => None,
        Ok(port) if port > 0 => Some(port),
        _ => return Err(format!("its port is \"{port}\", not a number from 1 to 65535")),
    };
    Ok((host.to_owned(), port))
}
