//! Slots: the small numbers that stand for workers in owner levels.
//!
//! A worker joins the table before any of its bits is set; it leaves the
//! table after its last bit is cleared, and its slot is given out again only
//! when every pin of that time has ended. A reader takes the table under its
//! pin before it walks, so a bit it sees belongs to the worker the table
//! names at that slot, or to one that joined later, whom the table does not
//! name there.

use crate::WorkerId;
use crate::sync::rank::Rank;
use crate::sync::{Arc, Mutex, Swap};

/// Who has which slot.
#[derive(Clone, Default)]
pub(crate) struct SlotTable {
    entries: Vec<Entry>,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    id: u64,
    dp_rank: u32,
    taken: bool,
}

impl SlotTable {
    /// The worker in `slot`.
    #[inline]
    pub(super) fn worker(&self, slot: u32) -> Option<WorkerId> {
        let entry = self.entries.get(slot as usize).filter(|entry| entry.taken)?;
        Some(WorkerId::new(entry.id, entry.dp_rank))
    }

    /// Chunks of 64 slots that cover all of them.
    #[inline]
    pub(super) fn chunks(&self) -> usize {
        self.entries.len().div_ceil(64)
    }
}

/// Slots that nobody has.
#[derive(Default)]
pub(super) struct SlotPool {
    state: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    slots: Vec<u32>,
    next: u32,
}

impl SlotPool {
    fn take(&self) -> u32 {
        let mut free = self.state.lock(Rank::Retired);
        free.slots.pop().unwrap_or_else(|| {
            free.next += 1;
            free.next - 1
        })
    }

    /// Lets `slot` be given out again.
    pub(super) fn give_back(&self, slot: u32) {
        self.state.lock(Rank::Retired).slots.push(slot);
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

    /// The table of this moment.
    #[inline]
    pub(super) fn load(&self) -> impl std::ops::Deref<Target = Arc<SlotTable>> + use<> {
        self.table.load()
    }

    /// Gives `worker` a slot. O(workers).
    pub(crate) fn join(&self, worker: WorkerId) -> u32 {
        let _change = self.change.lock(Rank::Slots);
        let slot = self.pool.take();
        let mut table = SlotTable::clone(&self.table.load());
        if table.entries.len() <= slot as usize {
            table.entries.resize_with(slot as usize + 1, Entry::default);
        }
        let (id, dp_rank) = (worker.id, worker.dp_rank);
        table.entries[slot as usize] = Entry { id, dp_rank, taken: true };
        self.table.store(Arc::new(table));
        slot
    }

    /// Takes `slot` out of the table; the slot itself is to be retired.
    /// O(workers).
    pub(crate) fn leave(&self, slot: u32) {
        let _change = self.change.lock(Rank::Slots);
        let mut table = SlotTable::clone(&self.table.load());
        table.entries[slot as usize].taken = false;
        while table.entries.last().is_some_and(|entry| !entry.taken) {
            table.entries.pop();
        }
        table.entries.shrink_to_fit();
        self.table.store(Arc::new(table));
    }
}
