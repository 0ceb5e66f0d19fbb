//! Letting go: a worker's names are forgotten, blocks lose their holders,
//! runs lose their tails, nodes leave the tree.
//!
//! The rules: a tail that nobody holds and nothing hangs below is trimmed by
//! the event that made it so; a node that is empty then is detached by the
//! same event, and its parent looked at next. A node is detached under its
//! parent's lock and its own, if it is still empty and the parent's slot
//! still is this very node: a replacement stays. The root never goes.

use super::edit::{Edit, KidChange};
use super::garbage::Retired;
use super::kids;
use super::levels;
use super::link::borrow_under_pin;
use super::lookup::NAMES_AHEAD;
use super::names::Names;
use super::node::{Children, FewChild, Half, Node};
use super::place::Place;
use super::scratch::Scratch;
use super::view::View;
use super::{Holdings, Tree};
use crate::SequenceHash;
use crate::sync::rank::Rank;
use crate::sync::{Fault, Guard, Mutant, ReadGuard, Weak, WriteGuard, fault, mutant};

/// The node that the last name led to, still locked: its neighbours often
/// come next, and need no look at the lookup.
struct Hint<'g> {
    half: ReadGuard<'g, Half>,
    node: &'g Node,
    at: u32,
    /// How much of the run the worker holds without a hole; 0 where there is
    /// one, so that the lookup is asked.
    cutoff: u32,
}

impl Tree {
    /// Forgets `names` of the worker; how many of them it did not have.
    pub(super) fn remove(
        &self,
        lane: &mut Holdings,
        names: &[SequenceHash],
        guard: &Guard,
    ) -> usize {
        let mut found = std::mem::take(&mut lane.scratch.found);
        found.clear();
        let mut unknown = self.find_all(lane, names, &mut found, guard);
        fault(Fault::NamesFound);
        let before = found.len();
        self.give_up(lane, &mut found, guard);
        unknown += before - found.len();
        lane.scratch.found = found;
        unknown
    }

    /// Finds where names stand, taking the private ones out of their map. What
    /// are tails of the worker's runs is let go of right away.
    fn find_all(
        &self,
        lane: &mut Holdings,
        names: &[SequenceHash],
        found: &mut Vec<(Place, bool)>,
        guard: &Guard,
    ) -> usize {
        let mut unknown = 0;
        let mut hint: Option<Hint<'_>> = None;
        let mut rest = &names[self.let_go_latest(lane, names, guard)..];
        while let Some((&name, after)) = rest.split_first() {
            fault(Fault::NameFound);
            let from = std::mem::replace(&mut rest, after);
            if let Some(place) = lane.names.take_private(name) {
                found.push((place, true));
                continue;
            }
            if let Some(hint) = &mut hint
                && let Some(place) = hint.neighbour(lane, name)
            {
                found.push((place, false));
                continue;
            }
            // One node's lock at a time.
            hint = None;
            let entry = self.lookup.get(name, guard);
            let Some((node, place)) = entry.filter(|(_, place)| lane.names.knows_canonical(*place))
            else {
                unknown += 1;
                continue;
            };
            // Not beside places that wait: a name may be here twice.
            if found.is_empty()
                && let Some(count) = self.let_go_tail(lane, node, place, from, guard)
            {
                rest = &from[count..];
                continue;
            }
            let (half, slot, at) = (node.read(Rank::Child), lane.names.slot, place.at());
            let view = node.view(guard);
            let levels = view.levels();
            if half.holds(levels, slot, at) {
                found.push((place, false));
                let holed = half.mask(slot).is_some();
                let cutoff = if holed { 0 } else { levels::cutoff_of(levels, slot) };
                hint = Some(Hint { half, node, at, cutoff });
            } else {
                unknown += 1;
            }
        }
        unknown
    }

