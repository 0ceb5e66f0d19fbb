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

/// Lines of buckets that are fetched, from the one on in which a search begins.
const BUCKET_LINES: usize = 2;

/// Keys of a batch brought together whose lines are fetched ahead of their turn.
const KEYS_AHEAD: usize = 16;

/// In `$shard`, which is locked and has the number `$number`: an entry for `$key`
/// of the value `$make`, unless there is one or that is `None`; what was there.
/// No function, as a shard's type has no name.
macro_rules! fill {
    ($map:expr, $number:expr, $shard:ident, $hash:expr, $key:expr, $make:expr) => {{
        let (key, hash) = ($key, $hash as u64);
        let rehash = |(k, _): &(K, SharedValue<V>)| $map.map.hash_usize(k) as u64;
        let found = $shard.find_or_find_insert_slot(hash, |(k, _)| *k == key, rehash);
        // It makes room before it looks.
        $map.seen[$number].note($shard.data_end(), $shard.buckets());
        match found {
            // SAFETY: the bucket was found under the lock that is still held.
            #[allow(unsafe_code)]
            Ok(bucket) => Some(unsafe { bucket.as_ref() }.1.get().clone()),
            Err(slot) => {
                if let Some(value) = $make {
                    // SAFETY: the slot was found under the lock that is still
                    // held, and the table did not change since.
                    #[allow(unsafe_code)]
                    unsafe {
                        $shard.insert_in_slot(hash, slot, (key, SharedValue::new(value)));
                    }
                }
                None
            }
        }
    }};
}

