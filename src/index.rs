//! The index as its users see it.

use crate::builder::Builder;
#[cfg(feature = "metrics")]
use crate::metrics::Queries;
#[cfg(feature = "metrics")]
use crate::sync::OnceLock;
use crate::sync::{Arc, yield_now};
use crate::tree::{Config, Shared, Threads};
use crate::{Block, Event, LocalHash, Matches, Refused, SequenceHash, Stats, StoreError, WorkerId};

/// Which workers hold how much of a prompt's prefix.
///
/// Share it between threads by reference or in an `Arc`; every call takes
/// `&self`. See the [crate's documentation](crate) for what readers and
/// writers see of each other.
pub struct Index {
    /// `None` only while it is being dropped.
    shared: Option<Arc<Shared>>,
    /// Counts of the queries, once somebody wants to see them.
    #[cfg(feature = "metrics")]
    queries: OnceLock<Arc<Queries>>,
}

impl Index {
    /// An index with the default settings.
    pub fn new() -> Self {
        Builder::new().build()
    }

    /// Settings to build an index with.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn with(config: Config, threads: Arc<Threads>) -> Self {
        Self {
            shared: Some(Arc::new(Shared::new(config, threads))),
            #[cfg(feature = "metrics")]
            queries: OnceLock::new(),
        }
    }

    /// Counts the queries from now on.
    #[cfg(feature = "metrics")]
    pub(crate) fn count_queries(&self) -> Arc<Queries> {
        self.queries.get_or_init(Arc::default).clone()
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        match &self.shared {
            Some(shared) => shared,
            None => unreachable!("taken by drop alone"),
        }
    }

    /// The worker now holds `blocks`, each below the one before, the first
    /// below its block `parent`, or at the beginning of a prompt.
    ///
    /// A name that the worker has already moves to its new place: all places
    /// of the batch are added first, then moved names give up their old ones,
    /// so what is held before and after is held throughout. Removals of this
    /// worker that were handed in before are applied first. An accepted store
    /// of at least one block makes the worker known; a store of no blocks
    /// does nothing.
    ///
    /// Takes O(blocks) and one look at the lookup for the parent and for each
    /// block that nobody held; readers and other workers go on meanwhile.
    ///
    /// # Errors
    /// [`StoreError::RepeatedHash`] if the batch has a name twice or its own
    /// parent's, [`StoreError::ParentNotFound`] if the worker does not have
    /// `parent` now. Nothing of a refused batch is stored.
    ///
    /// # Examples
    /// ```
    /// # use kvradix::{Block, Index, LocalHash, SequenceHash, StoreError, WorkerId};
    /// let (index, worker) = (Index::new(), WorkerId::new(1, 0));
    /// let block = |name, content| Block { sequence: SequenceHash(name), local: LocalHash(content) };
    ///
    /// index.store(worker, None, &[block(100, 10), block(101, 11)])?;
    /// index.store(worker, Some(SequenceHash(101)), &[block(102, 12)])?;
    /// assert_eq!(index.held(worker), 3);
    ///
    /// let parent = SequenceHash(999);
    /// let refused = index.store(worker, Some(parent), &[block(103, 13)]);
    /// assert_eq!(refused, Err(StoreError::ParentNotFound { worker, parent }));
    /// # Ok::<(), StoreError>(())
    /// ```
    pub fn store(
        &self,
        worker: WorkerId,
        parent: Option<SequenceHash>,
        blocks: &[Block],
    ) -> Result<(), StoreError> {
        self.shared().store(worker, parent, blocks)
    }

    /// The worker no longer has the blocks it calls `names`, in any order.
    ///
    /// Names it does not have are ignored and counted in
    /// [`Stats::unknown_removals`]. The removal is queued and applied on the
    /// drain threads: visible after [`flush`](Self::flush), before any later
    /// event of this worker, or the [`removal_delay`](Builder::removal_delay)
    /// after this call, whichever comes first. With zero drain threads it is
    /// visible when the call returns.
    ///
    /// # Examples
    /// ```
    /// # use kvradix::{Block, Index, LocalHash, SequenceHash, StoreError, WorkerId};
    /// # let (index, worker) = (Index::new(), WorkerId::new(1, 0));
    /// # let block = |name, content| Block { sequence: SequenceHash(name), local: LocalHash(content) };
    /// let prompt = LocalHash::from_slice(&[10, 11, 12]);
    /// index.store(worker, None, &[block(100, 10), block(101, 11), block(102, 12)])?;
    ///
    /// // The middle goes; the block below it counts again once it is back.
    /// index.remove(worker, &[SequenceHash(101)]);
    /// index.flush();
    /// assert_eq!(index.matches(prompt).depth_of(worker), 1);
    /// index.store(worker, Some(SequenceHash(100)), &[block(101, 11)])?;
    /// assert_eq!(index.matches(prompt).depth_of(worker), 3);
    /// # Ok::<(), StoreError>(())
    /// ```
    pub fn remove(&self, worker: WorkerId, names: &[SequenceHash]) {
        Shared::remove(self.shared(), worker, names);
    }

    /// The worker holds nothing any more; it stays known. Visible, and so are
    /// removals handed in before, when the call returns. Nothing happens where
    /// the worker is not known. O(what it held).
    pub fn clear(&self, worker: WorkerId) {
        self.shared().clear(worker);
    }

    /// The worker holds nothing any more and is forgotten. Visible when the call
    /// returns. What its engine says late is ignored, but a store at the root
    /// makes it known again; see *Known workers* in the crate's documentation.
    /// O(what it held).
    pub fn remove_worker(&self, worker: WorkerId) {
        Shared::remove_worker(self.shared(), worker);
    }

    /// Forgets every rank of worker `id`.
    pub fn remove_ranks(&self, id: u64) {
        Shared::remove_ranks(self.shared(), id);
    }

    /// Does what the event says.
    ///
    /// # Errors
    /// Those of [`store`](Self::store).
    pub fn apply(&self, event: &Event) -> Result<(), StoreError> {
        match event {
            Event::Stored { worker, parent, blocks } => self.store(*worker, *parent, blocks),
            Event::Removed { worker, names } => {
                self.remove(*worker, names);
                Ok(())
            }
            Event::Cleared { worker } => {
                self.clear(*worker);
                Ok(())
            }
        }
    }

    /// Does what the events say, one after the other. A refused one does not
    /// stop those after it; the result names the refused ones, so an empty
    /// one is good news.
    ///
    /// # Examples
    /// ```
    /// # use kvradix::{Event, Index, SequenceHash, WorkerId};
    /// let index = Index::new();
    /// let worker = WorkerId::new(1, 0);
    /// let late = Event::Removed { worker, names: vec![SequenceHash(7)] };
    /// let refused = index.apply_all([&late, &Event::Cleared { worker }]);
    /// assert!(refused.is_empty());
    /// ```
    pub fn apply_all<'a>(&self, events: impl IntoIterator<Item = &'a Event>) -> Vec<Refused> {
        let mut refused = Vec::new();
        for (index, event) in events.into_iter().enumerate() {
            if let Err(error) = self.apply(event) {
                refused.push(Refused { index, error });
            }
        }
        refused
    }

    /// For each worker the largest n > 0 such that it holds every prefix of
    /// the query of length 1 to n.
    ///
    /// # Examples
    /// ```
    /// # use kvradix::{Block, Index, LocalHash, SequenceHash, StoreError, WorkerId};
    /// let index = Index::new();
    /// let block = |name, content| Block { sequence: SequenceHash(name), local: LocalHash(content) };
    /// index.store(WorkerId::new(1, 0), None, &[block(100, 10)])?;
    /// // Another worker, with a name of its own for the same content.
    /// index.store(WorkerId::new(2, 0), None, &[block(200, 10), block(201, 11)])?;
    ///
    /// let matches = index.matches(LocalHash::from_slice(&[10, 11, 12]));
    /// let found: Vec<_> = matches.iter().map(|found| (found.worker.id, found.depth)).collect();
    /// assert_eq!(found, [(2, 2), (1, 1)]);
    /// # Ok::<(), StoreError>(())
    /// ```
    pub fn matches(&self, query: &[LocalHash]) -> Matches {
        let mut matches = Matches::new();
        self.matches_into(query, &mut matches);
        matches
    }

    /// The same into a result that is used again and again, so that a query
    /// allocates nothing once its buffers are warm.
    ///
    /// Takes no lock, of any kind, and writes no memory that other threads
    /// read but its pin. O(depth of the match + workers found), whatever the
    /// size of the tree and fleet.
    ///
    /// # Examples
    /// ```
    /// # use kvradix::{Index, LocalHash, Matches};
    /// # let index = Index::new();
    /// let mut matches = Matches::new();
    /// for prompt in [[10, 11], [10, 12]] {
    ///     index.matches_into(LocalHash::from_slice(&prompt), &mut matches);
    ///     assert!(matches.is_empty(), "nobody has stored anything");
    /// }
    /// ```
    pub fn matches_into(&self, query: &[LocalHash], matches: &mut Matches) {
        #[cfg(feature = "metrics")]
        let counted = self.queries.get().map(|queries| queries.begin());
        self.shared().matches_into(query, matches);
        #[cfg(feature = "metrics")]
        if let Some(query) = counted {
            query.end(matches);
        }
    }

    /// Returns once every event handed in before is visible; also frees what
    /// readers can no longer see. O(known workers) and what is queued.
    pub fn flush(&self) {
        Shared::flush(self.shared());
    }

    /// Returns once every event of `worker` handed in before is visible.
    pub fn flush_worker(&self, worker: WorkerId) {
        self.shared().flush_worker(worker);
    }

    /// What the index keeps, and what it was told so far. Takes no worker's
    /// and no node's lock, so it waits for no event. O(known workers).
    ///
    /// # Examples
    /// ```
    /// # use kvradix::{Block, Index, LocalHash, SequenceHash, StoreError, WorkerId};
    /// # let (index, worker) = (Index::new(), WorkerId::new(1, 0));
    /// let block = Block { sequence: SequenceHash(100), local: LocalHash(10) };
    /// index.store(worker, None, &[block])?;
    /// assert_eq!(index.stats().tree_blocks, 1);
    /// index.remove_worker(worker);
    /// assert_eq!(index.stats().tree_blocks, 0);
    /// # Ok::<(), StoreError>(())
    /// ```
    pub fn stats(&self) -> Stats {
        self.shared().stats()
    }

    /// The known workers in ascending order, as of one moment. Takes no lock
    /// and waits for nobody. O(known workers).
    pub fn workers(&self) -> Vec<WorkerId> {
        self.shared().workers()
    }

    /// The workers that [`StoreError::Poisoned`] speaks of, in ascending
    /// order: normally none. [`clear`](Self::clear) or
    /// [`remove_worker`](Self::remove_worker) heals one, which takes
    /// O(blocks in the tree); until then what it held stays in memory.
    pub fn poisoned(&self) -> Vec<WorkerId> {
        self.shared().poisoned()
    }

    /// Whether `worker` has a block called `name`. Applies the worker's
    /// queued removals first.
    pub fn has(&self, worker: WorkerId, name: SequenceHash) -> bool {
        self.shared().has(worker, name)
    }

    /// Where the worker has its block `name`, in the words of a store.
    #[cfg(feature = "intake")]
    pub(crate) fn locate(
        &self,
        worker: WorkerId,
        name: SequenceHash,
    ) -> Option<crate::tree::Located> {
        self.shared().locate(worker, name)
    }

    /// How many names `worker` has; 0 if it is not known. Applies the
    /// worker's queued removals first.
    pub fn held(&self, worker: WorkerId) -> usize {
        self.shared().held(worker)
    }

    /// Events that give an empty index what `worker` holds, by the same
    /// names, parents first; empty if it holds nothing.
    ///
    /// A consistent cut of this worker: its own events wait meanwhile, those
    /// of others go on. Where a deeper block is held behind a hole, the hole
    /// is stored under a name that the last event removes again; until then it
    /// counts for a [limit](crate::Builder::max_worker_blocks) of the index
    /// that is loaded. O(what the worker holds and its ancestors).
    ///
    /// # Examples
    /// ```
    /// # use kvradix::{Block, Index, LocalHash, SequenceHash, StoreError, WorkerId};
    /// # let (index, worker) = (Index::new(), WorkerId::new(1, 0));
    /// # let block = |name, content| Block { sequence: SequenceHash(name), local: LocalHash(content) };
    /// index.store(worker, None, &[block(100, 10), block(101, 11)])?;
    ///
    /// let copy = Index::new();
    /// assert!(copy.apply_all(&index.export(worker)).is_empty());
    /// let prompt = LocalHash::from_slice(&[10, 11]);
    /// assert_eq!(copy.matches(prompt).depth_of(worker), 2);
    /// # Ok::<(), StoreError>(())
    /// ```
    pub fn export(&self, worker: WorkerId) -> Vec<Event> {
        self.shared().export(worker).unwrap_or_default()
    }

    /// The same, but `None` if the worker is not known.
    #[cfg(feature = "snapshot")]
    pub(crate) fn cut(&self, worker: WorkerId) -> Option<Vec<Event>> {
        self.shared().export(worker)
    }

    /// From now on so many threads load a snapshot, and its parts may be above
    /// the limits; 0: none does.
    #[cfg(feature = "snapshot")]
    pub(crate) fn set_loaders(&self, loaders: usize) {
        self.shared().set_loaders(loaders);
    }

    /// Makes a worker known that holds nothing.
    #[cfg(feature = "snapshot")]
    pub(crate) fn know(&self, worker: WorkerId) {
        self.shared().know(worker);
    }

    /// What is above its limit, of the index and this worker.
    #[cfg(feature = "snapshot")]
    pub(crate) fn exceeded(&self, worker: WorkerId) -> Option<StoreError> {
        self.shared().exceeded(worker)
    }

    /// Walks the whole structure and panics where an invariant does not hold.
    /// For tests: no other call may run meanwhile.
    #[doc(hidden)]
    pub fn check(&self) {
        self.shared().check();
    }
}

impl Default for Index {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index").field("stats", &self.stats()).finish_non_exhaustive()
    }
}

/// How often a drop lets the drain tasks of the pool run on before it leaves
/// the rest of the index to the last of them.
const DROP_PATIENCE: usize = 100_000;

impl Drop for Index {
    /// Frees everything and ends the index's own threads.
    fn drop(&mut self) {
        let Some(mut shared) = self.shared.take() else { return };
        for _ in 0..DROP_PATIENCE {
            // A task that is at work has a count of its own; one that has
            // not begun finds nothing to upgrade.
            match Arc::try_unwrap(shared) {
                Ok(_) => return,
                Err(still) => shared = still,
            }
            yield_now();
        }
    }
}
