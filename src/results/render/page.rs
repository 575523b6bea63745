//! [`Page`]: text for a terminal in sections, each with its label at the left, broken at the width given.

use super::table::{Style, cut, paint, visible};

/// Width of the labels at the left.
const LABEL: usize = 10;

/// Lines with a label at the left of the first.
#[derive(Debug)]
pub(super) struct Page {
    pub text: String,
    style: Style,
}

impl Page {
    /// Empty.
    pub fn new(style: Style) -> Page {
        Page { text: String::new(), style }
    }

    /// Lines under a label, which stands before the first.
    pub fn section(&mut self, label: &str, lines: impl IntoIterator<Item = String>) {
        let mut label = label;
        for line in lines {
            for part in wrap(&visible(&line), self.style.width.saturating_sub(LABEL)) {
                self.text += &format!("{label:<LABEL$}{part}\n");
                label = "";
            }
        }
    }

    /// A section of one line in which `word` stands out.
    pub fn section_with(&mut self, label: &str, line: String, word: &str, color: &str) {
        let start = self.text.len();
        self.section(label, [line]);
        let section = self.text.split_off(start);
        self.text += &section.replacen(word, &paint(word, color, self.style), 1);
    }
}

/// Breaks a line that is too long: between parts set apart by ` · `, else at spaces; a longer word is cut.
pub(super) fn wrap(line: &str, width: usize) -> Vec<String> {
    if line.chars().count() <= width {
        return vec![line.into()];
    }
    let between = if line.contains(" · ") { " · " } else { " " };
    let indent = "  ";
    let mut parts: Vec<String> = Vec::new();
    for piece in line.split(between) {
        let joined = parts.last().map(|part| format!("{part}{between}{piece}"));
        match (joined.filter(|joined| joined.chars().count() <= width), parts.last_mut()) {
            (Some(joined), Some(part)) => *part = joined,
            (_, None) => parts.push(piece.into()),
            (None, Some(_)) => parts.push(format!("{indent}{piece}")),
        }
    }
    let fits = |part: &String| part.chars().count() <= width;
    let cut_or_wrapped = |part: String| match part {
        part if fits(&part) || between == " " => vec![cut(&part, width)],
        part => wrap(part.trim_start(), width),
    };
    parts.into_iter().flat_map(cut_or_wrapped).collect()
}
