//! The picture of a replay: query time and memory over time.

use super::monitor::Sample;
use crate::plot::{BLUE, GREEN, Line, Panel, RED, Scale};
use crate::report::mebibytes;

/// Query time above, memory below.
pub fn panels(samples: &[Sample]) -> [Panel; 2] {
    [query_time(samples), resident_memory(samples)]
}

fn query_time(samples: &[Sample]) -> Panel {
    let line = |name, colour, of: fn((u64, u64)) -> u64| {
        let point = |sample: &Sample| Some((sample.at, of(sample.query_ns?) as f64 / 1e3));
        Line { name, colour, points: samples.iter().filter_map(point).collect() }
    };
    Panel {
        caption: "Time of a query, per 0.1 s of the run".to_owned(),
        values: "query time (µs, log scale)",
        scale: Scale::Logarithmic,
        lines: vec![line("p50", BLUE, |(p50, _)| p50), line("p99", RED, |(_, p99)| p99)],
    }
}

fn resident_memory(samples: &[Sample]) -> Panel {
    let point = |sample: &Sample| Some((sample.at, mebibytes(sample.resident_bytes?)));
    let points: Vec<_> = samples.iter().filter_map(point).collect();
    let caption = if points.is_empty() {
        "Resident memory of the process (n/a on this system)"
    } else {
        "Resident memory of the process, simulated caches included"
    };
    Panel {
        caption: caption.to_owned(),
        values: "resident memory (MiB)",
        scale: Scale::Linear,
        lines: vec![Line { name: "resident", colour: GREEN, points }],
    }
}
