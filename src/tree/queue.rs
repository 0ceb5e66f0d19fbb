//! A worker's removals that wait to be applied, in the order they came.
//!
//! Behind a lock of its own, which is held for as long as names are copied: a
//! remover takes it once a call, or for each [`CHUNK`] of a long one, a drain
//! once for up to as many. What is told beside the names, that the lane is
//! listed or closed, changes under the same lock, so nobody hands in names
//! unseen.

use std::collections::VecDeque;

use super::lane::slim;
use crate::SequenceHash;
use crate::sync::rank::Rank;
use crate::sync::{AtomicUsize, Mutant, Mutex, MutexGuard, Ordering, mutant};

/// Names that a drain takes at a time, and applies under one pin. Small in the
/// models, so that a drain of a part is one.
pub(super) const CHUNK: usize = if cfg!(kvradix_loom) { 2 } else { 512 };

/// Lists of full chunks that an idle queue keeps room for.
const KEPT_FULL: usize = 8;

/// The queue of one lane. On lines of its own: removers write it while a drain
/// is at work in the lane.
#[repr(align(64))]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    /// Names ever handed in; changed under the queue's lock.
    handed_in: AtomicUsize,
    /// How many of them are applied; changed under the lane's lock.
    applied: AtomicUsize,
}

#[derive(Default)]
struct Waiting {
    /// Chunks of `CHUNK` names, the oldest first; then comes `last`.
    full: VecDeque<Chunk>,
    last: Chunk,
    /// Whether the lane is in the list that the alarm goes through.
    listed: bool,
    /// Whether the worker was removed: no more names are taken in.
    closed: bool,
}

/// Names that are taken out together.
#[derive(Default)]
struct Chunk {
    names: Vec<SequenceHash>,
    /// How many removals begin among them.
    begun: usize,
}

/// What a remover finds out as he hands names in.
pub(super) struct HandedIn {
    /// Names that wait now, his own among them.
    pub(super) pending: usize,
    /// Whether the lane was listed already.
    pub(super) listed: bool,
}

impl Queue {
    /// An empty one, of a lane that is not listed.
    pub(super) fn new() -> Self {
        Self {
            waiting: Mutex::default(),
            handed_in: AtomicUsize::new(0),
            applied: AtomicUsize::new(0),
        }
    }

    /// Adds names, at least one and at most `CHUNK`, with which a removal
    /// `begins` or which are more of one, and notes whether the lane is listed
    /// with it; `None` where the queue is closed. Copies no more names than a
    /// chunk has, so nobody waits long for the lock.
    #[inline]
    pub(super) fn hand_in(
        &self,
        names: &[SequenceHash],
        begins: bool,
        list: bool,
    ) -> Option<HandedIn> {
        debug_assert!((1..=CHUNK).contains(&names.len()));
        let mut waiting = self.lock();
        if waiting.closed && !mutant(Mutant::RemoveIntoClosed) {
            return None;
        }
        let listed = waiting.listed;
        waiting.listed |= list;
        let (mut rest, mut begun) = (names, usize::from(begins));
        while !rest.is_empty() {
            if waiting.last.names.len() == CHUNK {
                waiting.close_chunk();
            }
            let Chunk { names: last, begun: in_last } = &mut waiting.last;
            let (now, later) = rest.split_at(rest.len().min(CHUNK - last.len()));
            last.extend_from_slice(now);
            *in_last += std::mem::take(&mut begun);
            rest = later;
        }
        // Relaxed: only the holder of the lock writes it, and who has counted
        // these names takes the lock before he looks for them.
        let handed_in = self.handed_in.load(Ordering::Relaxed).wrapping_add(names.len());
        self.handed_in.store(handed_in, Ordering::Relaxed);
        drop(waiting);
        Some(HandedIn { pending: self.of_those_unapplied(handed_in), listed })
    }

    /// Takes out the first names, at most `CHUNK`, into an empty buffer; how
    /// many removals begin among them.
    pub(super) fn take(&self, names: &mut Vec<SequenceHash>) -> usize {
        debug_assert!(names.is_empty());
        let mut waiting = self.lock();
        let Some(full) = waiting.full.pop_front() else {
            slim(names);
            std::mem::swap(&mut waiting.last.names, names);
            return std::mem::take(&mut waiting.last.begun);
        };
        if waiting.full.is_empty() {
            waiting.full.shrink_to(KEPT_FULL);
        }
        drop(waiting);
        *names = full.names;
        full.begun
    }

    /// Says that the lane is off the list, or on it; what was said before. Who
    /// took it off finds all names that were handed in meanwhile.
    pub(super) fn set_listed(&self, listed: bool) -> bool {
        std::mem::replace(&mut self.lock().listed, listed)
    }

