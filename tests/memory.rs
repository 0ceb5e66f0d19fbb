//! What the index takes from the allocator: everything comes back, and a
//! query takes nothing.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::compare::SETUPS;
use common::counting::{Counting, alone, live_bytes, taken};
use common::stream::{Mode, Naming, Op, stream};
use common::{below, blocks, names, query, worker};
use kvradix::{Index, Matches};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What may be left all the same. The collector defers the freeing of its own
/// queue's nodes, 2 KiB each, and a thread that then goes to sleep keeps up to
/// 64 of them: two drain threads 260 KiB. A leak of one view a cycle would be
/// a megabyte.
const SLACK: isize = 320 << 10;

/// What is left beyond `before` once it is little, or after a while. Until
/// they get their turn, tasks of the pool keep the lanes they were sent to,
/// and the collector keeps the bags of its closures.
fn settled(index: &Index, before: isize) -> isize {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let left = live(index) - before;
        if left <= SLACK || Instant::now() > deadline {
            return left;
        }
    }
}

/// Bytes handed out once nothing is on its way. A drain thread that still has
/// its pin during the flush keeps back what was retired before.
fn live(index: &Index) -> isize {
    // Tasks of the pool hold the lanes they were sent to, left ones too.
    std::thread::sleep(Duration::from_millis(20));
    for _ in 0..100 {
        index.flush();
        if index.stats().retired_bytes == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(index.stats().retired_bytes, 0);
    live_bytes()
}

fn churn(index: &Index, cycles: std::ops::Range<u64>) {
    for cycle in cycles {
        let suffix = || (0..8).map(move |i| 1_000 + cycle * 8 + i);
        index.store(worker(1), below(15), &blocks(suffix().map(|i| (i, i)))).unwrap();
        index.remove(worker(1), &names(suffix()));
    }
}

#[test]
fn unique_suffixes_that_come_and_go_leave_no_byte_behind() {
    let _alone = alone();
    for setup in &SETUPS {
        let index = (setup.build)();
        index.store(worker(1), None, &blocks((0..16).map(|i| (i, i)))).unwrap();
        churn(&index, 0..5_000);
        let before = live(&index);
        churn(&index, 5_000..25_000);
        let left = settled(&index, before);
        assert!(left <= SLACK, "{}: {left} bytes after 20,000 cycles", setup.name);
    }
}

/// The same stream again and again: what the first runs leave behind, buffers
/// that have grown, is all there is.
#[test]
fn streams_that_end_with_nothing_leave_no_byte_behind() {
    let _alone = alone();
    for naming in [Naming::Shared, Naming::TwoPerWorker, Naming::Clashing] {
        for setup in &SETUPS {
            let index = (setup.build)();
            let mode = Mode { naming, moves: 8, ..Mode::BASE };
            let ops = stream(mode, 7, 200);
            for _ in 0..3 {
                run(&index, &ops);
            }
            let before = live(&index);
            for _ in 0..10 {
                run(&index, &ops);
            }
            let left = settled(&index, before);
            assert!(left <= SLACK, "{}, {naming:?}: {left} bytes", setup.name);
        }
    }
}

fn run(index: &Index, ops: &[Op]) {
    for op in ops {
        match op {
            Op::Store { worker, parent, blocks } => _ = index.store(*worker, *parent, blocks),
            Op::Remove { worker, names } => index.remove(*worker, names),
            Op::Clear { worker } => index.clear(*worker),
            Op::Leave { worker } => index.remove_worker(*worker),
            Op::LeaveRanks { id } => index.remove_ranks(*id),
            Op::Apply { events } => _ = index.apply_all(events),
            _ => {}
        }
    }
    for known in index.workers() {
        index.remove_worker(known);
    }
}

#[test]
fn dropping_an_index_gives_everything_back() {
    let _alone = alone();
    let once = || {
        for setup in &SETUPS {
            let index = (setup.build)();
            for number in 0..2_000 {
                let parent = if number % 3 == 0 { None } else { below(number / 2) };
                let _ = index.store(worker(number % 5), parent, &blocks([(number, number)]));
                index.remove(worker(number % 5), &names([number / 7]));
            }
        }
    };
    once();
    let before = live_bytes();
    for _ in 0..5 {
        once();
    }
    let left = live_bytes() - before;
    assert!(left <= SLACK, "{left} bytes after 25 indexes");
}

#[test]
fn a_query_into_a_warm_answer_takes_no_memory() {
    let _alone = alone();
    for setup in &SETUPS {
        let index = (setup.build)();
        // Runs, branches, a hub, many owners, holes and removals under way.
        for who in 0..80 {
            let length = 20 + who % 30;
            index.store(worker(who), None, &blocks((0..length).map(|i| (i, i)))).unwrap();
            index.store(worker(who), below(9), &blocks([(500 + who, 500 + who)])).unwrap();
            index.remove(worker(who), &names([who % 20]));
        }
        let queries: Vec<_> = (0..60)
            .map(|end| query((0..end).chain([500 + end])))
            .chain([query((0..10).chain([505])), query([]), query([9_999])])
            .collect();
        let mut matches = Matches::new();
        let mut ask = || queries.iter().for_each(|query| index.matches_into(query, &mut matches));
        ask();
        index.flush();
        ask();
        let before = taken();
        (0..50).for_each(|_| ask());
        let taken = taken() - before;
        assert_eq!(taken, 0, "{}: {} queries", setup.name, 50 * queries.len());
    }
}

/// It is refused before anything is made for it.
#[test]
fn a_batch_that_no_limit_has_room_for_takes_no_memory() {
    let _alone = alone();
    let prompt = Index::builder().drain_threads(0);
    let batch = blocks((0..1_000_000).map(|n| (n, n)));
    for index in [prompt.clone().max_blocks(999_999).build(), prompt.max_worker_blocks(9).build()] {
        index.store(worker(1), None, &batch[..9]).unwrap();
        for who in [1, 2] {
            let before = taken();
            let refused = index.store(worker(who), None, &batch);
            assert_eq!(taken() - before, 0, "{refused:?}");
            refused.unwrap_err();
        }
    }
}

/// An answer is a plain value: kept for long, it keeps nothing of the tree.
#[test]
fn an_answer_kept_for_long_holds_no_memory_of_the_tree() {
    let _alone = alone();
    let index = Index::builder().drain_threads(0).build();
    let fill = || {
        for who in 0..50 {
            let own = (0..5_000).map(|n| (n, if n < 20 { n } else { who * 10_000 + n }));
            index.store(worker(who), None, &blocks(own)).unwrap();
        }
    };
    // What the index keeps for good is there from the first time on.
    fill();
    index.workers().into_iter().for_each(|known| index.remove_worker(known));
    let before = live(&index);
    fill();
    let filled = live(&index) - before;
    assert!(filled > 4 << 20, "{filled} bytes");
    let kept: Vec<Matches> =
        (0..20).map(|end| index.matches(&query(0..=end))).filter(|kept| kept.len() == 50).collect();
    assert_eq!(kept.len(), 20);
    index.workers().into_iter().for_each(|known| index.remove_worker(known));
    let left = settled(&index, before);
    assert!(left < SLACK, "{left} of {filled} bytes, with {} answers", kept.len());
    assert!(kept.iter().all(|kept| kept.best().is_some()), "still there");
}

/// Beside a writer too: what it retires is freed elsewhere. The collector
/// itself takes a block of 64 of its own entries now and then, inside a pin.
#[test]
fn a_query_beside_a_writer_takes_no_memory_of_its_own() {
    let _alone = alone();
    let index = Index::new();
    index.store(worker(1), None, &blocks((0..16).map(|i| (i, i)))).unwrap();
    let query = query(0..17);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| churn(&index, 0..5_000));
        let mut matches = Matches::new();
        (0..100).for_each(|_| index.matches_into(&query, &mut matches));
        let before = taken();
        let mut asked = 0;
        while !writer.is_finished() {
            index.matches_into(&query, &mut matches);
            asked += 1;
        }
        let taken = taken() - before;
        assert!(taken <= 2 + asked / 1_000, "{taken} times in {asked} queries");
    });
}

