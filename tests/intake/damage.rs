//! Hostile and broken payloads.

use std::time::{Duration, Instant};

use kvradix::WorkerId;
use kvradix::intake::{Decoder, Drops, Limits, Origin, RankOptions, Reason, Residency};
use rand::Rng;
use rmpv::Value;

use crate::encode::{ENGINES, batch, bytes, event, is_what_was_said, nested, random_event, rng};

/// An event's bytes, and where its fields are in them.
type Piece = (Vec<u8>, Vec<std::ops::Range<usize>>);

/// A few events, and their bytes each by itself.
fn pieces(seed: u64) -> (Vec<crate::encode::Said>, Vec<Piece>) {
    let mut rng = rng(seed);
    let mut said = Vec::new();
    let mut pieces = Vec::new();
    for _ in 0..5 {
        let engine = ENGINES[rng.random_range(0..ENGINES.len())];
        let next = random_event(engine, &mut rng);
        pieces.push(bytes(&event(&next, engine, &mut rng), &mut rng));
        said.push(next);
    }
    (said, pieces)
}

/// A batch of events that are bytes already.
fn joined<'a>(pieces: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut payload = b"\x93\xcb\x3f\xf8\0\0\0\0\0\0".to_vec();
    payload.push(0x90 + pieces.len() as u8);
    pieces.for_each(|piece| payload.extend(piece));
    payload.push(0x05);
    payload
}

#[test]
fn damage_to_the_content_of_one_event_leaves_the_others_as_they_were() {
    let mut decoder = Decoder::default();
    for seed in 0..3_000 {
        let (said, mut pieces) = pieces(seed);
        let mut rng = rng(!seed);
        let hit = rng.random_range(0..pieces.len());
        let (piece, content) = &mut pieces[hit];
        if content.is_empty() {
            continue;
        }
        for _ in 0..rng.random_range(1..6) {
            let range = content[rng.random_range(0..content.len())].clone();
            if !range.is_empty() {
                piece[rng.random_range(range)] = rng.random();
            }
        }
        let payload = joined(pieces.iter().map(|(piece, _)| piece.as_slice()));
        let mut drops = Drops::new();
        let read = decoder.decode(&payload, &mut drops).unwrap();
        assert!(read.whole, "seed {seed}");
        assert_eq!(read.rank, Some(5));
        assert_eq!(read.events.len() as u64 + drops.total(), said.len() as u64, "seed {seed}");
        assert!(drops.total() <= 1, "seed {seed}: {drops:?}");
        let lost = drops.total() == 1;
        for (at, said) in said.iter().enumerate().filter(|&(at, _)| at != hit) {
            let read = &read.events[at - usize::from(lost && at > hit)];
            assert!(is_what_was_said(read, said), "seed {seed}: {read:?} for {said:?}");
        }
    }
}

#[test]
fn any_value_in_the_place_of_any_other_costs_its_event_at_most() {
    let mut decoder = Decoder::default();
    for seed in 0..3_000 {
        let mut rng = rng(seed);
        let (mut said, mut events) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            let engine = ENGINES[rng.random_range(0..ENGINES.len())];
            let next = random_event(engine, &mut rng);
            events.push(event(&next, engine, &mut rng));
            said.push(next);
        }
        let hit = rng.random_range(0..events.len());
        let odd = nested(&mut rng, 3);
        match &mut events[hit] {
            Value::Array(values) => {
                let at = rng.random_range(0..values.len());
                values[at] = odd;
            }
            Value::Map(pairs) => {
                let at = rng.random_range(0..pairs.len());
                pairs[at].1 = odd;
            }
            _ => unreachable!("an event is one of both"),
        }
        let (payload, _) = bytes(&batch(events, None, &mut rng), &mut rng);
        let mut drops = Drops::new();
        let read = decoder.decode(&payload, &mut drops).unwrap();
        assert!(read.whole);
        assert_eq!(read.events.len() as u64 + drops.total(), 4, "seed {seed}");
        let lost = drops.total() == 1;
        for (at, said) in said.iter().enumerate().filter(|&(at, _)| at != hit) {
            let read = &read.events[at - usize::from(lost && at > hit)];
            assert!(is_what_was_said(read, said), "seed {seed}: {read:?} for {said:?}");
        }
    }
}

#[test]
fn a_payload_that_ends_early_keeps_what_came_before() {
    let mut decoder = Decoder::default();
    for seed in 0..100 {
        let (said, pieces) = pieces(seed);
        let payload = joined(pieces.iter().map(|(piece, _)| piece.as_slice()));
        let mut ends = vec![11];
        for (piece, _) in &pieces {
            ends.push(ends.last().unwrap() + piece.len());
        }
        for cut in 11..payload.len() {
            let mut drops = Drops::new();
            let read = decoder.decode(&payload[..cut], &mut drops).unwrap();
            assert!(!read.whole);
            assert_eq!(drops.iter().collect::<Vec<_>>(), [(Reason::Truncated, 1)]);
            let whole = ends[1..].iter().filter(|&&end| end <= cut).count();
            assert_eq!(read.events.len(), whole, "seed {seed}, cut at {cut}");
            assert!(read.events.iter().zip(&said).all(|(read, said)| is_what_was_said(read, said)));
        }
    }
}

