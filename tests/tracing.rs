//! What the index tells a subscriber.
#![cfg(feature = "tracing")]

mod common;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use common::{below, block, blocks, names, worker};
use kvradix::{Index, SequenceHash, WorkerId};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// A span or an event as it was told.
#[derive(Clone, Debug)]
struct Told {
    /// The span's, or `event`.
    name: &'static str,
    level: Level,
    /// By name, as they print.
    fields: Vec<(&'static str, String)>,
}

impl Told {
    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|field| field.0 == name).map(|field| &*field.1)
    }
}

impl Visit for Told {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.fields.push((field.name(), format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.push((field.name(), value.to_owned()));
    }
}

/// Keeps all that it is told, of any thread: drains run on the index's own.
struct Capture;

static TOLD: Mutex<Vec<Told>> = Mutex::new(Vec::new());
/// Calls of the subscriber.
static CALLS: AtomicU64 = AtomicU64::new(0);
/// Spans entered and not left.
static INSIDE: AtomicU64 = AtomicU64::new(0);
/// An index that the subscriber calls in the midst of it all.
static CALLED: LazyLock<Index> = LazyLock::new(Index::new);

fn keep(metadata: &'static Metadata<'static>, record: impl FnOnce(&mut Told)) {
    CALLS.fetch_add(1, Ordering::SeqCst);
    let name = if metadata.is_span() { metadata.name() } else { "event" };
    let mut told = Told { name, level: *metadata.level(), fields: Vec::new() };
    record(&mut told);
    TOLD.lock().unwrap().push(told);
    CALLED.stats();
}

impl Subscriber for Capture {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        CALLS.fetch_add(1, Ordering::SeqCst);
        metadata.target() == "kvradix"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        keep(span.metadata(), |told| span.record(told));
        Id::from_u64(1)
    }

    fn event(&self, event: &Event<'_>) {
        keep(event.metadata(), |told| event.record(told));
    }

    fn enter(&self, _: &Id) {
        INSIDE.fetch_add(1, Ordering::SeqCst);
    }

    fn exit(&self, _: &Id) {
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}
}

/// Listens from now on; one test at a time.
fn listen() -> MutexGuard<'static, ()> {
    static LISTENING: LazyLock<()> =
        LazyLock::new(|| tracing::subscriber::set_global_default(Capture).expect("the first"));
    static ALONE: Mutex<()> = Mutex::new(());
    LazyLock::force(&LISTENING);
    ALONE.lock().unwrap_or_else(|panicked| panicked.into_inner())
}

/// What was told of this worker.
fn told_of(who: WorkerId) -> Vec<Told> {
    let name = who.to_string();
    let told = TOLD.lock().unwrap();
    told.iter().filter(|told| told.field("worker") == Some(&name)).cloned().collect()
}

fn spans_of(who: WorkerId) -> Vec<(&'static str, Level)> {
    let spans = told_of(who).into_iter().filter(|told| told.name != "event");
    spans.map(|told| (told.name, told.level)).collect()
}

/// A store that is refused.
fn refuse(index: &Index, who: WorkerId, parent: u64) {
    index.store(who, below(parent), &[block(1, 1), block(2, 2)]).unwrap_err();
}

/// How many refused stores the warnings speak of, and the warnings.
fn warned_of(who: WorkerId, reason: &str) -> (u64, Vec<Told>) {
    let warnings: Vec<Told> = told_of(who)
        .into_iter()
        .filter(|told| told.name == "event" && told.field("reason") == Some(reason))
        .collect();
    let count = |told: &Told| {
        assert_eq!(told.level, Level::WARN);
        1 + told.field("suppressed").expect("a count").parse::<u64>().expect("a number")
    };
    (warnings.iter().map(count).sum(), warnings)
}

