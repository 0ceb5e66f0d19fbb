//! What a fleet's tiers hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::rank::Life;
use super::tiers::Media;
use super::{Converter, Rank, RankOptions, Tier};
use crate::{Index, LocalHash, Match, Matches, WorkerId};

/// What a fleet's tiers hold, for one model and block size.
///
/// Two indexes answer, the [device's](Self::device) and the one of
/// [any tier](Self::any). Ranks [join](Self::join) and
/// [leave](Self::remove); events come in through their [`Rank`]s. Share it
/// between threads by reference or in an `Arc`; queries take no lock.
///
/// # Examples
/// ```
/// use kvradix::intake::{Answer, Decoder, Drops, Origin, Prompt, RankOptions, Residency};
/// use kvradix::WorkerId;
///
/// # let payloads: [&[u8]; 0] = [];
/// let residency = Residency::new(16);
/// let vllm = RankOptions::default().copies(true);
/// let rank = residency.join(WorkerId::new(1, 0), vllm);
/// let (mut decoder, mut drops) = (Decoder::default(), Drops::new());
/// for payload in payloads {
///     match decoder.decode(payload, &mut drops) {
///         Ok(batch) if batch.whole => _ = rank.apply(&batch, Origin::Live, &mut drops),
///         // Unreadable: as good as a batch that was lost.
///         _ => rank.clear(),
///     }
/// }
///
/// let query = residency.converter().hash_prompt(&Prompt::new(&[1; 64]));
/// let mut answer = Answer::new();
/// residency.query(&query, &mut answer);
/// assert!(answer.residences().is_empty());
/// ```
#[derive(Debug)]
pub struct Residency {
    core: Arc<Core>,
    /// Who joined and has not left. Taken before any rank's own lock.
    ranks: Mutex<BTreeMap<WorkerId, Arc<Life>>>,
}

/// What all ranks share.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) converter: Converter,
    pub(super) device: Index,
    pub(super) any: Index,
    pub(super) media: Media,
}

impl Core {
    pub(super) fn clear(&self, worker: WorkerId) {
        self.device.clear(worker);
        self.any.clear(worker);
    }

    pub(super) fn remove(&self, worker: WorkerId) {
        self.device.remove_worker(worker);
        self.any.remove_worker(worker);
    }
}

impl Residency {
    /// For blocks of `block_size` tokens, with two indexes of their default
    /// settings.
    ///
    /// # Panics
    /// If `block_size` is 0.
    pub fn new(block_size: u32) -> Self {
        Self::with_indexes(block_size, Index::new(), Index::new())
    }

    /// With two empty indexes of the caller's making, as to share a
    /// [`Pool`](crate::Pool).
    ///
    /// # Panics
    /// If `block_size` is 0.
    pub fn with_indexes(block_size: u32, device: Index, any: Index) -> Self {
        let converter = Converter::new(block_size);
        let core = Core { converter, device, any, media: Media::default() };
        Self { core: Arc::new(core), ranks: Mutex::default() }
    }

    /// What hashes events, and should hash requests.
    pub fn converter(&self) -> &Converter {
        &self.core.converter
    }

    /// What the device holds. For reading: events come in through [`Rank`].
    pub fn device(&self) -> &Index {
        &self.core.device
    }

    /// What any tier holds, the device included. For reading.
    pub fn any(&self) -> &Index {
        &self.core.any
    }

    /// The name of a tier's medium, in the case in which it first came; known
    /// ones are in capitals.
    pub fn medium(&self, tier: Tier) -> Option<String> {
        self.core.media.name(tier)
    }

    /// The tier of a medium, if it is a known one or was met.
    pub fn tier(&self, medium: &str) -> Option<Tier> {
        self.core.media.find(Some(medium))
    }

    /// A rank begins its life, with nothing held. If one of this name was
    /// there, it has left, and its [`Rank`]s do nothing any more.
    pub fn join(&self, worker: WorkerId, options: RankOptions) -> Rank {
        let life = Arc::new(Life::new(worker, options));
        let mut ranks = self.ranks.lock();
        if let Some(before) = ranks.insert(worker, life.clone()) {
            before.end(&self.core);
        }
        Rank::new(self.core.clone(), life)
    }

    /// The rank of this name that joined and has not left.
    pub fn rank(&self, worker: WorkerId) -> Option<Rank> {
        let life = self.ranks.lock().get(&worker)?.clone();
        Some(Rank::new(self.core.clone(), life))
    }

    /// The ranks that joined and have not left, in ascending order.
    pub fn ranks(&self) -> Vec<WorkerId> {
        self.ranks.lock().keys().copied().collect()
    }

    /// Every rank of worker `id` leaves; how many did. Batches that come late
    /// through their [`Rank`]s do nothing.
    pub fn remove(&self, id: u64) -> usize {
        let mut ranks = self.ranks.lock();
        let all = WorkerId::new(id, 0)..=WorkerId::new(id, u32::MAX);
        let leaving: Vec<_> = ranks.range(all).map(|(&worker, _)| worker).collect();
        for worker in &leaving {
            if let Some(life) = ranks.remove(worker) {
                life.end(&self.core);
            }
        }
        leaving.len()
    }

    /// One rank leaves; whether it was there.
    pub fn remove_rank(&self, worker: WorkerId) -> bool {
        let mut ranks = self.ranks.lock();
        let life = ranks.remove(&worker);
        if let Some(life) = &life {
            life.end(&self.core);
        }
        life.is_some()
    }

    /// How many leading blocks of the query each rank holds on its device,
    /// and on any tier. Takes no lock; each index has the consistency that
    /// [the crate](crate#consistency) states.
    pub fn query(&self, query: &[LocalHash], answer: &mut Answer) {
        self.core.device.matches_into(query, &mut answer.device);
        self.core.any.matches_into(query, &mut answer.any);
    }

    /// Returns once every event handed in before is visible.
    pub fn flush(&self) {
        self.core.device.flush();
        self.core.any.flush();
    }
}

/// Who holds how much of a query's prefix, and where. Keep one a thread.
#[derive(Clone, Default, Debug)]
pub struct Answer {
    device: Matches,
    any: Matches,
}

/// One rank's share of a query's prefix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Residence {
    /// Who holds it.
    pub worker: WorkerId,
    /// Leading blocks on the device.
    pub device: u32,
    /// Leading blocks on any tier; at least `device`, and at least 1.
    pub any: u32,
}

impl Answer {
    /// An empty answer; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The device's share.
    pub fn device(&self) -> &Matches {
        &self.device
    }

    /// The share of all tiers together. Beside running events it may be
    /// behind the device's.
    pub fn any(&self) -> &Matches {
        &self.any
    }

    /// Both for each rank, in ascending order of ranks. O(n log n) for n
    /// ranks found.
    pub fn residences(&self) -> Vec<Residence> {
        let of = |device: Match| (device.worker, device.depth, device.depth);
        let device = self.device.iter().map(of);
        let mut all: Vec<_> = device.collect();
        all.extend(self.any.iter().map(|any| (any.worker, 0, any.depth)));
        all.sort_unstable();
        let mut residences: Vec<Residence> = Vec::with_capacity(all.len());
        for (worker, device, any) in all {
            match residences.last_mut().filter(|last| last.worker == worker) {
                Some(last) => {
                    last.device = last.device.max(device);
                    last.any = last.any.max(any);
                }
                None => residences.push(Residence { worker, device, any }),
            }
        }
        residences
    }
}
