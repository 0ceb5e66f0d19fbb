//! Runs a stream on a subject and the reference side by side and compares
//! every answer. A stream on which they differ is cut down before it is shown.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use kvradix::reference::ReferenceIndex;
use kvradix::{Event, Index, LocalHash, Matches, SequenceHash, StoreError, WorkerId};

use super::answer;
use super::stream::{Mode, Op, stream};
use super::subject::Subject;

/// How an index is set up.
#[derive(Clone, Copy)]
pub struct Setup {
    pub name: &'static str,
    pub build: fn() -> Index,
    /// Whether a removal is visible when its call returns.
    pub prompt: bool,
}

/// Every set-up a stream is run under.
pub const SETUPS: [Setup; 7] = [
    Setup { name: "default", build: Index::new, prompt: false },
    Setup {
        name: "callers drain",
        build: || Index::builder().drain_threads(0).build(),
        prompt: true,
    },
    Setup {
        name: "small nodes, callers drain",
        build: || Index::builder().drain_threads(0).run_blocks(4).hub_threshold(2).build(),
        prompt: true,
    },
    Setup {
        name: "small nodes, drained one by one",
        build: || {
            let small = Index::builder().run_blocks(4).hub_threshold(2);
            small.drain_threads(1).drain_threshold(1).build()
        },
        prompt: false,
    },
    Setup {
        name: "nine children listed, callers drain",
        build: || Index::builder().drain_threads(0).hub_threshold(9).build(),
        prompt: true,
    },
    Setup {
        name: "runs of seven, twelve children listed, one thread",
        build: || {
            let small = Index::builder().run_blocks(7).hub_threshold(12);
            small.drain_threads(1).drain_threshold(2).build()
        },
        prompt: false,
    },
    Setup {
        name: "two threads, short delay",
        build: || {
            let small = Index::builder().run_blocks(16).max_pending(24);
            small.drain_threads(2).removal_delay(Duration::from_micros(20)).build()
        },
        prompt: false,
    },
];

/// Runs `test` under every set-up; which one it was is printed when it fails.
pub fn under_every_setup(test: impl Fn(&Index)) {
    for setup in &SETUPS {
        println!("set-up: {}", setup.name);
        let index = (setup.build)();
        test(&index);
        index.flush();
        index.check();
    }
}

/// Questions per mode, over all set-ups.
pub fn queries_per_mode() -> usize {
    let given = std::env::var("KVRADIX_TEST_QUERIES").ok();
    given.map_or(300 * SETUPS.len(), |given| {
        given.parse().expect("KVRADIX_TEST_QUERIES is a number")
    })
}

/// Holds the index to the reference on streams of this mode, under every
/// set-up.
pub fn hold_to_reference(name: &str, mode: Mode) {
    let mut seed = mode_seed(name);
    let mut left = queries_per_mode();
    // Each stream begins with nothing and ends so; the more there is to ask,
    // the longer they are, too.
    let stream_length = (left / 25).max(300);
    while left > 0 {
        for setup in &SETUPS {
            let queries = left.min(stream_length);
            left -= queries;
            seed += 1;
            if queries > 0 {
                let what = format!("mode {name}, set-up \"{}\", seed {seed}", setup.name);
                let ops = stream(mode, seed, queries);
                hold(&what, &ops, mode.names_alike(), setup.prompt, setup.build);
            }
        }
    }
}

/// Different modes get different streams; `KVRADIX_TEST_SEED` shifts them all.
fn mode_seed(name: &str) -> u64 {
    let shift = std::env::var("KVRADIX_TEST_SEED").ok();
    let shift: u64 = shift.map_or(0, |shift| shift.parse().expect("KVRADIX_TEST_SEED"));
    let letters = name.bytes().fold(0, |seed: u64, byte| (seed * 31 + u64::from(byte)) % 100_000);
    letters * 1_000_000 + shift * 1000
}

/// What a stream begins with.
pub struct Start<S> {
    pub subject: fn() -> S,
    pub reference: fn() -> ReferenceIndex,
    /// What an export is loaded into.
    pub empty: fn() -> S,
}

/// Runs `ops`; panics with the smallest part of them that still goes wrong.
pub fn hold<S: Subject>(what: &str, ops: &[Op], alike: bool, prompt: bool, build: impl Fn() -> S) {
    hold_run(what, ops, |ops| run(ops, alike, prompt, &build));
}

