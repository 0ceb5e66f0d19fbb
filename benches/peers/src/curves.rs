//! Figures that belong together, a curve for each index: how cost grows as
//! the work grows.

use std::path::Path;

use anyhow::{Result, anyhow};
use comfy_table::presets::ASCII_MARKDOWN;
use comfy_table::{CellAlignment, Table};
use plotters::prelude::*;

use crate::chart::{Area, Painted, colour, head, write};
use crate::peer::Kind;
use crate::report::{Figure, Report};
use crate::table::number;

/// A panel: the figures whose keys are `key` with a number in the place of
/// its `*`.
struct Family {
    key: &'static str,
    title: &'static str,
    /// What the number counts.
    over: &'static str,
}

const fn family(key: &'static str, title: &'static str, over: &'static str) -> Family {
    Family { key, title, over }
}

const FAMILIES: &[Family] = &[
    family("fleet.mixed.*.fill", "fill", "holder-blocks"),
    family("fleet.mixed.*.q1.p50", "cold query, 1 holder, p50", "holder-blocks"),
    family("fleet.mixed.*.q8.p50", "cold query, 8 holders, p50", "holder-blocks"),
    family("fleet.mixed.*.q64.p50", "cold query, 64 holders, p50", "holder-blocks"),
    family("workers.*.q1.p50", "query, 1 holder, p50", "workers"),
    family("workers.*.q8.p50", "query, 8 holders, p50", "workers"),
    family("workers.*.q64.p50", "query, 64 holders, p50", "workers"),
    family("workers.*.q64.p99", "query, 64 holders, p99", "workers"),
    family("children.node.*.insert", "insert below a node, median", "children"),
    family("children.node.*.insert.mean", "insert below a node, mean", "children"),
    family("children.node.*.insert.longest", "insert below a node, longest", "children"),
    family("children.node.*.find", "find below a node, median", "children"),
    family("children.root.*.insert", "insert below the root, median", "children"),
    family("children.root.*.insert.mean", "insert below the root, mean", "children"),
    family("children.root.*.insert.longest", "insert below the root, longest", "children"),
    family("children.root.*.find", "find below the root, median", "children"),
    family("chain.*.tail.cpu", "a block evicted, from the end up, CPU", "blocks of the chain"),
    family("chain.*.random.cpu", "a block evicted, random order, CPU", "blocks of the chain"),
    family("chain.*.ratio", "random order by from the end up", "blocks of the chain"),
];

/// Panels beside each other.
const COLUMNS: usize = 4;
const PANEL: (i32, i32) = (360, 250);
const MARGIN: i32 = 16;
const HEAD: i32 = 46;

/// The points of one index: what was counted, and the median.
type Points = Vec<(f64, f64)>;

impl Family {
    /// The number in a key of this family.
    fn count(&self, key: &str) -> Option<f64> {
        let (before, behind) = self.key.split_once('*')?;
        let number = key.strip_prefix(before)?.strip_suffix(behind)?;
        let (digits, unit) = match number.as_bytes().last()? {
            b'k' => (&number[..number.len() - 1], 1e3),
            b'm' => (&number[..number.len() - 1], 1e6),
            _ => (number, 1.0),
        };
        Some(digits.parse::<u64>().ok()? as f64 * unit)
    }

    /// Its figures, ascending.
    fn figures<'r>(&self, report: &'r Report) -> Vec<(f64, &'r Figure)> {
        let with_count = |figure: &'r Figure| Some((self.count(&figure.key)?, figure));
        let mut figures: Vec<_> = report.figures.iter().filter_map(with_count).collect();
        figures.sort_by(|a, b| a.0.total_cmp(&b.0));
        figures
    }

    /// A curve for each index that has one.
    fn curves(&self, report: &Report) -> Vec<(Kind, Points)> {
        let figures = self.figures(report);
        let curve = |kind: Kind| {
            let point = |(count, figure): &(f64, &Figure)| Some((*count, figure.median(kind)?));
            (kind, figures.iter().filter_map(point).collect::<Points>())
        };
        Kind::ALL.into_iter().map(curve).filter(|(_, points)| points.len() > 1).collect()
    }
}

fn present(report: &Report) -> Vec<(&'static Family, Vec<(Kind, Points)>)> {
    let all = FAMILIES.iter().map(|family| (family, family.curves(report)));
    all.filter(|(_, curves)| !curves.is_empty()).collect()
}

