//! Nodes with many children: their tables grow, widen, shrink and go.

mod common;

use common::compare::{hold_run, run, under_every_setup};
use common::stream::Op;
use common::{assert_empty, below, blocks, depth, names, query, worker};
use kvradix::Index;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};

/// Children hang at two offsets of one run, so the table is counted by
/// offset; they go in another order than they came.
#[test]
fn a_table_of_branches_grows_widens_shrinks_and_goes() {
    under_every_setup(|index| {
        let (holder, other) = (worker(1), worker(2));
        index.store(holder, None, &blocks((1..=8).map(|i| (i, i)))).unwrap();
        let name = |n: u64| 1_000 + n;
        for n in 0..1_200 {
            let parent = if n % 3 == 0 { 4 } else { 8 };
            let who = if n % 2 == 0 { holder } else { other };
            if who == other && n == 1 {
                index.store(other, None, &blocks((1..=8).map(|i| (i, i)))).unwrap();
            }
            index.store(who, below(parent), &blocks([(name(n), name(n))])).unwrap();
        }
        index.flush();
        index.check();
        // The first one below the run's end has made the run longer instead,
        // unless runs are short.
        assert!((1_200..=1_203).contains(&index.stats().nodes), "{:?}", index.stats());
        for n in [0, 1, 599, 600, 1_199] {
            let above = if n % 3 == 0 { 4 } else { 8 };
            let query: Vec<u64> = (1..=above).chain([name(n)]).collect();
            let who = if n % 2 == 0 { holder } else { other };
            assert_eq!(u64::from(depth(index, who, &query)), above + 1, "{n}");
        }
        // 7 and 1,200 have no common factor: every branch once, spread out.
        for (turn, n) in (0..1_200).map(|n| n * 7 % 1_200).enumerate() {
            let who = if n % 2 == 0 { holder } else { other };
            index.remove(who, &names([name(n)]));
            if turn % 100 == 0 || turn > 1_180 {
                index.flush();
                index.check();
            }
        }
        index.flush();
        assert_eq!(index.stats().tree_blocks, 8);
        assert!(index.stats().nodes <= 8, "{:?}", index.stats());
        index.remove_worker(holder);
        index.remove_worker(other);
        assert_empty(index);
    });
}

/// Blocks of the run that the children hang below.
const RUN: u64 = 40;
/// Children of it at most.
const CHILDREN: u64 = 260;

/// Children of one run, at every offset of it, come and go in any order, so
/// that they are a list in the view, a table of one shard and one of many, and
/// lists again; removals name blocks twice, and blocks of several children in
/// turns. More than `CHILDREN` are all there at the beginning.
fn children_that_come_and_go(seed: u64, children: u64) -> Vec<Op> {
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut ops = Vec::new();
    let workers = [1, 2, 3].map(worker);
    for worker in workers {
        ops.push(Op::Store { worker, parent: None, blocks: blocks((1..=RUN).map(|n| (n, n))) });
    }
    let (offset, first, second) = (|n| n % RUN + 1, |n| 1_000 + n, |n| 5_000 + n);
    let mut held: Vec<(usize, u64)> = Vec::new();
    if children > CHILDREN {
        let mut fan: Vec<u64> = (0..children).collect();
        fan.shuffle(&mut rng);
        for n in fan {
            let who = rng.random_range(0..3);
            held.push((who, n));
            let child = blocks([(first(n), first(n)), (second(n), second(n))]);
            ops.push(Op::Store { worker: workers[who], parent: below(offset(n)), blocks: child });
        }
        ops.push(Op::Census { names: Vec::new() });
    }
    for turn in 0..2_400 {
        let grows = rng.random_ratio(if turn / 600 % 2 == 0 { 7 } else { 1 }, 8);
        if grows || held.is_empty() {
            let (who, n) = (rng.random_range(0..3), rng.random_range(0..children));
            held.push((who, n));
            let child = blocks([(first(n), first(n)), (second(n), second(n))]);
            let parent = below(offset(n));
            ops.push(Op::Store { worker: workers[who], parent, blocks: child });
        } else {
            let (who, _) = held[rng.random_range(0..held.len())];
            let mut gone = Vec::new();
            for _ in 0..rng.random_range(1..6) {
                let of_worker: Vec<_> = held.iter().filter(|(of, _)| *of == who).collect();
                let Some((_, n)) = of_worker.choose(&mut rng) else { break };
                gone.extend([second(*n), first(*n)]);
                if rng.random_ratio(1, 4) {
                    gone.push(gone[rng.random_range(0..gone.len())]);
                }
                if rng.random_ratio(1, 4) {
                    gone.reverse();
                }
            }
            held.retain(|(of, n)| *of != who || !gone.contains(&first(*n)));
            ops.push(Op::Remove { worker: workers[who], names: names(gone) });
        }
        let n = rng.random_range(0..children);
        let contents = (1..=offset(n)).chain([first(n), second(n)]);
        ops.push(Op::Ask { query: query(contents) });
        if turn % 200 == 0 {
            ops.push(Op::Census { names: Vec::new() });
        }
    }
    ops.extend(workers.map(|worker| Op::Leave { worker }));
    ops.push(Op::Census { names: Vec::new() });
    ops
}

