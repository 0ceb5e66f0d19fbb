//! The primitives as everybody runs them.

use std::cell::UnsafeCell;
use std::collections::BinaryHeap;
use std::hash::{BuildHasher, Hasher};
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

use crossbeam::epoch;

use parking_lot::lock_api::RawRwLock as _;

mod map;

use super::compare::common_prefix;
use super::rank::{self, Held, Rank};

pub(crate) use map::{MOST_TOGETHER, ShardedMap};

pub(crate) use arc_swap::ArcSwap;
pub(crate) use crossbeam::queue::SegQueue;
pub(crate) use std::collections::{HashMap, HashSet};
#[cfg(feature = "metrics")]
pub(crate) use std::sync::OnceLock;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize};
pub(crate) use std::sync::{Arc, Weak};

/// A statistics counter; never part of a protocol, so the models leave it
/// out of their search.
pub(crate) type Counter = std::sync::atomic::AtomicU64;

/// One more owner of the value behind `ptr`.
///
/// # Safety
/// `ptr` came from `Arc::as_ptr` or `Arc::into_raw`, and some owner is alive
/// throughout the call.
#[allow(unsafe_code)]
#[inline]
pub(crate) unsafe fn arc_from_borrowed<T>(ptr: *const T) -> Arc<T> {
    // SAFETY: the caller's word; the new count belongs to the new `Arc`.
    unsafe {
        Arc::increment_strong_count(ptr);
        Arc::from_raw(ptr)
    }
}

/// One more link to the value behind `ptr`.
///
/// # Safety
/// As for `arc_from_borrowed`.
#[allow(unsafe_code)]
#[inline]
pub(crate) unsafe fn weak_from_borrowed<T>(ptr: *const T) -> Weak<T> {
    // SAFETY: the caller's word; the owner that this stands for stays.
    let owner = ManuallyDrop::new(unsafe { Arc::from_raw(ptr) });
    Arc::downgrade(&owner)
}

/// A lock's guard together with its place in the lock order.
pub(crate) struct Ranked<G> {
    guard: G,
    _held: Held,
}

impl<G: Deref> Deref for Ranked<G> {
    type Target = G::Target;
    #[inline]
    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut> DerefMut for Ranked<G> {
    #[inline]
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

/// A mutual exclusion lock that knows no poison.
#[derive(Default)]
pub(crate) struct Mutex<T>(parking_lot::Mutex<T>);

pub(crate) type MutexGuard<'a, T> = Ranked<parking_lot::MutexGuard<'a, T>>;

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    #[inline]
    pub(crate) fn lock(&self, rank: Rank) -> MutexGuard<'_, T> {
        let held = rank::enter(rank);
        Ranked { guard: self.0.lock(), _held: held }
    }
}

/// A lock for many readers or one writer that knows no poison. The lock word
/// comes before the value: a node puts what lock-free readers load behind
/// both, and they are not to share a cache line with writers' locking.
#[repr(C)]
pub(crate) struct RwLock<T> {
    raw: parking_lot::RawRwLock,
    value: UnsafeCell<T>,
}

/// The value, shared.
pub(crate) struct ReadGuard<'a, T> {
    lock: &'a RwLock<T>,
    _held: Held,
    /// Keeps it on the thread that locked.
    _here: PhantomData<*const ()>,
}

/// The value, exclusive.
pub(crate) struct WriteGuard<'a, T> {
    lock: &'a RwLock<T>,
    _held: Held,
    /// Keeps it on the thread that locked.
    _here: PhantomData<*const ()>,
}

// SAFETY: the lock hands the value from thread to thread, and out to several
// at once by shared reference.
#[allow(unsafe_code)]
unsafe impl<T: Send + Sync> Sync for RwLock<T> {}

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: UnsafeCell::new(value), raw: parking_lot::RawRwLock::INIT }
    }

    #[inline]
    pub(crate) fn read(&self, rank: Rank) -> ReadGuard<'_, T> {
        let held = rank::enter(rank);
        self.raw.lock_shared();
        ReadGuard { lock: self, _held: held, _here: PhantomData }
    }

    #[inline]
    pub(crate) fn write(&self, rank: Rank) -> WriteGuard<'_, T> {
        let held = rank::enter(rank);
        self.raw.lock_exclusive();
        WriteGuard { lock: self, _held: held, _here: PhantomData }
    }
}

