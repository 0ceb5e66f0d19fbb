//! What the frames of a snapshot may say, one after the other.

use std::collections::HashSet;

use super::frame::{BLOCK, Frame, NAME};
use super::{Cursor, Error};
use crate::WorkerId;

/// What has been read so far.
#[derive(Default)]
pub(super) struct Contents {
    pub(super) cursors: Vec<(WorkerId, Cursor)>,
    workers: HashSet<WorkerId>,
    /// The sum of the workers' names.
    names: u64,
}

/// What a frame is.
pub(super) enum Part {
    /// A worker begins; it has so many names once all is loaded.
    Worker(WorkerId, u64),
    /// Something of the worker's that began last.
    Content,
    /// There is no more.
    End,
}

impl Contents {
    /// The next frame, if it may stand here.
    pub(super) fn take(&mut self, frame: &Frame<'_>, at: u64) -> Result<Part, Error> {
        let corrupted = |what| Err(Error::Corrupted { at, what });
        match *frame {
            Frame::Worker { id, dp_rank, names, cursor } => {
                let worker = WorkerId::new(id, dp_rank);
                if cursor.len() > Cursor::MOST {
                    return corrupted("a cursor is longer than cursors are");
                }
                if !self.workers.insert(worker) {
                    return Err(Error::RepeatedWorker { worker });
                }
                self.cursors.push((worker, Cursor::from(cursor)));
                self.names = self.names.saturating_add(names);
                Ok(Part::Worker(worker, names))
            }
            Frame::Runs(_) | Frame::Holes(_) if self.cursors.is_empty() => {
                corrupted("a run is no worker's")
            }
            Frame::Runs(ref runs) if runs.iter().any(|run| run.blocks.len() % BLOCK > 0) => {
                corrupted("a block is not whole")
            }
            Frame::Holes(names) if names.len() % NAME > 0 => corrupted("a name is not whole"),
            Frame::Runs(_) | Frame::Holes(_) => Ok(Part::Content),
            Frame::End { workers, names } => {
                if workers != self.cursors.len() as u64 || names != self.names {
                    return corrupted("there are not as many workers and names as it says");
                }
                Ok(Part::End)
            }
        }
    }
}
