//! Why a snapshot was not written or not read.

use std::fmt;
use std::io;

use crate::{StoreError, WorkerId};

/// Why a snapshot was not written, or was refused when it was read. What is
/// refused changes nothing.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Reading or writing failed.
    Io(io::Error),
    /// It does not begin as a snapshot does.
    NotASnapshot,
    /// A later version of the format than this one can read.
    FutureVersion {
        /// The version that was found.
        found: u32,
        /// The latest that is known here.
        known: u32,
    },
    /// It ends before its end.
    Truncated {
        /// Bytes before the part that is not whole.
        at: u64,
    },
    /// It is not what was written.
    Corrupted {
        /// Bytes before the part that is wrong.
        at: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A worker comes twice.
    RepeatedWorker {
        /// Who does.
        worker: WorkerId,
    },
    /// The index refused a run: the snapshot was not made from an index, or
    /// has more than this one's [limits](crate::snapshot#limits) allow.
    Refused {
        /// Why.
        error: StoreError,
    },
    /// A worker has fewer names than were written: they were not all
    /// different.
    Miscounted {
        /// Whose they are.
        worker: WorkerId,
        /// Names that it should have.
        written: u64,
        /// Names that it has.
        loaded: u64,
    },
    /// The index to be filled knows workers already.
    NotEmpty {
        /// How many.
        workers: usize,
    },
    /// A cursor has more bytes than [`Cursor::MOST`](super::Cursor::MOST).
    LongCursor {
        /// Whose it is.
        worker: WorkerId,
        /// Its bytes.
        bytes: usize,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(error) => write!(f, "{error}"),
            Error::NotASnapshot => write!(f, "this is no snapshot of an index"),
            Error::FutureVersion { found, known } => write!(
                f,
                "the snapshot is of version {found}; this program reads versions up to {known}"
            ),
            Error::Truncated { at } => {
                write!(f, "the snapshot ends early, in what begins at byte {at}")
            }
            Error::Corrupted { at, what } => {
                write!(f, "the snapshot is damaged at byte {at}: {what}")
            }
            Error::RepeatedWorker { worker } => {
                write!(f, "the snapshot has worker {worker} twice")
            }
            Error::Refused { error } => {
                write!(f, "the index refused a part of the snapshot: {error}")
            }
            Error::Miscounted { worker, written, loaded } => write!(
                f,
                "worker {worker} should have {written} names by the snapshot, and has {loaded}"
            ),
            Error::NotEmpty { workers } => write!(
                f,
                "a snapshot is loaded into an empty index only; this one knows {workers} workers"
            ),
            Error::LongCursor { worker, bytes } => write!(
                f,
                "the cursor of worker {worker} has {bytes} bytes, more than {}",
                super::Cursor::MOST
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(error) => Some(error),
            Error::Refused { error } => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Error::Io(error)
    }
}
