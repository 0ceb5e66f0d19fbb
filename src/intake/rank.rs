//! One rank's events, and which tiers hold each of its blocks.
//!
//! For each block the rank has an entry of 12 bytes: its name, the tiers that
//! hold it, and marks for the rare cases, which are kept in maps of their
//! own (further copies, salts, blocks that wait for their parent). A block's
//! place is not kept here: the index of any tier knows it as long as any tier
//! holds it, so a store that names a hash alone needs no more than its entry.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

use super::residency::Core;
use super::waiting::Waiting;
use super::{Batch, Drops, Event, Group, Reason, Removed, Salt, Stored, Tier, TierSet};
use crate::sync::Fold;
use crate::tree::Above;
use crate::{Block, LocalHash, SequenceHash, StoreError, WorkerId};

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
    /// Whether a block stored twice on a tier is two copies, each removed by
    /// an event of its own (vLLM). Only batches of [`Origin::Live`] add
    /// copies; a removal takes one away, whatever its origin. Off by default:
    /// stored twice is stored, and removed is gone.
    pub copies: bool,
}

impl RankOptions {
    /// With copies counted, or not.
    #[must_use]
    pub fn copies(mut self, copies: bool) -> Self {
        self.copies = copies;
        self
    }
}

/// What a batch did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Applied {
    /// Blocks in accepted stores, held before or not.
    pub stored: u64,
    /// Names in removals that were held on that tier.
    pub removed: u64,
    /// How often the rank was cleared.
    pub cleared: u64,
    /// The rank has left: nothing was done.
    pub left: bool,
    /// A fault of this crate has cost all that the rank held, as a gap in the
    /// stream would have: it holds what was stored since.
    pub lost: bool,
}

/// What a rank holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct RankStats {
    /// Blocks on the device.
    pub device: u64,
    /// Blocks on any tier.
    pub any: u64,
    /// Device blocks that the device's index does not have yet: their parent
    /// is on another tier, so that no query could reach them.
    pub waiting: u64,
    /// Copies beyond the first, of all blocks.
    pub copies: u64,
}

/// One rank of a worker, in one of its lives: the way in for its events.
///
/// Clones are the same rank. Its batches count in the order in which their
/// calls return; hand them in from one thread at a time.
#[derive(Clone)]
pub struct Rank {
    core: Arc<Core>,
    life: Arc<Life>,
}

impl Rank {
    pub(super) fn new(core: Arc<Core>, life: Arc<Life>) -> Self {
        Self { core, life }
    }

    /// Its name.
    pub fn id(&self) -> WorkerId {
        self.life.worker
    }

    /// Does what the events of the batch say, one after the other; those left
    /// out are counted in `drops`. [`Batch::rank`] is not looked at: who the
    /// batch is from is its source's to say.
    ///
    /// A block that loses its last tier is forgotten when the batch ends: an
    /// offload that is told in the same batch, after the device's eviction,
    /// still finds it.
    ///
    /// Should it panic, by a fault of this crate, the rank is cleared by the
    /// next call, which says so ([`Applied::lost`]), or by
    /// [`clear`](Self::clear).
    pub fn apply(&self, batch: &Batch<'_>, origin: Origin, drops: &mut Drops) -> Applied {
        let mut state = self.life.state.lock();
        if state.left {
            drops.add_many(Reason::RankLeft, batch.events.len() as u64);
            return Applied { left: true, ..Applied::default() };
        }
        let mut work = Work {
            core: &self.core,
            worker: self.life.worker,
            counts: self.life.options.copies && origin == Origin::Live,
            state: &mut state,
            applied: Applied::default(),
            drops,
        };
        if work.state.torn {
            work.clear();
            work.applied.lost = true;
        }
        work.state.torn = true;
        for event in &batch.events {
            match event {
                Event::Stored(stored) => {
                    if let Err(reason) = work.store(stored) {
                        work.drops.add(reason);
                    }
                }
                Event::Removed(removed) => {
                    if let Err(reason) = work.remove(removed) {
                        work.drops.add(reason);
                    }
                }
                Event::Cleared => {
                    work.clear();
                    work.applied.cleared += 1;
                }
            }
        }
        work.settle();
        work.state.torn = false;
        work.applied
    }

