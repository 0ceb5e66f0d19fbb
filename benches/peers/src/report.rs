//! What the runs come to.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fs, thread};

use serde::{Deserialize, Serialize};

use crate::goals::{self, Goal, Goals, To};
use crate::metric::Unit;
use crate::peer::Kind;
use crate::runs::load;

#[derive(Serialize, Deserialize, Debug)]
pub struct Report {
    pub machine: Machine,
    pub runs: u32,
    pub quick: bool,
    pub figures: Vec<Figure>,
    /// What went wrong.
    #[serde(default)]
    pub failed: Vec<String>,
}

/// Where and when.
#[derive(Serialize, Deserialize, Debug)]
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub date: String,
    /// Load averages of 1, 5 and 15 minutes.
    pub load_before: String,
    pub load_after: String,
}

/// One figure of all runs of all indexes.
#[derive(Serialize, Deserialize, Debug)]
pub struct Figure {
    pub key: String,
    pub unit: Unit,
    pub runs: BTreeMap<Kind, Vec<f64>>,
}

/// Whether a goal is met.
#[derive(Clone, Copy, Serialize, Debug)]
pub struct Verdict {
    pub wanted: f64,
    pub met: bool,
}

impl Machine {
    pub fn new() -> Self {
        let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpus.lines().find_map(|line| line.strip_prefix("model name"));
        let processor =
            model.map_or("unknown processor", |rest| rest.trim_matches([' ', '\t', ':']));
        Self {
            processor: processor.to_owned(),
            cores: thread::available_parallelism().map_or(0, Into::into),
            date: date(),
            load_before: load().unwrap_or_default(),
            load_after: String::new(),
        }
    }

    pub fn ended(&mut self) {
        self.load_after = load().unwrap_or_default();
    }
}

/// Today's date, UTC.
fn date() -> String {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut days = since.as_secs() / 86_400;
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}", month + 1, days + 1)
}

impl Figure {
    pub fn median(&self, kind: Kind) -> Option<f64> {
        let mut runs = self.runs.get(&kind)?.clone();
        runs.sort_by(f64::total_cmp);
        let middle = runs.len() / 2;
        match runs.len() {
            0 => None,
            count if count % 2 == 1 => Some(runs[middle]),
            _ => Some((runs[middle - 1] + runs[middle]) / 2.0),
        }
    }

    /// The best of those beside kvradix.
    pub fn best_other(&self) -> Option<(Kind, f64)> {
        let others = self.runs.keys().filter(|kind| **kind != Kind::Kvradix);
        let medians = others.filter_map(|kind| Some((*kind, self.median(*kind)?)));
        let higher = self.unit.higher_is_better();
        medians
            .filter(|(_, value)| !value.is_nan())
            .reduce(|best, other| if (other.1 > best.1) == higher { other } else { best })
    }

    /// kvradix's figure by that of the best of the others.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.median(Kind::Kvradix)? / self.best_other()?.1)
    }

    pub fn goals(&self) -> Option<Goals> {
        goals::of(&self.key)
    }

    pub fn verdict(&self, goal: Goal) -> Option<Verdict> {
        let ours = self.median(Kind::Kvradix)?;
        let measure = match goal.to {
            To::Best => self.best_other()?.1,
            To::Peer(kind) => self.median(kind)?,
            To::Itself => 1.0,
        };
        let wanted = measure * goal.factor;
        let met = if self.unit.higher_is_better() { ours >= wanted } else { ours <= wanted };
        Some(Verdict { wanted, met })
    }

    /// The figure's name in words.
    pub fn title(&self) -> String {
        match self.key.strip_suffix(".cpu") {
            Some(key) => format!("{}, by CPU time", title(key)),
            None => title(&self.key),
        }
    }
}

fn title(key: &str) -> String {
    let words: Vec<&str> = key.split('.').collect();
    let quantile = |word: &str| match word {
        "p999" => "p99.9".to_owned(),
        other => other.to_owned(),
    };
    match words[..] {
        ["churn", "cycles"] => "churn, cycles".to_owned(),
        ["churn", "added", what] => format!("churn, {what} memory added per M cycles"),
        ["fleet", variant, size, ref rest @ ..] => {
            let what = match rest {
                ["live"] => "live bytes".to_owned(),
                ["resident"] => "resident bytes".to_owned(),
                ["evict", "single"] => "tail-first eviction, one worker at a time".to_owned(),
                ["evict", _] => "tail-first eviction, workers in turns".to_owned(),
                ["drop"] => "drop a worker".to_owned(),
                ["miss", q] => format!("cold query, miss, {}", quantile(q)),
                [class, q] => {
                    let holders = class.trim_start_matches('q');
                    let plural = if holders == "1" { "" } else { "s" };
                    format!("cold query, {holders} holder{plural}, {}", quantile(q))
                }
                _ => rest.join(" "),
            };
            format!("fleet {size} {variant}, {what}")
        }
        ["contention", shape, how, readers, what] => {
            let shape = shape.replace('x', " × ");
            let beside = if how == "quiet" { "quiet" } else { "beside writer" };
            let readers = readers.trim_start_matches('r');
            let what = match what {
                "writes" => "writer's cycles".to_owned(),
                other => quantile(other),
            };
            format!("warm query {shape}, {beside}, {readers} readers, {what}")
                .replace("1 readers", "1 reader")
        }
        ["workers", workers, class, q] => {
            let holders = class.trim_start_matches('q');
            let plural = if holders == "1" { "" } else { "s" };
            format!("{workers} workers, query, {holders} holder{plural}, {}", quantile(q))
        }
        ["children", place, size, ref rest @ ..] => {
            let place = if place == "root" { "the root" } else { "a node" };
            let what = match rest {
                [what] => format!("{what}, median"),
                rest => rest.join(", "),
            };
            format!("{size} children of {place}, {what}")
        }
        ["chain", length, "ratio"] => {
            format!("a chain of {length} blocks, random order by from the end up")
        }
        ["chain", length, order] | ["chain", length, order, _] => {
            let order = if order == "tail" { "from the end up" } else { "in random order" };
            format!("a chain of {length} blocks, evicted {order}, a block")
        }
        ["replay", "rate"] => "replay, block operations".to_owned(),
        ["replay", part] => format!("replay, {part} alone"),
        _ => key.to_owned(),
    }
}
