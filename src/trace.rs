//! Spans and warnings for `tracing`; nothing where the feature is off.
//!
//! Spans are opened before any lock is taken, and what is told of a refused
//! store is told when all are released: a subscriber may do as it likes, also
//! call the index.

#[cfg(not(feature = "tracing"))]
pub(crate) use off::*;
#[cfg(feature = "tracing")]
pub(crate) use on::*;

#[cfg(feature = "tracing")]
mod on {
    use tracing::span::EnteredSpan;
    use tracing::{Level, debug_span, enabled, trace_span, warn};

    use crate::sync::{Clock, Counter, Ordering};
    use crate::{StoreError, StoreErrorKind, WorkerId};

    /// Every span and event has this target.
    const TARGET: &str = "kvradix";

    /// Nanoseconds between two warnings of one kind.
    const INTERVAL: u64 = 1_000_000_000;

    /// A span, entered until it is dropped.
    pub(crate) struct Span {
        /// Entered, and left, by being here.
        _entered: EnteredSpan,
    }

    impl Span {
        fn of(span: tracing::Span) -> Self {
            Self { _entered: span.entered() }
        }

        /// A flush of all workers.
        pub(crate) fn flush() -> Self {
            Self::of(debug_span!(target: TARGET, "flush"))
        }

        /// A drain of a worker's queue, in which so many names wait.
        pub(crate) fn drain(worker: WorkerId, pending: impl FnOnce() -> usize) -> Self {
            Self::of(trace_span!(target: TARGET, "drain", %worker, pending = pending()))
        }

        pub(crate) fn export(worker: WorkerId) -> Self {
            Self::of(debug_span!(target: TARGET, "export", %worker))
        }

        pub(crate) fn remove_worker(worker: WorkerId) -> Self {
            Self::of(debug_span!(target: TARGET, "remove_worker", %worker))
        }
    }

    /// Tells of refused stores, of each kind at most once a second.
    #[derive(Default)]
    pub(crate) struct Warnings {
        /// By the number of the kind.
        kinds: [Kind; StoreErrorKind::ALL.len()],
    }

    #[derive(Default)]
    #[repr(align(64))]
    struct Kind {
        /// From when on the next may be told.
        next: Counter,
        /// How many there had been when the last was told.
        seen: Counter,
    }

    impl Warnings {
        /// A store of `blocks` blocks was refused; with it so many of its
        /// kind, `count`, were. In a storm of them all but one a second read
        /// the clock and one word, and write nothing.
        #[cold]
        pub(crate) fn refused(&self, error: &StoreError, blocks: usize, count: u64, clock: &Clock) {
            let Kind { next, seen } = &self.kinds[error.kind() as usize];
            let (now, due) = (clock.now(), next.load(Ordering::Relaxed));
            // The subscriber comes last: it may have to be asked each time.
            if now < due || !enabled!(target: TARGET, Level::WARN) {
                return;
            }
            let relaxed = Ordering::Relaxed;
            if next.compare_exchange(due, now + INTERVAL, relaxed, relaxed).is_err() {
                return;
            }
            let suppressed = count.saturating_sub(seen.fetch_max(count, relaxed) + 1);
            let (reason, worker) = (error.kind().name(), error.worker());
            warn!(target: TARGET, reason, %worker, blocks, suppressed, "store refused: {error}");
        }
    }
}

#[cfg(not(feature = "tracing"))]
mod off {
    use crate::sync::Clock;
    use crate::{StoreError, WorkerId};

    pub(crate) struct Span;

    impl Span {
        #[inline(always)]
        pub(crate) fn flush() -> Self {
            Self
        }

        #[inline(always)]
        pub(crate) fn drain(_: WorkerId, _: impl FnOnce() -> usize) -> Self {
            Self
        }

        #[inline(always)]
        pub(crate) fn export(_: WorkerId) -> Self {
            Self
        }

        #[inline(always)]
        pub(crate) fn remove_worker(_: WorkerId) -> Self {
            Self
        }
    }

    #[derive(Default)]
    pub(crate) struct Warnings {}

    impl Warnings {
        #[inline(always)]
        pub(crate) fn refused(&self, _: &StoreError, _: usize, _: u64, _: &Clock) {}
    }
}
