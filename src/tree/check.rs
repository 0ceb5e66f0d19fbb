//! The invariants, asserted over the whole structure.

use std::collections::{BTreeMap, BTreeSet};

use super::TreeConfig;
use super::lane::Lane;
use super::levels;
use super::mask::Mask;
use super::names::Names;
use super::node::{Children, Half, Node};
use super::place::Place;
use super::shared::Shared;
use crate::SequenceHash;
use crate::sync::rank::Rank;
use crate::sync::{Arc, Guard, pin};

/// What the walk over the tree has seen.
#[derive(Default)]
struct Found {
    nodes: u64,
    blocks: u64,
    bytes: u64,
    /// Held places whose name must have an entry.
    entries: BTreeMap<SequenceHash, Place>,
    /// Whether a worker waits to be healed: until then there may be blocks
    /// that nobody holds.
    torn: bool,
    /// Room that lanes have still to give back; nothing but after a panic.
    unsettled: i64,
    /// What each slot holds, by node.
    held: BTreeMap<u32, BTreeMap<usize, Mask>>,
}

impl Shared {
    /// Panics where an invariant does not hold. No other call may run.
    pub(crate) fn check(&self) {
        let guard = pin();
        let mut found = Found { torn: !self.poisoned().is_empty(), ..Found::default() };
        let mut stack = vec![self.tree.root.clone()];
        while let Some(node) = stack.pop() {
            stack.extend(self.check_node(&node, &mut found, &guard));
        }
        let mut entries = BTreeMap::new();
        self.tree.lookup.for_each(|name, place| assert!(entries.insert(name, place).is_none()));
        assert!(entries == found.entries, "lookup entries: {entries:?} not {:?}", found.entries);

        let mut names = 0;
        for lane in self.lanes() {
            names += self.check_lane(&lane, &mut found, &guard);
        }
        if self.tree.limits.of_tree().is_some() {
            let used = self.tree.limits.used() as i64;
            assert_eq!(used, found.blocks as i64 + found.unsettled, "blocks as the limit counts");
        }
        let strangers: Vec<_> = found.held.keys().collect();
        assert!(strangers.is_empty(), "slots {strangers:?} hold blocks, but have no lane");

        let stats = self.stats();
        assert_eq!(stats.nodes, found.nodes, "nodes counted and seen");
        assert_eq!(stats.tree_blocks, found.blocks, "blocks counted and seen");
        assert_eq!(stats.lookup_entries, entries.len() as u64, "entries counted and seen");
        assert_eq!(stats.held_blocks, names, "names counted and seen");
        assert_eq!(stats.memory.tree_bytes, found.bytes, "bytes counted and seen");
    }

    /// One node; its children.
    fn check_node(&self, node: &Arc<Node>, found: &mut Found, guard: &Guard) -> Vec<Arc<Node>> {
        let half = node.read(Rank::Parent);
        let view = node.view(guard);
        assert!(!half.detached, "a detached node is linked");
        let mut children_end = 0;
        let children = match &half.children {
            Children::None => Vec::new(),
            Children::Few(few) => {
                assert!(!few.is_empty() && few.len() <= self.tree.config.hub_threshold.max(1));
                assert_eq!(few.len(), view.kids().len(), "owners and names of the children");
                let same = few.iter().zip(view.kids()).all(|(owner, kid)| kid.is(owner));
                assert!(same, "a view names other children than the half owns");
                few.to_vec()
            }
            Children::Hub(hub) => {
                assert!(std::ptr::eq(view.hub().expect("published"), &**hub));
                let children = hub.children();
                assert_eq!(children.len(), hub.len(), "children counted and seen");
                let TreeConfig { wide_threshold, wide_shards, .. } = self.tree.config;
                let full = children.len() >= wide_threshold && wide_shards > 1;
                assert!(!(hub.is_narrow() && full) || found.torn, "a full table of one shard");
                children
            }
        };
        let mut keys = BTreeSet::new();
        for child in &children {
            assert!(keys.insert((child.offset(), child.first())), "two children of one key");
            let parent = child.read(Rank::Child).parent.upgrade().expect("a linked node's parent");
            assert!(Arc::ptr_eq(&parent, node), "a child's parent is another node");
            assert!(child.offset() <= view.len(), "a child hangs below the run's end");
            assert!(node.is_root() || child.offset() > 0, "a child hangs above the run");
            if child.offset() < view.len() {
                let own = half.columns.local(child.offset());
                assert!(own != child.first(), "a child repeats the run's own block");
            }
            let reached = view.child(child.offset(), child.first(), guard);
            assert!(reached.is_some_and(|reached| std::ptr::eq(reached, &**child)));
            children_end = children_end.max(child.offset());
        }
        if !node.is_root() {
            let needed = half.needed(view.levels(), children_end);
            assert!(view.len() >= needed, "the run is shorter than what is held of it");
            if !found.torn {
                assert!(view.len() > 0, "an empty node is linked");
                assert_eq!(view.len(), needed, "a tail that nobody holds");
            }
            assert_eq!(node.first(), half.columns.local(0));
            found.nodes += 1;
            found.blocks += u64::from(view.len());
        }
        let table = half.hub().map_or(0, |hub| hub.bytes());
        found.bytes += (node.bytes_in_all(&half, guard) + table) as u64;
        self.check_owners(node, &half, found, guard);
        children
    }

