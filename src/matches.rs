//! The answer to a query.

use crate::WorkerId;
use crate::tree::Walk;

/// One worker's share of a query's prefix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Match {
    /// Who holds it.
    pub worker: WorkerId,
    /// How many leading blocks of the query it holds; at least 1. What comes
    /// behind the first `u32::MAX` blocks of a query is not looked at.
    pub depth: u32,
}

/// Who holds how much of a query's prefix.
///
/// Keep one per thread and hand it to
/// [`Index::matches_into`](crate::Index::matches_into) again and again: once
/// its buffers are warm a query allocates nothing. It is a plain value that
/// keeps no part of the index alive, however long it is held.
///
/// # Examples
/// A router that weighs depth against load:
/// ```
/// # use kvradix::{Block, Index, LocalHash, Matches, SequenceHash, StoreError, WorkerId};
/// # let index = Index::new();
/// # let block = Block { sequence: SequenceHash(100), local: LocalHash(10) };
/// # index.store(WorkerId::new(1, 0), None, &[block])?;
/// # let load = |_: WorkerId| 0;
/// let matches = index.matches(LocalHash::from_slice(&[10, 11]));
/// let chosen = matches.iter().max_by_key(|found| i64::from(found.depth) - load(found.worker));
/// assert_eq!(chosen.map(|found| found.worker.id), Some(1));
/// # Ok::<(), StoreError>(())
/// ```
#[derive(Clone, Default, Debug)]
pub struct Matches {
    found: Found,
    /// The walk's working memory.
    pub(crate) walk: Walk,
}

impl Matches {
    /// An empty answer; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The workers that hold something of the query, the deepest first;
    /// workers of equal depth come in no particular order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Match> + '_ {
        self.found.0.iter().rev().copied()
    }

    /// How many workers hold something.
    pub fn len(&self) -> usize {
        self.found.0.len()
    }

    /// Whether nobody holds the query's first block.
    pub fn is_empty(&self) -> bool {
        self.found.0.is_empty()
    }

    /// The worker that holds most; of several the one with the lowest id.
    pub fn best(&self) -> Option<Match> {
        let depth = self.found.0.last()?.depth;
        let deepest = self.found.0.iter().rev().take_while(|found| found.depth == depth);
        deepest.min_by_key(|found| found.worker).copied()
    }

    /// How many leading blocks `worker` holds; 0 when it holds none. Scans
    /// the answer.
    pub fn depth_of(&self, worker: WorkerId) -> u32 {
        let found = self.found.0.iter().find(|found| found.worker == worker);
        found.map_or(0, |found| found.depth)
    }

    /// The most blocks that a worker holds.
    #[cfg(feature = "metrics")]
    #[inline]
    pub(crate) fn deepest(&self) -> u32 {
        self.found.0.last().map_or(0, |found| found.depth)
    }

    /// Forgets the answer, keeps the buffers.
    pub fn clear(&mut self) {
        self.found.0.clear();
    }

    /// The answer, emptied, and the walk's working memory.
    #[inline]
    pub(crate) fn begin(&mut self) -> (&mut Found, &mut Walk) {
        self.found.0.clear();
        (&mut self.found, &mut self.walk)
    }
}

/// What a walk has found, from the shallowest up.
#[derive(Clone, Default, Debug)]
pub(crate) struct Found(Vec<Match>);

impl Found {
    /// Adds a worker.
    #[inline]
    pub(crate) fn push(&mut self, worker: WorkerId, depth: u32) {
        debug_assert!(self.0.last().is_none_or(|last| last.depth <= depth));
        self.0.push(Match { worker, depth });
    }

    /// Adds the workers whose bits are set, one for each of the 64; all hold
    /// `depth` blocks.
    #[inline]
    pub(crate) fn extend(&mut self, workers: &[WorkerId; 64], mut bits: u64, depth: u32) {
        debug_assert!(self.0.last().is_none_or(|last| last.depth <= depth));
        // A prompt that all have: nothing is to be looked for.
        if bits & bits.wrapping_add(1) == 0 {
            let all = &workers[..bits.count_ones() as usize];
            self.0.extend(all.iter().map(|&worker| Match { worker, depth }));
            return;
        }
        // Their number is known first: a push would look at the room for each.
        self.0.extend((0..bits.count_ones()).map(|_| {
            let worker = workers[bits.trailing_zeros() as usize & 63];
            bits &= bits - 1;
            Match { worker, depth }
        }));
    }
}

impl<'a> IntoIterator for &'a Matches {
    type Item = Match;
    type IntoIter = std::iter::Copied<std::iter::Rev<std::slice::Iter<'a, Match>>>;

    fn into_iter(self) -> Self::IntoIter {
        self.found.0.iter().rev().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workers_of_a_word_are_those_of_its_bits_in_order() {
        let workers = std::array::from_fn(|at| WorkerId::new(1_000 - at as u64, at as u32));
        let words = [0, 1, 2, 3, 1 << 63, u64::MAX, u64::MAX >> 1, u64::MAX << 1, 0b1011, !8];
        for bits in words {
            let mut found = Found::default();
            found.push(WorkerId::new(7, 7), 3);
            found.extend(&workers, bits, 9);
            let expected = (0..64).filter(|at| bits >> at & 1 == 1).map(|at| workers[at]);
            let expected = expected.map(|worker| Match { worker, depth: 9 });
            assert!(found.0[1..].iter().copied().eq(expected), "{bits:b}");
        }
    }
}
