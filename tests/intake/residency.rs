//! Which tiers hold what: by hand, and on random streams held to the oracle.

use kvradix::hash::LocalHasher;
use kvradix::intake::{
    Adapter, Answer, Applied, Decoder, Drops, Image, Origin, Prompt, Rank, RankOptions, Reason,
    Residence, Residency, Tier,
};
use kvradix::reference::ReferenceIndex;
use kvradix::{Index, LocalHash, WorkerId};
use rand::Rng;
use rand::rngs::SmallRng;

use crate::encode::{ENGINES, Engine, Key, Remove, Said, Store, batch, bytes, event, rng};
use crate::oracle::{RankOracle, Told};

const WORKER: WorkerId = WorkerId::new(7, 0);

/// Indexes that show a removal when it is made.
fn residency(block_size: u32) -> Residency {
    let index = || Index::builder().drain_threads(0).run_blocks(8).hub_threshold(3).build();
    Residency::with_indexes(block_size, index(), index())
}

/// A rank, by hand: blocks of one token.
struct Hand {
    residency: Residency,
    rank: Rank,
    drops: Drops,
    rng: SmallRng,
}

impl Hand {
    fn new(copies: bool) -> Self {
        let residency = residency(1);
        let rank = residency.join(WORKER, RankOptions::default().copies(copies));
        Self { residency, rank, drops: Drops::new(), rng: rng(1) }
    }

    fn apply(&mut self, said: &[Said], origin: Origin) -> Applied {
        apply(&self.rank, said, Engine::VllmMap, origin, &mut self.drops, &mut self.rng)
    }

    fn live(&mut self, said: &[Said]) -> Applied {
        self.apply(said, Origin::Live)
    }

    /// Depths of the query of these tokens: on the device, on any tier.
    fn depths(&self, tokens: &[u32]) -> (u32, u32) {
        let mut answer = Answer::new();
        let query = self.residency.converter().hash_prompt(&Prompt::new(tokens));
        self.residency.query(&query, &mut answer);
        let found = answer.residences().into_iter().find(|found| found.worker == WORKER);
        found.map_or((0, 0), |found| (found.device, found.any))
    }

    /// What was left out since the last time.
    fn dropped(&mut self) -> Vec<(Reason, u64)> {
        std::mem::take(&mut self.drops).iter().collect()
    }
}

fn apply(
    rank: &Rank,
    said: &[Said],
    engine: Engine,
    origin: Origin,
    drops: &mut Drops,
    rng: &mut SmallRng,
) -> Applied {
    let events = said.iter().map(|said| event(said, engine, rng)).collect();
    let (payload, _) = bytes(&batch(events, Some(0), rng), rng);
    let mut decoder = Decoder::default();
    let batch = decoder.decode(&payload, drops).unwrap();
    assert_eq!(batch.events.len(), said.len());
    rank.apply(&batch, origin, drops)
}

/// Blocks whose names are their tokens times a hundred.
fn stored(parent: Option<u64>, tokens: &[u32], medium: &str) -> Said {
    Said::Store(Store {
        hashes: tokens.iter().map(|&token| u64::from(token) * 100).collect(),
        parent,
        tokens: tokens.to_vec(),
        block_size: 1,
        medium: Some(medium.into()),
        ..Store::default()
    })
}

/// An offload that names hashes alone.
fn offloaded(hashes: &[u64], medium: &str) -> Said {
    let (hashes, medium) = (hashes.to_vec(), Some(medium.into()));
    Said::Store(Store { hashes, block_size: 1, medium, ..Store::default() })
}

fn removed(hashes: &[u64], medium: &str) -> Said {
    Said::Remove(Remove { hashes: hashes.to_vec(), medium: Some(medium.into()), group: None })
}

