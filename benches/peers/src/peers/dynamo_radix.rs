//! `RadixTree` of dynamo-kv-router: for one thread at a time, so it stands
//! behind a mutex, for queries too.

use dynamo_kv_router::indexer::RadixTree;
use dynamo_kv_router::protocols::LocalBlockHash;
use parking_lot::Mutex;

use super::dynamo_events::{Events, query};
use crate::block::Block;
use crate::peer::Peer;

pub struct DynamoRadix {
    tree: Mutex<Tree>,
}

struct Tree(RadixTree);

// SAFETY: the tree is not `Send` because its nodes are counted by `Rc`. All
// of these counts are inside the tree: no call used here hands one out, and
// none is bound to a thread. The mutex lets one thread at a time see them.
unsafe impl Send for Tree {}

impl Peer for DynamoRadix {
    type Writer = Events;
    type Reader = ();
    /// The tree takes the prompt by value.
    type Query<'q> = Vec<LocalBlockHash>;

    const ANY_ORDER: bool = false;

    fn new(_workers: u32) -> Self {
        Self { tree: Mutex::new(Tree(RadixTree::new())) }
    }

    fn writer(&self) -> Events {
        Events::default()
    }

    #[inline]
    fn store(&self, writer: &mut Events, worker: u32, parent: Option<u64>, blocks: &[Block]) {
        let event = writer.stored(worker, parent, blocks);
        let applied = self.tree.lock().0.apply_event(event);
        applied.expect("workloads store under blocks that are held");
    }

    #[inline]
    fn remove(&self, writer: &mut Events, worker: u32, names: &[u64]) {
        let event = writer.removed(worker, names);
        let applied = self.tree.lock().0.apply_event(event);
        applied.expect("workloads remove what is held");
    }

    fn drop_worker(&self, _writer: &mut Events, worker: u32) {
        self.tree.lock().0.remove_worker(worker.into());
    }

    fn flush(&self) {}

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
        let found = self.tree.lock().0.find_matches(query, false);
        for (worker, depth) in &found.scores {
            report(worker.worker_id as u32, *depth);
        }
    }
}