/// The same, from something else than nothing.
pub fn hold_from<S: Subject>(start: &Start<S>, what: &str, ops: &[Op], alike: bool, prompt: bool) {
    hold_run(what, ops, |ops| {
        let (subject, reference) = ((start.subject)(), (start.reference)());
        Run::new(subject, reference, &start.empty, alike, prompt).all(ops)
    });
}

/// Runs `ops` by `run`; panics with the smallest part of them that still goes
/// wrong.
pub fn hold_run(what: &str, ops: &[Op], run: impl Fn(&[Op]) -> Result<(), String>) {
    let fails = |ops: &[Op]| failure(|| run(ops));
    let Some(first) = fails(ops) else { return };
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let smallest = shrink(ops.to_vec(), |ops| fails(ops).is_some());
    let last = fails(&smallest);
    std::panic::set_hook(hook);
    panic!("{what}: {first}\nthe smallest stream found ({last:?}):\n{smallest:#x?}");
}

/// Runs `ops` on both sides; what they differ in first. A panic goes through.
///
/// `alike`: all workers have one name for a place, the same one; `prompt`: a
/// removal is visible when its call returns.
pub fn run<S: Subject>(
    ops: &[Op],
    alike: bool,
    prompt: bool,
    build: impl Fn() -> S,
) -> Result<(), String> {
    Run::new(build(), ReferenceIndex::new(), &build, alike, prompt).all(ops)
}

/// The same, from something else than nothing; an export is loaded into what
/// `empty` makes.
pub fn run_from<S: Subject>(
    ops: &[Op],
    alike: bool,
    prompt: bool,
    (subject, reference): (S, ReferenceIndex),
    empty: impl Fn() -> S,
) -> Result<(), String> {
    Run::new(subject, reference, &empty, alike, prompt).all(ops)
}

/// What goes wrong, a panic of the subject included.
fn failure(run: impl FnOnce() -> Result<(), String>) -> Option<String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.err(),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
            Some(format!("panicked: {}", text.unwrap_or_default()))
        }
    }
}

/// Leaves out steps, then parts of steps, while it still fails. What it finds
/// is small, not the smallest, and it stops after half a minute.
fn shrink(mut ops: Vec<Op>, fails: impl Fn(&[Op]) -> bool) -> Vec<Op> {
    let start = Instant::now();
    let mut piece = ops.len() / 2;
    while piece > 0 && start.elapsed() < Duration::from_secs(20) {
        let mut from = 0;
        let before = ops.len();
        while from < ops.len() {
            let mut fewer = ops.clone();
            fewer.drain(from..(from + piece).min(ops.len()));
            if fails(&fewer) {
                ops = fewer;
            } else {
                from += piece;
            }
        }
        if piece > 1 {
            piece /= 2;
        } else if ops.len() == before {
            break;
        }
    }
    for number in 0..ops.len() {
        while start.elapsed() < Duration::from_secs(30) {
            let smaller = without_one(&ops[number]).into_iter().find_map(|op| {
                let mut fewer = ops.clone();
                fewer[number] = op;
                fails(&fewer).then_some(fewer)
            });
            match smaller {
                Some(fewer) => ops = fewer,
                None => break,
            }
        }
    }
    ops
}

/// The step with one of its parts left out.
fn without_one(op: &Op) -> Vec<Op> {
    fn each<T: Clone>(items: &[T], make: impl Fn(Vec<T>) -> Op) -> Vec<Op> {
        let without = |number| {
            let mut items = items.to_vec();
            items.remove(number);
            make(items)
        };
        (0..items.len()).rev().map(without).collect()
    }
    match op.clone() {
        Op::Store { worker, parent, blocks } => {
            each(&blocks, |blocks| Op::Store { worker, parent, blocks })
        }
        Op::Remove { worker, names } => each(&names, |names| Op::Remove { worker, names }),
        Op::Apply { events } => each(&events, |events| Op::Apply { events }),
        Op::Ask { query } => each(&query, |query| Op::Ask { query }),
        Op::Census { names } => each(&names, |names| Op::Census { names }),
        Op::Export { worker, queries, names } => {
            let fewer =
                each(&queries, |queries| Op::Export { worker, queries, names: names.clone() });
            let other =
                each(&names, |names| Op::Export { worker, queries: queries.clone(), names });
            fewer.into_iter().chain(other).collect()
        }
        _ => Vec::new(),
    }
}

