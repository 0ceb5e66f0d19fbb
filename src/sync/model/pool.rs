//! The pool and the alarm, run by the model itself.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use super::queue::SegQueue;

thread_local! {
    /// The run's state. Loom's threads all live on one thread of the system.
    static RUN: RefCell<Option<Rc<Run>>> = const { RefCell::new(None) };
}

struct Run {
    /// Tasks that no thread took yet.
    tasks: SegQueue<Task>,
    alarms: RefCell<Vec<(usize, Tick)>>,
    next_alarm: Cell<usize>,
}

type Task = Box<dyn FnOnce() + Send>;
type Tick = Box<dyn FnMut() -> bool + Send>;

fn run() -> Rc<Run> {
    RUN.with(|run| run.borrow().clone()).expect("a model begins with `model::begin`")
}

pub(super) fn begin() {
    let (alarms, next_alarm) = (RefCell::default(), Cell::new(0));
    let run = Run { tasks: SegQueue::new(), alarms, next_alarm };
    RUN.with(|cell| *cell.borrow_mut() = Some(Rc::new(run)));
}

pub(super) fn end() {
    let run = RUN.with(|run| run.borrow_mut().take()).expect("a run that began");
    while run.tasks.pop().is_some() {}
    run.alarms.take();
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

impl Alarm {
    /// Ends it; it rings no more.
    pub fn stop(&self) {
        let Some(id) = self.id.get() else { return };
        let Some(run) = RUN.with(|run| run.borrow().clone()) else { return };
        run.alarms.borrow_mut().retain(|(of, _)| *of != id);
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.stop();
    }
}
