//! How results are printed: format and percentiles, shared by `replay` and `report`.

use clap::{Args, ValueEnum};

use crate::base::words::plural;
use crate::cli::exit::Exit;
use crate::cli::terminal::Terminal;
use crate::results::render::{self, Extras, Format, Style};
use crate::results::{Percentiles, RunSummary};

/// Flags of commands that print a summary or a table.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Format of what is printed: for the summary, `csv` and `markdown` print its mode table.
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: FormatName,
    /// The same as `--format json`.
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// Percentiles, 0 (minimum) to 100 (maximum). Default: 50,90,95,99,99.9.
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub percentiles: Option<Percentiles>,
    /// End with exit 1 when less than 20 % of a session's later turns went direct, in a run that keeps sessions on D. With
    /// replicas: in any of them.
    #[arg(long)]
    pub fail_on_starvation: bool,
}

/// Formats of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FormatName {
    /// Aligned text.
    Table,
    /// JSON.
    Json,
    /// Comma-separated values, one header line.
    Csv,
    /// A Markdown table.
    Markdown,
}

impl FormatName {
    /// The format of that name.
    pub fn format(self) -> Format {
        match self {
            FormatName::Table => Format::Table,
            FormatName::Json => Format::Json,
            FormatName::Csv => Format::Csv,
            FormatName::Markdown => Format::Markdown,
        }
    }
}

impl OutputArgs {
    /// The format asked for.
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format.format() }
    }

    /// The percentiles asked for; an odd choice is questioned.
    pub fn percentiles(&self, terminal: &Terminal) -> Percentiles {
        let percentiles = self.percentiles.clone().unwrap_or_default();
        percentiles.notes().into_iter().for_each(|note| terminal.messages.warning(note));
        percentiles
    }

    /// `exit`, or that of a run that broke a threshold when sessions starve and that is one; says so on stderr.
    pub fn exit(&self, exit: Exit, starved: u64, terminal: &Terminal) -> Exit {
        if !self.fail_on_starvation || starved == 0 {
            return exit;
        }
        terminal.messages.warning(format!("{} (--fail-on-starvation)", plural(starved, "starved session")));
        if exit == Exit::Ok { Exit::Broke } else { exit }
    }

    /// The summary in the format asked for.
    pub fn summary(&self, summary: &RunSummary, extras: &Extras, style: Style) -> String {
        match self.format() {
            Format::Table => render::summary(summary, extras, style),
            Format::Json => json(summary),
            format @ (Format::Csv | Format::Markdown) => render::modes(summary).render(format, style),
        }
    }
}

/// Indented JSON. Summaries are plain data, which always serialises.
pub fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).expect("plain data serialises")
}
