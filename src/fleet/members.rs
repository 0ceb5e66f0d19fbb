//! Who belongs to the fleet.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde::Serialize;
use tracing::info;

use super::follower::{Follow, Follower};
use super::options::Options;
use super::source::Shown;
use super::spec::{Publisher, SpecError, WorkerSpec, check_all};
use super::status::PublisherStatus;
use crate::intake::{Rank, RankOptions, Residency};
use crate::{Index, Pool, WorkerId};

/// Engines that are followed, and what they hold. See the
/// [module](super)'s description.
///
/// Share it in an `Arc`. Dropping it ends its threads.
pub struct Fleet {
    options: Arc<Options>,
    pool: Pool,
    members: Mutex<Members>,
    /// What is asked. Queries take no lock.
    models: ArcSwap<Vec<Arc<Model>>>,
}

/// One model in blocks of one size, and who holds what of it.
#[derive(Debug)]
pub struct Model {
    name: String,
    residency: Residency,
}

impl Model {
    /// Its name, as the workers' specifications have it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Tokens per block.
    pub fn block_size(&self) -> u32 {
        self.residency.converter().block_size()
    }

    /// Who holds what. To be read.
    pub fn residency(&self) -> &Residency {
        &self.residency
    }
}

struct Members {
    workers: BTreeMap<u64, Member>,
    followers: Vec<Follower>,
    /// Publishers that each follower has.
    loads: Vec<usize>,
}

struct Member {
    spec: Arc<WorkerSpec>,
    /// It is there because a list has it, and goes when the list no longer
    /// does.
    listed: bool,
    model: Arc<Model>,
    followed: Vec<Followed>,
}

struct Followed {
    publisher: Publisher,
    rank: Rank,
    shown: Arc<Mutex<Shown>>,
    follower: usize,
}

/// A worker, at one moment.
#[derive(Clone, Debug, Serialize)]
pub struct WorkerStatus {
    /// As it was added.
    #[serde(flatten)]
    pub spec: WorkerSpec,
    /// Whether a list has it.
    pub listed: bool,
    /// One for each rank.
    pub publishers: Vec<PublisherStatus>,
}

/// Why a worker was not added.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AddError {
    /// Its specification cannot be followed.
    Spec(SpecError),
    /// There is one of its id.
    Exists(u64),
}

impl fmt::Display for AddError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddError::Spec(error) => error.fmt(f),
            AddError::Exists(id) => write!(f, "worker {id}: there is one of this id"),
        }
    }
}

impl std::error::Error for AddError {}

impl From<SpecError> for AddError {
    fn from(error: SpecError) -> Self {
        AddError::Spec(error)
    }
}

/// What a new list changed: ids.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Listed {
    /// They were not there.
    pub added: Vec<u64>,
    /// They were otherwise; they begin anew.
    pub changed: Vec<u64>,
    /// They are no longer listed.
    pub removed: Vec<u64>,
}

impl Fleet {
    /// A fleet without workers. Its threads start here.
    ///
    /// # Errors
    /// What ZeroMQ says where it has no sockets to give.
    pub fn new(options: Options) -> Result<Self, zmq::Error> {
        let options = Arc::new(options);
        let threads = options.threads.max(1);
        let started = (0..threads).map(|number| Follower::start(number, options.clone()));
        let followers = started.collect::<Result<Vec<_>, _>>()?;
        let members = Members { workers: BTreeMap::new(), followers, loads: vec![0; threads] };
        Ok(Self {
            options,
            pool: Pool::new(1),
            members: Mutex::new(members),
            models: ArcSwap::default(),
        })
    }

    /// How it follows.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Follows a worker from now on.
    ///
    /// # Errors
    /// It cannot be followed as it is described, or there is one of its id. An
    /// endpoint that cannot be reached is no error: it is tried again.
    pub fn add(&self, spec: WorkerSpec) -> Result<(), AddError> {
        let mut members = self.members.lock();
        if members.workers.contains_key(&spec.id) {
            return Err(AddError::Exists(spec.id));
        }
        self.join(&mut members, spec, false)?;
        Ok(())
    }

    /// The worker leaves: when this returns it is no longer followed, its
    /// blocks are in no answer, and nothing that comes late brings it back.
    /// Whether it was there.
    pub fn remove(&self, id: u64) -> bool {
        self.part(&mut self.members.lock(), id)
    }

    /// Makes the fleet be those of the list, beside the ones that were added
    /// by [`add`](Self::add). Workers that are as they were go on undisturbed.
    ///
    /// # Errors
    /// The first fault in the list; then nothing has changed.
    pub fn set_listed(&self, list: Vec<WorkerSpec>) -> Result<Listed, SpecError> {
        check_all(&list)?;
        let mut members = self.members.lock();
        let mut done = Listed::default();
        let ids: Vec<u64> = list.iter().map(|spec| spec.id).collect();
        let gone = members.workers.iter().filter(|(id, member)| member.listed && !ids.contains(id));
        done.removed = gone.map(|(&id, _)| id).collect();
        for &id in &done.removed {
            self.part(&mut members, id);
        }
        for spec in list {
            let id = spec.id;
            match members.workers.get_mut(&id) {
                Some(member) if *member.spec == spec => {
                    member.listed = true;
                    continue;
                }
                Some(_) => {
                    done.changed.push(id);
                    self.part(&mut members, id);
                }
                None => done.added.push(id),
            }
            self.join(&mut members, spec, true)?;
        }
        Ok(done)
    }