#[test]
fn a_block_is_found_until_its_last_tier_is_gone() {
    let mut hand = Hand::new(false);
    hand.live(&[stored(None, &[1, 2, 3], "GPU")]);
    assert_eq!(hand.depths(&[1, 2, 3, 4]), (3, 3));
    hand.live(&[offloaded(&[100, 200], "CPU")]);
    hand.live(&[removed(&[200, 300], "GPU")]);
    assert_eq!(hand.depths(&[1, 2, 3]), (1, 2));
    hand.live(&[offloaded(&[200], "DISK"), removed(&[200], "CPU")]);
    assert_eq!(hand.depths(&[1, 2, 3]), (1, 2));
    hand.live(&[removed(&[200], "disk")]);
    assert_eq!(hand.depths(&[1, 2, 3]), (1, 1));
    assert_eq!(hand.dropped(), []);
    assert_eq!(hand.live(&[removed(&[200], "DISK"), removed(&[100], "TAPE")]), Applied::default());
    assert_eq!(hand.dropped(), [(Reason::UnknownRemoval, 2)]);
}

#[test]
fn an_offload_of_a_hash_never_seen_is_counted_and_nothing_else() {
    let mut hand = Hand::new(false);
    hand.live(&[stored(None, &[1], "GPU"), offloaded(&[100, 900], "CPU")]);
    assert_eq!(hand.dropped(), [(Reason::UnknownBlock, 1)]);
    assert_eq!(hand.rank.stats().any, 1);
    // Nor is it remembered for later.
    hand.live(&[stored(Some(100), &[9], "GPU"), removed(&[900], "GPU")]);
    assert_eq!(hand.depths(&[1, 9]), (1, 1));
    assert_eq!(hand.dropped(), []);
}

#[test]
fn an_offload_told_after_the_eviction_in_the_same_batch_still_finds_its_place() {
    let mut hand = Hand::new(false);
    hand.live(&[stored(None, &[1, 2], "GPU")]);
    hand.live(&[removed(&[100, 200], "GPU"), offloaded(&[100, 200], "CPU")]);
    assert_eq!(hand.depths(&[1, 2]), (0, 2));
    assert_eq!(hand.dropped(), []);
    // In the next batch it is too late.
    hand.live(&[removed(&[200], "CPU")]);
    hand.live(&[offloaded(&[200], "CPU")]);
    assert_eq!(hand.depths(&[1, 2]), (0, 1));
    assert_eq!(hand.dropped(), [(Reason::UnknownBlock, 1)]);
    // And nothing can be stored below what is gone, not even in its batch.
    hand.live(&[removed(&[100], "CPU"), stored(Some(100), &[5], "GPU")]);
    assert_eq!(hand.dropped(), [(Reason::ParentNotFound, 1)]);
    assert_eq!(hand.rank.stats().any, 0);
}

#[test]
fn an_offload_may_have_its_parent_on_another_tier() {
    let mut hand = Hand::new(false);
    hand.live(&[stored(None, &[1], "GPU"), stored(Some(100), &[2, 3], "CPU")]);
    assert_eq!(hand.depths(&[1, 2, 3]), (1, 3));
    hand.live(&[stored(Some(300), &[4], "OBJ")]);
    assert_eq!(hand.depths(&[1, 2, 3, 4]), (1, 4));
    assert_eq!(hand.dropped(), []);
}

#[test]
fn a_device_block_below_an_offloaded_one_counts_once_that_is_back() {
    let mut hand = Hand::new(false);
    hand.live(&[stored(None, &[1, 2], "GPU"), offloaded(&[200], "CPU"), removed(&[200], "GPU")]);
    hand.live(&[stored(Some(200), &[3, 4], "GPU"), stored(Some(400), &[5], "GPU")]);
    hand.live(&[stored(Some(300), &[6], "GPU")]);
    assert_eq!(hand.depths(&[1, 2, 3, 4, 5]), (1, 5));
    let stats = hand.rank.stats();
    assert_eq!((stats.device, stats.any, stats.waiting), (5, 6, 4));
    // One that waits may go, and come back.
    hand.live(&[removed(&[400], "GPU")]);
    assert_eq!(hand.rank.stats().waiting, 3);
    hand.live(&[stored(Some(100), &[2], "GPU")]);
    assert_eq!(hand.depths(&[1, 2, 3, 4, 5]), (3, 3));
    assert_eq!(hand.depths(&[1, 2, 3, 6]), (4, 4));
    assert_eq!(hand.rank.stats().waiting, 1);
    hand.live(&[stored(Some(300), &[4], "GPU")]);
    assert_eq!(hand.depths(&[1, 2, 3, 4, 5]), (5, 5));
    assert_eq!(hand.rank.stats().waiting, 0);
    assert_eq!(hand.dropped(), []);
}

