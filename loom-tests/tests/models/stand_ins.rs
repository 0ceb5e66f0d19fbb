//! The stand-ins themselves: each lets loom see what the real type allows,
//! and each catches what it is there to catch.

use kvradix::model::{
    Arc, ArcSwap, AtomicBool, AtomicPtr, AtomicUsize, Mutex, Rank, RwLock, SegQueue, ShardedMap,
    TaskPool, Witness, Word, arc_from_borrowed, pin, run_task,
};
use kvradix_loom_tests::{Model, saw, spawn};
use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release};

pub const MODELS: &[Model] = &[
    Model::new("stand_in_mutex_both_orders", mutex_both_orders)
        .iterations(2, 50)
        .sees(&["a b", "b a"]),
    Model::new("stand_in_rwlock_readers_overlap", readers_overlap)
        .iterations(10, 200)
        .sees(&["1", "2"]),
    Model::new("stand_in_rwlock_writer_excludes", writer_excludes)
        .iterations(2, 50)
        .sees(&["0", "2"]),
    Model::new("stand_in_lock_order_is_asserted", lock_order).fails("lock order"),
    Model::new("stand_in_map_shows_a_value_in_the_lock_order", map_order).fails("lock order"),
    Model::new("stand_in_weak_against_last_drop", weak_upgrade)
        .iterations(2, 50)
        .sees(&["alive", "gone"]),
    Model::new("stand_in_arc_last_of_two_drops_once", last_of_two).iterations(2, 50),
    Model::new("stand_in_arc_three_owners_and_a_weak", three_owners)
        .iterations(90, 1_000)
        .sees(&["alive", "gone"]),
    Model::new("stand_in_arc_leak_is_reported", arc_leak).fails("Allocation leaked"),
    Model::new("stand_in_borrowed_owner_of_the_dead_is_caught", borrowed_dead)
        .fails("an owner was taken of a value that has none left"),
    Model::new("stand_in_swap_old_and_new", swap).iterations(3, 50).sees(&["new", "old"]),
    Model::new("stand_in_queue_interleavings", queue).iterations(2, 50).sees(&["1 2", "2 1"]),
    Model::new("stand_in_queue_pop_against_push", queue_pop).iterations(2, 50).sees(&["1", "none"]),
    Model::new("stand_in_queue_emptiness_may_be_old", queue_empty).iterations(10, 100).sees(&[
        "empty after the push",
        "empty before it",
        "full",
    ]),
    Model::new("stand_in_map_first_insert_wins", map_insert).iterations(2, 50).sees(&["1", "2"]),
    Model::new("stand_in_map_remove_against_get", map_remove)
        .iterations(2, 50)
        .sees(&["gone", "there"]),
    Model::new("stand_in_published_old_and_new", published).iterations(3, 50).sees(&["new", "old"]),
    Model::new("stand_in_witness_catches_relaxed_publish", relaxed_witness)
        .fails("Causality violation"),
    Model::new("stand_in_word_catches_relaxed_publish", relaxed_word).fails("Causality violation"),
    Model::new("stand_in_word_catches_rewrite", rewritten_word).fails("Causality violation"),
    Model::new("stand_in_pins_hold_back_what_they_saw", pinned)
        .iterations(400, 6_000)
        .sees(&["late", "new", "old"]),
    Model::new("stand_in_no_pin_is_caught", unpinned).fails("after it was freed"),
    Model::new("stand_in_pin_of_a_later_reader_does_not_wait", later_pin)
        .iterations(100, 2_000)
        .sees(&["freed", "kept"]),
    Model::new("stand_in_witness_leak_is_reported", witness_leak).fails("Allocation leaked"),
    Model::new("stand_in_pool_task_runs_elsewhere", pool)
        .iterations(2, 50)
        .sees(&["early", "late"]),
    Model::new("bench_one_iteration_is_a_failure", || {}).fails("ran one iteration"),
    Model::new("bench_cap_is_a_failure", mutex_both_orders).iterations(2, 2).fails("hit its cap"),
    Model::new("bench_too_few_iterations_are_a_failure", mutex_both_orders)
        .iterations(1_000, 10_000)
        .fails("lost its race"),
    Model::new("bench_missing_outcome_is_a_failure", mutex_both_orders)
        .sees(&["a b", "b a", "b b"])
        .fails("should have seen"),
    Model::new("bench_deadlock_is_a_failure", deadlock).fails("deadlock"),
];

