//! [`Batch`]: some rows of chosen columns, typed, with names as numbers.
//!
//! No string is made per row: a label is a number, the same in every batch of a file, and its word is looked up where it is
//! shown. Invariant: a column that was not asked for, or is asked for as another type, is a fault of the caller.

use super::columns::{COLUMNS, Column, Kind, Value, values};
use super::{FrameError, Group};
use crate::record::RequestRecord;
use crate::results::read::misplaced;
use crate::results::vocabulary::{Vocabulary, WordList};

/// Number that stands for null among the numbers of words.
pub(super) const NO_WORD: u32 = u32::MAX;

/// Rows of chosen columns.
#[derive(Debug)]
pub struct Batch {
    first_row: u64,
    rows: usize,
    /// By place in [`COLUMNS`]; what was not asked for is `None`.
    columns: Vec<Option<Data>>,
    /// Words of the labels met so far, by the same place.
    vocabularies: Vec<Vocabulary>,
}

/// The values of one column.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Data {
    U32(Numbers<u32>),
    U64(Numbers<u64>),
    F64(Numbers<f64>),
    Bool(Numbers<bool>),
    Words(Words),
}

/// Values, and which of them are there.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Numbers<T> {
    /// One a row, the default where there is none.
    pub values: Vec<T>,
    /// One a row, or empty when no row is null.
    pub valid: Vec<bool>,
}

/// Numbers of words, and the words; those of a label are in its vocabulary.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Words {
    /// One a row, [`NO_WORD`] for null.
    pub codes: Vec<u32>,
    pub list: WordList,
}

/// A column of numbers or flags.
#[derive(Debug, Clone, Copy)]
pub struct Cells<'a, T> {
    values: &'a [T],
    valid: &'a [bool],
}

/// A column of labels.
#[derive(Debug, Clone, Copy)]
pub struct Labels<'a> {
    codes: &'a [u32],
    words: &'a WordList,
}

/// A column of texts.
#[derive(Debug, Clone, Copy)]
pub struct Texts<'a>(Labels<'a>);

impl Batch {
    /// Without rows, of the columns with these names (fields of [`RequestRecord`]).
    pub fn new(columns: &[&str]) -> Batch {
        let wanted = |column: &Column| columns.contains(&column.name).then(|| Data::empty(column.kind));
        let unknown: Vec<_> = columns.iter().filter(|name| Column::place(name).is_none()).collect();
        assert!(unknown.is_empty(), "no field of a record: {unknown:?}");
        Batch {
            first_row: 0,
            rows: 0,
            columns: COLUMNS.iter().map(wanted).collect(),
            vocabularies: COLUMNS.iter().map(|_| Vocabulary::default()).collect(),
        }
    }

    /// Rows in it.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Rows of the file before it.
    pub fn first_row(&self) -> u64 {
        self.first_row
    }

