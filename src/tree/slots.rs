//! Slots: the small numbers that stand for workers in owner levels.
//!
//! A worker joins the table before any of its bits is set; it leaves the
//! table after its last bit is cleared, and its slot is given out again only
//! when every pin of that time has ended. A query takes the table under its
//! pin before it walks, so a bit it sees belongs to the worker the table
//! names at that slot, or to one that joined later, whom the table does not
//! name there. Who lists the workers takes the table without a pin.

use std::collections::{BTreeMap, BTreeSet};

use super::garbage::{Garbage, Outgoing, Retired};
use crate::WorkerId;
use crate::sync::rank::Rank;
use crate::sync::{Arc, Guard, Mutant, Mutex, Swap, Witness, mutant, pin};

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
    taken: u64,
    /// Those of them whose workers are in answers: all but the poisoned ones.
    pub(super) named: u64,
    /// Who has them; anything where nobody has.
    pub(super) workers: [WorkerId; CHUNK],
}

impl SlotTable {
    /// A chunk; `None` where no worker has a slot of it.
    #[inline]
    pub(super) fn chunk(&self, chunk: u32) -> Option<&Chunk> {
        self.witness.read();
        self.chunks.get(chunk as usize)
    }

    /// Chunks that cover all slots taken.
    #[inline]
    pub(super) fn chunks(&self) -> usize {
        self.witness.read();
        self.chunks.len()
    }

    /// Who has a slot, by slots.
    fn workers(&self) -> impl Iterator<Item = (u32, WorkerId, bool)> + '_ {
        self.witness.read();
        (0..).zip(&self.chunks).flat_map(|(number, chunk)| {
            let taken = (0..CHUNK).filter(|bit| chunk.taken >> bit & 1 == 1);
            taken.map(move |bit| {
                let slot = number * CHUNK as u32 + bit as u32;
                (slot, chunk.workers[bit], chunk.named >> bit & 1 == 1)
            })
        })
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
    #[inline]
    pub(super) fn load(&self) -> impl std::ops::Deref<Target = Arc<SlotTable>> + use<> {
        self.table.load()
    }

    /// The table of this moment, for as long as the pin is held.
    #[inline]
    pub(super) fn peek<'g>(&'g self, guard: &'g Guard) -> &'g SlotTable {
        self.table.peek(guard)
    }

    /// Everybody who has a slot, in ascending order. Takes no lock and no pin:
    /// nothing waits for it, and it for nothing. O(workers).
    pub(super) fn workers(&self) -> Vec<WorkerId> {
        let mut workers: Vec<_> = self.load().workers().map(|(_, worker, _)| worker).collect();
        workers.sort_unstable();
        workers
    }

    /// Gives `worker` a slot. O(workers).
    pub(crate) fn join(&self, worker: WorkerId, garbage: &Garbage) -> u32 {
        let _change = self.change.lock(Rank::Slots);
        let slot = self.pool.take();
        self.put(slot, worker, true, garbage);
        slot
    }

    /// Takes `worker`, who keeps its slot, out of all answers. O(workers).
    pub(super) fn hide(&self, slot: u32, worker: WorkerId, garbage: &Garbage) {
        let _change = self.change.lock(Rank::Slots);
        self.put(slot, worker, false, garbage);
    }

    /// Puts `worker` back into answers; its slot was not retired. O(workers).
    pub(super) fn come_back(&self, slot: u32, worker: WorkerId, garbage: &Garbage) {
        let _change = self.change.lock(Rank::Slots);
        self.put(slot, worker, true, garbage);
    }

    fn put(&self, slot: u32, worker: WorkerId, named: bool, garbage: &Garbage) {
        let mut chunks = self.load().chunks.clone();
        let (number, bit) = (slot as usize / CHUNK, slot as usize % CHUNK);
        if chunks.len() <= number {
            let empty = Chunk { taken: 0, named: 0, workers: [WorkerId::default(); CHUNK] };
            chunks.resize(number + 1, empty);
        }
        let chunk = &mut chunks[number];
        chunk.taken |= 1 << bit;
        chunk.named = chunk.named & !(1 << bit) | u64::from(named) << bit;
        chunk.workers[bit] = worker;
        self.show(chunks, garbage);
    }

    /// Takes `slot` out of the table, if it is there; the slot itself is to
    /// be retired. O(workers).
    pub(crate) fn leave(&self, slot: u32, garbage: &Garbage) {
        let _change = self.change.lock(Rank::Slots);
        let mut chunks = self.load().chunks.clone();
        let Some(chunk) = chunks.get_mut(slot as usize / CHUNK) else { return };
        chunk.taken &= !(1 << (slot as usize % CHUNK));
        chunk.named &= chunk.taken;
        while chunks.last().is_some_and(|chunk| chunk.taken == 0) {
            chunks.pop();
        }
        self.show(chunks, garbage);
    }

    /// The same for a slot that nobody has held anything by. It waits for the
    /// pins too: who has one may have the table that names it.
    pub(super) fn leave_unused(&self, slot: u32, garbage: &Garbage) {
        self.leave(slot, garbage);
        let mut retired = Outgoing::default();
        retired.push(Retired::Slot(slot));
        garbage.take(&mut retired, &pin());
    }

    /// Shows the next table and retires the one before, which a later event
    /// frees. The caller has the lock of changes.
    fn show(&self, mut chunks: Vec<Chunk>, garbage: &Garbage) {
        chunks.shrink_to_fit();
        let guard = pin();
        let mut retired = Outgoing::default();
        let next = Arc::new(SlotTable { chunks, witness: Witness::new() });
        let before = self.table.replace(next);
        if mutant(Mutant::TableFreedAtOnce) {
            return;
        }
        retired.push(Retired::Table(before));
        garbage.take(&mut retired, &guard);
    }

    /// Panics unless the table has exactly these workers at their slots, and
    /// those in answers that are said to be.
    pub(super) fn check(&self, workers: &BTreeMap<u32, (WorkerId, bool)>) {
        let table = self.load();
        let known: BTreeMap<_, _> =
            table.workers().map(|(slot, worker, named)| (slot, (worker, named))).collect();
        assert!(known == *workers, "the table names {known:?}, the lanes {workers:?}");
        let stray = table.chunks.iter().any(|chunk| chunk.named & !chunk.taken != 0);
        assert!(!stray, "somebody without a slot is in answers");
        let last = known.keys().next_back().map_or(0, |slot| *slot as usize / CHUNK + 1);
        assert_eq!(table.chunks.len(), last, "chunks of the table");
        let free = self.pool.state.lock(Rank::Retired);
        assert!(known.keys().all(|slot| *slot < free.next && !free.slots.contains(slot)));
        assert!(free.slots.iter().all(|slot| *slot < free.next), "a free slot above all");
    }

    /// How many slots there are.
    #[cfg(kvradix_faults)]
    pub(super) fn slots_made(&self) -> u32 {
        self.pool.made()
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
