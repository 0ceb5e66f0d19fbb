//! The real collector, under loom: for models of two threads.

use std::cell::RefCell;

use crossbeam_epoch as epoch;
use loom::sync::atomic::{AtomicBool, Ordering};

use super::super::mutant::{Mutant, mutant};
use super::owner::Arc;

thread_local! {
    /// The run's own collector. Loom's threads live on one thread of the
    /// system.
    static COLLECTOR: RefCell<Option<epoch::Collector>> = const { RefCell::new(None) };
}

loom::thread_local! {
    static HANDLE: epoch::LocalHandle = collector().register();
}

fn collector() -> epoch::Collector {
    COLLECTOR
        .with(|collector| collector.borrow().clone())
        .expect("a model begins with `model::begin`")
}

pub(super) fn begin() {
    COLLECTOR.with(|cell| *cell.borrow_mut() = Some(epoch::Collector::new()));
}

pub(super) fn end() {
    let collector = COLLECTOR.with(|collector| collector.borrow_mut().take());
    drop(collector.expect("a run that began"));
}

/// A pin, as in `real`.
pub struct Guard(Option<epoch::Guard>);

pub fn pin() -> Guard {
    Guard((!mutant(Mutant::NoPin)).then(really_pin))
}

fn really_pin() -> epoch::Guard {
    HANDLE.with(epoch::LocalHandle::pin)
}

impl Guard {
    pub fn raise_after_pins(&self, flag: Arc<AtomicBool>) {
        self.with(|guard| {
            guard.defer(move || flag.store(true, Ordering::Release));
            guard.flush();
        });
    }

    pub fn advance(&self) {
        self.with(epoch::Guard::flush);
    }

    fn with(&self, f: impl FnOnce(&epoch::Guard)) {
        match &self.0 {
            Some(guard) => f(guard),
            None => f(&really_pin()),
        }
    }
}
