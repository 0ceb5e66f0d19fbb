//! The order in which locks may be taken, asserted in debug builds.
//!
//! A thread that holds a lock may take only locks of a higher rank, so no two
//! threads can wait for each other. A node has two ranks: it is locked as
//! `PARENT` by who goes on to lock a child of it, else as `CHILD`.

/// A place in the lock order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Rank {
    /// One worker's lane.
    Lane = 1,
    /// The figures of the lanes that are gone, while one goes.
    Departed,
    /// A shard of the map from workers to lanes.
    Registry,
    /// A lane's queue.
    Queue,
    /// The table of slots.
    Slots,
    /// A node whose child is to be locked too.
    Parent,
    /// A shard of a hub's child table.
    HubShard,
    /// A node locked last.
    Child,
    /// A hub's count of children by offset.
    HubCounts,
    /// A shard of the lookup.
    Lookup,
    /// The list of retired values.
    Retired,
    /// The list of indexes that metrics show; no other lock is taken with it.
    #[cfg(feature = "metrics")]
    WatchList,
}

/// Proof that a rank was entered; leaving is its drop.
#[cfg(debug_assertions)]
pub struct Held(Rank);

// The model checker's threads share one thread of the system.
#[cfg(all(debug_assertions, kvradix_shuttle))]
static HELD: super::model::checker::Local<Vec<Rank>> = super::model::checker::Local::new();

#[cfg(all(debug_assertions, kvradix_loom, not(kvradix_shuttle)))]
loom::thread_local! {
    static HELD: std::cell::RefCell<Vec<Rank>> = std::cell::RefCell::new(Vec::new());
}

#[cfg(all(debug_assertions, not(kvradix_loom)))]
thread_local! {
    static HELD: std::cell::RefCell<Vec<Rank>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Asserts that `rank` may be taken now, and notes it as held.
#[cfg(debug_assertions)]
pub(crate) fn enter(rank: Rank) -> Held {
    // A thread that is ending has no list any more; it is not checked.
    let _ = HELD.try_with(|held| {
        let mut held = held.borrow_mut();
        if let Some(&top) = held.iter().max() {
            assert!(top < rank, "lock order: {rank:?} wanted while {held:?} are held");
        }
        held.push(rank);
    });
    Held(rank)
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        let _ = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|&rank| rank == self.0) {
                held.remove(at);
            }
        });
    }
}

/// Whether this thread holds no lock of the index at all.
#[cfg(debug_assertions)]
pub(crate) fn holds_none() -> bool {
    HELD.try_with(|held| held.borrow().is_empty()).unwrap_or(true)
}

/// Nothing, where nothing is asserted.
#[cfg(not(debug_assertions))]
pub struct Held;

#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) fn enter(_: Rank) -> Held {
    Held
}

#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) fn holds_none() -> bool {
    true
}
