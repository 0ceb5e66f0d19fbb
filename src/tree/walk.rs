//! The reader's path: from the root down a query, without a lock.
//!
//! A query whose first block nobody holds mostly ends at the sieve, before it
//! has a pin.
//!
//! The workers still in step with the query are kept as bits, 64 a chunk. In
//! each node those that hold less of the run than the query has in common
//! with it drop out with their depth; the others go on to the one child that
//! may continue the query.

use super::Tree;
use super::key::Key;
use super::node::Node;
use super::slots::SlotTable;
use super::view::View;
use crate::LocalHash;
use crate::matches::{Found, Matches};
use crate::sync::{Fault, Fold, Guard, Mutant, fault, mutant, pin};

/// A query's working memory, kept in its `Matches`: all words are zero
/// between queries.
#[derive(Clone, Default, Debug)]
pub(crate) struct Walk {
    /// Whether a query is under way, or ended in a panic.
    busy: bool,
    words: Vec<Words>,
    /// Chunks in which a worker was ever in step.
    chunks: Vec<u32>,
}

/// What the walk knows of one chunk of slots.
#[derive(Clone, Copy, Default, Debug)]
struct Words {
    /// Workers in step.
    active: u64,
    /// Those that go on below the current node.
    next: u64,
    /// Those seen in the current node.
    seen: u64,
}

impl Tree {
    /// Answers a query; see [`Index::matches_into`](crate::Index::matches_into).
    pub(crate) fn matches_into(&self, query: &[LocalHash], matches: &mut Matches) {
        if let Some(&local) = query.first() {
            let Key { hash, .. } = Key::new(self.fold, 0, local);
            if self.sieve.may_have(hash) {
                return self.descend(local, hash, query, matches);
            }
        }
        matches.clear();
    }

    /// The same where the root may have a child that begins with `local`, as
    /// the query does; `hash` is its key's. In line: as a call of its own it made
    /// queries beside a writer a fifth slower.
    #[inline(always)]
    fn descend(&self, local: LocalHash, hash: u64, query: &[LocalHash], matches: &mut Matches) {
        let (found, walk) = matches.begin();
        let query = countable(query);
        let early = mutant(Mutant::TableBeforePin).then(|| self.roster.load());
        let first = self.top.spot(Key { offset: 0, local, hash });
        first.prefetch();
        let guard = pin();
        let Some(child) = self.first_child(&first, &guard) else { return };
        child.prefetch();
        // Taken under the pin and before any bit is seen: a slot this table
        // names is not given to another worker before the pin has ended.
        let table = match &early {
            Some(early) => early,
            None => self.roster.peek(&guard),
        };

        walk.begin(table.chunks());
        let mut view = child.view(&guard);
        let mut step = Step::new(view, query, self.fold, &guard);
        walk.enter_first(view, step.common, table, found);
        let mut depth = step.common;
        while step.common > 0 && !walk.chunks.is_empty() {
            let Some(child) = step.child else { break };
            fault(Fault::Walking);
            view = child.view(&guard);
            step = Step::new(view, &query[depth as usize..], self.fold, &guard);
            walk.enter(view, depth, step.common, table, found);
            depth += step.common;
        }
        walk.end(depth, table, found);
    }
}

/// One node's share of a query.
struct Step<'g> {
    /// How many blocks the node's run and the query have in common.
    common: u32,
    /// The child that may go on from there.
    child: Option<&'g Node>,
}

impl<'g> Step<'g> {
    /// `query` is what is left of it.
    #[inline]
    fn new(view: View<'g>, query: &[LocalHash], fold: Fold, guard: &'g Guard) -> Self {
        // Most queries that come to a node have its whole run, so the child
        // at the end is looked for before the run is compared: the processor
        // waits for both at once.
        let end = view.len();
        let at_end = query.get(end as usize).and_then(|local| view.child(end, *local, fold, guard));
        if let Some(child) = at_end {
            child.prefetch();
        }
        let common = view.common_prefix(0, query);
        if common == end {
            return Self { common, child: at_end };
        }
        let child =
            query.get(common as usize).and_then(|local| view.child(common, *local, fold, guard));
        if let Some(child) = child {
            child.prefetch();
        }
        Self { common, child }
    }
}

/// As much of a query as a depth can count.
#[inline]
fn countable(query: &[LocalHash]) -> &[LocalHash] {
    &query[..query.len().min(u32::MAX as usize)]
}

impl Walk {
    fn begin(&mut self, chunks: usize) {
        if std::mem::replace(&mut self.busy, true) {
            self.chunks.clear();
            self.words.clear();
        }
        debug_assert!(self.chunks.is_empty());
        if self.words.len() != chunks {
            self.words.resize(chunks, Words::default());
        }
    }

    /// The first node: whoever is in its levels is in step.
    fn enter_first(&mut self, view: View<'_>, common: u32, table: &SlotTable, found: &mut Found) {
        for level in view.levels() {
            // A worker that joined after the table was taken.
            let Some(words) = self.words.get_mut(level.chunk as usize) else { continue };
            if level.cutoff < common {
                emit(table, level.chunk, level.bits, level.cutoff, found);
            } else {
                if words.active == 0 {
                    self.chunks.push(level.chunk);
                }
                words.active |= level.bits;
            }
        }
    }

    /// A further node, below `base` blocks, of which the query has `common`.
    fn enter(
        &mut self,
        view: View<'_>,
        base: u32,
        common: u32,
        table: &SlotTable,
        found: &mut Found,
    ) {
        for level in view.levels() {
            if let Some(words) = self.words.get_mut(level.chunk as usize) {
                words.seen |= level.bits;
            }
        }
        for &chunk in &self.chunks {
            let words = &mut self.words[chunk as usize];
            emit(table, chunk, words.active & !words.seen, base, found);
            words.active &= words.seen;
        }
        for level in view.levels() {
            let Some(words) = self.words.get_mut(level.chunk as usize) else { continue };
            let bits = words.active & level.bits;
            if level.cutoff < common {
                emit(table, level.chunk, bits, base + level.cutoff, found);
            } else {
                words.next |= bits;
            }
            words.seen = 0;
        }
        self.chunks.retain(|chunk| {
            let words = &mut self.words[*chunk as usize];
            words.active = std::mem::take(&mut words.next);
            words.active != 0
        });
    }

    /// Whoever is still in step holds `depth` blocks.
    fn end(&mut self, depth: u32, table: &SlotTable, found: &mut Found) {
        for chunk in self.chunks.drain(..) {
            let bits = std::mem::take(&mut self.words[chunk as usize].active);
            emit(table, chunk, bits, depth, found);
        }
        self.busy = false;
    }
}

/// Adds the workers of one chunk that the table names.
#[inline]
fn emit(table: &SlotTable, chunk: u32, bits: u64, depth: u32, found: &mut Found) {
    if let Some(chunk) = table.chunk(chunk) {
        found.extend(&chunk.workers, bits & chunk.named, depth);
    }
}
