//! A snapshot, read back, is the index it was made of, worker by worker, for
//! whatever is asked and whatever comes later.

mod common;
#[path = "common/restarted.rs"]
mod restarted;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::io::Read;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use common::compare::hold;
use common::stream::{Mode, Naming, Op, stream, streams};
use common::{assert_empty, below, block, blocks, depth, names, query, worker};
use kvradix::reference::ReferenceIndex;
use kvradix::snapshot::{self, Cursor, Cut, Error, Importer, Writer};
use kvradix::{Event, EventCounts, Index, StoreError, WorkerId};
use restarted::Restarted;

/// The index as a file; every worker's cursor is its id.
fn exported(index: &Index) -> Vec<u8> {
    let mut file = Vec::new();
    snapshot::export(index, &mut file, |worker| ((), Cursor::from(worker.id))).unwrap();
    file
}

/// Holds an index that restarts every so many events to the reference.
fn restarts_on(mode: Mode, every: usize) {
    for seed in 0..6 {
        let ops = stream(mode, 9_000 + seed, 150);
        let small = Index::builder().drain_threads(0).run_blocks(4).hub_threshold(2);
        let what = format!("small nodes, callers drain, seed {seed}");
        hold(&what, &ops, mode.names_alike(), true, || Restarted::new(small.clone(), every, 0));
        let what = format!("default, seed {seed}");
        hold(&what, &ops, mode.names_alike(), false, || Restarted::new(Index::builder(), every, 2));
    }
}

#[test]
fn an_index_that_restarts_answers_as_before() {
    restarts_on(Mode::BASE, 7);
}

#[test]
fn second_names_outlive_a_restart() {
    restarts_on(Mode { naming: Naming::TwoPerWorker, ..Mode::BASE }, 5);
}

#[test]
fn moved_and_clashing_names_outlive_a_restart() {
    restarts_on(Mode { naming: Naming::Clashing, moves: 4, prompt: 16, ..Mode::BASE }, 5);
}

#[test]
fn clears_leavers_and_malformed_batches_among_restarts() {
    restarts_on(Mode { naming: Naming::Mixed, rare: 30, ..Mode::BASE }, 3);
}

#[test]
fn three_hundred_workers_outlive_a_restart() {
    restarts_on(Mode { workers: 300, ..Mode::BASE }, 60);
}

/// A router that is full is full again after its restart, under the same
/// limits: what many share is stored again where there is no room, and the
/// holes of a worker are names until they are given up.
#[test]
fn an_index_that_keeps_its_limits_is_loaded_under_them() {
    let shared = Index::builder().max_blocks(40).max_worker_blocks(30).drain_threads(0);
    let index = shared.clone().build();
    for id in 1..=3 {
        index.store(worker(id), None, &blocks((0..10).map(|i| (i, i)))).unwrap();
    }
    index.store(worker(1), below(9), &blocks((10..30).map(|i| (i, i)))).unwrap();
    index.remove(worker(1), &names(10..29));
    index.store(worker(1), None, &blocks((100..110).map(|i| (i, i)))).unwrap();
    index.store(worker(1), below(29), &blocks([])).unwrap();
    assert_eq!((index.stats().tree_blocks, index.held(worker(1))), (40, 21));
    let full = index.store(worker(2), None, &[block(50, 50)]);
    assert!(matches!(full, Err(StoreError::IndexFull { .. })));

    let file = exported(&index);
    let tight = shared.clone().max_worker_blocks(21);
    for threads in [0, 3] {
        let loaded = Importer::new().threads(threads).import(file.as_slice(), tight.clone());
        let warm = loaded.unwrap().index;
        warm.check();
        assert_eq!((warm.stats().tree_blocks, warm.held(worker(1))), (40, 21));
        assert_eq!(warm.store(worker(2), None, &[block(50, 50)]), full);
        let refused = warm.store(worker(1), None, &[block(50, 50)]);
        assert!(matches!(refused, Err(StoreError::WorkerFull { held_blocks: 21, .. })));
    }

    // Under smaller ones it is refused, and the limits hold again.
    for smaller in [shared.clone().max_blocks(39), shared.max_worker_blocks(20)] {
        let refused = snapshot::import(file.as_slice(), smaller.clone()).unwrap_err();
        assert!(matches!(refused, Error::Refused { .. }), "{refused}");
        let index = smaller.build();
        let input = std::io::Cursor::new(&file);
        assert!(Importer::new().import_into(&index, input).is_err());
        assert_empty(&index);
        let many = blocks((0..40).map(|i| (i, i)));
        assert!(index.store(worker(1), None, &many).is_err());
    }
}

