//! Many more threads than processors: nobody waits for long.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{assert_empty, below, blocks, names, query, worker};
use kvradix::{Index, Matches};

const WRITERS: u64 = 16;
const READERS: usize = 16;
/// How long it goes on at least, and how many steps each thread makes.
const TIME: Duration = Duration::from_secs(2);
const STEPS: u64 = 20;
/// The longest that a thread may go without a step. It is a bound on waiting
/// for each other, not on the processors' shares: a thread that waits for
/// another's turn in vain would stand until the end of time.
const LONGEST: Duration = Duration::from_secs(20);
/// What readers that are not running may keep back of what is retired.
const RETIRED: u64 = 64 << 20;

/// A round of one writer: some of the shared prompt, a suffix of its own, and
/// nearly all of it gone again.
fn write(index: &Index, who: u64, round: u64) {
    let me = worker(who);
    let from = who * 10_000_000 + round * 8;
    index.store(me, None, &blocks((0..32).map(|n| (n, n)))).unwrap();
    index.store(me, below(31), &blocks((0..8).map(|n| (from + n, from + n)))).unwrap();
    index.remove(me, &names((from..from + 8).rev()));
    match round % 64 {
        0 => index.clear(me),
        1 => index.remove_worker(me),
        2 => index.flush_worker(me),
        _ => {}
    }
}

#[test]
fn sixteen_writers_and_sixteen_readers_all_make_progress() {
    let builders = [Index::builder(), Index::builder().drain_threads(0)];
    for index in builders.map(|builder| builder.build()) {
        index.store(worker(0), None, &blocks((0..32).map(|n| (n, n)))).unwrap();
        let steps: Vec<AtomicU64> = (0..WRITERS as usize + READERS).map(|_| 0.into()).collect();
        let done = AtomicBool::new(false);
        let (mut longest, mut retired) = (Duration::ZERO, 0);
        std::thread::scope(|scope| {
            for (who, steps) in (1..).zip(&steps[READERS..]) {
                let (index, done) = (&index, &done);
                scope.spawn(move || {
                    while !done.load(Ordering::Acquire) {
                        write(index, who, steps.fetch_add(1, Ordering::Relaxed));
                    }
                });
            }
            for steps in &steps[..READERS] {
                let (index, done) = (&index, &done);
                scope.spawn(move || {
                    let (query, mut matches) = (query(0..33), Matches::new());
                    while !done.load(Ordering::Acquire) {
                        index.matches_into(&query, &mut matches);
                        assert_eq!(matches.depth_of(worker(0)), 32, "seen short");
                        steps.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let start = Instant::now();
            let mut last: Vec<(u64, Instant)> = steps.iter().map(|_| (0, start)).collect();
            let mut fewest = 0;
            while (start.elapsed() < TIME || fewest < STEPS) && longest < LONGEST {
                std::thread::sleep(Duration::from_millis(5));
                for (last, steps) in last.iter_mut().zip(&steps) {
                    let now = steps.load(Ordering::Relaxed);
                    if now != last.0 {
                        *last = (now, Instant::now());
                    }
                    longest = longest.max(last.1.elapsed());
                }
                fewest = last.iter().map(|last| last.0).min().expect("32 threads");
                retired = retired.max(index.stats().retired_bytes);
            }
            done.store(true, Ordering::Release);
        });
        println!("longest {longest:?}, most retired {retired} bytes");
        assert!(longest < LONGEST, "a thread made no step for {longest:?}");
        assert!(retired < RETIRED, "{retired} bytes retired");
        index.workers().into_iter().for_each(|known| index.remove_worker(known));
        assert_empty(&index);
    }
}