#[test]
fn a_block_that_comes_back_by_its_name_alone_is_on_the_device_again() {
    let mut hand = Hand::new(false);
    hand.live(&[stored(None, &[1, 2, 3, 4], "GPU"), offloaded(&[100, 200, 300, 400], "CPU")]);
    hand.live(&[removed(&[100, 200, 300, 400], "GPU")]);
    assert_eq!(hand.depths(&[1, 2, 3, 4]), (0, 4));
    // The third waits for the second.
    hand.live(&[offloaded(&[300, 100], "GPU")]);
    assert_eq!(hand.depths(&[1, 2, 3, 4]), (1, 4));
    hand.live(&[offloaded(&[200], "GPU")]);
    assert_eq!(hand.depths(&[1, 2, 3, 4]), (3, 4));
    // One whose parent is nowhere cannot be placed.
    hand.live(&[removed(&[300], "GPU"), removed(&[300], "CPU")]);
    hand.live(&[offloaded(&[400], "GPU")]);
    assert_eq!(hand.dropped(), [(Reason::UnknownBlock, 1)]);
    assert_eq!(hand.depths(&[1, 2, 3, 4]), (2, 2));
    hand.live(&[stored(Some(200), &[3], "CPU"), offloaded(&[400], "GPU")]);
    hand.live(&[offloaded(&[300], "GPU")]);
    assert_eq!(hand.depths(&[1, 2, 3, 4]), (4, 4));
    assert_eq!(hand.dropped(), []);
}

#[test]
fn a_clear_concerns_the_rank_that_sent_it_and_all_its_tiers() {
    let residency = residency(1);
    let (mut drops, mut rng) = (Drops::new(), rng(2));
    let ranks = [0, 1].map(|rank| residency.join(WorkerId::new(7, rank), RankOptions::default()));
    let said = [stored(None, &[1, 2], "GPU"), offloaded(&[100], "CPU")];
    for rank in &ranks {
        apply(rank, &said, Engine::VllmArray, Origin::Live, &mut drops, &mut rng);
    }
    let applied =
        apply(&ranks[1], &[Said::Clear], Engine::SglangMap, Origin::Live, &mut drops, &mut rng);
    assert_eq!(applied.cleared, 1);
    assert_eq!((ranks[0].stats().any, ranks[1].stats().any), (2, 0));
    let mut answer = Answer::new();
    residency.query(&residency.converter().hash_prompt(&Prompt::new(&[1, 2])), &mut answer);
    let found = Residence { worker: WorkerId::new(7, 0), device: 2, any: 2 };
    assert_eq!(answer.residences(), [found]);
    // The rank goes on.
    apply(&ranks[1], &said, Engine::VllmArray, Origin::Live, &mut drops, &mut rng);
    assert_eq!(ranks[1].stats().any, 2);
    assert_eq!(drops.total(), 0);
}

#[test]
fn copies_are_counted_where_the_source_says_so_and_in_live_batches_alone() {
    for copies in [false, true] {
        let mut hand = Hand::new(copies);
        let (store, remove) = (stored(None, &[1, 2], "GPU"), removed(&[100, 200], "GPU"));
        hand.live(&[store.clone(), store.clone()]);
        hand.apply(std::slice::from_ref(&store), Origin::Replayed);
        hand.apply(std::slice::from_ref(&store), Origin::Reannounced);
        assert_eq!(hand.rank.stats().copies, if copies { 2 } else { 0 });
        hand.live(std::slice::from_ref(&remove));
        assert_eq!(hand.depths(&[1, 2]), if copies { (2, 2) } else { (0, 0) });
        hand.apply(std::slice::from_ref(&remove), Origin::Replayed);
        assert_eq!(hand.depths(&[1, 2]), (0, 0));
        assert_eq!(hand.drops.of(Reason::UnknownRemoval), if copies { 0 } else { 2 });
        assert_eq!(hand.rank.stats().copies, 0);
    }
    // Each tier has copies of its own.
    let mut hand = Hand::new(true);
    let twice = [stored(None, &[1], "GPU"), offloaded(&[100], "CPU"), offloaded(&[100], "CPU")];
    hand.live(&twice);
    hand.live(&[removed(&[100], "GPU"), removed(&[100], "CPU")]);
    assert_eq!(hand.depths(&[1]), (0, 1));
    hand.live(&[removed(&[100], "CPU")]);
    assert_eq!(hand.depths(&[1]), (0, 0));
}

