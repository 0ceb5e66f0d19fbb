//! How long a stretch of work takes.

use std::time::Instant;

use crate::metric::{Metrics, Unit};
use crate::samples::{Clock, work};

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

/// What is to be known of the thread's clock.
pub fn thread_clock() -> Clock {
    Clock::looked_at(|rounds| {
        let started = thread_nanoseconds();
        work(rounds);
        thread_nanoseconds() - started
    })
}

#[inline]
fn read(clock: libc::clockid_t) -> libc::timespec {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable for the duration of the call.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time
}