    /// Takes in no more names. Whether the lane is listed; it counts as such
    /// from now on.
    pub(super) fn close(&self) -> bool {
        let mut waiting = self.lock();
        waiting.closed = true;
        std::mem::replace(&mut waiting.listed, true)
    }

    /// Whether the worker was removed: who finds its lane on the list drops it.
    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Names that are not applied. Of those whose handing in came before, none
    /// is left out unless the caller sees its removal.
    #[inline]
    pub(super) fn unapplied(&self) -> usize {
        self.of_those_unapplied(self.handed_in.load(Ordering::Relaxed))
    }

    /// Of the first `handed_in` names, those that are not applied.
    #[inline]
    fn of_those_unapplied(&self, handed_in: usize) -> usize {
        // Acquire: pairs with the release in `note_applied`.
        let applied = self.applied.load(Ordering::Acquire);
        // More may be applied by now than were handed in then.
        let unapplied = handed_in.wrapping_sub(applied) as isize;
        usize::try_from(unapplied).unwrap_or(0)
    }

    /// Notes that so many of the oldest names are applied, after their removal
    /// was published. Under the lane's lock.
    #[inline]
    pub(super) fn note_applied(&self, count: usize) {
        let applied = self.applied.load(Ordering::Relaxed).wrapping_add(count);
        // Release: pairs with the acquire of a flush that finds nothing left
        // to do.
        let release =
            if mutant(Mutant::AppliedRelaxed) { Ordering::Relaxed } else { Ordering::Release };
        self.applied.store(applied, release);
    }

    /// Whether no name is in it.
    pub(super) fn is_empty(&self) -> bool {
        let waiting = self.lock();
        waiting.full.is_empty() && waiting.last.names.is_empty()
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock(Rank::Queue)
    }
}

impl Waiting {
    /// Begins a new last chunk: whoever filled one will soon fill the next.
    #[cold]
    fn close_chunk(&mut self) {
        let next = Chunk { names: Vec::with_capacity(CHUNK), begun: 0 };
        let full = std::mem::replace(&mut self.last, next);
        self.full.push_back(full);
    }
}

#[cfg(all(test, not(kvradix_loom)))]
mod tests {
    use super::*;

    fn names(range: std::ops::Range<u64>) -> Vec<SequenceHash> {
        range.map(SequenceHash).collect()
    }

    /// Removals shorter, as long and longer than chunks, taken out in between.
    #[test]
    fn names_come_out_in_their_order_each_removal_counted_where_it_begins() {
        let (queue, mut handed_in, mut taken) = (Queue::new(), 0, Vec::new());
        let (mut removals, mut begun, mut batch) = (0, 0, Vec::new());
        for turn in 0..40 {
            for len in [1, 7, 511, 1, 512, 513, 3, 2_000] {
                let own = names(handed_in..handed_in + len);
                for (part, own) in own.chunks(CHUNK).enumerate() {
                    let found = queue.hand_in(own, part == 0, true).expect("not closed");
                    assert_eq!(found.listed, handed_in > 0);
                    handed_in += own.len() as u64;
                    assert_eq!(found.pending as u64, handed_in - taken.len() as u64);
                }
                removals += 1;
                if turn % 3 > 0 {
                    batch.clear();
                    begun += queue.take(&mut batch);
                    assert!((1..=CHUNK).contains(&batch.len()));
                    queue.note_applied(batch.len());
                    taken.append(&mut batch);
                }
            }
        }
        while !queue.is_empty() {
            batch.clear();
            begun += queue.take(&mut batch);
            queue.note_applied(batch.len());
            taken.append(&mut batch);
        }
        assert_eq!((queue.unapplied(), begun), (0, removals));
        assert!(taken == names(0..handed_in), "another order");
    }

    #[test]
    fn a_closed_queue_takes_nothing_in_and_gives_out_what_it_has() {
        let queue = Queue::new();
        assert!(queue.hand_in(&names(0..3), true, true).is_some());
        assert!(queue.close(), "it was listed");
        assert!(queue.hand_in(&names(3..4), true, true).is_none());
        let mut batch = Vec::new();
        assert_eq!((queue.take(&mut batch), batch), (1, names(0..3)));
        assert!(queue.is_empty());
    }

    /// Fails if an idle queue keeps the buffer of a full chunk.
    #[test]
    fn a_queue_that_was_long_keeps_little_room() {
        let queue = Queue::new();
        for _ in 0..100 {
            queue.hand_in(&names(0..512), true, true);
            queue.hand_in(&names(0..188), false, true);
        }
        let mut batch = Vec::new();
        while !queue.is_empty() {
            batch.clear();
            queue.take(&mut batch);
        }
        let waiting = queue.lock();
        assert!(waiting.last.names.capacity() <= 64 && waiting.full.capacity() <= KEPT_FULL);
    }
}
