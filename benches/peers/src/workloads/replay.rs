//! A conversation trace, as a router and its fleet would live through it.
//!
//! **Trace.** One JSON object a line with `hash_ids`, one id for each block of
//! 512 tokens of the prompt; each becomes 32 blocks of 16 tokens. A block's
//! content is one of its id and its part; its name is one of its content and
//! of the name above it, so all workers name alike.
//!
//! **Fleet.** 32 workers with caches of 40,000 blocks, simulated before the
//! clock starts, so that every index gets the same stream. A request goes to
//! the worker that has the longest prefix of it cached; of several to the one
//! that has had to compute least so far. A worker that has had to compute more
//! than 1.2 times the mean takes no further request. Of a prompt longer than
//! the cache the beginning is kept. The worker evicts the least recently used
//! blocks where it needs room, only such that have nothing cached below them,
//! in one event, then stores what it misses in one event. What was answered is
//! not in a trace.
//!
//! **Measured.** One thread plays the stream, for each request the query with
//! the whole prompt, the removal, the store, and ends with a flush. `rate`:
//! blocks looked up (matched or not), stored and removed, a second.

use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use lru::LruCache;
use serde::Deserialize;

use crate::block::{Block, mix};
use crate::metric::Metrics;
use crate::peer::Peer;
use crate::stopwatch::Stopwatch;

const WORKERS: usize = 32;
const CACHE_BLOCKS: usize = 40_000;
/// Blocks that an id of the trace stands for.
const PARTS: u64 = 32;
const BALANCE: f64 = 1.2;

#[derive(Deserialize)]
struct Line {
    hash_ids: Vec<u64>,
}

/// What a request comes to.
struct Request {
    worker: u32,
    query: Vec<u64>,
    removed: Vec<u64>,
    parent: Option<u64>,
    stored: Vec<Block>,
}

struct Worker {
    cache: LruCache<u64, ()>,
    /// Blocks it has had to compute so far.
    load: f64,
}

struct Fleet {
    workers: Vec<Worker>,
}

impl Fleet {
    fn new() -> Self {
        let worker = || Worker { cache: LruCache::unbounded(), load: 0.0 };
        Self { workers: (0..WORKERS).map(|_| worker()).collect() }
    }

    /// Who takes the prompt, and how much of it that worker has.
    fn route(&self, prompt: &[Block]) -> (usize, usize) {
        let mean = self.workers.iter().map(|worker| worker.load).sum::<f64>() / WORKERS as f64;
        let cached = |(at, worker): (usize, &Worker)| {
            // What is above a cached block is cached too.
            (at, prompt.partition_point(|block| worker.cache.contains(&block.name)))
        };
        self.workers
            .iter()
            .enumerate()
            .filter(|(_, worker)| worker.load <= mean * BALANCE)
            .map(cached)
            .min_by(|(a, has_a), (b, has_b)| {
                let load = |at: usize| self.workers[at].load;
                has_b.cmp(has_a).then(load(*a).total_cmp(&load(*b)))
            })
            .expect("not all are above 1.2 times their mean")
    }

    fn serve(&mut self, prompt: &[Block]) -> Request {
        let (at, cached) = self.route(prompt);
        let worker = &mut self.workers[at];
        let kept = &prompt[..prompt.len().min(CACHE_BLOCKS)];
        let stored = &kept[cached.min(kept.len())..];
        // Touched from the end up, a block is never younger than the one
        // above it, so the oldest has nothing below it.
        for block in kept.iter().rev() {
            worker.cache.promote(&block.name);
        }
        let mut removed = Vec::new();
        while worker.cache.len() + stored.len() > CACHE_BLOCKS {
            let Some((name, ())) = worker.cache.pop_lru() else { break };
            removed.push(name);
        }
        for block in kept.iter().rev() {
            worker.cache.put(block.name, ());
        }
        worker.load += (prompt.len() - cached) as f64;
        Request {
            worker: at as u32,
            query: prompt.iter().map(|block| block.local).collect(),
            removed,
            parent: cached.checked_sub(1).map(|above| prompt[above].name),
            stored: stored.to_vec(),
        }
    }
}

/// The trace's prompts, at most `limit`.
fn read(trace: &Path, limit: usize) -> Result<Vec<Vec<Block>>> {
    let shown = trace.display();
    let file = File::open(trace).with_context(|| format!("cannot open the trace {shown}"))?;
    let mut prompts = Vec::new();
    for (at, line) in BufReader::new(file).lines().take(limit).enumerate() {
        let read = line.map_err(anyhow::Error::from);
        let parsed = read.and_then(|line| Ok(serde_json::from_str::<Line>(&line)?));
        let line = parsed.with_context(|| format!("trace {shown}, line {}", at + 1))?;
        let mut above = 0;
        let locals = line.hash_ids.iter().flat_map(|id| (0..PARTS).map(move |p| id * PARTS + p));
        let prompt = locals.map(|key| {
            let local = mix(key);
            above = mix(above ^ local);
            Block { name: above, local }
        });
        prompts.push(prompt.collect());
    }
    ensure!(!prompts.is_empty(), "trace {shown}: there is no request in it");
    Ok(prompts)
}

pub fn run<P: Peer>(trace: &Path, limit: usize) -> Result<Metrics> {
    let mut fleet = Fleet::new();
    let requests: Vec<Request> =
        read(trace, limit)?.iter().map(|prompt| fleet.serve(prompt)).collect();
    drop(fleet);

    let peer = P::new(WORKERS as u32);
    let mut writer = peer.writer();
    let mut reader = P::Reader::default();
    let mut operations = 0;
    let mut metrics = Metrics::default();
    let watch = Stopwatch::start();
    for request in &requests {
        let mut sum = 0_u64;
        peer.matches(&mut reader, P::query(&request.query), |worker, depth| {
            sum += u64::from(worker ^ depth);
        });
        black_box(sum);
        if !request.removed.is_empty() {
            peer.remove(&mut writer, request.worker, &request.removed);
        }
        if !request.stored.is_empty() {
            peer.store(&mut writer, request.worker, request.parent, &request.stored);
        }
        operations += request.query.len() + request.removed.len() + request.stored.len();
    }
    peer.flush();
    watch.stop(operations, "replay.rate", &mut metrics);
    Ok(metrics)
}
