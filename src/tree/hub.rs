//! The children of a node that has many: a sharded table whose readers take
//! no lock.
//!
//! Each shard is an array of slots behind an atomic pointer, probed linearly.
//! An array that runs out of empty slots is replaced by one sized for the
//! children it has, a shard at a time; the old one is retired.
//!
//! A shard owns its children: one count of each child's `Arc`, taken out by
//! `remove`.

#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ptr::{self, NonNull};

use super::garbage::{Outgoing, Retired};
use super::key::{Key, SHARD_BITS};
use super::node::Node;
use super::slot_array::{Header, SlotBox, Slots};
use crate::LocalHash;
use crate::sync::rank::Rank;
use crate::sync::{
    Arc, AtomicPtr, AtomicUsize, Fold, Guard, Mutant, Mutex, MutexGuard, Ordering, Witness,
    arc_from_borrowed, mutant,
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

/// A part of the table.
#[repr(C)]
struct Shard {
    /// Null until the first child comes.
    slots: AtomicPtr<Header>,
    state: Mutex<ShardState>,
}

/// A key and the shard in which its child is looked for.
pub(super) struct Spot<'h> {
    hub: &'h Hub,
    shard: &'h Shard,
    pub(super) key: Key,
}

/// What a shard's lock guards, beside the array's changes.
#[derive(Default)]
struct ShardState {
    /// Children.
    live: usize,
    /// Slots that are not empty: children and removed ones.
    used: usize,
}

/// Fewest slots of an array that is there at all.
const SMALLEST: usize = 4;

/// A shard locked for a change of one key.
pub(super) struct Locked<'h> {
    hub: &'h Hub,
    shard: &'h Shard,
    hash: u64,
    state: MutexGuard<'h, ShardState>,
}

