//! Storing: a worker takes a run of blocks below a place it holds.
//!
//! The batch walks down from the parent's place. In each node it joins what
//! the run already has of it, then appends to the run's end or opens a child.
//! What it has joined keeps the next step's parent alive, so a child that
//! turns out to be detached is looked for again from there.

use super::Tree;
use super::columns::Columns;
use super::edit::{Edit, KidChange};
use super::garbage::{Outgoing, Retired};
use super::hub::Hub;
use super::kids;
use super::levels::{self, Level};
use super::link::{borrow_under_pin, link_to, linked};
use super::lookup::NAMES_AHEAD;
use super::mend::Newborn;
use super::names::{Found, Names};
use super::node::{Children, Half, Node};
use super::place::{MAX_RUN, Place};
use super::{Holdings, Refusal, TreeConfig};
use crate::sync::rank::Rank;
use crate::sync::{Arc, Fault, Guard, Mutant, WriteGuard, fault, mutant};
use crate::{Block, SequenceHash};

/// Below the first `at` blocks of `node`'s run.
#[derive(Clone, Copy)]
struct Cursor<'g> {
    node: &'g Node,
    at: u32,
}

/// What a step has done.
enum Step<'g> {
    /// Stored `count` blocks; go on at `next`, or at `above` should `next`'s
    /// node turn out to be detached.
    On { count: usize, next: Cursor<'g>, above: Cursor<'g> },
    /// The node is detached; nothing was done.
    Detached,
}

/// Names that are to be given up at their old places once the batch is in.
#[derive(Default)]
struct Moves<'g> {
    /// Sure: private names, already out of the map or overwritten there.
    private: Vec<Place>,
    /// Names whose lookup entry is another place's: the worker's own, if it
    /// holds that place by this very name, its canonical one. By the end of
    /// the batch the place may have lost its holders and be the worker's anew
    /// under another name, so the name is asked again.
    suspects: Vec<(SequenceHash, &'g Node, Place)>,
}

/// Longest run that is copied because a trim left no room to append in place.
/// A longer one goes on in a child: readers of a hot prompt keep its columns
/// in their caches, and nodes cut short still have this many blocks.
const COPY_LIMIT: u32 = 32;

impl Tree {
    /// Stores `blocks` below the worker's block `parent`, or at the root. The
    /// batch repeats no name. The lane's queue is drained.
    pub(super) fn store(
        &self,
        lane: &mut Holdings,
        parent: Option<SequenceHash>,
        blocks: &[Block],
        guard: &Guard,
    ) -> Result<(), Refusal> {
        let mut cursor = match parent {
            None => Cursor { node: &self.root, at: 0 },
            Some(name) => {
                let Found { node, place, .. } =
                    lane.names.resolve(self, name, guard).ok_or(Refusal::NoParent)?;
                Cursor { node, at: place.at() + 1 }
            }
        };
        self.admit(lane, blocks, guard).map_err(Refusal::Full)?;
        let left = self.turned_from(lane, parent, guard);
        if mutant(Mutant::MovedNamesFirst) {
            let names: Vec<_> = blocks.iter().map(|block| block.sequence).collect();
            self.remove(lane, &names, guard);
        }
        let (mut above, mut rest, mut moves) = (cursor, blocks, Moves::default());
        while !rest.is_empty() {
            match self.step(lane, cursor, rest, &mut moves, guard) {
                Step::On { count, next, above: safe } => {
                    (cursor, above) = (next, safe);
                    rest = &rest[count..];
                }
                Step::Detached => cursor = above,
            }
        }
        fault(Fault::Stored);
        self.give_up_moved(lane, moves, guard);
        if let (Some(block), Some(at)) = (blocks.last(), cursor.at.checked_sub(1)) {
            lane.names.latest = Some((block.sequence, Place::new(cursor.node, at)));
        }
        if let Some(node) = left {
            self.renew_hints(node, guard);
        }
        Ok(())
    }

