//! Which tiers of which rank hold a block.

use super::{Batch, Converter, Drops, TierSet};
use crate::{Index, LocalHash, Matches, SequenceHash, WorkerId};

/// How a batch came here.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// As it was published.
    Live,
    /// Out of the publisher's history, to close a gap.
    Replayed,
    /// Told again: after a reconnect, or in a report of all that is held.
    Reannounced,
}

/// What a rank is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct RankOptions {
    /// Whether a block stored twice on a tier is two copies, of which each is
    /// removed by an event of its own (vLLM). Only batches of
    /// [`Origin::Live`] add copies. Off by default: stored twice is stored.
    pub copies: bool,
}

/// What a fleet's tiers hold, for one model and block size.
///
/// Two indexes answer, the [device's](Self::device) and the one of
/// [any tier](Self::any). Ranks [join](Self::join) and
/// [leave](Self::remove); events come in through their [`Rank`]s. Share it
/// between threads by reference or in an `Arc`; queries take no lock.
#[derive(Debug)]
pub struct Residency {
    converter: Converter,
    device: Index,
    any: Index,
}

impl Residency {
    /// For blocks of `block_size` tokens, with two indexes of their default
    /// settings.
    ///
    /// # Panics
    /// If `block_size` is 0.
    pub fn new(block_size: u32) -> Self {
        Self::with_indexes(block_size, Index::new(), Index::new())
    }

    /// With two empty indexes of the caller's making, as to share a
    /// [`Pool`](crate::Pool).
    ///
    /// # Panics
    /// If `block_size` is 0.
    pub fn with_indexes(block_size: u32, device: Index, any: Index) -> Self {
        Self { converter: Converter::new(block_size), device, any }
    }

    /// What hashes events, and should hash requests.
    pub fn converter(&self) -> &Converter {
        &self.converter
    }

    /// What the device holds. For reading: events come in through [`Rank`].
    pub fn device(&self) -> &Index {
        &self.device
    }

    /// What any tier holds, the device included. For reading.
    pub fn any(&self) -> &Index {
        &self.any
    }

    /// A rank begins its life, with nothing held. If one of this name was
    /// there, it has left, and its [`Rank`]s do nothing any more.
    pub fn join(&self, worker: WorkerId, options: RankOptions) -> Rank {
        let _ = (worker, options);
        todo!()
    }

    /// The rank of this name that joined and has not left.
    pub fn rank(&self, worker: WorkerId) -> Option<Rank> {
        let _ = worker;
        todo!()
    }

    /// The ranks that joined and have not left, in ascending order.
    pub fn ranks(&self) -> Vec<WorkerId> {
        todo!()
    }

    /// Every rank of worker `id` leaves; how many did. Batches that come late
    /// through their [`Rank`]s do nothing.
    pub fn remove(&self, id: u64) -> usize {
        let _ = id;
        todo!()
    }

    /// One rank leaves; whether it was there.
    pub fn remove_rank(&self, worker: WorkerId) -> bool {
        let _ = worker;
        todo!()
    }

    /// How many leading blocks of the query each rank holds on its device,
    /// and on any tier. Takes no lock.
    pub fn query(&self, query: &[LocalHash], answer: &mut Answer) {
        let _ = (query, answer);
        todo!()
    }

    /// Returns once every removal handed in before is visible.
    pub fn flush(&self) {
        self.device.flush();
        self.any.flush();
    }
}

/// One rank of a worker, in one of its lives: the way in for its events.
///
/// Clones are the same rank. Its batches count in the order in which their
/// calls return; hand them in from one thread at a time.
#[derive(Clone, Debug)]
pub struct Rank {}

impl Rank {
    /// Its name.
    pub fn id(&self) -> WorkerId {
        todo!()
    }

    /// Does what the events of the batch say, one after the other; those left
    /// out are counted in `drops`. [`Batch::rank`] is not looked at: who the
    /// batch is from is its source's to say.
    pub fn apply(&self, batch: &Batch<'_>, origin: Origin, drops: &mut Drops) -> Applied {
        let _ = (batch, origin, drops);
        todo!()
    }

    /// The rank holds nothing any more, on any tier; it does not leave. For
    /// a stream that can no longer be trusted, and for an engine's restart.
    pub fn clear(&self) {
        todo!()
    }

    /// Whether the rank has left, so that nothing of it counts any more.
    pub fn has_left(&self) -> bool {
        todo!()
    }

    /// On which tiers the block is held.
    pub fn tiers_of(&self, name: SequenceHash) -> TierSet {
        let _ = name;
        todo!()
    }

    /// What the rank holds, in numbers.
    pub fn stats(&self) -> RankStats {
        todo!()
    }
}

/// What a batch did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Applied {
    /// Blocks in accepted stores, held before or not.
    pub stored: u64,
    /// Blocks of removals that were held on that tier.
    pub removed: u64,
    /// How often the rank was cleared.
    pub cleared: u64,
    /// The rank has left: nothing was done.
    pub left: bool,
}

/// What a rank holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct RankStats {
    /// Blocks on the device.
    pub device: u64,
    /// Blocks on any tier.
    pub any: u64,
    /// Device blocks whose parent is not on the device, which no query could
    /// reach, and which the device's index takes in once it is.
    pub waiting: u64,
}

/// Who holds how much of a query's prefix, and where. Keep one a thread.
#[derive(Clone, Default, Debug)]
pub struct Answer {
    device: Matches,
    any: Matches,
}

/// One rank's share of a query's prefix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Residence {
    /// Who holds it.
    pub worker: WorkerId,
    /// Leading blocks on the device.
    pub device: u32,
    /// Leading blocks on any tier; at least `device`, and at least 1.
    pub any: u32,
}

impl Answer {
    /// An empty answer; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The device's share.
    pub fn device(&self) -> &Matches {
        &self.device
    }

    /// The share of all tiers together.
    pub fn any(&self) -> &Matches {
        &self.any
    }

    /// Both for each rank, in ascending order of ranks. Sorts.
    pub fn residences(&self) -> Vec<Residence> {
        todo!()
    }
}
