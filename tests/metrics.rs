//! The metrics as a scraper reads them.
#![cfg(feature = "metrics")]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{below, blocks, names, query, worker};
use kvradix::metrics::prometheus_client::encoding::text::encode;
use kvradix::metrics::prometheus_client::registry::Registry;
use kvradix::metrics::{Metrics, NameTaken};
use kvradix::{Block, Index, LocalHash, Matches};

/// What a page says: each sample by its name and labels as written.
struct Page(BTreeMap<String, f64>);

impl Page {
    /// Reads a page as strictly as OpenMetrics asks: families come one after
    /// the other, each described once, no sample twice, an end.
    fn of(registry: &Registry) -> Self {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        let body = text.strip_suffix("# EOF\n").expect("an end");
        let (mut samples, mut types) = (BTreeMap::new(), BTreeMap::new());
        let (mut family, mut kind) = ("", "");
        for line in body.lines() {
            if let Some(described) = line.strip_prefix("# ") {
                let mut words = described.splitn(3, ' ');
                let [what, name, rest] = [(); 3].map(|()| words.next().expect("three words"));
                match what {
                    "HELP" => assert!(rest.ends_with('.'), "{line}"),
                    "TYPE" => {
                        assert!(types.insert(name, rest).is_none(), "described twice: {line}");
                        (family, kind) = (name, rest);
                    }
                    "UNIT" => assert!(name == family && name.ends_with(rest), "{line}"),
                    _ => panic!("{line}"),
                }
                continue;
            }
            let (sample, value) = line.rsplit_once(' ').expect("a value");
            let name = sample.split('{').next().expect("a name");
            let suffix = name.strip_prefix(family).expect("a sample of the family before");
            let suffixes: &[&str] = match kind {
                "counter" => &["_total"],
                "gauge" => &[""],
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => panic!("{kind}"),
            };
            assert!(suffixes.contains(&suffix), "{line} in {family}, a {kind}");
            let value: f64 = value.parse().unwrap();
            assert!(samples.insert(sample.to_owned(), value).is_none(), "twice: {line}");
        }
        Page(samples)
    }

    fn get(&self, sample: &str) -> f64 {
        *self.0.get(sample).unwrap_or_else(|| panic!("no {sample} in {:#?}", self.0))
    }

    /// The cumulative buckets of an index's histogram, by bound; checked.
    fn buckets(&self, name: &str, index: &str) -> Vec<(f64, f64)> {
        let begin = format!("{name}_bucket{{le=\"");
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for (sample, count) in &self.0 {
            let Some(rest) = sample.strip_prefix(&begin) else { continue };
            let (bound, labels) = rest.split_once('"').unwrap();
            if labels.contains(&format!("index=\"{index}\"")) {
                buckets.push((bound.replace("+Inf", "inf").parse().unwrap(), *count));
            }
        }
        buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1), "{buckets:?}");
        let (last, all) = *buckets.last().expect("buckets");
        assert_eq!(last, f64::INFINITY);
        assert_eq!(all, self.get(&format!("{name}_count{{index=\"{index}\"}}")));
        buckets
    }
}

fn chain(from: u64, to: u64) -> Vec<Block> {
    blocks((from..to).map(|i| (i, i)))
}

/// An index whose removals wait for a flush.
fn queueing() -> Index {
    let builder = Index::builder().drain_threads(1).drain_threshold(1_000_000);
    let builder = builder.max_worker_blocks(100);
    builder.max_pending(1_000_000).removal_delay(Duration::from_secs(3_600)).build()
}

