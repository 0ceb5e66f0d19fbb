//! Locks: loom's, in the order of their ranks, without poison.

use super::checker;
use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;

use super::super::rank::{self, Held, Rank};

/// A lock's guard together with its place in the lock order.
pub struct Ranked<G> {
    guard: G,
    _held: Held,
}

impl<G: Deref> Deref for Ranked<G> {
    type Target = G::Target;
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Ranked<G> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

/// Loom's lock without poison: a panic in a model shows its own message.
pub struct Mutex<T>(checker::sync::Mutex<T>);

pub type MutexGuard<'a, T> = Ranked<checker::sync::MutexGuard<'a, T>>;

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(checker::sync::Mutex::new(value))
    }

    #[track_caller]
    pub fn lock(&self, rank: Rank) -> MutexGuard<'_, T> {
        let held = rank::enter(rank);
        Ranked { guard: self.0.lock().unwrap_or_else(PoisonError::into_inner), _held: held }
    }

    /// Loom lets a thread that is about to try wait like one that locks, so
    /// a model sees the lock busy less often than it can be.
    pub fn try_lock(&self, rank: Rank) -> Option<MutexGuard<'_, T>> {
        let guard = self.0.try_lock().ok()?;
        Some(Ranked { guard, _held: rank::enter(rank) })
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

/// Loom's lock without poison.
pub struct RwLock<T>(checker::sync::RwLock<T>);

pub type ReadGuard<'a, T> = Ranked<checker::sync::RwLockReadGuard<'a, T>>;
pub type WriteGuard<'a, T> = Ranked<checker::sync::RwLockWriteGuard<'a, T>>;

impl<T> RwLock<T> {
    pub fn new(value: T) -> Self {
        Self(checker::sync::RwLock::new(value))
    }

    #[track_caller]
    pub fn read(&self, rank: Rank) -> ReadGuard<'_, T> {
        let held = rank::enter(rank);
        Ranked { guard: self.0.read().unwrap_or_else(PoisonError::into_inner), _held: held }
    }

    #[track_caller]
    pub fn write(&self, rank: Rank) -> WriteGuard<'_, T> {
        let held = rank::enter(rank);
        Ranked { guard: self.0.write().unwrap_or_else(PoisonError::into_inner), _held: held }
    }

    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}
