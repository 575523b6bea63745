//! Words by number: those of a row group, of a column, of a run.

use std::collections::HashMap;

/// Words one after the other in one piece of memory, numbered from 0.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct WordList {
    text: String,
    ends: Vec<usize>,
}

/// Distinct words, numbered in the order they came.
#[derive(Debug, Clone, Default)]
pub(super) struct Vocabulary {
    list: WordList,
    numbers: HashMap<Box<str>, u32>,
}

impl WordList {
    pub(super) fn push(&mut self, word: &str) {
        self.text.push_str(word);
        self.ends.push(self.text.len());
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Word `number`.
    pub(super) fn get(&self, number: u32) -> &str {
        let at = number as usize;
        let begin = at.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[begin..self.ends[at]]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len() as u32).map(|number| self.get(number))
    }

    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }
}

impl Vocabulary {
    /// The number of `word`, a new one if it was never met.
    pub(super) fn number(&mut self, word: &str) -> u32 {
        if let Some(number) = self.numbers.get(word) {
            return *number;
        }
        let number = self.list.len() as u32;
        self.list.push(word);
        self.numbers.insert(word.into(), number);
        number
    }

    /// The number of `word`, if it was met.
    pub(super) fn find(&self, word: &str) -> Option<u32> {
        self.numbers.get(word).copied()
    }

    /// The words by number.
    pub(super) fn list(&self) -> &WordList {
        &self.list
    }
}
