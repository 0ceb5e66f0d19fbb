//! Limits: how many blocks the tree may have, and how many each worker.
//!
//! A store reserves room in the tree for its whole batch before it changes
//! anything, in one atomic step, and at its end gives back what it did not
//! need; a removal gives room back once its blocks are out of the tree. What
//! is used is therefore never less than what is in the tree, and never above
//! the limit, whoever stores beside. A worker's own limit needs no such step:
//! its names change under its lane's lock alone.
//!
//! What kept the limits once is loaded again though its parts do not: room is
//! reserved for batches whose blocks are there already, and holes are stored
//! before they are given up. While a snapshot is loaded the limits are
//! therefore lenient, and asked for at the end.

use super::place::MAX_RUN;
use super::scratch::Scratch;
use super::{Holdings, Tree};
use crate::sync::{AtomicUsize, Counter, Fault, Guard, Mutant, Ordering, fault, mutant};
use crate::{Block, StoreError, WorkerId};

/// No limit.
pub(crate) const NONE: usize = usize::MAX;

/// The limits of one index.
pub(super) struct Limits {
    /// Most blocks of the tree.
    tree: usize,
    /// Most names of a worker.
    worker: usize,
    /// Blocks in the tree, and room that is reserved; only kept where the tree
    /// has a limit.
    used: AtomicUsize,
    /// Threads that load a snapshot. Written while no event is under way.
    loaders: Counter,
}

/// Why there is no room.
#[derive(Clone, Copy)]
pub(super) enum Full {
    /// The tree has so many blocks, what is reserved included.
    Tree(usize),
    /// The worker has so many names.
    Worker(usize),
}

/// Room that no lane has taken over yet; given back when dropped.
pub(super) struct Room<'a> {
    limits: &'a Limits,
    blocks: usize,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.limits.give_back(self.blocks);
    }
}

impl Room<'_> {
    /// The lane's event gives back what it does not need.
    pub(super) fn move_to(mut self, scratch: &mut Scratch) {
        scratch.reserved += std::mem::take(&mut self.blocks);
    }
}

impl Limits {
    pub(super) fn new(tree: usize, worker: usize) -> Self {
        Self { tree, worker, used: AtomicUsize::new(0), loaders: Counter::new(0) }
    }

    /// Blocks in the tree, and room that is reserved, if the tree is limited:
    /// at no moment fewer than the tree has.
    pub(super) fn counted(&self) -> Option<usize> {
        (self.tree != NONE).then(|| self.used())
    }

    fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// From now on so many threads load a snapshot; 0: none does.
    #[cfg(feature = "snapshot")]
    pub(super) fn set_loaders(&self, loaders: usize) {
        self.loaders.store(loaders as u64, Ordering::Relaxed);
    }

    /// Whether a snapshot is loaded.
    pub(super) fn is_lenient(&self) -> bool {
        self.loaders.load(Ordering::Relaxed) > 0
    }

    /// The tree's limit, and a batch more for each thread that loads.
    fn lenient_tree(&self) -> usize {
        let loaders = self.loaders.load(Ordering::Relaxed) as usize;
        self.tree.saturating_add(loaders.saturating_mul(MAX_RUN as usize))
    }

    /// What is above its limit, now that all is loaded: the worker, which has
    /// so many names, or the tree.
    #[cfg(feature = "snapshot")]
    pub(super) fn exceeded(&self, names: usize) -> Option<Full> {
        let tree = self.tree != NONE && self.used() > self.tree;
        let worker = (names > self.worker).then_some(Full::Worker(names));
        worker.or(tree.then(|| Full::Tree(self.used())))
    }

    /// Whether so many blocks are too many by themselves.
    #[inline]
    pub(super) fn all_too_small(&self, blocks: usize) -> bool {
        blocks > self.tree.min(self.worker)
    }

    /// Reserves room for `blocks` more in the tree, or says how much is used.
    fn reserve(&self, blocks: usize) -> Result<(), usize> {
        let mut used = self.used.load(Ordering::Relaxed);
        loop {
            let fits = |next: &usize| *next <= self.lenient_tree();
            let next = used.checked_add(blocks).filter(fits).ok_or(used)?;
            if mutant(Mutant::RoomUnreserved) {
                self.used.fetch_add(blocks, Ordering::AcqRel);
                return Ok(());
            }
            // Acquire: pairs with the release in `give_back`; the blocks that
            // made room are out of the tree for whoever sees those that take
            // it.
            match self.used.compare_exchange(used, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(now) => used = now,
            }
        }
    }

