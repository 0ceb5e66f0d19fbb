//! A router that restarts: it saves its index beside the traffic, the next one
//! loads the file and goes on with each worker's events where they were cut.
//!
//! ```sh
//! cargo run --release --features snapshot --example warm_start -- [BLOCKS] [WORKERS] [SHARED]
//! ```
//!
//! SHARED is how many of a request's 128 blocks come from a prompt that others
//! have too. Prints how long saving and loading take, and the file's bytes a
//! held block.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{self, File};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use kvradix::snapshot::{self, Cursor, Importer};
use kvradix::{Block, Event, Index, LocalHash, SequenceHash, WorkerId};

/// Blocks of a request.
const REQUEST: u64 = 128;

/// What a worker publishes: an event a request, numbered from 1. Any part of
/// it can be asked for again, as of a log or a broker.
struct Engine {
    worker: WorkerId,
    shared: u64,
}

impl Engine {
    fn event(&self, number: u64) -> Event {
        let own = mix(self.worker.id << 32 | number);
        let mut path = mix(number % 64);
        let block = |at: u64| {
            let local = mix(at ^ if at < self.shared { mix(number % 64) } else { own });
            path = mix(path ^ local);
            Block { sequence: SequenceHash(path), local: LocalHash(local) }
        };
        Event::Stored {
            worker: self.worker,
            parent: None,
            blocks: (0..REQUEST).map(block).collect(),
        }
    }
}

/// What the router keeps of a worker beside the index: the number of its last
/// event. The lock is held while an event is handed in.
type Seen = BTreeMap<WorkerId, Mutex<u64>>;

/// Hands in the worker's next `count` events.
fn listen(index: &Index, seen: &Seen, engine: &Engine, count: u64) -> Result<(), Box<dyn Error>> {
    for _ in 0..count {
        let mut last = seen[&engine.worker].lock().unwrap_or_else(PoisonError::into_inner);
        index.apply(&engine.event(*last + 1))?;
        *last += 1;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let mut number = |default| numbers.next().unwrap_or(Ok(default));
    let (blocks, workers, shared) = (number(1_000_000)?, number(64)?, number(64)?);
    let worker = |id| WorkerId::new(id, 0);
    let engines: Vec<_> = (0..workers).map(|id| Engine { worker: worker(id), shared }).collect();
    let path = std::env::temp_dir().join(format!("warm-start-{}.kvx", std::process::id()));

    let index = Index::new();
    let seen: Seen = engines.iter().map(|engine| (engine.worker, Mutex::new(0))).collect();
    let from = Instant::now();
    for engine in &engines {
        listen(&index, &seen, engine, blocks / workers / REQUEST)?;
    }
    println!("{:?} in {:.2?}", index.stats(), from.elapsed());

    // The fleet goes on while the index is saved: only the worker that is cut
    // waits for its cut.
    let from = Instant::now();
    let saved = std::thread::scope(|scope| {
        scope.spawn(|| listen(&index, &seen, &engines[0], 10).map_err(|error| error.to_string()));
        snapshot::save(&index, &path, |worker| {
            let last = seen[&worker].lock().unwrap_or_else(PoisonError::into_inner);
            let cursor = Cursor::from(*last);
            (last, cursor)
        })
    })?;
    let per_block = saved.bytes as f64 / saved.held_blocks as f64;
    println!("{saved:?} in {:.2?}: {per_block:.2} bytes a block", from.elapsed());

    for threads in [0, 1, 2] {
        let from = Instant::now();
        let loaded =
            Importer::new().threads(threads).import(File::open(&path)?, Index::builder())?;
        let took = from.elapsed();
        let rate = saved.held_blocks as f64 / took.as_secs_f64() / 1e6;
        println!(
            "loaded by {threads} threads beside the reader's in {took:.2?}: {rate:.2} M blocks/s"
        );

        // Each worker's events go on at its cursor.
        for (worker, cursor) in &loaded.cursors {
            let last = cursor.to_u64().ok_or("this router's cursors are numbers")?;
            let until = *seen[worker].lock().unwrap_or_else(PoisonError::into_inner);
            let engine = Engine { worker: *worker, shared };
            for number in last + 1..=until {
                loaded.index.apply(&engine.event(number))?;
            }
        }
        assert_eq!(loaded.index.stats().held_blocks, index.stats().held_blocks);
    }
    fs::remove_file(path)?;
    Ok(())
}

fn mix(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
