//! The page of a run: what it was, whether it may be believed, how fast, why, for whom; then charts, then tables.

use super::html::Html;
use super::shell::{Page, Section};
use super::tables::{Setting, sortable};
use super::{PageTally, matrix, overview, story, strip, workers};
use crate::results::RunSummary;
use crate::results::render::summary::{headline, workers as spread};
use crate::results::render::{self, Extras, Table};

/// What a page of a run is made from.
pub struct RunPage<'a> {
    /// Its name, such as that of its folder.
    pub name: &'a str,
    /// The summary.
    pub summary: &'a RunSummary,
    /// Fed with all its records, and with its events where there are any.
    pub tally: PageTally,
    /// Events by kind and detail; `None` when there is no file of them.
    pub events: Option<&'a Table>,
    /// Why the series over time lack something, one sentence each.
    pub gaps: &'a [String],
    /// Wall-clock time of the run, seconds.
    pub wall_s: Option<f64>,
}

/// The page of a run as one HTML file.
pub fn run_page(mut run: RunPage) -> String {
    run.tally.finish();
    let summary = run.summary;
    let extras = Extras { wall_s: run.wall_s, files: None };
    let mut sections = vec![
        Section::new("verdict", "May it be believed", overview::verdict(summary, run.gaps)),
        Section::new("outcome", "Outcome", overview::outcome(summary)),
        Section::new("latency", "Latency", overview::latency(summary)),
        Section::new("why", "Why", overview::why(summary)),
        Section::new("starved", "Starved sessions", overview::starved(summary)),
        Section::new("modes", "Paths taken", modes_table(summary)).with(story::modes_over_time(&run)),
        Section::new("cdf", "How latencies spread", Html::new()).with(story::latencies(&run)),
        Section::new("sessions", "Sessions", sessions_table(summary))
            .with([strip::sessions_over_time(&run), story::direct_shares(summary)]),
        Section::new("workers", "Workers", workers_table(summary)).with(workers::over_time(&run)),
        Section::new("transfers", "KV transfers", matrix::transfers(summary)),
        Section::new("lag", "Schedule lag", overview::harness_line(summary)).with([story::schedule_lag(&run)]),
        Section::new("errors", "Failures by class", overview::errors(summary)),
        Section::new("events", "Events", events_table(run.events)),
        Section::new("facts", "What ran", overview::facts(summary, run.wall_s)),
    ];
    // Tables come after the charts they explain.
    for section in sections.iter_mut().filter(|section| !section.figures.is_empty() && section.id != "lag") {
        section.after = std::mem::take(&mut section.body);
    }
    Page { kind: "run", title: run.name.to_owned(), subtitle: headline(summary, &extras), sections }.render()
}

fn modes_table(summary: &RunSummary) -> Html {
    let caption = "By execution mode; latencies of ok requests";
    sortable(&render::modes(summary), Setting { id: "table-modes", caption, ..Setting::default() })
}

fn sessions_table(summary: &RunSummary) -> Html {
    let mut html = Html::new();
    html.line_with(
        "p",
        &[("class", "hint")],
        "Pattern, one letter a turn: . ok without a session, D direct, S seed, R reseed, F fallback, T truncated, E aborted, \
         error or timeout, - cancelled or never sent. Direct: turns that went straight to the D that holds the session and \
         ended ok, over the turns sent after the first.",
    );
    html.add(&sortable(
        &render::sessions(summary),
        Setting {
            id: "table-sessions",
            caption: "By session: the starved first, then by rising direct share",
            filter: "Show rows with",
            all: "The starved come first; pdreplay report RUN --sessions has them all.",
        },
    ));
    html
}

fn workers_table(summary: &RunSummary) -> Html {
    let caption = "By worker; × mean is requests over the mean of the role";
    let mut html = Html::new();
    overview::lines(&mut html, spread(summary));
    html.add(&sortable(&render::workers(summary), Setting { id: "table-workers", caption, ..Setting::default() }));
    html
}

fn events_table(events: Option<&Table>) -> Html {
    let setting = Setting {
        id: "table-events",
        caption: "Beside the requests, counted by kind and detail",
        filter: "Show rows with",
        all: "pdreplay report RUN --events has them all.",
    };
    let table = events.map(|events| sortable(events, setting)).unwrap_or_default();
    if table.is_empty() { Html::of("p", "No events are recorded.") } else { table }
}