/// Each worker is cut at a moment of its own, so together they may have more
/// than the limit ever let in.
#[test]
fn cuts_of_a_full_index_may_need_more_room_than_it_had() {
    let full = Index::builder().max_blocks(10).drain_threads(0);
    let index = full.clone().build();
    let mut writer = Writer::new(Vec::new()).unwrap();
    for id in [1, 2] {
        let own = id * 100..id * 100 + 10;
        index.store(worker(id), None, &blocks(own.clone().map(|n| (n, n)))).unwrap();
        writer.write(&Cut::of(&index, worker(id), Cursor::from(id)).unwrap()).unwrap();
        index.remove(worker(id), &names(own));
    }
    let (_, file) = writer.finish().unwrap();
    let refused = snapshot::import(file.as_slice(), full.clone()).unwrap_err();
    let error = StoreError::IndexFull { worker: worker(1), limit: 10, tree_blocks: 20 };
    assert!(matches!(&refused, Error::Refused { error: told } if *told == error), "{refused}");
    let warm = snapshot::import(file.as_slice(), full.max_blocks(20)).unwrap();
    assert_eq!(warm.index.stats().tree_blocks, 20);
    warm.index.check();
}

/// Fails without `Index::know` in `Loader::end` (src/snapshot/loader.rs), and
/// if it has to hold something for that.
#[test]
fn a_worker_that_holds_nothing_stays_known_and_keeps_its_cursor() {
    let (index, a) = (Index::new(), worker(1));
    index.store(a, None, &blocks([(1, 1)])).unwrap();
    index.clear(a);
    let warm = snapshot::import(exported(&index).as_slice(), Index::builder()).unwrap();
    assert_eq!(warm.index.workers(), [a]);
    assert_eq!(warm.cursors, [(a, Cursor::from(1))]);
    assert_empty(&warm.index);
    let stats = warm.index.stats();
    assert_eq!(stats.events, EventCounts::default());
    assert!(stats.memory.worker_bytes > 0);
}

#[test]
fn a_snapshot_of_nothing_is_read_as_nothing() {
    let warm = snapshot::import(exported(&Index::new()).as_slice(), Index::builder()).unwrap();
    assert!(warm.cursors.is_empty() && warm.index.workers().is_empty());
}

/// Workers whose blocks fill several frames, and holes that do.
#[test]
fn large_workers_are_loaded_by_any_number_of_threads() {
    let index = Index::new();
    let count = 50_000;
    for id in 0..5 {
        // Half of the chain is shared.
        let own = |i: u64| if i < count / 2 { i } else { i + (id + 1) * count };
        for from in (0..count).step_by(500) {
            let parent = from.checked_sub(1).map(own).and_then(below);
            let run = blocks((from..from + 500).map(|i| (own(i), own(i))));
            index.store(worker(id), parent, &run).unwrap();
        }
        if id % 2 == 1 {
            // So many holes that their names fill more than a frame.
            index.remove(worker(id), &names((1..count).filter(|i| i % 8 > 0).map(own)));
        }
    }
    let file = exported(&index);
    for threads in [0, 1, 2, 7] {
        let loaded = Importer::new().threads(threads).import(file.as_slice(), Index::builder());
        let warm = loaded.unwrap().index;
        warm.check();
        let (old, new) = (index.stats(), warm.stats());
        assert_eq!(new.held_blocks, old.held_blocks);
        assert_eq!((new.tree_blocks, new.lookup_entries), (old.tree_blocks, old.lookup_entries));
        let prompt: Vec<u64> = (0..count / 2).chain(3 * count + count / 2..4 * count).collect();
        let expected = common::answer(&index.matches(&query(prompt.clone())));
        assert_eq!(common::answer(&warm.matches(&query(prompt))), expected);
    }
}

