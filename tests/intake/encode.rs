//! Events as an engine would write them, in every layout there is.

use std::ops::Range;

use kvradix::SequenceHash;
use kvradix::intake::{Adapter, Event, ExtraKey};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rmpv::Value;

/// A store, whoever publishes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Store {
    pub hashes: Vec<u64>,
    pub parent: Option<u64>,
    pub tokens: Vec<u32>,
    pub block_size: u32,
    pub lora_id: Option<i64>,
    pub medium: Option<String>,
    pub lora_name: Option<String>,
    /// vLLM has no field for it.
    pub salt: Option<String>,
    /// SGLang has no field for them, nor for what follows.
    pub keys: Option<Vec<Option<Vec<Key>>>>,
    pub group: Option<u32>,
    pub kind: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Key {
    Image(String, i64),
    Text(String),
    Bytes(Vec<u8>),
    Number(i64),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Remove {
    pub hashes: Vec<u64>,
    pub medium: Option<String>,
    pub group: Option<u32>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    Store(Store),
    Remove(Remove),
    Clear,
}

/// Who publishes: it decides the layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Engine {
    VllmMap,
    VllmArray,
    SglangArray,
    SglangMap,
}

pub const ENGINES: [Engine; 4] =
    [Engine::VllmMap, Engine::VllmArray, Engine::SglangArray, Engine::SglangMap];

impl Engine {
    pub fn is_sglang(self) -> bool {
        matches!(self, Engine::SglangArray | Engine::SglangMap)
    }

    fn is_map(self) -> bool {
        matches!(self, Engine::VllmMap | Engine::SglangMap)
    }
}

/// A hash in one of the forms that it may have.
fn hash(engine: Engine, form: u8, hash: u64) -> Value {
    match form % 4 {
        _ if engine.is_sglang() => Value::from(hash as i64),
        0 => Value::from(hash.to_be_bytes().to_vec()),
        1 => {
            let mut digest = vec![0xa5; 24];
            digest.extend(hash.to_be_bytes());
            Value::from(digest)
        }
        _ => Value::from(hash),
    }
}

fn maybe<T: Into<Value>>(value: Option<T>) -> Value {
    value.map_or(Value::Nil, Into::into)
}

fn key(key: &Key) -> Value {
    match key {
        Key::Image(id, offset) => Value::from(vec![Value::from(id.as_str()), (*offset).into()]),
        Key::Text(text) => text.as_str().into(),
        Key::Bytes(bytes) => bytes.clone().into(),
        Key::Number(number) => (*number).into(),
    }
}

/// An event's tag and fields, the required ones first: how many those are.
fn fields(
    said: &Said,
    engine: Engine,
    form: u8,
) -> (&'static str, Vec<(&'static str, Value)>, usize) {
    let hashes = |hashes: &[u64]| {
        Value::from(hashes.iter().map(|&h| hash(engine, form, h)).collect::<Vec<_>>())
    };
    match said {
        Said::Clear => ("AllBlocksCleared", Vec::new(), 0),
        Said::Remove(remove) => {
            let fields = vec![
                ("block_hashes", hashes(&remove.hashes)),
                ("medium", maybe(remove.medium.as_deref())),
                ("group_idx", maybe(remove.group)),
                ("locality", Value::Nil),
                ("ownership", Value::Nil),
            ];
            ("BlockRemoved", fields, 1)
        }
        Said::Store(store) => {
            let parent = store.parent.map(|parent| hash(engine, form, parent));
            let mut fields = vec![
                ("block_hashes", hashes(&store.hashes)),
                ("parent_block_hash", maybe(parent)),
                (
                    "token_ids",
                    store.tokens.iter().map(|&token| Value::from(token)).collect::<Vec<_>>().into(),
                ),
                ("block_size", store.block_size.into()),
                ("lora_id", maybe(store.lora_id)),
                ("medium", maybe(store.medium.as_deref())),
            ];
            if engine.is_sglang() {
                let salt = store.salt.as_deref();
                if engine.is_map() {
                    fields.push(("cache_salt", maybe(salt)));
                    fields.push(("session_id", "s".into()));
                } else {
                    let map = |salt: &str| {
                        let salt = (Value::from("cache_salt"), Value::from(salt));
                        Value::Map(vec![("session_id".into(), "s".into()), salt])
                    };
                    fields.push(("lora_name", salt.map_or(Value::Nil, map)));
                }
                return ("BlockStored", fields, 4);
            }
            let keys = store.keys.as_ref().map(|blocks| {
                let block = |keys: &Option<Vec<Key>>| {
                    maybe(
                        keys.as_ref()
                            .map(|keys| Value::from(keys.iter().map(key).collect::<Vec<_>>())),
                    )
                };
                Value::from(blocks.iter().map(block).collect::<Vec<_>>())
            });
            fields.extend([
                ("lora_name", maybe(store.lora_name.as_deref())),
                ("extra_keys", maybe(keys)),
                ("group_idx", maybe(store.group)),
                ("kv_cache_spec_kind", maybe(store.kind.as_deref())),
                ("kv_cache_spec_sliding_window", Value::Nil),
                ("locality", Value::Nil),
                ("ownership", Value::Nil),
                ("session_id", Value::Nil),
            ]);
            ("BlockStored", fields, 4)
        }
    }
}

