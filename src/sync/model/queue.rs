//! The queue.

use std::cell::RefCell;
use std::collections::VecDeque;

use super::checker::sync::atomic::{AtomicUsize, Ordering};

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
