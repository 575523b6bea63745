//! Tables of a page: those of the terminal, sortable, and small ones beside charts.

use super::html::Html;
use crate::base::words::count;
use crate::results::render::Table;

/// Most rows of a table; beyond, a page would be slow to open.
const MOST_ROWS: usize = 1000;

/// Longest text that stays on one line.
const LONG: usize = 48;

/// What stands with a table.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Setting<'a> {
    /// Id.
    pub id: &'a str,
    /// Caption.
    pub caption: &'a str,
    /// Word before the field that filters the rows; empty for no field.
    pub filter: &'a str,
    /// How to get all rows, when there are too many for a page.
    pub all: &'a str,
}

/// A sortable table: the columns and words of `table`, all of them, raw values beneath what is shown.
pub(super) fn sortable(table: &Table, setting: Setting) -> Html {
    let mut html = Html::new();
    let rows = table.body().count();
    if rows == 0 {
        return html;
    }
    if !setting.filter.is_empty() {
        let field = format!("{}-filter", setting.id);
        html.element("p", &[("class", "filter"), ("hidden", "")], |html| {
            html.line_with("label", &[("for", &field)], setting.filter);
            html.markup(" ");
            let attributes =
                [("id", field.as_str()), ("type", "search"), ("data-table", setting.id), ("autocomplete", "off")];
            html.open("input", &attributes);
            html.markup(" ").element("output", &[("for", field.as_str())], |_| {});
        });
    }
    if rows > MOST_ROWS {
        html.line_with(
            "p",
            &[("class", "note")],
            &format!("The first {} of {} rows. {}", count(MOST_ROWS as u64), count(rows as u64), setting.all),
        );
    }
    let scroll = [("class", "scroll"), ("tabindex", "0"), ("role", "group"), ("aria-label", setting.caption)];
    html.element("div", &scroll, |html| {
        html.element("table", &[("id", setting.id), ("class", "sortable")], |html| {
            html.line("caption", setting.caption);
            head(table, html);
            html.element("tbody", &[], |html| {
                table.body().take(MOST_ROWS).for_each(|cells| row(table, cells, html));
            });
        });
    });
    html
}

fn head(table: &Table, html: &mut Html) {
    html.element("thead", &[], |html| {
        html.element("tr", &[], |html| {
            for (title, key, left) in table.head().filter(|(_, key, _)| !is_half(key)) {
                let class = if left { "" } else { "n" };
                html.element("th", &[("scope", "col"), ("class", class)], |html| {
                    // Without a title of its own the column is named by its key.
                    let title = if title.is_empty() { key } else { title };
                    let unit = if key.ends_with("_tokens") { ", tokens" } else { "" };
                    html.line_with("button", &[("type", "button"), ("title", key)], &format!("{title}{unit}"));
                });
            }
        });
    });
}

/// A half width of an interval that its figure shows already.
fn is_half(key: &str) -> bool {
    key.ends_with("_ci95")
}

fn row<'a>(table: &Table, cells: impl Iterator<Item = (&'a str, &'a str)>, html: &mut Html) {
    html.element("tr", &[], |html| {
        let cells = cells.zip(table.head()).filter(|(_, (_, key, _))| !is_half(key));
        for (ix, ((shown, raw), (_, key, left))) in cells.enumerate() {
            let (tag, scope) = if ix == 0 { ("th", Some(("scope", "row"))) } else { ("td", None) };
            let class = match (left, key) {
                (_, "pattern") => "mono",
                (_, "starved") if !shown.is_empty() => "mark",
                (true, _) if shown.chars().count() > LONG => "words",
                (true, _) => "",
                (false, _) => "n",
            };
            let class = (!class.is_empty()).then_some(("class", class));
            let raw = (raw != shown && key != "pattern").then_some(("data-v", raw));
            let attributes: Vec<(&'static str, &str)> = [scope, class, raw].into_iter().flatten().collect();
            html.line_with(tag, &attributes, shown);
        }
    });
}

/// A small table of numbers; the first column names the rows.
pub(super) fn plain(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Html {
    small(head, rows, "n")
}

/// The same of words.
pub(super) fn words(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Html {
    small(head, rows, "words")
}

fn small(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>, class: &'static str) -> Html {
    let mut body = Html::new();
    for cells in rows {
        body.element("tr", &[], |html| {
            for (ix, cell) in cells.iter().enumerate() {
                let (tag, attribute) = if ix == 0 { ("th", ("scope", "row")) } else { ("td", ("class", class)) };
                html.line_with(tag, &[attribute], cell);
            }
        });
    }
    let mut html = Html::new();
    if body.is_empty() {
        return html;
    }
    html.element("table", &[], |html| {
        html.element("thead", &[], |html| {
            html.element("tr", &[], |html| {
                for (ix, title) in head.iter().enumerate() {
                    html.line_with("th", &[("scope", "col"), ("class", if ix == 0 { "" } else { class })], title);
                }
            });
        });
        html.element("tbody", &[], |html| {
            html.add(&body);
        });
    });
    html
}