    /// Gives up names at their places: private ones, already out of their
    /// map, and canonical ones. Brings a node's places
    /// together, descending, and drops repeated ones.
    pub(super) fn give_up(
        &self,
        lane: &mut Holdings,
        found: &mut Vec<(Place, bool)>,
        guard: &Guard,
    ) {
        if !arrange(found, &mut lane.scratch.heads) {
            found.sort_unstable_by(|a, b| b.cmp(a));
            // A private name was taken out of its map when it was found, so
            // only a canonical one can be here twice.
            found.dedup_by(|a, b| a == b && !a.1);
        }
        let mut rest = &found[..];
        while let Some((first, _)) = rest.first() {
            let node = Names::node_of(*first, guard);
            let mut positions = std::mem::take(&mut lane.scratch.positions);
            positions.clear();
            while let Some((place, private)) = rest.first()
                && place.is_beside(*first)
            {
                if lane.names.give_up(*place, *private) {
                    positions.push(place.at());
                }
                rest = &rest[1..];
            }
            fault(Fault::NamesGivenUp);
            if !positions.is_empty() {
                self.let_go(lane, node, node.write(Rank::Child), &positions, guard);
            }
            lane.scratch.positions = positions;
        }
    }

    /// Lets go of what `names` begin with if that is the end of the last store:
    /// no look at the lookup is needed to find it. How many names that were.
    fn let_go_latest(&self, lane: &mut Holdings, names: &[SequenceHash], guard: &Guard) -> usize {
        let Some((latest, place)) = lane.names.latest else { return 0 };
        let (at, node) = (place.at(), Names::node_of(place, guard));
        let first = if names.first() == Some(&latest) {
            at
        } else if names.last() == Some(&latest) && names.len() <= at as usize + 1 {
            at + 1 - names.len() as u32
        } else {
            return 0;
        };
        fault(Fault::NameFound);
        self.let_go_tail(lane, node, Place::new(node, first), names, guard).unwrap_or(0)
    }

    /// Lets go of the last blocks that the worker holds in a run, if `names`
    /// begin with theirs: from the end up, as engines evict, or as the last
    /// store named them. How many; the first name should be that of `place`.
    /// Most removals are of this kind, and take one lock of the node.
    fn let_go_tail(
        &self,
        lane: &mut Holdings,
        node: &Node,
        place: Place,
        names: &[SequenceHash],
        guard: &Guard,
    ) -> Option<usize> {
        if !lane.names.all_canonical() {
            return None;
        }
        // Its own level changes under its lane's lock alone.
        let cutoff = levels::cutoff_of(node.view(guard).levels(), lane.names.slot);
        let held = cutoff.checked_sub(place.at()).filter(|held| *held > 0)?;
        if held > 1 {
            let last = *names.get(held as usize - 1)?;
            lane.names.latest.filter(|latest| *latest == (last, Place::new(node, cutoff - 1)))?;
        }
        let half = node.write(Rank::Child);
        // Nothing behind a hole, no name that is not canonical.
        if !half.is_plain() {
            return None;
        }
        let named = |(name, at): &(&SequenceHash, u32)| half.columns.name(*at) == **name;
        let count = if held == 1 {
            names.iter().zip((0..cutoff).rev()).take_while(named).count() as u32
        } else {
            names.iter().zip(place.at()..cutoff).all(|pair| named(&pair)).then_some(held)?
        };
        // A view each for a few names would cost more than it saves: those are
        // brought together first.
        if count == 0 || ((count as usize) < names.len() && count < worth(node.view(guard))) {
            return None;
        }
        let first = cutoff - count;
        let above = first.checked_sub(1).map(|at| half.columns.name(at));
        lane.names.give_up_tail(Place::new(node, first), count, above);
        let mut positions = std::mem::take(&mut lane.scratch.positions);
        positions.clear();
        positions.extend((first..cutoff).rev());
        fault(Fault::NamesGivenUp);
        self.let_go(lane, node, half, &positions, guard);
        lane.scratch.positions = positions;
        Some(count as usize)
    }

