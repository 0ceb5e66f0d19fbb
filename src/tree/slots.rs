//! Slots: the small numbers that stand for workers in owner levels.
//!
//! A worker joins the table before any of its bits is set; it leaves the
//! table after its last bit is cleared, and its slot is given out again only
//! when every pin of that time has ended. A reader takes the table under its
//! pin before it walks, so a bit it sees belongs to the worker the table
//! names at that slot, or to one that joined later, whom the table does not
//! name there.

use std::collections::{BTreeMap, BTreeSet};

use super::garbage::{Garbage, Outgoing, Retired};
use crate::WorkerId;
use crate::sync::rank::Rank;
use crate::sync::{Arc, Guard, Mutex, Swap, Witness, pin};

/// Slots that levels keep in one word.
pub(super) const CHUNK: usize = 64;

/// Who has which slot.
#[derive(Default)]
pub(crate) struct SlotTable {
    chunks: Vec<Chunk>,
    witness: Witness,
}

/// The workers of one chunk of slots.
#[derive(Clone)]
pub(super) struct Chunk {
    /// Which of the slots are taken.
    pub(super) taken: u64,
    /// Who has them; anything where nobody has.
    pub(super) workers: [WorkerId; CHUNK],
}

impl SlotTable {
    /// A chunk; `None` where no worker has a slot of it.
    #[inline]
    pub(super) fn chunk(&self, chunk: u32) -> Option<&Chunk> {
        self.chunks.get(chunk as usize)
    }

    /// Chunks that cover all slots taken.
    #[inline]
    pub(super) fn chunks(&self) -> usize {
        self.witness.read();
        self.chunks.len()
    }

    /// Bytes of the table.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.chunks.capacity() * size_of::<Chunk>()
    }
}

/// Slots that nobody has.
#[derive(Default)]
pub(super) struct SlotPool {
    state: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    /// Those below `next`.
    slots: BTreeSet<u32>,
    /// One more than the highest slot that somebody has.
    next: u32,
}

impl SlotPool {
    /// The lowest slot there is, so that the table stays as short as it can.
    fn take(&self) -> u32 {
        let mut free = self.state.lock(Rank::Retired);
        free.slots.pop_first().unwrap_or_else(|| {
            free.next += 1;
            free.next - 1
        })
    }

    /// How many slots there are.
    #[cfg(kvradix_faults)]
    pub(super) fn made(&self) -> u32 {
        self.state.lock(Rank::Retired).next
    }

    /// Lets `slot` be given out again.
    pub(super) fn give_back(&self, slot: u32) {
        let mut free = self.state.lock(Rank::Retired);
        free.slots.insert(slot);
        while free.next.checked_sub(1).is_some_and(|last| free.slots.remove(&last)) {
            free.next -= 1;
        }
    }
}

/// The table and its changes.
pub(crate) struct Roster {
    table: Swap<SlotTable>,
    /// Held while the table changes.
    change: Mutex<()>,
    pool: Arc<SlotPool>,
}

impl Roster {
    pub(super) fn new(pool: Arc<SlotPool>) -> Self {
        Self { table: Swap::new(Arc::default()), change: Mutex::default(), pool }
    }

    /// The table of this moment, for who has no pin.
    #[cfg(any(test, kvradix_loom))]
    pub(super) fn load(&self) -> impl std::ops::Deref<Target = Arc<SlotTable>> + use<> {
        self.table.load()
    }

    /// The table of this moment, for as long as the pin is held.
    #[inline]
    pub(super) fn peek<'g>(&'g self, guard: &'g Guard) -> &'g SlotTable {
        self.table.peek(guard)
    }

    /// Gives `worker` a slot. O(workers).
    pub(crate) fn join(&self, worker: WorkerId, garbage: &Garbage) -> u32 {
        let _change = self.change.lock(Rank::Slots);
        let slot = self.pool.take();
        self.put(slot, worker, garbage);
        slot
    }

    /// Puts `worker` back where it was before it left; its slot was not
    /// retired. O(workers).
    pub(super) fn come_back(&self, slot: u32, worker: WorkerId, garbage: &Garbage) {
        let _change = self.change.lock(Rank::Slots);
        self.put(slot, worker, garbage);
    }