/// One row for every curve of kvradix: its figures at the first and last
/// count, and by how much each index's changed in between. `None` where there
/// is no curve.
pub fn growth(report: &Report) -> Option<Table> {
    let families = present(report);
    let kinds: Vec<Kind> = Kind::ALL
        .into_iter()
        .filter(|kind| families.iter().flat_map(|(_, curves)| curves).any(|(of, _)| of == kind))
        .collect();
    let mut table = Table::new();
    table.load_preset(ASCII_MARKDOWN);
    let titles = kinds.iter().map(|kind| format!("{}, times", kind.title().replace('\n', " ")));
    let heads = ["", "from", "to", "kvradix"].map(str::to_owned);
    table.set_header(heads.into_iter().chain(titles));
    for (family, curves) in &families {
        let Some((_, ours)) = curves.iter().find(|(kind, _)| *kind == Kind::Kvradix) else {
            continue;
        };
        let (first, last) = (ours[0], ours[ours.len() - 1]);
        let times = |kind: &Kind| {
            let (_, points) = curves.iter().find(|(of, _)| of == kind)?;
            let (begin, end) = (points[0], points[points.len() - 1]);
            // Over the same range.
            ((begin.0, end.0) == (first.0, last.0)).then(|| format!("{:.2}", end.1 / begin.1))
        };
        let unit = family.figures(report)[0].1.unit.text();
        let cells = [
            format!("{}, {unit}", family.title),
            short(first.0),
            format!("{} {}", short(last.0), family.over),
            format!("{} to {}", number(first.1), number(last.1)),
        ];
        let times = kinds.iter().map(|kind| times(kind).unwrap_or_else(|| "-".to_owned()));
        table.add_row(cells.into_iter().chain(times));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    (!families.is_empty()).then_some(table)
}

/// Draws a panel for each family of which there are two sizes at least.
///
/// # Errors
///
/// There is none, or the file cannot be written.
pub fn draw(report: &Report, file: &Path) -> Result<()> {
    let families = present(report);
    if families.is_empty() {
        return Err(anyhow!("no figure was measured at two sizes: there is no curve to draw"));
    }
    let rows = families.len().div_ceil(COLUMNS) as i32;
    let size = (PANEL.0 * COLUMNS as i32 + MARGIN, PANEL.1 * rows + HEAD + MARGIN);
    let area = SVGBackend::new(file, (size.0 as u32, size.1 as u32)).into_drawing_area();
    paint(&area, report, &families).map_err(|error| anyhow!("drawing {}: {error}", file.display()))
}

fn paint(area: &Area, report: &Report, families: &[(&Family, Vec<(Kind, Points)>)]) -> Painted {
    area.fill(&WHITE)?;
    write(area, head(report), (MARGIN, MARGIN), 13, &BLACK, false)?;
    let mut x = MARGIN;
    for kind in Kind::ALL {
        if families.iter().flat_map(|(_, curves)| curves).any(|(of, _)| *of == kind) {
            let name = kind.title().replace('\n', " ");
            area.draw(&Rectangle::new(
                [(x, HEAD - 10), (x + 10, HEAD - 2)],
                colour(kind).filled(),
            ))?;
            let width = 7 * name.len() as i32;
            write(area, name, (x + 14, HEAD - 12), 11, &BLACK, false)?;
            x += width + 40;
        }
    }
    for (at, (family, curves)) in families.iter().enumerate() {
        let (column, row) = ((at % COLUMNS) as i32, (at / COLUMNS) as i32);
        let corner = (MARGIN + column * PANEL.0, HEAD + row * PANEL.1);
        let unit = family.figures(report)[0].1.unit.text();
        let title = format!("{} ({unit})", family.title);
        let panel = area.clone().shrink(corner, PANEL);
        paint_panel(&panel, &title, family.over, curves)?;
    }
    area.present()
}

fn paint_panel(area: &Area, title: &str, over: &str, curves: &[(Kind, Points)]) -> Painted {
    let points = || curves.iter().flat_map(|(_, points)| points);
    let range = |of: fn(&(f64, f64)) -> f64| {
        let values = || points().map(of).filter(|value| *value > 0.0);
        (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max))
    };
    let ((left, right), (low, high)) = (range(|point| point.0), range(|point| point.1));
    // A cost that stays level shall look level, so a decade at least.
    let (low, high) = (low / 1.5, (high * 1.5).max(low * 10.0));
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .caption(title, ("sans-serif", 13))
        .x_label_area_size(32)
        .y_label_area_size(52)
        .build_cartesian_2d((left..right).log_scale(), (low..high).log_scale())?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc(over)
        .x_label_formatter(&|count| short(*count))
        .y_label_formatter(&|value| number(*value))
        .label_style(("sans-serif", 11))
        .draw()?;
    // kvradix last, above the others.
    for (kind, points) in curves.iter().rev() {
        let points: Points = points.iter().copied().filter(|point| point.1 > 0.0).collect();
        let line = colour(*kind).stroke_width(if *kind == Kind::Kvradix { 2 } else { 1 });
        chart.draw_series([PathElement::new(points.clone(), line)])?;
        let dot = |point: (f64, f64)| Circle::new(point, 2, colour(*kind).filled());
        chart.draw_series(points.into_iter().map(dot))?;
    }
    Ok(())
}

/// A count with its unit.
fn short(count: f64) -> String {
    match count {
        count if count >= 1e6 => format!("{} M", count / 1e6),
        count if count >= 1e4 => format!("{} k", count / 1e3),
        count => format!("{count}"),
    }
}
