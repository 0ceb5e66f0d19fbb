//! The sharded map.

use std::hash::Hash;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::AtomicUsize;

use dashmap::{DashMap, SharedValue};

use super::super::Ordering;
use super::super::rank::{self, Rank};
use super::{Fold, Hint, prefetch};

/// A map sharded by its keys' hashes, each shard behind a lock of its own.
pub(crate) struct ShardedMap<K, V> {
    map: DashMap<K, V, Fold>,
    rank: Rank,
    /// Where each shard's table was last seen, so that a prefetch needs no
    /// lock. The two words may be of two moments: then the wrong lines are
    /// fetched.
    seen: Box<[TableSeen]>,
}

/// A table's address and size, only ever prefetched from.
struct TableSeen {
    /// Control bytes go up from here, buckets go down.
    end: Hint<u8>,
    /// One less than its buckets.
    mask: AtomicUsize,
}

impl TableSeen {
    /// Under the shard's lock.
    #[inline]
    fn note<T>(&self, end: NonNull<T>, buckets: usize) {
        if self.end.get() != end.as_ptr().cast() {
            self.end.set(end.as_ptr().cast());
            self.mask.store(buckets - 1, Ordering::Relaxed);
        }
    }
}

/// Buckets that an emptied shard keeps.
const KEPT_BUCKETS: usize = 128;

/// Buckets of a shard above which a prefetch pays.
const LARGE_SHARD: usize = 4_096;

/// Buckets from the first one of a search on that are fetched.
const REACH: usize = 8;

/// Keys that are fetched ahead of the one whose turn it is.
const AHEAD: usize = 16;

/// For how many entries a shard that has far more room is to keep room. Memory
/// goes back a shard at a time, amortised over the removals that it took to
/// empty it so far. Not the capacity decides, which leaves out the buckets of
/// what was removed.
#[inline]
fn idle(buckets: usize, len: usize) -> Option<usize> {
    (buckets > KEPT_BUCKETS && len * 8 < buckets).then_some(len * 2)
}

/// Most shards of a map.
const MOST_SHARDS: usize = 128;

/// Most keys that are brought together.
pub(crate) const MOST_TOGETHER: usize = 1_024;

/// The keys of a batch by their shards, so that each shard is locked once.
struct ByShard {
    /// Which key comes when.
    order: [u16; MOST_TOGETHER],
    /// Where each shard's keys end.
    ends: [u16; MOST_SHARDS],
}

impl ByShard {
    /// The shards that there are keys of, and where these are.
    fn groups(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        let groups = self.ends.iter().scan(0, |from, end| {
            let group = *from..usize::from(*end);
            *from = group.end;
            Some(group)
        });
        groups.enumerate().filter(|(_, group)| !group.is_empty())
    }
}

impl<K: Eq + Hash + Copy, V: Clone> ShardedMap<K, V> {
    /// `shards` is a power of two above 1; `rank` is the locks' place in the
    /// lock order.
    pub(crate) fn new(shards: usize, rank: Rank) -> Self {
        assert!(shards <= MOST_SHARDS);
        let map = DashMap::with_hasher_and_shard_amount(Fold::random(), shards);
        let unseen = || TableSeen { end: Hint::new(std::ptr::null()), mask: 0.into() };
        Self { map, rank, seen: (0..shards).map(|_| unseen()).collect() }
    }

    /// Has the processor fetch what an operation on each of `keys` will
    /// touch, if the map is so large that it will have to. The lock of one
    /// operation keeps the processor from looking ahead to the next, so a
    /// batch asks for all first.
    #[inline]
    pub(crate) fn prefetch(&self, keys: impl Iterator<Item = K>) {
        for key in keys {
            if !self.prefetch_hashed(self.map.hash_usize(&key)) {
                return;
            }
        }
    }

    /// The same for one key's hash; whether its shard is so large.
    ///
    /// A search begins at the hash and goes on to the first free bucket or to
    /// the key, which in a table nearly full are some buckets away: the
    /// lines of [`REACH`] buckets are fetched, and all of the control bytes
    /// that are compared at once.
    #[inline(always)]
    fn prefetch_hashed(&self, hash: usize) -> bool {
        const GROUP: usize = 16;
        let table = &self.seen[self.map.determine_shard(hash)];
        let mask = table.mask.load(Ordering::Relaxed);
        if mask < LARGE_SHARD {
            return false;
        }
        let (end, at) = (table.end.get(), hash & mask);
        prefetch(end.wrapping_add(at));
        prefetch(end.wrapping_add(at + GROUP - 1));
        for bucket in (0..REACH).step_by(64 / size_of::<(K, V)>()) {
            prefetch(end.cast::<(K, V)>().wrapping_sub(at + 1 + bucket));
        }
        true
    }