#[test]
fn a_report_of_all_that_is_held_changes_nothing_that_is_known() {
    let mut hand = Hand::new(true);
    hand.live(&[stored(None, &[1, 2], "GPU"), stored(None, &[1], "GPU"), offloaded(&[200], "CPU")]);
    let before = (hand.rank.stats(), hand.depths(&[1, 2]));
    for _ in 0..2 {
        let report = [stored(None, &[1, 2], "GPU"), offloaded(&[200], "CPU")];
        hand.apply(&report, Origin::Reannounced);
    }
    assert_eq!((hand.rank.stats(), hand.depths(&[1, 2])), before);
    // What was not known is known then, once.
    hand.apply(&[stored(Some(200), &[3], "GPU")], Origin::Reannounced);
    hand.live(&[removed(&[300], "GPU")]);
    assert_eq!((hand.rank.stats(), hand.depths(&[1, 2])), before);
}

#[test]
fn late_batches_of_a_rank_that_left_start_nothing() {
    let mut hand = Hand::new(false);
    let other = hand.residency.join(WorkerId::new(7, 3), RankOptions::default());
    let kept = hand.residency.join(WorkerId::new(8, 0), RankOptions::default());
    let store = [stored(None, &[1], "GPU")];
    hand.live(&store);
    assert_eq!(hand.residency.remove(7), 2);
    assert_eq!(hand.residency.remove(7), 0);
    assert!(hand.rank.has_left() && other.has_left() && !kept.has_left());
    let applied = hand.live(&store);
    assert!(applied.left);
    hand.rank.clear();
    assert_eq!(hand.dropped(), [(Reason::RankLeft, 1)]);
    assert_eq!(hand.residency.device().workers(), []);
    assert_eq!(hand.residency.any().workers(), []);
    assert_eq!(hand.residency.ranks(), [WorkerId::new(8, 0)]);

    // A new life has nothing of the old one, which stays without effect.
    let old = hand.rank.clone();
    hand.rank = hand.residency.join(WORKER, RankOptions::default());
    hand.live(&store);
    let mut decoder = Decoder::default();
    let clear = b"\x92\x00\x91\x91\xb0AllBlocksCleared";
    let late = decoder.decode(clear, &mut hand.drops).unwrap();
    assert!(old.apply(&late, Origin::Live, &mut hand.drops).left);
    assert_eq!(hand.depths(&[1]), (1, 1));
    // Joining again ends a life as leaving does.
    let new = hand.residency.join(WORKER, RankOptions::default());
    assert!(hand.rank.has_left() && !new.has_left());
    assert_eq!(hand.depths(&[1]), (0, 0));
    assert!(hand.residency.remove_rank(WORKER) && !hand.residency.remove_rank(WORKER));
    assert!(hand.residency.rank(WORKER).is_none());
}

#[test]
fn only_one_group_of_full_attention_is_followed() {
    let mut hand = Hand::new(true);
    let of = |group, kind: Option<&str>, said: Said| match said {
        Said::Store(store) => Said::Store(Store { group, kind: kind.map(str::to_owned), ..store }),
        Said::Remove(remove) => Said::Remove(Remove { group, ..remove }),
        Said::Clear => Said::Clear,
    };
    let full = Some("full_attention");
    let store = || stored(None, &[1, 2], "GPU");
    hand.live(&[of(Some(0), Some("sliding_window"), store())]);
    assert_eq!(hand.dropped(), [(Reason::OtherGroup, 1)]);
    hand.live(&[of(Some(1), full, store()), of(Some(2), full, store())]);
    assert_eq!(hand.dropped(), [(Reason::OtherGroup, 1)]);
    assert_eq!(hand.rank.stats().copies, 0);
    // Removals have no kind: the number decides.
    hand.live(&[
        of(Some(0), None, removed(&[100], "GPU")),
        of(Some(2), None, removed(&[100], "GPU")),
    ]);
    assert_eq!(hand.dropped(), [(Reason::OtherGroup, 2)]);
    assert_eq!(hand.depths(&[1, 2]), (2, 2));
    hand.live(&[of(Some(1), None, removed(&[100], "GPU"))]);
    assert_eq!(hand.depths(&[1, 2]), (0, 0));
    // After a restart another may be first.
    hand.rank.clear();
    hand.live(&[of(Some(2), full, store())]);
    assert_eq!(hand.dropped(), []);
}