    /// The column `name` of 32-bit whole numbers.
    pub fn u32(&self, name: &str) -> Cells<'_, u32> {
        match self.data(name) {
            (_, Data::U32(numbers)) => numbers.cells(),
            (_, other) => panic!("`{name}` is not u32 but {other:?}"),
        }
    }

    /// The column `name` of 64-bit whole numbers, `_ns`.
    pub fn u64(&self, name: &str) -> Cells<'_, u64> {
        match self.data(name) {
            (_, Data::U64(numbers)) => numbers.cells(),
            (_, other) => panic!("`{name}` is not u64 but {other:?}"),
        }
    }

    /// The column `name` of floating-point numbers, `_ms`.
    pub fn f64(&self, name: &str) -> Cells<'_, f64> {
        match self.data(name) {
            (_, Data::F64(numbers)) => numbers.cells(),
            (_, other) => panic!("`{name}` is not f64 but {other:?}"),
        }
    }

    /// The column `name` of flags.
    pub fn bool(&self, name: &str) -> Cells<'_, bool> {
        match self.data(name) {
            (_, Data::Bool(numbers)) => numbers.cells(),
            (_, other) => panic!("`{name}` is not bool but {other:?}"),
        }
    }

    /// The column `name` of labels: session, worker, mode, reason, outcome, class of the error and the like.
    pub fn labels(&self, name: &str) -> Labels<'_> {
        match self.data(name) {
            (at, Data::Words(words)) if COLUMNS[at].kind == Kind::Label => {
                Labels { codes: &words.codes, words: self.vocabularies[at].list() }
            }
            (_, other) => panic!("`{name}` is no label but {other:?}"),
        }
    }

    /// The column `name` of texts: `request_id`, `trace_request_id` and `error_message`.
    pub fn texts(&self, name: &str) -> Texts<'_> {
        match self.data(name) {
            (at, Data::Words(words)) if COLUMNS[at].kind == Kind::Text => {
                Texts(Labels { codes: &words.codes, words: &words.list })
            }
            (_, other) => panic!("`{name}` is no text but {other:?}"),
        }
    }

    /// Refuses a time that lies before its request was sent, as far as these columns are there.
    pub fn check_times(&self) -> Result<(), FrameError> {
        let has =
            |name: &str| COLUMNS.iter().zip(&self.columns).any(|(column, data)| column.name == name && data.is_some());
        if !has("sent_ns") {
            return Ok(());
        }
        let sent = self.u64("sent_ns");
        let times = ["ended_ns", "first_token_ns", "last_token_ns"].into_iter().filter(|name| has(name));
        let times: Vec<(&str, Cells<u64>)> = times.map(|name| (name, self.u64(name))).collect();
        for row in 0..self.rows {
            let of_row = times.iter().map(|(name, cells)| (*name, cells.get(row)));
            if let Some(cause) = misplaced(sent.get(row), of_row) {
                return Err(FrameError::Misplaced { row: self.first_row + row as u64 + 1, cause });
            }
        }
        Ok(())
    }

    /// Adds a row.
    pub fn push(&mut self, record: &RequestRecord) {
        self.rows += 1;
        let columns = self.columns.iter_mut().zip(&mut self.vocabularies);
        for ((data, vocabulary), (value, column)) in columns.zip(values(record).into_iter().zip(COLUMNS)) {
            if let Some(data) = data {
                data.push(value, vocabulary, column);
            }
        }
    }

    /// Empties it for the rows that follow; labels keep their numbers.
    pub fn next(&mut self) {
        self.first_row += self.rows as u64;
        self.rows = 0;
        self.columns.iter_mut().flatten().for_each(Data::clear);
    }

    /// Takes the rows of a row group in the place of its own; labels keep their numbers.
    ///
    /// # Panics
    /// When the group lacks a column of the batch.
    pub fn adopt(&mut self, group: Group) {
        self.next();
        self.rows = group.rows;
        let columns = self.columns.iter_mut().zip(&mut self.vocabularies);
        for ((own, vocabulary), (read, column)) in columns.zip(group.columns.into_iter().zip(COLUMNS)) {
            let Some(own) = own else { continue };
            *own = read.unwrap_or_else(|| panic!("column `{}` was not read", column.name));
            if let (Data::Words(words), Kind::Label) = (own, column.kind) {
                words.renumber(vocabulary);
            }
        }
    }

    fn data(&self, name: &str) -> (usize, &Data) {
        let at = Column::place(name).unwrap_or_else(|| panic!("`{name}` is no field of a record"));
        (at, self.columns[at].as_ref().unwrap_or_else(|| panic!("column `{name}` was not asked for")))
    }
}

impl Data {
    pub(super) fn empty(kind: Kind) -> Data {
        match kind {
            Kind::U32 => Data::U32(Numbers::default()),
            Kind::U64 => Data::U64(Numbers::default()),
            Kind::F64 => Data::F64(Numbers::default()),
            Kind::Bool => Data::Bool(Numbers::default()),
            Kind::Label | Kind::Text => Data::Words(Words::default()),
        }
    }

