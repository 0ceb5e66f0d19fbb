//! A simulated engine and its publisher.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rmp::encode as pack;
use zmq::{Context, PUB, ROUTER, Socket};

pub const BLOCK_TOKENS: usize = 16;
const SYSTEM_PROMPTS: u64 = 64;
const SYSTEM_BLOCKS: u64 = 64;
/// Batches that can be replayed.
const KEPT: usize = 1_000;

/// Prompts that engines were just given, for queries.
#[derive(Default)]
pub struct Recent(Mutex<VecDeque<Arc<[u32]>>>);

impl Recent {
    fn push(&self, tokens: Arc<[u32]>) {
        let mut recent = self.0.lock().expect("no panic");
        recent.push_back(tokens);
        if recent.len() > 1_000 {
            recent.pop_front();
        }
    }

    /// All of them, from the oldest.
    pub fn all(&self) -> Vec<Arc<[u32]>> {
        self.0.lock().expect("no panic").iter().cloned().collect()
    }

    pub fn pick(&self, random: &mut SmallRng) -> Option<Arc<[u32]>> {
        let recent = self.0.lock().expect("no panic");
        (!recent.is_empty()).then(|| recent[random.random_range(0..recent.len())].clone())
    }
}

pub struct Engine {
    publisher: Socket,
    replay: Socket,
    buffer: VecDeque<(u64, Vec<u8>)>,
    number: u64,
    /// What makes its names its own.
    seed: u64,
    random: SmallRng,
    /// System prompts that it has.
    systems: Vec<bool>,
    /// Suffixes, from the oldest; names.
    suffixes: VecDeque<Vec<u64>>,
    held: usize,
    cache: usize,
    recent: Arc<Recent>,
    /// Blocks of the request under way that are still to be stored.
    under_way: Vec<(u64, Vec<u32>)>,
    parent: Option<u64>,
    suffix: Vec<u64>,
    /// Blocks that are due, as far as a batch could not have parts of them.
    due: f64,
}

impl Engine {
    pub fn new(
        context: &Context,
        seed: u64,
        port: u16,
        replay_port: u16,
        cache: usize,
        recent: Arc<Recent>,
    ) -> Result<Self> {
        let publisher = context.socket(PUB)?;
        publisher.set_sndhwm(100_000)?;
        publisher.set_linger(0)?;
        publisher.bind(&format!("tcp://127.0.0.1:{port}")).context("a port is taken")?;
        let replay = context.socket(ROUTER)?;
        replay.set_linger(0)?;
        replay.bind(&format!("tcp://127.0.0.1:{replay_port}")).context("a port is taken")?;
        Ok(Self {
            publisher,
            replay,
            buffer: VecDeque::new(),
            number: 0,
            seed,
            random: SmallRng::seed_from_u64(seed),
            systems: vec![false; SYSTEM_PROMPTS as usize],
            suffixes: VecDeque::new(),
            held: 0,
            cache,
            recent,
            under_way: Vec::new(),
            parent: None,
            suffix: Vec::new(),
            due: 0.0,
        })
    }

    pub fn held(&self) -> usize {
        self.held
    }

    pub fn last(&self) -> u64 {
        self.number.saturating_sub(1)
    }

    /// The names of all blocks that it holds.
    pub fn names(&self) -> HashSet<u64> {
        let mut names: HashSet<u64> = self.suffixes.iter().flatten().copied().collect();
        names.extend(&self.suffix);
        for system in (0..SYSTEM_PROMPTS).filter(|&system| self.systems[system as usize]) {
            let blocks = (0..SYSTEM_BLOCKS).map(|block| system_block(system, block));
            names.extend(self.chain(blocks));
        }
        for (name, _) in &self.under_way {
            names.remove(name);
        }
        names
    }

    /// How many leading blocks of a prompt it holds, if these are its names.
    pub fn depth(&self, names: &HashSet<u64>, tokens: &[u32]) -> u64 {
        let blocks = tokens.chunks_exact(BLOCK_TOKENS).map(<[u32]>::to_vec);
        self.chain(blocks).take_while(|name| names.contains(name)).count() as u64
    }

    /// Its names of a prompt's blocks.
    fn chain(&self, blocks: impl Iterator<Item = Vec<u32>>) -> impl Iterator<Item = u64> {
        blocks.scan(None, |parent, block| {
            *parent = Some(self.name(*parent, &block));
            *parent
        })
    }

    /// A request comes: what of it is not cached is to be stored.
    fn request(&mut self) {
        let system = self.random.random_range(0..SYSTEM_PROMPTS);
        let mut tokens = Vec::new();
        let mut parent = None;
        let cached = std::mem::replace(&mut self.systems[system as usize], true);
        let mut missing = Vec::new();
        for block in 0..SYSTEM_BLOCKS {
            let block = system_block(system, block);
            let name = self.name(parent, &block);
            tokens.extend(&block);
            if cached {
                parent = Some(name);
            } else {
                missing.push((name, block));
                parent = Some(name);
            }
        }
        self.parent = if cached { parent } else { None };
        for _ in 0..self.random.random_range(8..64) {
            let block: Vec<u32> =
                (0..BLOCK_TOKENS).map(|_| self.random.random_range(0..128_000)).collect();
            let name = self.name(parent, &block);
            tokens.extend(&block);
            self.suffix.push(name);
            missing.push((name, block));
            parent = Some(name);
        }
        missing.reverse();
        self.under_way = missing;
        self.recent.push(tokens.into());
    }

    fn name(&self, parent: Option<u64>, tokens: &[u32]) -> u64 {
        let start = mix(parent.unwrap_or(0) ^ mix(self.seed));
        tokens.iter().fold(start, |name, &token| mix(name ^ u64::from(token)))
    }