/// A worker that leaves with removals on their way is forgotten at once, not
/// when the delay is over.
///
/// Fails if `remove_worker` leaves the closed lane in the list.
#[test]
fn workers_that_leave_with_removals_pending_leave_no_byte_behind() {
    let _alone = alone();
    let index = Index::builder().removal_delay(Duration::from_secs(3_600)).build();
    let come_and_go = |times| {
        for _ in 0..times {
            index.store(worker(1), None, &blocks([(1, 1), (2, 2)])).unwrap();
            index.remove(worker(1), &names([2]));
            index.remove_worker(worker(1));
        }
        live(&index)
    };
    let before = come_and_go(1_000);
    let left = come_and_go(3_000) - before;
    assert!(left <= SLACK, "{left} bytes");
}

/// What only it had goes at once, with hundreds of others there, and its slot
/// and its name go to whoever comes next.
#[test]
fn a_worker_that_leaves_a_large_fleet_takes_its_memory_along() {
    const FLEET: u64 = 400;
    let _alone = alone();
    for builder in [Index::builder().drain_threads(0), Index::builder()] {
        let index = builder.build();
        let join = |who: u64| {
            let own = |n| if n < 64 { n } else { (who + 1) << 32 | n };
            let prompt = blocks((0..96).map(|n| (own(n), own(n))));
            index.store(worker(who), None, &prompt).unwrap();
        };
        let grow = |who: u64| {
            // Its own blocks, and others' by names of its own.
            let content = |n| if n < 64 { n } else { (who + 1) << 48 | n };
            let own = blocks((0..100_000).map(|n| (((who + 1) << 48) | n, content(n))));
            index.store(worker(who), None, &own).unwrap();
        };
        (0..FLEET).for_each(join);
        let cycle = |who: u64| {
            grow(who);
            let grown = live(&index);
            index.remove_worker(worker(who));
            join(who);
            grown
        };
        cycle(7);
        let before = live(&index);
        for who in [0, 7, FLEET / 2, FLEET - 1] {
            let grown = cycle(who) - before;
            let left = settled(&index, before);
            println!("worker {who} took {grown} bytes, {left} are left");
            assert!(grown > 4 * SLACK, "worker {who} took {grown} bytes");
            assert!(left <= SLACK, "worker {who} left {left} of {grown} bytes");
        }
        (0..FLEET).for_each(|who| index.remove_worker(worker(who)));
        common::assert_empty(&index);
    }
}

