//! Words by number: those of a row group, of a column, of a run.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

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
    /// Their numbers, by the hash of the word: the words themselves are in the list alone.
    numbers: HashTable<u32>,
    hasher: RandomState,
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
        let Vocabulary { list, numbers, hasher } = self;
        let is_same = |number: &u32| list.get(*number) == word;
        match numbers.entry(hasher.hash_one(word), is_same, |number| hasher.hash_one(list.get(*number))) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let number = list.len() as u32;
                entry.insert(number);
                list.push(word);
                number
            }
        }
    }

    /// The number of `word`, if it was met.
    pub(super) fn find(&self, word: &str) -> Option<u32> {
        self.numbers.find(self.hasher.hash_one(word), |number| self.list.get(*number) == word).copied()
    }

    /// The words by number.
    pub(super) fn list(&self) -> &WordList {
        &self.list
    }
}
