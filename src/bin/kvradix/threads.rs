//! Threads that end in an error instead of a panic.

use std::thread::{Builder, Scope, ScopedJoinHandle};

use anyhow::{Context, Result, anyhow};

/// A running thread and what it is called.
pub struct Running<'scope, T> {
    name: String,
    handle: ScopedJoinHandle<'scope, T>,
}

/// Starts a thread.
///
/// # Errors
///
/// The system has no more.
pub fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: String,
    run: impl FnOnce() -> T + Send + 'scope,
) -> Result<Running<'scope, T>> {
    let spawned = Builder::new().name(name.clone()).spawn_scoped(scope, run);
    let handle = spawned.with_context(|| format!("cannot start the thread {name}"))?;
    Ok(Running { name, handle })
}

impl<T> Running<'_, T> {
    /// Waits for the thread's result.
    ///
    /// # Errors
    ///
    /// It panicked; what it said is on standard error.
    pub fn join(self) -> Result<T> {
        self.handle.join().map_err(|_| anyhow!("the thread {} panicked", self.name))
    }
}

/// Waits for all, in order, and fails with the first error.
pub fn join_all<T>(threads: Vec<Running<'_, Result<T>>>) -> Result<Vec<T>> {
    // Joined before any error is returned, so that none is left running.
    let joined: Vec<Result<T>> =
        threads.into_iter().map(|thread| thread.join().and_then(|result| result)).collect();
    joined.into_iter().collect()
}
