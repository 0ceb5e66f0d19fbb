//! How a router picks a worker.

use std::sync::atomic::{AtomicU64, Ordering};

/// What every worker has had to compute so far, in blocks.
#[derive(Debug)]
pub struct Loads(Vec<AtomicU64>);

impl Loads {
    pub fn new(workers: usize) -> Self {
        Self((0..workers).map(|_| AtomicU64::new(0)).collect())
    }

    pub fn add(&self, worker: usize, blocks: usize) {
        self.0[worker].fetch_add(blocks as u64, Ordering::Relaxed);
    }
}

/// A router's view of the loads while it decides on one request.
///
/// The router and the oracle it is measured against decide on one such view,
/// so that they differ in nothing but what they know of the caches.
#[derive(Debug)]
pub struct Decision {
    loads: Vec<u64>,
    balance: f64,
    /// The load above which a worker takes no further request.
    limit: f64,
}

impl Decision {
    pub fn new(balance: f64) -> Self {
        Self { loads: Vec::new(), balance, limit: f64::INFINITY }
    }

    /// Looks at the loads as they are now.
    pub fn refresh(&mut self, loads: &Loads) {
        self.loads.clear();
        self.loads.extend(loads.0.iter().map(|load| load.load(Ordering::Relaxed)));
        let sum: f64 = self.loads.iter().map(|load| *load as f64).sum();
        self.limit = self.balance.min(f64::MAX) * sum / self.loads.len() as f64;
    }

    /// Whether the worker may take a request. The least loaded always may.
    pub fn may_take(&self, worker: usize) -> bool {
        self.loads[worker] as f64 <= self.limit
    }

    /// The worker that holds most among those that may take a request; of
    /// several, and where nobody holds anything, the least loaded; of several
    /// the lowest. `held` lists workers that hold something, and how much, the
    /// deepest first.
    pub fn pick(&self, held: impl Iterator<Item = (usize, u32)>) -> usize {
        let mut able = held.filter(|(worker, _)| self.may_take(*worker)).peekable();
        let deepest = able.peek().map(|(_, depth)| *depth);
        let best = able.take_while(|(_, depth)| Some(*depth) == deepest);
        let best = best.map(|(worker, _)| worker).min_by_key(|worker| self.rank(*worker));
        best.or_else(|| (0..self.loads.len()).min_by_key(|worker| self.rank(*worker))).unwrap_or(0)
    }

    fn rank(&self, worker: usize) -> (u64, usize) {
        (self.loads[worker], worker)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(loads: &[u64], balance: f64) -> Decision {
        let shared = Loads::new(loads.len());
        loads.iter().enumerate().for_each(|(worker, load)| shared.add(worker, *load as usize));
        let mut decision = Decision::new(balance);
        decision.refresh(&shared);
        decision
    }

    #[test]
    fn the_longest_prefix_wins_and_load_breaks_ties() {
        let decision = decision(&[30, 20, 10, 20], f64::INFINITY);
        assert_eq!(decision.pick([(0, 9), (1, 4), (2, 4)].into_iter()), 0);
        assert_eq!(decision.pick([(0, 9), (3, 9), (1, 9), (2, 4)].into_iter()), 1);
        assert_eq!(decision.pick([].into_iter()), 2);
    }

    #[test]
    fn an_overloaded_worker_is_passed_over() {
        let decision = decision(&[31, 20, 10, 19], 1.5);
        assert!(!decision.may_take(0));
        assert_eq!(decision.pick([(0, 9), (1, 4), (2, 3)].into_iter()), 1);
        assert_eq!(decision.pick([(0, 9)].into_iter()), 2);
    }

    #[test]
    fn an_idle_fleet_takes_everything() {
        for balance in [1.0, f64::MAX, f64::INFINITY] {
            let decision = decision(&[0, 0], balance);
            assert!(decision.may_take(0) && decision.may_take(1));
            assert_eq!(decision.pick([].into_iter()), 0);
        }
    }
}
