//! How the program ends: the exit codes, and the failures that lead to them.
//!
//! Owns the table of exit codes and the shape of an error message (cause, then hints). Does not print.
//! Invariant: every way out of a command is an [`Exit`] or a [`Failure`]; nothing calls `process::exit`.

use std::fmt::{self, Display};
use std::process::ExitCode;

use crate::scenario::{ScenarioError, SetupError};

/// Exit code of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// All went well.
    Ok = 0,
    /// The run broke a stated budget or threshold, completed nothing, or could not write its results.
    Broke = 1,
    /// Bad usage or bad input; nothing was run.
    Usage = 2,
    /// The terminal is gone (SIGHUP), results kept.
    HungUp = 129,
    /// Interrupted by SIGINT, results kept.
    Interrupted = 130,
    /// Interrupted by SIGTERM, results kept.
    Terminated = 143,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a command could not do what was asked: causes, ways out, exit code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// Code to end with.
    pub exit: Exit,
    /// The causes, lowercase, no full stop; never empty.
    pub causes: Vec<String>,
    /// Ways out, one sentence each.
    pub hints: Vec<String>,
    /// Results, or what is made of them, cannot be written: the next run would meet the same.
    pub is_write: bool,
}

impl Failure {
    /// Bad usage or input: exit 2.
    pub fn input(cause: impl Display) -> Failure {
        Failure::inputs([cause])
    }

    /// Several things wrong with the input, each a line of its own: exit 2.
    pub fn inputs(causes: impl IntoIterator<Item: Display>) -> Failure {
        let causes = causes.into_iter().map(|cause| cause.to_string()).collect();
        Failure { exit: Exit::Usage, causes, hints: Vec::new(), is_write: false }
    }

    /// Something broke while running or writing: exit 1.
    pub fn broke(cause: impl Display) -> Failure {
        Failure { exit: Exit::Broke, causes: vec![cause.to_string()], hints: Vec::new(), is_write: false }
    }

    /// Says that results cannot be written.
    pub fn of_write(mut self) -> Failure {
        self.is_write = true;
        self
    }

    /// Adds a way out.
    pub fn hint(mut self, hint: impl Display) -> Failure {
        self.hints.push(hint.to_string());
        self
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.causes.join("\n"))
    }
}

impl std::error::Error for Failure {}

impl From<ScenarioError> for Failure {
    fn from(error: ScenarioError) -> Failure {
        Failure::inputs(error.problems)
    }
}

impl From<SetupError> for Failure {
    fn from(error: SetupError) -> Failure {
        Failure::inputs(error.problems.iter().map(|problem| format!("scenario key {problem}")))
    }
}
