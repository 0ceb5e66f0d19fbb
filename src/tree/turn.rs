//! A lane's lock, and what a panic under it means.
//!
//! While an event is half done its turn is *torn*. A turn that is dropped so,
//! which only a panic does, poisons the lane: its worker is in no answer from
//! then on, and counts as having no name. By then every node is mended
//! (`mend.rs`), so other workers go on.

use super::Holdings;
use super::figures::Figure;
use super::lane::{Lane, LaneState};
use super::shared::Shared;
use crate::WorkerId;
use crate::sync::rank::Rank;
use crate::sync::{Guard, Mutant, MutexGuard, Omission, Ordering, mutant, omitted, pin};

/// A lane, locked for an event of its worker.
pub(super) struct Turn<'a> {
    shared: &'a Shared,
    pub(super) lane: &'a Lane,
    pub(super) state: MutexGuard<'a, LaneState>,
    /// Whether an event is half done.
    pub(super) torn: bool,
}

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.torn && !omitted(Omission::Unpoisoned) {
            self.shared.poison(self.lane, &mut self.state);
        }
    }
}

impl Shared {
    #[inline]
    pub(super) fn turn<'a>(&'a self, lane: &'a Lane) -> Turn<'a> {
        Turn { shared: self, lane, state: lane.state.lock(Rank::Lane), torn: false }
    }

    /// The lane's event has panicked half done.
    #[cold]
    pub(super) fn poison(&self, lane: &Lane, state: &mut LaneState) {
        // Once healed it is known, also where its first store was the one.
        (state.poisoned, state.known) = (true, true);
        lane.poisoned.store(1, Ordering::Relaxed);
        // A closed lane's slot may be somebody else's soon.
        if !state.closed && !omitted(Omission::StillInTable) {
            self.tree.roster.hide(state.holdings.names.slot, lane.worker, &self.tree.garbage);
        }
        // As they were noted last: counts of half an event are in no figure.
        lane.figures.add(Figure::LostBlocks, lane.figures.names() as usize);
        state.holdings.names.reset();
        lane.note(&state.holdings);
        if !omitted(Omission::RetiredKept) {
            self.tree.hand_over(&mut state.holdings, &pin());
        }
    }

    /// The worker lets go of everything, also of what a poisoned lane has no
    /// books of.
    pub(super) fn let_go_of_all(&self, turn: &mut Turn<'_>, guard: Guard) -> Guard {
        turn.torn = true;
        if !turn.state.poisoned || omitted(Omission::BooksTrusted) {
            return self.clear_locked(&mut turn.state, guard);
        }
        drop(guard);
        if mutant(Mutant::HealedBeforeBits) {
            let slot = turn.state.holdings.names.slot;
            self.tree.roster.come_back(slot, turn.lane.worker, &self.tree.garbage);
        }
        self.tree.heal(&mut turn.state.holdings);
        pin()
    }

    /// A healed worker, which holds nothing, is in answers again.
    pub(super) fn welcome_back(&self, turn: &mut Turn<'_>) {
        if turn.state.poisoned {
            let Holdings { names, .. } = &turn.state.holdings;
            self.tree.roster.come_back(names.slot, turn.lane.worker, &self.tree.garbage);
            turn.state.poisoned = false;
            turn.lane.poisoned.store(0, Ordering::Relaxed);
        }
    }

    /// What a panic does, for models and tests.
    #[cfg(any(kvradix_loom, test))]
    // The tests are those of a feature.
    #[allow(dead_code)]
    pub(crate) fn poison_worker(&self, worker: WorkerId) {
        let lane = self.lanes().into_iter().find(|lane| lane.worker == worker);
        if let Some(lane) = lane {
            self.turn(&lane).torn = true;
        }
    }

    /// Workers whose lanes are poisoned, in ascending order.
    pub(crate) fn poisoned(&self) -> Vec<WorkerId> {
        let lanes = self.lanes().into_iter().filter(|lane| lane.is_poisoned());
        let mut workers: Vec<_> = lanes.map(|lane| lane.worker).collect();
        workers.sort_unstable();
        workers
    }
}

impl Lane {
    fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed) > 0
    }
}
