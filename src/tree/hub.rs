//! The children of a node that has many: a sharded table whose readers take
//! no lock.
//!
//! Each shard is an array of slots behind an atomic pointer, probed linearly.
//! An array that runs out of empty slots is replaced by one sized for the
//! children it has, a shard at a time; the old one is retired.
//!
//! A shard owns its children: one count of each child's `Arc`, taken out by
//! `remove`.
//!
//! The root's table has a sieve before it, whose bits follow the children.

#![allow(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::ptr::{self, NonNull};

use super::garbage::{Outgoing, Retired};
use super::key::{Key, SHARD_BITS, tag};
use super::node::Node;
use super::sieve::{self, Sieve};
use super::slot::Entry;
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
    /// The root's alone.
    sieve: Option<Arc<Sieve>>,
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

/// A shard locked for a change of one key, or of its array.
pub(super) struct Locked<'h> {
    hub: &'h Hub,
    shard: &'h Shard,
    /// The key's, or any that leads to the shard.
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
            sieve: None,
        }
    }

    /// The root's table, with the sieve that is asked before it, in which its
    /// children have their bits already.
    pub(super) fn behind(mut self, sieve: Arc<Sieve>) -> Self {
        self.sieve = Some(sieve);
        self
    }

    /// The same for a table that takes the place of one of fewer shards, whose
    /// arrays may have been large ones; only the models have such a root.
    /// Under its exclusive lock.
    pub(super) fn behind_as_well(self, sieve: Arc<Sieve>) -> Self {
        let wide = self.behind(sieve);
        for (hash, shard) in wide.numbered() {
            let state = shard.state.lock(Rank::HubShard);
            Locked { hub: &wide, shard, hash, state }.find_bits_anew();
        }
        wide
    }

    /// Whether `sieve` is the one before this table.
    pub(super) fn is_behind(&self, sieve: &Sieve) -> bool {
        self.sieve.as_ref().is_some_and(|own| ptr::eq(&**own, sieve))
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

    /// The shards in which there may be children, each with the lowest hash
    /// that leads to it.
    fn numbered(&self) -> impl Iterator<Item = (u64, &Shard)> {
        let used = if self.is_narrow() { std::slice::from_ref(&self.first) } else { &self.more };
        (0..).zip(used)
    }

    /// The hash of a child's key.
    fn hash_of(&self, child: &Node) -> u64 {
        self.key(child.offset(), child.first()).hash
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

    /// Renews the hint of where readers of `child` go on.
    pub(super) fn renew_hint(&self, child: &Node, guard: &Guard) {
        let hash = self.hash_of(child);
        // SAFETY: arrays are retired through the epoch when replaced, and the
        // guard was pinned before this load.
        if let Some(slots) = unsafe { self.shard(hash).slots() } {
            slots.renew_hint(hash, child, guard);
        }
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
        for (hash, shard) in self.numbered() {
            let state = shard.state.lock(Rank::HubShard);
            Locked { hub: self, shard, hash, state }.fit(retired);
        }
    }

    /// Panics where the counts or the sieve's bits are not those of the
    /// children, or a shard has more room than they are worth, unless it is
    /// torn. No other call may run.
    pub(super) fn check(&self, torn: bool) {
        let mut by_offset = BTreeMap::new();
        let mut live = 0;
        let (mut bits, mut large) = (BTreeSet::new(), BTreeSet::new());
        for (number, shard) in self.numbered() {
            let state = shard.state.lock(Rank::HubShard);
            // SAFETY: under the shard's lock, as in `children`.
            let slots = unsafe { shard.slots() };
            let capacity = slots.map_or(0, Slots::capacity);
            let mut seen = 0;
            for child in slots.into_iter().flat_map(Slots::children) {
                // SAFETY: a child that its slot owns.
                let child = unsafe { child.as_ref() };
                *by_offset.entry(child.offset()).or_default() += 1;
                bits.extend(self.sieve.is_some().then(|| sieve::bit(self.hash_of(child))));
                seen += 1;
            }
            if capacity > sieve::UNITS {
                large.insert(number);
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
        if let Some(sieve) = &self.sieve {
            let set: BTreeSet<usize> = sieve.bits().collect();
            assert!(bits.is_subset(&set), "a child of the root without its bit");
            // Who leaves a large array leaves his bit.
            let shard = |bit: usize| bit as u64 & (self.more.len().max(1) as u64 - 1);
            let exact = set.difference(&bits).all(|bit| large.contains(&shard(*bit)));
            assert!(exact, "a bit that no child of the root has");
        }
    }

    /// Bytes of a table no array of which is replaced meanwhile: one that is
    /// not yet in its parent's half, or has left it; about.
    pub(super) fn bytes(&self) -> usize {
        // SAFETY: as said; the arrays go with the table.
        let array = |shard: &Shard| unsafe { shard.slots() }.map_or(0, Slots::bytes);
        let arrays: usize = self.shards().map(array).sum();
        let sieve = self.sieve.as_ref().map_or(0, |_| size_of::<Sieve>());
        arrays + self.more.len() * size_of::<Shard>() + size_of::<Self>() + sieve
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
        // SAFETY: arrays are retired through the epoch when replaced, and the
        // guard was pinned before this load.
        unsafe { self.shard.slots() }?.find(self.key, guard)
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
        self.slots()?.find(Key { offset, local, hash: self.hash }, guard)
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
        // Before anybody finds the child: who joins it and then asks for it
        // has its bit.
        if let Some(sieve) = &self.hub.sieve
            && !mutant(Mutant::SieveSetLate)
        {
            sieve.set(self.hash);
        }
        self.hub.count(child.offset(), true);
        // The slot owns this count until `remove`, or the table's drop.
        let entry = Entry::new(&child, tag(self.hash));
        self.slots().expect("made above").put(self.hash, entry);
        _ = Arc::into_raw(child);
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
        if let Some(sieve) = &self.hub.sieve
            && self.is_last_of_its_bit(slots)
        {
            sieve.clear(sieve::bit(self.hash));
        }
        let left = self.hub.count(child.offset(), false);
        self.state.live -= 1;
        self.fit(retired);
        Some((owned, left))
    }

    /// Whether the child that was just taken out has left no other of its bit
    /// behind; `false` where that would take a look at more than its home.
    fn is_last_of_its_bit(&self, slots: Slots<'_>) -> bool {
        let bit = sieve::bit(self.hash);
        // SAFETY: children that their slots own.
        let of_it = |child: NonNull<Node>| sieve::bit(self.hub.hash_of(unsafe { child.as_ref() }));
        slots.capacity() <= sieve::UNITS
            && (mutant(Mutant::SieveClearUnchecked)
                || slots.probed(self.hash).all(|child| of_it(child) != bit))
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
        let capacity = self.slots().map_or(0, Slots::capacity);
        let next = if live == 0 {
            ptr::null_mut()
        } else {
            let next = SlotBox::new((live * 2).next_power_of_two().max(SMALLEST));
            for entry in self.slots().into_iter().flat_map(Slots::entries) {
                // SAFETY: the old array owns it.
                let child = unsafe { entry.child().as_ref() };
                next.get().put(self.hub.hash_of(child), entry.again(child));
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
        if capacity > sieve::UNITS {
            self.find_bits_anew();
        }
    }

    /// Clears the bits that were left by those who left a large array.
    fn find_bits_anew(&self) {
        if let Some(sieve) = &self.hub.sieve {
            let children = self.slots().into_iter().flat_map(Slots::children);
            // SAFETY: children that the array owns.
            let hashes = children.map(|child| self.hub.hash_of(unsafe { child.as_ref() }));
            sieve.keep(self.hash, self.hub.more.len().max(1), hashes);
        }
    }
}

#[cfg(all(test, not(kvradix_loom)))]
impl Hub {
    /// The hint of where readers of `child` go on.
    pub(super) fn hint_of(&self, child: &Node) -> Option<*const super::published::Line> {
        let locked = self.lock(child.offset(), child.first());
        locked.slots().and_then(|slots| slots.table().hint_of(child))
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

#[cfg(all(test, not(kvradix_loom)))]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::super::columns::Columns;
    use super::*;
    use crate::sync::{Weak, pin};
    use crate::{Block, SequenceHash};

    /// A root's table of two shards with its sieve, and its children by their
    /// first block.
    struct Table {
        hub: Hub,
        sieve: Arc<Sieve>,
        children: BTreeMap<u64, Arc<Node>>,
    }

    impl Table {
        fn new() -> Self {
            let (sieve, fold) = (Arc::new(Sieve::new()), Fold::random());
            let hub = Hub::new(2, fold, false).behind(sieve.clone());
            Self { hub, sieve, children: BTreeMap::new() }
        }

        fn come(&mut self, first: u64) {
            let mut columns = Columns::with_capacity(1);
            columns.push(Block { sequence: SequenceHash(first), local: LocalHash(first) });
            let child = Node::new(Weak::new(), 0, columns, 1, &[]);
            self.children.insert(first, child.clone());
            self.hub.lock(0, LocalHash(first)).insert(child, &mut Outgoing::default());
        }

        fn go(&mut self, first: u64) {
            let child = self.children.remove(&first).expect("it came");
            let mut locked = self.hub.lock(0, LocalHash(first));
            assert!(locked.remove(&child, &mut Outgoing::default()).is_some());
        }

        /// The larger array's slots.
        fn slots(&self) -> usize {
            // SAFETY: nobody else has the table.
            let capacity = |shard: &Shard| unsafe { shard.slots() }.map_or(0, Slots::capacity);
            self.hub.shards().map(capacity).max().expect("two shards")
        }

        /// Every child has its bit, and no bit is without one, but for those
        /// of arrays with more slots than there are units.
        fn look(&self) {
            let bits = self.children.values().map(|child| sieve::bit(self.hub.hash_of(child)));
            let bits: BTreeSet<usize> = bits.collect();
            let set: BTreeSet<usize> = self.sieve.bits().collect();
            assert!(set.is_superset(&bits), "a child without its bit");
            assert!(self.slots() > sieve::UNITS || set == bits, "a bit without a child");
            self.hub.check(false);
        }
    }

    #[test]
    fn bits_follow_children_that_come_and_go_whatever_the_size_of_their_arrays() {
        for seed in 0..2 {
            let (mut table, mut rng) = (Table::new(), SmallRng::seed_from_u64(seed));
            let mut sizes = BTreeSet::new();
            // So many keys, in two shards, that many share a bit.
            let (most, keys) = ([40, 0, 1_900, 30, 2_600, 0, 700, 0], 6_000);
            for children in most {
                for turn in 0.. {
                    // Rather towards the size that is wanted than away from it.
                    let grows = table.children.len() < children;
                    let come = grows == rng.random_ratio(4, 5) || table.children.is_empty();
                    let first = rng.random_range(0..keys);
                    if come {
                        if !table.children.contains_key(&first) {
                            table.come(first);
                        }
                    } else {
                        let next = table.children.range(first..).next();
                        let next = next.or(table.children.first_key_value());
                        table.go(*next.expect("not empty").0);
                    }
                    sizes.insert(table.slots());
                    if turn % 200 == 0 || table.children.len() < 20 {
                        table.look();
                    }
                    if table.children.len() == children {
                        break;
                    }
                }
                table.look();
            }
            assert_eq!(table.sieve.bits().count(), 0, "nobody is left");
            assert!(sizes.contains(&4) && sizes.contains(&1_024), "{sizes:?}");
            assert!(sizes.range(2_048..).count() > 0, "{sizes:?}");
        }
    }

    /// A table that was large has no bit left of those that went meanwhile.
    #[test]
    fn a_large_array_that_is_replaced_leaves_no_bit_behind() {
        let mut table = Table::new();
        (0..3_000).for_each(|first| table.come(first));
        assert!(table.slots() > sieve::UNITS);
        let bits = |table: &Table| table.sieve.bits().count();
        let before = bits(&table);
        (200..2_000).for_each(|first| table.go(first));
        assert!(table.slots() > sieve::UNITS && bits(&table) == before, "left as they are");
        (2_000..3_000).for_each(|first| table.go(first));
        assert!(table.slots() <= sieve::UNITS && bits(&table) <= 200);
        table.look();
        // The last ones of all take the array with them.
        (0..200).for_each(|first| table.go(first));
        assert_eq!((table.slots(), bits(&table)), (0, 0));
    }

    #[test]
    fn a_child_is_found_by_whoever_asks_the_sieve_first() {
        let mut table = Table::new();
        let guard = pin();
        for first in 0..2_000 {
            table.come(first * 3);
            if first % 5 == 4 {
                table.go((first - 3) * 3);
            }
        }
        let mut held_back = 0;
        for first in 0..6_000 {
            let key = table.hub.key(0, LocalHash(first));
            let found = table.sieve.may_have(key.hash).then(|| table.hub.spot(key).find(&guard));
            held_back += usize::from(found.is_none());
            assert_eq!(found.flatten().is_some(), table.children.contains_key(&first));
        }
        assert!(held_back > 1_000, "{held_back} of 4,400 were held back");
    }
}
