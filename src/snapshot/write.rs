//! Writing a snapshot.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::frame::{self, FULL, Frame, MOST_PAYLOAD, Run};
use super::turn::Turn;
use super::{Cursor, Cut, Error};
use crate::{Event, Index, SequenceHash, WorkerId};

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Exported {
    /// Workers.
    pub workers: u64,
    /// The sum over the workers of the names they had.
    pub held_blocks: u64,
    /// Bytes of the snapshot.
    pub bytes: u64,
}

/// Writes a snapshot, worker by worker.
///
/// ```
/// # use kvradix::snapshot::{Cursor, Cut, Error, Writer};
/// # use kvradix::{Block, Index, LocalHash, SequenceHash, WorkerId};
/// # let (index, worker) = (Index::new(), WorkerId::new(1, 0));
/// # let block = Block { sequence: SequenceHash(100), local: LocalHash(10) };
/// # index.store(worker, None, &[block]).unwrap();
/// # let cursor = Cursor::from(1);
/// let mut writer = Writer::new(Vec::new())?;
/// // On the thread that hands in the worker's events:
/// let cut = Cut::of(&index, worker, cursor);
/// // On the writer's:
/// if let Some(cut) = cut {
///     writer.write(&cut)?;
/// }
/// let (written, file) = writer.finish()?;
/// assert_eq!((written.workers, written.bytes), (1, file.len() as u64));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    /// The checksum of the frame before.
    checksum: u64,
    written: Exported,
    payload: Vec<u8>,
}

impl<W: Write> Writer<W> {
    /// Begins a snapshot. What is written comes in pieces of some hundred
    /// kilobytes, and small ones between them.
    ///
    /// # Errors
    /// [`Error::Io`] alone.
    pub fn new(mut out: W) -> Result<Self, Error> {
        let (header, checksum) = frame::header();
        out.write_all(&header)?;
        let written = Exported { bytes: header.len() as u64, ..Exported::default() };
        Ok(Self { out, checksum, written, payload: Vec::new() })
    }

    /// Adds a worker. Each may come once: a snapshot that has one twice is
    /// refused by who reads it.
    ///
    /// # Errors
    /// [`Error::LongCursor`], before anything is written, and [`Error::Io`],
    /// after which the snapshot is of no use.
    pub fn write(&mut self, cut: &Cut) -> Result<(), Error> {
        let (worker, cursor) = (cut.worker, cut.cursor.as_bytes());
        if cursor.len() > Cursor::MOST {
            return Err(Error::LongCursor { worker, bytes: cursor.len() });
        }
        let WorkerId { id, dp_rank } = worker;
        self.frame(&Frame::Worker { id, dp_rank, names: cut.held(), cursor })?;
        self.runs(&cut.events)?;
        for event in &cut.events {
            if let Event::Removed { names, .. } = event {
                self.holes(names)?;
            }
        }
        self.written.workers += 1;
        self.written.held_blocks += cut.held();
        Ok(())
    }

    /// As many runs a frame as fill it.
    fn runs(&mut self, events: &[Event]) -> Result<(), Error> {
        let mut blocks = Vec::new();
        // Of each run, its parent and where its blocks end.
        let mut ends: Vec<(Option<u64>, usize)> = Vec::new();
        for event in events {
            let Event::Stored { parent, blocks: of_run, .. } = event else { continue };
            of_run.iter().for_each(|block| frame::put_block(block, &mut blocks));
            ends.push((parent.map(|parent| parent.0), blocks.len()));
            if blocks.len() >= FULL {
                self.runs_frame(&blocks, &ends)?;
                blocks.clear();
                ends.clear();
            }
        }
        if ends.is_empty() { Ok(()) } else { self.runs_frame(&blocks, &ends) }
    }

