//! What every index is asked to do.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::block::Block;

/// One index behind the calls that all workloads are made of.
///
/// Workers are numbered from 0. An adapter builds the index's own events from
/// plain blocks inside the call, so that every index pays for its own.
pub trait Peer: Sync + Sized {
    /// What a thread that writes keeps: buffers, and what the index wants its
    /// writer to own. One at a time writes.
    type Writer: Send;
    /// What a thread that reads keeps: buffers.
    type Reader: Default + Send;
    /// A prompt as the index wants it.
    type Query<'q>;

    /// Whether it stays exact when a worker loses a block before those below.
    const ANY_ORDER: bool = true;

    /// How many workers there may be.
    const MOST_WORKERS: u32 = u32::MAX;

    /// An empty index for so many workers.
    fn new(workers: u32) -> Self;

    fn writer(&self) -> Self::Writer;

    /// `worker` now holds `blocks`, below its block `parent`.
    fn store(&self, writer: &mut Self::Writer, worker: u32, parent: Option<u64>, blocks: &[Block]);

    /// One event that removes these blocks.
    fn remove(&self, writer: &mut Self::Writer, worker: u32, names: &[u64]);

    /// The worker left. Returns once no query finds it any more.
    fn drop_worker(&self, writer: &mut Self::Writer, worker: u32);

    /// Returns once all events handed in before are visible.
    fn flush(&self);

    /// The prompt in the index's own type: not part of a query's time, since
    /// a router hashes its prompts into that type.
    fn query(locals: &[u64]) -> Self::Query<'_>;

    /// Hands every worker that holds a prefix of the prompt, and how much, to
    /// `report`.
    fn matches(
        &self,
        reader: &mut Self::Reader,
        query: Self::Query<'_>,
        report: impl FnMut(u32, u32),
    );
}

/// The indexes there are.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize, ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    Kvradix,
    /// `ChainIndex` of kv-index
    KvIndex,
    /// `RadixTree` of dynamo-kv-router, behind a mutex
    DynamoRadix,
    /// the concurrent compressed tree of dynamo-kv-router, behind its thread pool
    DynamoConcurrent,
    /// `RadixTree` of smg-radix-tree, behind a read-write lock
    SmgRadix,
}

impl Kind {
    pub const ALL: [Self; 5] =
        [Self::Kvradix, Self::KvIndex, Self::DynamoRadix, Self::DynamoConcurrent, Self::SmgRadix];

    /// Two lines, for the head of a column.
    pub fn title(self) -> &'static str {
        match self {
            Self::Kvradix => "kvradix",
            Self::KvIndex => "kv-index\nChainIndex",
            Self::DynamoRadix => "dynamo\nRadixTree",
            Self::DynamoConcurrent => "dynamo\nconcurrent",
            Self::SmgRadix => "smg\nradix-tree",
        }
    }
}
