//! What is out of the tree but may still be seen by a reader.
//!
//! Retired values are gathered in batches. A full batch is sealed: the
//! collector raises its flag once every pin that was held at that moment has
//! ended. Batches stay in this list, so the collector, which runs on
//! whichever thread pins, frees nothing: it stores one flag. Freeing is the
//! writers' and the pool's work, outside of every lock and pin.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::columns::Columns;
use super::hub::Hub;
use super::lane::slim;
use super::node::Node;
use super::slot_array::SlotBox;
use super::slots::{SlotPool, SlotTable};
use super::view::ViewBox;
use crate::sync::rank::{self, Rank};
use crate::sync::{
    Arc, AtomicBool, Counter, Fault, Guard, Mutant, Mutex, Ordering, fault, mutant, pin, rest,
    retire_limit, yield_now,
};

/// A value that readers may still see.
pub(super) enum Retired {
    View(ViewBox),
    Columns(Columns),
    /// A detached node, and how many bytes go with it.
    Node(#[expect(dead_code, reason = "owned until it is freed")] Arc<Node>, usize),
    Slots(SlotBox),
    Hub(Arc<Hub>),
    /// The table of workers' slots.
    Table(Arc<SlotTable>),
    /// A worker's slot: given out again when no reader can still see the bits
    /// of the worker that had it.
    Slot(u32),
}

impl Retired {
    /// Bytes that are free once it is.
    #[inline]
    fn bytes(&self) -> usize {
        match self {
            Retired::View(view) => view.bytes(),
            Retired::Columns(columns) => columns.bytes(),
            Retired::Node(_, bytes) => *bytes,
            Retired::Slots(slots) => slots.get().bytes(),
            Retired::Hub(hub) => hub.bytes(),
            Retired::Table(table) => table.bytes(),
            Retired::Slot(_) => 0,
        }
    }
}

/// What an event takes out of the tree, to be handed over at its end.
#[derive(Default)]
pub(super) struct Outgoing {
    values: Vec<Retired>,
    /// Their bytes.
    bytes: usize,
    /// How this lane's events have changed the tree's bytes: what they put in
    /// less what they took out.
    pub(super) balance: i64,
}

impl Outgoing {
    /// Takes in a value that no reader will find any more.
    #[inline(always)]
    pub(super) fn push(&mut self, value: Retired) {
        let bytes = value.bytes();
        self.bytes += bytes;
        self.balance -= bytes as i64;
        self.values.push(value);
    }

    /// Notes that the tree has so many bytes more.
    #[inline]
    pub(super) fn made(&mut self, bytes: usize) {
        self.balance += bytes as i64;
    }

    /// Keeps a small buffer only; all was handed over.
    pub(super) fn slim(&mut self) {
        debug_assert!(self.values.is_empty());
        slim(&mut self.values);
    }
}

/// Values of a batch.
const BATCH: usize = if cfg!(kvradix_loom) { 1 } else { 128 };
/// Bytes at which a batch is sealed before it is full.
const BATCH_BYTES: usize = 64 << 10;
/// Bytes above which a writer reclaims before it goes on.
const LIMIT: usize = 2 << 20;
/// How often such a writer lets others run before it goes on all the same, a
/// tenth of a second or so: readers' pins are short, but their threads may be
/// stopped for long.
const PATIENCE: usize = if cfg!(kvradix_loom) { 2 } else { 1_000 };

/// Events after one that waited in vain which do not wait.
const EXCUSED: u64 = 250;

/// Bytes of a batch beside its values: its flag, and a whole bag of the
/// collector's, who has no smaller ones, with its place in a queue.
const SEALED: usize = if cfg!(kvradix_loom) { 0 } else { 2_176 };

/// Rounds that a flush tries.
const FLUSH_ROUNDS: usize = if cfg!(kvradix_loom) { 4 } else { 256 };

/// How long the checker waits for the pins of others.
const CHECK_PATIENCE: Duration = Duration::from_secs(5);

/// The retired values of one index.
pub(super) struct Garbage {
    list: Mutex<List>,
    /// Bytes in the list.
    bytes: Counter,
    /// Events that need not wait: patience has run out lately.
    excused: Counter,
    /// Where slots go back to.
    slots: Arc<SlotPool>,
}

#[derive(Default)]
struct List {
    open: Vec<Retired>,
    open_bytes: usize,
    sealed: VecDeque<Batch>,
    /// How many batches were ever sealed, and how many of them freed.
    sealed_ever: u64,
    freed_ever: u64,
}

struct Batch {
    /// Whether every pin that was held at the sealing has ended.
    ready: Arc<AtomicBool>,
    values: Vec<Retired>,
    bytes: usize,
}

impl Garbage {
    pub(super) fn new(slots: Arc<SlotPool>) -> Self {
        Self { list: Mutex::default(), bytes: Counter::new(0), excused: Counter::new(0), slots }
    }

