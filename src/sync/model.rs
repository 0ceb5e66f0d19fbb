//! The same faces made of the model checker's primitives.
//!
//! Two things guide the stand-ins. *No stronger than the real thing*: where
//! the real type synchronises less, so does the stand-in, or races would
//! hide. *As few branches as possible*: an operation that commutes with every
//! other of its object is kept out of the search (an `Arc`'s clone, the
//! counters). Loom runs one thread at a time and switches only before an
//! operation on one of its own objects, so plain cells hold what the
//! stand-ins themselves need to know; what one thread may learn of another
//! goes through loom's atomics alone.
//!
//! Freed memory: every stand-in with a drop marks itself, and reading it
//! afterwards is an error with a message. That needs the memory to stay
//! readable until the model's run ends; the test package's allocator sees to
//! it.

#![allow(clippy::disallowed_types, unsafe_code, missing_docs)]

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash, Hasher};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::sync::PoisonError;
use std::time::Duration;

use loom::alloc::Track;
use loom::cell::UnsafeCell;
use loom::sync::atomic::fence;
use loom::thread::ThreadId;

use super::Ordering;
use super::rank::{self, Held, Rank};

pub use indexmap::{IndexMap as HashMap, IndexSet as HashSet};
pub use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize};

/// Left out of the search.
pub type Counter = std::sync::atomic::AtomicU64;

/// Tells the living from the freed.
#[derive(Debug)]
struct Life(Cell<u64>);

const ALIVE: u64 = 0x_a11e_a11e_a11e_a11e;
const FREED: u64 = 0x_dead_dead_dead_dead;

impl Life {
    const fn new() -> Self {
        Self(Cell::new(ALIVE))
    }

    #[track_caller]
    fn check(&self, what: &str) {
        match self.0.get() {
            ALIVE => {}
            FREED => panic!("{what} was touched after it was freed"),
            _ => panic!("{what} was never initialised, or its memory was given out again"),
        }
    }

    fn end(&self) {
        self.0.set(FREED);
    }
}

// Arc and Weak

/// The value comes first: a pointer to it is a pointer to its block.
#[repr(C)]
struct Block<T> {
    value: std::cell::UnsafeCell<ManuallyDrop<T>>,
    /// Reads and the final write of the value, for loom to compare.
    access: UnsafeCell<()>,
    /// What drops and upgrades touch in place of the strong count, so that
    /// loom sees their order and their edges.
    gate: AtomicUsize,
    /// The strong count.
    owners: Cell<usize>,
    /// Loom reports a value that still has owners when the model ends.
    track: RefCell<Option<Track<()>>>,
}

/// Stands for `std::sync::Arc`: drops release, the last one acquires.
pub struct Arc<T>(std::sync::Arc<Block<T>>);

// SAFETY: as the real one; loom runs one thread at a time.
unsafe impl<T: Send + Sync> Send for Arc<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Arc<T> {}

impl<T> Arc<T> {
    #[track_caller]
    pub fn new(value: T) -> Self {
        Self(std::sync::Arc::new(Block {
            value: std::cell::UnsafeCell::new(ManuallyDrop::new(value)),
            access: UnsafeCell::new(()),
            gate: AtomicUsize::new(0),
            owners: Cell::new(1),
            track: RefCell::new(Some(Track::new(()))),
        }))
    }