    /// The end of the chain that the worker stored last, if this store does not
    /// go on there. It is held, so in the tree now, and kept by the pin.
    fn turned_from<'g>(
        &self,
        lane: &Holdings,
        parent: Option<SequenceHash>,
        guard: &'g Guard,
    ) -> Option<&'g Node> {
        let (_, place) = lane.names.latest.filter(|(name, _)| parent != Some(*name))?;
        place.prefetch_node();
        Some(Names::node_of(place, guard))
    }

    /// Renews the hints of a node and of its parent, once a worker is done with
    /// the chain: what is published often is not hinted at each time.
    fn renew_hints<'g>(&self, mut node: &'g Node, guard: &'g Guard) {
        const NODES: usize = 2;
        for _ in 0..NODES {
            // None but the root's children hang at offset 0.
            if node.offset() == 0 {
                return self.top.renew_hint(node, guard);
            }
            let half = node.read(Rank::Child);
            let Some(parent) = linked(&half, guard) else { return };
            drop(half);
            let _locked = parent.read(Rank::Parent);
            parent.view(guard).renew_hint(node, self.fold, guard);
            node = parent;
        }
    }

    /// One node's share of a batch.
    fn step<'g>(
        &'g self,
        lane: &mut Holdings,
        cursor: Cursor<'g>,
        rest: &[Block],
        moves: &mut Moves<'g>,
        guard: &'g Guard,
    ) -> Step<'g> {
        let Cursor { node, at } = cursor;
        let view = node.view(guard);
        if !view.has_block(at, &rest[0]) {
            // Nothing to join here. Whatever the view is by now, a child that
            // it names is locked and asked before anything is done to it.
            if let Some(child) = view.child(at, rest[0].local, self.fold, guard) {
                let next = Cursor { node: child, at: 0 };
                return Step::On { count: 0, next, above: cursor };
            }
            if view.hub().is_some()
                && let Some(step) = self.open_in_hub(lane, cursor, rest, moves, guard)
            {
                return step;
            }
        }

        let half = node.write(Rank::Parent);
        if half.detached && !mutant(Mutant::MarkIgnored) {
            return Step::Detached;
        }
        let mut edit = Edit::new(self, node, half, &mut lane.scratch, guard);
        let mut count = edit.view.common_blocks(at, rest) as usize;
        if count > 0 {
            self.join(lane, &mut edit, at, &rest[..count], moves, guard);
        }
        let end = at + count as u32;
        let mut next = Cursor { node, at: end };
        if let Some(first) = rest.get(count) {
            let appended = self.append(lane, &mut edit, end, &rest[count..], moves, guard);
            if appended > 0 {
                count += appended as usize;
                next.at += appended;
            } else if let Some(child) = edit.child(end, first.local, guard) {
                edit.publish(KidChange::Same, &mut lane.scratch);
                return Step::On { count, next: Cursor { node: child, at: 0 }, above: next };
            } else {
                let child = self.make_child(lane, node, end, &rest[count..], guard);
                let child = self.link(lane, &mut edit, child, guard);
                drop(edit);
                let (child, stored) = self.settle_in(lane, child, &rest[count..], moves, guard);
                self.widen_when_full(lane, node, guard);
                count += stored as usize;
                next = Cursor { node: child, at: stored };
                return Step::On { count, next, above: next };
            }
        }
        edit.publish(KidChange::Same, &mut lane.scratch);
        Step::On { count, next, above: next }
    }

    /// Takes blocks that the run already has.
    fn join<'g>(
        &self,
        lane: &mut Holdings,
        edit: &mut Edit<'g>,
        from: u32,
        blocks: &[Block],
        moves: &mut Moves<'g>,
        guard: &'g Guard,
    ) {
        let slot = lane.names.slot;
        let to = from + blocks.len() as u32;
        if edit.holds_nothing(slot) {
            lane.names.enter(edit.node);
        }
        fault(Fault::NodeEntered);
        let named_alike = || {
            let same = |(at, block): (u32, &Block)| edit.half.columns.name(at) == block.sequence;
            (from..to).zip(blocks).all(same)
        };
        if lane.names.all_canonical()
            && to <= levels::deepest(&edit.levels)
            && !edit.half.has_flags()
            && named_alike()
        {
            lane.names.count += edit.hold(slot, from, to) as usize;
            return;
        }
        for (at, block) in (from..to).zip(blocks) {
            fault(Fault::BlockJoined);
            let (name, place) = (block.sequence, Place::new(edit.node, at));
            let held = edit.holds(slot, at);
            let ownerless = !held
                && at >= levels::deepest(&edit.levels)
                && !edit.half.masked_by_others(slot, at);
            if ownerless {
                if edit.half.columns.name(at) != name {
                    edit.half.columns.rename(at, name);
                }
                if !mutant(Mutant::RetakeWithoutEntry) {
                    let block = std::slice::from_ref(block);
                    self.name_first(lane, edit.node, &mut edit.half, at, block, moves, guard);
                }
            } else if edit.half.canonical(at, name) {
                if !(held && lane.names.knows_canonical(place)) {
                    moves.private.extend(lane.names.take_private(name));
                    lane.names.add_canonical(place, held);
                }
            } else if lane.names.private_place(name) != Some(place) {
                match lane.names.add_private(name, place, held) {
                    Some(old) => moves.private.push(old),
                    None => {
                        let entry = self.lookup.get(name, guard);
                        let other = entry.filter(|(_, old)| *old != place);
                        moves.suspects.extend(other.map(|(node, old)| (name, node, old)));
                    }
                }
            }
        }
        edit.hold(slot, from, to);
    }

    /// Appends blocks to the run's end, if the run ends at `end` and may grow
    /// there; how many.
    fn append<'g>(
        &self,
        lane: &mut Holdings,
        edit: &mut Edit<'g>,
        end: u32,
        blocks: &[Block],
        moves: &mut Moves<'g>,
        guard: &'g Guard,
    ) -> u32 {
        if !self.may_append(edit, end) {
            return 0;
        }
        let count = blocks.len().min((self.config.run_blocks - end) as usize) as u32;
        let (len, blocks) = (end + count, &blocks[..count as usize]);
        let full = edit.half.columns.room(end) < count;
        if full && edit.half.columns.trimmed(end) && end > COPY_LIMIT {
            return 0;
        }
        self.fetch_names(blocks);
        if full {
            let capacity = (len + (len / 4).max(4)).min(self.config.run_blocks);
            let copy = edit.half.columns.copy(end, capacity);
            edit.replace_columns(copy);
        }
        if edit.holds_nothing(lane.names.slot) {
            lane.names.enter(edit.node);
        }
        fault(Fault::NodeEntered);
        for block in blocks {
            edit.half.columns.push(*block);
        }
        fault(Fault::BlocksPushed);
        self.name_first(lane, edit.node, &mut edit.half, end, blocks, moves, guard);
        edit.len = len;
        edit.touched = true;
        edit.hold(lane.names.slot, end, len);
        count
    }

    fn may_append(&self, edit: &Edit<'_>, end: u32) -> bool {
        !edit.node.is_root()
            && end == edit.len
            && end < self.config.run_blocks
            && !edit.any_child_at(end)
    }

    /// The first holder of blocks names them; they are `node`'s from `from`
    /// on.
    #[allow(clippy::too_many_arguments)]
    fn name_first<'g>(
        &self,
        lane: &mut Holdings,
        node: &Node,
        half: &mut Half,
        from: u32,
        blocks: &[Block],
        moves: &mut Moves<'g>,
        guard: &'g Guard,
    ) {
        let first = Place::new(node, from);
        let mut fresh = 0;
        let Holdings { names, scratch } = lane;
        let mut named = |name, place: Place, inserted| match inserted {
            Ok(()) => {
                fresh += 1;
                scratch.delta.entries += 1;
                fault(Fault::Named);
                if !half.is_plain() {
                    half.set_flag(place.at(), false);
                }
                moves.private.extend(names.take_private(name));
            }
            Err((other, old)) => {
                half.set_flag(place.at(), !mutant(Mutant::NoFlag));
                match names.add_private(name, place, false) {
                    Some(old) => moves.private.push(old),
                    None => moves.suspects.push((name, other, old)),
                }
                fault(Fault::NamedElsewhere);
            }
        };
        if self.lookup.are_many(blocks.len()) {
            fault(Fault::Naming);
            self.lookup.insert_all(blocks, first, guard, &mut named);
        } else {
            for (part, blocks) in (0..).zip(blocks.chunks(NAMES_AHEAD)) {
                if part > 0 {
                    self.fetch_names(blocks);
                }
                let first = first.below(part * NAMES_AHEAD as u32);
                for (turn, block) in (0..).zip(blocks) {
                    let (name, place) = (block.sequence, first.below(turn));
                    fault(Fault::Naming);
                    named(name, place, self.lookup.insert(name, place, guard));
                }
            }
        }
        // Nobody held them, so each is held by its canonical name alone.
        lane.names.count += fresh;
        fault(Fault::BlocksNamed);
    }

    /// A node of the batch's next blocks, not yet linked.
    fn make_child(
        &self,
        lane: &Holdings,
        parent: &Node,
        offset: u32,
        blocks: &[Block],
        guard: &Guard,
    ) -> Arc<Node> {
        let len = blocks.len().min(self.config.run_blocks as usize) as u32;
        self.fetch_names(&blocks[..len as usize]);
        let mut columns = Columns::with_capacity(len);
        for block in &blocks[..len as usize] {
            columns.push(*block);
        }
        let parent = link_to(parent, guard);
        let slot = lane.names.slot;
        let child = Node::new(parent, offset, columns, len, &[Level::sole(slot, len)]);
        fault(Fault::ChildMade);
        child
    }

    /// Links a new child below an exclusively locked parent, publishing what
    /// the parent's edit has gathered first. The child comes back locked.
    fn link<'g>(
        &'g self,
        lane: &mut Holdings,
        edit: &mut Edit<'g>,
        child: Arc<Node>,
        guard: &'g Guard,
    ) -> Newborn<'g> {
        let found = borrow_under_pin(&child, guard);
        if let Children::Few(few) = &mut edit.half.children
            && few.len() >= self.config.hub_threshold
        {
            let mut retired = Outgoing::default();
            let hub = Hub::new(1, self.fold, true);
            let left = usize::from(mutant(Mutant::TableLeavesOne));
            for child in few.iter().skip(left).map(|child| child.node.clone()) {
                hub.lock(child.offset(), child.first()).insert(child, &mut retired);
            }
            edit.replace_children(Children::Hub(Arc::new(hub)));
            fault(Fault::TableMade);
            edit.publish(KidChange::All(&[]), &mut lane.scratch);
            edit.renew(&mut lane.scratch);
        }
        if edit.half.hub().is_some() {
            edit.publish(KidChange::Same, &mut lane.scratch);
            let hub = edit.half.hub().expect("asked above");
            let mut shard = hub.lock(child.offset(), child.first());
            shard.make_room(&mut lane.scratch.retired);
            fault(Fault::TableRoom);
            let half = found.write(Rank::Child);
            shard.insert(child, &mut lane.scratch.retired);
            return self.newborn(lane, found, half, guard);
        }
        let next = edit.next(KidChange::Added(kids::entry(&child, self.fold)));
        // From here on nothing panics until the child is one that is mended.
        let half = found.write(Rank::Child);
        edit.half.children.push(child);
        edit.commit(next, &mut lane.scratch);
        self.newborn(lane, found, half, guard)
    }

    /// A child that is linked now, and counted.
    fn newborn<'g>(
        &'g self,
        lane: &mut Holdings,
        node: &'g Node,
        half: WriteGuard<'g, Half>,
        guard: &'g Guard,
    ) -> Newborn<'g> {
        lane.scratch.delta.nodes += 1;
        lane.scratch.delta.tree_blocks += i64::from(node.view(guard).len());
        lane.scratch.retired.made(node.bytes_in_all(&half, guard));
        Newborn { tree: self, node, half, guard, slot: lane.names.slot, named: false }
    }

    /// Opens a child below a parent with a hub, under the parent's shared
    /// lock. `None` where that will not do: the parent's own run changes.
    fn open_in_hub<'g>(
        &'g self,
        lane: &mut Holdings,
        cursor: Cursor<'g>,
        rest: &[Block],
        moves: &mut Moves<'g>,
        guard: &'g Guard,
    ) -> Option<Step<'g>> {
        let Cursor { node, at } = cursor;
        let child = self.make_child(lane, node, at, rest, guard);
        let half = node.read(Rank::Parent);
        if half.detached {
            return Some(Step::Detached);
        }
        let (hub, view) = (half.hub()?, node.view(guard));
        if view.has_block(at, &rest[0]) {
            return None;
        }
        let may_append = !node.is_root() && at == view.len() && at < self.config.run_blocks;
        if may_append && !hub.any_at(at) {
            return None;
        }
        let mut shard = hub.lock(at, rest[0].local);
        if let Some(found) = shard.find(at, rest[0].local, guard)
            && !mutant(Mutant::HubInsertUnchecked)
        {
            let next = Cursor { node: found, at: 0 };
            return Some(Step::On { count: 0, next, above: cursor });
        }
        shard.make_room(&mut lane.scratch.retired);
        fault(Fault::TableRoom);
        let found = borrow_under_pin(&child, guard);
        // From here on nothing panics until the child is one that is mended.
        let mut locked = found.write(Rank::Child);
        shard.insert(child, &mut lane.scratch.retired);
        if mutant(Mutant::LinkedUnlocked) {
            drop(locked);
            locked = found.write(Rank::Child);
        }
        let child = self.newborn(lane, found, locked, guard);
        drop(shard);
        drop(half);
        let (found, stored) = self.settle_in(lane, child, rest, moves, guard);
        if mutant(Mutant::SieveSetLate) && node.is_root() {
            self.sieve.set(self.top.key(at, rest[0].local).hash);
        }
        self.widen_when_full(lane, node, guard);
        let next = Cursor { node: found, at: stored };
        Some(Step::On { count: stored as usize, next, above: next })
    }

    /// After a child was linked: a hub that has outgrown its one shard gets
    /// more.
    #[inline]
    pub(super) fn widen_when_full(&self, lane: &mut Holdings, node: &Node, guard: &Guard) {
        let TreeConfig { wide_threshold, wide_shards, .. } = self.config;
        let full = |hub: &Hub| hub.is_narrow() && hub.len() >= wide_threshold && wide_shards > 1;
        if node.view(guard).hub().is_some_and(full) {
            self.widen(lane, node, guard);
        }
    }

    /// Its children are few enough for that to take microseconds.
    #[cold]
    fn widen(&self, lane: &mut Holdings, node: &Node, guard: &Guard) {
        fault(Fault::TableFull);
        let half = node.write(Rank::Parent);
        let narrow = half.hub().filter(|hub| hub.is_narrow());
        let Some(mut children) = narrow.map(|hub| hub.children()) else { return };
        if mutant(Mutant::WideLeavesOne) {
            children.pop();
        }
        let mut edit = Edit::new(self, node, half, &mut lane.scratch, guard);
        let mut wide = Hub::new(self.config.wide_shards, self.fold, true);
        // Arrays of the new table that nobody has seen.
        let mut outgrown = Outgoing::default();
        for child in children {
            wide.lock(child.offset(), child.first()).insert(child, &mut outgrown);
        }
        if node.is_root() {
            wide = wide.behind_as_well(self.sieve.clone());
        }
        edit.replace_children(Children::Hub(Arc::new(wide)));
        fault(Fault::TableWide);
        edit.publish(KidChange::All(&[]), &mut lane.scratch);
    }

    /// Names the blocks of a child that was just linked and is still locked;
    /// the child, and how many they are.
    fn settle_in<'g>(
        &self,
        lane: &mut Holdings,
        mut child: Newborn<'g>,
        blocks: &[Block],
        moves: &mut Moves<'g>,
        guard: &'g Guard,
    ) -> (&'g Node, u32) {
        fault(Fault::Linked);
        let node = child.node;
        let len = node.view(guard).len();
        lane.names.enter(node);
        self.name_first(lane, node, &mut child.half, 0, &blocks[..len as usize], moves, guard);
        child.named = true;
        (node, len)
    }

    /// Prepares the lookup for the first of the blocks, once it is clear that
    /// they will be named: their lines come while the blocks get their place.
    #[inline]
    fn fetch_names(&self, blocks: &[Block]) {
        self.lookup.prefetch(blocks.iter().take(NAMES_AHEAD).map(|block| block.sequence));
    }

    /// The moved names give up their old places.
    fn give_up_moved(&self, lane: &mut Holdings, moves: Moves<'_>, guard: &Guard) {
        let Moves { private, suspects } = moves;
        if private.is_empty() && suspects.is_empty() {
            return;
        }
        let mut found = std::mem::take(&mut lane.scratch.found);
        found.clear();
        found.extend(private.into_iter().map(|place| (place, true)));
        for (name, node, place) in suspects {
            let named = || {
                mutant(Mutant::SuspectUnnamed) || node.read(Rank::Child).canonical(place.at(), name)
            };
            if lane.names.has_canonical(node, place, guard) && named() {
                found.push((place, false));
            }
        }
        fault(Fault::MovedFound);
        self.give_up(lane, &mut found, guard);
        lane.scratch.found = found;
    }

    /// How long a run may get.
    pub(super) fn clamp_run(blocks: u32) -> u32 {
        blocks.clamp(1, MAX_RUN)
    }

    /// Retires what an event has taken out of the tree.
    pub(super) fn hand_over(&self, lane: &mut Holdings, guard: &Guard) -> bool {
        self.give_room_back(&mut lane.scratch);
        self.garbage.take(&mut lane.scratch.retired, guard)
    }

    /// Retires a worker's slot.
    pub(super) fn retire_slot(&self, lane: &mut Holdings, slot: u32) {
        if mutant(Mutant::SlotAtOnce) {
            return self.garbage.give_back(slot);
        }
        lane.scratch.retired.push(Retired::Slot(slot));
    }
}

