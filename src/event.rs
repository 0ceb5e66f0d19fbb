//! What engines publish about their caches.

use crate::{Block, SequenceHash, WorkerId};

/// One cache event of one worker, as [`Index::apply`](crate::Index::apply)
/// takes it. Events of one worker count in the order they are applied.
///
/// # Examples
/// ```
/// use kvradix::{Block, Event, Index, LocalHash, SequenceHash, WorkerId};
///
/// let worker = WorkerId::new(1, 0);
/// let block = Block { sequence: SequenceHash(100), local: LocalHash(10) };
/// let stored = Event::Stored { worker, parent: None, blocks: vec![block] };
///
/// let index = Index::new();
/// index.apply(&stored)?;
/// index.apply(&Event::Removed { worker, names: vec![block.sequence] })?;
/// assert_eq!(index.held(worker), 0);
/// # Ok::<(), kvradix::StoreError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Event {
    /// The worker now holds `blocks`, each below the one before.
    Stored {
        /// Who stored them.
        worker: WorkerId,
        /// The worker's name for the block above the first, or `None` where
        /// the first block begins a prompt.
        parent: Option<SequenceHash>,
        /// The blocks, from the shallowest down.
        blocks: Vec<Block>,
    },
    /// The worker evicted the blocks it calls `names`.
    Removed {
        /// Who evicted them.
        worker: WorkerId,
        /// The evicted blocks, in any order.
        names: Vec<SequenceHash>,
    },
    /// The worker emptied its cache.
    Cleared {
        /// Who emptied it.
        worker: WorkerId,
    },
}

impl Event {
    /// The worker the event speaks of.
    pub fn worker(&self) -> WorkerId {
        match *self {
            Event::Stored { worker, .. }
            | Event::Removed { worker, .. }
            | Event::Cleared { worker } => worker,
        }
    }
}