fn mutex_both_orders() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let other = log.clone();
    let b = spawn(move || other.lock(Rank::Lane).push("b"));
    log.lock(Rank::Lane).push("a");
    b.join();
    saw(log.lock(Rank::Lane).join(" "));
}

fn readers_overlap() {
    let lock = Arc::new((RwLock::new(()), AtomicUsize::new(0)));
    let other = lock.clone();
    let b = spawn(move || {
        let _held = other.0.read(Rank::Child);
        other.1.fetch_add(1, Relaxed);
        loom::thread::yield_now();
        other.1.fetch_sub(1, Relaxed);
    });
    {
        let _held = lock.0.read(Rank::Child);
        saw(lock.1.fetch_add(1, Relaxed) + 1);
        lock.1.fetch_sub(1, Relaxed);
    }
    b.join();
}

fn writer_excludes() {
    let lock = Arc::new(RwLock::new(0));
    let other = lock.clone();
    let b = spawn(move || {
        let mut held = other.write(Rank::Child);
        *held += 1;
        loom::thread::yield_now();
        *held += 1;
    });
    saw(*lock.read(Rank::Child));
    b.join();
}

fn lock_order() {
    let (node, lane) = (RwLock::new(()), Mutex::new(()));
    let _node = node.read(Rank::Child);
    let _lane = lane.lock(Rank::Lane);
}

fn map_order() {
    let (map, lane) = (ShardedMap::new(2, Rank::Registry), Mutex::new(()));
    map.insert_absent(1u64, 2u64).expect("nothing is there");
    map.with(&1, |_| drop(lane.lock(Rank::Lane)));
}

fn weak_upgrade() {
    let strong = Arc::new(Witness::new());
    let weak = Arc::downgrade(&strong);
    let b = spawn(move || match weak.upgrade() {
        Some(value) => {
            value.read();
            saw("alive");
        }
        None => saw("gone"),
    });
    drop(strong);
    b.join();
}

struct Once(Arc<AtomicUsize>);

impl Drop for Once {
    fn drop(&mut self) {
        assert_eq!(self.0.fetch_add(1, Relaxed), 0, "dropped twice");
    }
}

fn last_of_two() {
    let drops = Arc::new(AtomicUsize::new(0));
    let a = Arc::new(Once(drops.clone()));
    let b = a.clone();
    let b = spawn(move || drop(b));
    drop(a);
    b.join();
    assert_eq!(drops.load(Relaxed), 1);
}

fn three_owners() {
    let a = Arc::new(Witness::new());
    let (b, weak) = (a.clone(), Arc::downgrade(&a));
    let b = spawn(move || drop(b));
    let c = spawn(move || saw(if weak.upgrade().is_some() { "alive" } else { "gone" }));
    drop(a);
    b.join();
    c.join();
}

fn arc_leak() {
    std::mem::forget(Arc::new(0));
}

fn borrowed_dead() {
    let owner = Arc::new(0);
    let borrowed = Arc::as_ptr(&owner) as usize;
    let b = spawn(move || {
        // SAFETY: none; that is what the stand-in is to find.
        drop(unsafe { arc_from_borrowed(borrowed as *const i32) });
    });
    drop(owner);
    b.join();
}

fn swap() {
    let old = Arc::new("old");
    let cell = Arc::new(ArcSwap::new(old.clone()));
    let other = cell.clone();
    let b = spawn(move || drop(other.swap(Arc::new("new"))));
    saw(**cell.load());
    b.join();
    assert_eq!(**cell.load(), "new");
}