/// An export of much takes long, and what other workers retire meanwhile is
/// freed: else they would be held up at the limit of retired values.
///
/// Fails if the export is pinned throughout.
#[test]
fn an_export_keeps_back_nothing_that_others_retire() {
    // The collector is the process's, so other tests' pins would count.
    let _alone = alone();
    let index = Index::builder().drain_threads(0).build();
    let (large, busy) = (worker(1), worker(2));
    index.store(large, None, &blocks((0..1_000_000).map(|n| (n, n)))).unwrap();
    let suffix = blocks((0..8).map(|n| (2_000_000 + n, 2_000_000 + n)));
    let done = AtomicBool::new(false);
    let mut retired = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                assert!(!index.export(large).is_empty());
            }
        });
        for _ in 0..60 {
            for _ in 0..1_000 {
                index.store(busy, None, &suffix).unwrap();
                index.clear(busy);
            }
            index.flush();
            retired.push(index.stats().retired_bytes);
        }
        done.store(true, Ordering::Release);
    });
    // A reader's thread may stand still with its pin, now and then.
    retired.sort_unstable();
    assert!(retired[retired.len() / 2] < 1 << 18, "after each flush: {retired:?}");
}

/// `Stats::memory` is an account, kept where memory is taken and given back:
/// here it is held to what the allocator says.
#[test]
fn the_account_of_memory_is_what_the_allocator_gave() {
    let _alone = alone();
    let chain = |from: u64, to: u64| blocks((from..to).map(|i| (i, i)));
    type Fill<'a> = &'a dyn Fn(&Index);
    let prompts: Fill = &|index| {
        for n in 0..4_000 {
            index.store(worker(n % 16), None, &chain(n * 64, n * 64 + 64)).unwrap();
        }
    };
    let shared: Fill = &|index| {
        for n in 0..16_000 {
            index.store(worker(n % 8), None, &chain(n / 8 * 64, n / 8 * 64 + 64)).unwrap();
        }
    };
    let suffixes: Fill = &|index| {
        index.store(worker(1), None, &chain(0, 16)).unwrap();
        for n in 2..32_000 {
            index.store(worker(1), below(15), &chain(n * 8, n * 8 + 8)).unwrap();
        }
    };
    let decode: Fill = &|index| {
        for n in 0..200_000u64 {
            let parent = if n % 1_000 == 0 { None } else { below(n - 1) };
            index.store(worker(n / 1_000 % 8), parent, &chain(n, n + 1)).unwrap();
        }
    };
    let own_names: Fill = &|index| {
        for n in 0..4_000 {
            let name = |i| ((n % 8) << 32) + i;
            let content = n / 8 * 64..n / 8 * 64 + 64;
            index.store(worker(n % 8), None, &blocks(content.map(|i| (name(i), i)))).unwrap();
        }
    };
    let evicted: Fill = &|index| {
        prompts(index);
        for n in 0..4_000 {
            index.remove(worker(n % 16), &names(n * 64 + 8..n * 64 + 64));
        }
    };
    let shapes = [
        ("prompts", prompts),
        ("shared prompts", shared),
        ("suffixes", suffixes),
        ("decode", decode),
        ("own names", own_names),
        ("evicted", evicted),
    ];
    for (shape, fill) in shapes {
        let index = Index::builder().drain_threads(0).build();
        let empty = index.stats().memory.total() as isize;
        let before = live(&index);
        fill(&index);
        let given = live(&index) - before;
        let told = index.stats().memory.total() as isize - empty;
        println!("{shape}: {told} bytes told, {given} given");
        let near = |told: isize, given: isize| (told - given).abs() < given / 50 + (64 << 10);
        assert!(near(told, given), "{shape}: {told} of {given}");
        for known in index.workers() {
            index.remove_worker(known);
        }
        let kept = live(&index) - before;
        let told = index.stats().memory.total() as isize - empty;
        println!("{shape}, emptied: {told} bytes told, {kept} kept");
        assert!(near(told, kept), "{shape}, emptied: {told} of {kept}");
    }
}

