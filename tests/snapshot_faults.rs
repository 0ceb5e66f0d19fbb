//! What is not a whole snapshot is refused, changes nothing, and makes nobody
//! allocate what it only speaks of.

// A counting allocator cannot be had without.
#![allow(unsafe_code)]
mod common;
#[path = "common/snapshots.rs"]
mod snapshots;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{self, Cursor as Bytes, Read};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{assert_empty, blocks, names, worker};
use kvradix::snapshot::{self, Cursor, Error, Importer};
use kvradix::{EventCounts, Index, StoreError};
use snapshots::{end, holes, runs, sealed, varint, worker as head};

struct Counting;

/// Bytes handed out and not given back, and the most there ever were.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is handed on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(live, Ordering::Relaxed);
        // SAFETY: the caller's promise is the one asked for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above; `pointer` came from `System`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Memory is the whole process's, so one test at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// A few workers, with holes, a second name and cursors: some hundred bytes.
fn small() -> Vec<u8> {
    let index = Index::new();
    index.store(worker(1), None, &blocks([(1, 10), (2, 11), (3, 12)])).unwrap();
    index.store(worker(1), Some(1.into()), &blocks([(9, 11)])).unwrap();
    index.remove(worker(1), &names([1]));
    index.store(worker(2), None, &blocks([(5, 10), (6, 13)])).unwrap();
    let mut file = Vec::new();
    snapshot::export(&index, &mut file, |worker| ((), Cursor::from(worker.id))).unwrap();
    file
}

/// Both ways to load it; that the second left the index as it was.
fn refused(file: &[u8]) -> Error {
    let shared = Index::builder().drain_threads(0).build();
    let importer = Importer::new().threads(1);
    let into = importer.threads(0).import_into(&shared, Bytes::new(file));
    assert_empty(&shared);
    assert!(shared.workers().is_empty());
    // Also of what only loading could tell nothing is told twice.
    let events = shared.stats().events;
    let loading = matches!(into, Err(Error::Refused { .. } | Error::Miscounted { .. }));
    assert!(loading || events == EventCounts::default(), "{events:?}");
    assert_eq!((events.stray_leavings, events.stray_clears), (0, 0));
    let loaded = importer.import(file, Index::builder().drain_threads(0));
    match (loaded, into) {
        (Err(error), Err(other)) => {
            assert_eq!(error.to_string(), other.to_string());
            error
        }
        (loaded, into) => panic!("not refused: {:?}, {:?}", loaded.is_ok(), into.is_ok()),
    }
}

#[test]
fn every_changed_byte_is_refused() {
    let _alone = ALONE.lock();
    let mut file = small();
    assert!(snapshot::import(file.as_slice(), Index::builder()).is_ok());
    for at in 0..file.len() {
        for change in [0x01, 0x80, 0xff] {
            file[at] ^= change;
            let error = refused(&file);
            let expected = match at {
                0..8 => matches!(error, Error::NotASnapshot),
                8..20 => matches!(error, Error::Corrupted { at: 0, .. }),
                // A length that is longer now ends behind the end.
                _ => matches!(error, Error::Corrupted { .. } | Error::Truncated { .. }),
            };
            assert!(expected, "byte {at} changed by {change:x}: {error}");
            file[at] ^= change;
        }
    }
}

#[test]
fn every_beginning_that_is_not_the_whole_is_refused() {
    let _alone = ALONE.lock();
    let file = small();
    for length in 0..file.len() {
        let error = refused(&file[..length]);
        assert!(matches!(error, Error::Truncated { .. }), "{length} bytes: {error}");
    }
}

/// Frames that are left out, exchanged or doubled, each with the checksum it
/// was written with.
#[test]
fn frames_in_another_order_are_refused() {
    let _alone = ALONE.lock();
    let file = small();
    let mut frames = Vec::new();
    let mut from = 20;
    while from < file.len() {
        let length = u32::from_le_bytes(file[from..from + 4].try_into().unwrap()) as usize;
        frames.push(&file[from..from + 12 + length]);
        from += 12 + length;
    }
    assert_eq!(frames.len(), 6, "two workers, their runs, holes, the end");
    for one in 0..frames.len() {
        let mut fewer = frames.clone();
        fewer.remove(one);
        let mut doubled = frames.clone();
        doubled.insert(one, frames[one]);
        for other in 0..one {
            let mut exchanged = frames.clone();
            exchanged.swap(one, other);
            refused(&[&file[..20], &exchanged.concat()].concat());
        }
        refused(&[&file[..20], &fewer.concat()].concat());
        // The end twice is an end, and something behind it.
        if one + 1 < frames.len() {
            refused(&[&file[..20], &doubled.concat()].concat());
        }
    }
}

