//! Progress of a run on stderr: a bar on a terminal, a plain line now and then elsewhere, nothing when quiet.
//!
//! Invariant: off a terminal there is no carriage return and no escape byte, and no line waits for its reader.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::messages::Messages;
use crate::cli::terminal::Terminal;
use crate::replay::Progress;

/// Time between plain lines.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Time between two drawings of the bar.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// Fits 20 columns: the bar takes what the figures leave.
const BAR: &str = "{percent:>3} % {wide_bar} {pos}/{len}";

/// What shows the progress of one run.
#[derive(Debug)]
pub struct Display<'a> {
    messages: &'a Messages,
    bar: Option<ProgressBar>,
    shown_at: Instant,
}

impl<'a> Display<'a> {
    /// Announces the run as `title`; `planned` requests are to come.
    pub fn start(terminal: &'a Terminal, title: &str, planned: u64, now: Instant) -> Display<'a> {
        let messages = &terminal.messages;
        if messages.is_quiet() || !terminal.stderr_draws {
            messages.progress(title);
            return Display { messages, bar: None, shown_at: now };
        }
        messages.settle();
        let bar = ProgressBar::with_draw_target(Some(planned), ProgressDrawTarget::stderr_with_hz(10));
        if let Ok(style) = ProgressStyle::with_template(BAR) {
            bar.set_style(style);
        }
        Display { messages, bar: Some(bar), shown_at: now }
    }

    /// Shows how far the run is, when it is time to.
    pub fn show(&mut self, progress: &Progress, now: Instant) {
        let every = if self.bar.is_some() { DRAW_EVERY } else { LINE_EVERY };
        if now.duration_since(self.shown_at) < every {
            return;
        }
        self.shown_at = now;
        match &self.bar {
            Some(bar) => bar.set_position(progress.ended),
            None => self.messages.progress(line(progress)),
        }
    }

    /// The end: the bar goes.
    pub fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

fn line(progress: &Progress) -> String {
    let Progress { now, planned, ended, in_flight } = progress;
    let percent = 100 * ended / (*planned).max(1);
    let at_s = now.as_secs_f64();
    format!("{ended} of {planned} requests ended ({percent} %), {in_flight} in flight, {at_s:.0} s of the run")
}
