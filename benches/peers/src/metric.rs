//! What a workload measures.

use serde::{Deserialize, Serialize};

/// One figure of one run.
#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct Metric {
    /// What tells it from every other: words from the general to the
    /// particular, joined by dots.
    pub key: String,
    pub unit: Unit,
    pub value: f64,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Debug)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// A rate in millions a second; higher is better.
    MillionPerSecond,
    Nanoseconds,
    Milliseconds,
    BytesPerBlock,
    Megabytes,
    /// A ratio; lower is better.
    Times,
}

impl Unit {
    pub fn higher_is_better(self) -> bool {
        self == Self::MillionPerSecond
    }

    pub fn text(self) -> &'static str {
        match self {
            Self::MillionPerSecond => "M/s",
            Self::Nanoseconds => "ns",
            Self::Milliseconds => "ms",
            Self::BytesPerBlock => "B/block",
            Self::Megabytes => "MB",
            Self::Times => "times",
        }
    }
}

/// The figures of a run, in the order they were taken.
#[derive(Default)]
pub struct Metrics {
    pub list: Vec<Metric>,
}

impl Metrics {
    /// Adds a figure, unless it is none: what did not happen has no rate.
    pub fn add(&mut self, key: impl Into<String>, unit: Unit, value: f64) {
        if value.is_finite() {
            self.list.push(Metric { key: key.into(), unit, value });
        }
    }
}
