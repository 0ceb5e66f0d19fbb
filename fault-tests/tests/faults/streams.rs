//! Random streams on one thread, with a panic at the k-th point for each k.

use std::collections::BTreeMap;
use std::time::Duration;

use kvradix::Index;
use kvradix::fault::{self, Fault};
use kvradix_fault_tests::{in_time, survive};
use rand::prelude::*;
use rand::rngs::SmallRng;

use crate::common::stream::{Eviction, Mode, Naming, Op, stream};
use crate::common::{assert_empty, below, blocks, depth, names, worker};
use crate::run::Run;

/// Callers drain, so that every step is on the armed thread. Small nodes and
/// tables, so that rare shapes are frequent; a limit that is never met, so
/// that its count is kept.
fn small() -> Index {
    let small = Index::builder().drain_threads(0).run_blocks(4).hub_threshold(1);
    small.max_blocks(1 << 40).build()
}

fn usual() -> Index {
    Index::builder().drain_threads(0).build()
}

/// How the index under a mode is built.
type Build = fn() -> Index;

const MODES: [(&str, Mode, Build); 7] = [
    ("small nodes", Mode { alphabet: 2, ..Mode::BASE }, small),
    ("usual nodes", Mode::BASE, usual),
    ("tail first", Mode { eviction: Eviction::TailFirst, batch: 4, ..Mode::BASE }, small),
    ("moved names that clash", Mode { naming: Naming::Clashing, moves: 4, ..Mode::BASE }, small),
    (
        "two names of their own",
        Mode { naming: Naming::TwoPerWorker, moves: 8, ..Mode::BASE },
        small,
    ),
    (
        "batches brought together that clash",
        Mode { batch: 300, prompt: 700, naming: Naming::Clashing, moves: 20, ..Mode::BASE },
        usual,
    ),
    (
        "branches everywhere",
        Mode { alphabet: 40, prompt: 6, workers: 12, rare: 20, ..Mode::BASE },
        small,
    ),
];

/// Points that a run of `ops` passes.
fn points(ops: &[Op], build: fn() -> Index) -> u64 {
    const MANY: u64 = u64::MAX / 2;
    let mut run = Run::new(build(), ops);
    fault::arm(MANY);
    ops.iter().for_each(|op| assert!(run.step(op).is_none()));
    let left = fault::disarm().expect("armed");
    run.finish();
    MANY - left
}

/// How many panics each mode of a test has; every point of one stream has its
/// own if they suffice.
fn panics() -> u64 {
    let given = std::env::var("KVRADIX_FAULTS").ok();
    given.map_or(1_500, |given| given.parse().expect("KVRADIX_FAULTS is a number"))
}

/// After the panic the stream goes on, with the worker poisoned until the
/// stream itself clears it or lets it go, or until the end.
#[test]
fn a_panic_at_any_point_leaves_the_others_exact_and_is_healed() {
    in_time(|| {
        let mut struck = BTreeMap::new();
        let (mut poisoned, mut whole) = (0, 0);
        for (seed, (name, mode, build)) in (1..).zip(MODES) {
            let ops = stream(mode, seed, 40);
            let points = points(&ops, build);
            let step = points.div_ceil(panics()).max(1);
            println!("{name}: {points} points, every {step}th");
            for at in (0..points).step_by(step as usize) {
                let mut run = Run::new(build(), &ops);
                fault::arm(at);
                for op in &ops {
                    run.step(op);
                }
                let outcome = run.finish();
                // Hashes are seeded, so that a run may pass fewer points.
                for point in outcome.struck {
                    *struck.entry(format!("{point:?}")).or_insert(0) += 1;
                }
                poisoned += outcome.poisoned;
                whole += outcome.whole;
            }
        }
        println!("{poisoned} workers poisoned, {whole} events undone or done; {struck:#?}");
        // Those that events of this size do not come to: tests of their own.
        let others = [Fault::Healing, Fault::DrainGoesOn, Fault::TableFull, Fault::TableWide];
        for point in Fault::ALL.iter().filter(|point| !others.contains(point)) {
            assert!(struck.contains_key(&format!("{point:?}")), "no panic at {point:?}");
        }
        assert!(poisoned > 500 && whole > 100);
    });
}

/// Panics strike one after the other, in whatever is under way: several
/// workers are poisoned at a time, and healing panics too.
#[test]
fn panics_again_and_again_leave_the_others_exact_and_are_healed() {
    in_time(|| {
        let (mut struck, mut poisoned, mut healing) = (0, 0, 0);
        for (seed, (_, mode, build)) in (100..).zip(MODES) {
            let mut rng = SmallRng::seed_from_u64(seed);
            let ops = stream(Mode { rare: 25, ..mode }, seed, 400);
            let mut run = Run::new(build(), &ops);
            for op in &ops {
                if rng.random_ratio(1, 3) {
                    fault::arm(rng.random_range(0..60));
                }
                run.step(op);
            }
            let outcome = run.finish();
            struck += outcome.struck.len();
            poisoned += outcome.poisoned;
            healing += outcome.struck.iter().filter(|point| **point == Fault::Healing).count();
        }
        println!("{struck} panics, {poisoned} workers poisoned, {healing} while they were healed");
        assert!(struck > 200 && poisoned > 100 && healing > 5);
    });
}