    pub fn as_ptr(this: &Self) -> *const T {
        std::sync::Arc::as_ptr(&this.0).cast()
    }

    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        std::sync::Arc::ptr_eq(&this.0, &other.0)
    }

    pub fn strong_count(this: &Self) -> usize {
        this.0.owners.get()
    }

    pub fn downgrade(this: &Self) -> Weak<T> {
        Weak(Some(this.0.clone()))
    }

    pub fn into_raw(this: Self) -> *const T {
        let this = ManuallyDrop::new(this);
        // SAFETY: the block leaves `this`, which is not dropped.
        std::sync::Arc::into_raw(unsafe { std::ptr::read(&this.0) }).cast()
    }

    /// # Safety
    /// `ptr` came from `into_raw`, whose count this takes over.
    pub unsafe fn from_raw(ptr: *const T) -> Self {
        // SAFETY: the caller's word; the value is its block's first field.
        Self(unsafe { std::sync::Arc::from_raw(ptr.cast()) })
    }

    pub fn get_mut(this: &mut Self) -> Option<&mut T> {
        this.0.gate.fetch_add(1, Ordering::Relaxed);
        if this.0.owners.get() != 1 {
            return None;
        }
        fence(Ordering::Acquire);
        this.0.access.with_mut(|_| ());
        // SAFETY: this is the only owner, and models keep no weak one across
        // a call of this.
        Some(unsafe { &mut *this.0.value.get() })
    }

    /// The value, if this was its last owner.
    pub fn into_inner(this: Self) -> Option<T> {
        let this = ManuallyDrop::new(this);
        // SAFETY: the block leaves `this`, which is not dropped.
        let block = unsafe { std::ptr::read(&this.0) };
        // SAFETY: `leave` says that no owner is left to look at the value.
        block.leave().then(|| unsafe { ManuallyDrop::take(&mut *block.value.get()) })
    }

    pub fn try_unwrap(this: Self) -> Result<T, Self> {
        this.0.gate.fetch_add(1, Ordering::Relaxed);
        if this.0.owners.get() != 1 {
            return Err(this);
        }
        Ok(Self::into_inner(this).expect("the only owner"))
    }
}

impl<T> Block<T> {
    /// One owner leaves; whether it was the last.
    fn leave(&self) -> bool {
        self.gate.fetch_add(1, Ordering::Release);
        let owners = self.owners.get();
        assert!(owners > 0, "an Arc was dropped more often than it was made");
        self.owners.set(owners - 1);
        if owners > 1 {
            return false;
        }
        fence(Ordering::Acquire);
        self.access.with_mut(|_| ());
        self.track.borrow_mut().take();
        true
    }
}

/// One more owner of the value behind `ptr`.
///
/// # Safety
/// As in `real`; that an owner is alive is checked here.
#[track_caller]
pub unsafe fn arc_from_borrowed<T>(ptr: *const T) -> Arc<T> {
    let block = ptr.cast::<Block<T>>();
    // SAFETY: the value is its block's first field, and the block's memory is
    // readable until the model ends, alive or not.
    unsafe {
        (*block).gate.fetch_add(1, Ordering::Relaxed);
        let owners = (*block).owners.get();
        assert!(owners > 0, "an owner was taken of a value that has none left");
        (*block).owners.set(owners + 1);
        std::sync::Arc::increment_strong_count(block);
        Arc(std::sync::Arc::from_raw(block))
    }
}

impl<T> Deref for Arc<T> {
    type Target = T;
    #[track_caller]
    fn deref(&self) -> &T {
        self.0.access.with(|_| ());
        // SAFETY: an owner is here, so the value was not taken.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> Clone for Arc<T> {
    /// Outside of the search: with an owner at hand it commutes with
    /// everything but `strong_count`.
    fn clone(&self) -> Self {
        self.0.owners.set(self.0.owners.get() + 1);
        Self(self.0.clone())
    }
}

impl<T> Drop for Arc<T> {
    fn drop(&mut self) {
        if self.0.leave() {
            // SAFETY: the last owner leaves, and the value was not taken.
            unsafe { ManuallyDrop::drop(&mut *self.0.value.get()) }
        }
    }
}

impl<T: Default> Default for Arc<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for Arc<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for Arc<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(f)
    }
}

/// Stands for `std::sync::Weak`.
pub struct Weak<T>(Option<std::sync::Arc<Block<T>>>);

// SAFETY: as the real one; loom runs one thread at a time.
unsafe impl<T: Send + Sync> Send for Weak<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Weak<T> {}

impl<T> Weak<T> {
    pub const fn new() -> Self {
        Self(None)
    }

    pub fn upgrade(&self) -> Option<Arc<T>> {
        let block = self.0.as_ref()?;
        block.gate.fetch_add(1, Ordering::Relaxed);
        let owners = block.owners.get();
        if owners == 0 {
            return None;
        }
        // Acquire only where it succeeds, as the real one.
        fence(Ordering::Acquire);
        block.owners.set(owners + 1);
        Some(Arc(block.clone()))
    }

    pub fn as_ptr(&self) -> *const T {
        self.0.as_ref().map_or(std::ptr::null(), |block| std::sync::Arc::as_ptr(block).cast())
    }

