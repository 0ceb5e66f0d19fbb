//! Settings of an index.

use std::time::Duration;

use crate::Index;
use crate::sync::{Alarm, Arc, TaskPool};
use crate::tree::{Config, MOST_LISTED, NO_LIMIT, Threads, TreeConfig};

/// Settings of an [`Index`]; the defaults suit a router process.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use kvradix::Index;
///
/// let index = Index::builder()
///     .drain_threads(2)
///     .removal_delay(Duration::from_micros(200))
///     .build();
/// # drop(index);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    threads: usize,
    pool: Option<Pool>,
    removal_delay: Duration,
    drain_threshold: usize,
    max_pending: usize,
    run_blocks: u32,
    hub_threshold: usize,
    max_blocks: u64,
    max_worker_blocks: u64,
}

/// Drain threads that several indexes share.
///
/// The threads start with the first work and end with the last of the pool's
/// clones and indexes.
///
/// # Examples
/// One index per model, one pool for all:
/// ```
/// use kvradix::{Index, Pool};
///
/// let pool = Pool::new(2);
/// let models = ["small", "large"].map(|name| (name, Index::builder().pool(&pool).build()));
/// # drop(models);
/// ```
#[derive(Clone)]
pub struct Pool {
    threads: Arc<Threads>,
}

impl Pool {
    /// A pool of so many threads, 1,024 at most; with 0, `remove` applies
    /// before it returns.
    pub fn new(threads: usize) -> Self {
        let (alarm, tasks) = (Alarm::default(), TaskPool::new(threads.min(MOST_THREADS)));
        Self { threads: Arc::new(Threads { alarm, tasks }) }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.threads.tasks.threads()).finish()
    }
}

/// Most threads of a pool.
const MOST_THREADS: usize = 1_024;

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            threads: 1,
            pool: None,
            removal_delay: Duration::from_millis(1),
            drain_threshold: 1_024,
            max_pending: 65_536,
            run_blocks: 4_096,
            hub_threshold: 96,
            max_blocks: u64::MAX,
            max_worker_blocks: u64::MAX,
        }
    }

    /// Threads of the index's own that apply removals; 1 by default, 1,024 at
    /// most. More
    /// keep up with more workers that evict at once; with 0 there are none,
    /// and [`Index::remove`] applies before it returns. Ignored where a
    /// [`pool`](Self::pool) is given.
    pub fn drain_threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Shares the threads of `pool` instead of having own ones.
    pub fn pool(mut self, pool: &Pool) -> Self {
        self.pool = Some(pool.clone());
        self
    }

    /// How long after it was handed in a removal goes to the drain threads at
    /// the latest, whatever the traffic; 1 ms by default. It shows as soon as
    /// they get to run. Longer delays
    /// gather more removals of a node into one change.
    pub fn removal_delay(mut self, delay: Duration) -> Self {
        self.removal_delay = delay;
        self
    }

    /// Pending names of one worker at which they go to the drain threads at
    /// once; 1,024 by default, at least 1. Lower ones are visible sooner; with
    /// higher ones fewer wake-ups of a thread are paid for.
    pub fn drain_threshold(mut self, names: usize) -> Self {
        self.drain_threshold = names.max(1);
        self
    }

    /// Pending names of one worker above which [`Index::remove`] applies some
    /// of them itself, 512 or twice as many as it was given; 65,536 by
    /// default. Bounds the queue's memory where removals come faster than the
    /// drain threads apply them, and what the worker's next store has to apply
    /// before it begins.
    pub fn max_pending(mut self, names: usize) -> Self {
        self.max_pending = names;
        self
    }

    /// Most blocks of one node's run, 1 to 4,096 (the default). Small ones
    /// are for tests, in which rare shapes shall be frequent.
    pub fn run_blocks(mut self, blocks: u32) -> Self {
        self.run_blocks = blocks;
        self
    }

    /// Most children that a node lists in its view before it has a table for
    /// them, 0 to 1,024; 96 by default. Small ones are for tests.
    pub fn hub_threshold(mut self, children: usize) -> Self {
        self.hub_threshold = children.min(MOST_LISTED);
        self
    }

    /// Most blocks of the tree, [`Stats::tree_blocks`](crate::Stats); no limit
    /// by default.
    ///
    /// Never exceeded, whoever stores at once. Once the worker's queued
    /// removals are applied, a store reserves room for its whole batch, and is
    /// refused whole, with [`StoreError::IndexFull`](crate::StoreError), where
    /// the blocks of the tree, the batches of stores under way and its own
    /// come to more than the limit. So it may be refused although the tree
    /// has some of its blocks already: within one batch of each concurrent
    /// writer of the limit. Nothing is ever forgotten to make room.
    pub fn max_blocks(mut self, blocks: u64) -> Self {
        self.max_blocks = blocks;
        self
    }

    /// Most names of one worker, what [`Index::held`] counts; no limit by
    /// default.
    ///
    /// Exact: once the worker's queued removals are applied, a store that
    /// would leave it with more names is refused whole, with
    /// [`StoreError::WorkerFull`](crate::StoreError). Names that the worker
    /// has and stores again do not count twice.
    pub fn max_worker_blocks(mut self, blocks: u64) -> Self {
        self.max_worker_blocks = blocks;
        self
    }

    /// The index.
    pub fn build(self) -> Index {
        let pool = self.pool.unwrap_or_else(|| Pool::new(self.threads));
        let small = cfg!(kvradix_loom);
        let tree = TreeConfig {
            run_blocks: self.run_blocks,
            hub_threshold: self.hub_threshold,
            // A hub of one shard is copied whole as it grows, and locked whole by
            // who adds a child: so it gets more where twice as many hang as a
            // view lists.
            wide_threshold: if small { 6 } else { 192.min(16 * self.hub_threshold.max(1)) },
            wide_shards: if small { 2 } else { 128 },
            // In the models children of the root meet in one shard.
            root_shards: if small { 1 } else { 128 },
            lookup_shards: if small { 2 } else { 128 },
            // As many as there are shards, so that each is locked for one or
            // two. Fewer where runs are so short that none has so many.
            many_names: 128.min(self.run_blocks as usize / 8).max(3),
            max_blocks: limit(self.max_blocks),
            max_worker_blocks: limit(self.max_worker_blocks),
        };
        let config = Config {
            tree,
            registry_shards: if small { 2 } else { 64 },
            removal_delay: self.removal_delay,
            drain_threshold: self.drain_threshold,
            max_pending: self.max_pending,
        };
        Index::with(config, pool.threads)
    }
}

/// As many as the address space could hold are no limit.
fn limit(blocks: u64) -> usize {
    usize::try_from(blocks).unwrap_or(NO_LIMIT)
}
