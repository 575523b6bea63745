//! `diff`: two runs, or two groups of repeats, against each other.
//!
//! Opens and reads, makes repeats where none are given, draws resamples on threads; what is compared and how is decided in
//! [`crate::results::diff`].

mod repeats;
mod sides;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::cli::diff::repeats::Wish;
use crate::cli::diff::sides::{Loaded, load};
use crate::cli::exit::{Exit, Failure};
use crate::cli::found::Asked;
use crate::cli::page::{self, PageArgs};
use crate::cli::stdout;
use crate::cli::terminal::Terminal;
use crate::cli::threads::{in_order, processors};
use crate::results::diff::{Comparison, DiffReport, Draws, Options, Refused, Resampler, Threshold};
use crate::results::page::diff_page;
use crate::results::{Percentile, Percentiles, Slos, render};

const EXAMPLES: &str = "\
Examples:
  # what changed, and where it comes from
  pdreplay diff outputs/BASE outputs/NEW
  # for a pull request; exit 1 when the tail grew by more than 5 %
  pdreplay diff outputs/BASE outputs/NEW --format markdown \\
    --fail-on 'p99_e2e_ms>+5%' --fail-on 'starved_sessions>+0'
  # one page with charts, to open in a browser
  pdreplay diff outputs/BASE outputs/NEW --html diff.html
  # groups of repeats: folders of --replicas, or runs joined by commas
  pdreplay diff outputs/BASE-x5 outputs/N1,outputs/N2,outputs/N3

Conditions of --fail-on: FIGURE > >= < <= LIMIT. With a sign the limit is on the change from A to B (`+5%` of A, or \
`-0.05` in the figure's unit); without one it is on the figure in B (`bad_share>1%`, `starved_sessions>0`). Figures are \
those of summary.json: mean_e2e_ms, p99_ttft_ms, p99_e2e_ms_with_failures, direct_share, bad_share, \
request_throughput, starved_sessions, became_starved, freed_sessions and more (docs/diff.md).

Exit codes: 0 compared, and no condition was met; 1 a condition was met, or could not be judged; 2 bad usage or input, \
or runs that cannot be compared (other trace, population or time scale).";

/// Arguments of `diff`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DiffArgs {
    /// The base: a run folder, a folder of replicas, a file of records; or several joined by commas, as repeats.
    #[arg(value_name = "A")]
    a: OsString,
    /// What is held against it.
    #[arg(value_name = "B")]
    b: OsString,
    /// A further repeat of A.
    #[arg(long, value_name = "RUN", help_heading = "Sides")]
    with_a: Vec<PathBuf>,
    /// A further repeat of B.
    #[arg(long, value_name = "RUN", help_heading = "Sides")]
    with_b: Vec<PathBuf>,
    /// Compare runs of other traces, populations or time scales too; says what is then meaningless, and leaves it out.
    #[arg(long, help_heading = "Sides")]
    force: bool,
    /// End with exit 1 when this holds, such as `p99_e2e_ms>+5%`; may be repeated.
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true, help_heading = "Thresholds")]
    fail_on: Vec<Threshold>,
    /// Objectives in ms that a request should keep to count as good, such as `ttft:2000,e2el:60000`, for both sides. Default:
    /// those of the runs, where they are the same.
    #[arg(long, value_name = "METRIC:MS,…", help_heading = "Thresholds")]
    goodput: Option<Slos>,
    /// Resamples of the bootstrap by session, at least 100; 0: no intervals.
    #[arg(long, value_name = "N", default_value = "1000", help_heading = "Chance", value_parser = resamples)]
    resamples: u32,
    /// Seed of the resamples.
    #[arg(long, value_name = "N", default_value = "42", help_heading = "Chance")]
    seed: u64,
    /// Confidence of intervals and of the noise, per cent.
    #[arg(long, value_name = "PERCENT", default_value = "95", help_heading = "Chance", value_parser = confidence)]
    confidence: f64,
    /// Repeats of a run in virtual time, made in memory to learn the noise where a side has none. Default: 3 for up to
    /// 100,000 requests.
    #[arg(long, value_name = "N", help_heading = "Chance", value_parser = clap::value_parser!(u32).range(2..=1000))]
    replicas: Option<u32>,
    /// Make no repeats.
    #[arg(long, conflicts_with = "replicas", help_heading = "Chance")]
    no_replicas: bool,
    /// Threads; default: one per processor. Their number changes no figure.
    #[arg(long, value_name = "N", help_heading = "Run", value_parser = clap::value_parser!(u32).range(1..=1024))]
    jobs: Option<u32>,
    /// Format of what is printed [default: table].
    #[arg(long, value_name = "FORMAT", help_heading = "Output")]
    format: Option<DiffFormat>,
    /// Every figure, not the headline ones alone; JSON and HTML always have them all.
    #[arg(long, help_heading = "Output")]
    all: bool,
    /// The same as `--format json`.
    #[arg(long, conflicts_with = "format", help_heading = "Output")]
    json: bool,
    /// Percentiles, 0 (minimum) to 100 (maximum). Default: 50,90,99.
    #[arg(long, value_name = "LIST", allow_hyphen_values = true, help_heading = "Output")]
    percentiles: Option<Percentiles>,
    #[command(flatten)]
    page: PageArgs,
}

/// Formats of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DiffFormat {
    /// Text for a terminal.
    Table,
    /// For a pull request.
    Markdown,
    /// Everything, for programs.
    Json,
}