#[test]
fn reading_ends_with_the_snapshot_and_leaves_what_follows() {
    let index = Index::new();
    index.store(worker(1), None, &blocks([(1, 1), (2, 2)])).unwrap();
    let mut stream = exported(&index);
    stream.extend(exported(&Index::new()));
    stream.extend(b"and more");
    let mut input = stream.as_slice();
    assert_eq!(snapshot::import(&mut input, Index::builder()).unwrap().cursors.len(), 1);
    assert_eq!(snapshot::import(&mut input, Index::builder()).unwrap().cursors.len(), 0);
    let mut rest = String::new();
    input.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "and more");
}

#[test]
fn a_snapshot_is_loaded_into_an_index_that_is_shared_already() {
    let index = Index::new();
    index.store(worker(1), None, &blocks([(1, 1), (2, 2)])).unwrap();
    // Behind something else in its file.
    let mut file = b"a preface".to_vec();
    file.extend(exported(&index));
    let mut input = std::io::Cursor::new(file);
    input.set_position(9);

    let shared = Index::new();
    let cursors = Importer::new().import_into(&shared, &mut input).unwrap();
    assert_eq!(cursors, [(worker(1), Cursor::from(1))]);
    assert_eq!(depth(&shared, worker(1), &[1, 2]), 2);
}

#[test]
fn an_index_that_knows_workers_is_not_loaded_into() {
    let (full, index) = (Index::new(), Index::new());
    full.store(worker(1), None, &blocks([(1, 1)])).unwrap();
    index.store(worker(2), None, &blocks([(5, 5)])).unwrap();
    let file = std::io::Cursor::new(exported(&full));
    let refused = Importer::new().import_into(&index, file).unwrap_err();
    assert!(matches!(refused, Error::NotEmpty { workers: 1 }), "{refused}");
    assert_eq!(index.workers(), [worker(2)]);
    assert_eq!(depth(&index, worker(2), &[5]), 1);
}

#[test]
fn cuts_taken_on_other_threads_make_one_snapshot() {
    let index = Index::new();
    let cut = |id: u64| {
        let run = blocks((0..100).map(|i| (id * 1000 + i, i)));
        index.store(worker(id), None, &run).unwrap();
        Cut::of(&index, worker(id), Cursor::from(id * 7)).unwrap()
    };
    let cuts: Vec<Cut> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|id| scope.spawn(move || cut(id))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let mut writer = Writer::new(Vec::new()).unwrap();
    cuts.iter().for_each(|cut| writer.write(cut).unwrap());
    let (written, file) = writer.finish().unwrap();
    assert_eq!((written.workers, written.held_blocks), (4, 400));
    let warm = snapshot::import(file.as_slice(), Index::builder()).unwrap();
    for (number, (of, cursor)) in warm.cursors.iter().enumerate() {
        assert_eq!((cuts[number].worker(), cuts[number].held()), (*of, 100));
        assert_eq!(cursor.to_u64(), Some(of.id * 7));
    }
    assert!(Cut::of(&index, worker(99), Cursor::default()).is_none(), "nobody knows it");
}

#[test]
fn a_cursor_is_any_bytes_up_to_its_limit() {
    let index = Index::new();
    index.store(worker(1), None, &blocks([(1, 1)])).unwrap();
    let cut = |bytes: usize| {
        let cursor = Cursor::from(vec![0xa5; bytes]);
        let mut writer = Writer::new(Vec::new()).unwrap();
        writer.write(&Cut::of(&index, worker(1), cursor).unwrap())?;
        writer.finish()
    };
    for bytes in [0, 1, 8, Cursor::MOST] {
        let (_, file) = cut(bytes).unwrap();
        let cursors = snapshot::import(file.as_slice(), Index::builder()).unwrap().cursors;
        assert_eq!(cursors[0].1.as_bytes(), vec![0xa5; bytes]);
    }
    let refused = cut(Cursor::MOST + 1).unwrap_err();
    assert!(matches!(refused, Error::LongCursor { bytes: 65_537, .. }), "{refused}");
}