#[test]
fn removals_of_another_group_leave_blocks_of_no_numbered_one() {
    let mut hand = Hand::new(true);
    let remove = |group| match removed(&[100], "GPU") {
        Said::Remove(remove) => Said::Remove(Remove { group, ..remove }),
        other => other,
    };
    hand.live(&[stored(None, &[1], "GPU")]);
    hand.live(&[remove(Some(1))]);
    assert_eq!(hand.dropped(), [(Reason::OtherGroup, 1)]);
    assert_eq!(hand.depths(&[1]), (1, 1));
    // The first group may go without its number.
    hand.live(&[remove(Some(0))]);
    assert_eq!(hand.dropped(), []);
    assert_eq!(hand.depths(&[1]), (0, 0));
}

#[test]
fn stores_that_cannot_be_are_refused_whole() {
    let mut hand = Hand::new(false);
    hand.live(&[stored(None, &[1], "GPU")]);
    let mut refused = |said: Said, reason| {
        hand.live(&[said]);
        assert_eq!(hand.dropped(), [(reason, 1)]);
        assert_eq!(hand.rank.stats().any, 1);
    };
    refused(stored(Some(100), &[2, 3, 2], "GPU"), Reason::RepeatedHash);
    refused(stored(Some(100), &[2, 1], "GPU"), Reason::OwnParent);
    refused(stored(Some(900), &[2], "GPU"), Reason::ParentNotFound);
    refused(stored(Some(900), &[2], "CPU"), Reason::ParentNotFound);
    let wide = |said| match said {
        Said::Store(store) => Said::Store(Store { block_size: 4, ..store }),
        other => other,
    };
    refused(wide(offloaded(&[100], "CPU")), Reason::OtherBlockSize);
    refused(wide(stored(None, &[2, 3, 4, 5], "CPU")), Reason::OtherBlockSize);
}

#[test]
fn what_an_index_has_no_room_for_is_counted_and_not_held_there() {
    let index = |most| Index::builder().drain_threads(0).max_worker_blocks(most).build();
    for (device, any) in [(2, 9), (9, 2)] {
        let residency = Residency::with_indexes(1, index(device), index(any));
        let rank = residency.join(WORKER, RankOptions::default().copies(true));
        let mut hand = Hand { residency, rank, drops: Drops::new(), rng: rng(3) };
        hand.live(&[stored(None, &[1, 2], "GPU"), stored(None, &[1, 2], "GPU")]);
        hand.live(&[offloaded(&[200], "CPU"), stored(Some(200), &[3, 4], "GPU")]);
        assert_eq!(hand.dropped(), [(Reason::Full, 1)]);
        let stats = hand.rank.stats();
        assert_eq!((stats.device, stats.any, stats.copies, stats.waiting), (2, 2, 2, 0));
        assert_eq!(hand.depths(&[1, 2, 3, 4]), (2, 2));
        // There is room again.
        hand.live(&[removed(&[100], "GPU"), removed(&[100], "GPU")]);
        hand.live(&[stored(Some(200), &[3], "GPU"), stored(None, &[1], "CPU")]);
        assert_eq!(hand.depths(&[1, 2, 3, 4]).0, 0);
        assert_eq!(hand.rank.stats().device, 2);
    }
}

#[test]
fn media_beyond_those_that_can_be_told_apart_are_refused() {
    let mut hand = Hand::new(false);
    hand.live(&[stored(None, &[1], "GPU")]);
    for number in 0..40 {
        hand.live(&[offloaded(&[100], &format!("tape {number}"))]);
    }
    let refused = hand.drops.of(Reason::TooManyMedia);
    assert!((1..40).contains(&refused));
    let tiers = hand.rank.tiers_of(kvradix::SequenceHash(100));
    assert_eq!(tiers.iter().count() as u64, 1 + 40 - refused);
    for tier in tiers.iter() {
        let medium = hand.residency.medium(tier).unwrap();
        assert_eq!(hand.residency.tier(&medium), Some(tier));
        hand.live(&[removed(&[100], &medium.to_uppercase())]);
    }
    assert_eq!(hand.rank.stats().any, 0);
}

