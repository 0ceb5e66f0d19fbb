//! Loading a snapshot, on several threads.
//!
//! The caller's thread reads and verifies frames. Workers are independent of
//! each other, so whole workers are dealt out to loader threads, the next to
//! whichever has the fewest names so far; a worker's frames reach its loader
//! in their order. Frames on their way to loaders share a budget of bytes, so
//! that a reader far ahead waits. The first fault stops everybody.

use std::io::{Read, Seek, SeekFrom};
use std::num::NonZero;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use super::contents::{Contents, Part};
use super::frame::{self, Frame};
use super::read::{Frames, decode};
use super::{Cursor, Error};
use crate::{Block, Builder, Index, SequenceHash, WorkerId};

/// Bytes of frames that wait for loaders, at most, one frame more or less.
const AHEAD: usize = 32 << 20;
/// Threads at most, unless asked for.
const MOST_THREADS: usize = 16;

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

    /// So many threads that load, beside the caller's, which reads; at least
    /// one. They end with the import.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads.max(1);
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
        let cursors = self.load(&index, &mut frames)?;
        Ok(Imported { index, cursors })
    }

    /// Loads a snapshot into an index that knows no worker yet; hand it no
    /// events until this returns. Queries may run, and see workers come.
    /// Everything is read and verified once before anything changes, then
    /// once more; gives the cursors, as in [`Imported`].
    ///
    /// # Errors
    /// [`Error::NotEmpty`] if a worker is known; for others see [`Error`].
    /// The index then knows no worker.
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
        let workers = verify(&mut Frames::new(&mut input)?)?;
        input.seek(SeekFrom::Start(from))?;
        let loaded = self.load(index, &mut Frames::new(input)?);
        if loaded.is_err() {
            // Only what no look at the frames can tell: names that repeat, or
            // a file that another wrote to meanwhile.
            workers.into_iter().for_each(|worker| index.remove_worker(worker));
        }
        loaded
    }

    fn load<R: Read>(
        self,
        index: &Index,
        frames: &mut Frames<R>,
    ) -> Result<Vec<(WorkerId, Cursor)>, Error> {
        let state = State::default();
        let read = thread::scope(|scope| {
            let mut loaders = Vec::new();
            for number in 0..self.threads {
                let (sender, jobs) = channel();
                let (state, name) = (&state, format!("kvradix-load-{number}"));
                let run = move || state.note(Loader::new(index).run(jobs));
                let spawned = thread::Builder::new().name(name).spawn_scoped(scope, run);
                match spawned {
                    Ok(_) => loaders.push((0, sender)),
                    // Fewer will do.
                    Err(_) if number > 0 => break,
                    Err(error) => return Err(Error::Io(error)),
                }
            }
            deal(frames, &state, &mut loaders)
        });
        // A loader's fault comes before the reader's, which it may have
        // caused.
        let fault = state.fault.into_inner().unwrap_or_else(PoisonError::into_inner);
        fault.map_or(read, Err)
    }
}

/// What reader and loaders share.
#[derive(Default)]
struct State {
    /// The first fault of a loader.
    fault: Mutex<Option<Error>>,
    /// Bytes of frames on their way.
    ahead: Mutex<usize>,
    fewer: Condvar,
}

/// A frame on its way; its bytes count until it is dropped.
struct Payload<'a> {
    bytes: Vec<u8>,
    at: u64,
    state: &'a State,
}

/// What a loader gets.
enum Job<'a> {
    /// What follows is this worker's.
    Worker(WorkerId),
    Payload(Payload<'a>),
    /// All of the worker is there: so many names.
    Done(u64),
}

impl State {
    fn note(&self, loaded: Result<(), Error>) {
        if let Err(error) = loaded {
            let mut fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
            fault.get_or_insert(error);
        }
    }

    fn failed(&self) -> bool {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Waits until so few bytes are on their way that these may be, too.
    fn payload(&self, bytes: Vec<u8>, at: u64) -> Payload<'_> {
        let ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let ahead = self.fewer.wait_while(ahead, |ahead| *ahead > AHEAD);
        *ahead.unwrap_or_else(PoisonError::into_inner) += bytes.len();
        Payload { bytes, at, state: self }
    }
}

impl Drop for Payload<'_> {
    fn drop(&mut self) {
        let mut ahead = self.state.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        *ahead -= self.bytes.len();
        self.state.fewer.notify_one();
    }
}

/// Reads all frames and deals them out; the cursors.
fn deal<'a, R: Read>(
    frames: &mut Frames<R>,
    state: &'a State,
    loaders: &mut [(u64, Sender<Job<'a>>)],
) -> Result<Vec<(WorkerId, Cursor)>, Error> {
    let (mut contents, mut payload) = (Contents::default(), Vec::new());
    // The worker's loader, and how many names are to be there in the end.
    let mut current: Option<(usize, u64)> = None;
    loop {
        let at = frames.next(&mut payload)?;
        let part = contents.take(&decode(&payload, at)?, at)?;
        let mut sent = true;
        if let (Some((to, names)), Part::Worker(..) | Part::End) = (current, &part) {
            sent = loaders[to].1.send(Job::Done(names)).is_ok();
        }
        match (part, current) {
            (Part::Worker(worker, names), _) => {
                let fewest = (0..loaders.len()).min_by_key(|&loader| loaders[loader].0);
                let to = fewest.unwrap_or(0);
                loaders[to].0 += names + 1;
                sent &= loaders[to].1.send(Job::Worker(worker)).is_ok();
                current = Some((to, names));
            }
            (Part::Content, Some((to, _))) => {
                let payload = state.payload(std::mem::take(&mut payload), at);
                sent &= loaders[to].1.send(Job::Payload(payload)).is_ok();
            }
            (Part::Content, None) => unreachable!("contents begin with a worker"),
            (Part::End, _) => return Ok(contents.cursors),
        }
        // A loader that is gone has left word why; or it has panicked, and so
        // does the scope.
        if !sent || state.failed() {
            return Ok(Vec::new());
        }
    }
}

/// Reads all frames and believes them, and looks at nothing but them; the
/// workers.
fn verify<R: Read>(frames: &mut Frames<R>) -> Result<Vec<WorkerId>, Error> {
    let (mut contents, mut payload) = (Contents::default(), Vec::new());
    loop {
        let at = frames.next(&mut payload)?;
        if let Part::End = contents.take(&decode(&payload, at)?, at)? {
            return Ok(contents.cursors.into_iter().map(|(worker, _)| worker).collect());
        }
    }
}

/// One thread's work.
struct Loader<'a> {
    index: &'a Index,
    worker: WorkerId,
    /// Whether the worker has stored anything, and so is known.
    known: bool,
    blocks: Vec<Block>,
}

impl<'a> Loader<'a> {
    fn new(index: &'a Index) -> Self {
        Self { index, worker: WorkerId::default(), known: false, blocks: Vec::new() }
    }

    fn run(&mut self, jobs: Receiver<Job<'_>>) -> Result<(), Error> {
        for job in jobs {
            match job {
                Job::Worker(worker) => (self.worker, self.known) = (worker, false),
                Job::Payload(payload) => self.load(&decode(&payload.bytes, payload.at)?)?,
                Job::Done(names) => self.end(names)?,
            }
        }
        Ok(())
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
            // It held nothing, and was known: only a store makes it so.
            self.blocks.clear();
            self.blocks.push(Block::default());
            self.store(None)?;
            self.index.clear(worker);
        }
        let loaded = self.index.held(worker) as u64;
        if loaded == written { Ok(()) } else { Err(Error::Miscounted { worker, written, loaded }) }
    }
}
