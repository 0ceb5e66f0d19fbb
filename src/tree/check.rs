//! The invariants, asserted over the whole structure.

use std::collections::{BTreeMap, BTreeSet};

use super::TreeConfig;
use super::columns::KEPT_SLOTS;
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
        self.tree.garbage.check();
        let guard = pin();
        let top = self.tree.root.view(&guard).hub();
        let same = top.is_some_and(|top| std::ptr::eq(top, &*self.tree.top));
        assert!(same || cfg!(kvradix_loom), "queries look into another table than the root's");
        let sifted = top.is_some_and(|top| top.is_behind(&self.tree.sieve));
        assert!(sifted, "queries ask another sieve than the root's table has");
        let mut found = Found { torn: !self.poisoned().is_empty(), ..Found::default() };
        let mut stack = vec![self.tree.root.clone()];
        while let Some(node) = stack.pop() {
            stack.extend(self.check_node(&node, &mut found, &guard));
        }
        let mut entries = BTreeMap::new();
        self.tree.lookup.for_each(|name, place| assert!(entries.insert(name, place).is_none()));
        assert!(entries == found.entries, "lookup entries: {entries:?} not {:?}", found.entries);
        self.tree.lookup.check_room();

        let (mut names, mut slots) = (0, BTreeMap::new());
        for lane in self.lanes() {
            names += self.check_lane(&lane, &mut found, &guard);
            let state = lane.state.lock(Rank::Lane);
            let slot = state.holdings.names.slot;
            let before = slots.insert(slot, (lane.worker, !state.poisoned));
            assert!(before.is_none(), "two workers have slot {slot}");
        }
        if let Some(used) = self.tree.limits.counted() {
            let used = used as i64;
            assert_eq!(used, found.blocks as i64 + found.unsettled, "blocks as the limit counts");
        }
        let strangers: Vec<_> = found.held.keys().collect();
        assert!(strangers.is_empty(), "slots {strangers:?} hold blocks, but have no lane");
        self.tree.roster.check(&slots);

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
        assert!(view.shows(&half.columns), "a view shows other columns than the half owns");
        let mut children_end = 0;
        let children = match &half.children {
            Children::None => {
                assert_eq!(view.kids().capacity(), 0, "slots without a list of children");
                Vec::new()
            }
            Children::Few(few) => {
                assert!(!few.is_empty() || view.kids().capacity() > 0, "an idle list of children");
                assert!(few.len() <= self.tree.config.hub_threshold.max(1));
                let slots = view.kids().capacity();
                assert!(
                    !view.kids().is_idle(few.len()),
                    "{slots} slots for {} children",
                    few.len()
                );
                assert_eq!(few.len(), view.kids().len(), "owners and names of the children");
                let same = few.iter().all(|child| view.kids().name(&child.node));
                assert!(same, "a view names other children than the half owns");
                let offsets = few.iter().all(|child| child.offset == child.node.offset());
                assert!(offsets, "a child's offset is noted wrong");
                half.children.all()
            }
            Children::Hub(hub) => {
                assert!(std::ptr::eq(view.hub().expect("published"), &**hub));
                hub.check(found.torn);
                let children = hub.children();
                let TreeConfig { wide_threshold, wide_shards, .. } = self.tree.config;
                let full = children.len() >= wide_threshold && wide_shards > 1;
                assert!(!(hub.is_narrow() && full) || found.torn, "a full table of one shard");
                children
            }
        };
        let mut keys = BTreeSet::new();
        for child in &children {
            assert!(keys.insert((child.offset(), child.first())), "two children of one key");
        }
        for child in &children {
            let parent = child.read(Rank::Child).parent.upgrade().expect("a linked node's parent");
            assert!(Arc::ptr_eq(&parent, node), "a child's parent is another node");
            assert!(child.offset() <= view.len(), "a child hangs below the run's end");
            assert!(node.is_root() || child.offset() > 0, "a child hangs above the run");
            if child.offset() < view.len() {
                let own = half.columns.local(child.offset());
                assert!(own != child.first(), "a child repeats the run's own block");
            }
            let reached = view.child(child.offset(), child.first(), self.tree.fold, guard);
            let same = reached.is_some_and(|reached| std::ptr::eq(reached, &**child));
            assert!(same, "a child's key leads to another node");
            children_end = children_end.max(child.offset());
        }
        if !node.is_root() {
            let needed = half.needed(view.levels(), children_end);
            assert!(view.len() >= needed, "the run is shorter than what is held of it");
            if !found.torn {
                assert!(view.len() > 0, "an empty node is linked");
                assert_eq!(view.len(), needed, "a tail that nobody holds");
                let most = KEPT_SLOTS.max(view.len() * 4 + 3);
                let slots = half.columns.capacity();
                assert!(slots <= most, "{slots} slots for {} blocks", view.len());
            }
            assert_eq!(node.first(), half.columns.local(0), "a node's first block");
            found.nodes += 1;
            found.blocks += u64::from(view.len());
        }
        found.bytes += node.bytes_with_table(&half, guard) as u64;
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
        names.check_room();
        let held = found.held.remove(&names.slot).unwrap_or_default();
        if state.poisoned {
            return 0;
        }
        let nodes: BTreeMap<usize, &Node> = names
            .nodes
            .iter()
            .map(|(place, ())| Names::node_of(place, guard))
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

