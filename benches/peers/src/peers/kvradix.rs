//! kvradix, with its default settings.

use kvradix::{Index, LocalHash, Matches, SequenceHash, WorkerId};

use crate::block::Block;
use crate::peer::Peer;

pub struct Kvradix {
    index: Index,
}

#[derive(Default)]
pub struct Writer {
    blocks: Vec<kvradix::Block>,
    names: Vec<SequenceHash>,
}

fn id(worker: u32) -> WorkerId {
    WorkerId::new(worker.into(), 0)
}

impl Peer for Kvradix {
    type Writer = Writer;
    type Reader = Matches;
    type Query<'q> = &'q [LocalHash];

    fn new(_workers: u32) -> Self {
        Self { index: Index::new() }
    }

    fn writer(&self) -> Writer {
        Writer::default()
    }

    #[inline]
    fn store(&self, writer: &mut Writer, worker: u32, parent: Option<u64>, blocks: &[Block]) {
        writer.blocks.clear();
        writer.blocks.extend(blocks.iter().map(|block| kvradix::Block {
            sequence: SequenceHash(block.name),
            local: LocalHash(block.local),
        }));
        self.index
            .store(id(worker), parent.map(SequenceHash), &writer.blocks)
            .expect("workloads store under blocks that are held");
    }

    #[inline]
    fn remove(&self, writer: &mut Writer, worker: u32, names: &[u64]) {
        writer.names.clear();
        writer.names.extend(names.iter().copied().map(SequenceHash));
        self.index.remove(id(worker), &writer.names);
    }

    fn drop_worker(&self, _writer: &mut Writer, worker: u32) {
        self.index.remove_worker(id(worker));
    }

    fn flush(&self) {
        self.index.flush();
    }

    #[inline]
    fn query(locals: &[u64]) -> &[LocalHash] {
        LocalHash::from_slice(locals)
    }

    #[inline]
    fn matches(&self, reader: &mut Matches, query: &[LocalHash], mut report: impl FnMut(u32, u32)) {
        self.index.matches_into(query, reader);
        for found in reader.iter() {
            report(found.worker.id as u32, found.depth);
        }
    }
}