/// The k-th try to heal panics at its k-th point, until one gets through.
#[test]
fn a_panic_at_any_point_of_healing_is_healed_by_the_next_try() {
    in_time(|| {
        for (heal, build) in [Index::clear, Index::remove_worker].into_iter().zip([small, usual]) {
            let index = build();
            for who in 0..40 {
                index.store(worker(who), None, &blocks((0..20).map(|n| (n, n)))).unwrap();
                index.store(worker(who), below(9), &blocks([(500 + who, 500 + who)])).unwrap();
                index.remove(worker(who), &names([who % 20]));
            }
            // Half done: the batch's beginning is stored, its names half made.
            let torn = worker(7);
            fault::arm(40);
            let batch = blocks((0..30).map(|n| (900 + n, n)));
            survive(|| index.store(torn, None, &batch)).unwrap_err();
            assert_eq!(index.poisoned(), [torn]);
            let tries = (0..).find(|at| {
                fault::arm(*at);
                let healed = survive(|| heal(&index, torn));
                fault::disarm();
                index.check();
                // Also where only what comes after the healing panicked.
                assert!(healed.is_err() || index.poisoned().is_empty());
                assert_eq!(index.held(torn), 0);
                assert_eq!(index.held(worker(8)), 20);
                healed.is_ok()
            });
            assert!(tries > Some(20), "{tries:?}");
            index.remove_worker(torn);
            index.check();
            index.store(torn, None, &batch).unwrap();
            assert_eq!(depth(&index, torn, &(0..30).collect::<Vec<_>>()), 30);
            index.workers().into_iter().for_each(|known| index.remove_worker(known));
            assert_empty(&index);
        }
    });
}

/// Steps that random streams are too small for: a node with many children,
/// and a removal of more names than a drain applies at once.
#[test]
fn a_panic_in_large_events_is_healed_too() {
    in_time(|| {
        let mut struck = Vec::new();
        let mut at = 0;
        loop {
            let queueing = Index::builder().drain_threads(1).removal_delay(Duration::MAX);
            let queueing = queueing.drain_threshold(usize::MAX).max_pending(usize::MAX);
            let index = queueing.hub_threshold(1).build();
            let (kept, torn) = (worker(1), worker(2));
            index.store(kept, None, &blocks((0..8).map(|n| (n, n)))).unwrap();
            index.store(torn, None, &blocks((0..1_200).map(|n| (n, n)))).unwrap();
            for n in 0..15 {
                index.store(torn, below(7), &blocks([(3_000 + n, 3_000 + n)])).unwrap();
            }
            index.remove(torn, &names((8..1_200).rev()));
            fault::arm(at);
            // Once the names are gone one block is stored in a table that it
            // fills.
            let new = blocks([(5_000, 5_000)]);
            let done = survive(|| index.store(torn, below(7), &new));
            fault::disarm();
            index.check();
            assert_eq!(depth(&index, kept, &(0..8).collect::<Vec<_>>()), 8);
            index.remove_worker(torn);
            index.flush();
            index.check();
            assert_eq!((index.stats().tree_blocks, index.stats().nodes), (8, 1));
            match done {
                Ok(stored) => break stored.unwrap(),
                Err(point) => struck.push(point),
            }
            at += 1;
        }
        for point in [Fault::DrainGoesOn, Fault::TableFull, Fault::TableWide] {
            assert!(struck.contains(&point), "{point:?} was not struck");
        }
    });
}

/// What was appended to a run behind what readers see goes at once, and so
/// does its room.
#[test]
fn a_panic_in_a_long_append_leaves_a_short_run() {
    in_time(|| {
        for at in 0..60 {
            let index = usual();
            let new = index.stats().memory.tree_bytes;
            let (kept, torn) = (worker(1), worker(2));
            index.store(kept, None, &blocks((0..8).map(|n| (n, n)))).unwrap();
            fault::arm(at * at);
            let batch = blocks((0..2_000).map(|n| (n, n)));
            let panicked = survive(|| index.store(torn, None, &batch)).is_err();
            fault::disarm();
            index.check();
            let bytes = index.stats().memory.tree_bytes - new;
            if panicked && index.stats().tree_blocks == 8 {
                assert!(bytes < 3 << 10, "{bytes} bytes for 8 blocks");
            }
            index.remove_worker(torn);
            index.check();
            assert_eq!(depth(&index, kept, &(0..8).collect::<Vec<_>>()), 8);
        }
    });
}

/// One worker at a time comes, and goes with a panic at one of the last
/// points: there its lane is closed already, and nobody asks for it again.
#[test]
fn a_leaver_that_panics_gives_back_what_it_retired() {
    in_time(|| {
        const MANY: u64 = u64::MAX / 2;
        let index = usual();
        let mut points = 0;
        for round in 0..300 {
            let leaver = worker(round);
            index.store(leaver, None, &blocks((0..4).map(|n| (n, n)))).unwrap();
            fault::arm(if round == 0 { MANY } else { points - 1 - round % 8 });
            let left = survive(|| index.remove_worker(leaver));
            points = fault::disarm().map_or(points, |left| MANY - left);
            assert!(left.is_err() || round == 0);
            index.remove_worker(leaver);
            index.flush();
        }
        assert_empty(&index);
        let made = fault::slots_made(&index);
        assert!(made < 40, "{made} slots");
    });
}

/// The lane is not made, the slot was taken.
#[test]
fn workers_whose_first_stores_panic_give_their_slots_back() {
    in_time(|| {
        let index = usual();
        for round in 0..300 {
            let new = worker(round);
            fault::arm(round % 3);
            let _ = survive(|| index.store(new, None, &blocks([(1, 1)])));
            fault::disarm();
            index.remove_worker(new);
            index.flush();
        }
        assert_empty(&index);
        let made = fault::slots_made(&index);
        assert!(made < 40, "{made} slots");
    });
}
