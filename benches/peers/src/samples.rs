//! Times of single calls.

use std::time::Instant;

/// Times below this many nanoseconds are counted one by one.
const FINE: usize = 1 << 16;

/// Times in nanoseconds, kept exactly and in little memory.
pub struct Samples {
    /// How often each time below [`FINE`] was seen.
    fine: Vec<u32>,
    /// The others.
    coarse: Vec<u64>,
    count: u64,
}

impl Default for Samples {
    fn default() -> Self {
        Self { fine: vec![0; FINE], coarse: Vec::new(), count: 0 }
    }
}

impl Samples {
    #[inline]
    pub fn add(&mut self, nanoseconds: u64) {
        match self.fine.get_mut(nanoseconds as usize) {
            Some(seen) => *seen += 1,
            None => self.coarse.push(nanoseconds),
        }
        self.count += 1;
    }

    pub fn join(&mut self, other: Self) {
        for (mine, theirs) in self.fine.iter_mut().zip(other.fine) {
            *mine += theirs;
        }
        self.coarse.extend(other.coarse);
        self.count += other.count;
    }

    /// The time that `share` of the calls did not exceed, without what asking
    /// the clock costs. `NaN` if there was no call.
    pub fn quantile(&mut self, share: f64, clock: u64) -> f64 {
        if self.count == 0 {
            return f64::NAN;
        }
        let mut left = ((self.count as f64 * share).ceil() as u64).max(1);
        for (nanoseconds, seen) in self.fine.iter().enumerate() {
            if u64::from(*seen) >= left {
                return (nanoseconds as u64).saturating_sub(clock) as f64;
            }
            left -= u64::from(*seen);
        }
        self.coarse.sort_unstable();
        let at = (left as usize - 1).min(self.coarse.len() - 1);
        self.coarse[at].saturating_sub(clock) as f64
    }
}

/// What two looks at the clock cost with nothing between them, in
/// nanoseconds: the median of many.
pub fn clock_cost() -> u64 {
    let mut samples = Samples::default();
    for _ in 0..20_000 {
        let started = Instant::now();
        samples.add(started.elapsed().as_nanos() as u64);
    }
    samples.quantile(0.5, 0) as u64
}
