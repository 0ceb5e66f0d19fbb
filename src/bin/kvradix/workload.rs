//! Where requests come from.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result};
use parking_lot::Mutex;

use crate::args::ReplayArgs;
use crate::chain::Request;
use crate::generator::Generator;
use crate::trace::Trace;

/// Requests in a fixed order, handed out to any number of threads.
#[derive(Debug)]
pub struct Workload {
    source: Source,
    total: u64,
    taken: AtomicU64,
}

#[derive(Debug)]
enum Source {
    Generated(Mutex<Generator>),
    Trace(Trace),
}

impl Workload {
    /// The workload that was asked for.
    ///
    /// # Errors
    ///
    /// The trace cannot be read; see [`Trace::read`].
    pub fn new(args: &ReplayArgs) -> Result<Self> {
        let (source, total) = match &args.trace {
            None => (Source::Generated(Mutex::new(Generator::new(args.into())?)), args.requests),
            Some(path) => trace(path, args)?,
        };
        Ok(Self { source, total, taken: AtomicU64::new(0) })
    }

    /// How many requests there are.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Fills in the next request; `false` when there is none.
    pub fn next(&self, request: &mut Request) -> bool {
        let at = self.taken.fetch_add(1, Ordering::Relaxed);
        if at >= self.total {
            return false;
        }
        match &self.source {
            Source::Generated(generator) => generator.lock().fill(request),
            Source::Trace(trace) => trace.fill((at % trace.len() as u64) as usize, request),
        }
        true
    }
}

fn trace(path: &Path, args: &ReplayArgs) -> Result<(Source, u64)> {
    let trace = Trace::read(path, args.block_size)?;
    let total = (trace.len() as u64).checked_mul(args.repeat);
    let total = total.context("--repeat makes more requests than can be counted")?;
    Ok((Source::Trace(trace), total))
}