#[test]
fn arbitrary_damage_neither_panics_nor_corrupts() {
    let residency = Residency::new(2);
    let rank = residency.join(WorkerId::new(1, 0), RankOptions::default().copies(true));
    let mut decoder = Decoder::default();
    for seed in 0..4_000 {
        let (_, pieces) = pieces(seed);
        let mut payload = joined(pieces.iter().map(|(piece, _)| piece.as_slice()));
        let mut rng = rng(!seed);
        for _ in 0..rng.random_range(1..8) {
            let at = rng.random_range(0..payload.len());
            match rng.random_range(0..4) {
                0 => payload[at] = rng.random(),
                1 => payload[at] ^= 1 << rng.random_range(0..8),
                2 => payload.insert(at, rng.random()),
                _ => {
                    payload.remove(at);
                }
            }
        }
        let mut drops = Drops::new();
        if let Ok(batch) = decoder.decode(&payload, &mut drops) {
            rank.apply(&batch, Origin::Live, &mut drops);
        }
    }
    residency.flush();
    residency.device().check();
    residency.any().check();
    assert_eq!(residency.any().held(rank.id()) as u64, rank.stats().any);
    let placed = rank.stats().device - rank.stats().waiting;
    assert_eq!(residency.device().held(rank.id()) as u64, placed);
}

/// A value at the depth of `depth` arrays of one element.
fn deep(depth: usize) -> Vec<u8> {
    let mut bytes = vec![0x91; depth];
    bytes.push(0xc0);
    bytes
}

#[test]
fn depth_costs_neither_stack_nor_the_event_that_has_it_where_nobody_looks() {
    let small = std::thread::Builder::new().stack_size(64 << 10);
    let thread = small.spawn(|| {
        let deep = deep(1_000_000);
        // As a field of a later version; as an event; as extra keys.
        let mut later = b"\x93\xacBlockRemoved\x91\x07\xa3GPU".to_vec();
        later[0] = 0x97;
        later.extend(b"\xc0\xc0\xc0");
        later.extend(&deep);
        let mut keys = b"\x99\xabBlockStored\x91\x07\xc0\x91\x01\x01\xc0\xc0\xc0".to_vec();
        keys.extend(&deep);
        let cleared = b"\x91\xb0AllBlocksCleared".to_vec();
        let pieces = [later, deep, keys, cleared];
        let payload = joined(pieces.iter().map(Vec::as_slice));
        let (mut decoder, mut drops) = (Decoder::default(), Drops::new());
        let read = decoder.decode(&payload, &mut drops).unwrap();
        assert!(read.whole);
        assert_eq!(read.events.len(), 2, "{drops:?}");
        assert_eq!(drops.of(Reason::NoTag), 1);
        assert_eq!(drops.of(Reason::BadExtraKeys), 1);
    });
    thread.unwrap().join().unwrap();
}

#[test]
fn lengths_that_are_only_claimed_cost_nothing() {
    let claims: [&[u8]; 8] = [
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x01",
        b"\xdc\xff\xff",
        b"\xde\xff\xff",
        b"\xc9\xff\xff\xff\xff",
    ];
    let places: [&[u8]; 6] = [
        b"",
        b"\x92\x00",
        b"\x92\x00\x91",
        b"\x92\x00\x91\x95\xabBlockStored",
        b"\x92\x00\x91\x95\xabBlockStored\x91\x01\xc0",
        b"\x92\x00\x91\x99\xabBlockStored\x91\x01\xc0\x91\x01\x01\xc0\xc0\xc0",
    ];
    let began = Instant::now();
    for place in places {
        for claim in claims {
            let payload = [place, claim, &[0x01; 64]].concat();
            let limits = Limits { hashes: usize::MAX, tokens: usize::MAX, ..Limits::default() };
            for limits in [Limits::default(), limits] {
                let (mut decoder, mut drops) = (Decoder::new(limits), Drops::new());
                let read = decoder.decode(&payload, &mut drops);
                assert!(read.is_err() || drops.total() > 0);
            }
        }
    }
    assert!(began.elapsed() < Duration::from_secs(2));
}

#[test]
fn headers_within_headers_take_time_by_their_bytes_alone() {
    // Each claims as many values as can be, most of which are never there.
    let mut payload = b"\x92\x00\xdd\xff\xff\xff\xff".to_vec();
    for _ in 0..1_000_000 {
        payload.extend(b"\xdc\x00\x01");
    }
    let (mut decoder, mut drops) = (Decoder::default(), Drops::new());
    let began = Instant::now();
    let read = decoder.decode(&payload, &mut drops).unwrap();
    assert!(!read.whole);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}
