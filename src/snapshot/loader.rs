//! Loading one worker after the other: what a loader thread does.

use super::Error;
use super::deal::Payload;
use super::frame::{self, Frame};
use super::read::decode;
use crate::{Block, Index, SequenceHash, WorkerId};

/// What a loader gets.
pub(super) enum Job<'a> {
    /// What follows is this worker's.
    Worker(WorkerId),
    Payload(Payload<'a>),
    /// All of the worker is there: so many names.
    Done(u64),
}

/// One thread's work.
pub(super) struct Loader<'a> {
    index: &'a Index,
    worker: WorkerId,
    /// Whether the worker has stored anything, and so is known.
    known: bool,
    blocks: Vec<Block>,
}

impl<'a> Loader<'a> {
    pub(super) fn new(index: &'a Index) -> Self {
        Self { index, worker: WorkerId::default(), known: false, blocks: Vec::new() }
    }

    pub(super) fn take(&mut self, job: Job<'_>) -> Result<(), Error> {
        match job {
            Job::Worker(worker) => {
                (self.worker, self.known) = (worker, false);
                Ok(())
            }
            Job::Payload(payload) => self.load(&decode(&payload.bytes, payload.at)?),
            Job::Done(names) => self.end(names),
        }
    }

    fn load(&mut self, frame: &Frame<'_>) -> Result<(), Error> {
        match frame {
            Frame::Runs(runs) => {
                for run in runs {
                    self.blocks.clear();
                    self.blocks.extend(run.blocks());
                    self.store(run.parent.map(SequenceHash))?;
                }
            }
            Frame::Holes(names) => {
                let names: Vec<_> = frame::names(names).collect();
                self.index.remove(self.worker, &names);
            }
            Frame::Worker { .. } | Frame::End { .. } => unreachable!("the reader's"),
        }
        Ok(())
    }

    fn store(&mut self, parent: Option<SequenceHash>) -> Result<(), Error> {
        self.known |= !self.blocks.is_empty();
        let stored = self.index.store(self.worker, parent, &self.blocks);
        stored.map_err(|error| Error::Refused { error })
    }

    fn end(&mut self, written: u64) -> Result<(), Error> {
        let worker = self.worker;
        if !self.known {
            // It held nothing, and was known.
            self.index.know(worker);
        }
        let loaded = self.index.held(worker) as u64;
        if loaded == written { Ok(()) } else { Err(Error::Miscounted { worker, written, loaded }) }
    }
}
