//! The internal token of an index: from the environment or a file, never from the command line, never printed.

use std::env;
use std::fs::File;
use std::io::Read;

use clap::Args;

use crate::cli::exit::Failure;
use crate::cli::terminal::Terminal;
use crate::live::readable_by_others;
use crate::live::server::InternalToken;
use crate::scenario::shown_name;

/// Longest file read, bytes: more than any token.
const MOST_BYTES: u64 = 4096;

/// Where the token is.
#[derive(Debug, Args)]
pub struct TokenArgs {
    /// Environment variable with the token of the header X-Internal-Token.
    #[arg(long, value_name = "NAME", conflicts_with = "token_file")]
    token_env: Option<String>,
    /// File with it, on one line.
    #[arg(long, value_name = "FILE")]
    token_file: Option<String>,
}

impl TokenArgs {
    /// Reads it; `None`: none is named.
    pub fn read(&self, terminal: &Terminal) -> Result<Option<String>, Failure> {
        let (place, token, hint) = match (&self.token_env, &self.token_file) {
            (Some(name), _) => {
                let value = env::var(name).map_err(|_| {
                    let cause = format!("the environment has no readable variable {}", shown_name(name));
                    Failure::input(cause)
                        .hint("export it first (name the variable, never the token), or leave `--token-env` out")
                })?;
                (format!("the variable {name}"), value, None)
            }
            (None, Some(path)) => {
                let (text, hint) = read_file(path)?;
                (path.clone(), text, hint)
            }
            (None, None) => return Ok(None),
        };
        let token = token.trim_end_matches(['\r', '\n']);
        InternalToken::new(token).map_err(|why| {
            let cause = format!("{place} holds no token: {why}");
            Failure::input(cause).hint("store the bare token on one line")
        })?;
        hint.iter().for_each(|hint| terminal.messages.warning(hint));
        Ok(Some(token.to_owned()))
    }
}

/// Text of a file, and what should be known of its mode.
fn read_file(path: &str) -> Result<(String, Option<String>), Failure> {
    let wrong = |error: std::io::Error| {
        Failure::input(format!("the token file {path} cannot be read: {error}")).hint("check its path and its mode")
    };
    let file = File::open(path).map_err(wrong)?;
    let hint = readable_by_others(path, &file);
    let mut text = String::new();
    file.take(MOST_BYTES).read_to_string(&mut text).map_err(wrong)?;
    Ok((text, hint))
}
