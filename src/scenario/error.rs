//! What can be wrong with a scenario, and where it was written.
//!
//! One shape for every refusal: where ([`Origin`]), what ([`Cause`]), each cause with its remedy. A load reports all
//! the problems of the stage that failed, not only the first.

use std::fmt;

/// Where a value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nowhere: a built-in default, or a scenario built in code.
    BuiltIn,
    /// A file, or an embedded one by its name.
    File {
        /// Path as given.
        file: String,
        /// Line and column, from 1; columns count characters. `None`: the file as a whole.
        at: Option<(usize, usize)>,
    },
    /// A command-line flag with its argument, such as `--set admission.cap_max=4`.
    Flag(String),
}

/// What is wrong. Every text names the cause and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The file cannot be read.
    #[error("{cause}; {remedy}")]
    Unreadable {
        /// Why.
        cause: String,
        /// What to do.
        remedy: String,
    },
    /// No such shipped scenario or preset.
    #[error("no {what} is called `{name}`; {}write one of {}, or the path of a `.toml` file", suggest(.near), list(.known))]
    UnknownName {
        /// `scenario`, `timing preset` or `link preset`.
        what: &'static str,
        /// As given.
        name: String,
        /// Nearest known one.
        near: Option<String>,
        /// Those that ship.
        known: Vec<String>,
    },
    /// The text is not TOML, a duplicated key included.
    #[error("not valid TOML: {0}")]
    Syntax(String),
    /// A flag is not `KEY=VALUE`.
    #[error("`{}` is not KEY=VALUE; write for example admission.cap_max=16 (keys of nested tables joined by dots)", without_secrets(.0))]
    NotAnAssignment(String),
    /// A key nobody reads.
    #[error("unknown key `{key}` in {table}; {}", key_remedy(.near, .known))]
    UnknownKey {
        /// The key.
        key: String,
        /// Its table, such as `[admission]`.
        table: String,
        /// Nearest known key.
        near: Option<String>,
        /// All known keys of that table.
        known: Vec<String>,
    },
    /// A value of another type.
    #[error("`{key}` is {found}, but must be {wanted}")]
    WrongType {
        /// Dotted key.
        key: String,
        /// What it must be.
        wanted: String,
        /// What it is.
        found: String,
    },
    /// A number that TOML cannot hold.
    #[error(
        "`{key}` is {found}, which a scenario (TOML) cannot hold: whole numbers end at 9223372036854775807, others at 1.8e308; \
         write a smaller one"
    )]
    BeyondToml {
        /// Dotted key.
        key: String,
        /// As given.
        found: String,
    },
    /// A number without a digit before its point.
    #[error("`{key}` is {found}, and a number begins with a digit (TOML); write {}", found.replacen('.', "0.", 1))]
    BarePoint {
        /// Dotted key.
        key: String,
        /// As given.
        found: String,
    },
    /// A word that is not in a closed set.
    #[error("`{key}` is \"{found}\"; {}allowed: {}", suggest(.near), list(.allowed))]
    NotOneOf {
        /// Dotted key.
        key: String,
        /// As given.
        found: String,
        /// Nearest allowed word.
        near: Option<String>,
        /// All allowed words.
        allowed: Vec<String>,
    },
    /// A key that must be there.
    #[error("`{key}` is missing; {remedy}")]
    Missing {
        /// Dotted key.
        key: String,
        /// What to write.
        remedy: String,
    },
    /// Keys that say the same thing twice.
    #[error("{0}")]
    Contradiction(String),
    /// Files that extend each other.
    #[error("`extends` runs in a circle: {}; remove one of them", .0.join(" → "))]
    Circle(Vec<String>),
    /// A value no run can have.
    #[error("{0}")]
    Impossible(Problem),
}

/// A value no run can have, found by [`super::validate()`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` {cause}; {remedy}")]
pub struct Problem {
    /// Dotted key.
    pub key: String,
    /// What is wrong with its value.
    pub cause: String,
    /// What to do.
    pub remedy: String,
}

/// A cause and its place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {cause}")]
pub struct Located {
    /// Where.
    pub at: Origin,
    /// What.
    pub cause: Cause,
}

/// All that is wrong at the stage that failed; one line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.iter().map(Located::to_string).collect::<Vec<_>>().join("\n"))]
pub struct ScenarioError {
    /// Never empty.
    pub problems: Vec<Located>,
}

/// A scenario and a trace that do not fit together; one line each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n"))]
pub struct SetupError {
    /// Never empty.
    pub problems: Vec<Problem>,
}

impl ScenarioError {
    /// A single problem.
    pub(super) fn one(at: Origin, cause: Cause) -> ScenarioError {
        ScenarioError { problems: vec![Located { at, cause }] }
    }