impl Hub {
    /// A table with `shards` shards, a power of two. `counted` unless all
    /// children will have one offset.
    pub(super) fn new(shards: usize, fold: Fold, counted: bool) -> Self {
        assert!(shards.is_power_of_two() && shards <= 1 << SHARD_BITS);
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

    /// A key, ready to be looked for.
    #[inline]
    pub(super) fn key(&self, offset: u32, local: LocalHash) -> Key {
        Key::new(self.fold, offset, local)
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Shard {
        match self.more.len() {
            0 => &self.first,
            shards => &self.more[hash as usize & (shards - 1)],
        }
    }

    fn shards(&self) -> impl Iterator<Item = &Shard> {
        std::iter::once(&self.first).chain(&self.more)
    }

    /// Whether it has one shard.
    pub(super) fn is_narrow(&self) -> bool {
        self.more.is_empty()
    }

    /// Where a key's child is looked for.
    #[inline]
    pub(super) fn spot(&self, key: Key) -> Spot<'_> {
        Spot { hub: self, shard: self.shard(key.hash), key }
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
        self.spot(self.key(offset, local)).find(guard)
    }

    /// Locks the shard of a key for a change of it. The caller holds the
    /// parent's lock, shared at least.
    pub(super) fn lock(&self, offset: u32, local: LocalHash) -> Locked<'_> {
        let Key { hash, .. } = self.key(offset, local);
        let shard = self.shard(hash);
        Locked { hub: self, shard, hash, state: shard.state.lock(Rank::HubShard) }
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

    /// An owner of every child, in no order: all of them under the parent's
    /// exclusive lock or while nothing else runs.
    pub(super) fn children(&self) -> Vec<Arc<Node>> {
        let mut all = Vec::with_capacity(self.len());
        for shard in self.shards() {
            let _state = shard.state.lock(Rank::HubShard);
            // SAFETY: only the holder of the shard's lock replaces the array
            // or takes a child out of it.
            unsafe {
                for child in shard.slots().into_iter().flat_map(Slots::children) {
                    all.push(arc_from_borrowed(child.as_ptr()));
                }
            }
        }
        all
    }

    /// Gives back room that was made for children which then did not come.
    /// The caller holds the parent's lock, shared at least.
    pub(super) fn fit(&self, retired: &mut Outgoing) {
        for shard in self.shards() {
            let state = shard.state.lock(Rank::HubShard);
            Locked { hub: self, shard, hash: 0, state }.fit(retired);
        }
    }

    /// Panics where the counts are not those of the children, or a shard has
    /// more room than they are worth, unless it is torn. No other call may run.
    pub(super) fn check(&self, torn: bool) {
        let mut by_offset = BTreeMap::new();
        let mut live = 0;
        for shard in self.shards() {
            let state = shard.state.lock(Rank::HubShard);
            // SAFETY: under the shard's lock, as in `children`.
            let slots = unsafe { shard.slots() };
            let capacity = slots.map_or(0, Slots::capacity);
            let mut seen = 0;
            for child in slots.into_iter().flat_map(Slots::children) {
                // SAFETY: a child that its slot owns.
                *by_offset.entry(unsafe { child.as_ref() }.offset()).or_default() += 1;
                seen += 1;
            }
            assert_eq!(state.live, seen, "a shard's children counted and seen");
            assert!(state.used >= seen && state.used * 4 <= capacity * 3, "slots in use");
            let most = if seen == 0 { 0 } else { SMALLEST.max(seen * 8) };
            assert!(capacity <= most || torn, "{capacity} slots for {seen} children");
            live += seen;
        }
        assert_eq!(self.len(), live, "children counted and seen");
        if let Some(counts) = &self.counts {
            assert!(*counts.lock(Rank::HubCounts) == by_offset, "children counted by offset");
        }
    }

    /// Bytes of a table no array of which is replaced meanwhile: one that is
    /// not yet in its parent's half, or has left it; about.
    pub(super) fn bytes(&self) -> usize {
        // SAFETY: as said; the arrays go with the table.
        let array = |shard: &Shard| unsafe { shard.slots() }.map_or(0, Slots::bytes);
        let arrays: usize = self.shards().map(array).sum();
        arrays + self.more.len() * size_of::<Shard>() + size_of::<Self>()
    }
}

impl Spot<'_> {
    /// Has the processor fetch the slot in which `find` will look first. Needs
    /// no pin: what it reads is the table's own.
    #[inline]
    pub(super) fn prefetch(&self) {
        if cfg!(kvradix_loom) {
            return;
        }
        Slots::prefetch(self.shard.slots.load(Ordering::Relaxed), self.key.hash);
    }

    /// The child of this key. Takes no lock, writes nothing.
    #[inline]
    pub(super) fn find<'g>(&self, guard: &'g Guard) -> Option<&'g Node> {
        self.hub.witness.read();
        let Key { offset, local, hash } = self.key;
        // SAFETY: arrays are retired through the epoch when replaced, and the
        // guard was pinned before this load.
        unsafe { self.shard.slots() }?.find(hash, offset, local, guard)
    }
}

impl Shard {
    /// The array of this moment; `None` while there is none.
    ///
    /// # Safety
    /// It is not freed while the result lives.
    #[inline]
    unsafe fn slots<'a>(&self) -> Option<Slots<'a>> {
        // Acquire: pairs with the release in `Locked::resize`; the array's
        // slots are initialised.
        // SAFETY: null or an array of this shard, kept by the caller's word.
        unsafe { Slots::from_ptr(self.slots.load(Ordering::Acquire)) }
    }
}

impl Drop for Hub {
    /// Nobody reads the table any more: it is dropped through the epoch, or
    /// with the whole tree. Its children's owners go with it.
    fn drop(&mut self) {
        for shard in self.shards() {
            let Some(header) = NonNull::new(shard.slots.load(Ordering::Acquire)) else { continue };
            // SAFETY: the shard owns its array, and each child in it.
            unsafe {
                let slots = SlotBox::from_raw(header);
                for child in slots.get().children() {
                    drop(Arc::from_raw(child.as_ptr()));
                }
            }
        }
    }
}