    pub fn ptr_eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.as_ptr(), other.as_ptr())
    }

    pub fn strong_count(&self) -> usize {
        self.0.as_ref().map_or(0, |block| block.owners.get())
    }
}

impl<T> Clone for Weak<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> Default for Weak<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> std::fmt::Debug for Weak<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("(Weak)")
    }
}

// Locks

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
pub struct Mutex<T>(loom::sync::Mutex<T>);

pub type MutexGuard<'a, T> = Ranked<loom::sync::MutexGuard<'a, T>>;

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
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
pub struct RwLock<T>(loom::sync::RwLock<T>);

pub type ReadGuard<'a, T> = Ranked<loom::sync::RwLockReadGuard<'a, T>>;
pub type WriteGuard<'a, T> = Ranked<loom::sync::RwLockWriteGuard<'a, T>>;

impl<T> RwLock<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::RwLock::new(value))
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

// The swapped value

/// Stands for `ArcSwap`: a load may see any value that was current and is
/// not known to be replaced. Replaced ones stay until the cell goes.
pub struct Swap<T> {
    current: AtomicUsize,
    values: RefCell<Vec<Arc<T>>>,
}

// SAFETY: loom runs one thread at a time.
unsafe impl<T: Send + Sync> Send for Swap<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Swap<T> {}

impl<T> Swap<T> {
    pub fn new(value: Arc<T>) -> Self {
        Self { current: AtomicUsize::new(0), values: RefCell::new(vec![value]) }
    }

    #[track_caller]
    pub fn load(&self) -> impl Deref<Target = Arc<T>> + use<T> {
        // Acquire, as the real load; no count changes that others could see.
        let at = self.current.load(Ordering::Acquire);
        Loaded(self.values.borrow()[at].clone())
    }

    pub fn store(&self, value: Arc<T>) {
        let at = self.values.borrow().len();
        self.values.borrow_mut().push(value);
        self.current.swap(at, Ordering::AcqRel);
    }
}

struct Loaded<T>(Arc<T>);

