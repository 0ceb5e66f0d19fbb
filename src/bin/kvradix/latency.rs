//! How long queries take.

use std::hint::black_box;
use std::time::Instant;

use anyhow::Result;
use hdrhistogram::Histogram;
use kvradix::{Index, LocalHash, Matches};
use parking_lot::Mutex;
use serde::Serialize;

/// The longest query time told apart, in nanoseconds.
const MAX_NS: u64 = 100_000_000_000;

/// Query times in nanoseconds since somebody last looked, one histogram for
/// each thread, so that its lock is free nearly always.
#[derive(Debug)]
pub struct Latencies(Vec<Mutex<Histogram<u64>>>);

impl Latencies {
    pub fn new(threads: usize) -> Result<Self> {
        let all = (0..threads).map(|_| Ok(Mutex::new(histogram()?)));
        Ok(Self(all.collect::<Result<_>>()?))
    }

    /// Looks `query` up, and writes down how long the answer and one pass
    /// over it took.
    pub fn query(&self, thread: usize, index: &Index, query: &[LocalHash], matches: &mut Matches) {
        let started = Instant::now();
        index.matches_into(query, matches);
        matches.iter().for_each(|found| {
            black_box(found);
        });
        let took = started.elapsed();
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.0[thread].lock().saturating_record(ns.max(1));
    }

    /// The query times of all threads since the last call.
    pub fn take(&self) -> Result<Histogram<u64>> {
        let mut taken = histogram()?;
        for thread in &self.0 {
            let mut times = thread.lock();
            taken.add(&*times)?;
            times.reset();
        }
        Ok(taken)
    }
}

/// No query times yet, in nanoseconds.
pub fn histogram() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, MAX_NS, 3)?)
}

/// What is told of query times, in nanoseconds; 0 where there was no query.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Quantiles {
    pub p50: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
}

impl Quantiles {
    pub fn of(histogram: &Histogram<u64>) -> Self {
        Self {
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        }
    }
}
