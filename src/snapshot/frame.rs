//! What a snapshot is made of; the format's constants.

use serde::{Deserialize, Serialize, Serializer};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::{Block, LocalHash, SequenceHash};

pub(super) const MAGIC: [u8; 8] = *b"kvradix\0";
pub(super) const VERSION: u32 = 1;
/// Bytes of magic and version.
pub(super) const NAMED: usize = 12;
/// Bytes of the whole header.
pub(super) const HEADER: usize = NAMED + 8;
/// Bytes that a payload may have: more are refused before they are read.
pub(super) const MOST_PAYLOAD: usize = 1 << 20;
/// Bytes of blocks or names after which a frame is full. A run has at most
/// 64 KiB of blocks, so payloads stay far below what they may have.
pub(super) const FULL: usize = 1 << 18;
/// Bytes of a block, and of a name.
pub(super) const BLOCK: usize = 16;
pub(super) const NAME: usize = 8;

/// One payload. The order is the format's.
#[derive(Serialize, Deserialize)]
pub(super) enum Frame<'a> {
    /// What follows, up to the next worker, is this one's.
    Worker {
        id: u64,
        dp_rank: u32,
        /// How many names it has once all is loaded.
        names: u64,
        #[serde(serialize_with = "bytes")]
        cursor: &'a [u8],
    },
    /// Runs below the root or blocks that came before.
    #[serde(borrow)]
    Runs(Vec<Run<'a>>),
    /// Names to be given up again.
    Holes(#[serde(serialize_with = "bytes")] &'a [u8]),
    /// There is no more.
    End { workers: u64, names: u64 },
}

/// A run of blocks, `BLOCK` bytes each.
#[derive(Serialize, Deserialize)]
pub(super) struct Run<'a> {
    /// What it hangs below; `None` for the root.
    pub(super) parent: Option<u64>,
    #[serde(serialize_with = "bytes")]
    pub(super) blocks: &'a [u8],
}

/// All at once, not byte by byte.
fn bytes<S: Serializer>(bytes: &&[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(bytes)
}

impl Run<'_> {
    /// The blocks; what is less than one is left out.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Block> {
        let block = |bytes: &[u8; BLOCK]| {
            let (name, local) = bytes.split_at(NAME);
            Block { sequence: SequenceHash(number(name)), local: LocalHash(number(local)) }
        };
        self.blocks.as_chunks().0.iter().map(block)
    }
}

/// The names in `bytes`; what is less than one is left out.
pub(super) fn names(bytes: &[u8]) -> impl Iterator<Item = SequenceHash> {
    bytes.as_chunks::<NAME>().0.iter().map(|name| SequenceHash(u64::from_le_bytes(*name)))
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

pub(super) fn put_block(block: &Block, bytes: &mut Vec<u8>) {
    bytes.extend_from_slice(&block.sequence.0.to_le_bytes());
    bytes.extend_from_slice(&block.local.0.to_le_bytes());
}

/// The header, and the checksum that the first frame's is seeded with.
pub(super) fn header() -> ([u8; HEADER], u64) {
    let mut header = [0; HEADER];
    header[..8].copy_from_slice(&MAGIC);
    header[8..NAMED].copy_from_slice(&VERSION.to_le_bytes());
    let checksum = xxh3_64(&header[..NAMED]);
    header[NAMED..].copy_from_slice(&checksum.to_le_bytes());
    (header, checksum)
}

/// A payload's checksum, which covers all frames before it too.
pub(super) fn checksum(payload: &[u8], before: u64) -> u64 {
    xxh3_64_with_seed(payload, before)
}