/// Each check can fail: a whole structure is broken by hand in one place, and
/// the checker says so.
#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::super::columns::Columns;
    use super::super::edit::{Edit, KidChange};
    use super::super::figures::Figure;
    use super::super::garbage::{Outgoing, Retired};
    use super::super::kids::NextKids;
    use super::super::scratch::Scratch;
    use super::super::sieve;
    use super::super::view::ViewBox;
    use super::*;
    use crate::sync::Weak;
    use crate::{Block, Index, LocalHash, WorkerId};

    const A: WorkerId = WorkerId::new(1, 0);
    const B: WorkerId = WorkerId::new(2, 0);

    fn named(names: std::ops::Range<u64>) -> Vec<Block> {
        names.map(|n| Block { sequence: SequenceHash(n), local: LocalHash(n) }).collect()
    }

    /// A run of blocks 1 to 6 at the root: A holds 1 to 4, B holds 6 alone,
    /// so 5 is an ancestor only. Below its first three blocks a table of
    /// children 10, 20, 30, 40, all A's, and one more run at the root.
    fn sample() -> Index {
        let index = Index::builder().drain_threads(0).hub_threshold(2).build();
        index.store(B, None, &named(1..7)).unwrap();
        index.store(A, None, &named(1..5)).unwrap();
        index.remove(B, &[1, 2, 3, 4, 5].map(SequenceHash));
        for child in [10, 20, 30, 40] {
            index.store(A, Some(SequenceHash(3)), &named(child..child + 2)).unwrap();
        }
        index.store(A, None, &named(50..52)).unwrap();
        index.check();
        index
    }

    /// The node whose run begins with block `first`.
    fn node(shared: &Shared, first: u64) -> Arc<Node> {
        let below = |node: &Node| node.read(Rank::Parent).children.all();
        let mut all = below(&shared.tree.root);
        all.extend(all.clone().iter().flat_map(|node| below(node)));
        all.into_iter().find(|node| node.first() == LocalHash(first)).expect("in the sample")
    }

    /// Publishes another view of the node whose run begins with `first`.
    fn show(shared: &Shared, first: u64, change: impl FnOnce(&mut Edit<'_>)) {
        let (guard, node, mut scratch) = (pin(), node(shared, first), Scratch::default());
        let half = node.write(Rank::Parent);
        let mut edit = Edit::new(&shared.tree, &node, half, &mut scratch, &guard);
        change(&mut edit);
        edit.touched = true;
        edit.publish(KidChange::Same, &mut scratch);
        drop(edit);
        std::mem::forget(scratch.retired);
    }

    /// Breaks a sample, and asserts that the checker panics and says `says`.
    #[track_caller]
    fn finds(says: &str, damage: impl FnOnce(&Shared)) {
        let index = sample();
        damage(index.shared());
        let checked = catch_unwind(AssertUnwindSafe(|| index.check()));
        // Nothing that was broken is to be taken apart.
        std::mem::forget(index);
        let panic = checked.expect_err("the damage went unseen");
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
        let text = text.expect("a message");
        assert!(text.contains(says), "{says:?} is not in {text:?}");
    }

    fn lane(shared: &Shared, worker: WorkerId) -> Arc<Lane> {
        shared.lanes().into_iter().find(|lane| lane.worker == worker).expect("known")
    }

    fn slot(shared: &Shared, worker: WorkerId) -> u32 {
        lane(shared, worker).state.lock(Rank::Lane).holdings.names.slot
    }

    /// Takes a child out of a table and forgets it.
    fn unlink(shared: &Shared, parent: &Node, child: u64) {
        let child = node(shared, child);
        let half = parent.read(Rank::Parent);
        let mut shard = half.hub().expect("a table").lock(child.offset(), child.first());
        let mut retired = Outgoing::default();
        std::mem::forget(shard.remove(&child, &mut retired));
        std::mem::forget((retired, child));
    }

    #[test]
    fn a_node_that_is_not_reachable_is_found() {
        finds("lookup entries", |shared| unlink(shared, &shared.tree.root, 50));
        // One that nothing else tells of.
        finds("nodes counted and seen", |shared| shared.miscount(Figure::Nodes, 1));
        finds("blocks counted and seen", |shared| shared.miscount(Figure::TreeBlocks, 1));
        finds("nodes known and seen", |shared| {
            lane(shared, A).state.lock(Rank::Lane).holdings.names.leave(&node(shared, 50));
        });
    }

    #[test]
    fn a_wrong_link_to_a_parent_is_found() {
        finds("a linked node's parent", |shared| {
            node(shared, 10).write(Rank::Child).parent = Weak::new();
        });
        finds("a child's parent is another node", |shared| {
            node(shared, 10).write(Rank::Child).parent = Arc::downgrade(&node(shared, 50));
        });
        finds("a detached node is linked", |shared| {
            node(shared, 10).write(Rank::Child).detached = true
        });
    }

    #[test]
    fn an_entry_too_few_or_too_many_is_found() {
        let place = |shared: &Shared, at| Place::new(&node(shared, 1), at);
        finds("lookup entries", |shared| {
            assert!(shared.tree.lookup.remove(SequenceHash(2), place(shared, 1)));
        });
        // One for a block that nobody holds, and one of no block.
        for name in [5, 99] {
            finds("lookup entries", |shared| {
                let guard = pin();
                let made = shared.tree.lookup.insert(SequenceHash(name), place(shared, 4), &guard);
                assert!(made.is_ok());
            });
        }
        finds("entries counted and seen", |shared| shared.miscount(Figure::Entries, -1));
    }

    #[test]
    fn a_block_that_is_neither_held_nor_an_ancestor_is_found() {
        finds("a tail that nobody holds", |shared| {
            let of = slot(shared, A);
            show(shared, 50, |edit| levels::set_cutoff(&mut edit.levels, of, 2, 1));
        });
        finds("a tail that nobody holds", |shared| {
            let of = slot(shared, B);
            node(shared, 1).write(Rank::Child).set_mask(of, None);
        });
        finds("a block that nobody holds is flagged", |shared| {
            node(shared, 1).write(Rank::Child).set_flag(4, true);
        });
    }

    #[test]
    fn an_empty_node_is_found() {
        finds("an empty node is linked", |shared| {
            show(shared, 50, |edit| {
                edit.levels.clear();
                edit.len = 0;
            });
        });
    }

    #[test]
    fn owners_that_cannot_be_are_found() {
        finds("levels out of order", |shared| {
            show(shared, 1, |edit| edit.levels.extend(edit.levels.clone()));
        });
        finds("is in two levels", |shared| {
            show(shared, 1, |edit| {
                let bits = edit.levels[0].bits;
                edit.levels.insert(0, levels::Level { cutoff: 1, chunk: 0, bits });
            });
        });
        finds("a mask without a hole", |shared| {
            let of = slot(shared, A);
            node(shared, 1).write(Rank::Child).set_mask(of, Some(Mask::prefix(4)));
        });
        finds("hold blocks, but have no lane", |shared| {
            show(shared, 50, |edit| levels::set_cutoff(&mut edit.levels, 9, 0, 2));
        });
        finds("two places of one canonical name", |shared| {
            node(shared, 50).write(Rank::Child).columns.rename(1, SequenceHash(50));
        });
    }

    #[test]
    fn children_that_cannot_be_are_found() {
        let twin = |shared: &Shared, parent: u64, offset, first| {
            let parent = node(shared, parent);
            let mut columns = Columns::with_capacity(1);
            columns.push(named(first..first + 1)[0]);
            let level = levels::Level { cutoff: 1, chunk: 0, bits: 1 };
            let child = Node::new(Arc::downgrade(&parent), offset, columns, 1, &[level]);
            let half = parent.read(Rank::Parent);
            let hub = half.hub().expect("a table");
            hub.lock(offset, LocalHash(first)).insert(child, &mut Outgoing::default());
        };
        finds("two children of one key", |shared| twin(shared, 1, 3, 10));
        finds("a shard's children counted and seen", |shared| {
            let (parent, child) = (node(shared, 1), node(shared, 10));
            let half = parent.read(Rank::Parent);
            half.hub().expect("a table").lose(&child);
        });
        finds("a child repeats the run's own block", |shared| twin(shared, 1, 1, 2));
        finds("a child hangs below the run's end", |shared| twin(shared, 1, 9, 70));
        finds("a child hangs above the run", |shared| twin(shared, 1, 0, 70));
    }

    #[test]
    fn bits_of_the_sieve_that_are_not_the_childrens_are_found() {
        let hash = |shared: &Shared, local| shared.tree.top.key(0, LocalHash(local)).hash;
        finds("a child of the root without its bit", |shared| {
            shared.tree.sieve.clear(sieve::bit(hash(shared, 50)));
        });
        finds("a bit that no child of the root has", |shared| {
            let free = |hash: &u64| !shared.tree.sieve.may_have(*hash);
            let hash = (100..).map(|local| hash(shared, local)).find(free);
            shared.tree.sieve.set(hash.expect("most are free"));
        });
    }

    #[test]
    fn a_view_that_is_not_the_halfs_is_found() {
        finds("a view shows other columns", |shared| {
            let node = node(shared, 50);
            let mut half = node.write(Rank::Child);
            let copy = half.columns.copy(2, 2);
            std::mem::forget(std::mem::replace(&mut half.columns, copy));
        });
        finds("slots for 2 blocks", |shared| {
            show(shared, 50, |edit| {
                let copy = edit.half.columns.copy(2, 65);
                edit.replace_columns(copy);
            });
        });
        finds("published", |shared| {
            let node = node(shared, 1);
            let mut half = node.write(Rank::Child);
            let guard = pin();
            let (view, window) = (node.view(&guard), half.columns.window(6));
            let without = ViewBox::new(window, view.levels(), NextKids::default(), None);
            std::mem::forget(node.publish(&mut half, without));
        });
    }

    #[test]
    fn a_lane_that_counts_wrong_is_found() {
        finds("names", |shared| lane(shared, A).state.lock(Rank::Lane).holdings.names.count += 1);
        finds("a closed lane is in the registry", |shared| {
            lane(shared, A).state.lock(Rank::Lane).closed = true;
        });
        finds("the table names", |shared| {
            shared.tree.roster.leave(slot(shared, B), &shared.tree.garbage)
        });
        finds("room for", |shared| {
            lane(shared, A).state.lock(Rank::Lane).holdings.names.nodes.reserve(1_000);
        });
    }

    #[test]
    fn retired_memory_that_is_not_counted_or_too_much_is_found() {
        // A pin that lasts.
        let guard = pin();
        finds("with nothing under way", |shared| {
            let much = Retired::Columns(Columns::with_capacity(200_000));
            let mut retired = Outgoing::default();
            retired.push(much);
            shared.tree.garbage.take(&mut retired, &guard);
        });
        drop(guard);
        finds("retired bytes counted and seen", |shared| shared.tree.garbage.miscount());
    }
}
