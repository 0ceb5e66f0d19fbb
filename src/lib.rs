//! A sharded concurrent radix index with lock-free reads: which LLM workers
//! hold how much of a prompt's prefix in their KV caches.
//!
//! Inference engines cut the KV cache of a prompt into blocks and publish
//! events: *stored*, *removed*, *cleared*. A router that sends a request to
//! the worker with the longest cached prefix saves that much prefill.
//! [`Index`] takes the events of many workers, from many threads at once, and
//! answers for a request's blocks: how many leading ones does each worker
//! hold?
//!
//! A block has two hashes. The [`LocalHash`] is its content alone; the router
//! computes it, for events and requests alike ([`hash::LocalHasher`] is one
//! way). The [`SequenceHash`] is the engine's own name for the block in its
//! prefix; only events carry it.
//!
//! ```
//! use kvradix::{Block, Index, LocalHash, SequenceHash, WorkerId};
//!
//! let index = Index::new();
//! let (one, two) = (WorkerId::new(1, 0), WorkerId::new(2, 0));
//! let block = |sequence, local| Block {
//!     sequence: SequenceHash(sequence),
//!     local: LocalHash(local),
//! };
//!
//! // Both begin with content 10, 11; the second worker goes on with 12.
//! index.store(one, None, &[block(100, 10), block(101, 11)])?;
//! index.store(two, None, &[block(100, 10), block(101, 11)])?;
//! index.store(two, Some(SequenceHash(101)), &[block(102, 12)])?;
//!
//! let prompt = LocalHash::from_slice(&[10, 11, 12, 13]);
//! let matches = index.matches(prompt);
//! assert_eq!(matches.depth_of(one), 2);
//! assert_eq!(matches.best().map(|best| (best.worker, best.depth)), Some((two, 3)));
//!
//! // A removal is queued; `flush` waits until it is visible.
//! index.remove(two, &[SequenceHash(101)]);
//! index.flush();
//! assert_eq!(index.matches(prompt).depth_of(two), 1);
//! # Ok::<(), kvradix::StoreError>(())
//! ```
//!
//! # Consistency
//!
//! A worker's state is a map from *names* (its sequence hashes) to *places*
//! (paths of local hashes from the root). It *holds* a place while at least
//! one of its names maps there. For each worker, [`Index::matches`] gives the
//! largest n > 0 such that the worker holds every prefix of the query of
//! length 1 to n. [`reference::ReferenceIndex`] is the same contract as plain
//! code.
//!
//! **Reads under writes.** Queries take no lock and never wait. Every block
//! counted for a worker was held by it at some moment during the call, and a
//! worker that held its blocks throughout is never counted short, whatever
//! the others do to the tree. An answer is not a snapshot: two workers in it,
//! or two blocks of one worker, may be seen at different moments of the call.
//! Queries that begin after [`Index::store`] returned see the whole batch;
//! queries beside it may see its beginning only.
//!
//! **Order.** One worker's events count in the order in which their calls
//! return; calls that overlap may take either order. So hand one worker's
//! events in from one thread at a time. Different workers are independent of
//! each other: no order between them is kept, and none is needed.
//!
//! **Stores are one step.** All places of a batch are added first, then names
//! that moved give up their old places; a place held before and after is held
//! throughout. A [refused](StoreError) batch changes nothing.
//!
//! **Removals are queued.** [`Index::remove`] returns before the removal
//! shows. It is visible at the latest
//! - after [`Index::flush`], or [`Index::flush_worker`] of that worker;
//! - before any later event of the same worker applies;
//! - once the drain threads have had their turn, which they are given a
//!   [`removal_delay`](Builder::removal_delay) after it was handed in, 1 ms by
//!   default, whatever the traffic.
//!
//! Until then the worker counts as holding the blocks. With zero
//! [drain threads](Builder::drain_threads) `remove` applies before it returns.
//!
//! **Holes.** A block may go while deeper ones stay. The worker then counts up
//! to the hole; when the block is stored again, the deeper ones count again.
//! Nothing is forgotten that the engine still has.
//!
//! **Names are per worker.** Workers may call the same content by different
//! names (vLLM seeds its hashes at random by default) and different content by
//! the same name, and one worker may have two names for one place: it holds
//! the place until both are gone. A worker removes its own names only. A name
//! stored again at another place moves there; what is below keeps its place.
//!
//! **Known workers.** An accepted store of at least one block makes a worker
//! known, [`Index::remove_worker`] makes it unknown. For an unknown worker
//! late removals and clears do nothing, and a late store below a block is
//! [refused](StoreError::ParentNotFound). A late store that begins a prompt
//! cannot be told from a new worker's; where that matters, give each life of a
//! worker an id of its own.
//!
//! **What stays in memory.** A block is in the tree if and only if somebody
//! holds it or a block below it; what the last holder gives up leaves with the
//! event that gave it up. Memory that a reader may still be looking at is
//! freed later: above 2 MiB of it a writer waits for readers to move on
//! before its next event. [`Index::flush`] frees it where no reader is left. [`Index::stats`] counts all of it.
//!
//! **Limits.** [`Builder::max_blocks`] bounds the tree,
//! [`Builder::max_worker_blocks`] each worker. A store for which there is no
//! room is refused whole; nothing is ever forgotten to make room. A router
//! that would rather forget removes a worker, or what it has evicted.
//!
//! **Faults.** No call of an [`Index`] panics on any input. Should an event panic all the
//! same, by a fault of this crate, it poisons its own worker and nobody else:
//! the worker is in no answer and its stores are
//! [refused](StoreError::Poisoned) until [`Index::clear`] or
//! [`Index::remove_worker`] heals it. All other workers' answers stay exact,
//! no lock stays held, and the drain threads go on.
//!
//! # Features
//!
//! None is on by default.
//! - `serde`: `Serialize` and `Deserialize` for hashes, [`Event`], [`Match`]
//!   and [`Stats`].
//! - `metrics`: Prometheus metrics of any number of indexes (`metrics::Metrics`).
//! - `snapshot`: a whole index to a file or stream and back, with a cursor for
//!   each worker: `kvradix::snapshot`.
//! - `intake`: module `intake`, which decodes what vLLM and SGLang publish and
//!   keeps two indexes, of the device and of any tier, true to it.
//! - `tracing`: spans `flush`, `export` and `remove_worker` (debug) and `drain`
//!   (trace: threads or callers that work through a worker's queue), and a
//!   warning for refused stores, of each [reason](StoreErrorKind) at most one a
//!   second, with the number `suppressed` since the last. Their target is
//!   `kvradix`. No lock is held while the warning is given.
//! - `fleet`: module `fleet`, which follows engines over ZeroMQ.
//! - `listen`: the command `kvradix listen`, which serves what a fleet holds
//!   over HTTP; with it comes `cli`.
//! - `cli`: the binary `kvradix` (`replay` and `churn`) and what it needs; the
//!   library stays as it is.

// The model's maps are `indexmap`'s, whose `remove` asks for another name.
#![cfg_attr(kvradix_loom, allow(deprecated))]

#[cfg(feature = "fleet")]
pub mod fleet;
pub mod hash;
#[cfg(feature = "intake")]
pub mod intake;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod reference;
#[cfg(feature = "snapshot")]
pub mod snapshot;

mod builder;
mod error;
mod event;
mod ids;
mod index;
mod matches;
mod stats;
mod sync;
mod trace;
mod tree;

pub use builder::{Builder, Pool};
pub use error::{Refused, StoreError, StoreErrorKind};
pub use event::Event;
pub use ids::{Block, LocalHash, SequenceHash, WorkerId};
pub use index::Index;
pub use matches::{Match, Matches};
pub use stats::{Count, DrainCounts, EventCounts, Memory, Refusals, Stats};

/// What the models of `loom-tests` need; no part of the library.
#[cfg(kvradix_loom)]
#[doc(hidden)]
pub mod model;

/// Panics where a test wants them; no part of the library.
#[cfg(kvradix_faults)]
#[doc(hidden)]
pub use sync::fault;

/// The example of README.md, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
