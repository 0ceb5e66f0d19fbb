//! Pictures: panels of lines over time, one below the other.

use std::fs::{self, OpenOptions};
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::coord::Shift;
use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

/// Pixels of a panel.
const PANEL: (u32, u32) = (1000, 350);
/// What is left free beside the panels, in pixels.
const LEGEND_WIDTH: u32 = 110;

pub const BLUE: RGBColor = RGBColor(31, 119, 180);
pub const RED: RGBColor = RGBColor(214, 39, 40);
pub const GREEN: RGBColor = RGBColor(44, 120, 60);
pub const ORANGE: RGBColor = RGBColor(230, 130, 20);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Lines with one scale.
pub struct Panel {
    pub caption: String,
    /// What the values are, with their unit.
    pub values: &'static str,
    pub scale: Scale,
    pub lines: Vec<Line>,
}

/// How values stand up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// From 0.
    Linear,
    /// From below the least of them.
    Logarithmic,
}

/// A named line through its points, seconds and value.
pub struct Line {
    pub name: &'static str,
    pub colour: RGBColor,
    pub points: Vec<(f64, f64)>,
}

/// Finds out whether a plot can be written: better now than after a long run.
///
/// # Errors
///
/// The file cannot be written.
pub fn prepare(path: &Path) -> Result<()> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.with_context(|| format!("cannot write the plot {}", path.display()))?;
    Ok(())
}

/// Draws the panels into an SVG file.
///
/// # Errors
///
/// The file cannot be written.
pub fn draw(path: &Path, panels: &[Panel]) -> Result<()> {
    let svg = render(panels).map_err(|error| anyhow!("cannot draw the plot: {error}"))?;
    fs::write(path, svg).with_context(|| format!("cannot write the plot {}", path.display()))
}

fn render(panels: &[Panel]) -> Result<String, Box<dyn std::error::Error>> {
    let points = || panels.iter().flat_map(|panel| &panel.lines).flat_map(|line| &line.points);
    let seconds = 0.0..points().map(|(at, _)| *at).fold(0.01, f64::max);
    let mut svg = String::new();
    {
        let size = (PANEL.0, PANEL.1 * panels.len() as u32);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        for (panel, area) in panels.iter().zip(root.split_evenly((panels.len(), 1))) {
            panel.draw(&area, seconds.clone())?;
        }
        root.present()?;
    }
    Ok(svg)
}

impl Panel {
    fn draw(&self, area: &Area<'_>, seconds: Range<f64>) -> Drawn {
        let values = || self.lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value);
        let most = values().reduce(f64::max).unwrap_or(1.0);
        match self.scale {
            Scale::Linear => self.draw_on(area, seconds, 0.0..most.max(f64::MIN_POSITIVE) * 1.1),
            Scale::Logarithmic => {
                let marks = marks(values().reduce(f64::min).unwrap_or(1.0), most);
                let range = marks[0]..marks[marks.len() - 1];
                self.draw_on(area, seconds, range.log_scale().with_key_points(marks))
            }
        }
    }

    fn draw_on<V>(&self, area: &Area<'_>, seconds: Range<f64>, values: V) -> Drawn
    where
        V: AsRangedCoord<Value = f64>,
        V::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .caption(&self.caption, ("sans-serif", 20))
            .margin(14)
            .margin_right(LEGEND_WIDTH)
            .x_label_area_size(44)
            .y_label_area_size(76)
            .build_cartesian_2d(seconds, values)?;
        chart
            .configure_mesh()
            .x_desc("time since the start (s)")
            .y_desc(self.values)
            .y_label_formatter(&|value| format!("{}", (value * 1e3).round() / 1e3))
            .max_light_lines(4)
            .light_line_style(BLACK.mix(0.06))
            .bold_line_style(BLACK.mix(0.15))
            .label_style(("sans-serif", 14))
            .draw()?;
        for (at, Line { name, colour, points }) in (0..).zip(&self.lines) {
            chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
            // Beside the panel, where it covers no line.
            let (x, y) = (PANEL.0 as i32 - LEGEND_WIDTH as i32 + 10, 60 + 22 * at);
            area.draw(&PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(3)))?;
            area.draw(&Text::new(*name, (x + 26, y - 7), ("sans-serif", 14)))?;
        }
        Ok(())
    }
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
