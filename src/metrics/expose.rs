//! Encoding: each family once, in it every index.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

use super::queries::QueryCounts;
use super::{Seen, WatchList};
use crate::sync::Arc;
use crate::{DrainCounts, Stats, StoreErrorKind};

/// What the registry asks for the metrics.
#[derive(Debug)]
pub(super) struct Exposed {
    pub(super) watched: Arc<WatchList>,
}

/// A label's name and value.
type Label<'a> = (&'static str, &'a str);

impl Collector for Exposed {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let seen = self.watched.look();
        if seen.is_empty() {
            return Ok(());
        }
        let mut page = Page { encoder: &mut encoder, seen: &seen };
        page.events()?;
        page.gauges()?;
        page.memory()?;
        page.pending()?;
        page.histograms()
    }
}

/// Metrics on their way into the text.
struct Page<'p, 'e> {
    encoder: &'p mut DescriptorEncoder<'e>,
    seen: &'p [Seen],
}

impl Page<'_, '_> {
    fn events(&mut self) -> fmt::Result {
        let help = "Cache events, by kind and outcome.";
        self.counters("kvradix_events", help, |stats| {
            let events = &stats.events;
            let mut rows = vec![("store", "applied", events.stores)];
            rows.extend(StoreErrorKind::ALL.map(|kind| {
                let refused = events.refused.of(kind);
                ("store", kind.name(), refused.events)
            }));
            rows.extend([
                ("remove", "applied", events.removals),
                ("remove", "unknown_worker", events.stray_removals),
                ("clear", "applied", events.clears),
                ("clear", "unknown_worker", events.stray_clears),
                ("leave", "applied", events.leavings),
                ("leave", "unknown_worker", events.stray_leavings),
            ]);
            rows
        })?;
        let help = "Blocks and names in cache events, by kind and outcome.";
        self.counters("kvradix_event_blocks", help, |stats| {
            let events = &stats.events;
            let new = events.stored_blocks.saturating_sub(events.stored_again);
            let mut rows =
                vec![("store", "applied", new), ("store", "held_already", events.stored_again)];
            rows.extend(StoreErrorKind::ALL.map(|kind| {
                let refused = events.refused.of(kind);
                ("store", kind.name(), refused.blocks)
            }));
            rows.extend([
                ("remove", "applied", events.removed_blocks),
                ("remove", "unknown_name", stats.unknown_removals),
                ("clear", "applied", events.cleared_blocks),
                ("leave", "applied", events.left_blocks),
                ("panic", "lost", events.lost_blocks),
            ]);
            rows
        })
    }

    fn gauges(&mut self) -> fmt::Result {
        type Gauge = (&'static str, &'static str, fn(&Stats) -> u64);
        const GAUGES: [Gauge; 7] = [
            ("kvradix_workers", "Known workers.", |stats| stats.workers),
            ("kvradix_poisoned_workers", "Workers that a panic poisoned.", |stats| {
                stats.poisoned_workers
            }),
            ("kvradix_held_blocks", "Names that workers have, summed over them.", |stats| {
                stats.held_blocks
            }),
            ("kvradix_tree_blocks", "Blocks in the tree, each once.", |stats| stats.tree_blocks),
            ("kvradix_nodes", "Nodes of the tree.", |stats| stats.nodes),
            ("kvradix_lookup_entries", "Entries from block names to places.", |stats| {
                stats.lookup_entries
            }),
            ("kvradix_pending_removals", "Names removed and not yet applied.", |stats| {
                stats.pending_removals
            }),
        ];
        for (name, help, of) in GAUGES {
            let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for Seen { name, stats, .. } in self.seen {
                family.encode_family(&[("index", &**name)])?.encode_gauge(&gauge(of(stats)))?;
            }
        }
        Ok(())
    }