#[allow(unsafe_code)]
impl<T> Drop for ReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: locked by `read`, by this thread; a guard is not sent.
        unsafe { self.lock.raw.unlock_shared() }
    }
}

#[allow(unsafe_code)]
impl<T> Drop for WriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: locked by `write`, by this thread; a guard is not sent.
        unsafe { self.lock.raw.unlock_exclusive() }
    }
}

#[allow(unsafe_code)]
impl<T> Deref for ReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: no writer has the lock while this guard lives.
        unsafe { &*self.lock.value.get() }
    }
}

#[allow(unsafe_code)]
impl<T> Deref for WriteGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: nobody else has the lock while this guard lives.
        unsafe { &*self.lock.value.get() }
    }
}

#[allow(unsafe_code)]
impl<T> DerefMut for WriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: nobody else has the lock while this guard lives.
        unsafe { &mut *self.lock.value.get() }
    }
}

/// The collector of all indexes of the process. Not crossbeam's default one:
/// somebody's long pin there would hold up our reclamation.
static COLLECTOR: LazyLock<epoch::Collector> = LazyLock::new(epoch::Collector::new);

thread_local! {
    static HANDLE: epoch::LocalHandle = COLLECTOR.register();
}

/// A pin: what was reachable while it was taken stays allocated until it is
/// dropped.
pub(crate) struct Guard(epoch::Guard);

/// Takes a pin.
#[inline]
pub(crate) fn pin() -> Guard {
    // A thread whose locals are gone takes a handle of its own.
    Guard(HANDLE.try_with(|h| h.pin()).unwrap_or_else(|_| COLLECTOR.register().pin()))
}

impl Guard {
    /// Raises `flag` (Release) once every pin that is held now has ended.
    /// Costs a shared queue's push: one call a batch.
    pub(crate) fn raise_after_pins(&self, flag: Arc<AtomicBool>) {
        self.0.defer(move || flag.store(true, super::Ordering::Release));
        self.0.flush();
    }

    /// Lets the collector move on: an epoch ends, flags that are due rise.
    pub(crate) fn advance(&self) {
        self.0.flush();
    }
}

/// Time since it was made.
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    /// In nanoseconds; at least 1.
    #[cold]
    pub(crate) fn now(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1)
    }
}

/// Lets other threads run.
pub(crate) fn yield_now() {
    thread::yield_now();
}

/// Lets other threads run, the `round`th time in a row: after some rounds also
/// those whom a thread that only yields would keep from their turn.
pub(crate) fn rest(round: usize) {
    if round < 64 {
        thread::yield_now();
    } else {
        thread::sleep(Duration::from_micros(100));
    }
}

/// The bytes of retired values above which a writer reclaims: as given.
/// Models have a say in it.
#[inline]
pub(crate) fn retire_limit(bytes: usize) -> usize {
    bytes
}

/// A hasher's state: one seeded 128-bit multiply, its halves folded.
#[derive(Clone, Copy)]
pub(crate) struct Fold {
    seed: u64,
}

impl Fold {
    /// A state that nobody outside can foresee; under a fuzzer always the same,
    /// so that an input repeats its run.
    pub(crate) fn random() -> Self {
        if cfg!(fuzzing) {
            return Self { seed: 0x6b76_7261_6469_7821 };
        }
        Self { seed: std::collections::hash_map::RandomState::new().hash_one(0u64) }
    }

    /// Mixes one word.
    #[inline]
    pub(crate) fn mix(self, word: u64) -> u64 {
        let product = u128::from(word ^ self.seed) * u128::from(0x9e37_79b9_7f4a_7c15_u64 | 1);
        (product as u64) ^ ((product >> 64) as u64)
    }
}

impl BuildHasher for Fold {
    type Hasher = FoldHasher;
    #[inline]
    fn build_hasher(&self) -> FoldHasher {
        FoldHasher { fold: *self, hash: 0 }
    }
}

/// Folds word after word.
pub(crate) struct FoldHasher {
    fold: Fold,
    hash: u64,
}

impl Hasher for FoldHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.hash
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    #[inline]
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.hash = self.fold.mix(self.hash.rotate_left(23) ^ word);
    }

    #[inline]
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

