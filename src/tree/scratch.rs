//! What a writer keeps from event to event, so that it need not allocate.

use super::garbage::Outgoing;
use super::lane::slim;
use super::levels::Level;
use super::place::Place;

/// A lane's working memory. Guarded by its lock.
#[derive(Default)]
pub(super) struct Scratch {
    /// The worker's slot.
    pub(super) slot: u32,
    /// Values that left the tree in this event and wait to be handed over.
    pub(super) retired: Outgoing,
    /// The owner levels of the node that is being changed.
    pub(super) levels: Vec<Level>,
    /// What the names of a removal stand for; whether they are private.
    pub(super) found: Vec<(Place, bool)>,
    /// Of these, the first of each node.
    pub(super) heads: Vec<Place>,
    /// Positions to let go in one node.
    pub(super) positions: Vec<u32>,
    /// Of these, the ones whose entries go.
    pub(super) lost: Vec<u32>,
    /// How the lane's events have changed the tree's counts.
    pub(super) delta: Delta,
    /// Room in the tree that the event has reserved; 0 between events.
    pub(super) reserved: usize,
    /// The blocks in `delta` for which the limit's count is right.
    pub(super) settled: i64,
}

impl Scratch {
    /// Keeps small buffers only; what is retired was handed over.
    pub(super) fn slim(&mut self) {
        self.retired.slim();
        slim(&mut self.levels);
        slim(&mut self.found);
        slim(&mut self.heads);
        slim(&mut self.positions);
        slim(&mut self.lost);
    }
}

/// Signed shares of the tree's counts; over all lanes they add up.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Delta {
    pub(super) tree_blocks: i64,
    pub(super) nodes: i64,
    pub(super) entries: i64,
}