impl DiffArgs {
    /// The format asked for by name.
    fn asked(&self) -> Option<DiffFormat> {
        if self.json { Some(DiffFormat::Json) } else { self.format }
    }

    /// Percentiles that were asked for by name are there to be seen.
    fn shown(&self) -> render::diff::Shown {
        let all = self.all || self.percentiles.is_some();
        if all { render::diff::Shown::All } else { render::diff::Shown::Headline }
    }
}

/// Runs it.
pub fn run(args: &DiffArgs, terminal: &Terminal) -> Result<Exit, Failure> {
    args.page.check(args.asked().is_some())?;
    let jobs = args.jobs.map_or_else(processors, |jobs| jobs as usize);
    let options = options(args, terminal);
    let asked = Asked { percentiles: Some(options.wanted_percentiles()), slos: args.goodput };
    let names = [side_names(&args.a, &args.with_a), side_names(&args.b, &args.with_b)];
    let sides = load(&names, &asked, jobs, terminal)?;
    let singles = sides.each_ref().map(Loaded::single);
    let [a, b] = sides.map(Loaded::into_input);
    let mut comparison = Comparison::new(a, b, options).map_err(refusal)?;
    if let ([Some(a), Some(b)], false) = (singles, args.no_replicas) {
        let wish = Wish { asked: args.replicas, summary: &asked, jobs };
        comparison.learn(repeats::make([a, b], &wish, terminal)?);
    }
    let draws = comparison.resampler().map(|resampler| draw(&resampler, jobs));
    let report = comparison.report(draws.as_ref());
    terminal.messages.settle();
    print(&report, args, terminal)?;
    Ok(if report.is_crossed() { Exit::Broke } else { Exit::Ok })
}

fn print(report: &DiffReport, args: &DiffArgs, terminal: &Terminal) -> Result<(), Failure> {
    let write = |target: &PathBuf| page::write(target, &diff_page(report), terminal);
    let written = args.page.html.as_ref().map_or(Ok(()), write);
    if args.page.html.is_some() {
        render::diff::thresholds(&report.thresholds).into_iter().for_each(|line| terminal.messages.note(line));
        terminal.messages.settle();
    }
    // What is compared was only read.
    let written = written.map_err(|failure| {
        failure.hint("the runs are as they were: the same command with another FILE writes the page")
    });
    if !args.page.leaves_stdout_after(args.asked().is_some(), &written) {
        return written;
    }
    match args.asked().unwrap_or(DiffFormat::Table) {
        DiffFormat::Json => stdout::print_json(report)?,
        DiffFormat::Table => stdout::print(&render::diff::text(report, args.shown(), terminal.style))?,
        DiffFormat::Markdown => stdout::print(&render::diff::markdown(report, args.shown()))?,
    }
    written
}

fn options(args: &DiffArgs, terminal: &Terminal) -> Options {
    let usual =
        || [Percentile::P90, Percentile::P99].into_iter().fold(Percentiles::only(Percentile::P50), Percentiles::with);
    let percentiles = args.percentiles.clone().unwrap_or_else(usual);
    percentiles.notes().into_iter().for_each(|note| terminal.messages.warning(note));
    Options {
        percentiles,
        resamples: args.resamples,
        seed: args.seed,
        confidence: args.confidence,
        force: args.force,
        thresholds: args.fail_on.clone(),
    }
}

/// Paths of the runs of one side. A path that exists as it stands may hold a comma.
fn side_names(joined: &OsStr, further: &[PathBuf]) -> Vec<PathBuf> {
    let parts: Vec<PathBuf> = match joined {
        whole if Path::new(whole).exists() => vec![PathBuf::from(whole)],
        list => {
            let parts = list.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
            parts.filter(|part| !part.is_empty()).map(|part| PathBuf::from(OsStr::from_bytes(part))).collect()
        }
    };
    parts.into_iter().chain(further.iter().cloned()).collect()
}

/// The ends of an interval are percentiles of so many values: of a handful they would say nothing.
fn resamples(text: &str) -> Result<u32, String> {
    let number: Option<u32> = text.trim().parse().ok();
    let number = number.filter(|number| *number == 0 || (100..=1_000_000).contains(number));
    number.ok_or_else(|| "write 0 for no intervals, or a number from 100 to 1000000".to_owned())
}

fn confidence(text: &str) -> Result<f64, String> {
    let value: Option<f64> = text.trim().trim_end_matches('%').trim_end().parse().ok();
    let percent = value.filter(|percent| (50.0..100.0).contains(percent));
    percent.map(|percent| percent / 100.0).ok_or_else(|| "write per cent from 50 to below 100, such as 95".to_owned())
}

fn refusal(Refused(forced): Refused) -> Failure {
    let failure = Failure::inputs(forced.iter().map(|forced| forced.text.clone()));
    let hints = forced.into_iter().map(|forced| format!("--force compares all the same: {}", forced.meaningless));
    hints.fold(failure, Failure::hint)
}

/// All resamples, by chunks on threads, put together in order.
fn draw(resampler: &Resampler, jobs: usize) -> Draws {
    let mut all = Draws::new();
    for draws in in_order(resampler.chunks() as usize, jobs, |chunk| resampler.draw(chunk as u32)) {
        all.resize(draws.len(), Vec::new());
        all.iter_mut().zip(draws).for_each(|(all, draws)| all.extend(draws));
    }
    all
}
