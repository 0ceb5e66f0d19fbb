//! Why a store was refused.

use std::fmt;

use crate::{SequenceHash, WorkerId};

/// Why a store was refused. A refused store is refused whole: the index is as
/// it was, and every other event of the worker still applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The worker has no block of the parent's name now. Either it was never
    /// stored, or it was removed, or the worker is not known at all.
    ///
    /// An event of the worker was lost or came in a wrong order, or it began
    /// before who listens did. What the worker stores below is refused too,
    /// until it has the parent: have its events replayed, load a snapshot, or
    /// [`clear`](crate::Index::clear) it and let it fill again. Until then
    /// answers know less of it than it holds.
    ParentNotFound {
        /// The worker that stored.
        worker: WorkerId,
        /// The name that it does not have.
        parent: SequenceHash,
    },
    /// The batch names one block twice, or names its own parent.
    RepeatedHash {
        /// The worker that stored.
        worker: WorkerId,
        /// The first name that occurs again.
        hash: SequenceHash,
    },
    /// The tree might have had more blocks with the batch than
    /// [`max_blocks`](crate::Builder::max_blocks) allows.
    IndexFull {
        /// The worker that stored.
        worker: WorkerId,
        /// The limit.
        limit: u64,
        /// Blocks in the tree, together with the batches of stores that were
        /// under way.
        tree_blocks: u64,
    },
    /// The worker would have had more names with the batch than
    /// [`max_worker_blocks`](crate::Builder::max_worker_blocks) allows.
    WorkerFull {
        /// The worker that stored.
        worker: WorkerId,
        /// The limit.
        limit: u64,
        /// Names the worker has.
        held_blocks: u64,
    },
    /// An earlier event of the worker panicked half done, which is a fault of
    /// this crate. Until [`Index::clear`](crate::Index::clear) or
    /// [`Index::remove_worker`](crate::Index::remove_worker) heals it, the
    /// worker counts as holding nothing: it is in no answer, and its removals
    /// are counted as unknown. All other workers go on as if nothing had
    /// happened.
    Poisoned {
        /// The worker that stored.
        worker: WorkerId,
    },
}

/// Why stores are refused, without the particulars: what one counts by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// Of [`StoreError::ParentNotFound`].
    ParentNotFound,
    /// Of [`StoreError::RepeatedHash`].
    RepeatedHash,
    /// Of [`StoreError::IndexFull`].
    IndexFull,
    /// Of [`StoreError::WorkerFull`].
    WorkerFull,
    /// Of [`StoreError::Poisoned`].
    Poisoned,
}

impl StoreErrorKind {
    /// Every kind.
    pub const ALL: [StoreErrorKind; 5] = [
        StoreErrorKind::ParentNotFound,
        StoreErrorKind::RepeatedHash,
        StoreErrorKind::IndexFull,
        StoreErrorKind::WorkerFull,
        StoreErrorKind::Poisoned,
    ];

    /// A name for labels and logs: `parent_not_found`.
    pub const fn name(self) -> &'static str {
        match self {
            StoreErrorKind::ParentNotFound => "parent_not_found",
            StoreErrorKind::RepeatedHash => "repeated_hash",
            StoreErrorKind::IndexFull => "index_full",
            StoreErrorKind::WorkerFull => "worker_full",
            StoreErrorKind::Poisoned => "poisoned",
        }
    }
}

impl StoreError {
    /// Why, without the particulars.
    pub const fn kind(&self) -> StoreErrorKind {
        match self {
            StoreError::ParentNotFound { .. } => StoreErrorKind::ParentNotFound,
            StoreError::RepeatedHash { .. } => StoreErrorKind::RepeatedHash,
            StoreError::IndexFull { .. } => StoreErrorKind::IndexFull,
            StoreError::WorkerFull { .. } => StoreErrorKind::WorkerFull,
            StoreError::Poisoned { .. } => StoreErrorKind::Poisoned,
        }
    }

    /// The worker that stored.
    pub const fn worker(&self) -> WorkerId {
        match *self {
            StoreError::ParentNotFound { worker, .. }
            | StoreError::RepeatedHash { worker, .. }
            | StoreError::IndexFull { worker, .. }
            | StoreError::WorkerFull { worker, .. }
            | StoreError::Poisoned { worker } => worker,
        }
    }
}

impl fmt::Display for StoreErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::ParentNotFound { worker, parent } => write!(
                f,
                "worker {worker} stored below block {parent}, which it does not hold; \
                 nothing of the batch was stored"
            ),
            StoreError::RepeatedHash { worker, hash } => write!(
                f,
                "worker {worker} stored a batch that names block {hash} twice or as its own \
                 parent; nothing of the batch was stored"
            ),
            StoreError::IndexFull { worker, limit, tree_blocks } => write!(
                f,
                "the index has {tree_blocks} of at most {limit} blocks, which leaves no room \
                 for the batch of worker {worker}; nothing of it was stored"
            ),
            StoreError::WorkerFull { worker, limit, held_blocks } => write!(
                f,
                "worker {worker} holds {held_blocks} of at most {limit} blocks, which leaves \
                 no room for the batch; nothing of it was stored"
            ),
            StoreError::Poisoned { worker } => write!(
                f,
                "an event of worker {worker} panicked half done; clear or remove the worker \
                 before it stores again"
            ),
        }
    }
}

impl std::error::Error for StoreError {}

/// One event that [`Index::apply_all`](crate::Index::apply_all) refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refused {
    /// Which of the events it was, counted from 0.
    pub index: usize,
    /// Why.
    pub error: StoreError,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {}: {}", self.index, self.error)
    }
}

impl std::error::Error for Refused {}
