//! Payloads made with msgspec, byte by byte.

use kvradix::SequenceHash;
use kvradix::intake::{Adapter, Batch, Decoder, Drops, Event, Group, Removed, Stored};

/// Bytes from hexadecimal digits with spaces between.
fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u32> = digits.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

fn reads_as(payload: &str, rank: Option<u32>, events: &[Event<'_>]) {
    let (payload, mut decoder, mut drops) = (hex(payload), Decoder::default(), Drops::new());
    let batch = decoder.decode(&payload, &mut drops).unwrap();
    let Batch { ts, rank: read, events: found, whole, .. } = batch;
    assert_eq!((ts, read, whole), (Some(1.5), rank, true));
    assert_eq!(found, events);
    assert_eq!(drops, Drops::new());
}

#[test]
fn a_store_of_vllm_in_map_form() {
    let hashes = [SequenceHash(1), SequenceHash((1 << 63) + 5)];
    let stored = Stored {
        hashes: &hashes,
        tokens: &[10, 11, 12, 13],
        block_size: 2,
        medium: Some("GPU"),
        ..Stored::default()
    };
    reads_as(
        "93cb3ff8000000000000 91 88 a474797065ab426c6f636b53746f726564
         ac626c6f636b5f686173686573 9201cf8000000000000005
         b1706172656e745f626c6f636b5f68617368 c0 a9746f6b656e5f696473 940a0b0c0d
         aa626c6f636b5f73697a65 02
         a76c6f72615f6964 c0 a66d656469756d a3475055 a96c6f72615f6e616d65 c0 00",
        Some(0),
        &[Event::Stored(stored)],
    );
}

#[test]
fn a_store_of_sglang_in_array_form() {
    let hashes = [SequenceHash(-5_i64 as u64)];
    let stored = Stored {
        hashes: &hashes,
        parent: Some(SequenceHash(7)),
        tokens: &[1],
        block_size: 1,
        medium: Some("GPU"),
        ..Stored::default()
    };
    reads_as(
        "93cb3ff8000000000000 91 97 ab426c6f636b53746f726564 91fb 07 9101 01 c0 a3475055 00",
        Some(0),
        &[Event::Stored(stored)],
    );
}

#[test]
fn a_removal_and_a_clear_in_map_form() {
    let removed =
        Removed { hashes: &[SequenceHash(1)], medium: Some("GPU"), group: Group::default() };
    reads_as(
        "93cb3ff8000000000000 92 83 a474797065ac426c6f636b52656d6f766564
         ac626c6f636b5f686173686573 9101 a66d656469756d a3475055
         81 a474797065b0416c6c426c6f636b73436c6561726564 00",
        Some(0),
        &[Event::Removed(removed), Event::Cleared],
    );
}

#[test]
fn a_batch_without_a_rank_says_none() {
    reads_as("92cb3ff8000000000000 90", None, &[]);
    reads_as("93cb3ff8000000000000 90 c0", None, &[]);
    reads_as("94cb3ff8000000000000 90 03 a178", Some(3), &[]);
    reads_as("82 a27473 cb3ff8000000000000 a66576656e7473 90", None, &[]);
}

#[test]
fn a_digest_of_32_bytes_names_a_block_by_its_last_eight() {
    let hashes = [SequenceHash(0x8000_0000_0000_0005), SequenceHash(0x0102)];
    let stored = Stored {
        hashes: &hashes,
        parent: Some(SequenceHash(9)),
        tokens: &[1, 2],
        block_size: 1,
        adapter: Adapter::None,
        ..Stored::default()
    };
    reads_as(
        "92cb3ff8000000000000 91 95 ab426c6f636b53746f726564
         92 c420 ffffffffffffffffffffffffffffffffffffffffffffffff8000000000000005 c402 0102
         c408 0000000000000009 920102 01",
        None,
        &[Event::Stored(stored)],
    );
}

#[test]
fn the_salt_of_sglang_stands_in_the_place_of_an_adapter() {
    let hashes = [SequenceHash(1)];
    let stored = Stored {
        hashes: &hashes,
        tokens: &[1],
        block_size: 1,
        salt: Some("s1"),
        ..Stored::default()
    };
    // ... c0 (lora_id), c0 (medium), {"session_id": "x", "cache_salt": "s1"}
    reads_as(
        "92cb3ff8000000000000 91 98 ab426c6f636b53746f726564 9101 c0 9101 01 c0 c0
         82 aa73657373696f6e5f6964 a178 aa63616368655f73616c74 a27331",
        None,
        &[Event::Stored(stored)],
    );
}
