//! The threads that make the load: writers, each with workers of its own, and
//! readers.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use kvradix::reference::ReferenceIndex;
use kvradix::{Block, Event, Index, LocalHash, Matches, SequenceHash, StoreError, WorkerId};
use parking_lot::{Mutex, MutexGuard};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::Plant;
use super::worker::{Kind, Worker};
use crate::args::{Evict, SoakArgs};
use crate::chain::Request;
use crate::counting::{self, Whose};
use crate::generator::{Generator, Recipe};
use crate::latency::Latencies;

/// Tokens of a block: few blocks a prompt, many requests.
const BLOCK_TOKENS: u32 = 64;
/// Prompts that readers choose from.
const RECENT: usize = 256;
/// A request in so many restarts a worker, clears one, moves names, has its
/// answer compared.
const RESTART: u32 = 2_000;
const CLEAR: u32 = 4_000;
const WANDER: u32 = 20;
const COMPARE: u32 = 50;
/// Requests that its writer serves while a worker is away.
const AWAY: u64 = 200;
/// How far behind its rate a thread may fall and still make up for it.
const MOST_BEHIND: Duration = Duration::from_millis(200);

/// What all threads share.
pub struct Load<'i> {
    pub index: &'i Index,
    pub latencies: Latencies,
    pub writers: Vec<Mutex<Writer>>,
    readers: Vec<Mutex<Reader>>,
    generator: Mutex<Generator>,
    recent: Vec<Mutex<Vec<LocalHash>>>,
    /// Blocks stored and removed, and looked up by readers.
    pub operations: AtomicU64,
    pub counts: Counts,
    stop: AtomicBool,
    plant: Option<Plant>,
}

/// What has happened so far.
#[derive(Default)]
pub struct Counts {
    pub requests: AtomicU64,
    pub queries: AtomicU64,
    pub restarts: AtomicU64,
    pub clears: AtomicU64,
    pub moves: AtomicU64,
    /// Answers that were compared with the reference's.
    pub compared: AtomicU64,
}

impl<'i> Load<'i> {
    pub fn new(args: &SoakArgs, index: &'i Index) -> Result<Self> {
        let recipe = Recipe {
            seed: args.seed,
            block_size: BLOCK_TOKENS,
            system_prompts: 64,
            conversations: 256,
        };
        let writer = |number| Mutex::new(Writer::new(args, number));
        let reader = |number| {
            let rng = SmallRng::seed_from_u64(args.seed ^ u64::from(number) << 32);
            Mutex::new(Reader { rng, query: Vec::new(), matches: Matches::new() })
        };
        Ok(Self {
            index,
            latencies: Latencies::new(args.readers.into())?,
            writers: (0..args.writers).map(writer).collect(),
            readers: (0..args.readers).map(reader).collect(),
            generator: Mutex::new(Generator::new(recipe)?),
            recent: (0..RECENT).map(|_| Mutex::default()).collect(),
            operations: AtomicU64::new(0),
            counts: Counts::default(),
            stop: AtomicBool::new(false),
            plant: args.plant,
        })
    }

    /// What has happened, at the end.
    pub fn into_counts(mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// Every writer and reader between two requests: nothing runs until the
    /// result is dropped.
    pub fn pause(&self) -> (Vec<MutexGuard<'_, Writer>>, Vec<MutexGuard<'_, Reader>>) {
        let writers = self.writers.iter().map(Mutex::lock).collect();
        (writers, self.readers.iter().map(Mutex::lock).collect())
    }

    /// Whether all threads are to end, or have.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Ends all threads.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// A writer thread: serves requests, `rate` block operations a second,
    /// until it is stopped.
    ///
    /// # Errors
    ///
    /// The index refused what it should not, took what it should not, or
    /// answered wrongly.
    pub fn write(&self, number: usize, rate: f64) -> Result<()> {
        counting::of(Whose::Simulation, || {
            self.run(rate, || self.writers[number].lock().serve(self))
        })
    }

    /// A reader thread: looks prompts up, `rate` blocks a second, until it is
    /// stopped.
    ///
    /// # Errors
    ///
    /// An answer that cannot be.
    pub fn read(&self, number: usize, rate: f64) -> Result<()> {
        counting::of(Whose::Simulation, || {
            self.run(rate, || self.readers[number].lock().ask(number, self))
        })
    }

    fn run(&self, rate: f64, mut step: impl FnMut() -> Result<u64>) -> Result<()> {
        let mut began = Instant::now();
        let mut done = 0;
        while !self.is_stopped() {
            let operations = step().inspect_err(|_| self.stop())?;
            self.operations.fetch_add(operations, Ordering::Relaxed);
            done += operations;
            let due = Duration::from_secs_f64(done as f64 / rate);
            match due.checked_sub(began.elapsed()) {
                // Not for long, should the rate be very low.
                Some(early) => thread::sleep(early.min(Duration::from_millis(100))),
                None => began += (began.elapsed() - due).saturating_sub(MOST_BEHIND),
            }
        }
        Ok(())
    }
}

impl Drop for Load<'_> {
    /// Answers have grown in queries, so they are counted as the index's.
    fn drop(&mut self) {
        counting::of(Whose::Index, || {
            for reader in &mut self.readers {
                reader.get_mut().matches = Matches::new();
            }
            for writer in &mut self.writers {
                writer.get_mut().matches = Matches::new();
            }
        });
    }
}

