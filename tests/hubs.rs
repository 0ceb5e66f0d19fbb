//! Nodes with many children: their tables grow, widen, shrink and go.

mod common;

use common::compare::under_every_setup;
use common::{assert_empty, below, blocks, depth, names, worker};

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