    /// The worker no longer holds the blocks at `positions`, which descend.
    fn let_go<'g>(
        &'g self,
        lane: &mut Holdings,
        node: &'g Node,
        half: WriteGuard<'g, Half>,
        positions: &[u32],
        guard: &'g Guard,
    ) {
        let Holdings { names, scratch } = lane;
        let slot = names.slot;
        let mut edit = Edit::new(self, node, half, scratch, guard);
        self.unname_lost(&mut edit, slot, positions, scratch);
        edit.let_go(slot, positions);
        fault(Fault::LetGo);
        if edit.holds_nothing(slot) {
            names.leave(node);
        }
        let above = edit.finish(scratch);
        drop(edit);
        self.detach_if(above, scratch, node, guard);
    }

    /// Everything the worker holds in the node of `place`, one of those that
    /// its lane lists, let go at once.
    pub(super) fn let_go_all(&self, slot: u32, scratch: &mut Scratch, place: Place, guard: &Guard) {
        self.let_go_of_node(slot, scratch, Names::node_of(place, guard), guard);
    }

    /// The same in a node that the worker may hold nothing in.
    pub(super) fn let_go_of_node(
        &self,
        slot: u32,
        scratch: &mut Scratch,
        node: &Node,
        guard: &Guard,
    ) {
        let half = node.write(Rank::Child);
        if half.detached {
            return;
        }
        let mut edit = Edit::new(self, node, half, scratch, guard);
        let cutoff = levels::cutoff_of(&edit.levels, slot);
        let mut positions = std::mem::take(&mut scratch.positions);
        positions.clear();
        // What others hold from the start on keeps its names.
        let kept_by_others = levels::deepest_of_others(&edit.levels, slot);
        match edit.half.mask(slot) {
            None => positions.extend((kept_by_others..cutoff).rev()),
            Some(mask) => {
                let held = (kept_by_others..mask.end()).rev();
                positions.extend(held.filter(|at| mask.get(*at)));
            }
        }
        self.unname_lost(&mut edit, slot, &positions, scratch);
        scratch.positions = positions;
        edit.half.set_mask(slot, None);
        levels::set_cutoff(&mut edit.levels, slot, cutoff, 0);
        edit.touched |= cutoff > 0;
        fault(Fault::LetGo);
        let above = edit.finish(scratch);
        drop(edit);
        self.detach_if(above, scratch, node, guard);
    }

    /// Those of `slot`'s blocks at `positions` that nobody else holds lose
    /// their entries.
    fn unname_lost(
        &self,
        edit: &mut Edit<'_>,
        slot: u32,
        positions: &[u32],
        scratch: &mut Scratch,
    ) {
        let kept_by_others = levels::deepest_of_others(&edit.levels, slot);
        let mut lost = std::mem::take(&mut scratch.lost);
        lost.clear();
        for &at in positions {
            if at < kept_by_others || edit.half.masked_by_others(slot, at) {
                continue;
            }
            // Not all have one.
            if edit.half.flagged(at) {
                edit.half.set_flag(at, false);
            } else if !mutant(Mutant::EntryStays) {
                lost.push(at);
            }
        }
        self.unname(edit, &lost, scratch);
        scratch.lost = lost;
    }

    /// The entries of the blocks at `positions` go.
    fn unname(&self, edit: &Edit<'_>, positions: &[u32], scratch: &mut Scratch) {
        let entry = |at| (edit.half.columns.name(at), Place::new(edit.node, at));
        let mut left = positions.len();
        let mut gone = || {
            left -= 1;
            scratch.delta.entries -= 1;
            fault(Fault::EntryRemoved);
        };
        if self.lookup.are_many(positions.len()) {
            self.lookup.remove_all(positions, entry, &mut gone);
        } else {
            for ahead in positions.chunks(NAMES_AHEAD) {
                self.lookup.prefetch(ahead.iter().map(|at| entry(*at).0));
                for &at in ahead {
                    let (name, place) = entry(at);
                    if self.lookup.remove(name, place) {
                        gone();
                    }
                }
            }
        }
        debug_assert_eq!(left, 0, "held blocks' canonical names have entries");
    }

    /// Detaches a node that was left empty below `above`.
    #[inline]
    fn detach_if(&self, above: Option<&Node>, scratch: &mut Scratch, node: &Node, guard: &Guard) {
        if let Some(above) = above {
            fault(Fault::Emptied);
            self.detach(scratch, above, node, guard);
        }
    }

    /// Takes an emptied node out of the tree, and then each ancestor that
    /// this empties.
    pub(super) fn detach<'g>(
        &'g self,
        scratch: &mut Scratch,
        mut parent: &'g Node,
        mut node: &'g Node,
        guard: &'g Guard,
    ) {
        debug_assert!(!node.is_root(), "the root is never a candidate");
        while let Some(above) = self.unlink(scratch, parent, node, guard) {
            if mutant(Mutant::ClimbStops) {
                return;
            }
            (parent, node) = (above, parent);
        }
    }

    /// Unlinks an empty child; where this leaves the parent empty, the parent
    /// of that.
    fn unlink<'g>(
        &'g self,
        scratch: &mut Scratch,
        parent: &'g Node,
        child: &Node,
        guard: &'g Guard,
    ) -> Option<&'g Node> {
        if parent.view(guard).hub().is_some() {
            // A hub's parent is locked shared: only the shard changes.
            let half = parent.read(Rank::Parent);
            if let Some(hub) = half.hub() {
                let mut shard = hub.lock(child.offset(), child.first());
                let mut child_half = child.write(Rank::Child);
                if child_half.detached && !mutant(Mutant::DetachByKey)
                    || child.view(guard).len() > 0 && !mutant(Mutant::DetachUncheckedInHub)
                {
                    return None;
                }
                fault(Fault::Unlinking);
                // One step: none of it panics, the arrays of a shard come in
                // sizes that there are.
                let (owner, left) = shard.remove(child, &mut scratch.retired)?;
                let bytes = child.bytes_with_table(&child_half, guard);
                scratch.retired.push(Retired::Node(owner, bytes));
                scratch.delta.nodes -= 1;
                child_half.mark_detached();
                drop(child_half);
                drop(shard);
                fault(Fault::Unlinked);
                if parent.is_root() || (left && hub.len() > self.config.hub_threshold / 2) {
                    return None;
                }
                drop(half);
                return self.settle(scratch, parent, guard);
            }
        }
        let half = parent.write(Rank::Parent);
        if half.hub().is_some() {
            // It got one in between.
            drop(half);
            return self.unlink(scratch, parent, child, guard);
        }
        let mut child_half = child.write(Rank::Child);
        if child_half.detached && !mutant(Mutant::DetachByKey)
            || child.view(guard).len() > 0 && !mutant(Mutant::DetachUnchecked)
        {
            return None;
        }
        let Children::Few(few) = &half.children else { return None };
        let same = |FewChild { node, .. }: &FewChild| match mutant(Mutant::DetachByKey) {
            true => (node.offset(), node.first()) == (child.offset(), child.first()),
            false => std::ptr::eq(&**node, child),
        };
        let at = few.iter().position(same)?;
        let child_is = borrow_under_pin(&few[at].node, guard);
        let bytes = child.bytes_with_table(&child_half, guard);
        if mutant(Mutant::MarkShownEarly) {
            child_half.mark_detached();
            drop(child_half);
            child_half = child.write(Rank::Child);
        }
        let mut edit = Edit::new(self, parent, half, scratch, guard);
        edit.trim(KidChange::Removed(child_is));
        let next = edit.next(KidChange::Removed(child_is));
        fault(Fault::Unlinking);
        // One step, in which nothing panics. The child is unlocked last: who
        // meets the mark does not find the child in the parent's view, and need
        // not spin until it is there.
        let owner = edit.half.children.remove(at);
        edit.commit(next, scratch);
        scratch.retired.push(Retired::Node(owner, bytes));
        scratch.delta.nodes -= 1;
        child_half.mark_detached();
        let above = edit.emptied();
        drop(edit);
        drop(child_half);
        fault(Fault::Unlinked);
        above
    }

    /// After a child left a hub: trims the parent, takes its children back
    /// into the view where they are few; where it is left empty, the parent of
    /// that.
    pub(super) fn settle<'g>(
        &'g self,
        scratch: &mut Scratch,
        parent: &'g Node,
        guard: &'g Guard,
    ) -> Option<&'g Node> {
        fault(Fault::TableLeft);
        let half = parent.write(Rank::Parent);
        if half.detached {
            return None;
        }
        let mut edit = Edit::new(self, parent, half, scratch, guard);
        edit.trim(KidChange::Same);
        let few = edit.half.hub().is_some_and(|hub| hub.len() <= self.config.hub_threshold / 2);
        if !few || parent.is_root() {
            edit.publish(KidChange::Same, scratch);
            return edit.emptied();
        }
        let mut children = edit.half.hub().map(|hub| hub.children()).unwrap_or_default();
        if mutant(Mutant::FewLeaveOne) {
            children.pop();
        }
        let kids: Vec<_> = children.iter().map(|node| kids::entry(node, self.fold)).collect();
        let children = match children.is_empty() {
            true => Children::None,
            false => Children::Few(Box::new(children.into_iter().map(FewChild::new).collect())),
        };
        edit.replace_children(children);
        fault(Fault::TableGone);
        edit.publish(KidChange::All(&kids), scratch);
        edit.emptied()
    }
}

