//! The machinery below the index's skin.
//!
//! Data goes one way: skin → lane → tree → published views. The reader's path
//! (`walk`, `sieve`, `slots`, `view`, `levels`, `kids`, `key`, `hub`, `slot_array`,
//! `place`, `columns`) touches none of the writers' files.

mod check;
mod columns;
mod edit;
mod export;
mod figures;
mod garbage;
mod hub;
mod key;
mod kids;
mod lane;
mod levels;
mod limits;
mod link;
#[cfg(feature = "intake")]
mod locate;
mod lookup;
mod mask;
mod mend;
mod names;
mod node;
mod place;
mod published;
mod queue;
mod release;
mod repeated;
mod scratch;
mod shared;
mod sieve;
mod slot;
mod slot_array;
mod slots;
mod spread;
mod store;
mod strays;
mod turn;
mod view;
mod walk;

pub(crate) use key::MOST_LISTED;
pub(crate) use limits::NONE as NO_LIMIT;
#[cfg(feature = "intake")]
pub(crate) use locate::{Above, Located};
pub(crate) use shared::{Config, Shared, Threads};
pub(crate) use walk::Walk;

use garbage::Garbage;
use hub::{Hub, Spot};
use limits::{Full, Limits};
use lookup::Lookup;
use mend::Mended;
use names::Names;
use node::{Children, Node};
use scratch::Scratch;
use sieve::Sieve;
use slots::{Roster, SlotPool};

use crate::sync::rank::Rank;
use crate::sync::{Arc, Fold, Guard, Mutex, pin};

/// The tree, its lookup and what has left them.
pub(crate) struct Tree {
    root: Arc<Node>,
    /// The root's table of children. It has all its shards from the start, so
    /// none ever takes its place; only in the models, where it has one.
    top: Arc<Hub>,
    /// Which children the root may have; the root's table keeps it so.
    sieve: Arc<Sieve>,
    lookup: Lookup,
    roster: Roster,
    garbage: Garbage,
    limits: Limits,
    /// Counts that are in no lane's share: of what was mended after a panic.
    mended: Mutex<Mended>,
    fold: Fold,
    config: TreeConfig,
}

/// Sizes at which the tree changes its shape.
#[derive(Clone, Copy)]
pub(crate) struct TreeConfig {
    /// Most blocks of a run.
    pub(crate) run_blocks: u32,
    /// Most children that a view lists itself.
    pub(crate) hub_threshold: usize,
    /// Children at which a hub of one shard gets more.
    pub(crate) wide_threshold: usize,
    /// Shards of a wide hub.
    pub(crate) wide_shards: usize,
    /// Shards of the root's hub, from the start.
    pub(crate) root_shards: usize,
    /// Shards of the lookup.
    pub(crate) lookup_shards: usize,
    /// Names from which on a batch is brought together by the lookup's shards.
    pub(crate) many_names: usize,
    /// Most blocks of the tree, or `NO_LIMIT`.
    pub(crate) max_blocks: usize,
    /// Most names of a worker, or `NO_LIMIT`.
    pub(crate) max_worker_blocks: usize,
}

/// What a worker holds, and the memory to change it with. Guarded by the
/// worker's lane.
struct Holdings {
    names: Names,
    scratch: Scratch,
}

/// Why a store was refused; nothing has changed.
enum Refusal {
    /// The worker has no block of the parent's name.
    NoParent,
    /// There is no room for the batch.
    Full(Full),
}

impl Tree {
    fn new(config: TreeConfig) -> Self {
        let config = TreeConfig { run_blocks: Tree::clamp_run(config.run_blocks), ..config };
        let (fold, pool) = (Fold::random(), Arc::new(SlotPool::default()));
        let sieve = Arc::new(Sieve::new());
        let top = Arc::new(Hub::new(config.root_shards, fold, false).behind(sieve.clone()));
        Self {
            root: Node::root(top.clone()),
            top,
            sieve,
            lookup: Lookup::new(config.lookup_shards, config.many_names),
            roster: Roster::new(pool.clone()),
            garbage: Garbage::new(pool),
            limits: Limits::new(config.max_blocks, config.max_worker_blocks),
            mended: Mutex::default(),
            fold,
            config,
        }
    }

    /// The child of the root at this key's spot.
    #[inline]
    fn first_child<'g>(&'g self, first: &Spot<'g>, guard: &'g Guard) -> Option<&'g Node> {
        if cfg!(kvradix_loom) {
            return self.root.view(guard).child(0, first.key.local, self.fold, guard);
        }
        first.find(guard)
    }

    /// Bytes of the root with its table, while it is new.
    fn bytes_to_begin_with(&self) -> usize {
        let half = self.root.read(Rank::Parent);
        self.root.bytes_in_all(&half, &pin()) + half.hub().map_or(0, |hub| hub.bytes())
    }
}

/// Whether children of the root that begin with these blocks have one bit of
/// the sieve.
#[cfg(kvradix_loom)]
pub(crate) fn share_a_bit(fold: Fold, blocks: &[u64]) -> bool {
    let bit = |block: &u64| sieve::bit(key::Key::new(fold, 0, crate::LocalHash(*block)).hash);
    blocks.windows(2).all(|pair| bit(&pair[0]) == bit(&pair[1]))
}

impl Drop for Tree {
    /// Takes the tree apart from a list, not by recursion: chains are as deep
    /// as prompts are long.
    fn drop(&mut self) {
        let mut owned = vec![self.root.clone()];
        while let Some(node) = owned.pop() {
            let mut half = node.write(Rank::Parent);
            match std::mem::replace(&mut half.children, Children::None) {
                Children::None => {}
                Children::Few(few) => owned.extend(few.into_iter().map(|child| child.node)),
                Children::Hub(hub) => owned.extend(hub.children()),
            }
        }
    }
}