fn queue() {
    let queue = Arc::new(SegQueue::new());
    let other = queue.clone();
    let b = spawn(move || other.push(1));
    queue.push(2);
    b.join();
    let (first, second) = (queue.pop().unwrap(), queue.pop().unwrap());
    saw(format!("{first} {second}"));
    assert!(queue.pop().is_none() && queue.is_empty());
}

fn queue_pop() {
    let queue = Arc::new(SegQueue::new());
    let other = queue.clone();
    let b = spawn(move || other.push(1));
    let popped = queue.pop();
    saw(popped.map_or("none".into(), |value: i32| value.to_string()));
    b.join();
    assert_eq!(popped.or_else(|| queue.pop()), Some(1));
}

/// What the queue does not order, a flag beside it must.
fn queue_empty() {
    let shared = Arc::new((SegQueue::new(), AtomicBool::new(false)));
    let other = shared.clone();
    let b = spawn(move || {
        other.0.push(1);
        other.1.store(true, Relaxed);
    });
    let pushed = shared.1.load(Relaxed);
    saw(match (shared.0.is_empty(), pushed) {
        (true, true) => "empty after the push",
        (true, false) => "empty before it",
        _ => "full",
    });
    b.join();
    assert!(!shared.0.is_empty());
    shared.0.pop();
}

fn map_insert() {
    let map = Arc::new(ShardedMap::new(2, Rank::Lookup));
    let other = map.clone();
    let b = spawn(move || other.insert_absent(7u64, 2).is_ok());
    let first = map.insert_absent(7, 1).is_ok();
    let second = b.join();
    assert!(first != second);
    saw(map.get(&7).unwrap());
}

fn map_remove() {
    let map = Arc::new(ShardedMap::new(2, Rank::Lookup));
    assert!(map.insert_absent(7u64, 1).is_ok());
    let other = map.clone();
    let b = spawn(move || other.remove_if(&7, |value| *value == 1));
    saw(if map.get(&7).is_some() { "there" } else { "gone" });
    assert!(b.join());
    assert!(map.get(&7).is_none());
}

fn boxed(name: &'static str) -> *mut (Witness, &'static str) {
    Box::into_raw(Box::new((Witness::new(), name)))
}