/// An event as a value. `rng` chooses among what says the same.
pub fn event(said: &Said, engine: Engine, rng: &mut SmallRng) -> Value {
    let (tag, mut fields, required) = fields(said, engine, rng.random());
    if engine.is_map() {
        // Defaults left out, or told; any order; keys nobody knows.
        let keep_nil = rng.random_bool(0.5);
        let mut kept: Vec<_> = Vec::new();
        for (at, (name, value)) in fields.into_iter().enumerate() {
            if at < required || keep_nil || !value.is_nil() {
                kept.push((Value::from(name), value));
            }
        }
        if rng.random_bool(0.3) {
            kept.push(("novelty".into(), nested(rng, 3)));
            kept.push((Value::from(7), "a key that is no text".into()));
        }
        kept.push(("type".into(), tag.into()));
        if rng.random_bool(0.5) {
            kept.shuffle(rng);
        } else {
            kept.rotate_right(1);
        }
        return Value::Map(kept);
    }
    let mut values: Vec<Value> = fields.drain(..).map(|(_, value)| value).collect();
    match rng.random_range(0..3) {
        // Cut behind the last field that says something.
        0 => {
            while values.len() > required && values.last().is_some_and(Value::is_nil) {
                values.pop();
            }
        }
        // Padded, and with elements of a later version.
        1 if !matches!(said, Said::Clear) => {
            let longest = if matches!(said, Said::Store(_)) { 14 } else { 5 };
            values.resize(longest, Value::Nil);
            values.extend((0..rng.random_range(0..3)).map(|_| nested(rng, 2)));
        }
        _ => {}
    }
    values.insert(0, tag.into());
    Value::from(values)
}

/// Any value at all, up to this depth.
pub fn nested(rng: &mut SmallRng, depth: u32) -> Value {
    let kinds = if depth == 0 { 8 } else { 10 };
    match rng.random_range(0..kinds) {
        0 => Value::Nil,
        1 => Value::from(rng.random::<bool>()),
        2 => Value::from(rng.random::<u64>()),
        3 => Value::from(-rng.random_range(1..i64::MAX)),
        4 => Value::from(rng.random::<f64>()),
        5 => Value::from("x".repeat(rng.random_range(0..40))),
        6 => Value::from(vec![7_u8; rng.random_range(0..40)]),
        7 => Value::Ext(5, vec![0; rng.random_range(0..20)]),
        8 => Value::from(
            (0..rng.random_range(0..4)).map(|_| nested(rng, depth - 1)).collect::<Vec<_>>(),
        ),
        _ => {
            let pair = |rng: &mut SmallRng| (nested(rng, depth - 1), nested(rng, depth - 1));
            Value::Map((0..rng.random_range(0..3)).map(|_| pair(rng)).collect())
        }
    }
}

/// A batch as a value, as an array or as a map.
pub fn batch(events: Vec<Value>, rank: Option<u32>, rng: &mut SmallRng) -> Value {
    let ts = Value::from(1.5);
    if rng.random_bool(0.2) {
        let mut pairs = vec![
            ("ts".into(), ts),
            ("events".into(), events.into()),
            ("later".into(), nested(rng, 2)),
        ];
        if rank.is_some() || rng.random_bool(0.5) {
            pairs.push(("data_parallel_rank".into(), maybe(rank)));
        }
        pairs.shuffle(rng);
        return Value::Map(pairs);
    }
    let mut batch = vec![ts, events.into()];
    if rank.is_some() || rng.random_bool(0.5) {
        batch.push(maybe(rank));
        if rng.random_bool(0.2) {
            batch.push(nested(rng, 2));
        }
    }
    batch.into()
}

/// A value as bytes, and where in them content lies: what can change without
/// moving what follows. Integers take any width that is wide enough.
pub fn bytes(value: &Value, rng: &mut SmallRng) -> (Vec<u8>, Vec<Range<usize>>) {
    let mut writer = Writer { bytes: Vec::new(), content: Vec::new(), rng };
    writer.value(value);
    (writer.bytes, writer.content)
}

