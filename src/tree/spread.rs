//! A hash map that grows and shrinks a little at a time.
//!
//! One table of a million entries is copied whole when it is full, and the
//! event that fills it waits for milliseconds. Here the entries lie in many
//! tables (linear hashing): whenever there are more than [`SHARE`] for each,
//! one more table comes and takes half of another one's; when there are far
//! fewer, the last one goes. Few entries are in one table, and looked up in it
//! without a second hash.

use std::hash::{BuildHasher, Hash};

use crate::sync::{Fold, HashMap};

/// Entries for which an emptied table may keep room.
const KEPT: usize = 64;

/// Entries for each table on average, at most. Tables that are still to be
/// halved have up to twice as many, and room for 1,792.
const SHARE: usize = 800;

/// The map.
pub(super) struct Spread<K, V> {
    /// The only table while `more` is empty.
    first: Table<K, V>,
    more: Vec<Table<K, V>>,
    len: usize,
    /// Entries that there is room for.
    room: usize,
}

struct Table<K, V> {
    map: HashMap<K, V, Fold>,
    /// For how many entries it was made. What `capacity` says is for how many
    /// there is room now: less, once entries have come and gone.
    room: usize,
}

impl<K: Hash + Eq + Copy, V: Copy> Spread<K, V> {
    pub(super) fn with_hasher(fold: Fold) -> Self {
        Self { first: Table::new(fold), more: Vec::new(), len: 0, room: 0 }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of the tables.
    pub(super) fn bytes(&self) -> usize {
        // A control byte for each entry; 8 buckets for 7 entries.
        let entries = self.room * (size_of::<(K, V)>() + 1);
        entries + entries / 7 + self.more.capacity() * size_of::<Table<K, V>>()
    }

    #[inline]
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.table(self.at(key)).map.get(key)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let at = self.at(key);
        self.table_mut(at).map.get_mut(key)
    }

    /// Puts `value` at `key`; what was there.
    #[inline]
    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let at = self.at(&key);
        let map = &mut self.table_mut(at).map;
        let full = map.len() == map.capacity();
        let before = map.insert(key, value);
        if before.is_none() {
            self.len += 1;
        }
        if full {
            self.grown(at);
        }
        if self.len > SHARE * self.tables() {
            self.split();
        }
        before
    }

    /// Takes out what is at `key`. Memory goes back a table at a time,
    /// amortised over the removals that emptied it so far.
    #[inline]
    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.at(key);
        let Table { map, room } = self.table_mut(at);
        let value = map.remove(key)?;
        let idle = *room > KEPT && map.len() * 8 < *room;
        if idle {
            map.shrink_to(map.len() * 2);
        }
        self.len -= 1;
        if idle {
            self.remade(at);
        }
        if self.len < SHARE / 4 * self.more.len() {
            self.join();
        }
        Some(value)
    }

    /// Takes out every entry, after `see` has seen its key.
    pub(super) fn take_all(&mut self, mut see: impl FnMut(K)) {
        let Self { first, more, len, .. } = self;
        for table in std::iter::once(first).chain(more) {
            table.map.retain(|key, _| {
                see(*key);
                *len -= 1;
                false
            });
        }
        self.clear();
    }

    /// Forgets all entries and gives their room back.
    pub(super) fn clear(&mut self) {
        *self = Self::with_hasher(*self.first.map.hasher());
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (K, V)> {
        let tables = std::iter::once(&self.first).chain(&self.more);
        tables.flat_map(|table| &table.map).map(|(key, value)| (*key, *value))
    }

    /// Panics where a table has more room than its entries are worth, or an
    /// entry is not where it is looked for.
    pub(super) fn check(&self, what: &str) {
        let (mut len, mut room) = (0, 0);
        for at in 0..self.tables() {
            let Table { map, room: noted } = self.table(at);
            let (capacity, there) = (map.capacity(), map.len());
            assert!(*noted <= KEPT.max(there * 8), "room for {noted} {what}, {there} there");
            assert!(map.keys().all(|key| self.at(key) == at), "{what} in a wrong table");
            assert!(capacity <= *noted, "room for {capacity} {what}, {noted} noted");
            len += there;
            room += noted;
        }
        assert!(len >= SHARE / 4 * self.more.len(), "{} tables for {len} {what}", self.tables());
        assert_eq!((self.len, self.room), (len, room), "{what} and room for them, as counted");
    }

    fn tables(&self) -> usize {
        1 + self.more.len()
    }

    #[inline]
    fn table(&self, at: usize) -> &Table<K, V> {
        if at == 0 { &self.first } else { &self.more[at - 1] }
    }

    #[inline]
    fn table_mut(&mut self, at: usize) -> &mut Table<K, V> {
        if at == 0 { &mut self.first } else { &mut self.more[at - 1] }
    }

    /// Which table `key` belongs to.
    #[inline]
    fn at(&self, key: &K) -> usize {
        if self.more.is_empty() {
            return 0;
        }
        // A table itself goes by the lowest bits and the highest ones.
        let hash = (self.first.map.hasher().hash_one(key) >> 32) as usize;
        let tables = self.tables();
        let mask = tables.next_power_of_two() - 1;
        // Those of a table that is still to come are where it will take them
        // from.
        if hash & mask < tables { hash & mask } else { hash & (mask >> 1) }
    }

    /// The table that the last one's entries came from.
    fn origin_of_last(&self) -> usize {
        let last = self.more.len();
        last & ((self.tables().next_power_of_two() >> 1) - 1)
    }

    /// One more table.
    #[cold]
    fn split(&mut self) {
        let fold = *self.first.map.hasher();
        self.more.push(Table::new(fold));
        let (origin, last) = (self.origin_of_last(), self.more.len());
        let both = &mut self.table_mut(origin).map;
        let both = std::mem::replace(both, HashMap::with_hasher(fold));
        let moving = both.keys().filter(|key| self.at(key) == last).count();
        let with_room_for = |entries| HashMap::with_capacity_and_hasher(entries, fold);
        let (mut half, mut other) = (with_room_for(both.len() - moving), with_room_for(moving));
        for (key, value) in both {
            let half = if self.at(&key) == last { &mut other } else { &mut half };
            half.insert(key, value);
        }
        self.table_mut(origin).map = half;
        self.table_mut(last).map = other;
        self.remade(origin);
        self.remade(last);
    }

    /// One table less.
    #[cold]
    fn join(&mut self) {
        let origin = self.origin_of_last();
        let Some(Table { map, room }) = self.more.pop() else { return };
        self.room -= room;
        self.table_mut(origin).map.extend(map);
        self.grown(origin);
        if self.more.len() * 4 < self.more.capacity() {
            self.more.shrink_to(self.more.len() * 2);
        }
    }

    /// Notes the room of a table that was made anew.
    fn remade(&mut self, at: usize) {
        let room = self.table(at).map.capacity();
        self.note(at, room);
    }

    /// Notes the room of a table that was full: one that has just grown is as
    /// full as it was made for, another has taken the place of a removed entry.
    fn grown(&mut self, at: usize) {
        let Table { map, room } = self.table(at);
        let room = map.capacity().max(*room);
        self.note(at, room);
    }

    fn note(&mut self, at: usize, room: usize) {
        let before = std::mem::replace(&mut self.table_mut(at).room, room);
        self.room = self.room - before + room;
    }
}

