//! One worker at one moment.

use super::Cursor;
use crate::{Event, Index, WorkerId};

/// What one worker held at one moment, and where in its stream of events that
/// was. Sixteen bytes a held block, and some for each run.
#[derive(Clone, Debug)]
pub struct Cut {
    pub(super) worker: WorkerId,
    pub(super) cursor: Cursor,
    /// Stores, parents first, then perhaps one removal of temporary names.
    pub(super) events: Vec<Event>,
}

impl Cut {
    /// The worker as it is now; `None` if it is not known, or is
    /// [poisoned](crate::StoreError::Poisoned). Removals handed in before are
    /// in it. The worker's own events wait meanwhile, those of others go on.
    /// O(what the worker holds and its ancestors).
    ///
    /// `cursor` shall stand exactly here: call it from the thread that hands
    /// in the worker's events, between two of them, or see [`super::export`].
    pub fn of(index: &Index, worker: WorkerId, cursor: Cursor) -> Option<Self> {
        let events = index.cut(worker)?;
        Some(Self { worker, cursor, events })
    }

    /// Whose it is.
    pub fn worker(&self) -> WorkerId {
        self.worker
    }

    /// How many names the worker had.
    pub fn held(&self) -> u64 {
        let names = |event: &Event| match event {
            Event::Stored { blocks, .. } => blocks.len() as i64,
            Event::Removed { names, .. } => -(names.len() as i64),
            Event::Cleared { .. } => 0,
        };
        self.events.iter().map(names).sum::<i64>().unsigned_abs()
    }
}
