//! An index that is written to a snapshot and read back every few events, and
//! goes on as what was read. Asks for the feature `snapshot`.

use kvradix::snapshot::{self, Cursor, Importer};
use kvradix::{
    Block, Builder, Event, Index, LocalHash, Matches, Refused, SequenceHash, Stats, StoreError,
    WorkerId,
};

use crate::common::subject::Subject;

pub struct Restarted {
    index: Index,
    builder: Builder,
    /// Events from one restart to the next.
    every: usize,
    /// Threads that load, beside the reader's.
    threads: usize,
    events: usize,
    /// Counts since the first start, which a snapshot does not keep.
    refused_blocks: u64,
    limited_blocks: u64,
    unknown_removals: u64,
}

impl Restarted {
    pub fn new(builder: Builder, every: usize, threads: usize) -> Self {
        let index = builder.clone().build();
        Self {
            index,
            builder,
            every,
            threads,
            events: 0,
            refused_blocks: 0,
            limited_blocks: 0,
            unknown_removals: 0,
        }
    }

    fn count(&mut self) {
        self.events += 1;
        if self.events.is_multiple_of(self.every) {
            self.restart();
        }
    }

    fn restart(&mut self) {
        let cursor = |worker: WorkerId| Cursor::from(worker.id ^ self.events as u64);
        let mut file = Vec::new();
        let written = snapshot::export(&self.index, &mut file, |worker| ((), cursor(worker)));
        let written = written.expect("memory takes it");
        assert_eq!(written.bytes, file.len() as u64);

        let importer = Importer::new().threads(self.threads);
        let warm = importer.import(file.as_slice(), self.builder.clone()).expect("just written");
        let expected: Vec<_> = self.index.workers().into_iter().map(|w| (w, cursor(w))).collect();
        assert_eq!(warm.cursors, expected);
        let (old, new) = (self.index.stats(), warm.index.stats());
        assert_eq!((new.workers, new.held_blocks), (written.workers, written.held_blocks));
        assert_eq!((new.workers, new.held_blocks), (old.workers, old.held_blocks));
        assert_eq!(new.tree_blocks, old.tree_blocks);
        let refused = (new.refused_blocks, new.limited_blocks, new.unknown_removals);
        assert_eq!(refused, (0, 0, 0));
        self.refused_blocks += old.refused_blocks;
        self.limited_blocks += old.limited_blocks;
        self.unknown_removals += old.unknown_removals;
        self.index = warm.index;
    }
}

impl Subject for Restarted {
    fn store(
        &mut self,
        worker: WorkerId,
        parent: Option<SequenceHash>,
        blocks: &[Block],
    ) -> Result<(), StoreError> {
        let stored = self.index.store(worker, parent, blocks);
        self.count();
        stored
    }
    fn remove(&mut self, worker: WorkerId, names: &[SequenceHash]) {
        self.index.remove(worker, names);
        self.count();
    }
    fn clear(&mut self, worker: WorkerId) {
        self.index.clear(worker);
        self.count();
    }
    fn remove_worker(&mut self, worker: WorkerId) {
        self.index.remove_worker(worker);
        self.count();
    }
    fn remove_ranks(&mut self, id: u64) {
        self.index.remove_ranks(id);
        self.count();
    }
    fn apply(&mut self, event: &Event) -> Result<(), StoreError> {
        let applied = self.index.apply(event);
        self.count();
        applied
    }
    fn apply_all(&mut self, events: &[Event]) -> Vec<Refused> {
        let refused = self.index.apply_all(events);
        self.count();
        refused
    }
    fn matches_into(&self, query: &[LocalHash], matches: &mut Matches) {
        self.index.matches_into(query, matches);
    }
    fn flush(&self) {
        self.index.flush();
    }
    fn flush_worker(&self, worker: WorkerId) {
        self.index.flush_worker(worker);
    }
    fn stats(&self) -> Stats {
        let mut stats = self.index.stats();
        stats.refused_blocks += self.refused_blocks;
        stats.limited_blocks += self.limited_blocks;
        stats.unknown_removals += self.unknown_removals;
        stats
    }
    fn workers(&self) -> Vec<WorkerId> {
        self.index.workers()
    }
    fn has(&self, worker: WorkerId, name: SequenceHash) -> bool {
        self.index.has(worker, name)
    }
    fn held(&self, worker: WorkerId) -> usize {
        self.index.held(worker)
    }
    fn export(&self, worker: WorkerId) -> Vec<Event> {
        self.index.export(worker)
    }
    fn check(&self) {
        self.index.check();
    }
    fn counts_events(&self) -> bool {
        // Those from before a restart are gone, and loading counts.
        false
    }
    fn has_lookup(&self) -> bool {
        true
    }
}