#[test]
fn a_later_version_is_named() {
    let _alone = ALONE.lock();
    let error = refused(&sealed(2, &[end(0, 0)]));
    assert!(matches!(error, Error::FutureVersion { found: 2, known: 1 }));
    assert_eq!(
        error.to_string(),
        "the snapshot is of version 2; this program reads versions up to 1"
    );
}

#[test]
fn what_is_no_snapshot_is_called_so() {
    let _alone = ALONE.lock();
    for other in [b"PK\x03\x04 an archive, say".as_slice(), &[0; 64], b"{\"format\": \"json\"}"] {
        assert!(matches!(refused(other), Error::NotASnapshot));
    }
}

/// Sealed as it should be, and made by hand: the format is as documented.
#[test]
fn a_snapshot_made_by_hand_is_read() {
    let _alone = ALONE.lock();
    let chain: &[(u64, u64)] = &[(1, 10), (2, 11), (3, 12)];
    let parts = [head(7, 3, b"here"), runs(&[(None, chain), (Some(3), &[(4, 13)])]), holes(&[2])];
    let file = sealed(1, &[&parts[..], &[end(1, 3)]].concat());
    let warm = snapshot::import(file.as_slice(), Index::builder()).unwrap();
    assert_eq!(warm.cursors, [(worker(7), Cursor::from(b"here".as_slice()))]);
    assert_eq!(common::depth(&warm.index, worker(7), &[10, 11, 12, 13]), 1);
    warm.index.store(worker(7), Some(1.into()), &blocks([(2, 11)])).unwrap();
    assert_eq!(common::depth(&warm.index, worker(7), &[10, 11, 12, 13]), 4);
}

