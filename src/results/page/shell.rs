//! The frame of every page: head, policy, style, navigation, sections, figures, scripts.
//!
//! Invariant: a page is one file that asks nobody for anything; its content security policy allows the scripts that this
//! program was built with and no other, and no connection.

use serde::Serialize;

use super::chart::{Chart, Figure};
use super::html::Html;

/// Apache ECharts 5.5.1, out of the source of the crate `charming` (see build.rs).
const LIBRARY: &str = include_str!(concat!(env!("OUT_DIR"), "/echarts.min.js"));
const CHARTS: &str = include_str!("charts.js");
const PAGE: &str = include_str!("page.js");
const STYLE: &str = include_str!("page.css");
/// The scripts above as a policy names them.
const POLICY: &str = concat!(
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; script-src ",
    env!("PDREPLAY_PAGE_SCRIPTS")
);

/// A page before it is written.
#[derive(Debug)]
pub(super) struct Page {
    /// Kind of page, for the title: `run`, `sweep` …
    pub kind: &'static str,
    /// Its subject.
    pub title: String,
    /// What it is of, in a line.
    pub subtitle: String,
    /// From top to bottom.
    pub sections: Vec<Section>,
}

/// A part of a page that the navigation names.
#[derive(Debug)]
pub(super) struct Section {
    /// Id.
    pub id: &'static str,
    /// Heading.
    pub title: String,
    /// What stands below it, before the figures.
    pub body: Html,
    /// Its figures.
    pub figures: Vec<Figure>,
    /// What stands after them.
    pub after: Html,
}

impl Section {
    /// Of text and tables.
    pub(super) fn new(id: &'static str, title: impl Into<String>, body: Html) -> Section {
        Section { id, title: title.into(), body, figures: Vec::new(), after: Html::new() }
    }

    /// With figures below.
    pub(super) fn with(mut self, figures: impl IntoIterator<Item = Figure>) -> Section {
        self.figures.extend(figures);
        self
    }
}

#[derive(Serialize)]
struct Drawn<'a> {
    id: &'a str,
    says: &'a str,
    chart: &'a Chart,
}

impl Page {
    /// The whole file.
    pub(super) fn render(&self) -> String {
        let mut html = Html::new();
        html.markup("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
        html.open("meta", &[("http-equiv", "Content-Security-Policy"), ("content", POLICY)]);
        html.markup("\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
        html.markup("<meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n");
        html.line("title", &format!("{} · pdreplay {}", self.title, self.kind));
        html.markup("\n<style>").markup(STYLE).markup("</style>\n</head>\n<body>\n");
        html.markup("<a class=\"skip\" href=\"#main\">Skip to the content</a>\n<header>\n<div class=\"top\">");
        html.line("h1", &self.title);
        html.markup("<button type=\"button\" id=\"theme\" hidden aria-live=\"polite\">Theme: system</button></div>\n");
        html.line_with("p", &[("class", "subtitle")], &self.subtitle);
        self.navigation(&mut html);
        html.markup("</header>\n<main id=\"main\" tabindex=\"-1\">\n");
        html.markup("<noscript><p class=\"note\">Scripts are off: charts are not drawn and tables do not sort; all figures are in the tables.</p></noscript>\n");
        self.sections.iter().for_each(|section| self.section(section, &mut html));
        html.markup("</main>\n<footer><p>");
        html.text(&format!(
            "pdreplay {} · charts by Apache ECharts 5.5.1 (Apache-2.0) · nothing is loaded from a network",
            env!("CARGO_PKG_VERSION")
        ));
        html.markup("</p></footer>\n");
        let figures = self.sections.iter().flat_map(|section| &section.figures);
        let drawn = figures
            .filter_map(|figure| Some(Drawn { id: figure.id, says: &figure.says, chart: figure.chart.as_ref()? }));
        html.data("figures-data", &drawn.collect::<Vec<_>>());
        for script in [LIBRARY, CHARTS, PAGE] {
            html.markup("<script>").markup(script).markup("</script>\n");
        }
        html.markup("</body>\n</html>\n");
        html.into_string()
    }

    fn navigation(&self, html: &mut Html) {
        html.element("nav", &[("aria-label", "Sections")], |html| {
            html.element("ul", &[], |html| {
                for section in &self.sections {
                    html.element("li", &[], |html| {
                        html.line_with("a", &[("href", &format!("#{}", section.id))], &section.title);
                    });
                }
            });
        });
        html.markup("\n");
    }

    fn section(&self, section: &Section, html: &mut Html) {
        let heading = format!("{}-heading", section.id);
        html.element("section", &[("id", section.id), ("aria-labelledby", &heading)], |html| {
            html.line_with("h2", &[("id", &heading)], &section.title);
            html.add(&section.body);
            section.figures.iter().for_each(|figure| draw(figure, html));
            html.add(&section.after);
        });
        html.markup("\n");
    }
}

fn draw(figure: &Figure, html: &mut Html) {
    let caption = format!("{}-caption", figure.id);
    html.element("figure", &[("id", figure.id), ("aria-labelledby", &caption)], |html| {
        html.element("figcaption", &[("id", &caption)], |html| {
            html.line("strong", &figure.title);
            html.markup(" ").line_with("span", &[("class", "says")], &figure.says);
        });
        if !figure.note.is_empty() {
            html.line_with("p", &[("class", "hint")], &figure.note);
        }
        if figure.chart.is_some() {
            if !figure.legend.is_empty() {
                legend(figure, html);
            }
            let says = format!("{}. {}", figure.title, figure.says);
            let attributes = [("class", "chart"), ("role", "img"), ("tabindex", "0"), ("aria-label", says.as_str())];
            html.element("div", &attributes, |_| {});
        }
        if !figure.table.is_empty() {
            html.element("details", &[], |html| {
                html.line("summary", "The same in numbers");
                html.element(
                    "div",
                    &[("class", "scroll"), ("tabindex", "0"), ("role", "group"), ("aria-label", &figure.title)],
                    |html| {
                        html.add(&figure.table);
                    },
                );
            });
        }
    });
    html.markup("\n");
}

fn legend(figure: &Figure, html: &mut Html) {
    html.element("ul", &[("class", "legend"), ("aria-label", "Colours")], |html| {
        for (name, color) in &figure.legend {
            html.element("li", &[], |html| {
                html.element(
                    "span",
                    &[("class", "swatch"), ("style", &format!("background:var(--c-{color})"))],
                    |_| {},
                );
                html.text(name);
            });
        }
    });
}
