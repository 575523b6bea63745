//! Events of the Chrome trace event format, as text.
//!
//! Format: "Trace Event Format" of the Chromium project, `traceEvents` with phases `X`, `M`, `C`, `i`, `s` and `f`. Times are
//! microseconds with three decimals, exact to the nanosecond as far as a reader's doubles are. One event a line, so that a text
//! tool can look into it.

use std::io::{self, Write};

use serde::Serialize;

/// From here on, 50 days, a double has no room for nanoseconds as decimals of microseconds: readers would round begin and
/// length apart, and drop spans that then overlap.
const WHOLE_MICROS_FROM_NS: u64 = (1 << 42) * 1000;

/// A thread of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Track {
    pub pid: u32,
    pub tid: u32,
}

impl Track {
    /// The main thread of a process, for what concerns all of it; other threads have higher numbers. Readers take a thread 0
    /// for the one that has the number of its process, and show that first.
    pub(super) fn main(pid: u32) -> Track {
        Track { pid, tid: pid }
    }
}

/// Writes events.
pub(super) struct Events<'a> {
    out: &'a mut dyn Write,
    begun: bool,
}

impl<'a> Events<'a> {
    pub(super) fn new(out: &'a mut dyn Write) -> io::Result<Events<'a>> {
        out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
        Ok(Events { out, begun: false })
    }

    pub(super) fn finish(self) -> io::Result<()> {
        self.out.write_all(b"\n]}\n")
    }

    /// A span; one of no length is seen as a point.
    pub(super) fn span(&mut self, track: Track, name: &str, (start, end): (u64, u64)) -> io::Result<()> {
        self.head("X", name, track, start)?;
        write!(self.out, ",\"dur\":{}}}", length(start, end))
    }

    /// A span with arguments.
    pub(super) fn span_with(
        &mut self,
        track: Track,
        name: &str,
        (start, end): (u64, u64),
        args: &impl Serialize,
    ) -> io::Result<()> {
        self.head("X", name, track, start)?;
        write!(self.out, ",\"dur\":{},\"args\":", length(start, end))?;
        self.end_with(args)
    }

    /// A point with arguments.
    pub(super) fn instant(&mut self, track: Track, name: &str, at: u64, args: &impl Serialize) -> io::Result<()> {
        self.head("i", name, track, at)?;
        write!(self.out, ",\"s\":\"t\",\"args\":")?;
        self.end_with(args)
    }

    /// A value from a time on.
    pub(super) fn counter(&mut self, pid: u32, name: &str, at: u64, value: u64) -> io::Result<()> {
        self.head("C", name, Track::main(pid), at)?;
        write!(self.out, ",\"args\":{{\"value\":{value}}}}}")
    }

    /// An arrow from a span to another.
    pub(super) fn flow(&mut self, id: usize, from: (Track, u64), to: (Track, u64)) -> io::Result<()> {
        self.head("s", "request", from.0, from.1)?;
        write!(self.out, ",\"cat\":\"request\",\"id\":{id}}}")?;
        self.head("f", "request", to.0, to.1)?;
        write!(self.out, ",\"cat\":\"request\",\"id\":{id},\"bp\":\"e\"}}")
    }

    /// Name of a process, and its place among them.
    pub(super) fn process(&mut self, pid: u32, name: &str) -> io::Result<()> {
        self.metadata("process_name", Track::main(pid), &Named { name })?;
        self.metadata("process_sort_index", Track::main(pid), &Sorted { sort_index: pid })
    }

    /// Name of a thread, and its place in the process.
    pub(super) fn thread(&mut self, track: Track, name: &str) -> io::Result<()> {
        self.metadata("thread_name", track, &Named { name })?;
        self.metadata("thread_sort_index", track, &Sorted { sort_index: track.tid })
    }

    fn metadata(&mut self, name: &str, track: Track, args: &impl Serialize) -> io::Result<()> {
        self.separate()?;
        let Track { pid, tid } = track;
        write!(self.out, "{{\"ph\":\"M\",\"name\":\"{name}\",\"pid\":{pid},\"tid\":{tid},\"args\":")?;
        self.end_with(args)
    }

    fn head(&mut self, phase: &str, name: &str, Track { pid, tid }: Track, at: u64) -> io::Result<()> {
        self.separate()?;
        write!(self.out, "{{\"ph\":\"{phase}\",\"name\":")?;
        serde_json::to_writer(&mut *self.out, name)?;
        write!(self.out, ",\"pid\":{pid},\"tid\":{tid},\"ts\":{}", micros(told(at)))
    }

    fn end_with(&mut self, args: &impl Serialize) -> io::Result<()> {
        serde_json::to_writer(&mut *self.out, args)?;
        self.out.write_all(b"}")
    }

    fn separate(&mut self) -> io::Result<()> {
        self.out.write_all(if std::mem::replace(&mut self.begun, true) { b",\n" } else { b"\n" })
    }
}

#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
}

#[derive(Serialize)]
struct Sorted {
    sort_index: u32,
}

/// A time as readers can hold it. Keeps the order of times, so what nested still does.
fn told(ns: u64) -> u64 {
    if ns < WHOLE_MICROS_FROM_NS { ns } else { ns / 1000 * 1000 }
}

fn length(start: u64, end: u64) -> String {
    micros(told(end).saturating_sub(told(start)))
}

/// Nanoseconds as microseconds, exact.
fn micros(ns: u64) -> String {
    match ns % 1000 {
        0 => (ns / 1000).to_string(),
        rest => format!("{}.{rest:03}", ns / 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_times_are_such_that_a_double_holds_them_and_keep_their_order() {
        let late = WHOLE_MICROS_FROM_NS;
        for ns in [0, 7, late - 1, late, late + 1, late + 999, late + 1000, 10 * late + 123_456] {
            let (micros, begin) = (micros(told(ns)), told(ns));
            let read: f64 = micros.parse().unwrap();
            assert_eq!((read * 1000.0).round() as u64, begin, "{micros}");
            assert!(begin <= ns && ns - begin < 1000 && told(ns + 1) >= begin);
        }
        assert_eq!(length(late - 1, late + 1999), "1.001");
    }

    #[test]
    fn no_nanosecond_is_lost() {
        assert_eq!([0, 7, 1_000, 1_050, u64::MAX].map(micros), ["0", "0.007", "1", "1.050", "18446744073709551.615"]);
    }
}
