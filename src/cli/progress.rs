//! Progress of a run on stderr: a bar on a terminal, a plain line now and then elsewhere, nothing when quiet.
//!
//! Invariant: off a terminal there is no carriage return and no escape byte, and no line waits for its reader.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::base::words::seconds;
use crate::cli::messages::Messages;
use crate::cli::recorder::wall_now;
use crate::cli::terminal::Terminal;
use crate::replay::Progress;

/// Time between plain lines.
pub const LINE_EVERY: Duration = Duration::from_secs(5);

/// Reading that takes less shows no bar.
const SHOW_READING_FROM: Duration = Duration::from_millis(500);

/// Time between two drawings of the bar.
const DRAW_EVERY: Duration = Duration::from_millis(100);

/// Fits 20 columns: the bar takes what the figures leave.
const BAR: &str = "{percent:>3} % {wide_bar} {pos}/{len}{msg}";

/// The schedule of a run in real time, for the time that is left.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Schedule {
    /// First to last planned send, seconds of the run.
    pub planned_s: f64,
    /// The clock of the run against the wall's.
    pub speed: f64,
    /// After a signal: longest wait for requests in flight, seconds of the wall.
    pub drain_s: f64,
}

/// What shows the progress of one run.
#[derive(Debug)]
pub struct Display<'a> {
    messages: &'a Messages,
    bar: Option<ProgressBar>,
    schedule: Option<Schedule>,
    shown_at: Instant,
    /// Records of requests never sent.
    skipped: u64,
    stopping: bool,
}

impl<'a> Display<'a> {
    /// Announces the run as `title`; `planned` requests are to come, in real time by a `schedule`.
    pub fn start(
        terminal: &'a Terminal,
        title: &str,
        planned: u64,
        schedule: Option<Schedule>,
        now: Instant,
    ) -> Display<'a> {
        let messages = &terminal.messages;
        if messages.is_quiet() || !terminal.stderr_draws {
            messages.progress(title);
            return Display { messages, bar: None, schedule, shown_at: now, skipped: 0, stopping: false };
        }
        messages.settle();
        Display { messages, bar: Some(bar(planned)), schedule, shown_at: now, skipped: 0, stopping: false }
    }

    /// A request was recorded as never sent.
    pub fn skip(&mut self) {
        self.skipped += 1;
    }

    /// A signal came: says once what happens now. In virtual time nothing is waited for.
    pub fn stop(&mut self, progress: &Progress) {
        if std::mem::replace(&mut self.stopping, true) {
            return;
        }
        let Some(schedule) = self.schedule else { return };
        let text = format!(
            "interrupted: nothing more is sent; {} in flight may end for {}, then results are written; a second signal \
             ends at once, with the records so far",
            progress.in_flight,
            seconds(schedule.drain_s * 1e3)
        );
        self.warn(&text);
    }

    /// A warning that cannot wait for the end of the run.
    pub fn warn(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| {
                self.messages.warning(text);
                self.messages.settle();
            }),
            None => self.messages.warning(text),
        }
    }

    /// Shows how far the run is, when it is time to.
    pub fn show(&mut self, progress: &Progress, now: Instant) {
        let every = if self.bar.is_some() { DRAW_EVERY } else { LINE_EVERY };
        if now.duration_since(self.shown_at) < every {
            return;
        }
        self.shown_at = now;
        let left = if self.stopping { String::new() } else { left(progress, self.schedule) };
        match &self.bar {
            Some(bar) => {
                bar.set_position(progress.ended.saturating_sub(self.skipped));
                bar.set_message(left);
            }
            None => self.messages.progress(line(progress, self.skipped) + &left),
        }
    }

    /// The end: the bar goes.
    pub fn end(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A bar on stderr for `planned` things.
pub fn bar(planned: u64) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(planned), ProgressDrawTarget::stderr_with_hz(10));
    if let Ok(style) = ProgressStyle::with_template(BAR) {
        bar.set_style(style);
    }
    bar
}

