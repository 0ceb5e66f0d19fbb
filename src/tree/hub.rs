//! The children of a node that has many: a sharded table whose readers take
//! no lock.
//!
//! Each shard is an array of slots behind an atomic pointer, probed linearly.
//! A slot goes from empty to a child to removed and never back, so a reader
//! that follows a slot sees one child at most; it checks the child's own key.
//! An array that runs out of empty slots is replaced by one sized for the
//! children it has, a shard at a time; the old one is retired.
//!
//! A slot owns its child: one count of the child's `Arc`, taken out by
//! `remove`.

#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ptr::{self, NonNull};

use super::garbage::Retired;
use super::node::Node;
use crate::LocalHash;
use crate::sync::rank::Rank;
use crate::sync::{
    Arc, AtomicPtr, AtomicUsize, Fold, Guard, Mutant, Mutex, MutexGuard, Ordering, Witness, mutant,
};

/// A child table, of one shard or of many. What a reader needs comes first.
#[repr(C)]
pub(super) struct Hub {
    fold: Fold,
    /// The only shard while `more` is empty, else unused: a small table is
    /// one miss less away.
    first: Shard,
    more: Box<[Shard]>,
    witness: Witness,
    /// Children in all; changed under a shard's lock.
    len: AtomicUsize,
    /// Children by offset, so that trimming the parent's run looks at none of
    /// them. `None` at the root, whose children all hang at 0.
    counts: Option<Mutex<BTreeMap<u32, usize>>>,
}

struct Shard {
    /// Null until the first child comes.
    slots: AtomicPtr<Slots>,
    state: Mutex<ShardState>,
}

#[derive(Default)]
pub(super) struct ShardState {
    live: usize,
    /// Slots that are not empty: children and removed ones.
    used: usize,
}

/// An array of slots, a power of two of them, never full.
pub(super) struct Slots(Box<[Slot]>, Witness);

struct Slot {
    /// The hash of the child's key; a filter, written before the child.
    tag: AtomicUsize,
    /// Null, a child, or `removed()`.
    child: AtomicPtr<Node>,
}

/// What a slot holds whose child was removed: no address of a node.
fn removed() -> *mut Node {
    ptr::without_provenance_mut(align_of::<Node>())
}

impl Slots {
    fn new(capacity: usize) -> Box<Self> {
        let slot = || Slot { tag: AtomicUsize::new(0), child: AtomicPtr::new(ptr::null_mut()) };
        Box::new(Self((0..capacity).map(|_| slot()).collect(), Witness::new()))
    }

    /// The slots in the order in which `tag` probes them.
    #[inline]
    fn probe(&self, tag: usize) -> impl Iterator<Item = &Slot> {
        let mask = self.0.len() - 1;
        // The low bits chose the shard.
        let start = tag >> 16;
        (0..self.0.len()).map(move |step| &self.0[(start + step) & mask])
    }

    /// Bytes of the allocation.
    pub(super) fn bytes(&self) -> usize {
        self.0.len() * size_of::<Slot>()
    }
}

/// Fewest slots of an array that is there at all.
const SMALLEST: usize = 4;

/// A shard locked for a change.
pub(super) struct Locked<'h> {
    hub: &'h Hub,
    shard: &'h Shard,
    tag: usize,
    state: MutexGuard<'h, ShardState>,
}

impl Hub {
    /// A table with `shards` shards, a power of two. `counted` unless all
    /// children will have one offset.
    pub(super) fn new(shards: usize, fold: Fold, counted: bool) -> Self {
        assert!(shards.is_power_of_two() && shards <= 1 << 16);
        let shard = || Shard { slots: AtomicPtr::new(ptr::null_mut()), state: Mutex::default() };
        let more = if shards == 1 { 0 } else { shards };
        Self {
            fold,
            first: shard(),
            more: (0..more).map(|_| shard()).collect(),
            witness: Witness::new(),
            len: AtomicUsize::new(0),
            counts: counted.then(|| Mutex::new(BTreeMap::new())),
        }
    }

    #[inline]
    fn tag(&self, offset: u32, local: LocalHash) -> usize {
        let fold = self.fold;
        fold.mix(fold.mix(local.0) ^ u64::from(offset)) as usize
    }

    #[inline]
    fn shard(&self, tag: usize) -> &Shard {
        if self.more.is_empty() { &self.first } else { &self.more[tag & (self.more.len() - 1)] }
    }

    fn shards(&self) -> impl Iterator<Item = &Shard> {
        std::iter::once(&self.first).chain(&self.more)
    }

    /// Whether it has one shard.
    pub(super) fn is_narrow(&self) -> bool {
        self.more.is_empty()
    }