#[cfg(all(test, not(kvradix_loom)))]
mod tests {
    use super::super::published::Line;
    use super::*;
    use crate::sync::pin;
    use crate::{Index, LocalHash, WorkerId};

    const A: WorkerId = WorkerId::new(1, 0);
    const B: WorkerId = WorkerId::new(2, 0);
    const C: WorkerId = WorkerId::new(3, 0);

    fn blocks(names: std::ops::Range<u64>) -> Vec<Block> {
        names.map(|n| Block { sequence: SequenceHash(n), local: LocalHash(n) }).collect()
    }

    /// The hints of the root's child that begins with `first` and of the child
    /// below its first eight blocks that begins with `then`; and what they would
    /// be now.
    #[track_caller]
    fn hints(index: &Index, first: u64, then: u64) -> [(*const Line, *const Line); 2] {
        let (tree, guard) = (&index.shared().tree, pin());
        let above = tree.top.find(0, LocalHash(first), &guard).expect("a child of the root");
        let view = above.view(&guard);
        let below = view.child(8, LocalHash(then), tree.fold, &guard).expect("a child");
        let hint = match view.hub() {
            Some(hub) => hub.hint_of(below),
            None => view.kids().hint_of(below),
        };
        let top = tree.top.hint_of(above).expect("a slot");
        [(top, above.hint_under(&guard)), (hint.expect("a slot"), below.hint_under(&guard))]
    }

