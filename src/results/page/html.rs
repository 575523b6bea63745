//! [`Html`]: pieces of a page that cannot be broken by what stands in them.
//!
//! Ids, labels and words of servers are hostile input. Invariant: markup comes in as a literal of the program and everything
//! else through [`escape`], so that no id opens a tag, leaves an attribute, ends a script or turns the direction of writing.

use std::borrow::Cow;

use serde::Serialize;

use crate::results::render::visible;

/// Markup, whole elements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Html(String);

/// Name and value of an attribute.
pub(super) type Attribute<'a> = (&'static str, &'a str);

impl Html {
    /// Nothing yet.
    pub(super) fn new() -> Html {
        Html::default()
    }

    /// One element with text in it.
    pub(super) fn of(tag: &'static str, text: &str) -> Html {
        let mut html = Html::new();
        html.line(tag, text);
        html
    }

    /// Markup of ours.
    pub(super) fn markup(&mut self, markup: &'static str) -> &mut Html {
        self.0.push_str(markup);
        self
    }

    /// Text of whoever.
    pub(super) fn text(&mut self, text: &str) -> &mut Html {
        escape(text, &mut self.0);
        self
    }

    /// Another piece.
    pub(super) fn add(&mut self, other: &Html) -> &mut Html {
        self.0.push_str(&other.0);
        self
    }

    /// `<tag attributes>inner</tag>`.
    pub(super) fn element(
        &mut self,
        tag: &'static str,
        attributes: &[Attribute],
        inner: impl FnOnce(&mut Html),
    ) -> &mut Html {
        self.open(tag, attributes);
        inner(self);
        self.0.push_str("</");
        self.0.push_str(tag);
        self.0.push('>');
        self
    }

    /// An element with text in it.
    pub(super) fn line(&mut self, tag: &'static str, text: &str) -> &mut Html {
        self.element(tag, &[], |html| {
            html.text(text);
        })
    }

    /// The same with attributes.
    pub(super) fn line_with(&mut self, tag: &'static str, attributes: &[Attribute], text: &str) -> &mut Html {
        self.element(tag, attributes, |html| {
            html.text(text);
        })
    }

    /// An element without an end, such as `meta`, or the beginning of one.
    pub(super) fn open(&mut self, tag: &'static str, attributes: &[Attribute]) -> &mut Html {
        self.0.push('<');
        self.0.push_str(tag);
        for (name, value) in attributes {
            self.0.push(' ');
            self.0.push_str(name);
            self.0.push_str("=\"");
            escape(value, &mut self.0);
            self.0.push('"');
        }
        self.0.push('>');
        self
    }

    /// Data for the scripts, as a block that is not run; what cannot be seen in it is written as an escape.
    pub(super) fn data(&mut self, id: &'static str, value: &impl Serialize) -> &mut Html {
        let json = serde_json::to_string(value).expect("plain data serialises");
        self.open("script", &[("type", "application/json"), ("id", id)]);
        // What could end the block or open a comment in it, and what steers the writing; JSON has them in strings alone.
        for c in json.chars() {
            let mut bytes = [0; 4];
            match visible(c.encode_utf8(&mut bytes)) {
                _ if c == '<' => self.0.push_str("\\u003c"),
                // A chart shows the escape as a table does: what it would show else cannot be seen.
                Cow::Owned(shown) if !c.is_ascii() => self.0.push_str(&shown.replace('\\', "\\\\")),
                Cow::Owned(_) | Cow::Borrowed(_) => self.0.push(c),
            }
        }
        self.markup("</script>\n")
    }

    /// Whether there is nothing in it.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The markup.
    pub(super) fn into_string(self) -> String {
        self.0
    }
}

/// Appends `text` as text or as the value of an attribute in double quotes.
fn escape(text: &str, out: &mut String) {
    for c in visible(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "</script><script>x('\"&\u{202e}\u{0}\n-->";

    #[test]
    fn no_text_becomes_markup() {
        let mut html = Html::new();
        html.element("p", &[("title", HOSTILE)], |html| {
            html.text(HOSTILE);
        });
        let shown = "&lt;/script&gt;&lt;script&gt;x(&#39;&quot;&amp;\\u{202e}\\u{0}\\n--&gt;";
        assert_eq!(html.into_string(), format!("<p title=\"{shown}\">{shown}</p>"));
    }

    #[test]
    fn data_cannot_end_its_block_and_reads_back() {
        let mut html = Html::new();
        html.data("x", &[HOSTILE, "\u{2028}<!--"]);
        let text = html.into_string();
        let json = text.trim_start_matches("<script type=\"application/json\" id=\"x\">").trim_end();
        let json = json.strip_suffix("</script>").unwrap();
        assert!(!json.contains('<') && !json.contains('\u{2028}'), "{json}");
        let shown = HOSTILE.replace('\u{202e}', "\\u{202e}");
        assert_eq!(serde_json::from_str::<Vec<String>>(json).unwrap(), [shown.as_str(), "\\u{2028}<!--"]);
    }
}