impl<T> Deref for Loaded<T> {
    type Target = Arc<T>;
    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

// What a run of a model knows

thread_local! {
    /// The run's state. Loom's threads all live on one thread of the system.
    static RUN: RefCell<Option<Rc<Run>>> = const { RefCell::new(None) };
}

struct Run {
    /// Touched by a thread's first pin and by every retirement.
    epoch: AtomicUsize,
    /// One of each thread that pinned, as the real collector has: its later
    /// pins and all their ends touch it, and so does every retirement.
    locals: [AtomicUsize; loom::MAX_THREADS],
    /// The threads that pinned, in the order of their first pins.
    threads: RefCell<Vec<ThreadId>>,
    pins: RefCell<Vec<u64>>,
    next_pin: Cell<u64>,
    dues: RefCell<Vec<Due>>,
    /// Tasks that no thread took yet.
    tasks: SegQueue<Task>,
    alarms: RefCell<Vec<(usize, Tick)>>,
    next_alarm: Cell<usize>,
}

type Task = Box<dyn FnOnce() + Send>;
type Tick = Box<dyn FnMut() -> bool + Send>;

/// A flag and the pins that it waits for.
struct Due {
    waits: Vec<u64>,
    flag: Arc<AtomicBool>,
}

fn run() -> Rc<Run> {
    RUN.with(|run| run.borrow().clone()).expect("a model begins with `model::begin`")
}

/// Begins a run of a model, on its first thread.
pub fn begin() {
    let run = Run {
        epoch: AtomicUsize::new(0),
        locals: std::array::from_fn(|_| AtomicUsize::new(0)),
        threads: RefCell::default(),
        pins: RefCell::default(),
        next_pin: Cell::new(0),
        dues: RefCell::default(),
        tasks: SegQueue::new(),
        alarms: RefCell::default(),
        next_alarm: Cell::new(0),
    };
    RUN.with(|cell| *cell.borrow_mut() = Some(Rc::new(run)));
}

/// Ends a run: every other thread was joined. What was never run is dropped.
pub fn end() {
    let run = RUN.with(|run| run.borrow_mut().take()).expect("a run that began");
    assert!(run.pins.borrow().is_empty(), "a pin outlived the model");
    assert!(run.dues.borrow().is_empty(), "a flag was never raised");
    while run.tasks.pop().is_some() {}
    run.alarms.borrow_mut().clear();
}

/// Runs a task that was handed to a pool, as one of its threads would;
/// `false` where none waits.
pub fn run_task() -> bool {
    let Some(task) = run().tasks.pop() else { return false };
    task();
    true
}

/// Lets every alarm that was asked for ring once, as if its delay had passed.
/// Whether one wants to ring again.
pub fn tick() -> bool {
    let mut alarms = run().alarms.take();
    let mut again = false;
    for (_, tick) in &mut alarms {
        again |= tick();
    }
    run().alarms.borrow_mut().append(&mut alarms);
    again
}

// Pins

/// A pin of the graveyard, the stand-in for the collector.
///
/// A flag is raised at the earliest moment the real collector could raise it:
/// when the last pin that was held at the call ends. The values behind it are
/// then freed by the production code, which marks them, so that a reader that
/// comes late is caught. Raising later is left out: it frees later, which is
/// safer, and a caller sees an unraised flag while any other pin is held.
///
/// Edges, as the real collector has them: a retirement happens before every
/// pin that starts after it (it pinned an epoch that the retirement's fence
/// preceded), and the end of every pin that ended happens before the raising.
/// Pins among themselves have none.
pub struct Guard {
    id: u64,
    _local: PhantomData<*const ()>,
}

pub fn pin() -> Guard {
    let run = run();
    let me = loom::thread::current().id();
    // Acquire: pairs with the release of every retirement so far. Reads and
    // writes in one see the latest; loom's search would lose loads of it, since
    // it remembers only the last of them.
    let known = run.threads.borrow().iter().position(|thread| *thread == me);
    match known {
        Some(at) => drop(run.locals[at].fetch_add(0, Ordering::Acquire)),
        None => {
            run.epoch.fetch_add(0, Ordering::Acquire);
            run.threads.borrow_mut().push(me);
        }
    }
    let id = run.next_pin.get();
    run.next_pin.set(id + 1);
    run.pins.borrow_mut().push(id);
    Guard { id, _local: PhantomData }
}

impl Guard {
    pub fn raise_after_pins(&self, flag: Arc<AtomicBool>) {
        let run = run();
        run.epoch.fetch_add(1, Ordering::Release);
        let threads = run.threads.borrow().len();
        for local in &run.locals[..threads] {
            local.fetch_add(1, Ordering::Release);
        }
        let waits = run.pins.borrow().clone();
        assert!(waits.contains(&self.id), "a pin that is held");
        run.dues.borrow_mut().push(Due { waits, flag });
    }

    pub fn advance(&self) {}
}

impl Drop for Guard {
    fn drop(&mut self) {
        let run = run();
        let me = loom::thread::current().id();
        let at = run.threads.borrow().iter().position(|thread| *thread == me);
        // Release: a raising comes after all that was done under this pin.
        run.locals[at.expect("it pinned")].fetch_add(1, Ordering::Release);
        run.pins.borrow_mut().retain(|id| *id != self.id);
        let mut over = Vec::new();
        let mut dues = run.dues.take();
        dues.iter_mut().for_each(|due| due.waits.retain(|id| *id != self.id));
        while let Some(at) = dues.iter().position(|due| due.waits.is_empty()) {
            over.push(dues.remove(at));
        }
        run.dues.replace(dues);
        if over.is_empty() {
            return;
        }
        let threads = run.threads.borrow().len();
        for local in &run.locals[..threads] {
            // Acquire: pairs with the release above.
            local.fetch_add(0, Ordering::Acquire);
        }
        for due in over {
            due.flag.store(true, Ordering::Release);
        }
    }
}

pub fn yield_now() {
    loom::thread::yield_now();
}

// Hashing

/// A hasher's state; the seed is fixed, so that runs repeat.
#[derive(Clone, Copy, Debug)]
pub struct Fold {
    seed: u64,
}

impl Fold {
    pub fn random() -> Self {
        Self { seed: 0x2545_f491_4f6c_dd1d }
    }