/// What ARCHITECTURE.md states of a rank's entries.
#[cfg(feature = "intake")]
#[test]
fn a_rank_takes_15_to_30_bytes_a_block_beside_its_indexes() {
    use kvradix::intake::{Decoder, Drops, Origin, Prompt, RankOptions, Residency};
    use rmp::encode::{write_array_len, write_f64, write_nil, write_str, write_uint};

    const CHAINS: u32 = 100;
    const BLOCKS: u32 = 1_000;
    let payload = |chain: u32| {
        let mut bytes = Vec::new();
        write_array_len(&mut bytes, 2).unwrap();
        write_f64(&mut bytes, 0.0).unwrap();
        write_array_len(&mut bytes, 1).unwrap();
        write_array_len(&mut bytes, 5).unwrap();
        write_str(&mut bytes, "BlockStored").unwrap();
        for list in [true, false] {
            write_array_len(&mut bytes, BLOCKS).unwrap();
            for number in chain * BLOCKS..(chain + 1) * BLOCKS {
                write_uint(&mut bytes, u64::from(number)).unwrap();
            }
            if list {
                write_nil(&mut bytes).unwrap();
            }
        }
        write_uint(&mut bytes, 1).unwrap();
        bytes
    };
    let _alone = alone();
    let mut drops = Drops::new();
    let before = live_bytes();
    let residency = Residency::new(1);
    let rank = residency.join(worker(1), RankOptions::default());
    for chain in 0..CHAINS {
        let (payload, mut decoder) = (payload(chain), Decoder::default());
        let batch = decoder.decode(&payload, &mut drops).unwrap();
        rank.apply(&batch, Origin::Live, &mut drops);
    }
    assert_eq!((drops.total(), rank.stats().device), (0, u64::from(CHAINS * BLOCKS)));
    live(residency.device());
    let with_entries = live(residency.any()) - before;

    let begun = live_bytes();
    let indexes = [Index::new(), Index::new()];
    for chain in 0..CHAINS {
        let tokens: Vec<u32> = (chain * BLOCKS..(chain + 1) * BLOCKS).collect();
        let locals = residency.converter().hash_prompt(&Prompt::new(&tokens));
        let pairs = tokens.iter().zip(locals).map(|(&token, local)| (u64::from(token), local.0));
        let blocks = blocks(pairs);
        indexes.iter().for_each(|index| index.store(worker(1), None, &blocks).unwrap());
    }
    live(&indexes[0]);
    let without = live(&indexes[1]) - begun;
    let each = (with_entries - without) as f64 / f64::from(CHAINS * BLOCKS);
    println!("{each:.1} bytes a block beside {without} of the indexes");
    assert!((12.0..=32.0).contains(&each), "{each} bytes a block");

    rank.clear();
    live(residency.device());
    // What a new index has for good is no slack.
    let sieves = 2 * (16 << 10);
    let left = live(residency.any()) - before - without - sieves;
    assert!(left <= 2 * SLACK, "{left} bytes after a clear");
}
