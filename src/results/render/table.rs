//! [`Table`]: cells with a reading form and a raw form, and the four ways to write them.
//!
//! Ids and words of servers come from outside: what could steer a terminal or reorder a line is written as an escape
//! ([`visible`]). JSON has it as it is.

use std::borrow::Cow;
use std::str::FromStr;

use serde::Serialize;
use thiserror::Error;

/// How a table is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Aligned columns for a terminal.
    #[default]
    Table,
    /// An array of objects, the rows of `summary.json`.
    Json,
    /// Comma-separated, raw numbers, every column.
    Csv,
    /// A Markdown table, every column.
    Markdown,
}

/// Not a [`Format`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no format; write table, json, csv or markdown")]
pub struct FormatError(String);

/// What the terminal can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// May use ANSI colours.
    pub color: bool,
    /// Columns available; longer lines are cut with `…`.
    pub width: usize,
}

/// Columns and rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<Cell>>,
    json: serde_json::Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Column {
    /// Header for people.
    pub title: Cow<'static, str>,
    /// Header of a CSV column: the key of the JSON row.
    pub key: Cow<'static, str>,
    /// Text to the left, numbers to the right.
    pub left: bool,
    /// Shown on a terminal, where width is short.
    pub on_terminal: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Cell {
    /// For people.
    pub shown: String,
    /// For programs; empty when there is nothing.
    pub raw: String,
}

impl Default for Style {
    fn default() -> Self {
        Style { color: false, width: 120 }
    }
}

impl FromStr for Format {
    type Err = FormatError;

    fn from_str(text: &str) -> Result<Self, FormatError> {
        match text {
            "table" => Ok(Format::Table),
            "json" => Ok(Format::Json),
            "csv" => Ok(Format::Csv),
            "markdown" => Ok(Format::Markdown),
            _ => Err(FormatError(text.into())),
        }
    }
}

impl Cell {
    pub(super) fn text(text: impl Into<String>) -> Cell {
        let text = text.into();
        Cell { shown: text.clone(), raw: text }
    }

    /// A number that may be missing: `–` for people, empty for programs.
    pub(super) fn number(value: Option<f64>, show: fn(f64) -> String) -> Cell {
        let raw = value.map_or_else(String::new, |value| value.to_string());
        Cell { shown: value.map_or_else(|| "–".into(), show), raw }
    }

    pub(super) fn count(n: u64) -> Cell {
        Cell { shown: crate::base::words::count(n), raw: n.to_string() }
    }
}

impl Table {
    /// `rows_of` are the typed rows, for JSON.
    pub(super) fn new(columns: Vec<Column>, rows: Vec<Vec<Cell>>, rows_of: &impl Serialize) -> Table {
        assert!(rows.iter().all(|row| row.len() == columns.len()), "a row has another number of cells than columns");
        let json = serde_json::to_value(rows_of).expect("rows are plain data");
        Table { columns, rows, json }
    }

    /// The same with other words over a column for people; files keep its key.
    pub fn titled(mut self, key: &str, title: &'static str) -> Table {
        self.columns.iter_mut().filter(|column| column.key == key).for_each(|column| column.title = title.into());
        self
    }

    /// Text under titles, the first column and words to the left, numbers to the right. In JSON a row is an object of
    /// its titles and texts.
    pub fn plain(titles: &[&'static str], rows: Vec<Vec<String>>) -> Table {
        let numbers = |ix: usize| rows.iter().all(|row| row[ix].replace(',', "").parse::<f64>().is_ok());
        let column = |(ix, title): (usize, &&'static str)| Column {
            title: Cow::Borrowed(*title),
            key: Cow::Borrowed(*title),
            left: ix == 0 || !numbers(ix),
            on_terminal: true,
        };
        let columns = titles.iter().enumerate().map(column).collect();
        let object = |row: &Vec<String>| -> serde_json::Map<String, serde_json::Value> {
            titles.iter().zip(row).map(|(title, text)| ((*title).to_owned(), text.clone().into())).collect()
        };
        let objects: Vec<_> = rows.iter().map(object).collect();
        let cells = rows.into_iter().map(|row| row.into_iter().map(Cell::text).collect()).collect();
        Table::new(columns, cells, &objects)
    }

    /// Its first rows, for people.
    pub(super) fn first(mut self, rows: usize) -> Table {
        self.rows.truncate(rows);
        self
    }

    /// The columns at these places, in this order. JSON, which is made of the rows, stays as it is.
    fn with_columns(self, places: &[usize]) -> Table {
        let rows = self.rows.iter().map(|row| places.iter().map(|ix| row[*ix].clone()).collect()).collect();
        Table { columns: places.iter().map(|ix| self.columns[*ix].clone()).collect(), rows, json: self.json }
    }

    /// The columns that a terminal shows.
    pub fn as_on_terminal(self) -> Table {
        let shown: Vec<usize> = (0..self.columns.len()).filter(|ix| self.columns[*ix].on_terminal).collect();
        self.with_columns(&shown)
    }

    /// Without columns of which no row has anything; the others by `rank` of their keys, the lowest first.
    pub(in crate::results) fn ranked(self, rank: impl Fn(&str) -> usize) -> Table {
        let has_any = |ix: &usize| self.rows.is_empty() || self.rows.iter().any(|row| !row[*ix].raw.is_empty());
        let mut places: Vec<usize> = (0..self.columns.len()).filter(has_any).collect();
        places.sort_by_key(|ix| rank(&self.columns[*ix].key));
        self.with_columns(&places)
    }

    /// The table without as many of the columns `least` (keys, the least wanted first) as it takes to be no wider on a terminal
    /// than `width`; and the titles of those.
    pub(super) fn fitted(mut self, width: usize, least: &[Cow<'static, str>]) -> (Table, Vec<String>) {
        let mut without = Vec::new();
        for key in least {
            if self.width() <= width {
                break;
            }
            if let Some(column) = self.columns.iter_mut().find(|column| column.on_terminal && column.key == *key) {
                column.on_terminal = false;
                without.push(column.title.to_string());
            }
        }
        (self, without)
    }

    /// Characters of its longest line on a terminal of any width.
    fn width(&self) -> usize {
        let whole = self.aligned(Style { color: false, width: usize::MAX });
        whole.lines().map(|line| line.chars().count()).max().unwrap_or(0)
    }

    /// Title, key and whether it is text, of every column.
    pub(in crate::results) fn head(&self) -> impl Iterator<Item = (&str, &str, bool)> {
        self.columns.iter().map(|column| (column.title.as_ref(), column.key.as_ref(), column.left))
    }

    /// The rows: what each cell shows, and its raw form.
    pub(in crate::results) fn body(&self) -> impl Iterator<Item = impl Iterator<Item = (&str, &str)>> {
        self.rows.iter().map(|row| row.iter().map(|cell| (cell.shown.as_str(), cell.raw.as_str())))
    }

    /// The table in a format; every line ends with a line feed.
    pub fn render(&self, format: Format, style: Style) -> String {
        match format {
            Format::Table => self.aligned(style),
            Format::Json => format!("{:#}\n", self.json),
            Format::Csv => self.csv(),
            Format::Markdown => self.markdown(),
        }
    }

    fn aligned(&self, style: Style) -> String {
        let shown: Vec<usize> = (0..self.columns.len()).filter(|ix| self.columns[*ix].on_terminal).collect();
        let widest = |ix: &usize| {
            let cells = self.rows.iter().map(|row| visible(&row[*ix].shown).chars().count());
            cells.chain([self.columns[*ix].title.chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = shown.iter().map(widest).collect();
        let line = |text: &dyn Fn(usize) -> String| {
            let mut line = String::new();
            for (ix, width) in shown.iter().zip(&widths) {
                let gap = if line.is_empty() { "" } else { "  " };
                let cell = text(*ix);
                let pad = " ".repeat(width - cell.chars().count());
                let padded = if self.columns[*ix].left { format!("{cell}{pad}") } else { format!("{pad}{cell}") };
                line = line + gap + &padded;
            }
            cut(line.trim_end(), style.width)
        };
        let mut text = paint(&line(&|ix| self.columns[ix].title.to_string()), BOLD, style) + "\n";
        for row in &self.rows {
            text += &(line(&|ix| visible(&row[ix].shown).into_owned()) + "\n");
        }
        text
    }

    fn csv(&self) -> String {
        let line = |cells: Vec<&str>| cells.into_iter().map(csv_field).collect::<Vec<_>>().join(",") + "\n";
        let header = line(self.columns.iter().map(|column| column.key.as_ref()).collect());
        let rows = self.rows.iter().map(|row| line(row.iter().map(|cell| cell.raw.as_str()).collect()));
        header + &rows.collect::<String>()
    }

    fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let header = line(self.columns.iter().map(|column| in_markdown(&column.title)).collect());
        let rule = line(self.columns.iter().map(|column| if column.left { ":---" } else { "---:" }.into()).collect());
        let rows = self.rows.iter().map(|row| line(row.iter().map(|cell| in_markdown(&cell.shown)).collect()));
        header + &rule + &rows.collect::<String>()
    }
}

/// Words from outside have no power over Markdown: marks are escaped, and a word that GitHub would make a link or a mention of,
/// also behind an escape, becomes a code span.
pub(super) fn in_markdown(line: &str) -> String {
    let line = visible(line);
    let words = line.split_inclusive(char::is_whitespace).map(|word| {
        let bare = word.trim_end();
        if refers(bare) { code_spans(bare) + &word[bare.len()..] } else { escaped_marks(word) }
    });
    words.collect()
}

/// Whether GitHub links it without any mark: an address (GFM, "Autolinks (extension)"), a mention, an issue (`#1`, `GH-1`).
fn refers(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    let before = |mark: &str, is_next: fn(char) -> bool| word.split(mark).skip(1).any(|rest| rest.starts_with(is_next));
    word.contains("://")
        || word.contains("www.")
        || before("@", char::is_alphanumeric)
        || before("#", |c| c.is_ascii_digit())
        || before("gh-", |c| c.is_ascii_digit())
}

/// A `|` divides cells even within a code span, so it stands escaped between two.
fn code_spans(word: &str) -> String {
    let span = |text: &str| {
        let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
        let fence = "`".repeat(longest + 1);
        let gap = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
        if text.is_empty() { String::new() } else { format!("{fence}{gap}{text}{gap}{fence}") }
    };
    word.split('|').map(span).collect::<Vec<_>>().join("\\|")
}

/// A `_` within a word is no mark, so keys stay readable.
fn escaped_marks(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut before = None;
    for (at, c) in line.char_indices() {
        let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let is_inner = c == '_' && is_word(before) && is_word(line[at + 1..].chars().next());
        let is_mark = matches!(c, '\\' | '`' | '*' | '_' | '<' | '>' | '[' | ']' | '|' | '~' | '&' | '#');
        if is_mark && !is_inner {
            text.push('\\');
        }
        text.push(c);
        before = Some(c);
    }
    text
}

/// `text` in a format, with notes before it where it is for people.
pub fn noted(notes: &[String], format: Format, text: String) -> String {
    let lines: String = match format {
        Format::Table => notes.iter().map(|note| format!("note: {}\n", visible(note))).collect(),
        Format::Markdown => notes.iter().map(|note| format!("- {}\n", in_markdown(note))).collect(),
        Format::Json | Format::Csv => return text,
    };
    if lines.is_empty() { text } else { format!("{lines}\n{text}") }
}

/// Line breaks and tabs are quoted, as CSV allows. What a spreadsheet would take for a formula (it begins with `=`, `+`, `-`,
/// `@`, a tab or a line break, and is no number) gets a `'` before it, and so does what would read alike then: who takes one
/// `'` away before any of these has the text again (OWASP, "CSV Injection").
pub(in crate::results) fn csv_field(text: &str) -> String {
    let is_formula = text.trim_start_matches('\'').starts_with(['=', '+', '-', '@', '\t', '\r', '\n']);
    // A sign alone stands for "none", and is none.
    let is_plain = text.len() < 2 || text.parse::<f64>().is_ok();
    let guarded: Cow<str> = if is_formula && !is_plain { format!("'{text}").into() } else { text.into() };
    let text = escaped(&guarded, |c| steers(c) && !matches!(c, '\n' | '\r' | '\t'));
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.into_owned() }
}

/// `text` on one line and without power over a terminal: control characters, line separators and those that change the
/// direction of writing become escapes such as `\u{1b}`.
pub fn visible(text: &str) -> Cow<'_, str> {
    escaped(text, steers)
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_escaped(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

/// Control characters, those of line breaking, and what Unicode calls default-ignorable (DerivedCoreProperties.txt): characters
/// of no width, by which two ids that look alike differ, and those that turn the direction of writing (UAX #9).
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
                | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
                | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
                | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Bold.
pub(super) const BOLD: &str = "1";
/// Green, for what is well.
pub(super) const GREEN: &str = "32";
/// Red, for what is not.
pub(super) const RED: &str = "31";

/// `text` in an ANSI style, when colours are wanted.
pub(super) fn paint(text: &str, code: &str, style: Style) -> String {
    if style.color { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.into() }
}

/// At most `width` characters, the last one `…` when something was cut.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.into();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\u{1b}[2J\u{202e}b\nc|\u{9b}1m";

    #[test]
    fn an_id_has_no_power_over_a_terminal_or_a_line() {
        let table = Table::plain(&["session", "turns"], vec![vec![HOSTILE.into(), "1".into()]]);
        let shown = "a\\u{1b}[2J\\u{202e}b\\nc|\\u{9b}1m";
        assert_eq!(
            table.render(Format::Table, Style::default()).lines().nth(1),
            Some(format!("{shown}      1").as_str())
        );
        let markdown = table.render(Format::Markdown, Style::default());
        let escaped = "a\\\\u{1b}\\[2J\\\\u{202e}b\\\\nc\\|\\\\u{9b}1m";
        assert_eq!(markdown.lines().nth(2), Some(format!("| {escaped} | 1 |").as_str()));
        assert_eq!(
            table.render(Format::Csv, Style::default()),
            "session,turns\n\"a\\u{1b}[2J\\u{202e}b\nc|\\u{9b}1m\",1\n"
        );
        let json: serde_json::Value = serde_json::from_str(&table.render(Format::Json, Style::default())).unwrap();
        assert_eq!(json[0]["session"], HOSTILE);
    }

    #[test]
    fn what_has_no_width_or_turns_the_writing_is_seen() {
        for (text, shown) in [
            ("a\u{200b}b", "a\\u{200b}b"),
            ("\u{feff}a", "\\u{feff}a"),
            ("a\u{2066}b\u{2069}", "a\\u{2066}b\\u{2069}"),
            ("a\u{ad}\u{200d}\u{2060}\u{e0041}", "a\\u{ad}\\u{200d}\\u{2060}\\u{e0041}"),
        ] {
            assert_eq!(visible(text), shown);
        }
    }

    #[test]
    fn no_cell_is_a_formula_and_every_one_reads_back() {
        let read_back = |field: &str| {
            let text =
                field.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(field).replace("\"\"", "\"");
            let bare = text
                .strip_prefix('\'')
                .filter(|rest| rest.trim_start_matches('\'').starts_with(['=', '+', '-', '@', '\t', '\r', '\n']));
            bare.map_or(text.clone(), str::to_owned)
        };
        for text in ["=1+1", "@SUM(A1)", "+cmd|' /C calc'!A0", "-x", "\t=1", "'=1", "''@", "'a", "a=1", "", "-DD"] {
            let field = csv_field(text);
            assert!(
                !field.trim_start_matches('"').starts_with(['=', '+', '-', '@', '\t', '\r', '\n']),
                "{text}: {field}"
            );
            assert_eq!(read_back(&field), text);
        }
        for number in ["-5", "+5", "-0.25", "1e-7", "-inf", "-"] {
            assert_eq!(csv_field(number), number);
        }
    }

    #[test]
    fn markdown_is_escaped_where_it_is_markdown() {
        assert_eq!(in_markdown("p99_e2e_ms > 5 % of a_b, _c_ d__e"), "p99_e2e_ms \\> 5 % of a_b, \\_c\\_ d\\_\\_e");
        assert_eq!(in_markdown("# <b>&lt;"), "\\# \\<b\\>\\&lt;");
    }

    #[test]
    fn what_github_would_link_is_code() {
        for (text, shown) in [
            ("http://ev.il/x", "`http://ev.il/x`"),
            ("see WWW.ev.il, or", "see `WWW.ev.il,` or"),
            ("[l](http://e)", "`[l](http://e)`"),
            ("@user a@b.c", "`@user` `a@b.c`"),
            ("o/r#12 GH-7", "`o/r#12` `GH-7`"),
            ("a|http://x`y``", "`a`\\|``` http://x`y`` ```"),
            ("5 @ 10 ×1@ #a gh-x a:b", "5 @ 10 ×1@ \\#a gh-x a:b"),
        ] {
            assert_eq!(in_markdown(text), shown);
        }
    }

    #[test]
    fn other_writing_is_left_alone() {
        assert_eq!(visible("sitzung-ü 会話 שיחה ×5"), "sitzung-ü 会話 שיחה ×5");
    }
}
