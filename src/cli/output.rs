//! How results are printed: format and percentiles, shared by `replay` and `report`.

use clap::{Args, ValueEnum};

use crate::cli::exit::Exit;
use crate::cli::starving::Starving;
use crate::cli::terminal::Terminal;
use crate::results::render::{self, Extras, Format, Style};
use crate::results::{Percentiles, RunSummary};

/// Flags of commands that print a summary or a table.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Format of what is printed [default: table]. Of the summary, `markdown` is a report for a pull request, `csv` its mode
    /// table.
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<FormatName>,
    /// The same as `--format json`.
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// Percentiles, 0 (minimum) to 100 (maximum). Default: those of the run, else 50,90,95,99,99.9. Tables on a terminal have
    /// those of them that they know.
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub percentiles: Option<Percentiles>,
    /// End with exit 1 when less than 20 % of a session's later turns went direct, in a run that keeps sessions on D. With
    /// replicas: in any of them; of a sweep: in any cell. Also when files that would tell it were changed.
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
        if self.json { Format::Json } else { self.format.map(FormatName::format).unwrap_or_default() }
    }

    /// The format asked for by name.
    pub fn asked(&self) -> Option<Format> {
        self.prints().then(|| self.format())
    }

    /// A format was asked for by name: it is printed whatever else is written.
    pub fn prints(&self) -> bool {
        self.json || self.format.is_some()
    }

    /// The percentiles asked for; an odd choice is questioned.
    pub fn percentiles(&self, terminal: &Terminal) -> Option<Percentiles> {
        let notes = self.percentiles.iter().flat_map(Percentiles::notes);
        notes.for_each(|note| terminal.messages.warning(note));
        self.percentiles.clone()
    }

    /// `exit`, or that of a broken threshold where sessions starve and that was asked for.
    pub fn exit(&self, exit: Exit, starving: &Starving, terminal: &Terminal) -> Exit {
        starving.exit(exit, self.fail_on_starvation, terminal)
    }

    /// The summary in the format asked for.
    pub fn summary(&self, summary: &RunSummary, extras: &Extras, style: Style) -> String {
        match self.format() {
            Format::Table => render::summary(summary, extras, style),
            Format::Json => json(summary),
            Format::Csv => render::modes(summary).render(Format::Csv, style),
            Format::Markdown => render::markdown(summary, extras),
        }
    }
}

/// Indented JSON. Summaries are plain data, which always serialises.
pub fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).expect("plain data serialises")
}
