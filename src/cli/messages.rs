//! Everything written to stderr: errors, hints, warnings, notes and plain progress lines.
//!
//! A thread of its own does the writing, so a terminal nobody reads never holds up a run. Progress lines are
//! dropped while earlier ones still wait; errors never are. Invariant: nothing else in the program writes to stderr,
//! except the progress bar, which settles the lines first, and colour only ever repeats what the words say.

use std::fmt::Display;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use crate::cli::exit::Failure;
use crate::results::render::visible;

/// Progress lines are dropped while this many lines wait to be written.
const WAITING_LIMIT: usize = 8;

/// Longest wait for the last lines to reach a reader that has stopped reading.
const SETTLE_LIMIT: Duration = Duration::from_secs(1);

/// The stderr of the program. Clones write through the same thread.
#[derive(Debug, Clone)]
pub struct Messages {
    lines: Sender<Job>,
    waiting: Arc<AtomicUsize>,
    color: bool,
    quiet: bool,
}

#[derive(Debug)]
enum Job {
    Line(String),
    Settle(Sender<()>),
}

impl Messages {
    /// Starts the writing thread. `quiet` leaves only warnings and errors.
    pub fn start(color: bool, quiet: bool) -> Messages {
        let (lines, jobs) = mpsc::channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&waiting);
        std::thread::spawn(move || write_lines(jobs, &counter));
        Messages { lines, waiting, color, quiet }
    }

    /// Only warnings and errors are wanted.
    pub fn is_quiet(&self) -> bool {
        self.quiet
    }

    /// An `error: …` for each cause, then the `hint: …` lines.
    pub fn failure(&self, failure: &Failure) {
        for cause in &failure.causes {
            self.labelled("error", "31", cause);
        }
        for hint in &failure.hints {
            self.labelled("hint", "36", hint);
        }
    }

    /// `warning: …`
    pub fn warning(&self, text: impl Display) {
        self.labelled("warning", "33", text);
    }

    /// A line for information, left out when quiet.
    pub fn note(&self, text: impl Display) {
        if !self.quiet {
            self.send(visible(&text.to_string()).into_owned());
        }
    }

    /// Lines as they were rendered, left out when quiet.
    pub fn block(&self, rendered: &str) {
        if !self.quiet {
            self.send(rendered.trim_end().to_owned());
        }
    }

    /// A progress line, left out when quiet or when the reader is behind.
    pub fn progress(&self, text: impl Display) {
        if self.waiting.load(Ordering::Relaxed) < WAITING_LIMIT {
            self.note(text);
        }
    }

    /// Waits until all lines are written, at most a second.
    pub fn settle(&self) {
        let (done, wait) = mpsc::channel();
        if self.lines.send(Job::Settle(done)).is_ok() {
            // A reader that has stopped reading loses the rest: better than a program that does not end.
            let _ = wait.recv_timeout(SETTLE_LIMIT);
        }
    }

    fn labelled(&self, label: &str, code: &str, text: impl Display) {
        let text = text.to_string();
        let text = visible(&text);
        if self.color {
            self.send(format!("\x1b[1;{code}m{label}:\x1b[0m {text}"));
        } else {
            self.send(format!("{label}: {text}"));
        }
    }

    fn send(&self, line: String) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // The thread outlives every sender; were it gone, there would be nobody left to tell.
        let _ = self.lines.send(Job::Line(line));
    }
}

fn write_lines(jobs: Receiver<Job>, waiting: &AtomicUsize) {
    let mut stderr = std::io::stderr();
    for job in jobs {
        match job {
            Job::Line(mut line) => {
                line.push('\n');
                // A closed stderr must not end a run whose results are wanted.
                let _ = stderr.write_all(line.as_bytes());
                waiting.fetch_sub(1, Ordering::Relaxed);
            }
            Job::Settle(done) => {
                let _ = done.send(());
            }
        }
    }
}
