//! What unique suffixes cost, and leave behind, under a prompt that stays
//! cached; the stream is that of `kvradix churn`.
//!
//! One worker holds a prompt of 16 blocks. A cycle stores 8 blocks, never
//! seen before, below the prompt's last one, in one event, and removes them
//! again in one event. After 5,000 cycles and a flush memory is read, the
//! measured cycles run and end with a flush, and memory is read again.
//!
//! - `cycles`: cycles a second, the last flush included;
//! - `added.live`, `added.resident`: what memory grew by, for each million of
//!   cycles.

use serde::{Deserialize, Serialize};

use crate::block::Block;
use crate::memory::Memory;
use crate::metric::{Metrics, Unit};
use crate::peer::Peer;
use crate::stopwatch::Stopwatch;

const PROMPT_BLOCKS: u64 = 16;
const SUFFIX_BLOCKS: usize = 8;
const WARM_UP_CYCLES: u64 = 5_000;

#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct Settings {
    pub cycles: u64,
}

pub fn run<P: Peer>(settings: &Settings) -> Metrics {
    let peer = P::new(1);
    let mut writer = peer.writer();
    let prompt: Vec<Block> = (0..PROMPT_BLOCKS).map(Block::of).collect();
    peer.store(&mut writer, 0, None, &prompt);

    let mut unused = PROMPT_BLOCKS;
    let mut cycles = |count: u64| {
        let mut suffix = [Block::default(); SUFFIX_BLOCKS];
        for _ in 0..count {
            for block in &mut suffix {
                *block = Block::of(unused);
                unused += 1;
            }
            peer.store(&mut writer, 0, prompt.last().map(|block| block.name), &suffix);
            peer.remove(&mut writer, 0, &suffix.map(|block| block.name));
        }
        peer.flush();
    };
    cycles(WARM_UP_CYCLES);
    let before = Memory::now();
    let mut metrics = Metrics::default();
    let watch = Stopwatch::start();
    cycles(settings.cycles);
    watch.stop(settings.cycles as usize, "churn.cycles", &mut metrics);
    let added = Memory::now().since(before);

    let millions = settings.cycles as f64 / 1e6;
    metrics.add("churn.added.live", Unit::Megabytes, added.live / 1e6 / millions);
    metrics.add("churn.added.resident", Unit::Megabytes, added.resident / 1e6 / millions);
    metrics
}