    fn put(&self, slot: u32, worker: WorkerId, garbage: &Garbage) {
        let mut chunks = self.table.load().chunks.clone();
        let (chunk, bit) = (slot as usize / CHUNK, slot as usize % CHUNK);
        if chunks.len() <= chunk {
            let empty = Chunk { taken: 0, workers: [WorkerId::default(); CHUNK] };
            chunks.resize(chunk + 1, empty);
        }
        chunks[chunk].taken |= 1 << bit;
        chunks[chunk].workers[bit] = worker;
        self.show(chunks, garbage);
    }

    /// Shows the next table and retires the one before, which a later event
    /// frees. The caller has the lock of changes.
    fn show(&self, mut chunks: Vec<Chunk>, garbage: &Garbage) {
        chunks.shrink_to_fit();
        let guard = pin();
        let mut retired = Outgoing::default();
        let next = Arc::new(SlotTable { chunks, witness: Witness::new() });
        retired.push(Retired::Table(self.table.replace(next)));
        garbage.take(&mut retired, &guard);
    }

    /// Panics unless the table names exactly these workers at their slots.
    pub(super) fn check(&self, workers: &BTreeMap<u32, WorkerId>) {
        let table = self.table.load();
        let mut named = BTreeMap::new();
        for (number, chunk) in (0..).zip(&table.chunks) {
            for bit in (0..CHUNK).filter(|bit| chunk.taken >> bit & 1 == 1) {
                named.insert(number * CHUNK as u32 + bit as u32, chunk.workers[bit]);
            }
        }
        assert!(named == *workers, "the table names {named:?}, the lanes {workers:?}");
        let last = named.keys().next_back().map_or(0, |slot| *slot as usize / CHUNK + 1);
        assert_eq!(table.chunks.len(), last, "chunks of the table");
        let free = self.pool.state.lock(Rank::Retired);
        assert!(named.keys().all(|slot| *slot < free.next && !free.slots.contains(slot)));
        assert!(free.slots.iter().all(|slot| *slot < free.next), "a free slot above all");
    }

    /// How many slots there are.
    #[cfg(kvradix_faults)]
    pub(super) fn slots_made(&self) -> u32 {
        self.pool.made()
    }

    /// Gives back a slot that nobody has held anything by.
    pub(super) fn leave_unused(&self, slot: u32, garbage: &Garbage) {
        self.leave(slot, garbage);
        self.pool.give_back(slot);
    }

    /// Takes `slot` out of the table, if it is there; the slot itself is to
    /// be retired. O(workers).
    pub(crate) fn leave(&self, slot: u32, garbage: &Garbage) {
        let _change = self.change.lock(Rank::Slots);
        let mut chunks = self.table.load().chunks.clone();
        let Some(chunk) = chunks.get_mut(slot as usize / CHUNK) else { return };
        chunk.taken &= !(1 << (slot as usize % CHUNK));
        while chunks.last().is_some_and(|chunk| chunk.taken == 0) {
            chunks.pop();
        }
        self.show(chunks, garbage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if the slot that came back last is given out first: the one who
    /// stays comes and goes, and has a high slot for ever.
    #[test]
    fn the_table_is_as_short_as_the_slots_in_use_allow() {
        let roster = Roster::new(Arc::default());
        let garbage = Garbage::new(Arc::default());
        let join = |id| roster.join(WorkerId::new(id, 0), &garbage);
        let leave = |slot| {
            roster.leave(slot, &garbage);
            roster.pool.give_back(slot);
        };
        let slots: Vec<u32> = (0..1_000).map(join).collect();
        assert_eq!(roster.load().chunks(), 16);
        slots[..999].iter().for_each(|slot| leave(*slot));
        assert_eq!(roster.load().chunks(), 16, "the last one is still here");
        let second = join(1_000);
        assert_eq!(second, 0);
        leave(slots[999]);
        assert_eq!(roster.load().chunks(), 1);
        let free = roster.pool.state.lock(Rank::Retired);
        assert_eq!((free.next, free.slots.len()), (1, 0), "nothing is kept of the others");
    }
}
