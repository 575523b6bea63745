//! [`Csv`]: every column of every request, as RFC 4180 has it.
//!
//! A header, lines that end with CR LF, fields quoted where they must be. Null is nothing between the commas; an empty text is
//! `""`. Control characters of a server's words become escapes, as in every table.

use std::io::{self, Write};

use super::Exporter;
use crate::results::frame::{Batch, COLUMNS, Cells, Kind, Labels, Texts};
use crate::results::render::csv_field;

/// See the module.
#[derive(Debug, Default)]
pub struct Csv {
    begun: bool,
}

enum Cursor<'a> {
    U32(Cells<'a, u32>),
    U64(Cells<'a, u64>),
    F64(Cells<'a, f64>),
    Bool(Cells<'a, bool>),
    Label(Labels<'a>),
    Text(Texts<'a>),
}

impl Exporter for Csv {
    fn next_pass(&mut self, out: &mut dyn Write) -> io::Result<Option<Vec<&'static str>>> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(None);
        }
        let names: Vec<&'static str> = COLUMNS.iter().map(|column| column.name).collect();
        write!(out, "{}\r\n", names.join(","))?;
        Ok(Some(names))
    }

    fn batch(&mut self, batch: &Batch, out: &mut dyn Write) -> io::Result<()> {
        let cursors: Vec<Cursor> = COLUMNS.iter().map(|column| Cursor::new(batch, column.name, column.kind)).collect();
        for row in 0..batch.rows() {
            for (ix, cursor) in cursors.iter().enumerate() {
                if ix > 0 {
                    out.write_all(b",")?;
                }
                cursor.write(row, out)?;
            }
            out.write_all(b"\r\n")?;
        }
        Ok(())
    }

    fn left_out(&self) -> u64 {
        0
    }
}

impl<'a> Cursor<'a> {
    fn new(batch: &'a Batch, name: &str, kind: Kind) -> Cursor<'a> {
        match kind {
            Kind::U32 => Cursor::U32(batch.u32(name)),
            Kind::U64 => Cursor::U64(batch.u64(name)),
            Kind::F64 => Cursor::F64(batch.f64(name)),
            Kind::Bool => Cursor::Bool(batch.bool(name)),
            Kind::Label => Cursor::Label(batch.labels(name)),
            Kind::Text => Cursor::Text(batch.texts(name)),
        }
    }

    fn write(&self, row: usize, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Cursor::U32(cells) => number(cells.get(row), out),
            Cursor::U64(cells) => number(cells.get(row), out),
            Cursor::F64(cells) => number(cells.get(row), out),
            Cursor::Bool(cells) => number(cells.get(row), out),
            Cursor::Label(labels) => words(labels.get(row), out),
            Cursor::Text(texts) => words(texts.get(row), out),
        }
    }
}

/// As JSON writes it: the shortest form that reads back as the same number.
fn number<T: serde::Serialize>(value: Option<T>, out: &mut dyn Write) -> io::Result<()> {
    value.map_or(Ok(()), |value| super::json(out, &value))
}

fn words(text: Option<&str>, out: &mut dyn Write) -> io::Result<()> {
    match text {
        None => Ok(()),
        Some("") => out.write_all(b"\"\""),
        Some(text) => out.write_all(csv_field(text).as_bytes()),
    }
}