impl<K, V> Table<K, V> {
    fn new(fold: Fold) -> Self {
        Self { map: HashMap::with_hasher(fold), room: 0 }
    }
}

#[cfg(test)]
impl<K: Hash + Eq + Copy, V: Copy> Spread<K, V> {
    /// Makes room for more than will come.
    pub(super) fn reserve(&mut self, entries: usize) {
        self.first.map.reserve(entries);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::hash::Hasher;

    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    thread_local! {
        static HASHED: Cell<usize> = const { Cell::new(0) };
    }

    /// Counts how often it is hashed.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct Key(u64);

    impl Hash for Key {
        fn hash<H: Hasher>(&self, state: &mut H) {
            HASHED.set(HASHED.get() + 1);
            self.0.hash(state);
        }
    }

    #[test]
    fn it_has_what_a_map_has_while_it_grows_and_shrinks() {
        let mut rng = SmallRng::seed_from_u64(5);
        let mut map = Spread::with_hasher(Fold::random());
        let mut model = std::collections::HashMap::new();
        for (fill, keys) in [(true, 30_000), (false, 30_000), (true, 2_000), (false, 2_000)] {
            for turn in 0..keys * 3 {
                let key = rng.random_range(0..keys);
                if rng.random_ratio(if fill { 7 } else { 1 }, 8) {
                    assert_eq!(map.insert(key, turn), model.insert(key, turn));
                } else {
                    assert_eq!(map.remove(&key), model.remove(&key));
                }
                let other = rng.random_range(0..keys);
                assert_eq!(map.get(&other), model.get(&other));
                if turn % 1_000 == 0 {
                    map.check("entries");
                }
            }
            let all: std::collections::HashMap<_, _> = map.iter().collect();
            assert!(all == model && map.len == model.len());
        }
        let mut left = model.len();
        map.take_all(|key| {
            assert!(model.remove(&key).is_some());
            left -= 1;
        });
        assert_eq!((left, map.len, map.bytes()), (0, 0, 0));
    }

    /// An operation moves the entries of a table or two, however many tables
    /// there are.
    #[test]
    fn no_operation_moves_more_than_a_few_tables() {
        let mut map = Spread::with_hasher(Fold::random());
        let mut most = 0;
        let mut hashed = |operation: &mut dyn FnMut()| {
            HASHED.set(0);
            operation();
            most = most.max(HASHED.get());
        };
        for key in (0..300_000).map(Key) {
            hashed(&mut || _ = map.insert(key, ()));
        }
        map.check("entries");
        for key in (0..300_000).map(Key) {
            hashed(&mut || _ = map.remove(&key));
        }
        map.check("entries");
        assert!(most < SHARE * 10, "one operation hashed {most} keys");
        assert_eq!(map.more.len(), 0);
    }
}
