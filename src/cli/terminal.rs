//! What stdout and stderr are: terminals or files, with colour or not. Looked at once, at the start.
//!
//! `--color` wins; `auto` wants a terminal, no `NO_COLOR`, and a `TERM` other than `dumb`.

use std::env;
use std::io::IsTerminal;

use clap::ValueEnum;

use crate::cli::messages::Messages;
use crate::results::render::Style;

/// Width of text that goes to a file or a pipe.
const FILE_COLUMNS: usize = 160;

/// Width of a terminal that does not say.
const UNKNOWN_COLUMNS: usize = 80;

/// No text is broken narrower than this.
const LEAST_COLUMNS: usize = 40;

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ColorWhen {
    /// On a terminal, unless NO_COLOR is set or TERM is `dumb`.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl ColorWhen {
    fn on(self, is_terminal: bool) -> bool {
        match self {
            ColorWhen::Auto => is_terminal && is_able() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
            ColorWhen::Always => true,
            ColorWhen::Never => false,
        }
    }
}

/// The two streams a command writes to.
#[derive(Debug)]
pub struct Terminal {
    /// Everything on stderr but the bar.
    pub messages: Messages,
    /// A bar may be drawn on stderr, and its width is known.
    pub stderr_draws: bool,
    /// Colour and width of stdout.
    pub style: Style,
}

impl Terminal {
    /// Looks, and starts the thread that writes to stderr.
    pub fn open(color: ColorWhen, quiet: bool) -> Terminal {
        let stderr = std::io::stderr().is_terminal();
        let stdout = std::io::stdout().is_terminal();
        Terminal {
            messages: Messages::start(color.on(stderr), quiet),
            stderr_draws: stderr && is_able() && terminal_size::terminal_size_of(std::io::stderr()).is_some(),
            style: Style { color: color.on(stdout), width: if stdout { columns() } else { FILE_COLUMNS } },
        }
    }
}

impl Terminal {
    /// How a wide table is written to stdout: nothing is cut where no terminal would break it.
    pub fn table_style(&self) -> Style {
        if std::io::stdout().is_terminal() { self.style } else { Style { width: usize::MAX, ..self.style } }
    }
}

fn is_able() -> bool {
    env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// Columns of the terminal: its own word, else that of the shell.
fn columns() -> usize {
    let told = || env::var("COLUMNS").ok()?.parse().ok().filter(|columns| *columns > 0);
    let own = terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0));
    own.or_else(told).unwrap_or(UNKNOWN_COLUMNS).max(LEAST_COLUMNS)
}