    /// Suffixes that grow and prefixes that get children are published many
    /// times, and their hints renewed once, when their worker stores elsewhere.
    #[test]
    fn hints_are_renewed_when_a_worker_turns_to_another_chain() {
        for threshold in [1, 96] {
            let index = Index::builder().drain_threads(0).hub_threshold(threshold).build();
            for worker in [A, B] {
                index.store(worker, None, &blocks(1..9)).unwrap();
            }
            index.store(B, Some(SequenceHash(8)), &blocks(200..208)).unwrap();
            index.store(B, Some(SequenceHash(8)), &blocks(300..308)).unwrap();
            index.store(A, Some(SequenceHash(8)), &blocks(100..101)).unwrap();
            let before = hints(&index, 1, 100);
            for end in 101..140 {
                index.store(A, Some(SequenceHash(end - 1)), &blocks(end..end + 1)).unwrap();
            }
            index.store(C, None, &blocks(1..3)).unwrap();
            let outdated = hints(&index, 1, 100);
            assert_eq!(outdated.map(|(hint, _)| hint), before.map(|(hint, _)| hint));
            assert!(outdated.iter().all(|(hint, now)| hint != now), "nothing has changed");
            index.store(A, None, &blocks(50..51)).unwrap();
            let renewed = hints(&index, 1, 100);
            assert!(renewed.iter().all(|(hint, now)| hint == now), "{renewed:?}");
            // Nor are they lost where the root's table is replaced.
            for first in 1_000..5_000 {
                index.store(A, None, &blocks(first..first + 1)).unwrap();
            }
            assert_eq!(hints(&index, 1, 100), renewed);
            index.check();
        }
    }

    #[test]
    fn a_store_after_its_workers_chain_went_leaves_the_tree_whole() {
        let index = Index::builder().drain_threads(0).build();
        index.store(A, None, &blocks(1..9)).unwrap();
        index.store(A, Some(SequenceHash(3)), &blocks(20..29)).unwrap();
        index.remove(A, &(1..9).chain(20..29).map(SequenceHash).collect::<Vec<_>>());
        index.store(A, None, &blocks(50..51)).unwrap();
        index.store(A, None, &blocks(50..52)).unwrap();
        assert_eq!(index.stats().nodes, 1);
        index.check();
    }
}