/// In `$shard`, which is locked and has the number `$number`: the entry for
/// `$key` goes if `$doomed` says so of its value; whether it went.
macro_rules! empty {
    ($map:expr, $number:expr, $shard:ident, $hash:expr, $key:expr, $doomed:expr) => {{
        let (key, doomed) = ($key, $doomed);
        let found = $shard.find($hash as u64, |(k, _)| *k == key);
        // SAFETY: the bucket was found under the lock that is still held.
        #[allow(unsafe_code)]
        let found = found.filter(|bucket| doomed(unsafe { bucket.as_ref() }.1.get()));
        let went = found.is_some();
        if let Some(bucket) = found {
            // SAFETY: as above, and it is not used after its removal.
            #[allow(unsafe_code)]
            unsafe {
                $shard.remove(bucket);
            }
            // Memory goes back a shard at a time, amortised over the removals
            // that it took to empty it so far. Not the capacity decides, which
            // leaves out the buckets of what was removed.
            if $shard.buckets() > KEPT_BUCKETS && $shard.len() * 8 < $shard.buckets() {
                let keep = $shard.len() * 2;
                $shard.shrink_to(keep, |(k, _)| $map.map.hash_usize(k) as u64);
                $map.seen[$number].note($shard.data_end(), $shard.buckets());
            }
        }
        went
    }};
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
    /// `shards` is a power of two above 1, at most [`MOST_SHARDS`]; `rank` is
    /// the locks' place in the lock order.
    pub(crate) fn new(shards: usize, rank: Rank) -> Self {
        assert!(shards <= MOST_SHARDS, "{shards} shards are too many");
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
    /// the key, which in a table nearly full are some buckets away, often in
    /// the next line. Of the control bytes those that are compared at once
    /// are fetched.
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
        let bucket = end.cast::<(K, V)>().wrapping_sub(at + 1);
        for line in 0..BUCKET_LINES {
            prefetch(bucket.wrapping_byte_sub(64 * line));
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
        let _held = rank::enter(self.rank);
        let hash = self.map.hash_usize(&key);
        let number = self.map.determine_shard(hash);
        let mut shard = self.map.shards()[number].write();
        match fill!(self, number, shard, hash, key, Some(value)) {
            Some(found) => Err(found),
            None => Ok(()),
        }
    }

    /// The value at `key`, made by `make` (under the shard's lock) where
    /// there is none; `None` where `make` makes none.
    #[inline]
    pub(crate) fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> Option<V>) -> Option<V> {
        let _held = rank::enter(self.rank);
        let hash = self.map.hash_usize(&key);
        let number = self.map.determine_shard(hash);
        let mut shard = self.map.shards()[number].write();
        let mut made = None;
        let found = fill!(self, number, shard, hash, key, {
            made = make();
            made.clone()
        });
        found.or(made)
    }

    /// Removes what is at `key` if `doomed` says so.
    #[inline]
    pub(crate) fn remove_if(&self, key: &K, doomed: impl FnOnce(&V) -> bool) -> bool {
        let _held = rank::enter(self.rank);
        let hash = self.map.hash_usize(key);
        let number = self.map.determine_shard(hash);
        let mut shard = self.map.shards()[number].write();
        empty!(self, number, shard, hash, *key, doomed)
    }

    /// `insert_absent` for the `count` entries that `key` and `value` give, at most
    /// [`MOST_TOGETHER`], in the order of their shards, each of which is locked
    /// once. `done` is told, under the shard's lock, what became of each: the
    /// error is what is there.
    pub(crate) fn insert_absent_all(
        &self,
        count: usize,
        key: impl Fn(usize) -> K,
        value: impl Fn(usize) -> V,
        mut done: impl FnMut(usize, Result<(), V>),
    ) {
        let sorted = self.by_shard(count, &key);
        for (number, group) in sorted.groups() {
            let _held = rank::enter(self.rank);
            let mut shard = self.map.shards()[number].write();
            for (at, hash) in self.looking_ahead(&sorted.order[..count], group, &key) {
                match fill!(self, number, shard, hash, key(at), Some(value(at))) {
                    Some(found) => done(at, Err(found)),
                    None => done(at, Ok(())),
                }
            }
        }
    }

    /// `remove_if` for each of the `count` keys that `key` gives, at most
    /// [`MOST_TOGETHER`], in the order of their shards, each of which is locked
    /// once. `gone` is told, under the shard's lock, of each that went.
    pub(crate) fn remove_all_if(
        &self,
        count: usize,
        key: impl Fn(usize) -> K,
        doomed: impl Fn(usize, &V) -> bool,
        mut gone: impl FnMut(usize),
    ) {
        let sorted = self.by_shard(count, &key);
        for (number, group) in sorted.groups() {
            let _held = rank::enter(self.rank);
            let mut shard = self.map.shards()[number].write();
            for (at, hash) in self.looking_ahead(&sorted.order[..count], group, &key) {
                if empty!(self, number, shard, hash, key(at), |value| doomed(at, value)) {
                    gone(at);
                }
            }
        }
    }

    /// The keys that `key` gives, by their shards. Has the processor fetch what
    /// the first ones are after.
    #[inline]
    fn by_shard(&self, count: usize, key: impl Fn(usize) -> K) -> ByShard {
        assert!(count <= MOST_TOGETHER, "{count} keys are too many to bring together");
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
        for at in order.iter().take(count.min(KEYS_AHEAD)) {
            self.prefetch_hashed(self.map.hash_usize(&key(usize::from(*at))));
        }
        sorted
    }

    /// The numbers and hashes of a group of the keys in `order`. As it goes, has
    /// the processor fetch what later ones are after.
    #[inline(always)]
    fn looking_ahead(
        &self,
        order: &[u16],
        group: Range<usize>,
        key: impl Fn(usize) -> K,
    ) -> impl Iterator<Item = (usize, usize)> {
        let hash = move |at: &u16| self.map.hash_usize(&key(usize::from(*at)));
        group.map(move |turn| {
            if let Some(ahead) = order.get(turn + KEYS_AHEAD) {
                self.prefetch_hashed(hash(ahead));
            }
            (usize::from(order[turn]), hash(&order[turn]))
        })
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

    /// Panics where a shard has more room than its entries are worth, or is
    /// noted otherwise than it is.
    pub(crate) fn check_room(&self) {
        for (shard, seen) in self.map.shards().iter().zip(&self.seen) {
            let shard = shard.read();
            // One that was never written has no table, and nothing is noted.
            let noted = seen.mask.load(Ordering::Relaxed) + 1;
            assert_eq!(noted, shard.buckets(), "buckets noted, and there");
            let end = shard.data_end().as_ptr().cast::<u8>().cast_const();
            assert!(noted == 1 || seen.end.get() == end, "a table noted where it is not");
            let most = KEPT_BUCKETS.max(shard.len() * 8);
            assert!(shard.buckets() <= most, "{} buckets for {}", shard.buckets(), shard.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    fn map(shards: usize) -> ShardedMap<u64, u64> {
        ShardedMap::new(shards, Rank::Lookup)
    }

    /// Batches of any length, among them none and of one shard's keys alone, and
    /// single keys, in a map that grows over all its sizes and shrinks again.
    #[test]
    fn batches_do_what_single_calls_do() {
        let mut rng = SmallRng::seed_from_u64(7);
        for shards in [2, 128] {
            let map = map(shards);
            let mut model = HashMap::new();
            for turn in 0..2_000_u64 {
                let filling = turn % 1_000 < 600;
                let count = [0, 1, 5, 127, 128, 1_024][rng.random_range(0..6)];
                let reach = 400_000 >> (turn % 4 * 4);
                let mut keys: Vec<u64> = (0..count).map(|_| rng.random_range(0..reach)).collect();
                if turn % 7 == 0 {
                    // Those of the first one's shard.
                    let shard = |key: &u64| map.map.determine_shard(map.map.hash_usize(key));
                    let first = keys.first().map(shard);
                    keys.retain(|key| Some(shard(key)) == first);
                }
                let value = |at: usize| turn << 16 | at as u64;
                if filling {
                    let mut told = vec![None; keys.len()];
                    let done = |at: usize, became| told[at] = Some(became);
                    map.insert_absent_all(keys.len(), |at| keys[at], value, done);
                    for (at, key) in keys.iter().enumerate() {
                        let there = *model.entry(*key).or_insert(value(at));
                        let expected = if there == value(at) { Ok(()) } else { Err(there) };
                        assert_eq!(told[at], Some(expected), "key {key}");
                    }
                } else {
                    let doomed = |value: u64| value % 8 != 3;
                    let mut gone = vec![false; keys.len()];
                    let see = |_, value: &u64| doomed(*value);
                    map.remove_all_if(keys.len(), |at| keys[at], see, |at| gone[at] = true);
                    for (at, key) in keys.iter().enumerate() {
                        let went = model.get(key).is_some_and(|value| doomed(*value));
                        assert_eq!(gone[at], went, "key {key}");
                        if went {
                            model.remove(key);
                        }
                    }
                }
                let key = rng.random_range(0..reach);
                assert_eq!(map.get(&key), model.get(&key).copied());
                if turn % 100 == 0 || turn == 1_999 {
                    map.check_room();
                    let mut seen = 0;
                    map.for_each(|key, value| {
                        assert_eq!(model.get(key), Some(value));
                        seen += 1;
                    });
                    assert_eq!(seen, model.len());
                }
            }
            for key in model.keys() {
                assert!(map.remove_if(key, |_| true));
            }
            map.check_room();
            assert!(map.bytes() <= shards * KEPT_BUCKETS * 17);
        }
    }

    /// Fails if a table that a search has made larger is not noted because the
    /// key was there.
    #[test]
    fn bytes_are_those_of_the_tables_after_any_call() {
        let map = map(2);
        let tables = || {
            let room = |shard: usize| match map.map.shards()[shard].read().buckets() {
                1 => 0,
                buckets => buckets * 17,
            };
            room(0) + room(1)
        };
        for key in 0..10_000 {
            assert_eq!(map.insert_absent(key, 1), Ok(()));
            assert_eq!(map.bytes(), tables());
            assert_eq!(map.insert_absent(key / 2, 2), Err(1));
            assert_eq!(map.bytes(), tables());
            assert_eq!(map.get_or_insert_with(key + 20_000, || None), None);
            assert_eq!(map.bytes(), tables());
        }
        for key in 0..10_000 {
            assert!(map.remove_if(&key, |_| true));
            assert_eq!(map.bytes(), tables());
        }
    }
}