/// A writer and its workers.
pub struct Writer {
    pub workers: Vec<Worker>,
    /// Takes the events of those of the workers that are watched.
    pub reference: ReferenceIndex,
    /// When workers that are away come back, and as whom.
    away: Vec<(u64, usize, WorkerId)>,
    /// Workers of all writers; what tells a worker's lives apart.
    fleet: u64,
    /// How many writers there are.
    writers: u64,
    served: u64,
    rng: SmallRng,
    request: Request,
    matches: Matches,
    expected: Matches,
}

impl Writer {
    fn new(args: &SoakArgs, number: u16) -> Self {
        let (fleet, writers) = (u64::from(args.workers), u64::from(args.writers));
        let workers = (u64::from(number)..fleet).step_by(args.writers.into()).enumerate();
        let worker = |(at, id): (usize, u64)| {
            let kind = Kind {
                capacity: args.cache_blocks as usize,
                evict: if at % 2 == 0 { Evict::Leaf } else { Evict::Any },
                own_names: at / 2 % 2 == 1,
                watched: at / 4 % 4 == 0,
            };
            Worker::new(WorkerId::new(id, 0), kind)
        };
        Self {
            workers: workers.map(worker).collect(),
            reference: ReferenceIndex::new(),
            away: Vec::new(),
            fleet,
            writers,
            served: 0,
            rng: SmallRng::seed_from_u64(args.seed.wrapping_add(number.into())),
            request: Request::default(),
            matches: Matches::new(),
            expected: Matches::new(),
        }
    }

    /// Serves a request, and does what else is due; blocks stored and removed.
    fn serve(&mut self, load: &Load<'_>) -> Result<u64> {
        self.served += 1;
        load.counts.requests.fetch_add(1, Ordering::Relaxed);
        self.come_back();
        load.generator.lock().fill(&mut self.request);
        self.look_up(load);
        let Some(at) = self.choose() else { return Ok(0) };
        let mut events = Vec::new();
        let served = self.workers[at].serve(&self.request, &mut |event| events.push(event));
        let operations = (served.stored + served.removed) as u64;
        for event in &events {
            self.tell(load, at, event)?;
        }
        if self.one_in(WANDER) {
            let moved = self.workers[at].wander(&self.request.chain, &mut self.rng);
            self.tell(load, at, &moved)?;
            let lost = self.workers[at].lose(&mut self.rng);
            self.tell(load, at, &lost)?;
            load.counts.moves.fetch_add(1, Ordering::Relaxed);
        }
        if self.one_in(CLEAR) {
            let cleared = Event::Cleared { worker: self.workers[at].id };
            self.tell(load, at, &cleared)?;
            self.workers[at].forget();
            load.counts.clears.fetch_add(1, Ordering::Relaxed);
        }
        if self.one_in(RESTART) {
            self.leave(load, at)?;
        }
        let slot = self.rng.random_range(0..RECENT);
        let mut recent = load.recent[slot].lock();
        recent.clear();
        recent.extend_from_slice(self.request.query());
        drop(recent);
        if self.one_in(COMPARE) {
            self.compare(load)?;
        }
        self.do_harm(load);
        Ok(operations)
    }

    fn one_in(&mut self, requests: u32) -> bool {
        self.rng.random_ratio(1, requests)
    }

    fn look_up(&mut self, load: &Load<'_>) {
        let Self { request, matches, .. } = self;
        counting::of(Whose::Index, || load.index.matches_into(request.query(), matches));
    }

    /// The worker of ours that has most of the prompt, mostly; else any.
    fn choose(&mut self) -> Option<usize> {
        let ours = |id: WorkerId| {
            let ordinal = id.id % self.fleet;
            let at = (ordinal / self.writers) as usize;
            let ours = self.workers.get(at).is_some_and(|worker| worker.id == id);
            ours.then_some(at)
        };
        let best = self.matches.iter().find_map(|found| ours(found.worker));
        if let Some(at) = best.filter(|at| self.is_here(*at))
            && self.rng.random_bool(0.75)
        {
            return Some(at);
        }
        let at = self.rng.random_range(0..self.workers.len());
        self.is_here(at).then_some(at)
    }

    fn is_here(&self, at: usize) -> bool {
        self.away.iter().all(|(_, away, _)| *away != at)
    }

