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
        /// The name that occurs twice.
        hash: SequenceHash,
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
}

impl StoreErrorKind {
    /// Every kind.
    pub const ALL: [StoreErrorKind; 2] =
        [StoreErrorKind::ParentNotFound, StoreErrorKind::RepeatedHash];

    /// A name for labels and logs: `parent_not_found`.
    pub const fn name(self) -> &'static str {
        match self {
            StoreErrorKind::ParentNotFound => "parent_not_found",
            StoreErrorKind::RepeatedHash => "repeated_hash",
        }
    }
}

impl StoreError {
    /// Why, without the particulars.
    pub const fn kind(&self) -> StoreErrorKind {
        match self {
            StoreError::ParentNotFound { .. } => StoreErrorKind::ParentNotFound,
            StoreError::RepeatedHash { .. } => StoreErrorKind::RepeatedHash,
        }
    }

    /// The worker that stored.
    pub const fn worker(&self) -> WorkerId {
        match *self {
            StoreError::ParentNotFound { worker, .. } | StoreError::RepeatedHash { worker, .. } => {
                worker
            }
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
