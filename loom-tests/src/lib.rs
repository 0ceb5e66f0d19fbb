//! Runs models and shows that they ran.
//!
//! Each model runs in a process of its own, so that one that fails shows its
//! own message and disturbs no other.

mod keep;
mod runner;

pub use keep::{Keep, begin as keep_begin};
pub use runner::{Model, Negative, main, saw};

use std::panic::Location;

/// Loom's stacks have 32 KiB; the library's own calls may want more.
const STACK_WORDS: usize = (256 << 10) / size_of::<usize>();

/// A thread of the model.
#[track_caller]
pub fn spawn<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> Thread<R> {
    let builder = loom::thread::Builder::new().stack_size(STACK_WORDS);
    Thread(builder.spawn(f).expect("a model has at most five threads"), Location::caller())
}

/// A spawned thread of the model.
pub struct Thread<R>(loom::thread::JoinHandle<R>, &'static Location<'static>);

impl<R> Thread<R> {
    /// Waits for its end.
    pub fn join(self) -> R {
        self.0.join().unwrap_or_else(|_| panic!("the thread of {} panicked", self.1))
    }
}

/// Runs `f` on a thread of its own and waits for it: a part of a model that
/// wants more stack than the first thread has.
#[track_caller]
pub fn apart<R: Send + 'static>(f: impl FnOnce() -> R + Send + 'static) -> R {
    spawn(f).join()
}
