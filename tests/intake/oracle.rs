//! What tiers hold, written as plainly as can be: for each rank a map from
//! names to places and to the copies on each tier. Questions are answered by
//! a `ReferenceIndex` that is fed from scratch.

use std::collections::{BTreeMap, HashMap, HashSet};

use kvradix::intake::{Origin, Reason};
use kvradix::reference::ReferenceIndex;
use kvradix::{Block, LocalHash, SequenceHash, WorkerId};

use crate::encode::{Remove, Said, Store};

/// What is said of a store's blocks beside the store: their contents.
pub struct Told {
    pub said: Said,
    pub locals: Vec<LocalHash>,
}

#[derive(Clone, Default)]
struct Held {
    /// From the root to the block itself.
    path: Vec<LocalHash>,
    /// Copies by medium, in capitals; never zero.
    tiers: BTreeMap<String, u32>,
}

#[derive(Default)]
pub struct RankOracle {
    pub copies: bool,
    held: HashMap<u64, Held>,
    group: Option<u32>,
    /// Blocks of no numbered group were taken.
    plain: bool,
}

fn tier(medium: &Option<String>) -> String {
    medium.as_deref().unwrap_or("GPU").to_uppercase()
}

impl RankOracle {
    pub fn new(copies: bool) -> Self {
        Self { copies, ..Self::default() }
    }

    pub fn clear(&mut self) {
        *self = Self::new(self.copies);
    }

    /// Applies a batch; the reasons that are counted.
    pub fn apply(&mut self, batch: &[Told], origin: Origin) -> Vec<Reason> {
        let mut dropped = Vec::new();
        // Those that lost their last tier keep their place for the batch.
        let mut ghosts: HashMap<u64, Held> = HashMap::new();
        for told in batch {
            match &told.said {
                Said::Clear => {
                    self.held.clear();
                    ghosts.clear();
                }
                Said::Remove(remove) => self.remove(remove, &mut ghosts, &mut dropped),
                Said::Store(store) => {
                    let refused =
                        self.store(store, &told.locals, origin, &mut ghosts, &mut dropped);
                    dropped.extend(refused.err());
                }
            }
        }
        dropped.sort();
        dropped
    }

    fn remove(
        &mut self,
        remove: &Remove,
        ghosts: &mut HashMap<u64, Held>,
        dropped: &mut Vec<Reason>,
    ) {
        let ours = self.group.or(self.plain.then_some(0));
        if remove.group.is_some_and(|group| ours.is_some_and(|ours| ours != group)) {
            dropped.push(Reason::OtherGroup);
            return;
        }
        for name in &remove.hashes {
            let held = self.held.get_mut(name);
            let copies = held.and_then(|held| held.tiers.get_mut(&tier(&remove.medium)));
            let Some(copies) = copies else {
                dropped.push(Reason::UnknownRemoval);
                continue;
            };
            *copies -= 1;
            if *copies == 0 {
                let held = self.held.get_mut(name).unwrap();
                held.tiers.remove(&tier(&remove.medium));
                if held.tiers.is_empty() {
                    ghosts.insert(*name, self.held.remove(name).unwrap());
                }
            }
        }
    }

    fn store(
        &mut self,
        store: &Store,
        locals: &[LocalHash],
        origin: Origin,
        ghosts: &mut HashMap<u64, Held>,
        dropped: &mut Vec<Reason>,
    ) -> Result<(), Reason> {
        if store.kind.as_deref().is_some_and(|kind| kind != "full_attention") {
            return Err(Reason::OtherGroup);
        }
        let other =
            |ours: &Option<u32>| store.group.is_some() && ours.is_some() && *ours != store.group;
        let counts = self.copies && origin == Origin::Live;
        if store.tokens.is_empty() {
            if other(&self.group) {
                return Err(Reason::OtherGroup);
            }
            self.take(store.group);
            for name in &store.hashes {
                let known = self.held.get(name).or(ghosts.get(name));
                // A device's block needs a named one above it, or none.
                let placed = known.is_some_and(|held| {
                    let above = &held.path[..held.path.len() - 1];
                    let mut all = self.held.values().chain(ghosts.values());
                    tier(&store.medium) != "GPU"
                        || held.tiers.contains_key("GPU")
                        || above.is_empty()
                        || all.any(|other| other.path == above)
                });
                if !placed {
                    dropped.push(Reason::UnknownBlock);
                    continue;
                }
                if let Some(ghost) = ghosts.remove(name) {
                    self.held.insert(*name, ghost);
                }
                add(self.held.get_mut(name).unwrap(), &store.medium, counts);
            }
            return Ok(());
        }
        if store.parent.is_some_and(|parent| store.hashes.contains(&parent)) {
            return Err(Reason::OwnParent);
        }
        if other(&self.group) {
            return Err(Reason::OtherGroup);
        }
        self.take(store.group);
        let mut path = match store.parent {
            None => Vec::new(),
            Some(parent) => self.held.get(&parent).ok_or(Reason::ParentNotFound)?.path.clone(),
        };
        if store.hashes.iter().collect::<HashSet<_>>().len() < store.hashes.len() {
            return Err(Reason::RepeatedHash);
        }
        for (name, local) in store.hashes.iter().zip(locals) {
            path.push(*local);
            ghosts.remove(name);
            let held = self.held.entry(*name).or_default();
            assert!(held.path.is_empty() || held.path == path, "engines name content");
            held.path.clone_from(&path);
            add(held, &store.medium, counts);
        }
        Ok(())
    }

    fn take(&mut self, group: Option<u32>) {
        self.group = self.group.or(group);
        self.plain |= group.is_none();
    }

    /// The media that hold this block, in capitals.
    pub fn tiers(&self, name: u64) -> Vec<String> {
        self.held.get(&name).map_or(Vec::new(), |held| held.tiers.keys().cloned().collect())
    }

    pub fn names(&self) -> Vec<u64> {
        let mut names: Vec<u64> = self.held.keys().copied().collect();
        names.sort_unstable();
        names
    }

    pub fn on_device(&self) -> u64 {
        self.held.values().filter(|held| held.tiers.contains_key("GPU")).count() as u64
    }

    pub fn further_copies(&self) -> u64 {
        let copies = self.held.values().flat_map(|held| held.tiers.values());
        copies.map(|&copies| u64::from(copies - 1)).sum()
    }

    /// Adds what is held, or what the device holds, to a reference.
    pub fn feed(&self, index: &mut ReferenceIndex, worker: WorkerId, device: bool) {
        let mut spare = (0..).map(|n: u64| n << 32 | 0xffff_ffff);
        for (name, held) in &self.held {
            if device && !held.tiers.contains_key("GPU") {
                continue;
            }
            // What is above is stored by names of its own, which then go.
            let (last, above) = held.path.split_last().unwrap();
            let mut blocks: Vec<Block> = Vec::new();
            for local in above {
                let sequence = SequenceHash(spare.next().unwrap());
                blocks.push(Block { sequence, local: *local });
            }
            let temporary: Vec<_> = blocks.iter().map(|block| block.sequence).collect();
            blocks.push(Block { sequence: SequenceHash(*name), local: *last });
            index.store(worker, None, &blocks).unwrap();
            index.remove(worker, &temporary);
        }
    }
}

fn add(held: &mut Held, medium: &Option<String>, counts: bool) {
    let copies = held.tiers.entry(tier(medium)).or_default();
    if *copies == 0 || counts {
        *copies += 1;
    }
}
