//! `/metrics`, and how long queries take.

use std::fmt;
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use kvradix::fleet::{Fleet, PublisherStatus, State, Totals, Watch};
use kvradix::metrics::Metrics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, prometheus_text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::histogram::{self, exponential_buckets};
use prometheus_client::registry::Registry;
use serde::Serialize;

pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Percentiles are those of the last one to two of these.
const SPAN: Duration = Duration::from_secs(5);
/// The longest query that is told from longer ones: a minute, in nanoseconds.
const LONGEST: u64 = 60_000_000_000;

/// How long queries take, from when their body is there to when the answer is
/// written.
pub struct Latency {
    recent: Mutex<Recent>,
    all: histogram::Histogram,
}

struct Recent {
    began: Instant,
    now: Histogram<u64>,
    before: Histogram<u64>,
    count: u64,
}

/// Of the last seconds' queries.
#[derive(Serialize)]
pub struct Percentiles {
    /// Queries since the start.
    count: u64,
    p50_seconds: Option<f64>,
    p99_seconds: Option<f64>,
    max_seconds: Option<f64>,
}

impl Default for Latency {
    fn default() -> Self {
        let recent = Recent { began: Instant::now(), now: empty(), before: empty(), count: 0 };
        let all = histogram::Histogram::new(exponential_buckets(1e-6, 2.0, 24));
        Self { recent: Mutex::new(recent), all }
    }
}

fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("the bounds are sound")
}

impl Latency {
    pub fn record(&self, took: Duration) {
        self.all.observe(took.as_secs_f64());
        let mut recent = self.recent();
        recent.count += 1;
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(LONGEST);
        recent.now.saturating_record(nanoseconds);
    }

    pub fn percentiles(&self) -> Percentiles {
        let recent = self.recent();
        let mut both = recent.now.clone();
        both += &recent.before;
        let of = |value: u64| (!both.is_empty()).then_some(value as f64 / 1e9);
        Percentiles {
            count: recent.count,
            p50_seconds: of(both.value_at_quantile(0.5)),
            p99_seconds: of(both.value_at_quantile(0.99)),
            max_seconds: of(both.max()),
        }
    }

    fn recent(&self) -> MutexGuard<'_, Recent> {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let age = recent.began.elapsed();
        if age >= SPAN {
            let now = std::mem::replace(&mut recent.now, empty());
            recent.before = if age < SPAN * 2 { now } else { empty() };
            recent.began = Instant::now();
        }
        recent
    }
}

/// Everything that Prometheus may ask for.
pub struct Exposition {
    registry: Registry,
    /// The indexes' own metrics.
    indexes: Metrics,
}

impl Exposition {
    pub fn new(fleet: Arc<Fleet>, watch: Arc<Watch>, latency: &Latency) -> Self {
        let mut registry = Registry::default();
        let indexes = Metrics::register(&mut registry);
        let of_fleet = registry.sub_registry_with_prefix("kvradix_fleet");
        let seconds = "Time from a query's body to its answer in seconds";
        of_fleet.register("query_seconds", seconds, latency.all.clone());
        of_fleet.register_collector(Box::new(Gathered { fleet, watch }));
        Self { registry, indexes }
    }

