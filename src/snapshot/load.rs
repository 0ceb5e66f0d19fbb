//! Loading a snapshot, all of it or nothing.

use std::io::{Read, Seek, SeekFrom};
use std::num::NonZero;
use std::thread;

use super::contents::{Contents, Part};
use super::deal::load;
use super::read::{Frames, decode};
use super::{Cursor, Error};
use crate::{Builder, Index, WorkerId};

/// Threads at most, unless asked for.
const MOST_THREADS: usize = 16;

/// Threads at most, whatever is asked for.
const MOST_ASKED: usize = 1_024;

/// What was loaded.
#[derive(Debug)]
pub struct Imported {
    /// The index, as the other was worker by worker.
    pub index: Index,
    /// Where each worker's stream of events goes on, in the order of the
    /// snapshot. A worker that is not here begins at its beginning.
    pub cursors: Vec<(WorkerId, Cursor)>,
}

/// Loads a snapshot into an index of its own: [`Importer::import`] with the
/// default settings.
///
/// # Errors
/// See [`Error`]; what was begun is dropped.
pub fn import(input: impl Read, builder: Builder) -> Result<Imported, Error> {
    Importer::new().import(input, builder)
}

/// Settings of an import.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Importer {
    threads: usize,
}

impl Default for Importer {
    fn default() -> Self {
        Self::new()
    }
}

impl Importer {
    /// As many threads as the processor runs at once, 16 at most.
    pub fn new() -> Self {
        let threads = thread::available_parallelism().map_or(1, NonZero::get);
        Self { threads: threads.min(MOST_THREADS) }
    }

    /// So many threads that load, 1,024 at most, beside the caller's, which
    /// reads; they end with the import. With 0 the caller's thread does both.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.min(MOST_ASKED);
        self
    }

    /// Loads a snapshot into an index of its own. Reads to the snapshot's end
    /// and no further, in pieces of up to a megabyte and small ones between
    /// them. Takes the index's memory and 32 MiB at most, whatever lengths
    /// the input speaks of.
    ///
    /// # Errors
    /// See [`Error`]; what was begun is dropped.
    pub fn import(self, input: impl Read, builder: Builder) -> Result<Imported, Error> {
        let mut frames = Frames::new(input)?;
        let index = builder.build();
        let cursors = load(&index, &mut frames, self.threads)?;
        Ok(Imported { index, cursors })
    }

    /// Loads a snapshot into an index that knows no worker yet; hand it no
    /// events until this returns. Queries may run, and see workers come; one
    /// that is still being loaded counts as holding its holes too.
    /// Everything is read and verified once before anything changes, then
    /// once more; gives the cursors, as in [`Imported`].
    ///
    /// # Errors
    /// [`Error::NotEmpty`] if a worker is known; for others see [`Error`].
    /// The index then knows no worker. Where only the loading could tell (what
    /// is [`Refused`](Error::Refused) or [`Miscounted`](Error::Miscounted)),
    /// its counts of events tell of the workers that came and left.
    pub fn import_into(
        self,
        index: &Index,
        mut input: impl Read + Seek,
    ) -> Result<Vec<(WorkerId, Cursor)>, Error> {
        let workers = index.workers().len();
        if workers > 0 {
            return Err(Error::NotEmpty { workers });
        }
        let from = input.stream_position()?;
        verify(&mut Frames::new(&mut input)?)?;
        input.seek(SeekFrom::Start(from))?;
        let loaded = load(index, &mut Frames::new(input)?, self.threads);
        if loaded.is_err() {
            // Only what no look at the frames can tell: names that repeat, or
            // a file that another wrote to meanwhile.
            index.workers().into_iter().for_each(|worker| index.remove_worker(worker));
        }
        loaded
    }
}

/// Reads all frames and believes them, and looks at nothing but them.
fn verify<R: Read>(frames: &mut Frames<R>) -> Result<(), Error> {
    let (mut contents, mut payload) = (Contents::default(), Vec::new());
    loop {
        let at = frames.next(&mut payload)?;
        if let Part::End = contents.take(&decode(&payload, at)?, at)? {
            return Ok(());
        }
    }
}
