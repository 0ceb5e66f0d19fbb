//! The index as its users see it.

use std::time::Duration;

use crate::{Block, Event, LocalHash, Matches, Refused, SequenceHash, Stats, StoreError, WorkerId};

/// STUB: being built.
#[derive(Debug, Default)]
pub struct Index {}

/// STUB
#[derive(Debug, Clone)]
#[must_use]
pub struct Builder {}

/// Drain threads that several indexes can share. STUB
#[derive(Debug, Clone)]
pub struct Pool {}

#[allow(unused_variables, missing_docs)]
impl Pool {
    pub fn new(threads: usize) -> Pool {
        todo!()
    }
}

#[allow(unused_variables, missing_docs)]
impl Builder {
    /// Drain threads; 0 = callers drain.
    pub fn drain_threads(self, threads: usize) -> Self {
        todo!()
    }
    /// Shares a pool instead of owning one.
    pub fn pool(self, pool: &Pool) -> Self {
        todo!()
    }
    /// A removal is visible this long after it was handed in, at the latest.
    pub fn removal_delay(self, delay: Duration) -> Self {
        todo!()
    }
    /// Pending names of a worker at which its lane is handed to the pool.
    pub fn drain_threshold(self, names: usize) -> Self {
        todo!()
    }
    /// Pending names of a worker above which the caller drains.
    pub fn max_pending(self, names: usize) -> Self {
        todo!()
    }
    /// Blocks a node's run may have, 1 to 4096; small in tests so that rare paths happen.
    pub fn run_blocks(self, blocks: u32) -> Self {
        todo!()
    }
    /// Children a node keeps in its view before it gets a hub table.
    pub fn hub_threshold(self, children: usize) -> Self {
        todo!()
    }
    pub fn build(self) -> Index {
        todo!()
    }
}

#[allow(unused_variables, missing_docs)]
impl Index {
    pub fn new() -> Self {
        Self::builder().build()
    }
    pub fn builder() -> Builder {
        todo!()
    }
    pub fn store(
        &self,
        worker: WorkerId,
        parent: Option<SequenceHash>,
        blocks: &[Block],
    ) -> Result<(), StoreError> {
        todo!()
    }
    pub fn remove(&self, worker: WorkerId, names: &[SequenceHash]) {
        todo!()
    }
    pub fn clear(&self, worker: WorkerId) {
        todo!()
    }
    pub fn remove_worker(&self, worker: WorkerId) {
        todo!()
    }
    /// all ranks of an id
    pub fn remove_ranks(&self, id: u64) {
        todo!()
    }
    pub fn apply(&self, event: &Event) -> Result<(), StoreError> {
        todo!()
    }
    /// Applies all; a refused event does not stop the others. Returns those refused (empty: all applied).
    pub fn apply_all<'a>(&self, events: impl IntoIterator<Item = &'a Event>) -> Vec<Refused> {
        todo!()
    }
    pub fn matches(&self, query: &[LocalHash]) -> Matches {
        todo!()
    }
    pub fn matches_into(&self, query: &[LocalHash], matches: &mut Matches) {
        todo!()
    }
    pub fn flush(&self) {
        todo!()
    }
    pub fn flush_worker(&self, worker: WorkerId) {
        todo!()
    }
    pub fn stats(&self) -> Stats {
        todo!()
    }
    /// Known workers, sorted.
    pub fn workers(&self) -> Vec<WorkerId> {
        todo!()
    }
    /// Whether the worker has the name now (its queued removals applied first).
    pub fn has(&self, worker: WorkerId, name: SequenceHash) -> bool {
        todo!()
    }
    /// How many names the worker has now (its queued removals applied first); 0 if unknown.
    pub fn held(&self, worker: WorkerId) -> usize {
        todo!()
    }
    pub fn export(&self, worker: WorkerId) -> Vec<Event> {
        todo!()
    }
    /// Walks the whole structure and panics where an invariant does not hold; for tests.
    #[doc(hidden)]
    pub fn check(&self) {
        todo!()
    }
}