/// Has the processor fetch the cache line at `at`, whatever is there.
#[inline(always)]
#[allow(unsafe_code)]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch reads nothing and cannot fault, also of an address
    // that is none.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// An address that is only ever prefetched, so it may be out of date.
pub(crate) struct Hint<T>(std::sync::atomic::AtomicPtr<T>);

impl<T> Hint<T> {
    pub(crate) fn new(at: *const T) -> Self {
        Self(std::sync::atomic::AtomicPtr::new(at.cast_mut()))
    }

    pub(crate) fn set(&self, at: *const T) {
        self.0.store(at.cast_mut(), super::Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn get(&self) -> *const T {
        self.0.load(super::Ordering::Relaxed)
    }
}

/// Stands for plain memory that a writer fills and, after a release that the
/// readers acquire, only readers touch until it is freed. The models check
/// exactly that: making a witness writes, `read` reads, its drop frees. Here
/// it is nothing.
#[derive(Default)]
pub(crate) struct Witness;

impl Witness {
    pub(crate) fn new() -> Self {
        Self
    }

    /// The memory that this stands for is read.
    #[inline(always)]
    pub(crate) fn read(&self) {}
}

/// A word of a column: written once before the release of the window that
/// covers it, read after its acquire.
#[repr(transparent)]
pub(crate) struct Word(UnsafeCell<u64>);

#[allow(unsafe_code)]
impl Word {
    /// Room for `count` words, at least one; they are not initialised.
    #[inline]
    pub(crate) fn allocate(count: usize) -> NonNull<Word> {
        let words = Box::<[Word]>::new_uninit_slice(count);
        NonNull::from(Box::leak(words)).cast()
    }

    /// # Safety
    /// `words` came from `allocate` with this count, and is not used again.
    pub(crate) unsafe fn free(words: NonNull<Word>, count: usize) {
        let words = NonNull::slice_from_raw_parts(words.cast::<MaybeUninit<Word>>(), count);
        // SAFETY: the box that `allocate` leaked; words need no drop.
        drop(unsafe { Box::from_raw(words.as_ptr()) });
    }

    /// Copies `count` words.
    ///
    /// # Safety
    /// Both ranges are allocated and do not overlap; nobody writes the one,
    /// and nobody reads or writes the other meanwhile.
    #[inline]
    pub(crate) unsafe fn copy(from: NonNull<Word>, to: NonNull<Word>, count: usize) {
        // SAFETY: the caller's word.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), count) }
    }

    /// # Safety
    /// No other thread reads or writes the word meanwhile.
    #[inline]
    pub(crate) unsafe fn set(&self, value: u64) {
        // SAFETY: the caller's word.
        unsafe { *self.0.get() = value }
    }

    /// # Safety
    /// No thread writes the word meanwhile.
    #[inline]
    pub(crate) unsafe fn get(&self) -> u64 {
        // SAFETY: the caller's word.
        unsafe { *self.0.get() }
    }

    /// How many leading words of `words` equal those of `other`.
    ///
    /// # Safety
    /// No thread writes any of the words meanwhile.
    #[inline]
    pub(crate) unsafe fn common_prefix(words: &[Word], other: &[u64]) -> usize {
        // SAFETY: `Word` is a transparent wrapper of a `u64`'s cell, which
        // has the layout of `u64`; nobody writes, says the caller.
        let words =
            unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<u64>(), words.len()) };
        common_prefix(words, other)
    }
}

// SAFETY: whoever reads or writes a word has given his word that no other
// thread writes it.
#[allow(unsafe_code)]
unsafe impl Sync for Word {}

/// Threads for small tasks, started when the first one comes.
pub(crate) struct TaskPool {
    threads: usize,
    pool: std::sync::OnceLock<Option<rayon::ThreadPool>>,
    living: Arc<Living>,
}

/// How many threads of a pool have not ended.
#[derive(Default)]
struct Living {
    count: parking_lot::Mutex<usize>,
    ended: parking_lot::Condvar,
}

impl TaskPool {
    pub(crate) fn new(threads: usize) -> Self {
        Self { threads, pool: std::sync::OnceLock::new(), living: Arc::default() }
    }