/// Blocks of a tail for which a view of their own is made while others wait: a
/// few, and in proportion to what it copies. Where chains lose their ends by
/// turns, their nodes are published once for all.
fn worth(view: View<'_>) -> u32 {
    const FEW: u32 = 4;
    const BYTES_A_BLOCK: usize = 256;
    FEW.max((view.bytes() / BYTES_A_BLOCK) as u32)
}

/// Evictions along a chain come in order, either way, and chain after chain:
/// turns the places of each node so that they descend. Whether each node's are
/// together then, and none is there twice.
fn arrange(found: &mut [(Place, bool)], heads: &mut Vec<Place>) -> bool {
    heads.clear();
    for places in found.chunk_by_mut(|(a, _), (b, _)| a.is_beside(*b)) {
        if places.is_sorted_by(|(a, _), (b, _)| a < b) {
            places.reverse();
        } else if !places.is_sorted_by(|(a, _), (b, _)| a > b) {
            return false;
        }
        heads.push(places[0].0);
    }
    heads.sort_unstable();
    !heads.windows(2).any(|pair| pair[0].is_beside(pair[1]))
}

impl Hint<'_> {
    /// The place of `name` if it is a neighbour of the last one and the
    /// worker has it by that name.
    fn neighbour(&mut self, lane: &Holdings, name: SequenceHash) -> Option<Place> {
        let has = |at: u32| {
            at < self.cutoff
                && self.half.canonical(at, name)
                && lane.names.knows_canonical(Place::new(self.node, at))
        };
        let (above, below) = (self.at.wrapping_sub(1), self.at + 1);
        let at = if has(above) {
            above
        } else if has(below) {
            below
        } else {
            return None;
        };
        self.at = at;
        Some(Place::new(self.node, at))
    }
}