    /// Every worker, in the order of ids.
    pub fn workers(&self) -> Vec<WorkerStatus> {
        let now = Instant::now();
        let members = self.members.lock();
        members.workers.values().map(|member| member.status(now)).collect()
    }

    /// One worker.
    pub fn worker(&self, id: u64) -> Option<WorkerStatus> {
        Some(self.members.lock().workers.get(&id)?.status(Instant::now()))
    }

    /// The models that workers serve.
    pub fn models(&self) -> Arc<Vec<Arc<Model>>> {
        self.models.load_full()
    }

    fn join(&self, members: &mut Members, spec: WorkerSpec, listed: bool) -> Result<(), SpecError> {
        let publishers = spec.publishers()?;
        let model = self.model(&spec);
        let spec = Arc::new(spec);
        let options = RankOptions::default().copies(spec.counts_copies());
        let mut followed = Vec::new();
        for publisher in publishers {
            let rank = model.residency.join(WorkerId::new(spec.id, publisher.rank), options);
            let loads = members.loads.iter().enumerate();
            let follower = loads.min_by_key(|&(_, load)| load).map_or(0, |(follower, _)| follower);
            members.loads[follower] += 1;
            let shown = Arc::new(Mutex::new(Shown::new()));
            members.followers[follower].follow(Follow {
                spec: spec.clone(),
                publisher: publisher.clone(),
                rank: rank.clone(),
                shown: shown.clone(),
            });
            followed.push(Followed { publisher, rank, shown, follower });
        }
        info!(worker = spec.id, ranks = followed.len(), engine = spec.engine.name(), "followed");
        members.workers.insert(spec.id, Member { spec, listed, model, followed });
        Ok(())
    }

    fn part(&self, members: &mut Members, id: u64) -> bool {
        let Some(member) = members.workers.remove(&id) else { return false };
        member.model.residency.remove(id);
        let mut left = vec![false; members.followers.len()];
        for followed in &member.followed {
            members.loads[followed.follower] -= 1;
            if !std::mem::replace(&mut left[followed.follower], true) {
                members.followers[followed.follower].leave(id);
            }
        }
        info!(worker = id, "no longer followed");
        self.drop_unused(members);
        true
    }

    /// The model that the worker serves; a new one if it is the first.
    fn model(&self, spec: &WorkerSpec) -> Arc<Model> {
        let models = self.models.load_full();
        let block_size = spec.block_size.get();
        let is_it =
            |model: &&Arc<Model>| model.name == spec.model && model.block_size() == block_size;
        if let Some(model) = models.iter().find(is_it) {
            return model.clone();
        }
        let index = || Index::builder().pool(&self.pool).build();
        let residency = Residency::with_indexes(block_size, index(), index());
        let model = Arc::new(Model { name: spec.model.clone(), residency });
        let mut models = Vec::clone(&models);
        models.push(model.clone());
        // Changed under the members' lock alone.
        self.models.store(Arc::new(models));
        model
    }

    fn drop_unused(&self, members: &Members) {
        let models = self.models.load_full();
        let is_used = |model: &&Arc<Model>| {
            members.workers.values().any(|member| Arc::ptr_eq(&member.model, model))
        };
        let used: Vec<_> = models.iter().filter(is_used).cloned().collect();
        if used.len() < models.len() {
            self.models.store(Arc::new(used));
        }
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members = self.members.lock();
        f.debug_struct("Fleet").field("workers", &members.workers.keys()).finish_non_exhaustive()
    }
}

impl Member {
    fn status(&self, now: Instant) -> WorkerStatus {
        let publishers = self.followed.iter().map(|followed| {
            let blocks = followed.rank.stats().into();
            let shown = followed.shown.lock();
            PublisherStatus {
                worker: self.spec.id,
                rank: followed.publisher.rank,
                state: shown.state,
                last_number: shown.last_number,
                held: shown.held as u64,
                silent_seconds: shown
                    .heard
                    .map(|heard| now.saturating_duration_since(heard).as_secs_f64()),
                delay_seconds: shown.delay,
                error: shown.error.clone(),
                blocks,
                counts: shown.totals,
                drops: shown.drops.clone(),
                events: followed.publisher.events.clone(),
                replay: followed.publisher.replay.clone(),
            }
        });
        WorkerStatus {
            spec: WorkerSpec::clone(&self.spec),
            listed: self.listed,
            publishers: publishers.collect(),
        }
    }
}