    /// Bytes of values that wait.
    pub(super) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed) as usize
    }

    /// Takes in what an event retired, all of it unlinked by now. Whether a
    /// batch was sealed, so that `reclaim` may find something soon.
    pub(super) fn take(&self, retired: &mut Outgoing, guard: &Guard) -> bool {
        let Outgoing { values, bytes, .. } = retired;
        if values.is_empty() {
            return false;
        }
        let bytes = std::mem::take(bytes) + values.len() * size_of::<Retired>();
        if mutant(Mutant::FreeAtOnce) {
            values.retain(|value| matches!(value, Retired::Slot(_)));
        }
        if mutant(Mutant::NodeFreedAtOnce) {
            values.retain(|value| !matches!(value, Retired::Node(..)));
        }
        let mut list = self.list.lock(Rank::Retired);
        list.open.append(values);
        list.open_bytes += bytes;
        // Relaxed: a figure; changed under the list's lock alone.
        self.bytes.store((self.bytes() + bytes) as u64, Ordering::Relaxed);
        if list.open.len() < BATCH && list.open_bytes < BATCH_BYTES {
            return false;
        }
        let ready = self.seal(&mut list);
        drop(list);
        guard.raise_after_pins(ready);
        true
    }

    /// Frees the batches that no reader can see any more. The caller holds no
    /// pin and no lock but a lane's at most.
    pub(super) fn reclaim(&self) {
        loop {
            let mut list = self.list.lock(Rank::Retired);
            // Acquire: pairs with the release that raised the flag; every
            // reader's last look happened before.
            let acquire =
                if mutant(Mutant::ReadyRelaxed) { Ordering::Relaxed } else { Ordering::Acquire };
            let ready = |batch: &Batch| batch.ready.load(acquire);
            if !list.sealed.front().is_some_and(ready) || mutant(Mutant::NoReclaim) {
                return;
            }
            let Some(batch) = list.sealed.pop_front() else { return };
            list.freed_ever += 1;
            self.bytes.store((self.bytes() - batch.bytes) as u64, Ordering::Relaxed);
            drop(list);
            for value in &batch.values {
                if let Retired::Slot(slot) = value {
                    self.give_back(*slot);
                }
            }
            fault(Fault::Freeing);
            drop(batch);
        }
    }

    /// Lets `slot` be given out again.
    #[cold]
    pub(super) fn give_back(&self, slot: u32) {
        self.slots.give_back(slot);
    }

    /// Seals what is open and frees what can be freed now. The caller holds
    /// no lock and no pin.
    pub(super) fn collect(&self) {
        self.collect_if(|list| !list.open.is_empty());
    }

    /// The same; what is open is sealed if `seal` says so.
    fn collect_if(&self, seal: impl FnOnce(&List) -> bool) {
        let guard = pin();
        let mut list = self.list.lock(Rank::Retired);
        let ready = seal(&list).then(|| self.seal(&mut list));
        drop(list);
        match ready {
            Some(ready) => guard.raise_after_pins(ready),
            None => guard.advance(),
        }
        drop(guard);
        self.reclaim();
    }

    /// Seals what is open and frees all that was there when it was called, if
    /// no other thread keeps a pin for long. The caller holds no lock and no
    /// pin.
    pub(super) fn collect_all(&self) {
        self.collect();
        let goal = self.list.lock(Rank::Retired).sealed_ever;
        // An epoch ends with each round, and two have to; a thread that was
        // stopped while it held a pin needs its turn first.
        for round in 0..FLUSH_ROUNDS {
            if self.list.lock(Rank::Retired).freed_ever >= goal {
                return;
            }
            pin().advance();
            self.reclaim();
            if round > 3 {
                yield_now();
            }
        }
    }

    /// Panics where the figures are not those of the values, or more is kept
    /// than the limit allows when nothing is under way. The caller holds no
    /// lock and no pin, and no other call runs.
    pub(super) fn check(&self) {
        // Other indexes' pins hold up this one's garbage, but not for long.
        let patient_until = Instant::now() + CHECK_PATIENCE;
        while cfg!(not(kvradix_loom)) {
            self.collect_all();
            if self.bytes() <= retire_limit(LIMIT) || Instant::now() > patient_until {
                break;
            }
            yield_now();
        }
        let list = self.list.lock(Rank::Retired);
        let bytes = |values: &[Retired]| {
            values.iter().map(|value| value.bytes() + size_of::<Retired>()).sum::<usize>()
        };
        assert_eq!(list.open_bytes, bytes(&list.open), "open bytes counted and seen");
        let sealed = list.sealed.iter().map(|batch| bytes(&batch.values) + SEALED).sum::<usize>();
        assert_eq!(self.bytes(), list.open_bytes + sealed, "retired bytes counted and seen");
        let batches = list.sealed_ever - list.freed_ever;
        assert_eq!(batches, list.sealed.len() as u64, "batches counted and seen");
        assert!(
            list.open.len() < BATCH.max(2) && list.open_bytes < BATCH_BYTES,
            "a full batch is open"
        );
        let most = retire_limit(LIMIT) + BATCH_BYTES;
        let kept = self.bytes();
        assert!(cfg!(kvradix_loom) || kept <= most, "{kept} bytes retired, with nothing under way");
    }

    /// Before an event: above the limit, reclaims and lets readers run until
    /// it is below again. The caller holds no lock and no pin.
    #[inline]
    pub(super) fn relieve(&self) {
        if self.bytes() > retire_limit(LIMIT) {
            self.wait_below();
        }
    }

    #[cold]
    fn wait_below(&self) {
        debug_assert!(rank::holds_none());
        let excused = self.excused.load(Ordering::Relaxed);
        if excused > 0 {
            self.excused.store(excused - 1, Ordering::Relaxed);
            return self.collect_if(List::has_none_sealed);
        }
        for round in 0..PATIENCE {
            // What is sealed is nearly all there is, and one more batch each
            // time would take more than is in it while a pin holds up all.
            self.collect_if(List::has_none_sealed);
            if self.bytes() <= retire_limit(LIMIT) {
                return;
            }
            rest(round);
        }
        self.excused.store(EXCUSED, Ordering::Relaxed);
    }
}

