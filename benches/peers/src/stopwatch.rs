//! How long a stretch of work takes.

use std::time::Instant;

use crate::metric::{Metrics, Unit};

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

    /// Adds the rate of `count` since the start; beside it, as `.cpu`, that
    /// for each second of processor time. Other processes hardly touch the
    /// latter, and an index's own threads count in it, so it tells how much
    /// work there is where the machine is not idle.
    pub fn stop(self, count: usize, key: &str, metrics: &mut Metrics) {
        let seconds = self.started.elapsed().as_secs_f64();
        let used = processor_seconds() - self.used;
        let millions = count as f64 / 1e6;
        metrics.add(key, Unit::MillionPerSecond, millions / seconds);
        metrics.add(format!("{key}.cpu"), Unit::MillionPerSecond, millions / used);
    }
}

fn processor_seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable for the duration of the call.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
