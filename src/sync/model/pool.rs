//! The pool and the alarm, run by the model itself.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use super::queue::SegQueue;

thread_local! {
    static LIMIT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// In this run writers reclaim above so many bytes of retired values.
pub fn limit_retired(bytes: usize) {
    LIMIT.set(Some(bytes));
}

pub fn retire_limit(bytes: usize) -> usize {
    LIMIT.get().unwrap_or(bytes)
}

thread_local! {
    /// The run's state. Loom's threads all live on one thread of the system.
    static RUN: RefCell<Option<Rc<Run>>> = const { RefCell::new(None) };
}

struct Run {
    /// Tasks that no thread took yet.
    tasks: SegQueue<Task>,
    /// Calls that no alarm made yet.
    calls: SegQueue<Task>,
}

type Task = Box<dyn FnOnce() + Send>;

fn run() -> Rc<Run> {
    RUN.with(|run| run.borrow().clone()).expect("a model begins with `model::begin`")
}

pub(super) fn begin() {
    LIMIT.set(None);
    let run = Run { tasks: SegQueue::new(), calls: SegQueue::new() };
    RUN.with(|cell| *cell.borrow_mut() = Some(Rc::new(run)));
}

pub(super) fn end() {
    let run = RUN.with(|run| run.borrow_mut().take()).expect("a run that began");
    while run.tasks.pop().is_some() {}
    while run.calls.pop().is_some() {}
}

/// Runs a task that was handed to a pool, as one of its threads would;
/// `false` where none waits.
pub fn run_task() -> bool {
    let Some(task) = run().tasks.pop() else { return false };
    task();
    true
}

/// Makes a call that an alarm was asked for, as if its delay had passed;
/// `false` where none waits.
pub fn ring() -> bool {
    let Some(call) = run().calls.pop() else { return false };
    call();
    true
}

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

/// An alarm whose calls wait until the model makes them, in the order in
/// which they were asked for: see [`ring`].
#[derive(Default)]
pub struct Alarm(());

impl Alarm {
    pub fn after(&self, _: Duration, call: impl FnOnce() + Send + 'static) -> bool {
        run().calls.push(Box::new(call));
        true
    }
}
