//! A request's blocks, under both of their hashes.

use kvradix::{LocalHash, SequenceHash};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A request: its prompt's blocks and, below them, those of its answer.
///
/// Threads keep one each and let a workload fill it again and again.
#[derive(Clone, Default, Debug)]
pub struct Request {
    /// The prompt, then the answer.
    pub chain: Chain,
    /// How many blocks of the chain are the prompt's.
    pub prompt_blocks: usize,
}

impl Request {
    /// What the router looks up.
    pub fn query(&self) -> &[LocalHash] {
        &self.chain.locals[..self.prompt_blocks]
    }
}

/// Blocks from a prompt's first down.
#[derive(Clone, Default, Debug)]
pub struct Chain {
    locals: Vec<LocalHash>,
    sequences: Vec<SequenceHash>,
}

impl Chain {
    /// Forgets the blocks, keeps the buffers.
    pub fn clear(&mut self) {
        self.locals.clear();
        self.sequences.clear();
    }

    /// Adds a block of this content. Its sequence hash is one of its content
    /// and of the sequence hash above it.
    pub fn push(&mut self, local: LocalHash) {
        let above = self.sequences.last().map_or(0, |sequence| sequence.0);
        let sequence = xxh3_64_with_seed(&local.0.to_le_bytes(), above);
        self.locals.push(local);
        self.sequences.push(SequenceHash(sequence));
    }

    pub fn len(&self) -> usize {
        self.locals.len()
    }

    pub fn locals(&self) -> &[LocalHash] {
        &self.locals
    }

    pub fn sequences(&self) -> &[SequenceHash] {
        &self.sequences
    }
}
