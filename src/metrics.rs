//! Prometheus metrics of indexes: feature `metrics`.
//!
//! They go into a [`Registry`] of the user's own ([`prometheus_client`], which
//! is handed on here), beside his other metrics. Each index has a name, the
//! label `index` of every metric. What is counted is read from
//! [`Index::stats`] when the registry is encoded, so it costs no event
//! anything; of queries see below.
//!
//! | metric | type | further labels | what |
//! | --- | --- | --- | --- |
//! | `kvradix_events_total` | counter | `kind`, `outcome` | events with at least one block or name: `store` (`applied`, or why it was refused: `parent_not_found`, `repeated_hash`, `index_full`, `worker_full`, `poisoned`), `remove`, `clear`, `leave` (`applied`, `unknown_worker`); a removal counts once it is applied |
//! | `kvradix_event_blocks_total` | counter | `kind`, `outcome` | their blocks or names: `store` (`applied`, `held_already`, or why they were refused), `remove` (`applied`, `unknown_name`), `clear`, `leave` (`applied`), `panic` (`lost`: names of workers that a panic [poisoned](crate::StoreError::Poisoned)); what was applied of stores less what was applied, or lost, of the others is `kvradix_held_blocks` |
//! | `kvradix_workers` | gauge | | known workers |
//! | `kvradix_poisoned_workers` | gauge | | those of them that a panic poisoned |
//! | `kvradix_held_blocks` | gauge | | names that workers have, summed over them |
//! | `kvradix_tree_blocks` | gauge | | blocks in the tree, each once |
//! | `kvradix_nodes` | gauge | | nodes of the tree |
//! | `kvradix_lookup_entries` | gauge | | entries from names to places |
//! | `kvradix_memory_bytes` | gauge | `part` | the index's memory, by the account of [`Memory`](crate::Memory): `tree`, `lookup`, `workers`, `retired` |
//! | `kvradix_pending_removals` | gauge | | names handed in and not yet applied |
//! | `kvradix_oldest_pending_removal_seconds` | gauge | | how long the oldest of these has waited; 0 without any |
//! | `kvradix_drain_batch_names` | histogram | | names that were applied at once; its count is that of the batches |
//! | `kvradix_query_depth_blocks` | histogram | | the deepest worker's blocks in a query's answer, 0 where nobody has any; its count is that of the queries |
//! | `kvradix_query_duration_seconds` | histogram | | time of a query; of one in 16, by chance |
//!
//! Queries are counted on the thread that asks, in memory that no other thread
//! writes, from the moment on at which the index is watched: a few
//! nanoseconds a query, and two looks at the clock for one in 16.
//! BENCHMARKS.md has figures.
//!
//! ```
//! use kvradix::Index;
//! use kvradix::metrics::Metrics;
//! use kvradix::metrics::prometheus_client::{encoding::text::encode, registry::Registry};
//!
//! let mut registry = Registry::default();
//! let metrics = Metrics::register(&mut registry);
//!
//! let (small, large) = (Index::new(), Index::new());
//! metrics.watch("small", &small)?;
//! metrics.watch("large", &large)?;
//!
//! let mut page = String::new(); // what `/metrics` answers
//! encode(&mut page, &registry).expect("a string takes everything");
//! assert!(page.contains(r#"kvradix_held_blocks{index="small"} 0"#));
//! # Ok::<(), kvradix::metrics::NameTaken>(())
//! ```

mod expose;
mod queries;

use std::fmt;

pub use prometheus_client;
use prometheus_client::registry::Registry;

use crate::sync::rank::Rank;
use crate::sync::{Arc, Mutex, Weak};
use crate::tree::Shared;
use crate::{Index, Stats};

use expose::Exposed;
pub(crate) use queries::Queries;
use queries::QueryCounts;

/// The metrics of any number of indexes in one [`Registry`].
///
/// A handle: clones of it speak of the same indexes, and the registry goes on
/// to show them when all handles are gone. No index is kept alive by it: one
/// that is dropped is no longer shown, and its name is free again.
#[derive(Clone)]
pub struct Metrics {
    watched: Arc<WatchList>,
}

/// Another index that is still there has this name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NameTaken {
    /// The name.
    pub name: String,
}

/// The indexes of one registry.
struct WatchList {
    indexes: Mutex<Vec<Watched>>,
}

/// An index under its name.
#[derive(Clone)]
struct Watched {
    name: Arc<str>,
    index: Weak<Shared>,
    queries: Arc<Queries>,
}

/// What is shown of an index.
struct Seen {
    name: Arc<str>,
    stats: Stats,
    queries: QueryCounts,
}

impl Metrics {
    /// Adds to `registry` the metrics of all indexes that will be
    /// [watched](Self::watch). One call a registry: two would show every
    /// metric twice.
    pub fn register(registry: &mut Registry) -> Self {
        let watched = Arc::new(WatchList { indexes: Mutex::default() });
        registry.register_collector(Box::new(Exposed { watched: watched.clone() }));
        Self { watched }
    }

    /// Shows `index` under `name` from now on, and begins to count its
    /// queries, unless that has begun. May be called at any time, also while
    /// the registry is in use.
    ///
    /// # Errors
    /// [`NameTaken`] if another index has the name and was not dropped yet.
    pub fn watch(&self, name: impl Into<String>, index: &Index) -> Result<(), NameTaken> {
        let name = name.into();
        let mut indexes = self.watched.indexes.lock(Rank::WatchList);
        indexes.retain(|watched| watched.index.strong_count() > 0);
        if let Some(watched) = indexes.iter().find(|watched| *watched.name == *name) {
            let same = std::ptr::eq(watched.index.as_ptr(), Arc::as_ptr(index.shared()));
            return if same { Ok(()) } else { Err(NameTaken { name }) };
        }
        let (name, index, queries) =
            (Arc::from(name), Arc::downgrade(index.shared()), index.count_queries());
        indexes.push(Watched { name, index, queries });
        Ok(())
    }

    /// Shows the index of this name no more; whether there was one. Its
    /// queries go on to be counted.
    pub fn unwatch(&self, name: &str) -> bool {
        let mut indexes = self.watched.indexes.lock(Rank::WatchList);
        let before = indexes.len();
        indexes.retain(|watched| *watched.name != *name);
        indexes.len() < before
    }
}

impl WatchList {
    /// Looks at every index that is still there.
    fn look(&self) -> Vec<Seen> {
        let watched = self.indexes.lock(Rank::WatchList).clone();
        let see = |Watched { name, index, queries }: Watched| {
            let stats = index.upgrade()?.stats();
            Some(Seen { name, stats, queries: queries.counts() })
        };
        watched.into_iter().filter_map(see).collect()
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.watched.fmt(f)
    }
}

impl fmt::Debug for WatchList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let watched = self.indexes.lock(Rank::WatchList).clone();
        f.debug_set().entries(watched.iter().map(|watched| &watched.name)).finish()
    }
}

impl fmt::Display for NameTaken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "another index is shown under the name {:?}", self.name)
    }
}

impl std::error::Error for NameTaken {}