/// What `cell` shows.
fn look(cell: &AtomicPtr<(Witness, &'static str)>) -> &'static str {
    // SAFETY: the models below free nothing before its readers are done, or
    // are to be caught.
    let value = unsafe { &*cell.load(Acquire) };
    value.0.read();
    value.1
}

/// # Safety
/// Nobody uses the value any more.
unsafe fn free(value: *mut (Witness, &'static str)) {
    // SAFETY: it came from `boxed`; the rest is the caller's word.
    drop(unsafe { Box::from_raw(value) });
}

fn published() {
    let cell = Arc::new(AtomicPtr::new(boxed("old")));
    let other = cell.clone();
    let b = spawn(move || other.swap(boxed("new"), Release) as usize);
    saw(look(&cell));
    let old = b.join();
    // SAFETY: the readers are done.
    unsafe {
        free(old as *mut _);
        free(cell.load(Acquire));
    }
}

fn relaxed_witness() {
    let cell = Arc::new(AtomicPtr::new(boxed("old")));
    let other = cell.clone();
    let b = spawn(move || other.swap(boxed("new"), Relaxed) as usize);
    look(&cell);
    let old = b.join();
    // SAFETY: the readers are done.
    unsafe {
        free(old as *mut _);
        free(cell.load(Acquire));
    }
}

fn relaxed_word() {
    let shared = Arc::new((Word::new(0), AtomicBool::new(false)));
    let other = shared.clone();
    let b = spawn(move || {
        // SAFETY: nobody reads before the flag.
        unsafe { other.0.set(7) };
        other.1.store(true, Relaxed);
    });
    if shared.1.load(Acquire) {
        // SAFETY: none; that is what the stand-in is to find.
        unsafe { shared.0.get() };
    }
    b.join();
}

fn rewritten_word() {
    let shared = Arc::new((Word::new(0), AtomicBool::new(false)));
    let other = shared.clone();
    let b = spawn(move || {
        // SAFETY: nobody reads before the flag; the second write is wrong.
        unsafe {
            other.0.set(7);
            other.1.store(true, Release);
            other.0.set(8);
        }
    });
    if shared.1.load(Acquire) {
        // SAFETY: none; that is what the stand-in is to find.
        assert_eq!(unsafe { shared.0.get() }, 7);
    }
    b.join();
}

struct Pinned {
    cell: AtomicPtr<(Witness, &'static str)>,
    freed: AtomicBool,
}

impl Pinned {
    fn new() -> Arc<Self> {
        Arc::new(Self { cell: AtomicPtr::new(boxed("old")), freed: AtomicBool::new(false) })
    }

    /// Replaces the value; frees the old one if no pin holds it back. The
    /// value and its flag, where one does.
    fn replace(&self) -> Option<(usize, Arc<AtomicBool>)> {
        let guard = pin();
        let flag = Arc::new(AtomicBool::new(false));
        let old = self.cell.swap(boxed("new"), Release);
        guard.raise_after_pins(flag.clone());
        assert!(!flag.load(Acquire), "raised under the pin of the caller");
        drop(guard);
        self.try_free(old as usize, flag)
    }

    fn try_free(&self, old: usize, flag: Arc<AtomicBool>) -> Option<(usize, Arc<AtomicBool>)> {
        if !flag.load(Acquire) {
            return Some((old, flag));
        }
        self.freed.store(true, Relaxed);
        // SAFETY: the flag says so.
        unsafe { free(old as *mut _) };
        None
    }
}

fn pinned() {
    let shared = Pinned::new();
    let other = shared.clone();
    let writer = spawn(move || other.replace());
    let guard = pin();
    saw(look(&shared.cell));
    look(&shared.cell);
    drop(guard);
    if let Some((old, flag)) = writer.join() {
        saw("late");
        assert!(shared.try_free(old, flag).is_none(), "all pins have ended");
    }
    // SAFETY: the readers are done.
    unsafe { free(shared.cell.load(Acquire)) };
}

fn unpinned() {
    let shared = Pinned::new();
    let other = shared.clone();
    let writer = spawn(move || other.replace());
    // SAFETY: none; that is what the stand-in is to find.
    let value = unsafe { &*shared.cell.load(Acquire) };
    loom::thread::yield_now();
    value.0.read();
    writer.join();
}

fn later_pin() {
    let shared = Pinned::new();
    let other = shared.clone();
    let writer = spawn(move || other.replace());
    let guard = pin();
    let freed = shared.freed.load(Relaxed);
    let name = look(&shared.cell);
    assert!(!freed || name == "new");
    saw(if freed { "freed" } else { "kept" });
    drop(guard);
    if let Some((old, flag)) = writer.join() {
        assert!(shared.try_free(old, flag).is_none());
    }
    // SAFETY: the readers are done.
    unsafe { free(shared.cell.load(Acquire)) };
}

fn witness_leak() {
    boxed("lost");
}

fn pool() {
    let pool = TaskPool::new(1);
    let done = Arc::new(AtomicBool::new(false));
    let flag = done.clone();
    let worker = spawn(run_task);
    assert!(pool.spawn(move || flag.store(true, Release)));
    if worker.join() {
        assert!(done.load(Acquire));
        saw("early");
    } else {
        saw("late");
        assert!(run_task());
    }
    assert!(!TaskPool::new(0).spawn(|| ()));
}

fn deadlock() {
    let locks = Arc::new((loom::sync::Mutex::new(()), loom::sync::Mutex::new(())));
    let other = locks.clone();
    let b = spawn(move || {
        let _one = other.1.lock().unwrap();
        let _two = other.0.lock().unwrap();
    });
    let _one = locks.0.lock().unwrap();
    let _two = locks.1.lock().unwrap();
    drop((_one, _two));
    b.join();
}
