//! Counting queries on the threads that ask them.
//!
//! Each thread has counters of its own, so a query writes no memory that
//! another thread writes; who adds them up reads them as they are. A thread
//! that ends leaves its counters to the next one that begins.

use std::time::Instant;

use thread_local::ThreadLocal;

use crate::Matches;
use crate::sync::{Counter, Ordering};

/// Buckets of the depth but the one without a bound: of 0 blocks, 1, up to 2,
/// 4, 8 and so on.
const DEPTHS: usize = 17;
/// Buckets of the time but the one without a bound: of up to 64 ns, 128 and so
/// on, to 8 ms.
const TIMES: usize = 18;
/// The first bound of the time, in nanoseconds: 2 to this power.
const FIRST_TIME_LOG: u32 = 6;
/// A query is timed every so many queries, on average.
const PERIOD: u64 = 16;

/// Counts of one index's queries.
#[derive(Default)]
pub(crate) struct Queries {
    threads: ThreadLocal<Cells>,
}

/// One thread's counts, on cache lines of their own.
#[repr(align(128))]
struct Cells {
    /// Queries left until the next one that is timed.
    left: Counter,
    /// What chance is made of; never 0.
    random: Counter,
    depths: Histogram<{ DEPTHS + 1 }>,
    times: Histogram<{ TIMES + 1 }>,
}

/// A query on its way.
pub(crate) struct Query<'c> {
    cells: &'c Cells,
    /// When it began, if it is timed.
    begun: Option<Instant>,
}

/// Written by its thread alone.
struct Histogram<const BUCKETS: usize> {
    buckets: [Counter; BUCKETS],
    sum: Counter,
}

/// A histogram that stands still.
pub(super) struct HistogramCounts<const BUCKETS: usize> {
    pub(super) buckets: [u64; BUCKETS],
    pub(super) sum: u64,
}

/// The counts of all threads.
#[derive(Default)]
pub(super) struct QueryCounts {
    /// In blocks.
    pub(super) depths: HistogramCounts<{ DEPTHS + 1 }>,
    /// In nanoseconds.
    pub(super) times: HistogramCounts<{ TIMES + 1 }>,
}

impl QueryCounts {
    /// The bounds of the depth's buckets, in blocks.
    pub(super) fn depth_bounds() -> impl Iterator<Item = f64> {
        let powers = (0..DEPTHS - 1).map(|log| (1u64 << log) as f64);
        std::iter::once(0.0).chain(powers)
    }

    /// The bounds of the time's buckets, in seconds.
    pub(super) fn time_bounds() -> impl Iterator<Item = f64> {
        (0..TIMES as u32).map(|log| (1u64 << (FIRST_TIME_LOG + log)) as f64 / 1e9)
    }
}

impl Queries {
    /// A query is about to be asked.
    #[inline]
    pub(crate) fn begin(&self) -> Query<'_> {
        let cells = self.threads.get_or(Cells::new);
        let left = cells.left.load(Ordering::Relaxed);
        cells.left.store(left.wrapping_sub(1), Ordering::Relaxed);
        Query { cells, begun: (left == 0).then(Instant::now) }
    }

    /// Adds up all threads.
    pub(super) fn counts(&self) -> QueryCounts {
        let mut counts = QueryCounts::default();
        for cells in &self.threads {
            counts.depths.add(&cells.depths);
            counts.times.add(&cells.times);
        }
        counts
    }
}

impl Query<'_> {
    /// It was answered.
    #[inline]
    pub(crate) fn end(self, matches: &Matches) {
        if let Some(begun) = self.begun {
            self.cells.timed(begun.elapsed().as_nanos());
        }
        let depth = matches.deepest();
        self.cells.depths.record(depth_bucket(depth), depth.into());
    }
}

impl Cells {
    #[cold]
    fn new() -> Self {
        let random = Counter::new(0);
        // Another start for each thread; an address is not 0.
        random.store(std::ptr::from_ref(&random).addr() as u64 | 1, Ordering::Relaxed);
        let (depths, times) = (Histogram::default(), Histogram::default());
        Self { left: Counter::new(0), random, depths, times }
    }

    /// Counts a time and says when the next one is taken: by chance, so that
    /// no rhythm of the caller's is sampled out of step.
    #[cold]
    fn timed(&self, nanos: u128) {
        let nanos = u64::try_from(nanos).unwrap_or(u64::MAX);
        self.times.record(time_bucket(nanos), nanos);
        let mut random = self.random.load(Ordering::Relaxed);
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.random.store(random, Ordering::Relaxed);
        self.left.store((random >> 32) % (2 * PERIOD - 1), Ordering::Relaxed);
    }
}

fn depth_bucket(depth: u32) -> usize {
    match depth {
        0 => 0,
        _ => (1 + (u32::BITS - (depth - 1).leading_zeros()) as usize).min(DEPTHS),
    }
}

fn time_bucket(nanos: u64) -> usize {
    let log = u64::BITS - nanos.saturating_sub(1).leading_zeros();
    (log.saturating_sub(FIRST_TIME_LOG) as usize).min(TIMES)
}

impl<const BUCKETS: usize> Histogram<BUCKETS> {
    #[inline]
    fn record(&self, bucket: usize, value: u64) {
        // Not read-modify-writes: this thread alone writes.
        let raise = |counter: &Counter, by: u64| {
            let count = counter.load(Ordering::Relaxed);
            counter.store(count.wrapping_add(by), Ordering::Relaxed);
        };
        raise(&self.buckets[bucket], 1);
        raise(&self.sum, value);
    }
}

impl<const BUCKETS: usize> Default for Histogram<BUCKETS> {
    fn default() -> Self {
        let counter = |_| Counter::new(0);
        Self { buckets: std::array::from_fn(counter), sum: Counter::new(0) }
    }
}

impl<const BUCKETS: usize> Default for HistogramCounts<BUCKETS> {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], sum: 0 }
    }
}

impl<const BUCKETS: usize> HistogramCounts<BUCKETS> {
    fn add(&mut self, other: &Histogram<BUCKETS>) {
        for (sum, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *sum += count.load(Ordering::Relaxed);
        }
        self.sum = self.sum.wrapping_add(other.sum.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first bucket whose bound is at least `value`.
    fn first(bounds: impl Iterator<Item = f64>, value: f64) -> usize {
        let bounds: Vec<f64> = bounds.collect();
        bounds.iter().position(|bound| value <= *bound).unwrap_or(bounds.len())
    }

    #[test]
    fn a_value_is_counted_in_the_first_bucket_that_holds_it() {
        let edges = (0..40).flat_map(|log| [(1u64 << log) - 1, 1 << log, (1 << log) + 1]);
        for value in edges.chain([u64::MAX]) {
            let seconds = value as f64 / 1e9;
            assert_eq!(time_bucket(value), first(QueryCounts::time_bounds(), seconds), "{value}");
            let Ok(depth) = u32::try_from(value) else { continue };
            let blocks = f64::from(depth);
            assert_eq!(depth_bucket(depth), first(QueryCounts::depth_bounds(), blocks), "{value}");
        }
    }

    /// Fails if the period is off, or the same threads always hit the same
    /// turn.
    #[test]
    fn one_query_in_sixteen_is_timed() {
        let queries = Queries::default();
        for _ in 0..160_000 {
            queries.begin().end(&Matches::new());
        }
        let QueryCounts { depths, times } = queries.counts();
        assert_eq!(depths.buckets.iter().sum::<u64>(), 160_000);
        let timed: u64 = times.buckets.iter().sum();
        assert!((9_500..10_500).contains(&timed), "{timed}");
    }
}
