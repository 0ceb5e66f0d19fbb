//! `ChainIndex` of kv-index. Whoever writes for a worker owns that worker's
//! block map; here that is the one writing thread, which needs no lock.

use kv_index::{ChainBlockMap, ChainIndex, ContentHash, SequenceHash, StoredBlock};

use crate::block::Block;
use crate::peer::Peer;

pub struct KvIndex {
    index: ChainIndex,
    workers: u32,
}

pub struct Writer {
    /// Per worker its block map.
    maps: Vec<ChainBlockMap>,
    blocks: Vec<StoredBlock>,
    names: Vec<SequenceHash>,
}

impl KvIndex {
    /// Takes the worker's slot, which shall have its number, so that answers
    /// need no translation.
    fn intern(&self, worker: u32) {
        let slot = self.index.intern_worker(&worker.to_string()).expect("room for all workers");
        assert_eq!(slot, worker, "slots are given in order and come back");
    }
}

impl Peer for KvIndex {
    type Writer = Writer;
    type Reader = ();
    type Query<'q> = &'q [u64];

    /// Above it, slots run out.
    const MOST_WORKERS: u32 = 1_024;

    fn new(workers: u32) -> Self {
        Self { index: ChainIndex::with_max_workers(workers as usize), workers }
    }

    fn writer(&self) -> Writer {
        let join = |worker| {
            self.intern(worker);
            ChainBlockMap::new()
        };
        let maps = (0..self.workers).map(join).collect();
        Writer { maps, blocks: Vec::new(), names: Vec::new() }
    }

    #[inline]
    fn store(&self, writer: &mut Writer, worker: u32, parent: Option<u64>, blocks: &[Block]) {
        writer.blocks.clear();
        writer.blocks.extend(blocks.iter().map(|block| StoredBlock {
            seq_hash: SequenceHash(block.name),
            content_hash: ContentHash(block.local),
        }));
        let map = &mut writer.maps[worker as usize];
        self.index
            .apply_stored(worker, &writer.blocks, parent.map(SequenceHash), map)
            .expect("workloads store under blocks that are held");
    }

    #[inline]
    fn remove(&self, writer: &mut Writer, worker: u32, names: &[u64]) {
        writer.names.clear();
        writer.names.extend(names.iter().copied().map(SequenceHash));
        let map = &mut writer.maps[worker as usize];
        self.index.apply_removed(worker, &writer.names, map);
    }

    fn drop_worker(&self, writer: &mut Writer, worker: u32) {
        let map = std::mem::take(&mut writer.maps[worker as usize]);
        self.index.remove_worker(worker, map);
        // At once, so that it gets its slot again.
        self.intern(worker);
    }

    fn flush(&self) {}

    #[inline]
    fn query(locals: &[u64]) -> &[u64] {
        locals
    }

    #[inline]
    fn matches(&self, _reader: &mut (), query: &[u64], report: impl FnMut(u32, u32)) {
        self.index.score_into(query, |local| *local, false, report);
    }
}