/// `Err` with both sides if they differ.
fn same<T: PartialEq + Debug>(what: &str, got: T, expected: T) -> Result<(), String> {
    if got == expected { Ok(()) } else { Err(format!("{what}: got {got:x?}, not {expected:x?}")) }
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

struct Run<'a, S> {
    subject: S,
    reference: ReferenceIndex,
    empty: &'a dyn Fn() -> S,
    /// All workers name alike: the lookup has exactly the held places.
    alike: bool,
    /// Removals are visible at once.
    prompt: bool,
    /// Nothing was removed since the last flush.
    flushed: bool,
    matches: Matches,
}

impl<'a, S: Subject> Run<'a, S> {
    fn new(
        subject: S,
        reference: ReferenceIndex,
        empty: &'a dyn Fn() -> S,
        alike: bool,
        prompt: bool,
    ) -> Self {
        Run { subject, reference, empty, alike, prompt, flushed: true, matches: Matches::new() }
    }

    fn all(mut self, ops: &[Op]) -> Result<(), String> {
        for (number, op) in ops.iter().enumerate() {
            self.step(op).map_err(|what| format!("step {number}: {what}"))?;
        }
        Ok(())
    }

    fn step(&mut self, op: &Op) -> Result<(), String> {
        match op {
            Op::Store { worker, parent, blocks } => {
                let got = self.subject.store(*worker, *parent, blocks);
                let expected = self.reference.store(*worker, *parent, blocks);
                same_result(got, expected)?;
            }
            Op::Remove { worker, names } => {
                self.subject.remove(*worker, names);
                self.reference.remove(*worker, names);
                self.flushed = self.prompt;
            }
            Op::Clear { worker } => {
                self.subject.clear(*worker);
                self.reference.clear(*worker);
            }
            Op::Leave { worker } => {
                self.subject.remove_worker(*worker);
                self.reference.remove_worker(*worker);
            }
            Op::LeaveRanks { id } => {
                self.subject.remove_ranks(*id);
                self.reference.remove_ranks(*id);
            }
            Op::Apply { events } => self.apply(events)?,
            Op::Ask { query } => self.ask(query)?,
            Op::Flush => {
                self.subject.flush();
                self.flushed = true;
            }
            Op::FlushWorker { worker } => {
                self.subject.flush_worker(*worker);
            }
            Op::Census { names } => self.census(names)?,
            Op::Export { worker, queries, names } => self.export(*worker, queries, names)?,
        }
        Ok(())
    }

    fn apply(&mut self, events: &[Event]) -> Result<(), String> {
        self.flushed = self.prompt;
        if let [event] = events {
            return same_result(self.subject.apply(event), self.reference.apply(event));
        }
        let got = self.subject.apply_all(events);
        let expected = self.reference.apply_all(events);
        same("events refused", got.len(), expected.len())?;
        for (got, expected) in got.iter().zip(&expected) {
            same("event refused", got.index, expected.index)?;
            same_result(Err(got.error), Err(expected.error))?;
        }
        Ok(())
    }

    fn ask(&mut self, query: &[LocalHash]) -> Result<(), String> {
        self.subject.matches_into(query, &mut self.matches);
        let expected = self.reference.matches(query);
        if !self.flushed {
            // What is queued may still be seen; nothing may be missing.
            for found in &expected {
                let got = self.matches.depth_of(found.worker);
                ensure(got >= found.depth, || {
                    format!("{} holds {}, seen {got} of {query:x?}", found.worker, found.depth)
                })?;
            }
            return Ok(());
        }
        same(&format!("answer to {query:x?}"), answer(&self.matches), answer(&expected))?;
        same("best", self.matches.best(), expected.best())?;
        same("length", (self.matches.len(), self.matches.is_empty()), {
            (expected.len(), expected.is_empty())
        })?;
        let depths: Vec<_> = self.matches.iter().map(|found| found.depth).collect();
        ensure(depths.is_sorted_by(|a, b| a >= b), || format!("not deepest first: {depths:?}"))
    }