    fn memory(&mut self) -> fmt::Result {
        let help = "Memory of the index, by what it is for.";
        let mut family = self.encoder.encode_descriptor(
            "kvradix_memory",
            help,
            Some(&Unit::Bytes),
            MetricType::Gauge,
        )?;
        for Seen { name, stats, .. } in self.seen {
            let memory = &stats.memory;
            for (part, bytes) in [
                ("tree", memory.tree_bytes),
                ("lookup", memory.lookup_bytes),
                ("workers", memory.worker_bytes),
                ("retired", memory.retired_bytes),
            ] {
                let labels: [Label<'_>; 2] = [("index", name), ("part", part)];
                family.encode_family(&labels)?.encode_gauge(&gauge(bytes))?;
            }
        }
        Ok(())
    }

    fn pending(&mut self) -> fmt::Result {
        let help = "How long the oldest removal has been waiting to be applied.";
        let name = "kvradix_oldest_pending_removal";
        let mut family =
            self.encoder.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Gauge)?;
        for Seen { name, stats, .. } in self.seen {
            let seconds = stats.pending_age_ns as f64 / 1e9;
            family.encode_family(&[("index", &**name)])?.encode_gauge(&seconds)?;
        }
        Ok(())
    }

    fn histograms(&mut self) -> fmt::Result {
        let names = Unit::Other("names".to_owned());
        let help = "Names of queued removals that were applied at once.";
        let mut family = self.encoder.encode_descriptor(
            "kvradix_drain_batch",
            help,
            Some(&names),
            MetricType::Histogram,
        )?;
        for Seen { name, stats, .. } in self.seen {
            let bounds = DrainCounts::SIZES.iter().map(|size| *size as f64);
            let drains = &stats.drains;
            histogram(&mut family, name, bounds, &drains.batches, drains.names as f64)?;
        }

        let blocks = Unit::Other("blocks".to_owned());
        let help = "Blocks of a query that the deepest worker in its answer has.";
        let mut family = self.encoder.encode_descriptor(
            "kvradix_query_depth",
            help,
            Some(&blocks),
            MetricType::Histogram,
        )?;
        for Seen { name, queries, .. } in self.seen {
            let (bounds, depths) = (QueryCounts::depth_bounds(), &queries.depths);
            histogram(&mut family, name, bounds, &depths.buckets, depths.sum as f64)?;
        }

        let help = "Time of a query, of one in sixteen.";
        let seconds = Some(&Unit::Seconds);
        let mut family = self.encoder.encode_descriptor(
            "kvradix_query_duration",
            help,
            seconds,
            MetricType::Histogram,
        )?;
        for Seen { name, queries, .. } in self.seen {
            let (bounds, times) = (QueryCounts::time_bounds(), &queries.times);
            histogram(&mut family, name, bounds, &times.buckets, times.sum as f64 / 1e9)?;
        }
        Ok(())
    }

    /// A family of counters whose rows are kind, outcome and count.
    fn counters(
        &mut self,
        name: &str,
        help: &str,
        rows: impl Fn(&Stats) -> Vec<(&'static str, &'static str, u64)>,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for Seen { name, stats, .. } in self.seen {
            for (kind, outcome, count) in rows(stats) {
                let labels: [Label<'_>; 3] =
                    [("index", name), ("kind", kind), ("outcome", outcome)];
                let mut counter = family.encode_family(&labels)?;
                counter.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        Ok(())
    }
}

/// One index's histogram; the last bucket has no bound.
fn histogram(
    family: &mut MetricEncoder<'_>,
    index: &str,
    bounds: impl Iterator<Item = f64>,
    buckets: &[u64],
    sum: f64,
) -> fmt::Result {
    let count = buckets.iter().sum();
    let bounds = bounds.chain([f64::INFINITY]);
    let buckets: Vec<(f64, u64)> = bounds.zip(buckets.iter().copied()).collect();
    let labels: [Label<'_>; 1] = [("index", index)];
    family.encode_family(&labels)?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
}

/// A gauge's value: the format knows signed ones.
fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
