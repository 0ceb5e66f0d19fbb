//! The concurrent compressed tree of dynamo-kv-router behind its thread pool:
//! events go through queues to the pool's threads, queries run on the
//! caller's.

use std::thread::available_parallelism;

use dynamo_kv_router::indexer::concurrent_radix_tree_compressed::ConcurrentRadixTreeCompressed;
use dynamo_kv_router::indexer::{KvIndexerInterface, SyncIndexer, ThreadPoolIndexer};
use dynamo_kv_router::protocols::{LocalBlockHash, RouterEvent};
use pollster::block_on;

use super::dynamo_events::{Events, query};
use crate::block::Block;
use crate::peer::Peer;

/// The queues have no bound, so without a wait now and then a fast writer's
/// memory and lead would grow for ever, and its rate would be the queue's.
const MOST_PENDING: u32 = 4_096;

pub struct DynamoConcurrent {
    pool: ThreadPoolIndexer<ConcurrentRadixTreeCompressed>,
}

#[derive(Default)]
pub struct Writer {
    events: Events,
    pending: u32,
}

impl DynamoConcurrent {
    #[inline]
    fn enqueue(&self, pending: &mut u32, event: RouterEvent) {
        self.pool.enqueue_event(event).expect("the pool is running");
        *pending += 1;
        if *pending == MOST_PENDING {
            *pending = 0;
            self.flush();
        }
    }
}

impl Peer for DynamoConcurrent {
    type Writer = Writer;
    type Reader = ();
    type Query<'q> = Vec<LocalBlockHash>;

    const ANY_ORDER: bool = false;

    fn new(_workers: u32) -> Self {
        // As many threads as the machine has cores, up to the router's own
        // default of four.
        let threads = available_parallelism().map_or(1, |cores| cores.get().min(4));
        let tree = ConcurrentRadixTreeCompressed::new();
        Self { pool: ThreadPoolIndexer::new(tree, threads, 16) }
    }

    fn writer(&self) -> Writer {
        Writer::default()
    }

    #[inline]
    fn store(&self, writer: &mut Writer, worker: u32, parent: Option<u64>, blocks: &[Block]) {
        self.enqueue(&mut writer.pending, writer.events.stored(worker, parent, blocks));
    }

    #[inline]
    fn remove(&self, writer: &mut Writer, worker: u32, names: &[u64]) {
        self.enqueue(&mut writer.pending, writer.events.removed(worker, names));
    }

    fn drop_worker(&self, _writer: &mut Writer, worker: u32) {
        block_on(KvIndexerInterface::remove_worker(&self.pool, worker.into()));
        self.flush();
    }

    fn flush(&self) {
        block_on(self.pool.flush_and_wait()).expect("the pool is running");
    }

    fn query(locals: &[u64]) -> Vec<LocalBlockHash> {
        query(locals)
    }

    #[inline]
    fn matches(
        &self,
        _reader: &mut (),
        query: Vec<LocalBlockHash>,
        mut report: impl FnMut(u32, u32),
    ) {
        let found = SyncIndexer::find_matches(self.pool.backend(), &query, false);
        for (worker, depth) in &found.scores {
            report(worker.worker_id as u32, *depth);
        }
    }
}