    /// The rank holds nothing any more, on any tier; it does not leave. For a
    /// stream that can no longer be trusted, and for an engine's restart.
    pub fn clear(&self) {
        let mut state = self.life.state.lock();
        if !state.left {
            self.core.clear(self.life.worker);
            state.forget();
            state.group = None;
            state.plain = false;
            state.torn = false;
        }
    }

    /// Whether the rank has left, so that nothing of it counts any more.
    pub fn has_left(&self) -> bool {
        self.life.state.lock().left
    }

    /// On which tiers the block is held.
    pub fn tiers_of(&self, name: SequenceHash) -> TierSet {
        let state = self.life.state.lock();
        state.blocks.get(&Name::from(name)).map_or(TierSet::default(), |marks| marks.tiers())
    }

    /// Every block with the tiers that hold it, in no particular order.
    pub fn blocks(&self) -> Vec<(SequenceHash, TierSet)> {
        let state = self.life.state.lock();
        state.blocks.iter().map(|(&name, marks)| (name.into(), marks.tiers())).collect()
    }

    /// What the rank holds, in numbers.
    pub fn stats(&self) -> RankStats {
        let state = self.life.state.lock();
        RankStats {
            device: state.device,
            any: state.blocks.len() as u64,
            waiting: state.waiting.len() as u64,
            copies: state.copies.values().map(|&copies| u64::from(copies)).sum(),
        }
    }
}

impl fmt::Debug for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rank").field(&self.life.worker).finish()
    }
}

/// A rank from when it joined until it leaves.
#[derive(Debug)]
pub(super) struct Life {
    worker: WorkerId,
    options: RankOptions,
    state: Mutex<State>,
}

impl Life {
    pub(super) fn new(worker: WorkerId, options: RankOptions) -> Self {
        Self { worker, options, state: Mutex::new(State::new()) }
    }

    /// Nothing of this life counts any more.
    pub(super) fn end(&self, core: &Core) {
        let mut state = self.state.lock();
        state.left = true;
        state.forget();
        core.remove(self.worker);
    }
}

/// A name, cut in two so that a map's entry with its marks has 12 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Name([u32; 2]);

impl From<SequenceHash> for Name {
    #[inline]
    fn from(SequenceHash(name): SequenceHash) -> Self {
        Self([name as u32, (name >> 32) as u32])
    }
}

impl From<Name> for SequenceHash {
    #[inline]
    fn from(Name([low, high]): Name) -> Self {
        Self(u64::from(high) << 32 | u64::from(low))
    }
}

impl std::hash::Hash for Name {
    #[inline]
    fn hash<H: std::hash::Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(SequenceHash::from(*self).0);
    }
}

/// What is known of a block: the tiers that hold it, and where else to look.
#[derive(Clone, Copy, Default, Debug)]
struct Marks(u32);

impl Marks {
    /// The device's index has it.
    const PLACED: u32 = 1 << 31;
    /// It has an entry in [`State::copies`], for some tier.
    const COPIED: u32 = 1 << 30;
    /// It has an entry in [`State::salts`].
    const SALTED: u32 = 1 << 29;

    fn tiers(self) -> TierSet {
        TierSet::from_bits(self.0)
    }

    fn held(self) -> bool {
        !self.tiers().is_empty()
    }

    fn has(self, mark: u32) -> bool {
        self.0 & mark != 0
    }

    fn set(&mut self, mark: u32) {
        self.0 |= mark;
    }

    fn unset(&mut self, mark: u32) {
        self.0 &= !mark;
    }

    const fn of(tier: Tier) -> u32 {
        1 << tier.number()
    }
}

