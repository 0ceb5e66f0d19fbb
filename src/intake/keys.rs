//! What else than tokens is in a block's KV.

/// One thing that changes a block's KV beside its tokens.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ExtraKey<'a> {
    /// An image, or other input that is not text, in the block's tokens.
    Image {
        /// The engine's hash of its content.
        id: &'a str,
        /// Its first token, counted from the block's; negative where it began
        /// in an earlier block.
        offset: i64,
    },
    /// An adapter's name, a salt, or a word that is neither.
    Text(&'a str),
    /// A digest, as of prompt embeddings.
    Bytes(&'a [u8]),
    /// An adapter's number, or another number (64 bits, a negative one's too).
    Number(u64),
}

/// The [`ExtraKey`]s of each block of a store. Kept as they came, and read
/// again by [`iter`](Self::iter).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ExtraKeys<'a> {
    /// The elements of the list of blocks, checked by the decoder.
    bytes: &'a [u8],
    blocks: usize,
}

impl<'a> ExtraKeys<'a> {
    /// How many blocks there are entries for; 0 where no block has any.
    pub fn len(&self) -> usize {
        self.blocks
    }

    /// Whether no block has any.
    pub fn is_empty(&self) -> bool {
        self.blocks == 0
    }
}