/// A bar for reading a long file: on a terminal only, and only when it takes a while.
#[derive(Debug)]
pub struct ReadBar {
    rows: Option<u64>,
    started: Instant,
    draws: bool,
    bar: Option<ProgressBar>,
}

impl ReadBar {
    /// Of a file with so many rows, as far as they are known.
    pub fn new(terminal: &Terminal, rows: Option<u64>) -> ReadBar {
        let draws = terminal.stderr_draws && !terminal.messages.is_quiet();
        ReadBar { rows, started: wall_now(), draws, bar: None }
    }

    /// Shows how far the reading is.
    pub fn show(&mut self, row: u64) {
        if !self.draws || self.started.elapsed() < SHOW_READING_FROM {
            return;
        }
        let bar = self.bar.get_or_insert_with(|| {
            let bar = ProgressBar::with_draw_target(self.rows, ProgressDrawTarget::stderr_with_hz(10));
            if let Ok(style) = ProgressStyle::with_template(BAR) {
                bar.set_style(style);
            }
            bar.set_message(" records read");
            bar
        });
        bar.set_position(row);
    }
}

impl Drop for ReadBar {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn line(progress: &Progress, skipped: u64) -> String {
    let Progress { now, planned, ended, in_flight } = progress;
    let ended = ended.saturating_sub(skipped);
    let percent = 100 * ended / (*planned).max(1);
    let at_s = now.as_secs_f64();
    let never = if skipped > 0 { format!(", {skipped} never sent") } else { String::new() };
    format!("{ended} of {planned} requests ended ({percent} %){never}, {in_flight} in flight, {at_s:.0} s of the run")
}

/// Wall time that the run still takes, by its schedule or by the rate at which requests ended so far, whichever is longer:
/// `, about 90.0 s left`; past the schedule, whether anything is still to be sent. Nothing in virtual time.
fn left(progress: &Progress, schedule: Option<Schedule>) -> String {
    let Some(Schedule { planned_s, speed, .. }) = schedule else { return String::new() };
    let now_s = progress.now.as_secs_f64();
    let left_s = (planned_s - now_s) / speed;
    let per_request_s = now_s / speed / progress.ended.max(1) as f64;
    let at_rate_s = progress.planned.saturating_sub(progress.ended) as f64 * per_request_s;
    let to_send = progress.planned.saturating_sub(progress.ended + progress.in_flight);
    match (left_s > 0.0, to_send) {
        (true, _) => format!(", about {} left", seconds(left_s.max(at_rate_s) * 1e3)),
        (false, 0) => ", last answers".into(),
        (false, to_send) => format!(", behind its schedule: {to_send} still to send"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Dur, Time};

    #[test]
    fn the_time_left_is_that_of_the_wall() {
        let at = |s: u64| Progress { now: Time::ZERO + Dur::from_millis(s * 1000), planned: 9, ended: 4, in_flight: 2 };
        let schedule = Some(Schedule { planned_s: 100.0, speed: 10.0, drain_s: 2.0 });
        assert_eq!(left(&at(40), schedule), ", about 6.00 s left");
        // Half the requests took nearly all of the schedule: the other half takes as long again.
        assert_eq!(left(&Progress { planned: 8, ..at(99) }, schedule), ", about 9.90 s left");
        assert_eq!(left(&Progress { ended: 0, ..at(99) }, schedule), ", about 89.1 s left");
        assert_eq!(left(&at(101), schedule), ", behind its schedule: 3 still to send");
        assert_eq!(left(&Progress { ended: 7, ..at(101) }, schedule), ", last answers");
        assert_eq!(left(&at(40), None), "");
    }
    #[test]
    fn what_was_never_sent_has_not_ended() {
        let now = Time::ZERO + Dur::from_millis(3000);
        let progress = Progress { now, planned: 100, ended: 90, in_flight: 4 };
        assert_eq!(line(&progress, 80), "10 of 100 requests ended (10 %), 80 never sent, 4 in flight, 3 s of the run");
        assert_eq!(line(&progress, 0), "90 of 100 requests ended (90 %), 4 in flight, 3 s of the run");
    }
}