/// Everything that a rank's batches change, but for the indexes.
#[derive(Debug)]
struct State {
    left: bool,
    /// A batch is being applied, or was when a panic ended it.
    torn: bool,
    blocks: HashMap<Name, Marks, Fold>,
    /// For how many blocks their table was made. What it says itself leaves
    /// out the room that removed ones have left behind.
    room: usize,
    /// Blocks on the device.
    device: u64,
    /// Copies beyond the first.
    copies: HashMap<(SequenceHash, Tier), u32, Fold>,
    /// The salts that stores below these blocks inherit.
    salts: HashMap<SequenceHash, Salt, Fold>,
    waiting: Waiting,
    /// The group whose blocks are taken: the first of full attention that
    /// the rank named.
    group: Option<u32>,
    /// Blocks without a group's number were taken.
    plain: bool,
    /// Blocks that lost their last tier in this batch; they may have got
    /// another since.
    gone: Vec<SequenceHash>,
    /// Names that the device's index is still to be told are gone.
    evicted: Vec<SequenceHash>,
    /// For the blocks of one store.
    converted: Vec<Block>,
}

impl State {
    fn new() -> Self {
        let fold = Fold::random();
        Self {
            left: false,
            torn: false,
            blocks: HashMap::with_hasher(fold),
            room: 0,
            device: 0,
            copies: HashMap::with_hasher(fold),
            salts: HashMap::with_hasher(fold),
            waiting: Waiting::new(fold),
            group: None,
            plain: false,
            gone: Vec::new(),
            evicted: Vec::new(),
            converted: Vec::new(),
        }
    }

    /// Forgets every block.
    fn forget(&mut self) {
        let Self { left, torn, group, plain, .. } = *self;
        *self = Self { left, torn, group, plain, ..Self::new() };
    }

    fn marks(&self, name: SequenceHash) -> Marks {
        self.blocks.get(&name.into()).copied().unwrap_or_default()
    }

    fn is_held(&self, name: SequenceHash) -> bool {
        self.marks(name).held()
    }

    fn is_placed(&self, name: SequenceHash) -> bool {
        self.marks(name).has(Marks::PLACED)
    }

    /// The device does not hold a block after all, unless its index does.
    fn lose(&mut self, name: SequenceHash) {
        let Some(marks) = self.blocks.get_mut(&name.into()) else { return };
        if marks.has(Marks::PLACED) || !marks.tiers().has(Tier::DEVICE) {
            return;
        }
        marks.unset(Marks::of(Tier::DEVICE));
        self.device -= 1;
        self.copies.remove(&(name, Tier::DEVICE));
        if !marks.held() {
            self.gone.push(name);
        }
    }

    fn mark(&mut self, name: SequenceHash, mark: u32) {
        if let Some(marks) = self.blocks.get_mut(&name.into()) {
            marks.set(mark);
        }
    }
}

/// A batch being applied.
struct Work<'w> {
    core: &'w Core,
    worker: WorkerId,
    /// Whether a block stored again is another copy.
    counts: bool,
    state: &'w mut State,
    applied: Applied,
    drops: &'w mut Drops,
}

