//! What panics leave in memory: nothing, once their workers are healed.

#[path = "../../tests/common/mod.rs"]
mod common;

use common::counting::{Counting, alone, live_bytes};
use common::stream::{Mode, Naming, Op, stream};
use kvradix::{Index, fault};
use kvradix_fault_tests::{in_time, survive};
use rand::prelude::*;
use rand::rngs::SmallRng;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes of the collector's own queue, and of buffers that were not as large
/// before. A view leaked by every panic would be ten times as much.
const SLACK: isize = 16 << 10;

fn live(index: &Index) -> isize {
    for _ in 0..100 {
        index.flush();
        if index.stats().retired_bytes == 0 {
            break;
        }
    }
    assert_eq!(index.stats().retired_bytes, 0);
    live_bytes()
}

/// A stream with panics, then everybody heals and leaves; how many panicked.
fn torn(index: &Index, ops: &[Op], rng: &mut SmallRng) -> usize {
    let mut panics = 0;
    for op in ops {
        if rng.random_ratio(1, 2) {
            fault::arm(rng.random_range(0..60));
        }
        let done = survive(|| match op {
            Op::Store { worker, parent, blocks } => _ = index.store(*worker, *parent, blocks),
            Op::Remove { worker, names } => index.remove(*worker, names),
            Op::Clear { worker } => index.clear(*worker),
            Op::Leave { worker } => index.remove_worker(*worker),
            Op::LeaveRanks { id } => index.remove_ranks(*id),
            Op::Apply { events } => _ = index.apply_all(events),
            Op::Ask { query } => _ = index.matches(query),
            _ => {}
        });
        fault::disarm();
        panics += usize::from(done.is_err());
        // So that others panic too.
        if let Some(torn) = index.poisoned().pop() {
            index.remove_worker(torn);
        }
    }
    index.workers().into_iter().for_each(|known| index.remove_worker(known));
    panics
}

#[test]
fn panics_leave_no_byte_behind_once_their_workers_are_healed() {
    let _alone = alone();
    in_time(|| {
        for naming in [Naming::Shared, Naming::TwoPerWorker, Naming::Clashing] {
            let small = Index::builder().drain_threads(0).run_blocks(4).hub_threshold(1);
            for index in [small.build(), Index::builder().drain_threads(0).build()] {
                let mut rng = SmallRng::seed_from_u64(1);
                let ops = stream(Mode { naming, moves: 8, rare: 15, ..Mode::BASE }, 7, 150);
                (0..5).for_each(|_| _ = torn(&index, &ops, &mut rng));
                let before = live(&index);
                let panics: usize = (0..80).map(|_| torn(&index, &ops, &mut rng)).sum();
                let left = live(&index) - before;
                println!("{naming:?}: {left} bytes after {panics} panics");
                assert!(panics > 1_000);
                assert!(left < SLACK, "{left} bytes after {panics} panics");
                common::assert_empty(&index);
            }
        }
    });
}

/// With hundreds of others there: what a poisoned worker had stays until it is
/// healed, and goes then.
#[test]
fn a_poisoned_worker_of_a_large_fleet_gives_its_memory_back_once_it_is_healed() {
    const FLEET: u64 = 300;
    let _alone = alone();
    in_time(|| {
        let index = Index::builder().drain_threads(0).build();
        let store = |who: u64, from: u64, to: u64| {
            let own = |n| if n < 64 { n } else { (who + 1) << 32 | n };
            let parent = from.checked_sub(1).and_then(|n| common::below(own(n)));
            let blocks = common::blocks((from..to).map(|n| (own(n), own(n))));
            index.store(common::worker(who), parent, &blocks)
        };
        (0..FLEET).for_each(|who| store(who, 0, 96).unwrap());
        // A clear heals, and so does leaving.
        let cycle = |who: u64, clears: bool| {
            store(who, 96, 20_000).unwrap();
            fault::arm(1);
            let torn = survive(|| store(who, 20_000, 20_200));
            fault::disarm();
            assert!(torn.is_err(), "no panic");
            let kept = live(&index);
            for poisoned in index.poisoned() {
                assert_eq!(poisoned, common::worker(who));
                match clears {
                    true => index.clear(poisoned),
                    false => index.remove_worker(poisoned),
                }
            }
            index.remove_worker(common::worker(who));
            store(who, 0, 96).unwrap();
            kept
        };
        (0..2).for_each(|_| _ = cycle(7, false));
        let before = live(&index);
        for (who, clears) in [(0, false), (7, true), (FLEET - 1, false)] {
            let kept = cycle(who, clears) - before;
            let left = live(&index) - before;
            println!("worker {who}: {kept} bytes kept, {left} left");
            assert!(kept > 8 * SLACK, "worker {who} kept {kept} bytes");
            assert!(left < 2 * SLACK, "worker {who} left {left} of {kept} bytes");
        }
        (0..FLEET).for_each(|who| index.remove_worker(common::worker(who)));
        common::assert_empty(&index);
    });
}