struct Writer<'r> {
    bytes: Vec<u8>,
    content: Vec<Range<usize>>,
    rng: &'r mut SmallRng,
}

impl Writer<'_> {
    fn content(&mut self, bytes: &[u8]) {
        let from = self.bytes.len();
        self.bytes.extend(bytes);
        self.content.push(from..self.bytes.len());
    }

    fn length(&mut self, length: usize, markers: [u8; 3]) {
        let wider = self.rng.random_range(0..8);
        match length {
            0..0x100 if markers[0] != 0 && wider != 0 => {
                self.bytes.extend([markers[0], length as u8])
            }
            0..0x1_0000 if wider != 1 => {
                self.bytes.push(markers[1]);
                self.bytes.extend((length as u16).to_be_bytes());
            }
            _ => {
                self.bytes.push(markers[2]);
                self.bytes.extend((length as u32).to_be_bytes());
            }
        }
    }

    fn integer(&mut self, number: i128) {
        let wider = self.rng.random_range(0..10);
        if (-32..128).contains(&number) && wider > 0 {
            self.bytes.push(number as i8 as u8);
            return;
        }
        let unsigned =
            [(0xcc, u8::MAX as i128), (0xcd, u16::MAX as i128), (0xce, u32::MAX as i128)];
        let signed = [(0xd0, i8::MAX as i128), (0xd1, i16::MAX as i128), (0xd2, i32::MAX as i128)];
        let as_signed = number < 0 || (number <= i64::MAX as i128 && wider == 1);
        let widths = if as_signed { signed } else { unsigned };
        let fits = |most: i128| number <= most && number > -most - 2;
        let narrowest = widths.iter().position(|&(_, most)| fits(most)).unwrap_or(3);
        let width = if wider > 3 { narrowest } else { self.rng.random_range(narrowest..4) };
        let marker =
            widths.get(width).map_or(if as_signed { 0xd3 } else { 0xcf }, |&(marker, _)| marker);
        self.bytes.push(marker);
        let all = number.to_be_bytes();
        self.content(&all[16 - (1 << width)..]);
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Nil => self.bytes.push(0xc0),
            Value::Boolean(bit) => self.bytes.push(0xc2 + u8::from(*bit)),
            Value::Integer(number) => {
                let number =
                    number.as_u64().map_or_else(|| number.as_i64().unwrap().into(), i128::from);
                self.integer(number);
            }
            Value::F32(number) => {
                self.bytes.push(0xca);
                self.content(&number.to_be_bytes());
            }
            Value::F64(number) => {
                self.bytes.push(0xcb);
                self.content(&number.to_be_bytes());
            }
            Value::String(text) => {
                let text = text.as_bytes();
                if text.len() < 32 && self.rng.random_bool(0.9) {
                    self.bytes.push(0xa0 + text.len() as u8);
                } else {
                    self.length(text.len(), [0xd9, 0xda, 0xdb]);
                }
                self.content(text);
            }
            Value::Binary(bytes) => {
                self.length(bytes.len(), [0xc4, 0xc5, 0xc6]);
                self.content(bytes);
            }
            Value::Array(values) => {
                if values.len() < 16 && self.rng.random_bool(0.9) {
                    self.bytes.push(0x90 + values.len() as u8);
                } else {
                    self.length(values.len(), [0, 0xdc, 0xdd]);
                }
                values.iter().for_each(|value| self.value(value));
            }
            Value::Map(pairs) => {
                if pairs.len() < 16 && self.rng.random_bool(0.9) {
                    self.bytes.push(0x80 + pairs.len() as u8);
                } else {
                    self.length(pairs.len(), [0, 0xde, 0xdf]);
                }
                for (key, value) in pairs {
                    self.value(key);
                    self.value(value);
                }
            }
            Value::Ext(kind, bytes) => {
                self.length(bytes.len(), [0xc7, 0xc8, 0xc9]);
                self.bytes.push(*kind as u8);
                self.content(bytes);
            }
        }
    }
}

