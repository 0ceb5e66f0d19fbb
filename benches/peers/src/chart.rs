//! The figures that have a goal, as bars.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::peer::Kind;
use crate::report::{Figure, Report};
use crate::table::number;

/// Panels beside each other.
const COLUMNS: usize = 3;
const PANEL: (i32, i32) = (470, 150);
const MARGIN: i32 = 16;
const HEAD: i32 = 46;
/// Where a panel's bars begin, and how long the longest is.
const BARS: (i32, i32) = (130, 230);
const BAR: i32 = 20;

/// Bars are cut at so many times kvradix's or the best other's value.
const CUT: f64 = 5.0;

/// Draws one panel for each figure; its longest bar takes the whole width.
///
/// # Errors
///
/// The file cannot be written.
pub fn draw(report: &Report, file: &Path) -> Result<()> {
    let figures: Vec<&Figure> =
        report.figures.iter().filter(|figure| figure.goals().is_some()).collect();
    let rows = figures.len().div_ceil(COLUMNS) as i32;
    let size = (PANEL.0 * COLUMNS as i32 + MARGIN, PANEL.1 * rows + HEAD + MARGIN);
    let area = SVGBackend::new(file, (size.0 as u32, size.1 as u32)).into_drawing_area();
    paint(&area, report, &figures).map_err(|error| anyhow!("drawing {}: {error}", file.display()))
}

pub type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
pub type Painted = Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn paint(area: &Area, report: &Report, figures: &[&Figure]) -> Painted {
    area.fill(&WHITE)?;
    write(area, head(report), (MARGIN, MARGIN), 13, &BLACK, false)?;
    for (at, figure) in figures.iter().enumerate() {
        let (column, row) = ((at % COLUMNS) as i32, (at / COLUMNS) as i32);
        panel(area, figure, (MARGIN + column * PANEL.0, HEAD + row * PANEL.1))?;
    }
    area.present()
}

fn panel(area: &Area, figure: &Figure, (left, top): (i32, i32)) -> Painted {
    let better = if figure.unit.higher_is_better() { "higher" } else { "lower" };
    let title = format!("{} ({}, {better} is better)", figure.title(), figure.unit.text());
    write(area, title, (left, top), 12, &BLACK, false)?;
    let medians: Vec<(Kind, f64)> =
        figure.runs.keys().filter_map(|kind| Some((*kind, figure.median(*kind)?))).collect();
    let most = medians.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    let compared = [figure.median(Kind::Kvradix), figure.best_other().map(|(_, value)| value)];
    let cut = compared.into_iter().flatten().fold(0.0, f64::max) * CUT;
    let most = if cut > 0.0 { most.min(cut) } else { most };
    for (at, (kind, value)) in medians.into_iter().enumerate() {
        let y = top + BAR + at as i32 * BAR;
        let x = left + BARS.0;
        let width = (f64::from(BARS.1) * (value / most).min(1.0)).max(1.0) as i32;
        let colour =
            if kind == Kind::Kvradix { RGBColor(31, 119, 180) } else { RGBColor(190, 190, 190) };
        area.draw(&Rectangle::new([(x, y + 2), (x + width, y + BAR - 3)], colour.filled()))?;
        let name = kind.title().replace('\n', " ");
        write(area, name, (x - 6, y + 4), 11, &BLACK, true)?;
        let cut = if value > most { " (cut)" } else { "" };
        write(area, number(value) + cut, (x + width + 4, y + 4), 11, &BLACK, false)?;
    }
    Ok(())
}

/// The line above all panels.
pub fn head(report: &Report) -> String {
    let machine = &report.machine;
    format!(
        "{}, {}, {} cores; medians of {} runs; load average {} before, {} after",
        machine.date,
        machine.processor,
        machine.cores,
        report.runs,
        machine.load_before,
        machine.load_after
    )
}

/// What an index is drawn in.
pub fn colour(kind: Kind) -> RGBColor {
    match kind {
        Kind::Kvradix => RGBColor(31, 119, 180),
        Kind::KvIndex => RGBColor(230, 120, 20),
        Kind::DynamoRadix => RGBColor(140, 140, 140),
        Kind::DynamoConcurrent => RGBColor(190, 190, 190),
        Kind::SmgRadix => RGBColor(150, 170, 120),
    }
}

/// Text that begins, or ends, at this point.
pub fn write(
    area: &Area,
    text: String,
    at: (i32, i32),
    size: i32,
    colour: &RGBColor,
    ends: bool,
) -> Painted {
    let to = if ends { HPos::Right } else { HPos::Left };
    let style = ("sans-serif", size).into_font().color(colour).pos(Pos::new(to, VPos::Top));
    area.draw(&Text::new(text, at, style))
}