#[test]
fn what_takes_long_is_a_span() {
    let _alone = listen();
    let who = worker(100);
    let index = Index::builder().drain_threads(1).removal_delay(Duration::from_secs(3_600)).build();
    index.store(who, None, &blocks((0..100).map(|i| (i, i)))).unwrap();
    assert_eq!(spans_of(who), []);
    index.remove(who, &names([99]));
    index.flush_worker(who);
    let drain = ("drain", Level::TRACE);
    assert_eq!(spans_of(who), [drain]);
    assert_eq!(told_of(who)[0].field("pending"), Some("1"));
    index.export(who);
    let export = ("export", Level::DEBUG);
    assert_eq!(spans_of(who), [drain, export]);
    index.remove_worker(who);
    assert_eq!(spans_of(who), [drain, export, ("remove_worker", Level::DEBUG)]);

    let flushes = || TOLD.lock().unwrap().iter().filter(|told| told.name == "flush").count();
    let before = flushes();
    index.flush();
    assert!(flushes() > before);
}

#[test]
fn a_drain_on_a_thread_of_the_index_is_a_span() {
    let _alone = listen();
    let who = worker(200);
    let index = Index::builder().drain_threads(1).removal_delay(Duration::from_micros(100)).build();
    index.store(who, None, &blocks((0..9).map(|i| (i, i)))).unwrap();
    index.remove(who, &names([7, 8]));
    let deadline = Instant::now() + Duration::from_secs(20);
    while index.stats().pending_removals > 0 {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(spans_of(who), [("drain", Level::TRACE)]);
    drop(index);
    while INSIDE.load(Ordering::SeqCst) > 0 {
        assert!(Instant::now() < deadline, "a span is never left");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_refused_store_is_told_with_its_particulars() {
    let _alone = listen();
    let (index, who) = (Index::new(), worker(300));
    refuse(&index, who, 0xab);
    index.store(who, None, &blocks([(7, 1), (7, 2), (8, 3)])).unwrap_err();
    // Each reason has a limit of its own.
    let (_, warnings) = warned_of(who, "parent_not_found");
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert_eq!((warning.field("blocks"), warning.field("suppressed")), (Some("2"), Some("0")));
    let parent = SequenceHash(0xab).to_string();
    assert!(warning.field("message").is_some_and(|text| text.contains(&parent)), "{warning:?}");
    let (_, warnings) = warned_of(who, "repeated_hash");
    let [warning] = &warnings[..] else { panic!("{warnings:?}") };
    assert_eq!(warning.field("blocks"), Some("3"));
}

/// Fails if the limit lets all through, or counts none.
#[test]
fn a_storm_of_refused_stores_is_told_once_a_second_with_its_size() {
    let _alone = listen();
    let (index, who) = (Index::new(), worker(400));
    let stores = 20_000;
    let (begun, calls) = (Instant::now(), CALLS.load(Ordering::SeqCst));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..stores / 4).for_each(|n| refuse(&index, who, 10 + n)));
        }
    });
    let most = 1 + begun.elapsed().as_secs() as usize;
    // The subscriber has no part in those that are not told.
    let calls = CALLS.load(Ordering::SeqCst) - calls;
    assert!(calls <= 10 * most as u64, "{calls} calls of the subscriber");
    let (count, warnings) = warned_of(who, "parent_not_found");
    assert!(!warnings.is_empty() && warnings.len() <= most, "{} warnings", warnings.len());
    assert!(count < stores, "the storm's end is not told yet");
    assert_eq!(index.stats().events.refused.parent_not_found.events, stores);

    // The next one that may be told says how many were not.
    thread::sleep(Duration::from_millis(1_050));
    refuse(&index, who, 5);
    let (count, told) = warned_of(who, "parent_not_found");
    assert_eq!(count, stores + 1);
    assert_eq!(told.len(), warnings.len() + 1);
    let gone = told[told.len() - 1].field("suppressed").map(str::parse::<u64>);
    assert!(gone.is_some_and(|gone| gone.is_ok_and(|gone| gone > 0)), "{told:?}");

    // Another index has limits of its own.
    refuse(&Index::new(), worker(401), 5);
    assert_eq!(warned_of(worker(401), "parent_not_found").0, 1);
}
