//! Files that are being written: two writers of one would mix.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Those that are being written.
static BUSY: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
static DONE: Condvar = Condvar::new();

/// A file that nobody else in this process writes by the same path.
pub(super) struct Turn(PathBuf);

fn busy() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    BUSY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Turn {
    /// Waits until nobody else writes it.
    pub(super) fn of(path: &Path) -> Self {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let others = DONE.wait_while(busy(), |busy| busy.contains(&path));
        others.unwrap_or_else(PoisonError::into_inner).insert(path.clone());
        Self(path)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        busy().remove(&self.0);
        DONE.notify_all();
    }
}
