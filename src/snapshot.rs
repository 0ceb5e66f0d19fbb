//! Warm start: a whole index to a file or stream, and back.
//!
//! A router that restarts, or a second one that joins, need not wait until the
//! fleet has evicted and stored itself anew. A snapshot keeps what each worker
//! holds, by its names, and a [`Cursor`]: where in the worker's stream of
//! events that state stands. The reader of the snapshot goes on with each
//! worker's events from there.
//!
//! # The cut, and the cursor that belongs to it
//!
//! A snapshot is no one moment of the whole index: workers are independent of
//! each other, so each is cut at a moment of its own, while the others go on.
//! Within a worker the cut is exact, if the caller holds to one rule: **no
//! event of the worker is handed in between reading its cursor and the cut.**
//! An event that is in the cut and comes once more after it is not always
//! harmless: names may have moved meanwhile.
//!
//! - Where one thread applies a worker's events, it takes the cut itself,
//!   between two events: [`Cut::of`], and sends it to whoever has the
//!   [`Writer`].
//! - Where any thread may, keep each worker's cursor behind a lock, apply and
//!   advance under it, and have [`export`] or [`save`] take that lock: they ask
//!   for each worker's cursor just before its cut, and hold on to the guard
//!   that comes with it until the cut is done. Only that worker's events wait.
//!
//! ```
//! use std::collections::HashMap;
//! use std::sync::Mutex;
//!
//! use kvradix::snapshot::{self, Cursor};
//! use kvradix::{Block, Event, Index, LocalHash, SequenceHash, WorkerId};
//!
//! let worker = WorkerId::new(1, 0);
//! // The number of each worker's last event.
//! let seen = HashMap::from([(worker, Mutex::new(0))]);
//! let hand_in = |index: &Index, number: u64, event: &Event| {
//!     let mut last = seen[&event.worker()].lock().unwrap();
//!     index.apply(event).unwrap();
//!     *last = number;
//! };
//!
//! let index = Index::new();
//! let block = Block { sequence: SequenceHash(100), local: LocalHash(10) };
//! hand_in(&index, 1, &Event::Stored { worker, parent: None, blocks: vec![block] });
//!
//! let mut file = Vec::new();
//! snapshot::export(&index, &mut file, |worker| {
//!     let last = seen[&worker].lock().unwrap();
//!     let cursor = Cursor::from(*last);
//!     (last, cursor)
//! })?;
//!
//! // Elsewhere, later:
//! let warm = snapshot::import(file.as_slice(), Index::builder())?;
//! assert_eq!(warm.index.matches(&[LocalHash(10)]).depth_of(worker), 1);
//! let [(of, cursor)] = warm.cursors.as_slice() else { panic!("one worker") };
//! assert_eq!((*of, cursor.to_u64()), (worker, Some(1))); // go on with event 2
//! # Ok::<(), snapshot::Error>(())
//! ```
//!
//! A worker that joins during an export may be missing; its events then begin
//! at their beginning. So do those of a [poisoned](crate::StoreError::Poisoned)
//! one, which is left out. One that leaves may be there; remove it again.
//!
//! # Limits
//!
//! The [limits](crate::Builder::max_blocks) of the index that is loaded hold for
//! the whole: meanwhile the tree may have more blocks, a batch for each thread.
//! A snapshot that was taken beside traffic may have more blocks in all than
//! there ever were at once, what one worker had before it was evicted beside
//! what another stored in its place: one of a tree near its limit may need
//! some more room than that, and is refused where there is none.
//!
//! # What is refused
//!
//! Whatever is not whole: each frame's checksum covers all that came before
//! it, a last frame says that it is the last, and nothing is believed of a
//! length before the bytes are there. [`import`] drops what it has begun;
//! [`Importer::import_into`], for an index that threads share already, reads
//! everything once before it changes anything.
//!
//! # The format
//!
//! Version 1; numbers outside of payloads are little-endian.
//!
//! ```text
//! header   "kvradix\0", version u32, XXH3-64 of these 12 bytes u64
//! frame    length of the payload u32 (at most 1 MiB), payload,
//!          XXH3-64 of the payload u64, its seed the checksum before it
//! ```
//!
//! A payload is one value in [postcard](https://postcard.jamesmunns.com)'s
//! format: *worker* (id, rank, names, cursor), *runs* (each the parent's name
//! and blocks of 16 bytes, name and content), *holes* (names that hold the
//! place of blocks that the worker does not have, given up once all its runs
//! are there) or *end* (workers, names). A worker's runs and holes follow it.

mod contents;
mod cursor;
mod cut;
mod deal;
mod error;
mod frame;
mod load;
mod loader;
mod read;
mod turn;
mod write;

pub use cursor::Cursor;
pub use cut::Cut;
pub use error::Error;
pub use load::{Imported, Importer, import};
pub use write::{Exported, Writer, export, save};