    fn push(&mut self, value: Value, vocabulary: &mut Vocabulary, column: &Column) {
        match (self, value) {
            (Data::U32(numbers), Value::U32(value)) => numbers.push(Some(value)),
            (Data::U64(numbers), Value::U64(value)) => numbers.push(Some(value)),
            (Data::F64(numbers), Value::F64(value)) => numbers.push(Some(value)),
            (Data::Bool(numbers), Value::Bool(value)) => numbers.push(Some(value)),
            (Data::Words(words), Value::Words(word)) if column.kind == Kind::Label => {
                words.codes.push(vocabulary.number(word));
            }
            (Data::Words(words), Value::Words(word)) => {
                words.codes.push(words.list.len() as u32);
                words.list.push(word);
            }
            (Data::U32(numbers), Value::Null) => numbers.push(None),
            (Data::U64(numbers), Value::Null) => numbers.push(None),
            (Data::F64(numbers), Value::Null) => numbers.push(None),
            (Data::Bool(numbers), Value::Null) => numbers.push(None),
            (Data::Words(words), Value::Null) => words.codes.push(NO_WORD),
            (data, value) => panic!("{value:?} for {} in {data:?}", column.name),
        }
    }

    fn clear(&mut self) {
        match self {
            Data::U32(numbers) => numbers.clear(),
            Data::U64(numbers) => numbers.clear(),
            Data::F64(numbers) => numbers.clear(),
            Data::Bool(numbers) => numbers.clear(),
            Data::Words(words) => {
                words.codes.clear();
                words.list.clear();
            }
        }
    }
}

impl Data {
    /// The first row without a value.
    pub(super) fn first_null(&self) -> Option<usize> {
        match self {
            Data::U32(Numbers { valid, .. })
            | Data::U64(Numbers { valid, .. })
            | Data::F64(Numbers { valid, .. })
            | Data::Bool(Numbers { valid, .. }) => valid.iter().position(|valid| !valid),
            Data::Words(words) => words.codes.iter().position(|code| *code == NO_WORD),
        }
    }
}

impl Words {
    /// From the numbers of its own list to those of the file.
    fn renumber(&mut self, vocabulary: &mut Vocabulary) {
        let numbers: Vec<u32> = self.list.iter().map(|word| vocabulary.number(word)).collect();
        for code in self.codes.iter_mut().filter(|code| **code != NO_WORD) {
            *code = numbers[*code as usize];
        }
        self.list.clear();
    }
}

impl<T: Copy + Default> Numbers<T> {
    fn push(&mut self, value: Option<T>) {
        if value.is_none() && self.valid.is_empty() {
            self.valid.resize(self.values.len(), true);
        }
        if value.is_none() || !self.valid.is_empty() {
            self.valid.push(value.is_some());
        }
        self.values.push(value.unwrap_or_default());
    }

    fn clear(&mut self) {
        self.values.clear();
        self.valid.clear();
    }

    fn cells(&self) -> Cells<'_, T> {
        Cells { values: &self.values, valid: &self.valid }
    }
}

impl<T: Copy> Cells<'_, T> {
    /// The value of a row; `None` for null.
    pub fn get(&self, row: usize) -> Option<T> {
        (self.valid.is_empty() || self.valid[row]).then(|| self.values[row])
    }

    /// The value of a row of a column that has no null; zero for null elsewhere.
    pub fn value(&self, row: usize) -> T {
        self.values[row]
    }
}

impl<'a> Labels<'a> {
    /// The number of the label of a row, the same for equal labels in every batch of a file, from 0 without gaps; `None`
    /// for null.
    pub fn code(&self, row: usize) -> Option<u32> {
        Some(self.codes[row]).filter(|code| *code != NO_WORD)
    }

    /// The label of a row; `None` for null.
    pub fn get(&self, row: usize) -> Option<&'a str> {
        self.code(row).map(|code| self.words.get(code))
    }

    /// The label with a number.
    pub fn word(&self, code: u32) -> &'a str {
        self.words.get(code)
    }

    /// How many numbers are given out so far: all codes of this batch are below.
    pub fn known(&self) -> usize {
        self.words.len()
    }
}

impl<'a> Texts<'a> {
    /// The text of a row; `None` for null.
    pub fn get(&self, row: usize) -> Option<&'a str> {
        self.0.get(row)
    }
}
