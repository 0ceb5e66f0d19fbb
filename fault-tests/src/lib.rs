//! Panics injected into the index, one at a time.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::Duration;

use kvradix::fault::{self, Fault, Injected};

/// What comes back in time on a busy machine, and does not when it hangs.
/// `KVRADIX_PATIENCE` is another number of seconds.
fn patience() -> Duration {
    let given = std::env::var("KVRADIX_PATIENCE").ok();
    Duration::from_secs(given.map_or(240, |given| given.parse().expect("KVRADIX_PATIENCE")))
}

/// The step at which an injected panic was thrown; every other panic goes on.
pub fn injected(panic: Box<dyn Any + Send>) -> Fault {
    match panic.downcast::<Injected>() {
        Ok(injected) => injected.0,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Runs `call`, on a thread that may be armed. A panic that was injected is
/// the error; it has left no lock behind.
pub fn survive<T>(call: impl FnOnce() -> T) -> Result<T, Fault> {
    let result = catch_unwind(AssertUnwindSafe(call)).map_err(injected);
    assert!(fault::holds_none(), "a panic has left a lock behind: {:?}", result.err());
    result
}

/// Runs `call` elsewhere. A lock that is never given back, or a thread that
/// waits for one that is gone, makes it fail.
pub fn in_time<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        let result = call();
        let _ = done.send(());
        result
    });
    if let Err(mpsc::RecvTimeoutError::Timeout) = wait.recv_timeout(patience()) {
        panic!("stuck: not back after {:?}", patience());
    }
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