/// Right checksums do not make it right.
#[test]
fn sealed_nonsense_is_refused_and_leaves_nothing() {
    let _alone = ALONE.lock();
    let one: &[(u64, u64)] = &[(1, 10)];
    let two: &[(u64, u64)] = &[(1, 10), (2, 11)];
    let half_a_block = vec![1, 1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    // With how many workers and names the end speaks of.
    type Case = (&'static str, (u64, u64), Vec<Vec<u8>>);
    let cases: Vec<Case> = vec![
        ("no worker", (0, 0), vec![runs(&[(None, one)])]),
        ("holes of nobody", (0, 0), vec![holes(&[1])]),
        ("a worker twice", (2, 0), vec![head(1, 0, b""), head(1, 0, b"")]),
        ("more workers than there are", (2, 0), vec![head(1, 0, b"")]),
        ("fewer names than there are", (1, 0), vec![head(1, 1, b""), runs(&[(None, one)])]),
        ("an unknown parent", (1, 1), vec![head(1, 1, b""), runs(&[(Some(5), one)])]),
        (
            "a name twice in a run",
            (1, 2),
            vec![head(1, 2, b""), runs(&[(None, &[(1, 10), (1, 11)])])],
        ),
        (
            "a name in two runs",
            (1, 3),
            vec![head(1, 3, b""), runs(&[(None, two), (None, &[(2, 12)])])],
        ),
        ("a hole that is none", (1, 1), vec![head(1, 1, b""), runs(&[(None, two)]), holes(&[99])]),
        ("half a block", (1, 0), vec![head(1, 0, b""), half_a_block]),
        ("half a name", (1, 0), vec![head(1, 0, b""), vec![2, 1, 0]]),
        ("a frame that is none", (0, 0), vec![vec![9]]),
        ("an empty frame", (0, 0), vec![vec![]]),
        ("more behind a frame", (0, 0), vec![[holes(&[]), vec![0]].concat()]),
        ("a long cursor", (1, 0), vec![head(1, 0, &[0; Cursor::MOST + 1])]),
    ];
    for (what, (workers, names), payloads) in cases {
        // Behind a worker that is right, and so is loaded before.
        let mut file = vec![head(500, 2, b""), runs(&[(None, two)])];
        let mut last = end(workers + 1, names + 2);
        if what == "no worker" || what == "holes of nobody" {
            file.clear();
            last = end(workers, names);
        }
        file.extend(payloads);
        file.push(last);
        let error = refused(&sealed(1, &file));
        println!("{what}: {error}");
        let expected = match what {
            "a worker twice" => matches!(error, Error::RepeatedWorker { .. }),
            "an unknown parent" => {
                matches!(error, Error::Refused { error: StoreError::ParentNotFound { .. } })
            }
            "a name twice in a run" => {
                matches!(error, Error::Refused { error: StoreError::RepeatedHash { .. } })
            }
            "a name in two runs" | "a hole that is none" => {
                matches!(error, Error::Miscounted { .. })
            }
            _ => matches!(error, Error::Corrupted { .. }),
        };
        assert!(expected, "{what}: {error}");
    }
}

#[test]
fn an_absurd_number_of_threads_is_clamped() {
    let absurd = Importer::new().threads(usize::MAX);
    assert_eq!(format!("{absurd:?}"), "Importer { threads: 1024 }");
}

/// Fails without the limit of a frame's length.
#[test]
fn lengths_without_bytes_behind_them_take_no_memory() {
    let _alone = ALONE.lock();
    let many = |tag: u8, numbers: &[u64]| {
        let mut payload = vec![tag];
        numbers.iter().for_each(|number| varint(*number, &mut payload));
        payload
    };
    let mut longest_frame = sealed(1, &[]);
    longest_frame.extend(u32::MAX.to_le_bytes());
    let mut long_frame = sealed(1, &[]);
    long_frame.extend((1_u32 << 20).to_le_bytes());
    let huge = u64::from(u32::MAX) << 8;
    for file in [
        longest_frame,
        long_frame,
        sealed(1, &[many(0, &[1, 0, 0, huge])]),
        sealed(1, &[head(1, 0, b""), many(1, &[huge])]),
        sealed(1, &[head(1, 0, b""), many(1, &[1, 0, huge])]),
        sealed(1, &[head(1, 0, b""), many(2, &[huge])]),
        sealed(1, &[head(1, u64::MAX, b""), head(2, u64::MAX, b""), end(2, u64::MAX)]),
    ] {
        let before = LIVE.load(Ordering::Relaxed);
        MOST.store(before, Ordering::Relaxed);
        refused(&file);
        let added = MOST.load(Ordering::Relaxed).saturating_sub(before);
        assert!(added < 4 << 20, "{added} bytes for {} of input", file.len());
    }
}

/// A worker of many frames: loaders are given them while they are read.
#[test]
fn a_reader_far_ahead_of_the_loaders_waits() {
    let _alone = ALONE.lock();
    // The same names somewhere else each time: slow to load, and what is held
    // in the end takes no memory.
    let run = |number: u64| (0..4_000).map(|i| (i, number << 20 | i)).collect::<Vec<_>>();
    let frame = |number: u64| {
        let of_frame: Vec<_> = (0..15).map(|at| run(number * 15 + at)).collect();
        runs(&of_frame.iter().map(|run| (None, run.as_slice())).collect::<Vec<_>>())
    };
    let mut payloads = vec![head(1, 4_000, b"")];
    payloads.extend((0..100).map(frame));
    payloads.push(end(1, 4_000));
    let file = sealed(1, &payloads);
    drop(payloads);
    let before = LIVE.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let warm = Importer::new().threads(1).import(file.as_slice(), Index::builder()).unwrap();
    let added = MOST.load(Ordering::Relaxed).saturating_sub(before);
    assert_eq!(warm.index.held(worker(1)), 4_000);
    assert!(added < 40 << 20, "{added} bytes, of {} that were read", file.len());
}

/// An input that fails under way says so itself.
#[test]
fn a_failing_input_is_told_as_it_is() {
    struct Failing(Vec<u8>, usize);
    impl Read for Failing {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            let left = &self.0[self.1..];
            if left.is_empty() {
                return Err(io::Error::new(io::ErrorKind::ConnectionReset, "the line is dead"));
            }
            let count = left.len().min(bytes.len()).min(3);
            bytes[..count].copy_from_slice(&left[..count]);
            self.1 += count;
            Ok(count)
        }
    }
    let _alone = ALONE.lock();
    let file = small();
    let whole = snapshot::import(Failing(file.clone(), 0), Index::builder());
    assert!(whole.is_ok(), "three bytes at a time, and nothing read behind the end");
    let error = snapshot::import(Failing(file[..60].to_vec(), 0), Index::builder()).unwrap_err();
    assert!(matches!(error, Error::Io(_)));
    assert_eq!(error.to_string(), "the line is dead");
}