    /// The child below the parent's first `offset` blocks that begins with
    /// `local`. Takes no lock, writes nothing.
    #[inline]
    pub(super) fn find<'g>(
        &self,
        offset: u32,
        local: LocalHash,
        guard: &'g Guard,
    ) -> Option<&'g Node> {
        self.witness.read();
        let tag = self.tag(offset, local);
        // Acquire: pairs with the release in `Locked::resize`; the array's
        // slots are initialised.
        let slots = self.shard(tag).slots.load(Ordering::Acquire);
        // SAFETY: arrays are retired through the epoch when replaced.
        let slots = unsafe { slots.as_ref() }?;
        find_in(slots, tag, offset, local, guard)
    }

    /// Locks the shard of a key for a change of it. The caller holds the
    /// parent's lock, shared at least.
    pub(super) fn lock(&self, offset: u32, local: LocalHash) -> Locked<'_> {
        let tag = self.tag(offset, local);
        let shard = self.shard(tag);
        Locked { hub: self, shard, tag, state: shard.state.lock(Rank::HubShard) }
    }

    /// How many children there are. Steady only under the parent's exclusive
    /// lock.
    pub(super) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    /// Whether a child hangs at `offset`.
    pub(super) fn any_at(&self, offset: u32) -> bool {
        match &self.counts {
            Some(counts) => counts.lock(Rank::HubCounts).contains_key(&offset),
            None => offset == 0 && self.len() > 0,
        }
    }

    /// The deepest offset at which a child hangs; 0 without children.
    pub(super) fn end(&self) -> u32 {
        let counts = self.counts.as_ref().map(|counts| counts.lock(Rank::HubCounts));
        counts.and_then(|counts| counts.keys().next_back().copied()).unwrap_or(0)
    }

    /// Counts a child that came (or went) at `offset`; whether others are
    /// left there.
    fn count(&self, offset: u32, came: bool) -> bool {
        // Relaxed: read for its value under the parent's exclusive lock.
        if came {
            self.len.fetch_add(1, Ordering::Relaxed);
        } else {
            self.len.fetch_sub(1, Ordering::Relaxed);
        }
        let Some(counts) = &self.counts else { return true };
        let mut counts = counts.lock(Rank::HubCounts);
        let count = counts.entry(offset).or_default();
        if came {
            *count += 1;
        } else {
            *count -= 1;
        }
        let left = *count > 0;
        if !left {
            counts.remove(&offset);
        }
        left
    }

    /// An owner of every child, in no order. Complete only under the parent's
    /// exclusive lock, or where a shard may be ahead of another.
    pub(super) fn children(&self, guard: &Guard) -> Vec<Arc<Node>> {
        let mut all = Vec::with_capacity(self.len());
        for shard in self.shards() {
            let _state = shard.state.lock(Rank::HubShard);
            // SAFETY: the current array, which stays so under the lock.
            let Some(slots) = (unsafe { shard.slots.load(Ordering::Acquire).as_ref() }) else {
                continue;
            };
            for child in slots.0.iter().filter_map(child_in) {
                all.push(super::view::owner_of(child, guard));
            }
        }
        all
    }

    /// Bytes of the table, about.
    pub(super) fn bytes(&self) -> usize {
        let array = |shard: &Shard| {
            // SAFETY: the current array; the caller is the table's last user.
            unsafe { shard.slots.load(Ordering::Acquire).as_ref() }.map_or(0, Slots::bytes)
        };
        let arrays: usize = self.shards().map(array).sum();
        arrays + self.more.len() * size_of::<Shard>() + size_of::<Self>()
    }
}

impl Drop for Hub {
    /// Nobody reads the table any more: it is dropped through the epoch, or
    /// with the whole tree. Its children's owners go with it.
    fn drop(&mut self) {
        for shard in self.shards() {
            let slots = shard.slots.load(Ordering::Acquire);
            if slots.is_null() {
                continue;
            }
            // SAFETY: the shard owns its array, and each slot its child.
            unsafe {
                let slots = Box::from_raw(slots);
                for child in slots.0.iter().filter_map(child_in) {
                    drop(Arc::from_raw(ptr::from_ref(child)));
                }
            }
        }
    }
}

fn child_in(slot: &Slot) -> Option<&Node> {
    // Acquire: pairs with the release in `put`; the child is initialised.
    let child = slot.child.load(Ordering::Acquire);
    // SAFETY: a slot's child is owned by the slot, and retired through the
    // epoch once it was removed from it.
    if child == removed() { None } else { unsafe { child.as_ref() } }
}

#[inline]
fn find_in<'g>(
    slots: &Slots,
    tag: usize,
    offset: u32,
    local: LocalHash,
    _: &'g Guard,
) -> Option<&'g Node> {
    slots.1.read();
    for slot in slots.probe(tag) {
        // Acquire: pairs with the release in `put`; tag and child are there.
        let child = slot.child.load(Ordering::Acquire);
        if child.is_null() {
            return None;
        }
        if child == removed() || slot.tag.load(Ordering::Relaxed) != tag {
            continue;
        }
        // SAFETY: neither null nor `removed()`: a child, which is retired
        // through the epoch once it was removed from the slot.
        let child = unsafe { &*child };
        if child.first() == local && child.offset() == offset {
            return Some(child);
        }
    }
    None
}