impl Garbage {
    /// Closes the open batch; its flag. The caller has the list's lock.
    fn seal(&self, list: &mut List) -> Arc<AtomicBool> {
        let ready = Arc::new(AtomicBool::new(false));
        let mut values = std::mem::replace(&mut list.open, Vec::with_capacity(BATCH));
        if values.capacity() > values.len() + values.len() / 8 {
            values.shrink_to_fit();
        }
        let bytes = std::mem::take(&mut list.open_bytes) + SEALED;
        self.bytes.store((self.bytes() + SEALED) as u64, Ordering::Relaxed);
        list.sealed_ever += 1;
        list.sealed.push_back(Batch { ready: ready.clone(), values, bytes });
        ready
    }
}

impl List {
    /// Whether what is open is all there is.
    fn has_none_sealed(&self) -> bool {
        self.sealed.is_empty() && !self.open.is_empty()
    }
}

#[cfg(test)]
impl Garbage {
    /// Makes the figure a wrong one.
    pub(super) fn miscount(&self) {
        self.bytes.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Block, Index, LocalHash, SequenceHash, WorkerId};

    /// Fails if who waits for a pin to end seals what is open meanwhile: then a
    /// batch, which takes two kilobytes, comes of each event.
    #[test]
    fn while_a_pin_stays_no_batch_of_few_values_is_made() {
        let index = Index::builder().drain_threads(0).build();
        let garbage = &index.shared().tree.garbage;
        let (pinned, done) = (AtomicBool::new(false), AtomicBool::new(false));
        let wait_for = |flag: &AtomicBool| {
            while !flag.load(Ordering::Acquire) {
                rest(usize::MAX);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _pin = pin();
                pinned.store(true, Ordering::Release);
                wait_for(&done);
            });
            wait_for(&pinned);
            let worker = WorkerId::new(1, 0);
            let mut after = 0;
            for n in 0.. {
                let (sequence, local) = (SequenceHash(n), LocalHash(n));
                index.store(worker, None, &[Block { sequence, local }]).unwrap();
                index.remove(worker, &[sequence]);
                after += u32::from(garbage.bytes() > LIMIT);
                if after == 600 {
                    break;
                }
            }
            let batches =
                |batch: &Batch| (batch.values.len(), batch.values.capacity(), batch.bytes);
            let sealed: Vec<_> =
                garbage.list.lock(Rank::Retired).sealed.iter().map(batches).collect();
            done.store(true, Ordering::Release);
            assert!(!sealed.is_empty());
            for (values, capacity, bytes) in sealed {
                assert!(values >= BATCH || bytes >= BATCH_BYTES, "a batch of {values} values");
                assert!(capacity <= values * 9 / 8, "room for {capacity} values, {values} there");
            }
        });
        // Other tests' pins hold it up too, but not for long.
        let patient_until = Instant::now() + CHECK_PATIENCE;
        while garbage.bytes() > 0 && Instant::now() < patient_until {
            index.flush();
        }
        assert_eq!(garbage.bytes(), 0);
    }
}
