//! Secrets of a target, read once at the start: API key, further headers, certificate authorities.
//!
//! Invariants: what is read is bounded, whatever the path leads to; no error, hint or record shows a value; what stands in a scenario is where to look.

use std::env;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};

use thiserror::Error;

use crate::live::Secrets;
use crate::scenario::{LiveConfig, is_header_name, is_reserved_header, shown_name};

/// Readable by others than the owner.
const OTHERS_MAY_READ: u32 = 0o044;

/// Longest key, and longest file of headers: no server takes more.
const MOST_SECRET: u64 = 64 << 10;
/// Longest file of certificates.
const MOST_CERTIFICATES: u64 = 1 << 20;

/// A secret that is not where the scenario says.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`live.{key}`: {cause}; {remedy}")]
pub struct SecretError {
    /// Key of the scenario.
    pub key: &'static str,
    /// What is wrong, without the secret.
    pub cause: String,
    /// What to do.
    pub remedy: String,
}

/// What was found, and what should be known about it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FoundSecrets {
    /// The secrets.
    pub secrets: Secrets,
    /// Files that others may read, a sentence each.
    pub hints: Vec<String>,
}

/// Reads everything the scenario names.
pub fn read_secrets(live: &LiveConfig) -> Result<FoundSecrets, SecretError> {
    let mut found = FoundSecrets::default();
    let key = api_key(live, &mut found.hints)?;
    let has_key = key.is_some();
    if let Some(key) = key {
        found.secrets.headers.push(("authorization".into(), format!("Bearer {key}")));
    }
    if !live.headers_file.is_empty() {
        let text = read_file("headers_file", &live.headers_file, &mut found.hints)?;
        found.secrets.headers.extend(headers(&live.headers_file, &text)?);
        once_each(&live.headers_file, &found.secrets.headers, has_key)?;
    }
    if !live.ca_file.is_empty() {
        let (pem, _) = bounded("ca_file", &live.ca_file, MOST_CERTIFICATES)?;
        if !String::from_utf8_lossy(&pem).contains("-----BEGIN CERTIFICATE-----") {
            return Err(unreadable("ca_file", &live.ca_file, "it holds no PEM certificate"));
        }
        found.secrets.ca_pem = Some(pem);
    }
    Ok(found)
}

fn api_key(live: &LiveConfig, hints: &mut Vec<String>) -> Result<Option<String>, SecretError> {
    let (key, place, text) = if !live.api_key_env.is_empty() {
        let name = &live.api_key_env;
        let value = env::var(name).map_err(|_| SecretError {
            key: "api_key_env",
            // It may be the key itself.
            cause: format!("the environment has no readable variable {}", shown_name(name)),
            remedy: "export it before the run (name the variable, never the key), or leave the key out".into(),
        })?;
        ("api_key_env", name, value)
    } else if !live.api_key_file.is_empty() {
        ("api_key_file", &live.api_key_file, read_file("api_key_file", &live.api_key_file, hints)?)
    } else {
        return Ok(None);
    };
    let value = text.trim_end_matches(['\r', '\n']);
    if value.is_empty() || !value.chars().all(|c| c.is_ascii_graphic()) {
        let cause =
            format!("{place} holds no API key: it is empty, or has blanks, line breaks or other characters inside");
        return Err(SecretError { key, cause, remedy: "store the bare key on one line".into() });
    }
    Ok(Some(value.to_owned()))
}

/// `Name: value` a line; empty lines and lines that begin with `#` are left out.
fn headers(path: &str, text: &str) -> Result<Vec<(String, String)>, SecretError> {
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty() && !line.starts_with('#'));
    let header = |(line, number): (&str, u32)| {
        let parts = line.split_once(':').map(|(name, value)| (name.trim(), value.trim()));
        match parts {
            Some((name, _)) if is_reserved_header(name) => Err(SecretError {
                key: "headers_file",
                cause: format!("line {number} of {path} gives {name}, which the client itself sets"),
                remedy: "leave it out".into(),
            }),
            Some((name, value)) if is_header_name(name) && value.chars().all(|c| c == ' ' || c.is_ascii_graphic()) => {
                Ok((name.to_ascii_lowercase(), value.to_owned()))
            }
            Some(_) | None => Err(SecretError {
                key: "headers_file",
                cause: format!("line {number} of {path} is no header"),
                remedy: "write `Name: value`, ASCII alone".into(),
            }),
        }
    };
    lines.map(header).collect()
}