/// Each worker's state in the snapshot is what its events up to the cursor
/// make, and its events from there make of the loaded index what the live one
/// has become.
#[test]
fn each_worker_goes_on_from_its_cursor_though_others_never_paused() {
    let mode = Mode { workers: 2, naming: Naming::Clashing, moves: 5, ..Mode::BASE };
    let threads = 3;
    let logs = streams(mode, 77, 400, threads);
    let logs: Vec<Vec<Event>> = logs.into_iter().map(events).collect();
    let mut of_worker = BTreeMap::<WorkerId, Vec<&Event>>::new();
    for event in logs.iter().flatten() {
        of_worker.entry(event.worker()).or_default().push(event);
    }
    let seen: BTreeMap<WorkerId, Mutex<usize>> =
        of_worker.keys().map(|worker| (*worker, Mutex::new(0))).collect();

    let (index, running) = (Index::builder().drain_threads(2).build(), AtomicBool::new(true));
    let (mut files, begun) = (Vec::new(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let (index, seen, begun) = (&index, &seen, &begun);
        // Goes on, from one part of the log to the next, once another export
        // is under way.
        let hand_in = |log: &Vec<Event>| {
            for (number, event) in log.iter().enumerate() {
                if number % log.len().div_ceil(8) == 0 {
                    let before = begun.load(Ordering::Acquire);
                    while begun.load(Ordering::Acquire) == before {
                        std::thread::yield_now();
                    }
                }
                let mut last = seen[&event.worker()].lock().unwrap();
                let _ = index.apply(event);
                *last += 1;
            }
        };
        let threads: Vec<_> = logs.iter().map(|log| scope.spawn(move || hand_in(log))).collect();
        scope.spawn(|| {
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            running.store(false, Ordering::Release);
        });
        let mut before = BTreeMap::new();
        while running.load(Ordering::Acquire) {
            begun.fetch_add(1, Ordering::Release);
            let (mut file, mut moment) = (Vec::new(), BTreeMap::new());
            let held = |worker| {
                let last = seen[&worker].lock().unwrap();
                moment.insert(worker, *last);
                let cursor = Cursor::from(*last as u64);
                (last, cursor)
            };
            snapshot::export(index, &mut file, held).unwrap();
            // Threads that get no turn make many exports of one moment.
            if moment != before {
                files.push(file);
                before = moment;
            }
        }
    });

    let prompts: Vec<_> = logs.iter().flatten().filter_map(prompt).take(300).collect();
    let mut middles = HashSet::new();
    // As many as there is time for, of all the moments there were.
    let step = files.len().div_ceil(20);
    for file in files.iter().step_by(step.max(1)) {
        let warm = snapshot::import(file.as_slice(), Index::builder()).unwrap();
        warm.index.check();
        let cursors: BTreeMap<_, _> = warm.cursors.into_iter().collect();
        for (worker, events) in &of_worker {
            let Some(cursor) = cursors.get(worker) else { continue };
            let at = cursor.to_u64().unwrap() as usize;
            middles.extend((0 < at && at < events.len()).then_some((*worker, at)));
            let mut alone = ReferenceIndex::new();
            events[..at].iter().for_each(|event| _ = alone.apply(event));
            assert_eq!(warm.index.held(*worker), alone.held(*worker), "{worker} at event {at}");
            for prompt in &prompts {
                let expected = alone.matches(prompt).depth_of(*worker);
                assert_eq!(warm.index.matches(prompt).depth_of(*worker), expected, "{worker} {at}");
            }
        }
        for (worker, events) in &of_worker {
            let at = cursors.get(worker).map_or(0, |cursor| cursor.to_u64().unwrap() as usize);
            events[at..].iter().for_each(|event| _ = warm.index.apply(event));
            assert_eq!(warm.index.held(*worker), index.held(*worker), "{worker} from event {at}");
        }
        warm.index.flush();
        for prompt in &prompts {
            let expected = common::answer(&index.matches(prompt));
            assert_eq!(common::answer(&warm.index.matches(prompt)), expected);
        }
    }
    assert!(middles.len() > 3, "the exports met the streams under way: {middles:?}");
}

/// What a stream hands in, but for leavers, which are no events.
fn events(ops: Vec<Op>) -> Vec<Event> {
    let events = ops.into_iter().flat_map(|op| match op {
        Op::Store { worker, parent, blocks } => vec![Event::Stored { worker, parent, blocks }],
        Op::Remove { worker, names } => vec![Event::Removed { worker, names }],
        Op::Clear { worker } => vec![Event::Cleared { worker }],
        Op::Apply { events } => events,
        _ => Vec::new(),
    });
    events.collect()
}