    /// How many threads it has once they run.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Hands `task` to a thread of the pool and returns at once. `false`
    /// where there is none: no thread was asked for, or none could be
    /// started; the task is then dropped unrun.
    ///
    /// A panic in `task` would end the process: it catches its own.
    pub(crate) fn spawn(&self, task: impl FnOnce() + Send + 'static) -> bool {
        if self.threads == 0 {
            return false;
        }
        let pool = self.pool.get_or_init(|| {
            let living = self.living.clone();
            *living.count.lock() = self.threads;
            let built = rayon::ThreadPoolBuilder::new()
                .num_threads(self.threads)
                .thread_name(|n| format!("kvradix-drain-{n}"))
                .exit_handler(move |_| {
                    *living.count.lock() -= 1;
                    living.ended.notify_all();
                })
                .build();
            built.ok()
        });
        let Some(pool) = pool else { return false };
        pool.spawn(task);
        true
    }
}

impl Drop for TaskPool {
    /// Ends the threads and waits for them, unless called on one of them.
    fn drop(&mut self) {
        let Some(Some(pool)) = self.pool.take() else { return };
        let inside = pool.current_thread_index().is_some();
        drop(pool);
        if !inside {
            let mut count = self.living.count.lock();
            while *count > 0 {
                self.living.ended.wait(&mut count);
            }
        }
    }
}

/// A thread that makes calls at their time, and sleeps while there are none.
/// It starts with the first one.
#[derive(Default)]
pub(crate) struct Alarm {
    shared: Arc<AlarmShared>,
    thread: parking_lot::Mutex<Option<thread::JoinHandle<()>>>,
}

#[derive(Default)]
struct AlarmShared {
    state: parking_lot::Mutex<AlarmState>,
    wake: parking_lot::Condvar,
}

#[derive(Default)]
struct AlarmState {
    calls: BinaryHeap<Call>,
    stop: bool,
}

/// A call and its time; of two the earlier one is the greater.
struct Call {
    due: Instant,
    make: Box<dyn FnOnce() + Send>,
}

impl PartialEq for Call {
    fn eq(&self, other: &Self) -> bool {
        self.due == other.due
    }
}

impl Eq for Call {}

impl PartialOrd for Call {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Call {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.due.cmp(&self.due)
    }
}

impl Alarm {
    /// Makes `call` on the alarm's thread after `delay`; never, where no clock
    /// goes so far. `false` where no thread could be started; the call is then
    /// dropped.
    pub(crate) fn after(&self, delay: Duration, call: impl FnOnce() + Send + 'static) -> bool {
        let Some(due) = Instant::now().checked_add(delay) else { return true };
        let call = Call { due, make: Box::new(call) };
        let mut state = self.shared.state.lock();
        let sooner = state.calls.peek().is_none_or(|next| call.due < next.due);
        state.calls.push(call);
        drop(state);
        if sooner {
            self.shared.wake.notify_one();
        }
        self.started()
    }

    fn started(&self) -> bool {
        let mut thread = self.thread.lock();
        if thread.is_none() {
            let shared = self.shared.clone();
            let name = "kvradix-alarm".to_owned();
            *thread = thread::Builder::new().name(name).spawn(move || shared.run()).ok();
        }
        if thread.is_none() {
            self.shared.state.lock().calls.clear();
        }
        thread.is_some()
    }
}

impl AlarmShared {
    fn run(&self) {
        let mut state = self.state.lock();
        while !state.stop {
            let now = Instant::now();
            match state.calls.peek().map(|next| next.due) {
                None => self.wake.wait(&mut state),
                Some(due) if due > now => _ = self.wake.wait_until(&mut state, due),
                Some(_) => {
                    let call = state.calls.pop();
                    parking_lot::MutexGuard::unlocked(&mut state, || {
                        if let Some(call) = call {
                            // The thread serves every index of its pool. A
                            // call owns what it touches, and is gone after.
                            let _ = catch_unwind(AssertUnwindSafe(call.make));
                        }
                    });
                }
            }
        }
    }
}

impl Drop for Alarm {
    /// Ends the thread and waits for it, unless called on it.
    fn drop(&mut self) {
        self.shared.state.lock().stop = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.get_mut().take()
            && thread.thread().id() != thread::current().id()
        {
            // It makes no call that panics.
            let _ = thread.join();
        }
    }
}