/// Whether the event that was read says what was meant.
pub fn is_what_was_said(event: &Event<'_>, said: &Said) -> bool {
    let names = |hashes: &[u64]| hashes.iter().copied().map(SequenceHash).collect::<Vec<_>>();
    match (event, said) {
        (Event::Cleared, Said::Clear) => true,
        (Event::Removed(removed), Said::Remove(said)) => {
            removed.hashes == names(&said.hashes)
                && removed.medium == said.medium.as_deref()
                && removed.group.index == said.group
        }
        (Event::Stored(stored), Said::Store(said)) => {
            let keys = said.keys.iter().flatten().map(|keys| {
                let key = |key: &Key| match key {
                    Key::Image(id, offset) => {
                        format!("{:?}", ExtraKey::Image { id, offset: *offset })
                    }
                    Key::Text(text) => format!("{:?}", ExtraKey::Text(text)),
                    Key::Bytes(bytes) => format!("{:?}", ExtraKey::Bytes(bytes)),
                    Key::Number(number) => format!("{:?}", ExtraKey::Number(*number as u64)),
                };
                keys.iter().flatten().map(key).collect::<Vec<_>>()
            });
            let read = stored.extra_keys.to_vec();
            let read = read
                .iter()
                .map(|keys| keys.iter().map(|key| format!("{key:?}")).collect::<Vec<_>>());
            let adapter = match (said.lora_name.as_deref(), said.lora_id) {
                (Some(name), _) if !name.is_empty() => Adapter::Name(name),
                (_, Some(id)) if id != 0 => Adapter::Id(id),
                _ => Adapter::None,
            };
            stored.hashes == names(&said.hashes)
                && stored.parent == said.parent.map(SequenceHash)
                && stored.tokens == said.tokens
                && stored.block_size == said.block_size
                && stored.adapter == adapter
                && stored.salt == said.salt.as_deref().filter(|salt| !salt.is_empty())
                && stored.medium == said.medium.as_deref()
                && stored.group.index == said.group
                && stored.group.kind == said.kind.as_deref()
                && read.eq(keys)
        }
        _ => false,
    }
}

/// A random event, such as `engine` could publish.
pub fn random_event(engine: Engine, rng: &mut SmallRng) -> Said {
    let media = [None, Some("GPU"), Some("CPU"), Some("cpu_pinned"), Some("NVME over there")];
    let medium = media[rng.random_range(0..media.len())].map(str::to_owned);
    let hash = |rng: &mut SmallRng| match rng.random_range(0..4) {
        0 => rng.random_range(0..200),
        1 => u64::MAX - rng.random_range(0..200),
        _ => rng.random(),
    };
    let vllm = !engine.is_sglang();
    let group = (vllm && rng.random_bool(0.3)).then(|| rng.random_range(0..3));
    let blocks =
        if rng.random_bool(0.1) { rng.random_range(16..70) } else { rng.random_range(0..5) };
    let hashes: Vec<u64> = (0..blocks).map(|_| hash(rng)).collect();
    match rng.random_range(0..8) {
        0 => Said::Clear,
        1 | 2 => Said::Remove(Remove { hashes, medium, group }),
        _ => {
            let block_size = rng.random_range(0..5);
            let token = |rng: &mut SmallRng| match rng.random_range(0..4) {
                0 => rng.random_range(0..300),
                1 => rng.random_range(0..70_000),
                2 => u32::MAX - rng.random_range(0..3),
                _ => rng.random_range(0..200_000),
            };
            let tokens = (0..blocks * block_size).map(|_| token(rng)).collect();
            let names = ["", "lora-a", "ein Adapter mit einem langen Namen: äöü €", "7"];
            let name = |rng: &mut SmallRng| names[rng.random_range(0..names.len())].to_owned();
            let key = |rng: &mut SmallRng| match rng.random_range(0..5) {
                0 => Key::Bytes(vec![1, 2, 3]),
                1 => Key::Number(rng.random()),
                2 => Key::Text(names[rng.random_range(0..names.len())].to_owned()),
                _ => Key::Image("c0ffee".into(), rng.random_range(-40..40)),
            };
            let keys = (vllm && rng.random_bool(0.4)).then(|| {
                let block = |rng: &mut SmallRng| {
                    rng.random_bool(0.5)
                        .then(|| (0..rng.random_range(0..3)).map(|_| key(rng)).collect())
                };
                (0..blocks).map(|_| block(rng)).collect()
            });
            Said::Store(Store {
                hashes,
                parent: rng.random_bool(0.5).then(|| hash(rng)),
                tokens,
                block_size,
                lora_id: rng.random_bool(0.3).then(|| rng.random_range(0..5)),
                medium,
                lora_name: (vllm && rng.random_bool(0.3)).then(|| name(rng)),
                salt: (!vllm && rng.random_bool(0.4)).then(|| name(rng)),
                keys,
                group,
                kind: (vllm && rng.random_bool(0.2)).then(|| "full_attention".to_owned()),
            })
        }
    }
}

pub fn rng(seed: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed)
}
