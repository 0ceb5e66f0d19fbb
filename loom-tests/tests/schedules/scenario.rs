//! Writers with workers of their own over shared content, a pool, readers;
//! at the end the index equals the references.

use std::time::Instant;

use kvradix::model::{Arc, Hooks, begin, end, live, ring, run_task, set_hooks};
use kvradix::reference::ReferenceIndex;
use kvradix::{Block, Index, LocalHash, SequenceHash, WorkerId};
use kvradix_loom_tests::{Keep, keep_begin};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::thread;

#[global_allocator]
static KEEP: Keep = Keep;

static GATE: AtomicUsize = AtomicUsize::new(0);

fn hooks() -> Hooks {
    Hooks {
        // An operation of shuttle's own, before which it may switch.
        switch: || _ = GATE.load(Ordering::SeqCst),
        blocked: thread::yield_now,
        thread: || usize::from(thread::current().id()),
    }
}

pub fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| args.get(at).and_then(|arg| arg.parse::<usize>().ok());
    let (schedules, seed) = (number(0).unwrap_or(20_000), number(1).unwrap_or(1) as u64);
    let half = schedules / 2;
    for removals in [Removals::Caller, Removals::Pool] {
        run("random", RandomScheduler::new_from_seed(seed, half / 2), removals);
        run("pct, depth 3", PctScheduler::new_from_seed(seed, 3, half / 2), removals);
    }
}

/// Who applies removals.
#[derive(Clone, Copy, Debug)]
enum Removals {
    Caller,
    Pool,
}

fn run(name: &str, scheduler: impl Scheduler + 'static, removals: Removals) {
    let mut config = shuttle::Config::new();
    config.stack_size = 256 << 10;
    config.max_steps = shuttle::MaxSteps::FailAfter(4_000_000);
    let start = Instant::now();
    let runner = shuttle::Runner::new(scheduler, config);
    let schedules = runner.run(move || scenario(removals));
    println!(
        "{name}, removals by {removals:?}: {schedules} schedules of {} threads in {:.1} s",
        WRITERS + 3,
        start.elapsed().as_secs_f64()
    );
}

const WRITERS: u64 = 5;
const EVENTS: usize = 5;
/// A prompt that one worker holds all along.
const STABLE: [u64; 3] = [0, 1, 0];

fn scenario(removals: Removals) {
    keep_begin();
    set_hooks(hooks());
    begin();
    let mut rng = thread_rng();
    let builder = Index::builder()
        .run_blocks(rng.gen_range(1..4))
        .hub_threshold(rng.gen_range(1..3))
        .drain_threshold(rng.gen_range(1..4));
    let index = Arc::new(match removals {
        Removals::Caller => builder.drain_threads(0).build(),
        Removals::Pool => builder.drain_threads(1).build(),
    });
    let stable = WorkerId::new(99, 0);
    index.store(stable, None, &chain(&STABLE, 0, 99)).expect("stored");
    kvradix::model::limit_retired(rng.gen_range(0..4) * 1_000);

    let writers: Vec<_> = (0..WRITERS)
        .map(|id| {
            let index = index.clone();
            thread::spawn(move || write(&index, WorkerId::new(id, 0)))
        })
        .collect();
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let index = index.clone();
            thread::spawn(move || {
                for _ in 0..4 {
                    let query = query(thread_rng().gen_range(0..WRITERS));
                    let found = index.matches(LocalHash::from_slice(&query));
                    for one in found.iter() {
                        let letters = &query[..one.depth as usize];
                        let own = |letter: &u64| *letter < 10 || *letter == 10 + one.worker.id;
                        assert!(letters.iter().all(own), "credited with another's blocks");
                    }
                    let same = query.iter().zip(&STABLE).take_while(|(a, b)| a == b).count();
                    assert_eq!(found.depth_of(stable) as usize, same, "a stable holder is short");
                }
            })
        })
        .collect();
    let pool = thread::spawn(|| {
        for _ in 0..6 {
            ring();
            run_task();
            thread::yield_now();
        }
    });
    let references: Vec<ReferenceIndex> =
        writers.into_iter().map(|writer| writer.join().expect("it ended well")).collect();
    readers.into_iter().for_each(|reader| reader.join().expect("it ended well"));
    pool.join().expect("it ended well");
    while ring() | run_task() {}
    index.flush();
    index.check();
    compare(&index, &references);
    for worker in index.workers() {
        index.remove_worker(worker);
    }
    index.flush();
    index.check();
    let stats = index.stats();
    let left = (stats.tree_blocks, stats.lookup_entries, stats.nodes, stats.retired_bytes);
    assert_eq!(left, (0, 0, 0, 0), "left behind");
    drop(index);
    end();
    assert_eq!(live(), 0, "values leaked");
}

