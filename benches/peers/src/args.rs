//! What can be asked for on the command line.

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::{Parser, ValueEnum};

use crate::peer::Kind;
use crate::workloads::fleet::Variant;
use crate::workloads::{Task, chain, children, churn, contention, fleet, workers};

/// Measures kvradix and the published prefix indexes side by side: the same operations, a process of
/// its own for each index and workload, all indexes in turn before the next run begins. Prints the
/// medians, the ratio to the best of the others, and which of the goals are met.
#[derive(Parser, Debug)]
#[command(version, max_term_width = 100)]
pub struct Args {
    /// What to measure
    #[arg(long, value_enum, value_name = "WHICH,...", value_delimiter = ',',
        default_values = ["churn", "fleet", "contention", "replay"])]
    pub workload: Vec<Workload>,

    /// Holder-blocks of the fleet: 4m, 32m, 500k, ...
    #[arg(long, value_name = "BLOCKS,...", value_delimiter = ',', default_values = ["4m"])]
    pub size: Vec<String>,

    /// Which fleets
    #[arg(long, value_enum, value_name = "WHICH,...", value_delimiter = ',',
        default_values = ["mixed", "shared"])]
    pub fleet: Vec<Variant>,

    /// Runs; medians count
    #[arg(long, default_value_t = 5, value_name = "COUNT",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,

    /// Which indexes; all by default
    #[arg(long, value_enum, value_name = "WHICH,...", value_delimiter = ',')]
    pub peers: Vec<Kind>,

    /// The conversation trace for `replay`, which is left out where there is none
    #[arg(long, value_name = "FILE", default_value_os_t = default_trace())]
    pub trace: PathBuf,

    /// Seconds of each constellation of `contention`, once timed and once not
    #[arg(long, default_value_t = 0.5, value_name = "SECONDS")]
    pub seconds: f64,

    /// Writes the figures of all runs, and what was made of them
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Draws the figures that have a goal
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    /// Draws how the figures of `fleet`, `workers`, `children` and `chain` grow with their sizes
    #[arg(long, value_name = "FILE")]
    pub curves: Option<PathBuf>,

    /// Prints and draws the figures of this file, made with --json; measures nothing
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "quick"])]
    pub show: Option<PathBuf>,

    /// Prints figures that have no goal too
    #[arg(long)]
    pub all: bool,

    /// Checks every adapter against a literal model, then runs all workloads once in a small size;
    /// the figures mean nothing
    #[arg(long)]
    pub quick: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum, Debug)]
pub enum Workload {
    Churn,
    Fleet,
    Contention,
    Replay,
    /// queries in fleets of 8 to 4,096 workers
    Workers,
    /// one block with up to a million children
    Children,
    /// chains of up to 20,000 blocks, evicted from the end and in random order
    Chain,
    /// how cost grows with size: the mixed fleet of each size, then the three before
    Scale,
    /// compares all answers of a random stream with a literal model
    Check,
}

/// Where this project's trace lies beside its checkout.
fn default_trace() -> PathBuf {
    let package = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    package.join("../../../shared/traces/conversation.jsonl")
}

impl Args {
    pub fn peers(&self) -> &[Kind] {
        if self.peers.is_empty() { &Kind::ALL } else { &self.peers }
    }

    /// What to run, in order.
    ///
    /// # Errors
    ///
    /// A size that is none.
    pub fn tasks(&self) -> Result<Vec<Task>> {
        let mut tasks = Vec::new();
        if self.quick {
            tasks.push(Task::Check);
        }
        for workload in &self.workload {
            match workload {
                Workload::Churn => {
                    let cycles = if self.quick { 20_000 } else { 1_000_000 };
                    tasks.push(Task::Churn(churn::Settings { cycles }));
                }
                Workload::Fleet => self.fleets(&self.fleet, &mut tasks)?,
                Workload::Scale => {
                    self.fleets(&[Variant::Mixed], &mut tasks)?;
                    tasks.extend([self.workers(), self.children(), self.chain()]);
                }
                Workload::Contention => {
                    let seconds = if self.quick { 0.02 } else { self.seconds };
                    let readers = vec![1, 2, 8];
                    tasks.push(Task::Contention(contention::Settings { seconds, readers }));
                }
                Workload::Replay if self.trace.is_file() => {
                    let limit = if self.quick { 500 } else { usize::MAX };
                    tasks.push(Task::Replay { trace: self.trace.clone(), limit });
                }
                Workload::Replay => {
                    eprintln!("replay is left out: there is no {}", self.trace.display());
                }
                Workload::Workers => tasks.push(self.workers()),
                Workload::Children => tasks.push(self.children()),
                Workload::Chain => tasks.push(self.chain()),
                Workload::Check => tasks.push(Task::Check),
            }
        }
        Ok(tasks)
    }

    fn workers(&self) -> Task {
        let (queries, smaller) = if self.quick { (200, 64) } else { (20_000, 1) };
        Task::Workers(workers::Settings { fleets: vec![8, 64, 512, 4_096], queries, smaller })
    }

    fn children(&self) -> Task {
        let sizes = [1_000, 10_000, 100_000, 1_000_000];
        let sizes = if self.quick { sizes[..2].to_vec() } else { sizes.to_vec() };
        Task::Children(children::Settings { sizes })
    }

    fn chain(&self) -> Task {
        let lengths = vec![1_250, 2_500, 5_000, 10_000, 20_000];
        let blocks = if self.quick { 1 } else { 400_000 };
        Task::Chain(chain::Settings { lengths, blocks })
    }

    fn fleets(&self, variants: &[Variant], tasks: &mut Vec<Task>) -> Result<()> {
        let quick = ["100k".to_owned()];
        let sizes = if self.quick { &quick[..] } else { &self.size };
        for size in sizes {
            for &variant in variants {
                let queries = if self.quick { 200 } else { 20_000 };
                let (blocks, size) = (blocks(size)?, size.to_lowercase());
                tasks.push(Task::Fleet(fleet::Settings { variant, blocks, size, queries }));
            }
        }
        Ok(())
    }
}

fn blocks(size: &str) -> Result<u64> {
    let lower = size.to_lowercase();
    let (digits, unit) = match lower.char_indices().last() {
        Some((at, 'k')) => (&lower[..at], 1_000),
        Some((at, 'm')) => (&lower[..at], 1_000_000),
        _ => (&lower[..], 1),
    };
    match digits.parse::<u64>().ok().and_then(|count| count.checked_mul(unit)) {
        Some(blocks @ 10_000..=1_000_000_000) => Ok(blocks),
        _ => bail!("a fleet of {size} blocks: it must be from 10k to 1000m, like 4m"),
    }
}
