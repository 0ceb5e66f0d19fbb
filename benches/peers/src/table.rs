//! The report as a table.

use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use serde_json::{Value, json};

use crate::goals::{Goal, To};
use crate::peer::Kind;
use crate::report::{Figure, Report};

/// The lines above the table.
pub fn head(report: &Report) -> String {
    let machine = &report.machine;
    let mut head = format!(
        "{}, {}, {} cores; load average {} before, {} after\nmedians of {} interleaved runs; \
         ratio: kvradix by the best of the others (>: higher is better, <: lower)",
        machine.date,
        machine.processor,
        machine.cores,
        machine.load_before,
        machine.load_after,
        report.runs
    );
    if report.quick {
        head.push_str("\nquick: the figures mean nothing");
    }
    head
}

/// One row for every figure, or for those that have a goal.
pub fn table(report: &Report, all: bool) -> Table {
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN);
    let kinds: Vec<Kind> = Kind::ALL
        .into_iter()
        .filter(|kind| report.figures.iter().any(|figure| figure.runs.contains_key(kind)))
        .collect();
    let titles = kinds.iter().map(|kind| kind.title().replace('\n', " "));
    let heads = ["".to_owned()].into_iter().chain(titles);
    table.set_header(heads.chain(["ratio", "bar", "aim"].map(str::to_owned)));
    for figure in report.figures.iter().filter(|figure| all || figure.goals().is_some()) {
        let better = if figure.unit.higher_is_better() { '>' } else { '<' };
        let title = format!("{}, {} {better}", figure.title(), figure.unit.text());
        let medians = kinds.iter().map(|kind| figure.median(*kind).map_or("-".into(), number));
        let ratio = figure.ratio().map_or("-".into(), |ratio| format!("{ratio:.2}"));
        let goals = figure.goals();
        let bar = goals.map_or(String::new(), |goals| goal(figure, goals.bar));
        let aim = goals.map_or(String::new(), |goals| goal(figure, goals.aim));
        table.add_row([title].into_iter().chain(medians).chain([ratio, bar, aim]));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

/// How many bars and aims are met.
pub fn summary(report: &Report) -> String {
    let verdicts = |which: fn(&Figure) -> Option<Goal>| {
        let figures = report.figures.iter();
        let all: Vec<bool> =
            figures.filter_map(|figure| Some(figure.verdict(which(figure)?)?.met)).collect();
        format!("{} of {}", all.iter().filter(|met| **met).count(), all.len())
    };
    format!(
        "bars met: {}; aims met: {}",
        verdicts(|figure| Some(figure.goals()?.bar)),
        verdicts(|figure| Some(figure.goals()?.aim))
    )
}

fn goal(figure: &Figure, goal: Goal) -> String {
    let wanted = match goal.to {
        To::Best => format!("{} x", goal.factor),
        To::Peer(Kind::KvIndex) => format!("{} x kv-index", goal.factor),
        To::Peer(kind) => format!("{} x {}", goal.factor, kind.title().replace('\n', " ")),
        To::Itself => goal.factor.to_string(),
    };
    match figure.verdict(goal) {
        Some(verdict) => format!("{wanted}: {}", if verdict.met { "met" } else { "not met" }),
        None => wanted,
    }
}

/// Three digits that count.
pub fn number(value: f64) -> String {
    if value.is_nan() {
        return "n/a".to_owned();
    }
    match value.abs() {
        size if size >= 100.0 => grouped(value.round() as i64),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn grouped(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = if value < 0 { "-".to_owned() } else { String::new() };
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// All there is to know, for programs.
pub fn json(report: &Report) -> Value {
    let mut value = json!(report);
    let figures = value["figures"].as_array_mut().into_iter().flatten();
    for (shown, figure) in figures.zip(&report.figures) {
        let medians = figure.runs.keys().map(|kind| (json!(kind), figure.median(*kind)));
        let medians =
            medians.filter_map(|(kind, median)| Some((kind.as_str()?.to_owned(), json!(median))));
        shown["medians"] = medians.collect();
        shown["title"] = json!(figure.title());
        shown["higher_is_better"] = json!(figure.unit.higher_is_better());
        shown["ratio_to_best_other"] = json!(figure.ratio());
        if let Some(goals) = figure.goals() {
            shown["bar"] = json!(figure.verdict(goals.bar));
            shown["aim"] = json!(figure.verdict(goals.aim));
        }
    }
    value
}
