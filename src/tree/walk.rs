//! The reader's path: from the root down a query, without a lock.
//!
//! The workers still in step with the query are kept as bits, 64 a chunk. In
//! each node those that hold less of the run than the query has in common
//! with it drop out with their depth; the others go on to the one child that
//! may continue the query.

use super::Tree;
use super::slots::SlotTable;
use super::view::View;
use crate::LocalHash;
use crate::matches::Matches;
use crate::sync::{Mutant, mutant, pin};

/// A query's working memory, kept in its `Matches`.
#[derive(Clone, Default, Debug)]
pub(crate) struct Walk {
    /// Workers in step, by chunk.
    active: Vec<u64>,
    /// Those that go on below the current node.
    next: Vec<u64>,
    /// Those seen in the current node.
    seen: Vec<u64>,
    /// Chunks in which a worker was ever in step.
    chunks: Vec<u32>,
}

impl Tree {
    /// Answers a query; see [`Index::matches_into`](crate::Index::matches_into).
    pub(crate) fn matches_into(&self, query: &[LocalHash], matches: &mut Matches) {
        matches.clear();
        if query.is_empty() {
            return;
        }
        let early = mutant(Mutant::TableBeforePin).then(|| self.roster.load());
        let guard = pin();
        // Taken under the pin: a slot this table names is not given to
        // another worker before the pin has ended.
        let table = early.unwrap_or_else(|| self.roster.load());
        let root = self.root.view(&guard);
        let Some(child) = root.child(0, query[0], &guard) else { return };

        let mut walk = std::mem::take(&mut matches.walk);
        walk.begin(table.chunks());
        child.prefetch_columns();
        let mut view = child.view(&guard);
        let mut common = view.common_prefix(0, query);
        walk.enter_first(view, common, &table, matches);
        let mut depth = common;
        while common > 0 && !walk.chunks.is_empty() {
            let Some(&local) = query.get(depth as usize) else { break };
            let Some(child) = view.child(common, local, &guard) else { break };
            child.prefetch_columns();
            view = child.view(&guard);
            common = view.common_prefix(0, &query[depth as usize..]);
            walk.enter(view, depth, common, &table, matches);
            depth += common;
        }
        walk.end(depth, &table, matches);
        matches.walk = walk;
    }
}

impl Walk {
    fn begin(&mut self, chunks: usize) {
        for words in [&mut self.active, &mut self.next, &mut self.seen] {
            words.clear();
            words.resize(chunks, 0);
        }
        self.chunks.clear();
    }

    /// The first node: whoever is in its levels is in step.
    fn enter_first(&mut self, view: &View, common: u32, table: &SlotTable, matches: &mut Matches) {
        for level in view.levels() {
            // A worker that joined after the table was taken.
            let Some(active) = self.active.get_mut(level.chunk as usize) else { continue };
            if level.cutoff < common {
                emit(table, level.chunk, level.bits, level.cutoff, matches);
            } else {
                if *active == 0 {
                    self.chunks.push(level.chunk);
                }
                *active |= level.bits;
            }
        }
    }

    /// A further node, below `base` blocks, of which the query has `common`.
    fn enter(
        &mut self,
        view: &View,
        base: u32,
        common: u32,
        table: &SlotTable,
        matches: &mut Matches,
    ) {
        for level in view.levels() {
            if let Some(seen) = self.seen.get_mut(level.chunk as usize) {
                *seen |= level.bits;
            }
        }
        for &chunk in &self.chunks {
            let (active, seen) = (&mut self.active[chunk as usize], self.seen[chunk as usize]);
            emit(table, chunk, *active & !seen, base, matches);
            *active &= seen;
        }
        for level in view.levels() {
            let at = level.chunk as usize;
            let Some(active) = self.active.get(at) else { continue };
            let bits = active & level.bits;
            if level.cutoff < common {
                emit(table, level.chunk, bits, base + level.cutoff, matches);
            } else {
                self.next[at] |= bits;
            }
            self.seen[at] = 0;
        }
        std::mem::swap(&mut self.active, &mut self.next);
        self.chunks.retain(|chunk| {
            self.next[*chunk as usize] = 0;
            self.active[*chunk as usize] != 0
        });
    }

    /// Whoever is still in step holds `depth` blocks.
    fn end(&self, depth: u32, table: &SlotTable, matches: &mut Matches) {
        if depth > 0 {
            for &chunk in &self.chunks {
                emit(table, chunk, self.active[chunk as usize], depth, matches);
            }
        }
    }
}

/// Adds the workers of one chunk.
#[inline]
fn emit(table: &SlotTable, chunk: u32, mut bits: u64, depth: u32, matches: &mut Matches) {
    while bits != 0 {
        let slot = chunk * 64 + bits.trailing_zeros();
        bits &= bits - 1;
        if let Some(worker) = table.worker(slot) {
            matches.push(worker, depth);
        }
    }
}