/// Only one value of a name would be sent, and nobody would know which.
fn once_each(path: &str, headers: &[(String, String)], has_key: bool) -> Result<(), SecretError> {
    let is_again = |nth: usize| headers[..nth].iter().position(|(name, _)| *name == headers[nth].0);
    let Some((nth, first)) = (0..headers.len()).find_map(|nth| Some((nth, is_again(nth)?))) else { return Ok(()) };
    let name = &headers[nth].0;
    let is_key = has_key && first == 0;
    let (cause, remedy) = if is_key {
        (format!("{path} gives {name}, and so does the API key"), "leave out one: the line, or the key")
    } else {
        (format!("{path} gives {name} twice"), "write each header once")
    };
    Err(SecretError { key: "headers_file", cause, remedy: remedy.into() })
}

fn read_file(key: &'static str, path: &str, hints: &mut Vec<String>) -> Result<String, SecretError> {
    let (bytes, mode) = bounded(key, path, MOST_SECRET)?;
    let text = String::from_utf8(bytes).map_err(|_| unreadable(key, path, "it is no text in UTF-8"))?;
    hints.extend(open_to_others(path, mode));
    Ok(text)
}

/// A sentence, when others than the owner may read this file of a secret.
pub fn readable_by_others(path: &str, file: &File) -> Option<String> {
    let metadata = file.metadata().ok()?;
    open_to_others(path, metadata.permissions().mode())
}

fn open_to_others(path: &str, mode: u32) -> Option<String> {
    let hint = || format!("{path} holds a secret and may be read by others (mode {:o}); chmod 600 it", mode & 0o777);
    (mode & OTHERS_MAY_READ != 0).then(hint)
}

/// Contents and mode of a file or pipe that holds at most so many bytes.
fn bounded(key: &'static str, path: &str, most: u64) -> Result<(Vec<u8>, u32), SecretError> {
    let wrong = |cause: &str| unreadable(key, path, cause);
    let file = File::open(path).map_err(|error| wrong(&error.to_string()))?;
    let metadata = file.metadata().map_err(|error| wrong(&error.to_string()))?;
    if !metadata.is_file() && !metadata.file_type().is_fifo() {
        return Err(wrong("it is neither a file nor a pipe"));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes).map_err(|error| wrong(&error.to_string()))?;
    if bytes.len() as u64 > most {
        return Err(wrong(&format!("it holds more than {} KiB", most >> 10)));
    }
    Ok((bytes, metadata.permissions().mode()))
}