/// A request, whose blocks every rank names in its own way.
pub struct Request {
    tokens: Vec<u32>,
    adapter: Option<(i64, &'static str)>,
    salt: Option<&'static str>,
    image: Option<(&'static str, usize, usize)>,
}

const SIZE: usize = 2;

impl Request {
    pub fn random(rng: &mut SmallRng) -> Self {
        // Few tokens, so that prompts share beginnings.
        let tokens = (0..rng.random_range(1..=8) * SIZE).map(|_| rng.random_range(1..3)).collect();
        let mut pick = |many| rng.random_range(0..many) as usize;
        Self {
            tokens,
            adapter: [None, None, None, Some((1, "a")), Some((2, "b"))][pick(5)],
            salt: [None, None, None, Some("s"), Some("a")][pick(5)],
            image: [None, None, None, Some(("cat", 1, 4)), Some(("cat", 2, 4))][pick(5)],
        }
    }

    fn locals(&self, residency: &Residency) -> Vec<LocalHash> {
        let images: Vec<_> =
            self.image.iter().map(|&(id, start, tokens)| Image { id, start, tokens }).collect();
        let adapter = self.adapter.map_or(Adapter::None, |(_, name)| Adapter::Name(name));
        let prompt = Prompt { tokens: &self.tokens, adapter, salt: self.salt, images: &images };
        residency.converter().hash_prompt(&prompt)
    }

    /// What vLLM adds to the hash of block `block`.
    fn keys(&self, block: usize) -> Vec<Key> {
        let mut keys: Vec<Key> = Vec::new();
        keys.extend(self.adapter.map(|(_, name)| Key::Text(name.into())));
        if let Some((id, start, tokens)) = self.image
            && start < (block + 1) * SIZE
            && start + tokens > block * SIZE
        {
            keys.push(Key::Image(id.into(), start as i64 - (block * SIZE) as i64));
        }
        keys.extend(self.salt.filter(|_| block == 0).map(|salt| Key::Text(salt.into())));
        keys
    }

    /// The store of blocks `from..to`, as this engine tells it.
    fn store(&self, names: &[u64], from: usize, to: usize, engine: Engine) -> Store {
        let keys = (from..to).map(|block| Some(self.keys(block)).filter(|keys| !keys.is_empty()));
        let store = Store {
            hashes: names[from..to].to_vec(),
            parent: from.checked_sub(1).map(|above| names[above]),
            tokens: self.tokens[from * SIZE..to * SIZE].to_vec(),
            block_size: SIZE as u32,
            ..Store::default()
        };
        if engine.is_sglang() {
            return Store { salt: self.salt.map(str::to_owned), ..store };
        }
        Store {
            lora_id: self.adapter.map(|(id, _)| id),
            lora_name: self.adapter.map(|(_, name)| name.to_owned()),
            keys: Some(keys.collect()),
            ..store
        }
    }
}

/// The name of each block of a prefix, from all that makes it what it is.
fn names(seed: u64, locals: &[LocalHash]) -> Vec<u64> {
    let mut name = seed;
    let step = |local: &LocalHash| {
        name = (name ^ local.0).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29) ^ seed;
        name
    };
    locals.iter().map(step).collect()
}

pub struct Fleet {
    residency: Residency,
    ranks: Vec<(Rank, RankOracle, Engine, u64)>,
}

impl Fleet {
    pub fn new(seed: u64) -> Self {
        let residency = residency(SIZE as u32);
        let mut rng = rng(seed);
        let rank = |number: u64| {
            let copies = rng.random_bool(0.5);
            let id = WorkerId::new(number / 2, number as u32 % 2);
            let rank = residency.join(id, RankOptions::default().copies(copies));
            // Some fleets name blocks alike, others each in its own way.
            let names = if seed.is_multiple_of(2) { 1 } else { number + 2 };
            (rank, RankOracle::new(copies), ENGINES[number as usize % 4], names)
        };
        let ranks = (0..4).map(rank).collect();
        Self { residency, ranks }
    }

