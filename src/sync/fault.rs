//! Faults on demand: steps of an event at which a test has the thread panic.
//!
//! A build of its own has them (`--cfg kvradix_faults`, which fault-tests
//! sets for itself); in every other one `fault` is nothing. A point stands
//! between any two effects, but for those that are committed together: no
//! code there can panic, and the comment beside it says so.

macro_rules! faults {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// A step at which a thread can be made to panic.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Fault {
            $($(#[$meta])* $name,)*
        }

        #[cfg(kvradix_faults)]
        impl Fault {
            /// Every step.
            pub const ALL: &[Fault] = &[$(Fault::$name,)*];
        }
    };
}

faults! {
    /// A worker's slot is taken, its lane not yet known.
    SlotTaken,
    /// A store has the lane's lock; nothing is drained yet.
    StoreBegins,
    /// The queue is drained, the parent not yet looked for.
    StoreApplies,
    /// The parent is found, the limits are kept.
    StoreAdmitted,
    /// A node's lock is taken, its next view begun.
    NodeLocked,
    /// The worker's lane lists a node that it is about to hold something in.
    NodeEntered,
    /// A block of a run is joined; others of the batch are not.
    BlockJoined,
    /// Longer columns are in the place of those that readers see.
    ColumnsReplaced,
    /// Blocks are in the columns, behind what readers see.
    BlocksPushed,
    /// A name is about to enter the lookup.
    Naming,
    /// A name is in the lookup.
    Named,
    /// A name is another place's in the lookup, and private here.
    NamedElsewhere,
    /// All names are in the lookup; the view is not out.
    BlocksNamed,
    /// A node's next view is made.
    ViewMade,
    /// A node's next view is out, the lock still held.
    Published,
    /// A child is made, not linked.
    ChildMade,
    /// View children are in a table, the view still names them.
    TableMade,
    /// A table's shard has room for a child.
    TableRoom,
    /// A child is linked, its blocks not yet named.
    Linked,
    /// A table of one shard is full.
    TableFull,
    /// A wide table is in the place of the one that readers see.
    TableWide,
    /// All places of a batch are added, none of the old ones given up.
    Stored,
    /// The old places of moved names are found.
    MovedFound,
    /// A store is done but for the lane's books.
    StoreEnds,
    /// Names are popped from the queue.
    Popped,
    /// A removal has found the places of some names.
    NameFound,
    /// A removal has found all places.
    NamesFound,
    /// A node's names are given up, the node still holds the blocks.
    NamesGivenUp,
    /// Some entries of blocks that are lost are gone.
    EntryRemoved,
    /// The worker is out of a node's next view.
    LetGo,
    /// A run's next length is known.
    Trimmed,
    /// A node is empty and still linked.
    Emptied,
    /// An empty node's parent and itself are locked.
    Unlinking,
    /// A node is out of the tree.
    Unlinked,
    /// A table has lost a child; the parent is not yet trimmed.
    TableLeft,
    /// A table's children are back in the half, the view still names it.
    TableGone,
    /// Names are applied and not yet counted.
    Applied,
    /// A batch of names is done, more wait.
    DrainGoesOn,
    /// A clear has let one more node go.
    NodeCleared,
    /// A clear is about to forget the worker's names.
    NamesForgotten,
    /// A leaver holds nothing; the table still names it.
    Cleared,
    /// A leaver is out of the table of slots.
    OutOfTable,
    /// A leaver's lane is closed; what is queued is not yet drained.
    Closed,
    /// A lane's counts are about to be written down.
    EventEnds,
    /// What an event has retired is about to be handed over.
    HandingOver,
    /// The lane is unlocked, what can be freed is not.
    Reclaiming,
    /// A batch of retired values is out of the list, not freed.
    Freeing,
    /// A query goes down to one more node.
    Walking,
    /// An export reads one more node.
    Exporting,
    /// A poisoned worker is healed by one more node.
    Healing,
}

