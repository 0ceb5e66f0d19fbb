//! What is measured while a replay runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use crossbeam::channel::{Receiver, RecvTimeoutError};
use hdrhistogram::Histogram;
use indicatif::ProgressBar;
use kvradix::{Index, LocalHash, Matches};
use serde::Serialize;

use crate::latency::{Latencies, histogram};
use crate::memory;

/// How often queue depths are read.
const TICK: Duration = Duration::from_millis(10);
/// How many ticks pass between two points of the plot.
const TICKS_PER_SAMPLE: u32 = 10;
/// Where router threads write down what they do, and the watcher reads it.
#[derive(Debug)]
pub struct Monitor {
    latencies: Latencies,
    /// Requests served.
    served: AtomicU64,
    /// Events that wait between engines and appliers. Counted here because
    /// asking the queues takes an end of each, and they close, when a thread
    /// fails, by losing all of an end.
    queued: AtomicU64,
}

/// What the watcher saw.
#[derive(Debug)]
pub struct Watched {
    /// Of the whole run, in nanoseconds.
    pub query_ns: Histogram<u64>,
    pub queue: QueueDepth,
    /// Points of the plot; none unless one is drawn.
    pub samples: Vec<Sample>,
}

/// Events and removals that wait, seen every few milliseconds.
#[derive(Clone, Copy, Default, Debug, Serialize)]
pub struct QueueDepth {
    pub max: u64,
    pub mean: f64,
}

/// A point of the plot.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Seconds since the start.
    pub at: f64,
    /// Median and 99th percentile of the query times since the last point, in
    /// nanoseconds; `None` where there was no query.
    pub query_ns: Option<(u64, u64)>,
    pub resident_bytes: Option<u64>,
}

impl Monitor {
    pub fn new(routers: usize) -> Result<Self> {
        Ok(Self {
            latencies: Latencies::new(routers)?,
            served: AtomicU64::new(0),
            queued: AtomicU64::new(0),
        })
    }

    /// Looks `query` up as a router does, and writes down how long it took.
    pub fn query(&self, router: usize, index: &Index, query: &[LocalHash], matches: &mut Matches) {
        self.latencies.query(router, index, query, matches);
    }

    /// A request has been served.
    pub fn served(&self) {
        self.served.fetch_add(1, Ordering::Relaxed);
    }

    /// An event is about to be queued.
    pub fn queued(&self) {
        self.queued.fetch_add(1, Ordering::Relaxed);
    }

    /// So many events have been taken from a queue.
    pub fn unqueued(&self, events: usize) {
        self.queued.fetch_sub(events as u64, Ordering::Relaxed);
    }

    /// Watches until `stop` is closed.
    pub fn watch(
        &self,
        stop: &Receiver<()>,
        index: &Index,
        bar: &ProgressBar,
        plotted: bool,
    ) -> Result<Watched> {
        let started = Instant::now();
        let mut watched =
            Watched { query_ns: histogram()?, queue: QueueDepth::default(), samples: Vec::new() };
        let (mut depths, mut looks) = (0, 0);
        for tick in 1_u32.. {
            let stopped = stop.recv_timeout(TICK) != Err(RecvTimeoutError::Timeout);
            let depth = self.queued.load(Ordering::Relaxed) + index.stats().pending_removals;
            watched.queue.max = watched.queue.max.max(depth);
            depths += depth;
            looks += 1;
            bar.set_position(self.served.load(Ordering::Relaxed));
            if stopped || tick % TICKS_PER_SAMPLE == 0 {
                let since_last = self.latencies.take()?;
                watched.query_ns.add(&since_last)?;
                if plotted {
                    watched.samples.push(sample(started.elapsed(), &since_last));
                }
            }
            if stopped {
                break;
            }
        }
        watched.queue.mean = depths as f64 / f64::from(looks);
        Ok(watched)
    }
}

fn sample(at: Duration, query_ns: &Histogram<u64>) -> Sample {
    let quantiles = || (query_ns.value_at_quantile(0.5), query_ns.value_at_quantile(0.99));
    Sample {
        at: at.as_secs_f64(),
        query_ns: (!query_ns.is_empty()).then(quantiles),
        resident_bytes: memory::resident(),
    }
}