    /// What this rank's engine could publish next, or could not.
    pub fn told(&self, at: usize, requests: &[Request], rng: &mut SmallRng) -> (Vec<Told>, Engine) {
        let (_, _, engine, seed) = &self.ranks[at];
        let media =
            [None, Some("GPU"), Some("gpu"), Some("GPU"), Some("CPU"), Some("cpu"), Some("NVME")];
        let mut told = Vec::new();
        for _ in 0..rng.random_range(1..6) {
            let mut medium = media[rng.random_range(0..media.len())].map(str::to_owned);
            let request = &requests[rng.random_range(0..requests.len())];
            if engine.is_sglang() && (request.adapter.is_some() || request.image.is_some()) {
                continue;
            }
            let locals = request.locals(&self.residency);
            let names = names(*seed, &locals);
            let from = if rng.random_bool(0.5) { 0 } else { rng.random_range(0..names.len()) };
            let to = rng.random_range(from..names.len()) + 1;
            let mut of = Vec::new();
            let said = match rng.random_range(0..100) {
                0..45 => {
                    let mut store = request.store(&names, from, to, *engine);
                    of = locals[from..to].to_vec();
                    store.medium = medium;
                    if !engine.is_sglang() && rng.random_bool(0.3) {
                        store.group = Some(rng.random_range(0..3));
                        let kinds = ["full_attention", "full_attention", "mamba"];
                        store.kind = Some(kinds[rng.random_range(0..3)].into());
                    }
                    if rng.random_ratio(1, 20) && to - from > 1 {
                        store.hashes[0] = store.hashes[1];
                    }
                    if rng.random_ratio(1, 40) {
                        store.parent = store.hashes.last().copied();
                    }
                    Said::Store(store)
                }
                45..65 => {
                    // Offloads, and now and then a block that nobody knows.
                    let mut hashes = names[from..to].to_vec();
                    hashes.extend(rng.random_bool(0.1).then_some(5));
                    medium = Some(["CPU", "NVME", "DISK", "GPU"][rng.random_range(0..4)].into());
                    let block_size = SIZE as u32;
                    Said::Store(Store { hashes, block_size, medium, ..Store::default() })
                }
                65..99 => {
                    let group = (!engine.is_sglang() && rng.random_bool(0.1)).then_some(1);
                    Said::Remove(Remove { hashes: names[from..to].to_vec(), medium, group })
                }
                _ => Said::Clear,
            };
            told.push(Told { said, locals: of });
        }
        (told, *engine)
    }

    /// A batch for one rank, both to it and to its oracle.
    fn step(&mut self, requests: &[Request], rng: &mut SmallRng) {
        let at = rng.random_range(0..self.ranks.len());
        if rng.random_ratio(1, 300) {
            let (rank, oracle, ..) = &mut self.ranks[at];
            rank.clear();
            oracle.clear();
            return;
        }
        let (told, engine) = self.told(at, requests, rng);
        let (rank, oracle, ..) = &mut self.ranks[at];
        let origins = [Origin::Live, Origin::Live, Origin::Replayed, Origin::Reannounced];
        let origin = origins[rng.random_range(0..origins.len())];
        let said: Vec<Said> = told.iter().map(|told| told.said.clone()).collect();
        let mut drops = Drops::new();
        apply(rank, &said, engine, origin, &mut drops, rng);
        let expected = oracle.apply(&told, origin);
        let found: Vec<Reason> =
            drops.iter().flat_map(|(reason, count)| vec![reason; count as usize]).collect();
        assert_eq!(found, expected, "{said:#?}");
    }