/// What is done after a panic and can be left out, so that the tests show that
/// they would notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Omission {
    /// A node whose next view is in the making is not mended.
    NodeUnmended,
    /// A child that was just linked is not mended.
    ChildUnmended,
    /// A panic poisons nobody.
    Unpoisoned,
    /// A poisoned worker stays in the table of slots.
    StillInTable,
    /// What a torn event has retired stays in its lane.
    RetiredKept,
    /// A poisoned worker is healed by its lane's books.
    BooksTrusted,
    /// Healing leaves what nobody holds.
    TailsLeft,
    /// A slot that no lane has taken is not given back.
    SlotKept,
}

/// Whether to leave it out: never.
#[cfg(not(kvradix_faults))]
#[inline(always)]
pub(crate) const fn omitted(_: Omission) -> bool {
    false
}

/// Nothing: this build has no faults.
#[cfg(not(kvradix_faults))]
#[inline(always)]
pub(crate) const fn fault(_: Fault) {}

#[cfg(kvradix_faults)]
pub use on_demand::*;

#[cfg(kvradix_faults)]
mod on_demand {
    use std::cell::Cell;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

    use super::{Fault, Omission};

    /// What an injected panic carries; it is thrown without the panic hook.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Injected(pub Fault);

    thread_local! {
        /// Points that this thread may pass before it panics; `None` where it
        /// is not to.
        static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// How often each point was passed, by all threads.
    static PASSED: [AtomicU64; Fault::ALL.len()] = [const { AtomicU64::new(0) }; Fault::ALL.len()];
    /// At which point the index's own threads panic.
    static OF_POOL: AtomicUsize = AtomicUsize::new(usize::MAX);
    /// How many more times they do.
    static TIMES: AtomicU64 = AtomicU64::new(0);

    /// Has this thread panic at the point that it reaches after it has passed
    /// `points` of them.
    pub fn arm(points: u64) {
        LEFT.set(Some(points));
    }

    /// No panic any more on this thread; how many points it had left to pass,
    /// if one was to come.
    pub fn disarm() -> Option<u64> {
        LEFT.take()
    }

    /// Has the index's own threads panic at `point`, so many times in all.
    pub fn arm_pool(point: Fault, times: u64) {
        OF_POOL.store(point as usize, Ordering::SeqCst);
        TIMES.store(times, Ordering::SeqCst);
    }

    /// How many panics are still to come on the index's own threads.
    pub fn pool_left() -> u64 {
        TIMES.load(Ordering::SeqCst)
    }

    /// How often `point` was passed, by all threads.
    pub fn passed(point: Fault) -> u64 {
        PASSED[point as usize].load(Ordering::Relaxed)
    }

    /// Whether to leave it out: the environment variable `KVRADIX_OMISSION`
    /// names it.
    pub(crate) fn omitted(which: Omission) -> bool {
        static CHOSEN: OnceLock<Option<String>> = OnceLock::new();
        let chosen = CHOSEN.get_or_init(|| std::env::var("KVRADIX_OMISSION").ok());
        chosen.as_deref().is_some_and(|chosen| chosen == format!("{which:?}"))
    }

    /// Whether this thread holds no lock of the index; known where debug
    /// assertions are on.
    pub fn holds_none() -> bool {
        crate::sync::rank::holds_none()
    }

    /// How many slots the index has ever had in use at once.
    pub fn slots_made(index: &crate::Index) -> u32 {
        index.shared().tree.slots_made()
    }

    /// Whether the index has started this thread.
    fn of_pool() -> bool {
        std::thread::current().name().is_some_and(|name| name.starts_with("kvradix-"))
    }

    #[inline(never)]
    pub(crate) fn fault(point: Fault) {
        // A second panic would end the process, and says nothing.
        if std::thread::panicking() {
            return;
        }
        PASSED[point as usize].fetch_add(1, Ordering::Relaxed);
        if let Some(left) = LEFT.get() {
            LEFT.set(left.checked_sub(1));
            if left == 0 {
                std::panic::resume_unwind(Box::new(Injected(point)));
            }
        }
        if OF_POOL.load(Ordering::Relaxed) == point as usize && of_pool() {
            let order = Ordering::SeqCst;
            if TIMES.try_update(order, order, |left| left.checked_sub(1)).is_ok() {
                std::panic::resume_unwind(Box::new(Injected(point)));
            }
        }
    }
}
