//! Payloads to a residency: whatever the bytes are, every event is either
//! read or counted, and afterwards both indexes hold what the rank says.
//!
//! An input is a byte of settings and then payloads, between which stand two
//! bytes that begin nothing in msgpack.

use std::cell::RefCell;

use kvradix::intake::{
    Answer, Batch, Decoder, Drops, Event, Limits, Origin, Prompt, RankOptions, Reason, Residency,
};
use kvradix::{Index, WorkerId};
use rmpv::Value;

/// What stands between two payloads.
pub const BETWEEN: [u8; 2] = [0xc1, 0xc1];

/// The payloads of an input.
fn payloads(mut rest: &[u8]) -> Vec<&[u8]> {
    let mut payloads = Vec::new();
    while let Some(at) = rest.windows(2).position(|pair| pair == BETWEEN) {
        payloads.push(&rest[..at]);
        rest = &rest[at + 2..];
    }
    payloads.push(rest);
    payloads
}

/// Runs an input.
///
/// # Panics
/// Where something is not as it must be.
pub fn check(input: &[u8]) {
    let Some((&settings, rest)) = input.split_first() else { return };
    let kept = Kept::take(settings & 3);
    let residency = &kept.residency;
    let options = RankOptions::default().copies(settings & 4 != 0);
    let ranks = [0, 1].map(|rank| residency.join(WorkerId::new(1, rank), options));
    let limits = if settings & 8 == 0 {
        Limits::default()
    } else {
        Limits { payload: 1 << 20, events: 4, hashes: 4, tokens: 8, text: 16, extra_keys: 2 }
    };
    let mut decoder = Decoder::new(limits);
    let origins = [Origin::Live, Origin::Replayed, Origin::Reannounced];
    for (number, payload) in payloads(rest).into_iter().enumerate() {
        let mut drops = Drops::new();
        let Ok(batch) = decoder.decode(payload, &mut drops) else {
            assert_eq!(drops.of(Reason::BadBatch), 1);
            continue;
        };
        counted(payload, &batch, &drops);
        within(&batch, &limits);
        let rank = &ranks[batch.rank.unwrap_or_default() as usize % 2];
        rank.apply(&batch, origins[number % 3], &mut drops);
    }
    let mut answer = Answer::new();
    for tokens in [[1; 8], [0; 8]] {
        residency.query(&residency.converter().hash_prompt(&Prompt::new(&tokens)), &mut answer);
        for found in answer.residences() {
            assert!(found.device <= found.any && found.any <= 8);
        }
    }
    residency.device().check();
    residency.any().check();
    for rank in &ranks {
        let stats = rank.stats();
        assert_eq!(residency.any().held(rank.id()) as u64, stats.any);
        assert_eq!(residency.device().held(rank.id()) as u64 + stats.waiting, stats.device);
        for (name, tiers) in rank.blocks() {
            assert!(!tiers.is_empty());
            assert!(residency.any().has(rank.id(), name));
        }
        rank.clear();
        assert_eq!(residency.any().held(rank.id()), 0);
    }
    assert_eq!(residency.remove(1), 2);
    assert_eq!(residency.any().stats().tree_blocks, 0);
    assert_eq!(residency.device().stats().tree_blocks, 0);
    kept.give_back(settings & 3);
}

/// A residency that inputs have left empty. To make one takes longer than to
/// run an input.
struct Kept {
    residency: Residency,
    /// Inputs it has seen: the media that it has met do not leave.
    inputs: usize,
}

thread_local! {
    /// By block size.
    static KEPT: RefCell<[Option<Kept>; 4]> = const { RefCell::new([const { None }; 4]) };
}

impl Kept {
    fn take(size: u8) -> Self {
        let kept = KEPT.with_borrow_mut(|kept| kept[usize::from(size)].take());
        kept.unwrap_or_else(|| {
            let index = || Index::builder().drain_threads(0).run_blocks(4).hub_threshold(2).build();
            let residency = Residency::with_indexes(1 + u32::from(size), index(), index());
            Self { residency, inputs: 0 }
        })
    }

    fn give_back(mut self, size: u8) {
        self.inputs += 1;
        if self.inputs < 64 {
            KEPT.with_borrow_mut(|kept| kept[usize::from(size)] = Some(self));
        }
    }
}

/// Where the payload is well formed, each of its events is read or counted.
fn counted(payload: &[u8], batch: &Batch<'_>, drops: &Drops) {
    let of_the_batch =
        [Reason::BadTimestamp, Reason::BadRank, Reason::Truncated, Reason::TrailingBytes];
    let lost: u64 =
        drops.iter().filter(|(reason, _)| !of_the_batch.contains(reason)).map(|(_, n)| n).sum();
    let mut rest = payload;
    let Ok(value) = rmpv::decode::read_value_with_max_depth(&mut rest, 32) else { return };
    assert!(batch.whole, "a well-formed payload was not read to its end");
    assert_eq!(drops.of(Reason::TrailingBytes), u64::from(!rest.is_empty()));
    let events = match &value {
        Value::Array(fields) => fields.get(1),
        Value::Map(pairs) => {
            let mut events = pairs.iter().filter(|(key, _)| key.as_str() == Some("events"));
            events.find(|(_, value)| value.is_array() || value.is_nil()).map(|(_, value)| value)
        }
        _ => None,
    };
    let events = events.and_then(Value::as_array).map_or(0, Vec::len);
    assert_eq!(batch.events.len() as u64 + lost, events as u64, "{drops:?}");
}

/// Nothing above its limit is let through.
fn within(batch: &Batch<'_>, limits: &Limits) {
    assert!(batch.events.len() <= limits.events);
    for event in &batch.events {
        match event {
            Event::Stored(stored) => {
                assert!(stored.hashes.len() <= limits.hashes);
                assert!(stored.tokens.len() <= limits.tokens);
                assert!(stored.salt.is_none_or(|salt| salt.len() <= limits.text));
                assert!(stored.medium.is_none_or(|medium| medium.len() <= limits.text));
                let keys = stored.extra_keys.to_vec();
                assert_eq!(keys.len(), stored.extra_keys.len());
                assert!(keys.iter().all(|keys| keys.len() <= limits.extra_keys));
            }
            Event::Removed(removed) => assert!(removed.hashes.len() <= limits.hashes),
            Event::Cleared => {}
        }
    }
}
