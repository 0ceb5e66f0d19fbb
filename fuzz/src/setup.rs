//! How the index under test is built: the first bytes of an input.

use std::sync::LazyLock;
use std::time::Duration;

use kvradix::reference::ReferenceIndex;
use kvradix::{Builder, Index, Pool};

/// The bytes that say it.
pub const HEADER: usize = 8;

/// Settings of an index.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    run_blocks: u32,
    hub_threshold: usize,
    /// Removals go to a thread that all inputs share.
    drained_by_pool: bool,
    drain_threshold: usize,
    max_pending: usize,
    removal_delay: Duration,
    max_blocks: Option<u64>,
    max_worker_blocks: Option<u64>,
    /// Steps between two looks at everything; 0: only at the end.
    pub census_every: usize,
    /// Events from one snapshot to the next, from which the index goes on; 0:
    /// none.
    pub restart_every: usize,
    /// How workers leave at the end.
    pub goodbye: u8,
}

/// One thread for all, so that an input does not pay for its start.
static POOL: LazyLock<Pool> = LazyLock::new(|| Pool::new(1));

impl Setup {
    pub fn of(header: &[u8; HEADER]) -> Self {
        let [run, hub, pool, threshold, pending, delay, census, goodbye] = *header;
        Self {
            run_blocks: [4, 4096, 1, 2, 3, 8, 64, 128][run as usize % 8],
            hub_threshold: [2, 12, 0, 1, 9, 12, 0, 1][hub as usize % 8],
            drained_by_pool: pool >= 192,
            drain_threshold: [64, 1, 2, 8][threshold as usize % 4],
            max_pending: [65_536, 0, 1, 24][pending as usize % 4],
            removal_delay: Duration::from_micros([1000, 0, 20, 100][delay as usize % 4]),
            // What another worker's queued removals would make room for is not
            // in the contract.
            max_blocks: (delay >= 192 && pool < 192).then(|| u64::from(delay - 191) * 2),
            max_worker_blocks: (128..192).contains(&delay).then(|| u64::from(delay - 127)),
            census_every: [0, 0, 16, 5][census as usize % 4],
            restart_every: if census >= 192 { 4 + census as usize / 4 % 16 } else { 0 },
            goodbye,
        }
    }

    /// Whether a removal is visible when its call returns.
    pub fn is_prompt(&self) -> bool {
        !self.drained_by_pool
    }

    /// With its limits.
    pub fn limited(&self) -> Builder {
        let mut builder = self.builder();
        if let Some(blocks) = self.max_blocks {
            builder = builder.max_blocks(blocks);
        }
        if let Some(blocks) = self.max_worker_blocks {
            builder = builder.max_worker_blocks(blocks);
        }
        builder
    }

    /// With the same limits.
    pub fn reference(&self) -> ReferenceIndex {
        let mut reference = ReferenceIndex::new();
        if let Some(blocks) = self.max_blocks {
            reference = reference.max_blocks(blocks);
        }
        if let Some(blocks) = self.max_worker_blocks {
            reference = reference.max_worker_blocks(blocks);
        }
        reference
    }

    /// Without its limits.
    pub fn builder(&self) -> Builder {
        let builder = Index::builder()
            .run_blocks(self.run_blocks)
            .hub_threshold(self.hub_threshold)
            .drain_threshold(self.drain_threshold)
            .max_pending(self.max_pending)
            .removal_delay(self.removal_delay);
        if self.drained_by_pool { builder.pool(&POOL) } else { builder.drain_threads(0) }
    }
}