    /// One event of a worker of ours, to the index and, if the worker is
    /// watched, to the reference.
    fn tell(&mut self, load: &Load<'_>, at: usize, event: &Event) -> Result<()> {
        let worker = &mut self.workers[at];
        let told = counting::of(Whose::Index, || load.index.apply(event));
        if let Err(error) = told {
            bail!("the index refused an event of an engine: {error}");
        }
        if worker.kind.watched
            && let Err(error) = self.reference.apply(event)
        {
            bail!("the reference refused an event of an engine: {error}");
        }
        worker.known |= matches!(event, Event::Stored { .. });
        Ok(())
    }

    /// The worker leaves; events of its that come late must do nothing.
    fn leave(&mut self, load: &Load<'_>, at: usize) -> Result<()> {
        let id = self.workers[at].id;
        counting::of(Whose::Index, || load.index.remove_worker(id));
        self.reference.remove_worker(id);
        let name = SequenceHash(self.served);
        counting::of(Whose::Index, || {
            load.index.remove(id, &[name]);
            load.index.clear(id);
        });
        let block = Block { sequence: SequenceHash(!0), local: LocalHash(0) };
        let late = counting::of(Whose::Index, || load.index.store(id, Some(name), &[block]));
        let refused = matches!(late, Err(StoreError::ParentNotFound { .. }));
        ensure!(refused, "a late store of a worker that had left: {late:?}");
        // Back as the same one, or as another.
        let next = if self.rng.random_bool(0.5) { id.id } else { id.id + self.fleet };
        self.away.push((self.served + AWAY, at, WorkerId::new(next, id.dp_rank)));
        self.workers[at].restart(id);
        load.counts.restarts.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn come_back(&mut self) {
        if let Some((due, at, id)) = self.away.first().copied()
            && due <= self.served
        {
            self.away.remove(0);
            self.workers[at].restart(id);
        }
    }

    /// Compares the index's answer, as far as it speaks of watched workers of
    /// ours, with the reference's. Nobody else tells of them, so they are
    /// still, whatever all others do.
    fn compare(&mut self, load: &Load<'_>) -> Result<()> {
        for worker in self.workers.iter().filter(|worker| worker.kind.watched) {
            counting::of(Whose::Index, || load.index.flush_worker(worker.id));
        }
        self.look_up(load);
        self.reference.matches_into(self.request.query(), &mut self.expected);
        let ours = |id: WorkerId| {
            let mut watched = self.workers.iter().filter(|worker| worker.kind.watched);
            watched.any(|worker| worker.id == id)
        };
        let answer = self.matches.iter().filter(|found| ours(found.worker));
        let mut found: Vec<_> = answer.map(|found| (found.worker, found.depth)).collect();
        let mut expected: Vec<_> =
            self.expected.iter().map(|found| (found.worker, found.depth)).collect();
        found.sort_unstable();
        expected.sort_unstable();
        ensure!(
            found == expected,
            "a wrong answer to a prompt of {} blocks: index {found:?}, reference {expected:?}",
            self.request.prompt_blocks
        );
        load.counts.compared.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// What the watchers of this run are to find.
    fn do_harm(&mut self, load: &Load<'_>) {
        match load.plant {
            Some(Plant::Leak) => counting::of(Whose::Index, || {
                std::mem::forget(vec![0_u8; 256]);
            }),
            Some(Plant::Answer) if self.served.is_multiple_of(1_000) => {
                let watched = self.workers.iter().find(|worker| worker.kind.watched);
                if let (Some(worker), [first, ..]) = (watched, self.request.query()) {
                    let block = Block { sequence: SequenceHash(!0), local: *first };
                    let stored = self.reference.store(worker.id, None, &[block]);
                    debug_assert!(stored.is_ok());
                }
            }
            _ => {}
        }
    }
}

/// A reader and its buffers.
pub struct Reader {
    rng: SmallRng,
    query: Vec<LocalHash>,
    matches: Matches,
}

impl Reader {
    /// Looks up a prompt that was served lately, some of it, or more than it;
    /// its blocks.
    fn ask(&mut self, number: usize, load: &Load<'_>) -> Result<u64> {
        let Self { rng, query, matches } = self;
        query.clear();
        query.extend_from_slice(&load.recent[rng.random_range(0..RECENT)].lock());
        match rng.random_range(0..4) {
            0 => query.truncate(rng.random_range(0..=query.len())),
            1 => query.extend([LocalHash(rng.random()), LocalHash(0)]),
            _ => {}
        }
        counting::of(Whose::Index, || load.latencies.query(number, load.index, query, matches));
        let most = matches.iter().map(|found| found.depth as usize).max().unwrap_or(0);
        ensure!(most <= query.len(), "{most} blocks found of a prompt of {}", query.len());
        load.counts.queries.fetch_add(1, Ordering::Relaxed);
        Ok(query.len().max(1) as u64)
    }
}
