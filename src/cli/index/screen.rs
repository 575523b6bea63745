//! The screen of `index watch`: a text cut to what a terminal shows, and how it is drawn in place.
//!
//! Invariant: what is drawn never makes the terminal scroll, whatever its size.

use std::env;

use terminal_size::terminal_size_of;

/// To the top left.
const HOME: &str = "\x1b[H";
/// What is left of a line goes.
const END_OF_LINE: &str = "\x1b[K";
/// Everything below goes.
const BELOW: &str = "\x1b[J";
/// Plain letters again.
const PLAIN: &str = "\x1b[0m";
/// Of a terminal that says nothing of its size.
const UNKNOWN: Size = Size { columns: 80, rows: 24 };

/// Of a terminal, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub columns: usize,
    pub rows: usize,
}

impl Size {
    /// Of the terminal behind stdout, now: it changes as people pull at its window. Where it does not say, the shell's word.
    pub fn now() -> Size {
        let told = |name: &str, or: usize| env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or);
        let own = terminal_size_of(std::io::stdout());
        let own = own.map(|(columns, rows)| (usize::from(columns.0), usize::from(rows.0)));
        let of = |own: Option<usize>, name, or| own.filter(|cells| *cells > 0).unwrap_or_else(|| told(name, or)).max(1);
        Size {
            columns: of(own.map(|own| own.0), "COLUMNS", UNKNOWN.columns),
            rows: of(own.map(|own| own.1), "LINES", UNKNOWN.rows),
        }
    }
}

/// What draws `text` in place of all that was on the terminal: its lines cut at the right, and those that do not fit counted
/// in the last row, where there are two at least.
pub(super) fn frame(text: &str, size: Size) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let left_out = lines.len().saturating_sub(size.rows);
    let whole = if left_out > 0 && size.rows > 1 { size.rows - 1 } else { size.rows };
    let mut shown: Vec<String> = lines.iter().take(whole).map(|line| cut(line, size.columns)).collect();
    if left_out > 0 && size.rows > 1 {
        shown.push(cut(&format!("… {} lines more", lines.len() - whole), size.columns));
    }
    // A terminal that is full to its last column goes to the next line with the next letter only: none follows there.
    let drawn: Vec<String> = shown.iter().map(|line| format!("{line}{END_OF_LINE}")).collect();
    format!("{HOME}{}{BELOW}", drawn.join("\r\n"))
}

/// The first `columns` characters of a line; codes of colour take no room.
fn cut(line: &str, columns: usize) -> String {
    let (mut text, mut room, mut is_code, mut is_coloured) = (String::new(), columns, false, false);
    for letter in line.chars() {
        if letter == '\u{1b}' {
            (is_code, is_coloured) = (true, true);
        } else if is_code {
            is_code = letter != 'm';
        } else if room == 0 {
            return text + if is_coloured { PLAIN } else { "" };
        } else {
            room -= 1;
        }
        text.push(letter);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What stands on a terminal of that size after the frame; panics where it would have scrolled.
    fn on_terminal(drawn: &str, size: Size) -> Vec<String> {
        let mut rows = vec![String::new()];
        let mut letters = drawn.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\u{1b}' => drop(letters.by_ref().find(char::is_ascii_alphabetic)),
                '\r' => {}
                '\n' => rows.push(String::new()),
                letter => rows.last_mut().unwrap().push(letter),
            }
        }
        assert!(rows.len() <= size.rows, "{drawn:?} on {size:?}");
        assert!(rows.iter().all(|row| row.chars().count() <= size.columns), "{drawn:?} on {size:?}");
        rows
    }

    #[test]
    fn a_frame_fits_every_terminal() {
        let text = "http://127.0.0.1:8888\nstreams: 2\n\u{1b}[1minstance\u{1b}[0m  dp\np0        0\n";
        for columns in 1..30 {
            for rows in 1..7 {
                let size = Size { columns, rows };
                let shown = on_terminal(&frame(text, size), size);
                assert!(text.starts_with(&shown[0]), "{shown:?}");
                assert_eq!(shown.last().unwrap().starts_with('…'), rows > 1 && rows < 4, "{shown:?}");
            }
        }
        let size = Size { columns: 80, rows: 3 };
        assert_eq!(on_terminal(&frame(text, size), size), ["http://127.0.0.1:8888", "streams: 2", "… 2 lines more"]);
        assert_eq!(on_terminal(&frame("", size), size), [""]);
    }

    #[test]
    fn colour_that_is_cut_ends() {
        assert_eq!(cut("\u{1b}[1mbold\u{1b}[0m", 2), "\u{1b}[1mbo\u{1b}[0m");
        assert_eq!(cut("\u{1b}[1mbold\u{1b}[0m", 4), "\u{1b}[1mbold\u{1b}[0m");
        assert_eq!(cut("äöü", 2), "äö");
    }
}
