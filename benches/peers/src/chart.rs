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
const PANEL: (i32, i32) = (400, 150);
const MARGIN: i32 = 16;
const HEAD: i32 = 46;
/// Where a panel's bars begin, and how long the longest is.
const BARS: (i32, i32) = (130, 190);
const BAR: i32 = 20;

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

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Painted = Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn paint(area: &Area, report: &Report, figures: &[&Figure]) -> Painted {
    area.fill(&WHITE)?;
    let machine = &report.machine;
    let head = format!(
        "{}, {}, {} cores; medians of {} runs; load average {} before, {} after",
        machine.date,
        machine.processor,
        machine.cores,
        report.runs,
        machine.load_before,
        machine.load_after
    );
    write(area, head, (MARGIN, MARGIN), 13, &BLACK, HPos::Left)?;
    for (at, figure) in figures.iter().enumerate() {
        let (column, row) = ((at % COLUMNS) as i32, (at / COLUMNS) as i32);
        panel(area, figure, (MARGIN + column * PANEL.0, HEAD + row * PANEL.1))?;
    }
    area.present()
}

fn panel(area: &Area, figure: &Figure, (left, top): (i32, i32)) -> Painted {
    let better = if figure.unit.higher_is_better() { "higher" } else { "lower" };
    let title = format!("{} ({}, {better} is better)", figure.title(), figure.unit.text());
    write(area, title, (left, top), 12, &BLACK, HPos::Left)?;
    let medians: Vec<(Kind, f64)> =
        figure.runs.keys().filter_map(|kind| Some((*kind, figure.median(*kind)?))).collect();
    let most = medians.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    for (at, (kind, value)) in medians.into_iter().enumerate() {
        let y = top + BAR + at as i32 * BAR;
        let x = left + BARS.0;
        let width = (f64::from(BARS.1) * value / most).max(1.0) as i32;
        let colour =
            if kind == Kind::Kvradix { RGBColor(31, 119, 180) } else { RGBColor(190, 190, 190) };
        area.draw(&Rectangle::new([(x, y + 2), (x + width, y + BAR - 3)], colour.filled()))?;
        let name = kind.title().replace('\n', " ");
        write(area, name, (x - 6, y + 4), 11, &BLACK, HPos::Right)?;
        write(area, number(value), (x + width + 4, y + 4), 11, &BLACK, HPos::Left)?;
    }
    Ok(())
}

fn write(
    area: &Area,
    text: String,
    at: (i32, i32),
    size: i32,
    colour: &RGBColor,
    to: HPos,
) -> Painted {
    let style = ("sans-serif", size).into_font().color(colour).pos(Pos::new(to, VPos::Top));
    area.draw(&Text::new(text, at, style))
}