#[test]
fn children_at_every_offset_of_a_run_are_as_the_reference_says() {
    for (seed, listed) in (0..).zip([0, 1, 2, 8, 9, 48, 96, 1_024]) {
        for run_blocks in [1, 7, 4_096] {
            let build = || {
                let builder = Index::builder().drain_threads(0).run_blocks(run_blocks);
                builder.hub_threshold(listed).build()
            };
            let what = format!("{listed} children listed, runs of {run_blocks} blocks");
            let ops = children_that_come_and_go(seed, CHILDREN);
            hold_run(&what, &ops, |ops| run(ops, true, true, build));
        }
    }
}

/// More children than a view lists at most, 1,024: the longest list there is
/// becomes a table of many shards, and a table of more children than that
/// becomes a list again.
#[test]
fn more_children_than_a_view_ever_lists_are_as_the_reference_says() {
    for (seed, listed) in (100..).zip([9, 96, 1_024]) {
        let build = || Index::builder().drain_threads(0).hub_threshold(listed).build();
        let what = format!("1,200 children, {listed} listed");
        let ops = children_that_come_and_go(seed, 1_200);
        hold_run(&what, &ops, |ops| run(ops, true, true, build));
    }
}

/// So many first blocks that the root's table has larger arrays than its sieve
/// can follow; most of them go again.
#[test]
fn a_hundred_thousand_first_blocks_come_and_go_and_each_is_found_while_it_is_held() {
    let index = Index::builder().drain_threads(0).build();
    let (many, holder, other) = (110_000_u64, worker(1), worker(2));
    let mut firsts: Vec<u64> = (0..many).collect();
    firsts.shuffle(&mut SmallRng::seed_from_u64(3));
    let others = |first: u64| first.is_multiple_of(64);
    for &first in &firsts {
        let who = if others(first) { other } else { holder };
        index.store(who, None, &blocks([(first, first)])).unwrap();
    }
    index.check();
    let held = |first: u64| {
        let who = if others(first) { other } else { holder };
        index.matches(&query([first])).depth_of(who)
    };
    assert!((0..many).all(|first| held(first) == 1));
    assert!((many..2 * many).all(|first| index.matches(&query([first])).is_empty()));
    index.clear(holder);
    index.check();
    assert!((0..many).all(|first| held(first) == u32::from(others(first))));
    firsts.retain(|first| others(*first));
    for gone in firsts.chunks(100) {
        index.remove(other, &names(gone.iter().copied()));
        assert!(gone.iter().all(|first| held(*first) == 0));
    }
    index.check();
    index.remove_worker(holder);
    index.remove_worker(other);
    assert_empty(&index);
}