impl Work<'_> {
    fn store(&mut self, stored: &Stored<'_>) -> Result<(), Reason> {
        if !stored.group.is_full_attention() {
            return Err(Reason::OtherGroup);
        }
        if stored.hashes.is_empty() && stored.tokens.is_empty() {
            return Ok(());
        }
        let tier = self.core.media.find_or_add(stored.medium).ok_or(Reason::TooManyMedia)?;
        if stored.tokens.is_empty() {
            self.check_names(stored)?;
            self.check_group(stored.group)?;
            self.store_names(stored.hashes, tier);
            return Ok(());
        }
        let inherited = stored.parent.and_then(|parent| self.state.salts.get(&parent)).cloned();
        let mut blocks = std::mem::take(&mut self.state.converted);
        let converted = self.core.converter.convert(stored, inherited.as_ref(), &mut blocks);
        let result = converted.and_then(|salt| {
            self.check_group(stored.group)?;
            self.store_blocks(stored.parent, &blocks, tier, salt)
        });
        self.state.converted = blocks;
        result
    }

    /// Whether a store without tokens is one that can be understood.
    fn check_names(&self, stored: &Stored<'_>) -> Result<(), Reason> {
        // Larger blocks are named by their last one alone: which others they
        // stand for is not said.
        if stored.block_size != 0 && stored.block_size != self.core.converter.block_size() {
            return Err(Reason::OtherBlockSize);
        }
        if stored.parent.is_some_and(|parent| stored.hashes.contains(&parent)) {
            return Err(Reason::OwnParent);
        }
        Ok(())
    }

    /// Whether the group is the one whose blocks are taken; the first decides.
    fn check_group(&mut self, group: Group<'_>) -> Result<(), Reason> {
        let Some(index) = group.index else {
            self.state.plain = true;
            return Ok(());
        };
        if *self.state.group.get_or_insert(index) == index {
            Ok(())
        } else {
            Err(Reason::OtherGroup)
        }
    }

    /// Blocks whose place is known, or not: by names alone.
    fn store_names(&mut self, names: &[SequenceHash], tier: Tier) {
        for &name in names {
            // Also one that lost its last tier in this batch.
            let known = self.state.blocks.get(&name.into()).copied();
            let stored = known.is_some_and(|marks| {
                if tier == Tier::DEVICE && !marks.tiers().has(tier) {
                    return self.reload(name);
                }
                self.add_tier(name, tier);
                true
            });
            if stored {
                self.applied.stored += 1;
            } else {
                self.drops.add(Reason::UnknownBlock);
            }
        }
    }

    /// The device has a block that was on other tiers alone; the index of any
    /// tier knows its place. Whether the block above has a name by which the
    /// device's index can take it, now or later.
    fn reload(&mut self, name: SequenceHash) -> bool {
        let Some(found) = self.core.any.locate(self.worker, name) else { return false };
        let parent = match found.above {
            Above::Root => None,
            Above::Named(parent) => Some(parent),
            Above::Hole => return false,
        };
        self.add_tier(name, Tier::DEVICE);
        self.place(parent, &[Block { sequence: name, local: found.local }]);
        true
    }

    fn store_blocks(
        &mut self,
        parent: Option<SequenceHash>,
        blocks: &[Block],
        tier: Tier,
        salt: Option<Salt>,
    ) -> Result<(), Reason> {
        if parent.is_some_and(|parent| !self.state.is_held(parent)) {
            return Err(Reason::ParentNotFound);
        }
        if let Err(error) = self.core.any.store(self.worker, parent, blocks) {
            return Err(self.refused(error));
        }
        for block in blocks {
            self.add_tier(block.sequence, tier);
            self.inherit(block.sequence, &salt);
        }
        self.applied.stored += blocks.len() as u64;
        if tier == Tier::DEVICE {
            self.place(parent, blocks);
        }
        Ok(())
    }

    /// The tier holds the block, or one more copy of it.
    fn add_tier(&mut self, name: SequenceHash, tier: Tier) {
        let State { blocks, copies, device, .. } = &mut *self.state;
        let marks = blocks.entry(name.into()).or_default();
        if !marks.tiers().has(tier) {
            marks.set(Marks::of(tier));
            *device += u64::from(tier == Tier::DEVICE);
        } else if self.counts {
            marks.set(Marks::COPIED);
            let more = copies.entry((name, tier)).or_default();
            *more = more.saturating_add(1);
        }
    }

    fn inherit(&mut self, name: SequenceHash, salt: &Option<Salt>) {
        match salt {
            Some(salt) => {
                self.state.salts.insert(name, salt.clone());
                self.state.mark(name, Marks::SALTED);
            }
            None if self.state.salts.is_empty() => {}
            None => _ = self.state.salts.remove(&name),
        }
    }

    /// Puts blocks of the device into its index, or has them wait for a
    /// parent that is not there.
    fn place(&mut self, parent: Option<SequenceHash>, blocks: &[Block]) {
        self.tell_evicted();
        let mut above = parent;
        for (at, block) in blocks.iter().enumerate() {
            match above {
                Some(parent) if !self.state.is_placed(parent) => {
                    if !self.state.is_placed(block.sequence) {
                        self.state.waiting.add(parent, *block);
                    }
                }
                _ => {
                    self.put(above, &blocks[at..]);
                    break;
                }
            }
            above = Some(block.sequence);
        }
        if !self.state.waiting.is_empty() {
            let mut placed: Vec<_> = blocks.iter().map(|block| block.sequence).collect();
            while let Some(name) = placed.pop() {
                if !self.state.is_placed(name) {
                    continue;
                }
                while let Some(block) = self.state.waiting.take(name) {
                    self.put(Some(name), &[block]);
                    placed.push(block.sequence);
                }
            }
        }
    }

    /// Stores blocks in the device's index, below one that it has. Where it
    /// refuses them, the device counts as not holding them.
    fn put(&mut self, parent: Option<SequenceHash>, blocks: &[Block]) {
        let stored = self.core.device.store(self.worker, parent, blocks);
        if let Err(error) = stored {
            let reason = self.refused(error);
            self.drops.add(reason);
        }
        for block in blocks {
            match stored {
                Ok(()) => self.state.mark(block.sequence, Marks::PLACED),
                Err(_) => self.state.lose(block.sequence),
            }
            if !self.state.waiting.is_empty() {
                self.state.waiting.remove(block.sequence);
            }
        }
    }

    fn remove(&mut self, removed: &Removed<'_>) -> Result<(), Reason> {
        // Where groups have no number, that is as good as number 0.
        let plain = self.state.plain.then_some(0);
        let followed = self.state.group.or(plain);
        let ours = |index| followed.is_none_or(|group| group == index);
        if !removed.group.index.is_none_or(ours) {
            return Err(Reason::OtherGroup);
        }
        let tier = self.core.media.find(removed.medium);
        for &name in removed.hashes {
            if tier.is_some_and(|tier| self.remove_tier(name, tier)) {
                self.applied.removed += 1;
            } else {
                self.drops.add(Reason::UnknownRemoval);
            }
        }
        Ok(())
    }

    /// The tier holds the block no more, or one copy fewer of it. Whether it
    /// held it at all.
    fn remove_tier(&mut self, name: SequenceHash, tier: Tier) -> bool {
        let State { blocks, copies, device, waiting, gone, evicted, .. } = &mut *self.state;
        let Some(marks) = blocks.get_mut(&name.into()) else { return false };
        if !marks.tiers().has(tier) {
            return false;
        }
        if marks.has(Marks::COPIED)
            && let Some(more) = copies.get_mut(&(name, tier))
        {
            *more -= 1;
            if *more == 0 {
                copies.remove(&(name, tier));
            }
            return true;
        }
        marks.unset(Marks::of(tier));
        if tier == Tier::DEVICE {
            *device -= 1;
            if marks.has(Marks::PLACED) {
                marks.unset(Marks::PLACED);
                evicted.push(name);
            } else {
                waiting.remove(name);
            }
        }
        if !marks.held() {
            gone.push(name);
        }
        true
    }

    fn clear(&mut self) {
        self.core.clear(self.worker);
        self.state.forget();
    }

    /// Why an index refused a store. One that is poisoned knows nothing of the
    /// rank any more, so the rank begins anew in both.
    fn refused(&mut self, error: StoreError) -> Reason {
        match error {
            StoreError::RepeatedHash { .. } => Reason::RepeatedHash,
            StoreError::ParentNotFound { .. } => Reason::ParentNotFound,
            StoreError::IndexFull { .. } | StoreError::WorkerFull { .. } => Reason::Full,
            StoreError::Poisoned { .. } => {
                self.clear();
                self.applied.lost = true;
                Reason::Poisoned
            }
        }
    }

    /// Tells the device's index what it no longer holds.
    fn tell_evicted(&mut self) {
        if !self.state.evicted.is_empty() {
            self.core.device.remove(self.worker, &self.state.evicted);
            self.state.evicted.clear();
        }
    }

    /// The end of the batch: what no tier holds is forgotten.
    fn settle(&mut self) {
        self.tell_evicted();
        self.state.room = self.state.blocks.capacity().max(self.state.room);
        let mut gone = std::mem::take(&mut self.state.gone);
        gone.retain(|&name| {
            let marks = self.state.marks(name);
            let forgotten = !marks.held() && self.state.blocks.remove(&name.into()).is_some();
            if forgotten && marks.has(Marks::SALTED) {
                self.state.salts.remove(&name);
            }
            forgotten
        });
        if !gone.is_empty() {
            self.core.any.remove(self.worker, &gone);
            let State { blocks, room, .. } = &mut *self.state;
            if *room > 1_024 && blocks.len() * 8 < *room {
                blocks.shrink_to(blocks.len() * 2);
                *room = blocks.capacity();
            }
        }
        gone.clear();
        gone.shrink_to(1_024);
        self.state.gone = gone;
        self.state.evicted.shrink_to(1_024);
        self.state.converted.shrink_to(1_024);
    }
}