    /// A copy of the value at `key`.
    #[inline]
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        self.with(key, V::clone)
    }

    /// What `see` makes of the value at `key`, under the shard's lock.
    #[inline]
    pub(crate) fn with<R>(&self, key: &K, see: impl FnOnce(&V) -> R) -> Option<R> {
        let _held = rank::enter(self.rank);
        let hash = self.map.hash_usize(key);
        let shard = self.map.shards()[self.map.determine_shard(hash)].read();
        shard.get(hash as u64, |(k, _)| k == key).map(|(_, v)| see(v.get()))
    }

    /// Puts `value` at `key` unless something is there, whose copy is then
    /// the error.
    #[inline]
    pub(crate) fn insert_absent(&self, key: K, value: V) -> Result<(), V> {
        let mut value = Some(value);
        match self.get_or_insert_with(key, || value.take()) {
            Some(found) if value.is_some() => Err(found),
            _ => Ok(()),
        }
    }

    /// The value at `key`, made by `make` (under the shard's lock) where
    /// there is none; `None` where `make` makes none.
    #[inline]
    pub(crate) fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> Option<V>) -> Option<V> {
        let _held = rank::enter(self.rank);
        let hash = self.map.hash_usize(&key);
        let mut shard = self.map.shards()[self.map.determine_shard(hash)].write();
        let rehash = |(k, _): &(K, SharedValue<V>)| self.map.hash_usize(k) as u64;
        match shard.find_or_find_insert_slot(hash as u64, |(k, _)| *k == key, rehash) {
            // SAFETY: the bucket was found under the lock that is still held.
            #[allow(unsafe_code)]
            Ok(bucket) => Some(unsafe { bucket.as_ref() }.1.get().clone()),
            Err(slot) => {
                let value = make()?;
                let entry = (key, SharedValue::new(value.clone()));
                // SAFETY: the slot was found under the lock that is still
                // held, and the table did not change since.
                #[allow(unsafe_code)]
                unsafe {
                    shard.insert_in_slot(hash as u64, slot, entry);
                }
                self.seen[self.map.determine_shard(hash)].note(shard.data_end(), shard.buckets());
                Some(value)
            }
        }
    }

    /// Removes what is at `key` if `doomed` says so.
    #[inline]
    pub(crate) fn remove_if(&self, key: &K, doomed: impl FnOnce(&V) -> bool) -> bool {
        let _held = rank::enter(self.rank);
        let hash = self.map.hash_usize(key);
        let mut shard = self.map.shards()[self.map.determine_shard(hash)].write();
        let Some(bucket) = shard.find(hash as u64, |(k, _)| k == key) else { return false };
        // SAFETY: the bucket was found under the lock that is still held, and
        // is not used after its removal.
        #[allow(unsafe_code)]
        unsafe {
            if !doomed(bucket.as_ref().1.get()) {
                return false;
            }
            shard.remove(bucket);
        }
        if let Some(keep) = idle(shard.buckets(), shard.len()) {
            shard.shrink_to(keep, |(k, _)| self.map.hash_usize(k) as u64);
            self.seen[self.map.determine_shard(hash)].note(shard.data_end(), shard.buckets());
        }
        true
    }

    /// `insert_absent` for the `count` entries that `entry` gives, in the order
    /// of their shards, each of which is locked once. `done` is told, under
    /// the shard's lock, what became of each: the error is what is there.
    pub(crate) fn insert_absent_all(
        &self,
        count: usize,
        entry: impl Fn(usize) -> (K, V),
        mut done: impl FnMut(usize, Result<(), V>),
    ) {
        let rehash = |(k, _): &(K, SharedValue<V>)| self.map.hash_usize(k) as u64;
        let sorted = self.by_shard(count, |at| entry(at).0);
        for (number, group) in sorted.groups() {
            let _held = rank::enter(self.rank);
            let mut shard = self.map.shards()[number].write();
            for at in group {
                if let Some(ahead) = sorted.order[..count].get(at + AHEAD) {
                    self.prefetch_hashed(self.map.hash_usize(&entry(usize::from(*ahead)).0));
                }
                let index = usize::from(sorted.order[at]);
                let (key, value) = entry(index);
                let hash = self.map.hash_usize(&key);
                match shard.find_or_find_insert_slot(hash as u64, |(k, _)| *k == key, rehash) {
                    // SAFETY: the bucket was found under the lock that is
                    // still held.
                    #[allow(unsafe_code)]
                    Ok(bucket) => done(index, Err(unsafe { bucket.as_ref() }.1.get().clone())),
                    Err(slot) => {
                        // SAFETY: the slot was found under the lock that is
                        // still held, and the table did not change since.
                        #[allow(unsafe_code)]
                        unsafe {
                            shard.insert_in_slot(hash as u64, slot, (key, SharedValue::new(value)));
                        }
                        self.seen[number].note(shard.data_end(), shard.buckets());
                        done(index, Ok(()));
                    }
                }
            }
        }
    }

    /// `remove_if` for each of the `count` keys that `key` gives, in the order of
    /// their shards, each of which is locked once; how many went.
    pub(crate) fn remove_all_if(
        &self,
        count: usize,
        key: impl Fn(usize) -> K,
        doomed: impl Fn(usize, &V) -> bool,
    ) -> usize {
        let mut removed = 0;
        let sorted = self.by_shard(count, &key);
        for (number, group) in sorted.groups() {
            let _held = rank::enter(self.rank);
            let mut shard = self.map.shards()[number].write();
            for at in group {
                if let Some(ahead) = sorted.order[..count].get(at + AHEAD) {
                    self.prefetch_hashed(self.map.hash_usize(&key(usize::from(*ahead))));
                }
                let index = usize::from(sorted.order[at]);
                let key = key(index);
                let hash = self.map.hash_usize(&key);
                let Some(bucket) = shard.find(hash as u64, |(k, _)| *k == key) else { continue };
                // SAFETY: the bucket was found under the lock that is still
                // held, and is not used after its removal.
                #[allow(unsafe_code)]
                unsafe {
                    if doomed(index, bucket.as_ref().1.get()) {
                        shard.remove(bucket);
                        removed += 1;
                    }
                }
            }
            if let Some(keep) = idle(shard.buckets(), shard.len()) {
                shard.shrink_to(keep, |(k, _)| self.map.hash_usize(k) as u64);
                self.seen[number].note(shard.data_end(), shard.buckets());
            }
        }
        removed
    }

    /// The keys that `key` gives by their shards. Has the processor fetch what
    /// the first ones are after.
    #[inline]
    fn by_shard(&self, count: usize, key: impl Fn(usize) -> K) -> ByShard {
        assert!(count <= MOST_TOGETHER);
        let shard = |at| self.map.determine_shard(self.map.hash_usize(&key(at)));
        let mut sorted = ByShard { order: [0; MOST_TOGETHER], ends: [0; MOST_SHARDS] };
        let ByShard { order, ends } = &mut sorted;
        for at in 0..count {
            ends[shard(at)] += 1;
        }
        let mut from = 0;
        for end in ends.iter_mut() {
            from += std::mem::replace(end, from);
        }
        for at in 0..count {
            let end = &mut ends[shard(at)];
            order[usize::from(*end)] = at as u16;
            *end += 1;
        }
        for at in &order[..count.min(AHEAD)] {
            self.prefetch_hashed(self.map.hash_usize(&key(usize::from(*at))));
        }
        sorted
    }

    /// Bytes of the tables, empty buckets included; takes no lock.
    pub(crate) fn bytes(&self) -> usize {
        let buckets = |seen: &TableSeen| match seen.mask.load(Ordering::Relaxed) {
            0 => 0,
            mask => mask + 1,
        };
        let all: usize = self.seen.iter().map(buckets).sum();
        all * (size_of::<(K, V)>() + 1)
    }

    /// Calls `see` with every entry, a shard at a time.
    pub(crate) fn for_each(&self, mut see: impl FnMut(&K, &V)) {
        for entry in self.map.iter() {
            see(entry.key(), entry.value());
        }
    }

    /// Panics where a shard has more room than its entries are worth.
    pub(crate) fn check_room(&self) {
        for shard in self.map.shards() {
            let shard = shard.read();
            let most = KEPT_BUCKETS.max(shard.len() * 8);
            assert!(shard.buckets() <= most, "{} buckets for {}", shard.buckets(), shard.len());
        }
    }
}