impl Half {
    /// The node left the tree; its link up goes, so that it keeps nothing.
    fn mark_detached(&mut self) {
        self.detached = !mutant(Mutant::NoMark);
        self.parent = Weak::new();
    }
}

#[cfg(all(test, not(kvradix_loom)))]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::super::columns::Columns;
    use super::*;
    use crate::sync::Arc;
    use crate::{Block, LocalHash};

    fn nodes(count: u64) -> Vec<Arc<Node>> {
        let node = |local| {
            let mut columns = Columns::with_capacity(1);
            columns.push(Block { sequence: SequenceHash(local), local: LocalHash(local) });
            Node::new(Weak::new(), 0, columns, 1, &[])
        };
        (0..count).map(node).collect()
    }

    /// As `give_up` brings places together where `arrange` cannot.
    fn sorted(mut found: Vec<(Place, bool)>) -> Vec<(Place, bool)> {
        found.sort_unstable_by(|a, b| b.cmp(a));
        found.dedup_by(|a, b| a == b && !a.1);
        found
    }

    /// Arranges `found` and holds what comes of it to a sort; whether there
    /// was no need of one.
    fn arranges(found: &[(Place, bool)]) -> bool {
        let mut arranged = found.to_vec();
        let done = arrange(&mut arranged, &mut Vec::new());
        if done {
            let mut seen: Vec<Place> = Vec::new();
            for run in arranged.chunk_by(|(a, _), (b, _)| a.is_beside(*b)) {
                assert!(run.is_sorted_by(|(a, _), (b, _)| a > b), "descending, none twice");
                assert!(!seen.iter().any(|place| place.is_beside(run[0].0)), "together");
                seen.push(run[0].0);
            }
            assert_eq!(arranged.len(), sorted(found.to_vec()).len(), "none is there twice");
        }
        assert_eq!(sorted(arranged), sorted(found.to_vec()), "none is lost");
        done
    }

    /// Runs of places that ascend, descend, or are in no order, of several
    /// nodes, some of which come back, some places twice, some private.
    #[test]
    fn places_are_together_and_descend_or_have_to_be_sorted() {
        let (nodes, mut rng) = (nodes(6), SmallRng::seed_from_u64(5));
        let mut outcomes = [0; 2];
        for _ in 0..20_000 {
            let mut found = Vec::new();
            for _ in 0..rng.random_range(0..6) {
                let node = &nodes[rng.random_range(0..nodes.len())];
                let (from, length) = (rng.random_range(0..40), rng.random_range(1..8));
                let mut run: Vec<u32> = (from..from + length).collect();
                match rng.random_range(0..8) {
                    0..3 => run.reverse(),
                    3..6 => {}
                    6 => run.swap(0, length as usize / 2),
                    _ => run.push(run[rng.random_range(0..run.len())]),
                }
                let private = rng.random_ratio(1, 4);
                found.extend(
                    run.into_iter()
                        .map(|at| (Place::new(node, at), private && rng.random_ratio(1, 2))),
                );
            }
            outcomes[usize::from(arranges(&found))] += 1;
        }
        assert!(outcomes.iter().all(|count| *count > 4_000), "{outcomes:?}");
    }

    /// Fails if what engines do most has to be sorted.
    #[test]
    fn ordered_evictions_of_one_chain_after_the_other_need_no_sort() {
        let (nodes, mut rng) = (nodes(40), SmallRng::seed_from_u64(6));
        for _ in 0..2_000 {
            let mut found = Vec::new();
            let mut left: Vec<&Arc<Node>> = nodes.iter().collect();
            for _ in 0..rng.random_range(1..30) {
                // In any order of the nodes' addresses.
                let node = left.swap_remove(rng.random_range(0..left.len()));
                let from = rng.random_range(0..100);
                let chain = from..from + rng.random_range(1..20);
                let place = |at| (Place::new(node, at), false);
                match rng.random_ratio(1, 2) {
                    true => found.extend(chain.map(place)),
                    false => found.extend(chain.rev().map(place)),
                }
            }
            assert!(arranges(&found), "{found:?}");
        }
        assert!(arranges(&[]));
    }
}