/// Puts a child into the first empty slot.
fn put(slots: &Slots, tag: usize, child: NonNull<Node>) {
    for slot in slots.probe(tag) {
        if slot.child.load(Ordering::Relaxed).is_null() {
            slot.tag.store(tag, Ordering::Relaxed);
            // Release: pairs with the acquire of whoever follows the slot.
            let release =
                if mutant(Mutant::HubPutRelaxed) { Ordering::Relaxed } else { Ordering::Release };
            slot.child.store(child.as_ptr(), release);
            return;
        }
    }
    unreachable!("an array always has an empty slot");
}

impl Locked<'_> {
    /// The current array; `None` while there is none.
    fn slots(&self) -> Option<&Slots> {
        // SAFETY: only the holder of the shard's lock replaces the array.
        unsafe { self.shard.slots.load(Ordering::Acquire).as_ref() }
    }

    /// The child of this key.
    pub(super) fn find<'g>(
        &self,
        offset: u32,
        local: LocalHash,
        guard: &'g Guard,
    ) -> Option<&'g Node> {
        find_in(self.slots()?, self.tag, offset, local, guard)
    }

    /// Adds a child; there is none of its key. An array that was replaced for
    /// it goes to `retired`.
    pub(super) fn insert(&mut self, child: Arc<Node>, retired: &mut Vec<Retired>) {
        let capacity = self.slots().map_or(0, |slots| slots.0.len());
        if (self.state.used + 1) * 4 > capacity * 3 {
            self.resize(self.state.live + 1, retired);
        }
        self.hub.count(child.offset(), true);
        let child = NonNull::from(child_into_slot(child));
        put(self.slots().expect("made above"), self.tag, child);
        self.state.live += 1;
        self.state.used += 1;
    }

    /// Takes out `child` if the slot of its key holds this very node. The
    /// result is its owner, to be retired, and whether other children are
    /// left at its offset.
    pub(super) fn remove(
        &mut self,
        child: &Node,
        retired: &mut Vec<Retired>,
    ) -> Option<(Arc<Node>, bool)> {
        let slots = self.slots()?;
        let held = |slot: &&Slot| match mutant(Mutant::DetachByKey) {
            true => child_in(slot)
                .is_some_and(|is| (is.offset(), is.first()) == (child.offset(), child.first())),
            false => ptr::eq(slot.child.load(Ordering::Relaxed), child),
        };
        let slot = slots.probe(self.tag).find(held)?;
        // Release: a reader that sees the slot removed may rely on nothing;
        // one that saw the child before goes on under its pin.
        let owned = slot.child.swap(removed(), Ordering::AcqRel);
        // SAFETY: the slot owned one count of this child, and no longer does.
        let owned = unsafe { Arc::from_raw(owned) };
        let left = self.hub.count(child.offset(), false);
        let capacity = slots.0.len();
        self.state.live -= 1;
        if self.state.live == 0 || (self.state.live * 8 < capacity && capacity > SMALLEST) {
            self.resize(self.state.live, retired);
        }
        Some((owned, left))
    }

    /// Replaces the array by one with room for `live` children and half as
    /// many more.
    fn resize(&mut self, live: usize, retired: &mut Vec<Retired>) {
        let next = if live == 0 {
            ptr::null_mut()
        } else {
            let next = Slots::new((live * 2).next_power_of_two().max(SMALLEST));
            if let Some(slots) = self.slots() {
                for slot in &slots.0 {
                    if let Some(child) = child_in(slot) {
                        put(&next, slot.tag.load(Ordering::Relaxed), NonNull::from(child));
                    }
                }
            }
            Box::into_raw(next)
        };
        // Release: pairs with the acquire in `find`.
        let order =
            if mutant(Mutant::HubResizeRelaxed) { Ordering::Acquire } else { Ordering::AcqRel };
        let before = self.shard.slots.swap(next, order);
        self.state.used = self.state.live;
        if !before.is_null() {
            // SAFETY: the array came from `Box::into_raw` above; the children
            // it names are owned by the new one now.
            retired.push(Retired::Slots(unsafe { Box::from_raw(before) }));
        }
    }
}

/// The count of `child` that its slot will own.
fn child_into_slot<'a>(child: Arc<Node>) -> &'a Node {
    // SAFETY: the pointer of an `Arc` whose count is not given back before
    // `Locked::remove` or the table's drop.
    unsafe { &*Arc::into_raw(child) }
}
