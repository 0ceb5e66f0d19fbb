//! Snapshots made by hand, as the documentation of `kvradix::snapshot` says
//! they are made.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// A header of this version, and frames of these payloads, with checksums
/// that are right.
pub fn sealed(version: u32, payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut file = b"kvradix\0".to_vec();
    file.extend(version.to_le_bytes());
    let mut checksum = xxh3_64(&file);
    file.extend(checksum.to_le_bytes());
    for payload in payloads {
        file.extend((payload.len() as u32).to_le_bytes());
        file.extend(payload);
        checksum = xxh3_64_with_seed(payload, checksum);
        file.extend(checksum.to_le_bytes());
    }
    file
}

/// postcard's numbers: seven bits a byte, the lowest first.
pub fn varint(mut number: u64, bytes: &mut Vec<u8>) {
    while number >= 128 {
        bytes.push(number as u8 | 128);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// The payload that begins a worker.
pub fn worker(id: u64, names: u64, cursor: &[u8]) -> Vec<u8> {
    let mut payload = vec![0];
    for number in [id, 0, names, cursor.len() as u64] {
        varint(number, &mut payload);
    }
    payload.extend(cursor);
    payload
}

/// A run: its parent and blocks of (name, content).
pub type Run<'a> = (Option<u64>, &'a [(u64, u64)]);

/// The payload of some runs.
pub fn runs(runs: &[Run<'_>]) -> Vec<u8> {
    let mut payload = vec![1];
    varint(runs.len() as u64, &mut payload);
    for (parent, blocks) in runs {
        payload.push(u8::from(parent.is_some()));
        parent.iter().for_each(|parent| varint(*parent, &mut payload));
        varint(blocks.len() as u64 * 16, &mut payload);
        for (name, content) in *blocks {
            payload.extend(name.to_le_bytes());
            payload.extend(content.to_le_bytes());
        }
    }
    payload
}

/// Names to be given up.
pub fn holes(names: &[u64]) -> Vec<u8> {
    let mut payload = vec![2];
    varint(names.len() as u64 * 8, &mut payload);
    names.iter().for_each(|name| payload.extend(name.to_le_bytes()));
    payload
}

/// The payload that ends a snapshot.
pub fn end(workers: u64, names: u64) -> Vec<u8> {
    let mut payload = vec![3];
    varint(workers, &mut payload);
    varint(names, &mut payload);
    payload
}
