//! Tokens to local hashes, for events and for requests alike.

use super::{Adapter, Reason, Stored};
use crate::{Block, LocalHash};

/// Hashes blocks of one size.
///
/// Local hashes are [`LocalHasher`](crate::hash::LocalHasher)'s, with the
/// adapter and the salt in the seed of every block, and each extra key
/// appended as one number. They have no chain: a block's hash does not depend
/// on the blocks above it, but for the salt, which vLLM tells with a prompt's
/// first block only: [`Residency`](super::Residency) hands it down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Converter {
    block_size: u32,
}

/// A salt that blocks below inherit.
pub type Salt = std::sync::Arc<str>;

/// A request's prompt, as a router knows it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prompt<'a> {
    /// The token ids, placeholders of images included.
    pub tokens: &'a [u32],
    /// The adapter it asks for.
    pub adapter: Adapter<'a>,
    /// The salt among whose requests alone its KV may be shared.
    pub salt: Option<&'a str>,
    /// Its images, from the first to the last.
    pub images: &'a [Image<'a>],
}

/// An image, or other input that is not text, in a prompt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Image<'a> {
    /// The engine's hash of its content.
    pub id: &'a str,
    /// The position of its first token in the prompt.
    pub start: usize,
    /// How many tokens stand for it.
    pub tokens: usize,
}

impl<'a> Prompt<'a> {
    /// Tokens alone: no adapter, salt or image.
    pub fn new(tokens: &'a [u32]) -> Self {
        Self { tokens, ..Self::default() }
    }
}

impl Converter {
    /// A converter for blocks of `block_size` tokens.
    ///
    /// # Panics
    /// If `block_size` is 0.
    pub fn new(block_size: u32) -> Self {
        assert_ne!(block_size, 0, "a block has at least one token");
        Self { block_size }
    }

    /// Tokens per block.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// One local hash for each full block of the prompt: what a query is made
    /// of.
    pub fn hash_prompt(&self, prompt: &Prompt<'_>) -> Vec<LocalHash> {
        let _ = prompt;
        todo!()
    }

    /// The blocks of a store that has tokens, into `blocks`, whose content is
    /// replaced; also the salt that blocks stored below the last one inherit.
    ///
    /// `inherited` is the salt of the parent's chain, if it has one.
    ///
    /// # Errors
    /// The reason why the store is left out: its size, tokens, hashes and
    /// keys do not fit together, it is unaligned, names a block twice or its
    /// own parent, or is of a group that is not full attention.
    pub fn convert(
        &self,
        stored: &Stored<'_>,
        inherited: Option<&Salt>,
        blocks: &mut Vec<Block>,
    ) -> Result<Option<Salt>, Reason> {
        let _ = (stored, inherited, blocks);
        todo!()
    }
}