/// One worker's events, told to a reference too.
fn write(index: &Index, worker: WorkerId) -> ReferenceIndex {
    let mut reference = ReferenceIndex::new();
    let mut rng = thread_rng();
    let mut names: Vec<SequenceHash> = Vec::new();
    for event in 0..EVENTS {
        match rng.gen_range(0..10) {
            0 => {
                index.remove_worker(worker);
                reference.remove_worker(worker);
            }
            1 => {
                index.clear(worker);
                reference.clear(worker);
            }
            2..5 => {
                let some: Vec<_> = names.iter().copied().filter(|_| rng.gen_bool(0.5)).collect();
                index.remove(worker, &some);
                reference.remove(worker, &some);
            }
            _ => {
                // Names are the content's, this worker's own, or one for
                // many contents.
                let own = match rng.gen_range(0..10) {
                    0..3 => worker.id + 1,
                    3..5 => AMBIGUOUS,
                    _ => 0,
                };
                let parent = (!names.is_empty() && rng.gen_bool(0.3))
                    .then(|| names[rng.gen_range(0..names.len())]);
                let above = parent.map_or(0, |name| name.0);
                let blocks = chain(&query(worker.id), above, own);
                names.extend(blocks.iter().map(|block| block.sequence));
                let stored = index.store(worker, parent, &blocks);
                assert_eq!(stored, reference.store(worker, parent, &blocks), "event {event}");
            }
        }
        if rng.gen_bool(0.2) {
            index.flush_worker(worker);
        }
    }
    reference
}

/// A short prompt over two letters and one that only worker `id` stores.
fn query(id: u64) -> Vec<u64> {
    let mut rng = thread_rng();
    let letter = |_| if rng.gen_bool(0.15) { 10 + id } else { rng.gen_range(0..2) };
    let len = thread_rng().gen_range(1..4);
    (0..len).map(letter).collect()
}

/// Whose names tell nothing but how deep in its batch a block is.
const AMBIGUOUS: u64 = 50;

/// Blocks with names that tell their prefix, and whose they are.
fn chain(locals: &[u64], mut above: u64, own: u64) -> Vec<Block> {
    let block = |&local| {
        above = match own {
            AMBIGUOUS => (above & 3) + 1 + (own << 32),
            _ => (above * 16 + local + 1) % (1 << 24) + (own << 32),
        };
        Block { sequence: SequenceHash(above), local: LocalHash(local) }
    };
    locals.iter().map(block).collect()
}

fn compare(index: &Index, references: &[ReferenceIndex]) {
    for number in 0..243_u64 {
        let letter = |at| match number / 3_u64.pow(at) % 3 {
            2 => 10 + number % WRITERS,
            letter => letter,
        };
        let query: Vec<u64> = (0..5).map(letter).collect();
        let query = LocalHash::from_slice(&query);
        let found = index.matches(query);
        for (id, reference) in references.iter().enumerate() {
            let worker = WorkerId::new(id as u64, 0);
            let right = reference.matches(query).depth_of(worker);
            assert_eq!(found.depth_of(worker), right, "{query:?} of worker {worker}");
        }
    }
}