impl Locked<'_> {
    /// The current array; `None` while there is none.
    fn slots(&self) -> Option<Slots<'_>> {
        // SAFETY: only the holder of the shard's lock replaces the array, and
        // a change of it borrows `self` exclusively.
        unsafe { self.shard.slots() }
    }

    /// The child of this key.
    pub(super) fn find<'g>(
        &self,
        offset: u32,
        local: LocalHash,
        guard: &'g Guard,
    ) -> Option<&'g Node> {
        self.slots()?.find(self.hash, offset, local, guard)
    }

    /// Makes room for one more child. An array that was replaced for it goes
    /// to `retired`.
    pub(super) fn make_room(&mut self, retired: &mut Outgoing) {
        let capacity = self.slots().map_or(0, Slots::capacity);
        if (self.state.used + 1) * 4 > capacity * 3 {
            self.resize(self.state.live + 1, retired);
        }
    }

    /// Adds a child; there is none of its key. An array that was replaced for
    /// it goes to `retired`.
    pub(super) fn insert(&mut self, child: Arc<Node>, retired: &mut Outgoing) {
        self.make_room(retired);
        self.hub.count(child.offset(), true);
        // The slot owns this count until `remove`, or the table's drop.
        let child = NonNull::new(Arc::into_raw(child).cast_mut()).expect("points at a node");
        self.slots().expect("made above").put(self.hash, child);
        self.state.live += 1;
        self.state.used += 1;
    }

    /// Takes out `child` if the slot of its key holds this very node. The
    /// result is its owner, to be retired, and whether other children are
    /// left at its offset.
    pub(super) fn remove(
        &mut self,
        child: &Node,
        retired: &mut Outgoing,
    ) -> Option<(Arc<Node>, bool)> {
        let slots = self.slots()?;
        let owned = slots.take(self.hash, child)?;
        // SAFETY: the slot owned one count of this child, and no longer does.
        let owned = unsafe { Arc::from_raw(owned.as_ptr()) };
        let left = self.hub.count(child.offset(), false);
        self.state.live -= 1;
        self.fit(retired);
        Some((owned, left))
    }

    /// Replaces the array by a smaller one where it has far too much room.
    fn fit(&mut self, retired: &mut Outgoing) {
        let Some(capacity) = self.slots().map(Slots::capacity) else { return };
        if self.state.live == 0 || (self.state.live * 8 < capacity && capacity > SMALLEST) {
            self.resize(self.state.live, retired);
        }
    }

    /// Replaces the array by one with room for `live` children and as many
    /// more.
    fn resize(&mut self, live: usize, retired: &mut Outgoing) {
        let next = if live == 0 {
            ptr::null_mut()
        } else {
            let next = SlotBox::new((live * 2).next_power_of_two().max(SMALLEST));
            for child in self.slots().into_iter().flat_map(Slots::children) {
                // SAFETY: the old array owns it.
                let key = unsafe { child.as_ref() };
                next.get().put(self.hub.key(key.offset(), key.first()).hash, child);
            }
            retired.made(next.get().bytes());
            next.into_raw()
        };
        let before = self.shard.slots.load(Ordering::Relaxed);
        // Release: pairs with the acquire in `Shard::slots`.
        let release =
            if mutant(Mutant::HubResizeRelaxed) { Ordering::Relaxed } else { Ordering::Release };
        self.shard.slots.store(next, release);
        self.state.used = self.state.live;
        if let Some(before) = NonNull::new(before) {
            // SAFETY: the array came from `into_raw` above; the children it
            // names are owned by the new one now.
            retired.push(Retired::Slots(unsafe { SlotBox::from_raw(before) }));
        }
    }
}

#[cfg(test)]
impl Hub {
    /// Takes a child out without counting it.
    pub(super) fn lose(&self, child: &Node) {
        let locked = self.lock(child.offset(), child.first());
        assert!(locked.slots().expect("an array").take(locked.hash, child).is_some());
    }
}
