//! One face for the index and the reference, so that the harness can drive
//! either. The reference against itself shows that a harness which finds
//! nothing does not do so by asking for too much.

use kvradix::reference::ReferenceIndex;
use kvradix::{Block, StoreError};
use kvradix::{Event, Index, LocalHash, Matches, Refused, SequenceHash, Stats, WorkerId};

pub trait Subject {
    fn store(
        &mut self,
        worker: WorkerId,
        parent: Option<SequenceHash>,
        blocks: &[Block],
    ) -> Result<(), StoreError>;
    fn remove(&mut self, worker: WorkerId, names: &[SequenceHash]);
    fn clear(&mut self, worker: WorkerId);
    fn remove_worker(&mut self, worker: WorkerId);
    fn remove_ranks(&mut self, id: u64);
    fn apply(&mut self, event: &Event) -> Result<(), StoreError>;
    fn apply_all(&mut self, events: &[Event]) -> Vec<Refused>;
    fn matches_into(&self, query: &[LocalHash], matches: &mut Matches);
    fn flush(&self);
    fn flush_worker(&self, worker: WorkerId);
    fn stats(&self) -> Stats;
    fn workers(&self) -> Vec<WorkerId>;
    fn has(&self, worker: WorkerId, name: SequenceHash) -> bool;
    fn held(&self, worker: WorkerId) -> usize;
    fn export(&self, worker: WorkerId) -> Vec<Event>;

    /// Panics where an invariant of the structure does not hold.
    fn check(&self);
    /// Whether it has a lookup, whose entries are to be counted.
    fn has_lookup(&self) -> bool;
    /// Whether it counts the stream's events alone, and all of them.
    fn counts_events(&self) -> bool {
        true
    }
}

macro_rules! subject {
    ($index:ty, $check:expr, $has_lookup:expr) => {
        impl Subject for $index {
            fn store(
                &mut self,
                worker: WorkerId,
                parent: Option<SequenceHash>,
                blocks: &[Block],
            ) -> Result<(), StoreError> {
                <$index>::store(self, worker, parent, blocks)
            }
            fn remove(&mut self, worker: WorkerId, names: &[SequenceHash]) {
                <$index>::remove(self, worker, names)
            }
            fn clear(&mut self, worker: WorkerId) {
                <$index>::clear(self, worker)
            }
            fn remove_worker(&mut self, worker: WorkerId) {
                <$index>::remove_worker(self, worker)
            }
            fn remove_ranks(&mut self, id: u64) {
                <$index>::remove_ranks(self, id)
            }
            fn apply(&mut self, event: &Event) -> Result<(), StoreError> {
                <$index>::apply(self, event)
            }
            fn apply_all(&mut self, events: &[Event]) -> Vec<Refused> {
                <$index>::apply_all(self, events)
            }
            fn matches_into(&self, query: &[LocalHash], matches: &mut Matches) {
                <$index>::matches_into(self, query, matches)
            }
            fn flush(&self) {
                <$index>::flush(self)
            }
            fn flush_worker(&self, worker: WorkerId) {
                <$index>::flush_worker(self, worker)
            }
            fn stats(&self) -> Stats {
                <$index>::stats(self)
            }
            fn workers(&self) -> Vec<WorkerId> {
                <$index>::workers(self)
            }
            fn has(&self, worker: WorkerId, name: SequenceHash) -> bool {
                <$index>::has(self, worker, name)
            }
            fn held(&self, worker: WorkerId) -> usize {
                <$index>::held(self, worker)
            }
            fn export(&self, worker: WorkerId) -> Vec<Event> {
                <$index>::export(self, worker)
            }
            fn check(&self) {
                $check(self)
            }
            fn has_lookup(&self) -> bool {
                $has_lookup
            }
        }
    };
}

subject!(Index, Index::check, true);
subject!(ReferenceIndex, |_: &ReferenceIndex| {}, false);
