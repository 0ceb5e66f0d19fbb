//! Events that no lane counts: stores that were refused, and events of workers
//! that are not known.

use crate::sync::{Counter, Ordering};
use crate::{EventCounts, StoreErrorKind};

/// Their counts, on cache lines of their own: a storm of such events is not
/// to slow down those that do something.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Strays {
    /// By the number of the kind.
    refused: [Refused; StoreErrorKind::ALL.len()],
    removals: Counter,
    /// Names in these.
    names: Counter,
    clears: Counter,
    leavings: Counter,
}

/// Refused stores of one kind.
#[derive(Default)]
#[repr(align(64))]
struct Refused {
    events: Counter,
    blocks: Counter,
}

/// What it was before.
fn raise(counter: &Counter, by: usize) -> u64 {
    counter.fetch_add(by as u64, Ordering::Relaxed)
}

impl Strays {
    /// How many of this kind there were with it.
    #[cold]
    pub(super) fn refused(&self, kind: StoreErrorKind, blocks: usize) -> u64 {
        let refused = &self.refused[kind as usize];
        raise(&refused.blocks, blocks);
        raise(&refused.events, 1) + 1
    }

    /// So many removals with so many names in all; nothing where none.
    #[cold]
    pub(super) fn removals(&self, removals: usize, names: usize) {
        raise(&self.removals, removals);
        raise(&self.names, names);
    }

    #[cold]
    pub(super) fn clear(&self) {
        raise(&self.clears, 1);
    }

    #[cold]
    pub(super) fn leaving(&self) {
        raise(&self.leavings, 1);
    }

    /// Writes the counts into `events`; the names of stray removals.
    pub(super) fn add_to(&self, events: &mut EventCounts) -> u64 {
        for kind in StoreErrorKind::ALL {
            let Refused { events: count, blocks } = &self.refused[kind as usize];
            let refused = events.refused.of_mut(kind);
            refused.events = count.load(Ordering::Relaxed);
            refused.blocks = blocks.load(Ordering::Relaxed);
        }
        events.stray_removals = self.removals.load(Ordering::Relaxed);
        events.stray_clears = self.clears.load(Ordering::Relaxed);
        events.stray_leavings = self.leavings.load(Ordering::Relaxed);
        self.names.load(Ordering::Relaxed)
    }
}