/// So that the sizes that are stated stay true.
const _: () = assert!(size_of::<(Name, Marks)>() == 12 && size_of::<LocalHash>() == 8);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Index;
    use crate::intake::Residency;

    const WORKER: WorkerId = WorkerId::new(1, 0);

    /// One block of one token below another.
    fn store(rank: &Rank, parent: Option<u64>, name: u64) -> (Applied, Drops) {
        let mut drops = Drops::new();
        let stored = Stored {
            hashes: &[SequenceHash(name)],
            parent: parent.map(SequenceHash),
            tokens: &[name as u32],
            block_size: 1,
            ..Stored::default()
        };
        let events = vec![Event::Stored(stored)];
        let batch = Batch { ts: None, rank: None, events, whole: true };
        (rank.apply(&batch, Origin::Live, &mut drops), drops)
    }

    fn holds(residency: &Residency, names: &[u64]) {
        for index in [residency.device(), residency.any()] {
            index.flush();
            let events = index.export(WORKER);
            let held = events.iter().flat_map(|event| match event {
                crate::Event::Stored { blocks, .. } => &blocks[..],
                _ => &[],
            });
            let mut held: Vec<u64> = held.map(|block| block.sequence.0).collect();
            held.sort_unstable();
            assert_eq!(held, names);
            index.check();
        }
    }

    #[test]
    fn a_rank_that_a_panic_poisoned_in_one_index_begins_anew_in_both() {
        for poison_device in [true, false] {
            let residency = Residency::new(1);
            let rank = residency.join(WORKER, RankOptions::default());
            store(&rank, None, 1);
            store(&rank, Some(1), 2);
            let index: &Index = if poison_device { residency.device() } else { residency.any() };
            index.shared().poison_worker(WORKER);
            let (applied, drops) = store(&rank, Some(2), 3);
            assert!(applied.lost && drops.of(Reason::Poisoned) == 1, "{applied:?} {drops:?}");
            assert_eq!(rank.stats(), RankStats::default());
            holds(&residency, &[]);
            // Nothing is left of it.
            let (applied, drops) = store(&rank, None, 4);
            assert!(!applied.lost && drops.total() == 0, "{applied:?} {drops:?}");
            holds(&residency, &[4]);
        }
    }

    #[test]
    fn a_rank_whose_batch_a_panic_has_torn_begins_anew_with_the_next() {
        let residency = Residency::new(1);
        let rank = residency.join(WORKER, RankOptions::default());
        store(&rank, None, 1);
        rank.life.state.lock().torn = true;
        let (applied, drops) = store(&rank, None, 2);
        assert!(applied.lost && drops.total() == 0, "{applied:?} {drops:?}");
        holds(&residency, &[2]);
        rank.life.state.lock().torn = true;
        rank.clear();
        let (applied, _) = store(&rank, None, 3);
        assert!(!applied.lost, "cleared meanwhile");
        holds(&residency, &[3]);
    }
}
