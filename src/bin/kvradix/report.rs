//! Reports on standard output, as a table or as JSON.

use std::io::{self, Write};

use anyhow::{Context, Result};
use comfy_table::{Table, presets};
use indicatif::HumanCount;
use serde::Serialize;

/// What a command found out.
pub trait Report: Serialize {
    /// The table's rows.
    fn rows(&self) -> Vec<Row>;
}

/// What is told, and what is to be told of it.
pub type Row = [String; 2];

/// A row of the table.
pub fn row(name: &str, value: String) -> Row {
    [name.to_owned(), value]
}

/// A report in JSON: what it takes to get it again, then what was found out.
#[derive(Serialize)]
struct Document<'a, A, R> {
    version: &'static str,
    command: &'static str,
    arguments: &'a A,
    #[serde(flatten)]
    report: &'a R,
}

/// Prints the report of a command that was called with these arguments.
///
/// # Errors
///
/// Standard output cannot be written; an [`io::Error`] is the cause.
pub fn print(
    json: bool,
    command: &'static str,
    arguments: &impl Serialize,
    report: &impl Report,
) -> Result<()> {
    let text = if json {
        let version = env!("CARGO_PKG_VERSION");
        serde_json::to_string_pretty(&Document { version, command, arguments, report })?
    } else {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_BORDERS_ONLY).add_rows(report.rows());
        table.to_string()
    };
    let mut out = io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).context("cannot write the report")
}

/// 1,234,567.
pub fn count(number: u64) -> String {
    HumanCount(number).to_string()
}

/// A share of 0 to 1 as 12.34 %.
pub fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// Nanoseconds below ten microseconds, else the unit that fits.
pub fn nanos(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{} ns", count(ns)),
        10_000..1_000_000 => format!("{:.1} µs", ns as f64 / 1e3),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

/// A few seconds, or milliseconds.
pub fn seconds(seconds: f64) -> String {
    if seconds < 0.1 { format!("{:.1} ms", seconds * 1e3) } else { format!("{seconds:.2} s") }
}

/// Mebibytes, or n/a.
pub fn bytes(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "n/a".to_owned(), |bytes| format!("{:.1} MiB", mebibytes(bytes)))
}

/// Bytes in mebibytes.
pub fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