    /// It, as text.
    ///
    /// # Errors
    ///
    /// A metric cannot be written.
    pub fn text(&self, fleet: &Fleet) -> Result<String, fmt::Error> {
        for model in fleet.models().iter() {
            let residency = model.residency();
            for (tier, index) in [("device", residency.device()), ("any", residency.any())] {
                let name = format!("{}/{}/{tier}", model.name(), model.block_size());
                // Taken: by this index, since the last scrape.
                _ = self.indexes.watch(name, index);
            }
        }
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

/// What is read at each scrape.
#[derive(Debug)]
struct Gathered {
    fleet: Arc<Fleet>,
    watch: Arc<Watch>,
}

/// A metric of each rank: its name, what it tells, and its values with a
/// further label each.
type PerRank<T> = (&'static str, &'static str, fn(&PublisherStatus) -> Vec<(Label, T)>);
type Label = Option<(&'static str, &'static str)>;

const COUNTERS: [PerRank<u64>; 15] = [
    ("batches", "Batches applied", |rank| {
        let Totals { batches, replayed, .. } = rank.counts;
        vec![(Some(("way", "live")), batches), (Some(("way", "replayed")), replayed)]
    }),
    ("batch_bytes", "Bytes of the batches applied", |rank| one(rank.counts.bytes)),
    ("stored_blocks", "Blocks in accepted stores", |rank| one(rank.counts.stored)),
    ("removed_blocks", "Blocks removed", |rank| one(rank.counts.removed)),
    ("clears", "Times the engine emptied its cache", |rank| one(rank.counts.cleared)),
    ("duplicates", "Batches that came twice", |rank| one(rank.counts.duplicates)),
    ("gaps", "Gaps in the live stream", |rank| one(rank.counts.gaps)),
    ("missing_batches", "Batches missing in gaps", |rank| one(rank.counts.missing)),
    ("lost_gaps", "Gaps that could not be healed", |rank| one(rank.counts.lost)),
    ("restarts", "New processes of the engine noticed", |rank| one(rank.counts.restarts)),
    ("replay_questions", "Questions to the replay socket", |rank| {
        let Totals { asked, unanswered, .. } = rank.counts;
        let answered = asked.saturating_sub(unanswered);
        vec![(Some(("answered", "yes")), answered), (Some(("answered", "no")), unanswered)]
    }),
    ("overflows", "Live batches dropped during a replay", |rank| one(rank.counts.overflows)),
    ("malformed_messages", "Messages that are no batch", |rank| one(rank.counts.malformed)),
    ("connects", "Times the connection came about", |rank| one(rank.counts.connects)),
    ("deaths", "Times the rank counted as dead", |rank| one(rank.counts.deaths)),
];

const GAUGES: [PerRank<f64>; 4] = [
    ("blocks", "Blocks held", |rank| {
        let blocks = rank.blocks;
        let of = |tier, blocks| (Some(("tier", tier)), blocks as f64);
        vec![of("device", blocks.device), of("any", blocks.any), of("waiting", blocks.waiting)]
    }),
    ("rank_state", "1 for the state that the rank is in", |rank| {
        let is = |state: State| f64::from(u8::from(state == rank.state));
        State::ALL.map(|state| (Some(("state", state.name())), is(state))).to_vec()
    }),
    ("silent_seconds", "Time since the rank's last sign of life", |rank| {
        rank.silent_seconds.map(|seconds| (None, seconds)).into_iter().collect()
    }),
    ("delay_seconds", "How long the last live batch was under way, by both clocks", |rank| {
        rank.delay_seconds.map(|seconds| (None, seconds)).into_iter().collect()
    }),
];

fn one(count: u64) -> Vec<(Label, u64)> {
    vec![(None, count)]
}

impl Collector for Gathered {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), fmt::Error> {
        let workers = self.fleet.workers();
        let ranks: Vec<_> = workers.iter().flat_map(|worker| &worker.publishers).collect();
        for (name, help, values) in COUNTERS {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for rank in &ranks {
                for (label, value) in values(rank) {
                    counter(&mut metric, &labels(rank, label), value)?;
                }
            }
        }
        let help = "What was left out of batches, by reason";
        let mut metric = encoder.encode_descriptor("drops", help, None, MetricType::Counter)?;
        for rank in &ranks {
            for (reason, count) in rank.drops.iter() {
                counter(&mut metric, &labels(rank, Some(("reason", reason.label()))), count)?;
            }
        }
        for (name, help, values) in GAUGES {
            let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for rank in &ranks {
                for (label, value) in values(rank) {
                    metric.encode_family(&labels(rank, label))?.encode_gauge(&value)?;
                }
            }
        }
        let help = "Workers in the fleet";
        encoder
            .encode_descriptor("workers", help, None, MetricType::Gauge)?
            .encode_gauge(&(workers.len() as u64))?;
        let help = "1 while the workers' file cannot be followed";
        encoder
            .encode_descriptor("workers_file_error", help, None, MetricType::Gauge)?
            .encode_gauge(&u64::from(self.watch.error().is_some()))?;
        Ok(())
    }
}

type Labels = Vec<(&'static str, String)>;

fn labels(rank: &PublisherStatus, further: Label) -> Labels {
    let mut labels = vec![("worker", rank.worker.to_string()), ("rank", rank.rank.to_string())];
    labels.extend(further.map(|(name, value)| (name, value.to_owned())));
    labels
}

fn counter(metric: &mut MetricEncoder<'_>, labels: &Labels, value: u64) -> Result<(), fmt::Error> {
    metric.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(&value, None)
}
