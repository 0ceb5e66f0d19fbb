//! The sharded map.

use super::checker;
use std::hash::{BuildHasher, Hash};
use std::sync::PoisonError;

use super::super::rank::{self, Rank};
use super::hash::Fold;

/// Small, so that a batch of a model has more than one part.
pub const MOST_TOGETHER: usize = 3;

/// Stands for the map over `DashMap`: two shards, each a list behind a lock,
/// in the order of arrival.
pub struct ShardedMap<K, V> {
    shards: Vec<checker::sync::Mutex<Vec<(K, V)>>>,
    fold: Fold,
    rank: Rank,
}

impl<K: Eq + Hash + Copy, V: Clone> ShardedMap<K, V> {
    pub fn new(shards: usize, rank: Rank) -> Self {
        assert!(shards.is_power_of_two() && shards > 1);
        let shards = (0..2).map(|_| checker::sync::Mutex::new(Vec::new())).collect();
        Self { shards, fold: Fold::random(), rank }
    }

    pub fn prefetch(&self, _: impl Iterator<Item = K>) {}

    fn shard_of(&self, key: &K) -> usize {
        (self.fold.hash_one(key) >> 7) as usize % self.shards.len()
    }

    fn lock<R>(&self, shard: usize, f: impl FnOnce(&mut Vec<(K, V)>) -> R) -> R {
        let _held = rank::enter(self.rank);
        f(&mut self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn in_shard<R>(&self, key: &K, f: impl FnOnce(&mut Vec<(K, V)>) -> R) -> R {
        self.lock(self.shard_of(key), f)
    }

    /// Calls `each` for the `count` keys, those of a shard under one lock of it.
    fn by_shard(
        &self,
        count: usize,
        key: impl Fn(usize) -> K,
        mut each: impl FnMut(&mut Vec<(K, V)>, usize),
    ) {
        for shard in 0..self.shards.len() {
            let group: Vec<_> = (0..count).filter(|at| self.shard_of(&key(*at)) == shard).collect();
            if !group.is_empty() {
                self.lock(shard, |entries| group.iter().for_each(|at| each(entries, *at)));
            }
        }
    }

    pub fn insert_absent_all(
        &self,
        count: usize,
        key: impl Fn(usize) -> K,
        value: impl Fn(usize) -> V,
        mut done: impl FnMut(usize, Result<(), V>),
    ) {
        self.by_shard(count, &key, |entries, at| {
            match entries.iter().find(|(k, _)| *k == key(at)) {
                Some((_, found)) => done(at, Err(found.clone())),
                None => {
                    entries.push((key(at), value(at)));
                    done(at, Ok(()));
                }
            }
        });
    }

    pub fn remove_all_if(
        &self,
        count: usize,
        key: impl Fn(usize) -> K,
        doomed: impl Fn(usize, &V) -> bool,
        mut gone: impl FnMut(usize),
    ) {
        self.by_shard(count, &key, |entries, at| {
            let found = entries.iter().position(|(k, _)| *k == key(at));
            if let Some(found) = found.filter(|found| doomed(at, &entries[*found].1)) {
                entries.remove(found);
                gone(at);
            }
        });
    }

    pub fn get(&self, key: &K) -> Option<V> {
        self.in_shard(key, |shard| shard.iter().find(|(k, _)| k == key).map(|(_, v)| v.clone()))
    }

    /// Without the shard's lock, which here would keep out those who share it,
    /// but with its place in the lock order.
    pub fn with<R>(&self, key: &K, see: impl FnOnce(&V) -> R) -> Option<R> {
        let value = self.get(key)?;
        let _held = rank::enter(self.rank);
        Some(see(&value))
    }

    pub fn insert_absent(&self, key: K, value: V) -> Result<(), V> {
        let mut value = Some(value);
        match self.get_or_insert_with(key, || value.take()) {
            Some(found) if value.is_some() => Err(found),
            _ => Ok(()),
        }
    }

    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> Option<V>) -> Option<V> {
        self.in_shard(&key, |shard| {
            if let Some((_, value)) = shard.iter().find(|(k, _)| *k == key) {
                return Some(value.clone());
            }
            let value = make()?;
            shard.push((key, value.clone()));
            Some(value)
        })
    }

    pub fn remove_if(&self, key: &K, doomed: impl FnOnce(&V) -> bool) -> bool {
        let taken = self.in_shard(key, |shard| {
            let at = shard.iter().position(|(k, _)| k == key)?;
            doomed(&shard[at].1).then(|| shard.remove(at))
        });
        taken.is_some()
    }

    pub fn bytes(&self) -> usize {
        0
    }

    pub fn check_room(&self) {}

    pub fn for_each(&self, mut see: impl FnMut(&K, &V)) {
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for (key, value) in shard.iter() {
                see(key, value);
            }
        }
    }
}
