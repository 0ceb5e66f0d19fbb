//! From a payload to two indexes, by one thread: 10,000 tokens in 625 blocks
//! of 16, token ids spread over a vocabulary of 128,000.
//!
//! - `decode`: the payload into a batch. `one` has one store (vLLM's map);
//!   `many` has a store for each block (SGLang's array); `digests` is `one`
//!   with hashes of 32 bytes.
//! - `convert`: the same, and tokens into local hashes.
//! - `apply`: both, and the blocks into both indexes, then out again by a
//!   second batch. `one` and `many` have private prompts; for `shared` seven
//!   other ranks hold the prompt.

mod common;

use criterion::{Criterion, Throughput};
use kvradix::WorkerId;
use kvradix::intake::{Converter, Decoder, Drops, Event, Origin, RankOptions, Residency};
use rmpv::Value;

const TOKENS: usize = 10_000;
const BLOCK: usize = 16;

fn main() {
    let mut criterion = common::criterion();
    decode(&mut criterion);
    convert(&mut criterion);
    apply(&mut criterion);
    criterion.final_summary();
}

fn tokens() -> Vec<u32> {
    (0..TOKENS as u64).map(|at| (common::mix(at) % 128_000) as u32).collect()
}

fn hashes() -> Vec<u64> {
    (0..(TOKENS / BLOCK) as u64).map(|block| common::mix(!block)).collect()
}

fn list<T: Copy + Into<Value>>(values: &[T]) -> Value {
    Value::Array(values.iter().map(|&value| value.into()).collect())
}

fn batch(events: Vec<Value>) -> Vec<u8> {
    let batch = Value::Array(vec![1.5.into(), Value::Array(events), 0.into()]);
    let mut payload = Vec::new();
    rmpv::encode::write_value(&mut payload, &batch).expect("a vector takes it");
    payload
}

fn map(fields: Vec<(&str, Value)>) -> Value {
    Value::Map(fields.into_iter().map(|(name, value)| (name.into(), value)).collect())
}

fn one(hashes: Value) -> Vec<u8> {
    batch(vec![map(vec![
        ("type", "BlockStored".into()),
        ("block_hashes", hashes),
        ("parent_block_hash", Value::Nil),
        ("token_ids", list(&tokens())),
        ("block_size", BLOCK.into()),
        ("lora_id", Value::Nil),
        ("medium", "GPU".into()),
        ("lora_name", Value::Nil),
    ])])
}

fn digests() -> Value {
    let digest = |hash: u64| Value::from([&[7; 24][..], &hash.to_be_bytes()].concat());
    Value::Array(hashes().into_iter().map(digest).collect())
}

fn many() -> Vec<u8> {
    let (hashes, tokens) = (hashes(), tokens());
    let store = |(block, tokens): (usize, &[u32])| {
        let parent = block.checked_sub(1).map_or(Value::Nil, |above| (hashes[above] as i64).into());
        Value::Array(vec![
            "BlockStored".into(),
            list(&[hashes[block] as i64]),
            parent,
            list(tokens),
            BLOCK.into(),
            Value::Nil,
            "GPU".into(),
        ])
    };
    batch(tokens.chunks(BLOCK).enumerate().map(store).collect())
}

/// What takes the same blocks away, the deepest first.
fn removal() -> Vec<u8> {
    let mut hashes = hashes();
    hashes.reverse();
    batch(vec![map(vec![
        ("type", "BlockRemoved".into()),
        ("block_hashes", list(&hashes)),
        ("medium", "GPU".into()),
    ])])
}

fn decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("intake/decode");
    group.throughput(Throughput::Elements(TOKENS as u64));
    let payloads = [("one", one(list(&hashes()))), ("many", many()), ("digests", one(digests()))];
    for (name, payload) in payloads {
        let (mut decoder, mut drops) = (Decoder::default(), Drops::new());
        group.bench_function(name, |bencher| {
            bencher.iter(|| decoder.decode(&payload, &mut drops).map(|batch| batch.events.len()));
        });
        assert_eq!(drops.total(), 0);
    }
    group.finish();
}

fn convert(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("intake/convert");
    group.throughput(Throughput::Elements(TOKENS as u64));
    let converter = Converter::new(BLOCK as u32);
    for (name, payload) in [("one", one(list(&hashes()))), ("many", many())] {
        let (mut decoder, mut drops) = (Decoder::default(), Drops::new());
        let mut blocks = Vec::new();
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let batch = decoder.decode(&payload, &mut drops).expect("a batch");
                for event in &batch.events {
                    let Event::Stored(stored) = event else { unreachable!("stores alone") };
                    converter.convert(stored, None, &mut blocks).expect("it fits together");
                }
                blocks.len()
            });
        });
    }
    group.finish();
}

fn apply(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("intake/apply");
    group.throughput(Throughput::Elements(TOKENS as u64));
    let (whole, many, removal) = (one(list(&hashes())), many(), removal());
    for (name, payload, others) in [("one", &whole, 0), ("many", &many, 0), ("shared", &whole, 7)] {
        let residency = Residency::new(BLOCK as u32);
        let (mut decoder, mut drops) = (Decoder::default(), Drops::new());
        for other in 0..others {
            let rank = residency.join(WorkerId::new(other, 1), RankOptions::default());
            let batch = decoder.decode(&whole, &mut drops).expect("a batch");
            rank.apply(&batch, Origin::Live, &mut drops);
        }
        let rank = residency.join(WorkerId::new(1, 0), RankOptions::default().copies(true));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                for payload in [payload, &removal] {
                    let batch = decoder.decode(payload, &mut drops).expect("a batch");
                    rank.apply(&batch, Origin::Live, &mut drops);
                }
            });
        });
        assert_eq!(drops.total(), 0);
    }
    group.finish();
}
