//! Where a worker has a block: what it is, and what it is below.

use super::link::owner_of;
use super::names::Names;
use super::node::Node;
use super::place::Place;
use super::shared::Shared;
use super::{Holdings, Tree};
use crate::sync::rank::Rank;
use crate::sync::{Arc, pin};
use crate::{LocalHash, SequenceHash, WorkerId};

/// A block's place, as its worker would name it in a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Located {
    /// Its content.
    pub(crate) local: LocalHash,
    /// The block above.
    pub(crate) above: Above,
}

/// The block above another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Above {
    /// There is none: the block begins a prompt.
    Root,
    /// The worker holds it, by this name among others.
    Named(SequenceHash),
    /// The worker does not hold it.
    Hole,
}

impl Shared {
    /// The place of the worker's block `name`; `None` if it has no such
    /// block. Applies its queued removals first. O(1), or O(private names)
    /// where it holds the block above by those alone.
    pub(crate) fn locate(&self, worker: WorkerId, name: SequenceHash) -> Option<Located> {
        self.with_lane(worker, |tree, holdings| locate(tree, holdings, name)).flatten()
    }
}

fn locate(tree: &Tree, holdings: &Holdings, name: SequenceHash) -> Option<Located> {
    let guard = pin();
    let place = holdings.names.resolve(tree, name, &guard)?.place;
    let node = owner_of(Names::node_of(place, &guard), &guard);
    let half = node.read(Rank::Child);
    let local = half.columns.local(place.at());
    let parent = half.parent.upgrade();
    // Two nodes are locked at once from the parent down alone.
    drop(half);
    let above = match (place.at().checked_sub(1), parent) {
        (Some(at), _) => name_at(holdings, &node, at),
        (None, Some(parent)) if !parent.is_root() => name_at(holdings, &parent, node.offset() - 1),
        (None, _) => Above::Root,
    };
    Some(Located { local, above })
}

/// What the worker calls the block at this position. What it holds stands
/// still: its lane is locked.
fn name_at(holdings: &Holdings, node: &Arc<Node>, at: u32) -> Above {
    let (names, guard) = (&holdings.names, pin());
    let half = node.read(Rank::Child);
    if !half.holds(node.view(&guard).levels(), names.slot, at) {
        return Above::Hole;
    }
    let place = Place::new(node, at);
    if names.knows_canonical(place) {
        return Above::Named(half.columns.name(at));
    }
    let private = names.privates().find(|(_, other)| *other == place);
    private.map_or(Above::Hole, |(name, _)| Above::Named(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Block, Index};

    #[test]
    fn a_block_is_located_by_what_its_own_worker_calls_the_one_above() {
        let index = Index::builder().run_blocks(2).drain_threads(0).build();
        let block =
            |name, content| Block { sequence: SequenceHash(name), local: LocalHash(content) };
        let [one, two] = [1, 2].map(|id| WorkerId::new(id, 0));
        let first: Vec<_> = (0..5).map(|n| block(100 + n, n)).collect();
        index.store(one, None, &first).unwrap();
        let second: Vec<_> = (0..5).map(|n| block(200 + n, n)).collect();
        index.store(two, None, &second).unwrap();
        for (worker, base) in [(one, 100), (two, 200)] {
            for n in 0..5 {
                let above = match n {
                    0 => Above::Root,
                    _ => Above::Named(SequenceHash(base + n - 1)),
                };
                let found = index.locate(worker, SequenceHash(base + n));
                assert_eq!(found, Some(Located { local: LocalHash(n), above }), "{worker}, {n}");
            }
            assert_eq!(index.locate(worker, SequenceHash(300 - base)), None);
        }
        for (hole, below) in [(200, 1), (201, 2), (203, 4)] {
            index.remove(two, &[SequenceHash(hole)]);
            let found = index.locate(two, SequenceHash(200 + below)).unwrap();
            assert_eq!(found, Located { local: LocalHash(below), above: Above::Hole });
        }
        assert_eq!(index.locate(WorkerId::new(3, 0), SequenceHash(100)), None);
    }
}
