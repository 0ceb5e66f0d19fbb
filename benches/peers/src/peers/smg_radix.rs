//! `RadixTree` of smg-radix-tree: one writer or many readers, so it stands
//! behind a read-write lock.

use parking_lot::RwLock;
use radix_tree::{Config, HolderId, Overlap, OverlapScratch, RadixTree};

use crate::block::Block;
use crate::peer::Peer;

pub struct SmgRadix {
    tree: RwLock<RadixTree>,
    workers: u32,
}

pub struct Writer {
    /// Per worker its holder.
    holders: Vec<HolderId>,
    blocks: Vec<(u64, u64)>,
}

#[derive(Default)]
pub struct Reader {
    scratch: OverlapScratch,
    found: Vec<Overlap>,
}

/// Makes the worker's holder, whose index shall be its number, so that
/// answers need no translation.
fn join(tree: &mut RadixTree, worker: u32) -> HolderId {
    let holder = tree.create_holder(&worker.to_string());
    assert_eq!(holder.parts().0, worker, "indexes are given in order and come back");
    holder
}

impl Peer for SmgRadix {
    type Writer = Writer;
    type Reader = Reader;
    type Query<'q> = &'q [u64];

    fn new(workers: u32) -> Self {
        Self { tree: RwLock::new(RadixTree::new(Config::default())), workers }
    }

    fn writer(&self) -> Writer {
        let tree = &mut self.tree.write();
        let holders = (0..self.workers).map(|worker| join(tree, worker)).collect();
        Writer { holders, blocks: Vec::new() }
    }

    #[inline]
    fn store(&self, writer: &mut Writer, worker: u32, parent: Option<u64>, blocks: &[Block]) {
        writer.blocks.clear();
        writer.blocks.extend(blocks.iter().map(|block| (block.name, block.local)));
        let holder = writer.holders[worker as usize];
        let stored = self.tree.write().store(holder, parent, &writer.blocks);
        stored.expect("workloads store under blocks that are held");
    }

    #[inline]
    fn remove(&self, writer: &mut Writer, worker: u32, names: &[u64]) {
        self.tree.write().remove(writer.holders[worker as usize], names);
    }

    fn drop_worker(&self, writer: &mut Writer, worker: u32) {
        let tree = &mut self.tree.write();
        let holder = &mut writer.holders[worker as usize];
        tree.retire_holder(*holder);
        // At once, so that it gets its index again.
        *holder = join(tree, worker);
    }

    fn flush(&self) {}

    #[inline]
    fn query(locals: &[u64]) -> &[u64] {
        locals
    }

    #[inline]
    fn matches(&self, reader: &mut Reader, query: &[u64], mut report: impl FnMut(u32, u32)) {
        self.tree.read().overlap(query, &mut reader.scratch, &mut reader.found);
        for found in &reader.found {
            report(found.holder.parts().0, found.depth);
        }
    }
}