    /// The same, told where a file named what is wrong, not of the flag that would name it.
    pub(super) fn at(mut self, place: &Origin) -> ScenarioError {
        for problem in self.problems.iter_mut().filter(|problem| matches!(problem.at, Origin::Flag(_))) {
            problem.at = place.clone();
        }
        self
    }

    /// `Ok` when there is nothing wrong.
    pub(super) fn check(problems: Vec<Located>) -> Result<(), ScenarioError> {
        if problems.is_empty() { Ok(()) } else { Err(ScenarioError { problems }) }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::BuiltIn => f.write_str("built-in default"),
            Origin::File { file, at: None } => f.write_str(file),
            Origin::File { file, at: Some((line, column)) } => write!(f, "{file}:{line}:{column}"),
            Origin::Flag(flag) => f.write_str(&without_secrets(flag)),
        }
    }
}

fn suggest(near: &Option<String>) -> String {
    near.as_ref().map(|word| format!("did you mean `{word}`? ")).unwrap_or_default()
}

fn key_remedy(near: &Option<String>, known: &[String]) -> String {
    match near {
        Some(key) => format!("did you mean `{key}`?"),
        None if known.is_empty() => "it takes no keys".into(),
        None => format!("known keys: {}", list(known)),
    }
}

fn list(words: &[String]) -> String {
    words.join(", ")
}

/// A flag with its argument, without what may be a secret in it: a key, users and passwords of URLs, their queries.
fn without_secrets(flag: &str) -> String {
    let value = flag.find(['=', ' ']).map_or(flag.len(), |at| at + 1);
    let (name, value) = match flag.strip_prefix("--set ").and_then(|rest| rest.find('=')) {
        Some(at) => flag.split_at("--set ".len() + at + 1),
        None => flag.split_at(value),
    };
    let asked = name.to_ascii_lowercase().replace('-', "_");
    let is_path = asked.trim_end_matches(['=', ' ']).ends_with("_file");
    if !is_path && ["api_key", "apikey", "secret", "password", "authorization"].iter().any(|word| asked.contains(word))
    {
        let is_name = asked.trim_end_matches(['=', ' ']).ends_with("_env");
        return format!("{name}{}", if is_name { shown_name(value) } else { masked(value) });
    }
    without_queries(&without_users(flag))
}

/// What may be a secret: its first letters, and how long it is.
pub fn masked(secret: &str) -> String {
    let start: String = secret.chars().take(3).collect();
    format!("{start}… ({} characters)", secret.chars().count())
}

/// The name of an environment variable: whole where it is written as such names are, else it may be the secret itself.
pub fn shown_name(name: &str) -> String {
    let is_usual = |c: char| c.is_ascii_uppercase() || c == '_' || (c.is_ascii_digit() && name.contains('_'));
    if name.chars().all(is_usual) { name.to_owned() } else { masked(name) }
}

/// URLs end at their `?`: keys stand behind it.
pub fn without_queries(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('?') {
        let (before, query) = rest.split_at(at + 1);
        let end = query.find(['"', '\'', ' ', ',', ']']).unwrap_or(query.len());
        shown.push_str(before);
        shown.push_str(if end > 0 { "…" } else { "" });
        rest = &query[end..];
    }
    shown + rest
}

/// A flag with its argument, without the users and passwords of URLs in it.
fn without_users(flag: &str) -> String {
    let mut parts = flag.split('@').peekable();
    let mut shown = String::new();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            shown.push_str(part);
            break;
        }
        let start = part.rfind(['/', '"', '\'', '[', ',', '=', ' ']).map_or(0, |at| at + 1);
        shown.push_str(&part[..start]);
        shown.push_str("…@");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_shown_without_passwords() {
        let cases = [
            ("--worker [\"http://me:pw@h:1\", \"x:pw@y\"]", "--worker [\"http://…@h:1\", \"…@y\"]"),
            ("--set live.proxy=me:pw@h", "--set live.proxy=…@h"),
            ("--set a.b=4", "--set a.b=4"),
            ("--worker http://h/?api_key=sk-SECRET", "--worker http://h/?…"),
            (
                "--set live.decode=[\"http://h?k=SECRET\", \"http://i\"]",
                "--set live.decode=[\"http://h?…\", \"http://i\"]",
            ),
            ("--api-key-env sk-SECRET", "--api-key-env sk-… (9 characters)"),
            ("--api-key-env VLLM_KEY_2", "--api-key-env VLLM_KEY_2"),
            ("--api-key-env AKIA7SECRET", "--api-key-env AKI… (11 characters)"),
            ("--set live.api_key=sk-SECRET", "--set live.api_key=sk-… (9 characters)"),
            ("--set live.api_key_file=key.txt", "--set live.api_key_file=key.txt"),
        ];
        for (given, shown) in cases {
            assert_eq!(Origin::Flag(given.into()).to_string(), shown);
        }
    }
}
