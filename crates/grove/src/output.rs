//! Tables for people, JSON and YAML for programs.

use std::io::{self, Write};

use jiff::Timestamp;
use serde::Serialize;

use crate::exit::{Failure, one_line};
use crate::look::{Look, Tone, width};

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    Table,
    Json,
    Yaml,
}

/// What a command that asks a cluster answers programs with.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Answer<T> {
    api_version: &'static str,
    kind: &'static str,
    pub(crate) generated_at: Timestamp,
    pub(crate) items: Vec<T>,
}

impl<T> Answer<T> {
    pub(crate) fn new(kind: &'static str, generated_at: Timestamp, items: Vec<T>) -> Self {
        Self {
            api_version: "cli.grove.io/v1",
            kind,
            generated_at,
            items,
        }
    }
}

/// Prints `value` for programs, or what `table` makes of it.
pub(crate) fn print<T: Serialize>(
    format: Format,
    value: &T,
    table: impl FnOnce(&T, Look) -> String,
) -> Result<(), Failure> {
    let failed = |error: anyhow::Error| Failure::NoAnswer(format!("cannot print the answer: {}", one_line(error)));
    let text = text(format, value, |value| table(value, Look::of_stdout())).map_err(failed)?;
    write(text.trim_end_matches('\n')).map_err(|error| failed(error.into()))
}

/// What is printed of `value`.
pub(crate) fn text<T: Serialize>(
    format: Format,
    value: &T,
    table: impl FnOnce(&T) -> String,
) -> anyhow::Result<String> {
    Ok(match format {
        Format::Table => table(value),
        Format::Json => serde_json::to_string_pretty(value)? + "\n",
        Format::Yaml => serde_saphyr::to_string(value)?,
    })
}

/// Prints a text and a line's end.
pub(crate) fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        // A reader that has seen enough, such as `head`, is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// A table: columns below their heads, which are the first row.
pub(crate) fn headed(rows: &[Vec<String>], look: Look) -> String {
    let text = columns(rows);
    match text.split_once('\n') {
        Some((head, rest)) => format!("{}\n{rest}", look.paint(Tone::Head, head)),
        None => look.paint(Tone::Head, &text),
    }
}

/// Columns as wide as they must be.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widest = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| width(cell))
            .max()
    };
    let widths: Vec<usize> = (0..count).map(|column| widest(column).unwrap_or(0)).collect();
    let line = |row: &Vec<String>| {
        let padded = |(cell, column): (&String, &usize)| format!("{cell}{:1$}", "", column - width(cell));
        let cells = row.iter().zip(&widths).map(padded);
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A row of a table.
pub(crate) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}