    fn compare(&self, requests: &[Request]) {
        let (mut device, mut any) = (ReferenceIndex::new(), ReferenceIndex::new());
        for (rank, oracle, ..) in &self.ranks {
            oracle.feed(&mut device, rank.id(), true);
            oracle.feed(&mut any, rank.id(), false);
            let stats = rank.stats();
            assert_eq!(stats.any, oracle.names().len() as u64);
            assert_eq!(stats.device, oracle.on_device());
            assert_eq!(stats.copies, oracle.further_copies());
            let mut blocks = rank.blocks();
            blocks.sort_unstable_by_key(|(name, _)| *name);
            assert!(blocks.iter().map(|(name, _)| name.0).eq(oracle.names()));
            for (name, tiers) in blocks {
                let named = |tier| self.residency.medium(tier).unwrap().to_uppercase();
                let mut media: Vec<_> = tiers.iter().map(named).collect();
                media.sort();
                assert_eq!(media, oracle.tiers(name.0));
                assert_eq!(tiers.has(Tier::DEVICE), media.contains(&"GPU".to_owned()));
            }
            assert_eq!(self.residency.any().held(rank.id()) as u64, stats.any);
        }
        let mut answer = Answer::new();
        for request in requests {
            let query = request.locals(&self.residency);
            self.residency.query(&query, &mut answer);
            let (on_device, on_any) = (device.matches(&query), any.matches(&query));
            for (rank, ..) in &self.ranks {
                let id = rank.id();
                assert_eq!(answer.device().depth_of(id), on_device.depth_of(id), "device, {id}");
                assert_eq!(answer.any().depth_of(id), on_any.depth_of(id), "any, {id}");
            }
            let residences = answer.residences();
            assert_eq!(residences.len(), on_any.len());
            for found in residences {
                assert_eq!(found.device, on_device.depth_of(found.worker));
                assert_eq!(found.any, on_any.depth_of(found.worker));
            }
        }
    }
}

#[test]
fn random_streams_of_a_fleet_answer_as_the_oracle_does() {
    for seed in 0..12 {
        let mut rng = rng(seed);
        let requests: Vec<Request> = (0..20).map(|_| Request::random(&mut rng)).collect();
        let mut fleet = Fleet::new(seed);
        for step in 0..1_500 {
            fleet.step(&requests, &mut rng);
            if step % 10 == 0 {
                fleet.compare(&requests);
            }
        }
        fleet.residency.device().check();
        fleet.residency.any().check();
    }
}

#[test]
fn waiting_blocks_occur_in_the_random_streams_and_all_leave_in_the_end() {
    let mut rng = rng(5);
    let requests: Vec<Request> = (0..20).map(|_| Request::random(&mut rng)).collect();
    let mut fleet = Fleet::new(5);
    let mut most = 0;
    for _ in 0..2_000 {
        fleet.step(&requests, &mut rng);
        most = most.max(fleet.ranks.iter().map(|(rank, ..)| rank.stats().waiting).max().unwrap());
    }
    assert!(most > 2, "{most}");
    for (rank, ..) in &fleet.ranks {
        rank.clear();
        assert_eq!(rank.stats(), Default::default());
    }
    let nothing = fleet.residency.any().stats();
    assert_eq!((nothing.tree_blocks, nothing.lookup_entries), (0, 0));
    let nothing = fleet.residency.device().stats();
    assert_eq!((nothing.tree_blocks, nothing.lookup_entries), (0, 0));
}

#[test]
fn queries_by_the_plain_hasher_find_adapters_and_salts() {
    let mut hand = Hand::new(false);
    let salted = Store {
        hashes: vec![1],
        tokens: vec![5],
        block_size: 1,
        lora_name: Some("lora".into()),
        keys: Some(vec![Some(vec![Key::Text("lora".into()), Key::Text("salt".into())])]),
        ..Store::default()
    };
    let below = Store {
        hashes: vec![2],
        parent: Some(1),
        tokens: vec![6],
        block_size: 1,
        lora_name: Some("lora".into()),
        keys: Some(vec![Some(vec![Key::Text("lora".into())])]),
        ..Store::default()
    };
    hand.live(&[Said::Store(salted), Said::Store(below)]);
    assert_eq!(hand.dropped(), []);
    let depth = |hasher: LocalHasher| {
        hand.residency.device().matches(&hasher.hash_blocks(&[5, 6])).depth_of(WORKER)
    };
    assert_eq!(depth(LocalHasher::new(1).adapter("lora").salt("salt")), 2);
    assert_eq!(depth(LocalHasher::new(1).adapter("lora")), 0);
    assert_eq!(depth(LocalHasher::new(1).salt("salt")), 0);
    assert_eq!(depth(LocalHasher::new(1)), 0);
}