    /// A step of the engine: so many blocks more, and as many fewer as have no
    /// room.
    fn step(&mut self, blocks: f64) -> Result<()> {
        self.due += blocks;
        let mut events = Vec::new();
        let mut count = 0;
        while self.due >= 1.0 {
            if self.under_way.is_empty() {
                if !self.suffix.is_empty() {
                    self.suffixes.push_back(std::mem::take(&mut self.suffix));
                }
                self.request();
            }
            let many = (self.due as usize).min(self.under_way.len());
            let run: Vec<_> = (0..many).filter_map(|_| self.under_way.pop()).collect();
            self.due -= many as f64;
            self.held += many;
            stored(&mut events, self.parent, &run)?;
            self.parent = run.last().map(|&(name, _)| name);
            count += 1;
        }
        let mut gone = Vec::new();
        while self.held > self.cache {
            let Some(oldest) = self.suffixes.front_mut() else { break };
            match oldest.pop() {
                Some(name) => {
                    gone.push(name);
                    self.held -= 1;
                }
                None => _ = self.suffixes.pop_front(),
            }
        }
        if !gone.is_empty() {
            removed(&mut events, &gone)?;
            count += 1;
        }
        if count > 0 { self.publish(count, &events) } else { Ok(()) }
    }

    fn publish(&mut self, count: u32, events: &[u8]) -> Result<()> {
        let mut payload = Vec::with_capacity(events.len() + 32);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs_f64();
        pack::write_array_len(&mut payload, 3)?;
        pack::write_f64(&mut payload, now)?;
        pack::write_array_len(&mut payload, count)?;
        payload.extend_from_slice(events);
        pack::write_uint(&mut payload, 0)?;
        let number = self.number.to_be_bytes();
        self.publisher.send_multipart([&b""[..], &number, &payload], 0)?;
        self.buffer.push_back((self.number, payload));
        if self.buffer.len() > KEPT {
            self.buffer.pop_front();
        }
        self.number += 1;
        Ok(())
    }

    /// Answers what the replay socket was asked.
    fn answer(&mut self) -> Result<()> {
        while let Ok(question) = self.replay.recv_multipart(zmq::DONTWAIT) {
            let [client, empty, start] = &question[..] else { continue };
            let start = u64::from_be_bytes(start[..].try_into()?);
            for (number, payload) in self.buffer.iter().filter(|(number, _)| *number >= start) {
                let number = number.to_be_bytes();
                self.replay.send_multipart([client, empty, &b""[..], &number, payload], 0)?;
            }
            self.replay.send_multipart([client, empty, &b""[..], &[0xff; 8], b""], 0)?;
        }
        Ok(())
    }
}

/// Publishes until told to stop, each engine `pace` times a second, unless all
/// is to be quiet.
pub fn publish(
    engines: Vec<Arc<Mutex<Engine>>>,
    blocks: f64,
    pace: u32,
    quiet: &AtomicBool,
    stop: &AtomicBool,
) {
    let every = Duration::from_secs(1) / pace / engines.len() as u32;
    let mut next = Instant::now();
    for engine in engines.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        next += every;
        let now = Instant::now();
        if next > now + Duration::from_millis(1) {
            thread::sleep(next - now);
        } else if now > next + Duration::from_secs(1) {
            // What was missed is not made up for.
            next = now;
        }
        let mut engine = engine.lock().expect("no panic");
        engine.answer().expect("the replay socket works");
        if !quiet.load(Ordering::Relaxed) {
            engine.step(blocks).expect("the publisher works");
        }
    }
}

fn system_block(system: u64, block: u64) -> Vec<u32> {
    let token = |at| mix(system << 32 | block << 8 | at) as u32 % 128_000;
    (0..BLOCK_TOKENS as u64).map(token).collect()
}

fn stored(events: &mut Vec<u8>, parent: Option<u64>, run: &[(u64, Vec<u32>)]) -> Result<()> {
    pack::write_map_len(events, 7)?;
    pack::write_str(events, "type")?;
    pack::write_str(events, "BlockStored")?;
    pack::write_str(events, "block_hashes")?;
    pack::write_array_len(events, run.len() as u32)?;
    for (name, _) in run {
        pack::write_uint(events, *name)?;
    }
    pack::write_str(events, "parent_block_hash")?;
    match parent {
        Some(parent) => _ = pack::write_uint(events, parent)?,
        None => pack::write_nil(events)?,
    }
    pack::write_str(events, "token_ids")?;
    pack::write_array_len(events, (run.len() * BLOCK_TOKENS) as u32)?;
    for token in run.iter().flat_map(|(_, tokens)| tokens) {
        pack::write_uint(events, (*token).into())?;
    }
    pack::write_str(events, "block_size")?;
    pack::write_uint(events, BLOCK_TOKENS as u64)?;
    pack::write_str(events, "lora_id")?;
    pack::write_nil(events)?;
    pack::write_str(events, "medium")?;
    Ok(pack::write_str(events, "GPU")?)
}

fn removed(events: &mut Vec<u8>, names: &[u64]) -> Result<()> {
    pack::write_map_len(events, 3)?;
    pack::write_str(events, "type")?;
    pack::write_str(events, "BlockRemoved")?;
    pack::write_str(events, "block_hashes")?;
    pack::write_array_len(events, names.len() as u32)?;
    for &name in names {
        pack::write_uint(events, name)?;
    }
    pack::write_str(events, "medium")?;
    Ok(pack::write_str(events, "GPU")?)
}

/// The finalizer of SplitMix64.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}