    fn census(&mut self, names: &[(WorkerId, SequenceHash)]) -> Result<(), String> {
        for &(worker, name) in names {
            let what = format!("{worker} has {name}");
            same(&what, self.subject.has(worker, name), self.reference.has(worker, name))?;
        }
        for worker in self.reference.workers() {
            let what = format!("names of {worker}");
            same(&what, self.subject.held(worker), self.reference.held(worker))?;
        }
        self.subject.flush();
        self.flushed = true;
        same("workers", self.subject.workers(), self.reference.workers())?;
        let (got, expected) = (self.subject.stats(), self.reference.stats());
        same("workers counted", got.workers, expected.workers)?;
        same("tree blocks", got.tree_blocks, expected.tree_blocks)?;
        same("held blocks", got.held_blocks, expected.held_blocks)?;
        same("refused blocks", got.refused_blocks, expected.refused_blocks)?;
        same("blocks refused for a limit", got.limited_blocks, expected.limited_blocks)?;
        same("unknown removals", got.unknown_removals, expected.unknown_removals)?;
        if self.subject.counts_events() {
            same("events", got.events, expected.events)?;
        }
        same("pending removals", (got.pending_removals, got.pending_age_ns), (0, 0))?;
        if self.subject.has_lookup() {
            let places = self.reference.held_places();
            ensure(got.lookup_entries <= places, || {
                format!("{} lookup entries for {places} held places", got.lookup_entries)
            })?;
            if self.alike {
                same("lookup entries", got.lookup_entries, places)?;
            }
            ensure((got.nodes == 0) == (got.tree_blocks == 0), || format!("{got:?}"))?;
            ensure(got.nodes <= got.tree_blocks, || format!("{got:?}"))?;
        }
        self.subject.check();
        Ok(())
    }

    /// The worker's export makes an empty index answer and name as the
    /// worker's own part of this one does, and nothing more.
    fn export(
        &mut self,
        worker: WorkerId,
        queries: &[Vec<LocalHash>],
        names: &[SequenceHash],
    ) -> Result<(), String> {
        let events = self.subject.export(worker);
        let of_another = events.iter().find(|event| event.worker() != worker);
        same("event of another worker", of_another, None)?;
        let stores = |event: &Event| matches!(event, Event::Stored { .. });
        let after = events.iter().skip_while(|event| stores(event)).count();
        ensure(after <= 1, || format!("{after} events after the stores"))?;

        let mut loaded = (self.empty)();
        same("refused of an export", loaded.apply_all(&events).len(), 0)?;
        loaded.flush();
        // Literally: the same events of this worker alone.
        let mut alone = ReferenceIndex::new();
        same(
            "refused of the reference's",
            alone.apply_all(&self.reference.export(worker)),
            vec![],
        )?;

        same("names loaded", loaded.held(worker), self.reference.held(worker))?;
        for &name in names {
            let what = format!("{name} loaded");
            same(&what, loaded.has(worker, name), self.reference.has(worker, name))?;
            same(&what, alone.has(worker, name), self.reference.has(worker, name))?;
        }
        for query in queries {
            loaded.matches_into(query, &mut self.matches);
            let expected = self.reference.matches(query).depth_of(worker);
            let what = format!("loaded answer to {query:x?}");
            same(&what, self.matches.depth_of(worker), expected)?;
            same(&what, alone.matches(query).depth_of(worker), expected)?;
        }
        let (got, expected) = (loaded.stats(), alone.stats());
        same("tree blocks loaded", got.tree_blocks, expected.tree_blocks)?;
        same("held blocks loaded", got.held_blocks, expected.held_blocks)?;
        same("unknown removals of an export", got.unknown_removals, 0)?;
        loaded.check();
        Ok(())
    }
}

/// Of several repeated names, which one is told is not in the contract.
fn same_result(
    got: Result<(), StoreError>,
    expected: Result<(), StoreError>,
) -> Result<(), String> {
    use StoreError::RepeatedHash;
    match (got, expected) {
        (Err(RepeatedHash { worker, .. }), Err(RepeatedHash { worker: expected, .. })) => {
            same("worker refused", worker, expected)
        }
        (got, expected) => same("store", got, expected),
    }
}