#[test]
fn a_page_says_what_a_known_stream_must_give() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let index = queueing();
    metrics.watch("a", &index).unwrap();
    let (known, unknown) = (worker(1), worker(2));
    index.store(known, None, &chain(0, 10)).unwrap();
    index.store(known, below(7), &chain(8, 12)).unwrap();
    index.store(known, below(99), &chain(20, 23)).unwrap_err();
    index.store(known, None, &blocks([(5, 5), (5, 7)])).unwrap_err();
    index.store(known, None, &chain(1_000, 1_090)).unwrap_err();
    index.remove(known, &names([11, 10, 77]));
    index.flush();
    index.remove(unknown, &names([1, 2]));
    index.clear(unknown);
    index.store(worker(3), None, &chain(0, 4)).unwrap();
    index.remove_worker(worker(3));
    index.remove_worker(worker(3));
    index.store(worker(4), None, &chain(0, 5)).unwrap();
    index.clear(worker(4));
    index.remove(known, &names([9]));

    let page = Page::of(&registry);
    for (kind, outcome, events) in [
        ("store", "applied", 4.0),
        ("store", "parent_not_found", 1.0),
        ("store", "repeated_hash", 1.0),
        ("store", "worker_full", 1.0),
        ("store", "index_full", 0.0),
        ("store", "poisoned", 0.0),
        ("remove", "applied", 1.0),
        ("remove", "unknown_worker", 1.0),
        ("clear", "applied", 1.0),
        ("clear", "unknown_worker", 1.0),
        ("leave", "applied", 1.0),
        ("leave", "unknown_worker", 1.0),
    ] {
        let labels = format!(r#"index="a",kind="{kind}",outcome="{outcome}""#);
        assert_eq!(page.get(&format!("kvradix_events_total{{{labels}}}")), events, "{labels}");
    }
    for (kind, outcome, count) in [
        ("store", "applied", 21.0),
        ("store", "held_already", 2.0),
        ("store", "parent_not_found", 3.0),
        ("store", "repeated_hash", 2.0),
        ("store", "worker_full", 90.0),
        ("store", "index_full", 0.0),
        ("panic", "lost", 0.0),
        ("remove", "applied", 2.0),
        ("remove", "unknown_name", 3.0),
        ("clear", "applied", 5.0),
        ("leave", "applied", 4.0),
    ] {
        let labels = format!(r#"index="a",kind="{kind}",outcome="{outcome}""#);
        assert_eq!(page.get(&format!("kvradix_event_blocks_total{{{labels}}}")), count, "{labels}");
    }
    let gauge = |name: &str| page.get(&format!("kvradix_{name}{{index=\"a\"}}"));
    assert_eq!((gauge("workers"), gauge("held_blocks"), gauge("tree_blocks")), (2.0, 10.0, 10.0));
    assert_eq!((gauge("nodes"), gauge("lookup_entries")), (1.0, 10.0));
    assert_eq!((gauge("pending_removals"), gauge("poisoned_workers")), (1.0, 0.0));
    let age = gauge("oldest_pending_removal_seconds");
    assert!(age > 0.0 && age < 60.0, "{age} s");
    let memory = index.stats().memory;
    for (part, bytes) in [
        ("tree", memory.tree_bytes),
        ("lookup", memory.lookup_bytes),
        ("workers", memory.worker_bytes),
        ("retired", memory.retired_bytes),
    ] {
        assert!(bytes > 0, "{part}");
        let labels = format!(r#"index="a",part="{part}""#);
        assert_eq!(page.get(&format!("kvradix_memory_bytes{{{labels}}}")), bytes as f64);
    }
}

#[test]
fn drains_are_told_by_the_size_of_their_batches() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let index = queueing();
    metrics.watch("a", &index).unwrap();
    index.store(worker(1), None, &chain(0, 100)).unwrap();
    for (from, to) in [(99, 100), (97, 99), (90, 97), (30, 90)] {
        index.remove(worker(1), &names(from..to));
        index.flush();
    }
    let page = Page::of(&registry);
    let buckets = page.buckets("kvradix_drain_batch_names", "a");
    let expected = [1, 2, 2, 3, 3, 3, 4, 4, 4, 4, 4].map(f64::from);
    let counts: Vec<f64> = buckets.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, expected, "{buckets:?}");
    assert_eq!(page.get(r#"kvradix_drain_batch_names_sum{index="a"}"#), 70.0);
}

#[test]
fn queries_are_told_by_depth_and_by_time() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let index = Index::new();
    index.store(worker(1), None, &chain(0, 40)).unwrap();
    index.store(worker(2), None, &chain(0, 3)).unwrap();
    // Not counted: nobody watches yet.
    index.matches(&query(0..7));
    metrics.watch("a", &index).unwrap();
    assert_eq!(Page::of(&registry).get(r#"kvradix_query_depth_blocks_count{index="a"}"#), 0.0);

    let asked = [(0, 300), (1, 200), (2, 100), (9, 50), (40, 1)];
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut matches = Matches::new();
                for (depth, times) in asked {
                    let contents = query((0..depth).chain([9_999]));
                    (0..times).for_each(|_| index.matches_into(&contents, &mut matches));
                    assert_eq!(matches.depth_of(worker(1)), depth as u32);
                }
            });
        }
    });
    assert_eq!(index.matches(LocalHash::from_slice(&[])).len(), 0);

    let page = Page::of(&registry);
    let depths = page.buckets("kvradix_query_depth_blocks", "a");
    let at_most = |bound: f64| depths.iter().find(|bucket| bucket.0 == bound).expect("a bucket").1;
    assert_eq!((at_most(0.0), at_most(1.0)), (901.0, 1_501.0));
    assert_eq!((at_most(2.0), at_most(8.0)), (1_801.0, 1_801.0));
    assert_eq!((at_most(16.0), at_most(32.0), at_most(64.0)), (1_951.0, 1_951.0, 1_954.0));
    let blocks = 3 * (200 + 2 * 100 + 9 * 50 + 40);
    assert_eq!(page.get(r#"kvradix_query_depth_blocks_sum{index="a"}"#), f64::from(blocks));

    let times = page.buckets("kvradix_query_duration_seconds", "a");
    let timed = times.last().expect("buckets").1;
    // One in 16 of 1,954, by chance.
    assert!((70.0..200.0).contains(&timed), "{timed}");
    let seconds = page.get(r#"kvradix_query_duration_seconds_sum{index="a"}"#);
    assert!(seconds > 0.0 && seconds < 10.0, "{seconds}");
    assert_eq!(times.len(), 19);
    assert_eq!((times[0].0, times[17].0), (6.4e-8, 8.388608e-3));
}

#[test]
fn a_query_that_takes_long_is_counted_as_one() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let index = Index::new();
    metrics.watch("a", &index).unwrap();
    // A thread's first query is timed. This one compares a million hashes.
    let all: Vec<Block> = chain(0, 1_000_000);
    index.store(worker(1), None, &all).unwrap();
    let contents = query(0..1_000_000);
    let begun = Instant::now();
    thread::scope(|scope| scope.spawn(|| index.matches(&contents)).join().map(drop)).unwrap();
    let took = begun.elapsed().as_secs_f64();
    let told = Page::of(&registry).get(r#"kvradix_query_duration_seconds_sum{index="a"}"#);
    assert!(told > 1e-4 && told <= took, "{told} of {took} s");
}

#[test]
fn two_indexes_in_one_registry_are_told_apart() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let (small, large) = (Index::new(), Index::new());
    metrics.watch("small", &small).unwrap();
    let registry = registry; // in use: nothing can be registered any more
    small.store(worker(1), None, &chain(0, 3)).unwrap();
    metrics.clone().watch("la\"rge", &large).unwrap();
    large.store(worker(1), None, &chain(0, 5)).unwrap();
    large.matches(&query(0..2));

    let page = Page::of(&registry);
    assert_eq!(page.get(r#"kvradix_held_blocks{index="small"}"#), 3.0);
    assert_eq!(page.get(r#"kvradix_held_blocks{index="la\"rge"}"#), 5.0);
    assert_eq!(page.get(r#"kvradix_query_depth_blocks_count{index="small"}"#), 0.0);
    assert_eq!(page.get(r#"kvradix_query_depth_blocks_sum{index="la\"rge"}"#), 2.0);

    let taken = metrics.watch("small", &large);
    assert_eq!(taken, Err(NameTaken { name: "small".to_owned() }));
    assert!(taken.unwrap_err().to_string().contains("\"small\""));
    assert_eq!(metrics.watch("small", &small), Ok(()), "the same again");
    assert!(metrics.unwatch("small") && !metrics.unwatch("small"));
    assert!(!Page::of(&registry).0.keys().any(|sample| sample.contains("small")));
}

#[test]
fn a_dropped_index_is_no_longer_shown_and_was_not_kept() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let index = Index::new();
    metrics.watch("a", &index).unwrap();
    index.store(worker(1), None, &chain(0, 3)).unwrap();
    index.matches(&query(0..3));
    assert!(!Page::of(&registry).0.is_empty());
    drop(index);
    assert!(Page::of(&registry).0.is_empty());
    // Its name is free again, and begins anew.
    let next = Index::new();
    metrics.watch("a", &next).unwrap();
    drop(metrics);
    let page = Page::of(&registry);
    assert_eq!(page.get(r#"kvradix_held_blocks{index="a"}"#), 0.0);
    assert_eq!(page.get(r#"kvradix_query_depth_blocks_count{index="a"}"#), 0.0);
}

/// Pages are asked for while indexes come and go, events and queries run:
/// counts never fall, none is lost.
#[test]
fn pages_beside_everything_else_lose_nothing() {
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let (registry, index, done) = (registry, Index::new(), AtomicBool::new(false));
    metrics.watch("stays", &index).unwrap();
    thread::scope(|scope| {
        let busy = |id: u64| {
            let mut matches = Matches::new();
            for round in 0..2_000 {
                let own = (id << 32) | (round * 4);
                index.store(worker(id), None, &chain(own, own + 4)).unwrap();
                index.matches_into(&query(own..own + 2), &mut matches);
                index.remove(worker(id), &names(own..own + 4));
                if round % 100 == 99 {
                    index.remove_worker(worker(id));
                }
            }
        };
        let others: Vec<_> = (1..4).map(|id| scope.spawn(move || busy(id))).collect();
        let (metrics, done, registry) = (&metrics, &done, &registry);
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let guest = Index::new();
                metrics.watch("comes and goes", &guest).unwrap();
                guest.store(worker(1), None, &chain(0, 3)).unwrap();
            }
        });
        scope.spawn(move || {
            let mut before = Page(BTreeMap::new());
            while !done.load(Ordering::Relaxed) {
                let page = Page::of(registry);
                let counts = |sample: &str| {
                    sample.contains("stays")
                        && ["_total", "_count", "_sum"].iter().any(|end| {
                            sample.split('{').next().is_some_and(|name| name.ends_with(end))
                        })
                };
                for (sample, count) in before.0.iter().filter(|(sample, _)| counts(sample)) {
                    let now = page.get(sample);
                    assert!(now >= *count, "{sample}: {count}, then {now}");
                }
                before = page;
            }
        });
        others.into_iter().for_each(|other| other.join().unwrap());
        done.store(true, Ordering::Relaxed);
    });
    index.flush();
    let page = Page::of(&registry);
    let stores = r#"kvradix_events_total{index="stays",kind="store",outcome="applied"}"#;
    assert_eq!(page.get(stores), 6_000.0);
    assert_eq!(page.get(r#"kvradix_query_depth_blocks_count{index="stays"}"#), 6_000.0);
    assert_eq!(page.get(r#"kvradix_query_depth_blocks_sum{index="stays"}"#), 12_000.0);
    assert_eq!(page.get(r#"kvradix_held_blocks{index="stays"}"#), 0.0);
}