fn prompt(event: &Event) -> Option<Vec<kvradix::LocalHash>> {
    match event {
        Event::Stored { parent: None, blocks, .. } => {
            Some(blocks.iter().map(|block| block.local).collect())
        }
        _ => None,
    }
}

#[test]
fn a_worker_that_leaves_during_the_export_is_there_whole_or_not_at_all() {
    let (index, done) = (Index::new(), AtomicBool::new(false));
    let (stays, leaves) = (worker(1), worker(2));
    let run = |id: u64| blocks((0..2_000).map(|i| (id * 10_000 + i, i)));
    index.store(stays, None, &run(1)).unwrap();
    let files = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                index.store(leaves, None, &run(2)).unwrap();
                index.remove_worker(leaves);
            }
        });
        let files: Vec<_> = (0..100).map(|_| exported(&index)).collect();
        done.store(true, Ordering::Release);
        files
    });
    let prompt: Vec<u64> = (0..2_000).collect();
    for file in files {
        let warm = snapshot::import(file.as_slice(), Index::builder()).unwrap();
        assert_eq!(depth(&warm.index, stays, &prompt), 2_000);
        let left = depth(&warm.index, leaves, &prompt);
        assert!(left == 0 || left == 2_000, "{left}");
        assert_eq!(warm.index.workers().len(), warm.cursors.len());
        assert_eq!(warm.index.workers().contains(&leaves), left > 0);
    }
}

/// Fails if two of them write the same file at once.
#[test]
fn a_file_that_several_save_at_once_is_one_of_theirs() {
    let directory = std::env::temp_dir().join(format!("kvradix-saves-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("index.kvx");
    let indexes: Vec<Index> = (1..4)
        .map(|id| {
            let index = Index::new();
            let run = blocks((0..id * 20_000).map(|n| (n, n)));
            run.chunks(500).enumerate().for_each(|(at, chunk)| {
                let parent = (at as u64 * 500).checked_sub(1).and_then(below);
                index.store(worker(id), parent, chunk).unwrap();
            });
            index
        })
        .collect();
    std::thread::scope(|scope| {
        for index in &indexes {
            scope.spawn(|| {
                for _ in 0..5 {
                    let cursor = |worker: WorkerId| ((), Cursor::from(worker.id));
                    snapshot::save(index, &path, cursor).unwrap();
                    let file = fs::File::open(&path).unwrap();
                    let warm = snapshot::import(file, Index::builder()).unwrap();
                    let [(whose, _)] = warm.cursors.as_slice() else { panic!("one worker") };
                    assert_eq!(warm.index.held(*whose) as u64, whose.id * 20_000);
                }
            });
        }
    });
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "nothing is left beside it");
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_file_is_whole_or_as_it_was() {
    let directory = std::env::temp_dir().join(format!("kvradix-snapshot-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("index.kvx");
    let index = Index::new();
    index.store(worker(1), None, &[block(1, 1)]).unwrap();
    let cursor = |worker: WorkerId| ((), Cursor::from(worker.id));
    let written = snapshot::save(&index, &path, cursor).unwrap();
    assert_eq!(fs::read(&path).unwrap().len() as u64, written.bytes);

    // The second worker's cursor is refused once the first is written.
    index.store(worker(2), None, &[block(1, 1)]).unwrap();
    let long = |worker: WorkerId| ((), Cursor::from(vec![0; (worker.id as usize - 1) << 17]));
    assert!(matches!(snapshot::save(&index, &path, long), Err(Error::LongCursor { .. })));
    let file = fs::File::open(&path).unwrap();
    let warm = snapshot::import(file, Index::builder()).unwrap();
    assert_eq!(warm.cursors, [(worker(1), Cursor::from(1))]);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "nothing is left beside it");

    let nowhere = directory.join("nowhere").join("index.kvx");
    assert!(matches!(snapshot::save(&index, nowhere, cursor), Err(Error::Io(_))));
    fs::remove_dir_all(&directory).unwrap();
}