    fn give_back(&self, blocks: usize) {
        if blocks > 0 {
            let relaxed = mutant(Mutant::RoomRelaxed);
            let release = if relaxed { Ordering::Relaxed } else { Ordering::Release };
            // Release: pairs with the acquire in `reserve`.
            self.used.fetch_sub(blocks, release);
        }
    }

    /// Refused, for what is `full`.
    pub(super) fn error(&self, worker: WorkerId, full: Full) -> StoreError {
        match full {
            Full::Tree(blocks) => {
                let (limit, tree_blocks) = (self.tree as u64, blocks as u64);
                StoreError::IndexFull { worker, limit, tree_blocks }
            }
            Full::Worker(names) => {
                let (limit, held_blocks) = (self.worker as u64, names as u64);
                StoreError::WorkerFull { worker, limit, held_blocks }
            }
        }
    }

    /// The same for a batch that is too large by itself.
    pub(super) fn oversized(&self, blocks: usize, held: usize) -> Full {
        if blocks > self.worker { Full::Worker(held) } else { Full::Tree(self.used()) }
    }
}

impl Tree {
    /// Makes sure that a store of `blocks` keeps the limits, and reserves the
    /// room that it may need. The lane's queue is drained.
    #[inline]
    pub(super) fn admit(
        &self,
        lane: &mut Holdings,
        blocks: &[Block],
        guard: &Guard,
    ) -> Result<(), Full> {
        let most = lane.names.count.saturating_add(blocks.len());
        if most > self.limits.worker && !self.limits.is_lenient() {
            self.admit_known(lane, blocks, guard)?;
        }
        if self.limits.tree != NONE {
            self.reserve_for(&mut lane.scratch, blocks.len())?;
        }
        fault(Fault::StoreAdmitted);
        Ok(())
    }

    /// Near the worker's limit the names are counted that it has already.
    #[cold]
    fn admit_known(&self, lane: &Holdings, blocks: &[Block], guard: &Guard) -> Result<(), Full> {
        let known = |block: &&Block| lane.names.resolve(self, block.sequence, guard).is_some();
        let fresh = blocks.len() - blocks.iter().filter(known).count();
        match lane.names.count + fresh > self.limits.worker {
            true => Err(Full::Worker(lane.names.count)),
            false => Ok(()),
        }
    }

    fn reserve_for(&self, scratch: &mut Scratch, blocks: usize) -> Result<(), Full> {
        // What the drain has taken out of the tree makes room for the store.
        let reserved = std::mem::take(&mut scratch.reserved);
        self.give_room_back(scratch);
        scratch.reserved = reserved;
        let more = blocks.saturating_sub(reserved);
        if more > 0 {
            self.limits.reserve(more).map_err(Full::Tree)?;
            scratch.reserved += more;
        }
        Ok(())
    }

    /// Room for the first store of a worker that is not known yet.
    pub(super) fn admit_new(&self, blocks: usize) -> Result<Option<Room<'_>>, Full> {
        if blocks > self.limits.worker && !self.limits.is_lenient() {
            return Err(Full::Worker(0));
        }
        if self.limits.tree == NONE {
            return Ok(None);
        }
        self.limits.reserve(blocks).map_err(Full::Tree)?;
        Ok(Some(Room { limits: &self.limits, blocks }))
    }

    /// Gives back the room that the lane's event has reserved and not used, or
    /// has made.
    #[inline]
    pub(super) fn give_room_back(&self, scratch: &mut Scratch) {
        if self.limits.tree != NONE {
            let grown = scratch.delta.tree_blocks - scratch.settled;
            let back = std::mem::take(&mut scratch.reserved) as i64 - grown;
            debug_assert!(back >= 0, "a store took more room than it had reserved");
            scratch.settled = scratch.delta.tree_blocks;
            self.limits.give_back(back as usize);
        }
    }

    /// What a removal must not do, for a model that shows why.
    pub(super) fn give_back_early(&self, lane: &mut Holdings, blocks: usize) {
        lane.scratch.settled -= blocks as i64;
        self.limits.give_back(blocks);
    }

    /// Blocks in the tree as the limit counts them, for the checker: less the
    /// room that a lane still has to give back.
    pub(super) fn unsettled(&self, scratch: &Scratch) -> i64 {
        scratch.reserved as i64 - (scratch.delta.tree_blocks - scratch.settled)
    }
}
