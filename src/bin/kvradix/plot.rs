//! The picture of a replay: query time and memory over time.

use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::replay::Sample;
use crate::report::mebibytes;

const SIZE: (u32, u32) = (1000, 700);
/// What is left free beside the panels, in pixels.
const LEGEND_WIDTH: u32 = 80;
const MEDIAN: RGBColor = RGBColor(31, 119, 180);
const TAIL: RGBColor = RGBColor(214, 39, 40);
const MEMORY: RGBColor = RGBColor(44, 120, 60);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// A named line through its points.
struct Line {
    name: &'static str,
    colour: RGBColor,
    points: Vec<(f64, f64)>,
}

/// Draws both panels into an SVG file.
///
/// # Errors
///
/// The file cannot be written.
pub fn draw(path: &Path, samples: &[Sample]) -> Result<()> {
    let svg = render(samples).map_err(|error| anyhow!("cannot draw the plot: {error}"))?;
    fs::write(path, svg).with_context(|| format!("cannot write the plot {}", path.display()))
}

fn render(samples: &[Sample]) -> Result<String, Box<dyn std::error::Error>> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let (above, below) = root.split_vertically(SIZE.1 / 2);
        let seconds = 0.0..samples.last().map_or(0.0, |sample| sample.at).max(0.01);
        query_time(&above, seconds.clone(), samples)?;
        resident_memory(&below, seconds, samples)?;
        root.present()?;
    }
    Ok(svg)
}

fn query_time(
    area: &Area<'_>,
    seconds: Range<f64>,
    samples: &[Sample],
) -> Result<(), Box<dyn std::error::Error>> {
    let line = |name, colour, of: fn((u64, u64)) -> u64| {
        let point = |sample: &Sample| Some((sample.at, of(sample.query_ns?) as f64 / 1e3));
        Line { name, colour, points: samples.iter().filter_map(point).collect() }
    };
    let lines = [line("p50", MEDIAN, |(p50, _)| p50), line("p99", TAIL, |(_, p99)| p99)];
    let all = || lines.iter().flat_map(|line| &line.points).map(|(_, micros)| *micros);
    let least = all().reduce(f64::min).unwrap_or(1.0);
    let most = all().reduce(f64::max).unwrap_or(1.0);
    let marks = marks(least, most);
    let range = marks[0]..marks[marks.len() - 1];

    let mut chart = ChartBuilder::on(area)
        .caption("Time of a query, per 0.1 s of the run", ("sans-serif", 20))
        .margin(14)
        .margin_right(LEGEND_WIDTH)
        .x_label_area_size(44)
        .y_label_area_size(76)
        .build_cartesian_2d(seconds, range.log_scale().with_key_points(marks))?;
    chart
        .configure_mesh()
        .x_desc("time since the start (s)")
        .y_desc("query time (µs, log scale)")
        .y_label_formatter(&|micros| format!("{}", (micros * 1e3).round() / 1e3))
        .max_light_lines(4)
        .light_line_style(BLACK.mix(0.06))
        .bold_line_style(BLACK.mix(0.15))
        .label_style(("sans-serif", 14))
        .draw()?;
    for (at, Line { name, colour, points }) in (0..).zip(lines) {
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
        // Beside the panel, where it covers no line.
        let (x, y) = (SIZE.0 as i32 - LEGEND_WIDTH as i32 + 10, 60 + 22 * at);
        area.draw(&PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(3)))?;
        area.draw(&Text::new(name, (x + 26, y - 7), ("sans-serif", 14)))?;
    }
    Ok(())
}

/// 1, 2 and 5 times powers of ten, from the last that is at most `least` to the
/// first above `most`; at least two.
fn marks(least: f64, most: f64) -> Vec<f64> {
    let powers = (-3..12).map(|power| 10_f64.powi(power));
    let all: Vec<f64> = powers.flat_map(|power| [power, 2.0 * power, 5.0 * power]).collect();
    let first = all.iter().rposition(|mark| *mark <= least).unwrap_or(0);
    let last = all.iter().position(|mark| *mark > most).unwrap_or(all.len() - 1);
    all[first.min(last.saturating_sub(1))..=last].to_vec()
}

fn resident_memory(
    area: &Area<'_>,
    seconds: Range<f64>,
    samples: &[Sample],
) -> Result<(), Box<dyn std::error::Error>> {
    let point = |sample: &Sample| Some((sample.at, mebibytes(sample.resident_bytes?)));
    let points: Vec<_> = samples.iter().filter_map(point).collect();
    let title = if points.is_empty() {
        "Resident memory of the process (n/a on this system)"
    } else {
        "Resident memory of the process, simulated caches included"
    };
    let most = points.iter().map(|(_, size)| *size).fold(1.0, f64::max);

    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 20))
        .margin(14)
        .margin_right(LEGEND_WIDTH)
        .x_label_area_size(44)
        .y_label_area_size(76)
        .build_cartesian_2d(seconds, 0.0..most * 1.1)?;
    chart
        .configure_mesh()
        .x_desc("time since the start (s)")
        .y_desc("resident memory (MiB)")
        .max_light_lines(4)
        .light_line_style(BLACK.mix(0.06))
        .bold_line_style(BLACK.mix(0.15))
        .label_style(("sans-serif", 14))
        .draw()?;
    chart.draw_series(LineSeries::new(points, MEMORY.stroke_width(2)))?;
    Ok(())
}
