//! How long a stretch of work takes.

use std::time::Instant;

use crate::metric::{Metrics, Unit};
use crate::samples::Samples;

/// Started before the work.
pub struct Stopwatch {
    started: Instant,
    /// What the process has used so far, all its threads together.
    used: f64,
}

impl Stopwatch {
    pub fn start() -> Self {
        Self { used: processor_seconds(), started: Instant::now() }
    }

    /// Since the start, in seconds: time on the wall and processor time.
    pub fn seconds(&self) -> (f64, f64) {
        (self.started.elapsed().as_secs_f64(), processor_seconds() - self.used)
    }

    /// Adds the rate of `count` since the start; beside it, as `.cpu`, that
    /// for each second of processor time. Other processes hardly touch the
    /// latter, and an index's own threads count in it, so it tells how much
    /// work there is where the machine is not idle.
    pub fn stop(self, count: usize, key: &str, metrics: &mut Metrics) {
        let (seconds, used) = self.seconds();
        let millions = count as f64 / 1e6;
        metrics.add(key, Unit::MillionPerSecond, millions / seconds);
        metrics.add(format!("{key}.cpu"), Unit::MillionPerSecond, millions / used);
    }
}

fn processor_seconds() -> f64 {
    let time = read(libc::CLOCK_PROCESS_CPUTIME_ID);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// What this thread has used so far.
#[inline]
pub fn thread_nanoseconds() -> u64 {
    let time = read(libc::CLOCK_THREAD_CPUTIME_ID);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What two looks at the thread's clock are apart with nothing between them,
/// in nanoseconds: the median of many.
pub fn thread_clock_cost() -> u64 {
    let mut samples = Samples::default();
    let mut last = thread_nanoseconds();
    for _ in 0..20_000 {
        let now = thread_nanoseconds();
        samples.add(now - last);
        last = now;
    }
    samples.quantile(0.5, 0) as u64
}

#[inline]
fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable for the duration of the call.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time
}