    pub fn mix(self, word: u64) -> u64 {
        let product = u128::from(word ^ self.seed) * u128::from(0x9e37_79b9_7f4a_7c15_u64 | 1);
        (product as u64) ^ ((product >> 64) as u64)
    }
}

impl BuildHasher for Fold {
    type Hasher = FoldHasher;
    fn build_hasher(&self) -> FoldHasher {
        FoldHasher { fold: *self, hash: 0 }
    }
}

pub struct FoldHasher {
    fold: Fold,
    hash: u64,
}

impl Hasher for FoldHasher {
    fn finish(&self) -> u64 {
        self.hash
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.hash = self.fold.mix(self.hash.rotate_left(23) ^ word);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

// The queue

/// Stands for crossbeam's `SegQueue`. A pop sees every push that came before
/// it; what else its thread sees are the edges of those pushes alone, and
/// `is_empty` may see an older state. (The real queue orders its own words by
/// SeqCst read-modify-writes; it orders nothing else.)
pub struct SegQueue<T> {
    /// How many operations there were.
    gate: AtomicUsize,
    state: RefCell<Queue<T>>,
}

struct Queue<T> {
    values: VecDeque<T>,
    /// Whether it was empty after so many operations.
    empty_after: Vec<bool>,
}

// SAFETY: loom runs one thread at a time.
unsafe impl<T: Send> Send for SegQueue<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SegQueue<T> {}

impl<T> SegQueue<T> {
    pub fn new() -> Self {
        let state = Queue { values: VecDeque::new(), empty_after: vec![true] };
        Self { gate: AtomicUsize::new(0), state: RefCell::new(state) }
    }

    #[track_caller]
    pub fn push(&self, value: T) {
        self.gate.fetch_add(1, Ordering::Release);
        let mut state = self.state.borrow_mut();
        state.values.push_back(value);
        state.empty_after.push(false);
    }

    #[track_caller]
    pub fn pop(&self) -> Option<T> {
        self.gate.fetch_add(1, Ordering::Acquire);
        let mut state = self.state.borrow_mut();
        let value = state.values.pop_front();
        let empty = state.values.is_empty();
        state.empty_after.push(empty);
        value
    }

    #[track_caller]
    pub fn is_empty(&self) -> bool {
        let operations = self.gate.load(Ordering::Acquire);
        self.state.borrow().empty_after[operations]
    }
}

impl<T> Default for SegQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

// The sharded map

/// Stands for the map over `DashMap`: two shards, each a list behind a lock,
/// in the order of arrival.
pub struct ShardedMap<K, V> {
    shards: Vec<loom::sync::Mutex<Vec<(K, V)>>>,
    fold: Fold,
    rank: Rank,
}

impl<K: Eq + Hash + Copy, V: Clone> ShardedMap<K, V> {
    pub fn new(shards: usize, rank: Rank) -> Self {
        assert!(shards.is_power_of_two() && shards > 1);
        let shards = (0..2).map(|_| loom::sync::Mutex::new(Vec::new())).collect();
        Self { shards, fold: Fold::random(), rank }
    }

    fn with<R>(&self, key: &K, f: impl FnOnce(&mut Vec<(K, V)>) -> R) -> R {
        let _held = rank::enter(self.rank);
        let shard = (self.fold.hash_one(key) >> 7) as usize % self.shards.len();
        f(&mut self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn get(&self, key: &K) -> Option<V> {
        self.with(key, |shard| shard.iter().find(|(k, _)| k == key).map(|(_, v)| v.clone()))
    }

    pub fn insert_absent(&self, key: K, value: V) -> Result<(), V> {
        let mut value = Some(value);
        match self.get_or_insert_with(key, || value.take()) {
            Some(found) if value.is_some() => Err(found),
            _ => Ok(()),
        }
    }

    pub fn get_or_insert_with(&self, key: K, make: impl FnOnce() -> Option<V>) -> Option<V> {
        self.with(&key, |shard| {
            if let Some((_, value)) = shard.iter().find(|(k, _)| *k == key) {
                return Some(value.clone());
            }
            let value = make()?;
            shard.push((key, value.clone()));
            Some(value)
        })
    }

    pub fn remove_if(&self, key: &K, doomed: impl FnOnce(&V) -> bool) -> bool {
        let taken = self.with(key, |shard| {
            let at = shard.iter().position(|(k, _)| k == key)?;
            doomed(&shard[at].1).then(|| shard.remove(at))
        });
        taken.is_some()
    }

    pub fn for_each(&self, mut see: impl FnMut(&K, &V)) {
        for shard in &self.shards {
            let shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            for (key, value) in shard.iter() {
                see(key, value);
            }
        }
    }
}

// Plain memory

/// Plain memory: making it writes, `read` reads, its drop writes again. Loom
/// finds a read that is not ordered after the making or before the drop, and
/// reports one that was never dropped.
pub struct Witness {
    life: Life,
    cell: UnsafeCell<()>,
    _track: Track<()>,
}

// SAFETY: loom runs one thread at a time.
unsafe impl Send for Witness {}
// SAFETY: as above.
unsafe impl Sync for Witness {}

impl Default for Witness {
    fn default() -> Self {
        Self::new()
    }
}

impl Witness {
    #[track_caller]
    pub fn new() -> Self {
        let cell = UnsafeCell::new(());
        cell.with_mut(|_| ());
        Self { life: Life::new(), cell, _track: Track::new(()) }
    }

    #[track_caller]
    pub fn read(&self) {
        self.life.check("a value behind a published pointer");
        self.cell.with(|_| ());
    }
}

impl Drop for Witness {
    #[track_caller]
    fn drop(&mut self) {
        self.life.check("a value that is being dropped");
        self.cell.with_mut(|_| ());
        self.life.end();
    }
}

/// A word of a column.
pub struct Word {
    life: Life,
    cell: UnsafeCell<u64>,
}

// SAFETY: loom runs one thread at a time, and reports races.
unsafe impl Send for Word {}
// SAFETY: as above.
unsafe impl Sync for Word {}

impl Word {
    #[track_caller]
    pub fn new(value: u64) -> Self {
        Self { life: Life::new(), cell: UnsafeCell::new(value) }
    }

    /// # Safety
    /// As in `real`; checked here.
    #[track_caller]
    pub unsafe fn set(&self, value: u64) {
        self.life.check("a column");
        // SAFETY: loom gives a pointer to the value.
        self.cell.with_mut(|cell| unsafe { *cell = value });
    }

    /// # Safety
    /// As in `real`; checked here.
    #[track_caller]
    pub unsafe fn get(&self) -> u64 {
        self.life.check("a column");
        // SAFETY: loom gives a pointer to the value.
        self.cell.with(|cell| unsafe { *cell })
    }

    /// # Safety
    /// As in `real`; checked here.
    #[track_caller]
    pub unsafe fn common_prefix(words: &[Word], other: &[u64]) -> usize {
        // SAFETY: the caller's word. All that the window covers is read, as
        // the wide compares do.
        let words: Vec<u64> =
            words.iter().take(other.len()).map(|word| unsafe { word.get() }).collect();
        words.iter().zip(other).take_while(|(a, b)| a == b).count()
    }
}

impl Drop for Word {
    #[track_caller]
    fn drop(&mut self) {
        self.cell.with_mut(|_| ());
        self.life.end();
    }
}

// Threads

/// A pool whose threads are the model's own: a task waits until one of them
/// calls [`run_task`].
pub struct TaskPool {
    threads: usize,
}

impl TaskPool {
    pub fn new(threads: usize) -> Self {
        Self { threads }
    }

    pub fn threads(&self) -> usize {
        self.threads
    }

    pub fn spawn(&self, task: impl FnOnce() + Send + 'static) -> bool {
        if self.threads == 0 {
            return false;
        }
        run().tasks.push(Box::new(task));
        true
    }
}

/// An alarm that rings when the model calls [`tick`].
pub struct Alarm {
    id: Cell<Option<usize>>,
}

// SAFETY: loom runs one thread at a time.
unsafe impl Send for Alarm {}
// SAFETY: as above.
unsafe impl Sync for Alarm {}

impl Alarm {
    pub fn new() -> Self {
        Self { id: Cell::new(None) }
    }

    pub fn ring<F>(&self, _: Duration, tick: impl FnOnce() -> F) -> bool
    where
        F: FnMut() -> bool + Send + 'static,
    {
        if self.id.get().is_none() {
            let run = run();
            let id = run.next_alarm.get();
            run.next_alarm.set(id + 1);
            self.id.set(Some(id));
            run.alarms.borrow_mut().push((id, Box::new(tick())));
        }
        true
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let Some(id) = self.id.get() else { return };
        let Some(run) = RUN.with(|run| run.borrow().clone()) else { return };
        run.alarms.borrow_mut().retain(|(of, _)| *of != id);
    }
}
