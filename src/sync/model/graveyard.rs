//! The stand-in for the collector.

use super::checker;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::rc::Rc;

use super::checker::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use super::checker::thread::ThreadId;

use super::super::mutant::{Mutant, mutant};
use super::owner::Arc;

thread_local! {
    /// The run's state. Loom's threads all live on one thread of the system.
    static STATE: RefCell<Option<Rc<State>>> = const { RefCell::new(None) };
}

struct State {
    /// Touched by a thread's first pin and by every retirement.
    epoch: AtomicUsize,
    /// One of each thread that pinned, as the real collector has: its later
    /// pins and all their ends touch it, and so does every retirement.
    locals: [AtomicUsize; checker::MAX_THREADS],
    /// The threads that pinned, in the order of their first pins.
    threads: RefCell<Vec<ThreadId>>,
    /// The pins that are held.
    pins: RefCell<Vec<u64>>,
    next_pin: Cell<u64>,
    dues: RefCell<Vec<Due>>,
}

/// A flag and the pins that it waits for.
struct Due {
    waits: Vec<u64>,
    flag: Arc<AtomicBool>,
}

fn state() -> Rc<State> {
    STATE.with(|state| state.borrow().clone()).expect("a model begins with `model::begin`")
}

pub(super) fn begin() {
    let state = State {
        epoch: AtomicUsize::new(0),
        locals: std::array::from_fn(|_| AtomicUsize::new(0)),
        threads: RefCell::default(),
        pins: RefCell::default(),
        next_pin: Cell::new(0),
        dues: RefCell::default(),
    };
    STATE.with(|cell| *cell.borrow_mut() = Some(Rc::new(state)));
}

pub(super) fn end() {
    let state = STATE.with(|state| state.borrow_mut().take()).expect("a run that began");
    assert!(state.pins.borrow().is_empty(), "a pin outlived the model");
    assert!(state.dues.borrow().is_empty(), "a flag was never raised");
}

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
    if mutant(Mutant::NoPin) {
        return Guard { id: u64::MAX, _local: PhantomData };
    }
    let state = state();
    let me = checker::thread::current().id();
    // Acquire: pairs with the release of every retirement so far. Reads and
    // writes in one see the latest; loom's search would lose loads of it, since
    // it remembers only the last of them.
    let known = state.threads.borrow().iter().position(|thread| *thread == me);
    match known {
        Some(at) => drop(state.locals[at].fetch_add(0, Ordering::Acquire)),
        None => {
            state.epoch.fetch_add(0, Ordering::Acquire);
            state.threads.borrow_mut().push(me);
        }
    }
    let id = state.next_pin.get();
    state.next_pin.set(id + 1);
    state.pins.borrow_mut().push(id);
    Guard { id, _local: PhantomData }
}

impl Guard {
    pub fn raise_after_pins(&self, flag: Arc<AtomicBool>) {
        let state = state();
        state.epoch.fetch_add(1, Ordering::Release);
        let threads = state.threads.borrow().len();
        for local in &state.locals[..threads] {
            local.fetch_add(1, Ordering::Release);
        }
        let waits = state.pins.borrow().clone();
        if waits.is_empty() && mutant(Mutant::NoPin) {
            return flag.store(true, Ordering::Release);
        }
        assert!(waits.contains(&self.id), "a pin that is held");
        state.dues.borrow_mut().push(Due { waits, flag });
    }

    pub fn advance(&self) {}
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.id == u64::MAX {
            return;
        }
        let state = state();
        let me = checker::thread::current().id();
        let at = state.threads.borrow().iter().position(|thread| *thread == me);
        // Release: a raising comes after all that was done under this pin.
        state.locals[at.expect("it pinned")].fetch_add(1, Ordering::Release);
        state.pins.borrow_mut().retain(|id| *id != self.id);
        let mut over = Vec::new();
        let mut dues = state.dues.take();
        dues.iter_mut().for_each(|due| due.waits.retain(|id| *id != self.id));
        while let Some(at) = dues.iter().position(|due| due.waits.is_empty()) {
            over.push(dues.remove(at));
        }
        state.dues.replace(dues);
        if over.is_empty() {
            return;
        }
        let threads = state.threads.borrow().len();
        for local in &state.locals[..threads] {
            // Acquire: pairs with the release above.
            local.fetch_add(0, Ordering::Acquire);
        }
        for due in over {
            due.flag.store(true, Ordering::Release);
        }
    }
}
