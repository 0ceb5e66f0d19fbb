//! Queries of a hot prefix, quiet and beside a writer.
//!
//! The index holds one chain: 64 blocks held by 8 workers, or 512 blocks held
//! by 128, each of which stored it in one event, so that no index has it in
//! pieces. Readers (1, 2 or 8 threads) ask for exactly this chain, again and
//! again. The writer, where there is one, is a further thread that without a pause
//! stores, for one of the holders, 8 new blocks below the chain's last one and
//! removes them again, an event each.
//!
//! Each constellation runs twice, after a short warm-up: once with every query
//! timed, for p50, p99 and p99.9, and once with no clock between the queries,
//! for the rates. `reads` are queries a second of all readers together,
//! `writes` are the writer's cycles a second (a store and a removal), up to
//! the flush after the last one. A query's time includes handing out every
//! worker with its depth.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::block::Block;
use crate::metric::{Metrics, Unit};
use crate::peer::Peer;
use crate::samples::{Clock, Samples};

const SUFFIX_BLOCKS: usize = 8;
/// Queries between two looks at whether to stop.
const STRIDE: u64 = 16;

#[derive(Clone, Serialize, Deserialize, Debug)]
pub struct Settings {
    /// Of each constellation, once timed and once not.
    pub seconds: f64,
    /// Numbers of reader threads.
    pub readers: Vec<usize>,
}

pub fn run<P: Peer>(settings: &Settings) -> Metrics {
    let mut metrics = Metrics::default();
    let clock = Clock::of_the_wall();
    for (blocks, holders) in [(64, 8), (512, 128)] {
        let scene = Scene::<P>::new(blocks, holders);
        for (writing, how) in [(false, "quiet"), (true, "writer")] {
            for &readers in &settings.readers {
                let key = format!("contention.{blocks}x{holders}.{how}.r{readers}");
                scene.play(readers, writing, settings.seconds / 5.0, Measure::Rate);

                let mut timed =
                    scene.play(readers, writing, settings.seconds, Measure::Time).samples;
                for (share, quantile) in [(0.5, "p50"), (0.99, "p99"), (0.999, "p999")] {
                    let value = timed.quantile(share, clock);
                    metrics.add(format!("{key}.{quantile}"), Unit::Nanoseconds, value);
                }

                let rates = scene.play(readers, writing, settings.seconds, Measure::Rate);
                metrics.add(format!("{key}.reads"), Unit::MillionPerSecond, rates.reads / 1e6);
                if writing {
                    metrics.add(
                        format!("{key}.writes"),
                        Unit::MillionPerSecond,
                        rates.writes / 1e6,
                    );
                }
            }
        }
    }
    metrics
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Measure {
    Time,
    Rate,
}

struct Scene<P: Peer> {
    peer: P,
    writer: parking_lot::Mutex<Writing<P>>,
    chain: Vec<Block>,
    holders: u32,
}

/// What the writer keeps from one constellation to the next.
struct Writing<P: Peer> {
    writer: P::Writer,
    unused: u64,
}

#[derive(Default)]
struct Played {
    samples: Samples,
    /// A second.
    reads: f64,
    writes: f64,
}

impl<P: Peer> Scene<P> {
    fn new(blocks: u64, holders: u32) -> Self {
        let peer = P::new(holders);
        let mut writer = peer.writer();
        let chain: Vec<Block> = (0..blocks).map(Block::of).collect();
        for worker in 0..holders {
            peer.store(&mut writer, worker, None, &chain);
        }
        peer.flush();

        let locals: Vec<u64> = chain.iter().map(|block| block.local).collect();
        let mut found = 0;
        peer.matches(&mut P::Reader::default(), P::query(&locals), |_, depth| {
            assert_eq!(u64::from(depth), blocks, "every holder has the whole chain");
            found += 1;
        });
        assert_eq!(found, holders, "every holder is found");
        let writer = parking_lot::Mutex::new(Writing { writer, unused: blocks });
        Self { peer, writer, chain, holders }
    }

    fn play(&self, readers: usize, writing: bool, seconds: f64, measure: Measure) -> Played {
        let threads = readers + usize::from(writing);
        let (start, stop) = (&Barrier::new(threads + 1), &AtomicBool::new(false));
        thread::scope(|scope| {
            let reading: Vec<_> = (0..readers)
                .map(|_| scope.spawn(move || self.read(start, stop, measure)))
                .collect();
            let writing = writing.then(|| scope.spawn(move || self.write(start, stop)));
            start.wait();
            thread::sleep(Duration::from_secs_f64(seconds));
            stop.store(true, Ordering::Relaxed);

            let mut played = Played::default();
            for reader in reading {
                let (samples, rate) = reader.join().expect("a reader goes on to the end");
                played.samples.join(samples);
                played.reads += rate;
            }
            if let Some(writer) = writing {
                played.writes = writer.join().expect("the writer goes on to the end");
            }
            played
        })
    }

    fn read(&self, start: &Barrier, stop: &AtomicBool, measure: Measure) -> (Samples, f64) {
        let locals: Vec<u64> = self.chain.iter().map(|block| block.local).collect();
        let mut reader = P::Reader::default();
        let mut samples = Samples::default();
        let mut sum = 0_u64;
        let mut queries = 0;
        start.wait();
        let began = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..STRIDE {
                let query = P::query(black_box(&locals));
                let report = |worker, depth| sum = sum.wrapping_add(u64::from(worker ^ depth));
                if measure == Measure::Time {
                    let started = Instant::now();
                    self.peer.matches(&mut reader, query, report);
                    black_box(sum);
                    samples.add(started.elapsed().as_nanos() as u64);
                } else {
                    self.peer.matches(&mut reader, query, report);
                    black_box(sum);
                }
            }
            queries += STRIDE;
        }
        (samples, queries as f64 / began.elapsed().as_secs_f64())
    }

    fn write(&self, start: &Barrier, stop: &AtomicBool) -> f64 {
        let Writing { writer, unused } = &mut *self.writer.lock();
        let parent = self.chain.last().map(|block| block.name);
        let worker = self.holders / 2;
        let mut suffix = [Block::default(); SUFFIX_BLOCKS];
        let mut cycles = 0_u64;
        start.wait();
        let began = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            for block in &mut suffix {
                *block = Block::of(*unused);
                *unused += 1;
            }
            self.peer.store(writer, worker, parent, &suffix);
            self.peer.remove(writer, worker, &suffix.map(|block| block.name));
            cycles += 1;
        }
        self.peer.flush();
        cycles as f64 / began.elapsed().as_secs_f64()
    }
}