    fn check_owners(&self, node: &Node, half: &Half, found: &mut Found, guard: &Guard) {
        let view = node.view(guard);
        let levels = view.levels();
        let order = |pair: &[super::levels::Level]| {
            (pair[0].cutoff, pair[0].chunk) < (pair[1].cutoff, pair[1].chunk)
        };
        assert!(levels.windows(2).all(order), "levels out of order: {levels:?}");
        let mut held: BTreeMap<u32, Mask> = BTreeMap::new();
        for level in levels {
            assert!(level.bits != 0 && (1..=view.len()).contains(&level.cutoff));
            for bit in (0..64).filter(|bit| level.bits >> bit & 1 == 1) {
                let slot = level.chunk * 64 + bit;
                let before = held.insert(slot, Mask::prefix(level.cutoff));
                assert!(before.is_none(), "slot {slot} is in two levels");
            }
        }
        for (slot, mask) in half.masks() {
            assert!(mask.end() > mask.leading(), "a mask without a hole");
            assert!(mask.end() <= view.len(), "a mask beyond the run");
            assert_eq!(levels::cutoff_of(levels, slot), mask.leading(), "mask and level");
            held.insert(slot, mask.clone());
        }
        for at in 0..view.len() {
            let is_held = held.values().any(|mask| mask.get(at));
            assert!(is_held || !half.flagged(at), "a block that nobody holds is flagged");
            if is_held && !half.flagged(at) {
                let before = found.entries.insert(half.columns.name(at), Place::new(node, at));
                assert!(before.is_none(), "two places of one canonical name");
            }
        }
        let address = std::ptr::from_ref(node).addr();
        for (slot, mask) in held {
            found.held.entry(slot).or_default().insert(address, mask);
        }
    }

    /// One lane; how many names it has.
    fn check_lane(&self, lane: &Lane, found: &mut Found, guard: &Guard) -> u64 {
        let state = lane.state.lock(Rank::Lane);
        assert!(!state.closed, "a closed lane is in the registry");
        let names = &state.holdings.names;
        found.unsettled += self.tree.unsettled(&state.holdings.scratch);
        let held = found.held.remove(&names.slot).unwrap_or_default();
        if state.poisoned {
            return 0;
        }
        let nodes: BTreeMap<usize, &Node> = names
            .nodes
            .iter()
            .map(|place| Names::node_of(*place, guard))
            .map(|node| (std::ptr::from_ref(node).addr(), node))
            .collect();
        let known: BTreeSet<usize> = nodes.keys().copied().collect();
        let seen: BTreeSet<usize> = held.keys().copied().collect();
        assert!(known == seen, "worker {}: nodes known and seen", lane.worker);
        let mut canonical = 0;
        for (address, mask) in &held {
            let node = nodes[address];
            for at in (0..mask.end()).filter(|at| mask.get(*at)) {
                let by_canonical = names.knows_canonical(Place::new(node, at));
                let flagged = node.read(Rank::Child).flagged(at);
                assert!(!(by_canonical && flagged), "a flagged name is taken as canonical");
                canonical += usize::from(by_canonical);
            }
        }
        let mut private = 0;
        for (name, place) in names.privates() {
            let node = Names::node_of(place, guard);
            let mask = held.get(&std::ptr::from_ref(node).addr());
            assert!(mask.is_some_and(|mask| mask.get(place.at())), "a private name of no block");
            let entry = self.tree.lookup.get(name, guard);
            assert!(entry.is_none_or(|(_, at)| at != place || !names.knows_canonical(at)));
            private += 1;
        }
        assert_eq!(names.count, canonical + private, "worker {}: names", lane.worker);
        names.count as u64
    }
}