    fn runs_frame(&mut self, blocks: &[u8], ends: &[(Option<u64>, usize)]) -> Result<(), Error> {
        let mut from = 0;
        let run = |&(parent, end): &(Option<u64>, usize)| {
            let blocks = &blocks[std::mem::replace(&mut from, end)..end];
            Run { parent, blocks }
        };
        let runs = ends.iter().map(run).collect();
        self.frame(&Frame::Runs(runs))
    }

    fn holes(&mut self, names: &[SequenceHash]) -> Result<(), Error> {
        for names in names.chunks(FULL / frame::NAME) {
            let bytes: Vec<u8> = names.iter().flat_map(|name| name.0.to_le_bytes()).collect();
            self.frame(&Frame::Holes(&bytes))?;
        }
        Ok(())
    }

    fn frame(&mut self, frame: &Frame<'_>) -> Result<(), Error> {
        self.payload.clear();
        let payload = std::mem::take(&mut self.payload);
        let payload = postcard::to_extend(frame, payload).map_err(io::Error::other)?;
        debug_assert!(payload.len() <= MOST_PAYLOAD);
        self.checksum = frame::checksum(&payload, self.checksum);
        let length = u32::try_from(payload.len()).map_err(io::Error::other)?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(&payload)?;
        self.out.write_all(&self.checksum.to_le_bytes())?;
        self.written.bytes += 12 + payload.len() as u64;
        self.payload = payload;
        Ok(())
    }

    /// Ends the snapshot and flushes it. One that is not ended is refused.
    ///
    /// # Errors
    /// [`Error::Io`] alone.
    pub fn finish(mut self) -> Result<(Exported, W), Error> {
        let Exported { workers, held_blocks, .. } = self.written;
        self.frame(&Frame::End { workers, names: held_blocks })?;
        self.out.flush()?;
        Ok((self.written, self.out))
    }
}

/// Writes every worker that is known now, each cut at a moment of its own.
///
/// `cursor` is asked for a worker's cursor just before its cut. What it gives
/// beside the cursor is held until the cut is done: the guard of a lock under
/// which events of this worker are handed in, or `()` where nobody hands in
/// any.
///
/// Keeps one worker's cut in memory at a time. O(what all hold).
///
/// # Errors
/// [`Error::Io`] and [`Error::LongCursor`].
pub fn export<G>(
    index: &Index,
    out: impl Write,
    mut cursor: impl FnMut(WorkerId) -> (G, Cursor),
) -> Result<Exported, Error> {
    let mut writer = Writer::new(out)?;
    for worker in index.workers() {
        let (guard, cursor) = cursor(worker);
        let cut = Cut::of(index, worker, cursor);
        drop(guard);
        // One that has left meanwhile is left out.
        if let Some(cut) = cut {
            writer.write(&cut)?;
        }
    }
    Ok(writer.finish()?.0)
}

/// [`export`]s to a file that is whole or not there: writes beside `path`,
/// under the same name and `.partial`, makes it durable and renames it. Calls
/// for one path, in one process, take turns.
///
/// # Errors
/// Those of [`export`]; what stood at `path` before then still does.
pub fn save<G>(
    index: &Index,
    path: impl AsRef<Path>,
    cursor: impl FnMut(WorkerId) -> (G, Cursor),
) -> Result<Exported, Error> {
    let path = path.as_ref();
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let _turn = Turn::of(partial.as_ref());
    let written = write_durably(index, partial.as_ref(), cursor);
    let renamed = written.and_then(|written| {
        fs::rename(&partial, path)?;
        Ok(written)
    });
    if renamed.is_err() {
        // It is the first fault that is told.
        let _ = fs::remove_file(&partial);
    }
    renamed
}

fn write_durably<G>(
    index: &Index,
    path: &Path,
    cursor: impl FnMut(WorkerId) -> (G, Cursor),
) -> Result<Exported, Error> {
    let file = File::create(path)?;
    let written = export(index, BufWriter::new(&file), cursor)?;
    file.sync_all()?;
    Ok(written)
}
