//! What a broken exchange means, in words: TLS, proxies, connections.
//!
//! Pure. A cause with a remedy of its own says it behind a semicolon.

use std::error::Error;
use std::io;
use std::net::IpAddr;

use reqwest::Url;
use rustls::CertificateError;

/// What is wrong with the other end's TLS and what to do, when that is what broke.
pub(super) fn tls_words(error: &reqwest::Error) -> Option<String> {
    Some(match tls_error(error)? {
        rustls::Error::InvalidCertificate(certificate) => certificate_words(certificate),
        rustls::Error::InvalidMessage(_) | rustls::Error::InappropriateMessage { .. } => {
            "it does not speak TLS; write http:// in its address".into()
        }
        other => format!("TLS failed: {other}"),
    })
}

fn certificate_words(error: &CertificateError) -> String {
    let cause = error.to_string();
    match error {
        CertificateError::UnknownIssuer => {
            "its certificate is signed by nobody who is trusted; name its authority's PEM file in live.ca_file".into()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("its certificate is not for this name ({cause}); write a name that it is for in the address")
        }
        CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
            "its certificate is an authority's own (CA:TRUE), which is no server's; sign one for the server with it, and \
             name the authority in live.ca_file"
                .into()
        }
        _ => format!("its certificate cannot be trusted ({cause}); give the server another one"),
    }
}

fn tls_error(error: &reqwest::Error) -> Option<&rustls::Error> {
    let mut cause = error.source();
    while let Some(inner) = cause {
        if let Some(tls) = wrapped(inner) {
            return Some(tls);
        }
        cause = inner.source();
    }
    None
}

/// TLS's own error in as many input/output errors as there are around it: `source` does not tell what those wrap.
fn wrapped<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    error.downcast_ref().or_else(|| wrapped(error.downcast_ref::<io::Error>()?.get_ref()?))
}

/// What a silent end may mean: an answer to TLS that never comes.
pub(super) fn silence_hint(url: &str) -> &'static str {
    if url.starts_with("https:") { "; if it speaks no TLS, write http:// in its address" } else { "" }
}

/// Whether requests to this host never go through a proxy.
pub(super) fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The innermost error's words; outer ones only repeat the URL.
pub(super) fn root_cause(error: &dyn Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// Kind of the first input/output error among an error and its causes.
pub(super) fn io_kind(error: &(dyn Error + 'static)) -> Option<io::ErrorKind> {
    let mut cause = Some(error);
    while let Some(inner) = cause {
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            return Some(io.kind());
        }
        cause = inner.source();
    }
    None
}

/// Host and port of a URL.
pub(super) fn authority(url: &Url) -> Option<String> {
    let host = url.host_str()?;
    Some(url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}
