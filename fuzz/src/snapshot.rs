//! Inputs of the target `snapshot`: files that may be none.
//!
//! After an odd first byte the rest is the file. After an even one it is
//! payloads, each behind its length in two bytes; they get a header and the
//! right checksums, or no fuzzer would ever come past those.

use std::collections::BTreeMap;
use std::io::Cursor as Bytes;

use kvradix::snapshot::{self, Importer};
use kvradix::{Event, Index, LocalHash, SequenceHash, WorkerId};

use crate::snapshots::sealed;

/// Loads the input, both ways. What is refused changes nothing; what is not is
/// an index like any other, and writes a snapshot that reads as itself. Whether
/// it was loaded.
pub fn check_snapshot(input: &[u8]) -> bool {
    let Some((&first, rest)) = input.split_first() else { return false };
    let file = if first % 2 == 1 { rest.to_vec() } else { sealed(1, &payloads(rest)) };
    let (importer, builder) =
        (Importer::new().threads(usize::from(first) / 2 % 2), Index::builder().drain_threads(0));

    let shared = builder.clone().build();
    let into = importer.import_into(&shared, Bytes::new(&file));
    let loaded = importer.import(file.as_slice(), builder.clone());
    assert_eq!(loaded.is_ok(), into.is_ok(), "{:?}, {:?}", loaded.as_ref().err(), into.err());
    let Ok(loaded) = loaded else {
        let stats = shared.stats();
        let left = (stats.workers, stats.nodes, stats.tree_blocks, stats.held_blocks);
        assert_eq!(left, (0, 0, 0, 0), "after {:?}", loaded.err());
        return false;
    };

    loaded.index.check();
    let stats = loaded.index.stats();
    let mut again = Vec::new();
    let mut sorted = loaded.cursors.clone();
    sorted.sort();
    let cursor = |worker| {
        let at = sorted.binary_search_by_key(&worker, |(worker, _)| *worker);
        ((), sorted[at.expect("each worker has one")].1.clone())
    };
    snapshot::export(&loaded.index, &mut again, cursor).expect("memory takes it");
    let twice = importer.import(again.as_slice(), builder).expect("just written");
    twice.index.check();
    assert_eq!(twice.cursors, sorted);
    let other = twice.index.stats();
    assert_eq!(stats.held_blocks, other.held_blocks);
    assert_eq!(stats.tree_blocks, other.tree_blocks);
    for (worker, _) in sorted {
        assert_eq!(state(&loaded.index, worker), state(&twice.index, worker));
    }
    true
}

/// Every name that a worker has, and the contents from the root to its block.
fn state(index: &Index, worker: WorkerId) -> BTreeMap<SequenceHash, Vec<LocalHash>> {
    let mut state = BTreeMap::<SequenceHash, Vec<LocalHash>>::new();
    for event in index.export(worker) {
        match event {
            Event::Stored { parent, blocks, .. } => {
                let mut path = parent.map_or(Vec::new(), |parent| state[&parent].clone());
                for block in blocks {
                    path.push(block.local);
                    state.insert(block.sequence, path.clone());
                }
            }
            Event::Removed { names, .. } => names.iter().for_each(|name| _ = state.remove(name)),
            Event::Cleared { .. } => unreachable!("an export clears nothing"),
        }
    }
    state
}

/// The input as payloads; the last may be shorter than it says.
fn payloads(mut input: &[u8]) -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    while let Some((length, rest)) = input.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (payload, rest) = rest.split_at(length);
        payloads.push(payload.to_vec());
        input = rest;
    }
    payloads
}