fn unreadable(key: &'static str, path: &str, cause: &str) -> SecretError {
    SecretError { key, cause: format!("{path} cannot be used: {cause}"), remedy: "check path and contents".into() }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn file(name: &str, text: &str, mode: u32) -> String {
        let path = env::temp_dir().join(format!("pdreplay-secret-{}-{name}", std::process::id()));
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    }

    #[test]
    fn the_key_is_one_line_and_a_file_that_others_may_read_is_told() {
        let open = file("open", "sk-123\r\n", 0o644);
        let found = read_secrets(&LiveConfig { api_key_file: open.clone(), ..LiveConfig::default() }).unwrap();
        assert_eq!(found.secrets.headers, [("authorization".into(), "Bearer sk-123".into())]);
        assert!(found.hints[0].contains("mode 644") && !found.hints[0].contains("sk-123"));
        assert!(!format!("{found:?}").contains("sk-123"));
        let closed = file("closed", "sk-123", 0o600);
        let found = read_secrets(&LiveConfig { api_key_file: closed, ..LiveConfig::default() }).unwrap();
        assert_eq!(found.hints, Vec::<String>::new());
        let two = file("two", "sk-1\nsk-2\n", 0o600);
        let error = read_secrets(&LiveConfig { api_key_file: two, ..LiveConfig::default() }).unwrap_err();
        assert!(error.to_string().contains("one line") && !error.to_string().contains("sk-"), "{error}");
    }

    #[test]
    fn headers_are_lines_and_a_bad_one_is_named_by_its_number() {
        let good = file("good", "# ours\nX-Team: blue\n\nx-route:  a b \n", 0o600);
        let found = read_secrets(&LiveConfig { headers_file: good, ..LiveConfig::default() }).unwrap();
        let wanted = [("x-team", "blue"), ("x-route", "a b")].map(|(name, value)| (name.into(), value.into()));
        assert_eq!(found.secrets.headers, wanted);
        for name in ["Content-Length", "transfer-encoding", "Host", "Connection"] {
            let reserved = file("reserved", &format!("X-Team: blue\n{name}: 7\n"), 0o600);
            let live = LiveConfig { headers_file: reserved, ..LiveConfig::default() };
            let error = read_secrets(&live).unwrap_err().to_string();
            assert!(error.contains(&format!("gives {name}, which the client itself sets")), "{error}");
        }
        let bad = file("bad", "X-Team: blue\nsecret-without-colon\n", 0o600);
        let error = read_secrets(&LiveConfig { headers_file: bad, ..LiveConfig::default() }).unwrap_err().to_string();
        assert!(error.contains("line 2") && !error.contains("secret-without-colon"), "{error}");
    }

    #[test]
    fn a_header_has_one_value_and_the_key_is_one() {
        let refusal = |name: &str, text: &str, key: &str| {
            let api_key_file = if key.is_empty() { String::new() } else { file(&format!("{name}-key"), key, 0o600) };
            let live = LiveConfig { headers_file: file(name, text, 0o600), api_key_file, ..LiveConfig::default() };
            read_secrets(&live).unwrap_err().to_string()
        };
        let error = refusal("own-key", "X-Team: blue\nAuthorization: Basic secret\n", "sk-123");
        assert!(error.contains("gives authorization, and so does the API key; leave out one"), "{error}");
        assert!(!error.contains("Basic") && !error.contains("sk-123"), "{error}");
        for text in ["X-Team: blue\nx-team: red\n", "Authorization: Basic a\nauthorization: Basic b\n"] {
            let error = refusal("twice", text, "");
            assert!(error.contains(" twice; write each header once"), "{error}");
        }
        let alone = file("alone", "Authorization: Basic secret\n", 0o600);
        let found = read_secrets(&LiveConfig { headers_file: alone, ..LiveConfig::default() }).unwrap();
        assert_eq!(found.secrets.headers, [("authorization".into(), "Basic secret".into())]);
    }

    #[test]
    fn what_has_no_end_is_not_read_to_it() {
        let refusal = |live: LiveConfig| read_secrets(&live).unwrap_err().to_string();
        let zero = || "/dev/zero".to_owned();
        let endless = [
            LiveConfig { api_key_file: zero(), ..LiveConfig::default() },
            LiveConfig { headers_file: zero(), ..LiveConfig::default() },
            LiveConfig { ca_file: zero(), ..LiveConfig::default() },
            LiveConfig { ca_file: "/tmp".into(), ..LiveConfig::default() },
        ];
        for live in endless {
            let error = refusal(live);
            assert!(error.contains("neither a file nor a pipe"), "{error}");
        }
        let large = file("large", &"x".repeat((64 << 10) + 1), 0o600);
        let error = refusal(LiveConfig { api_key_file: large, ..LiveConfig::default() });
        assert!(error.contains("more than 64 KiB"), "{error}");
        let large = file("large-ca", &"x".repeat((1 << 20) + 1), 0o600);
        let error = refusal(LiveConfig { ca_file: large, ..LiveConfig::default() });
        assert!(error.contains("more than 1024 KiB"), "{error}");
    }

    #[test]
    fn what_is_missing_is_named() {
        let no_variable = LiveConfig { api_key_env: "PDREPLAY_NO_SUCH_VARIABLE".into(), ..LiveConfig::default() };
        let error = read_secrets(&no_variable).unwrap_err().to_string();
        assert!(
            error.starts_with("`live.api_key_env`: the environment has no readable variable PDREPLAY_NO"),
            "{error}"
        );
        let no_file = LiveConfig { ca_file: "/no/such/ca.pem".into(), ..LiveConfig::default() };
        assert!(read_secrets(&no_file).unwrap_err().to_string().contains("/no/such/ca.pem cannot be used"));
        let no_pem = LiveConfig { ca_file: file("pem", "hello", 0o600), ..LiveConfig::default() };
        assert!(read_secrets(&no_pem).unwrap_err().to_string().contains("no PEM certificate"));
    }
}
