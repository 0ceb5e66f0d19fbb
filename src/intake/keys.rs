//! What else than tokens is in a block's KV.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::Limits;
use super::wire::{Container, Fault, Reader};

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
    /// An adapter's number, or another number (its 64 bits, also where it is
    /// negative).
    Number(u64),
}

/// What tells the kinds apart, were their contents equal.
const IMAGE_SEED: u64 = 0x1337_0001;
const TEXT_SEED: u64 = 0x1337_0002;
const BYTES_SEED: u64 = 0x1337_0003;
const NUMBER_SEED: u64 = 0x1337_0004;

impl<'a> ExtraKey<'a> {
    /// The number that stands for it in a block's local hash: what
    /// [`LocalHasher::hash_block`](crate::hash::LocalHasher::hash_block)
    /// takes as an image.
    ///
    /// XXH3-64 over its content with a seed of its kind. An image's offset is
    /// part of it: two images that change places are another prompt.
    pub fn digest(&self) -> u64 {
        match *self {
            ExtraKey::Image { id, offset } => {
                let id = xxh3_64_with_seed(id.as_bytes(), IMAGE_SEED);
                xxh3_64_with_seed(&offset.to_le_bytes(), id)
            }
            ExtraKey::Text(text) => xxh3_64_with_seed(text.as_bytes(), TEXT_SEED),
            ExtraKey::Bytes(bytes) => xxh3_64_with_seed(bytes, BYTES_SEED),
            ExtraKey::Number(number) => xxh3_64_with_seed(&number.to_le_bytes(), NUMBER_SEED),
        }
    }

    fn read(reader: &mut Reader<'a>, limits: &Limits) -> Result<Self, Fault> {
        let from = *reader;
        if let Ok(text) = reader.text() {
            return within(text.len(), limits).map(|()| ExtraKey::Text(text));
        }
        *reader = from;
        if let Ok(bytes) = reader.binary() {
            return within(bytes.len(), limits).map(|()| ExtraKey::Bytes(bytes));
        }
        *reader = from;
        if let Ok(Container::Array(2)) = reader.container() {
            let id = reader.short_text(limits.text)?;
            let offset = reader.integer()?.try_into().map_err(|_| Fault::Unfit)?;
            return Ok(ExtraKey::Image { id, offset });
        }
        *reader = from;
        Ok(ExtraKey::Number(reader.integer()? as u64))
    }
}

fn within(length: usize, limits: &Limits) -> Result<(), Fault> {
    if length > limits.text { Err(Fault::TooLarge) } else { Ok(()) }
}

/// The [`ExtraKey`]s of each block of a store. They stay as they came and are
/// read again where they are needed.
#[derive(Clone, Copy, Default)]
pub struct ExtraKeys<'a> {
    /// The elements of the list of blocks, checked before.
    bytes: &'a [u8],
    /// How many.
    blocks: usize,
    /// Whether any block has keys.
    some: bool,
}

impl<'a> ExtraKeys<'a> {
    /// How many blocks there are entries for, also empty ones; 0 where the
    /// store has none.
    pub fn len(&self) -> usize {
        self.blocks
    }

    /// Whether the store has no entries.
    pub fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// Whether no block has keys.
    pub fn all_empty(&self) -> bool {
        !self.some
    }

    /// The keys of one block after the other. `keys` is a vector to be used
    /// again.
    pub(super) fn each(&self, mut see: impl FnMut(usize, &[ExtraKey<'a>])) {
        if self.all_empty() {
            return;
        }
        let mut keys = Vec::new();
        let mut reader = Reader::new(self.bytes);
        for block in 0..self.blocks {
            keys.clear();
            // Checked when it was made: it reads well.
            if read_block(&mut reader, &NONE, |key| keys.push(key)).is_err() {
                return;
            }
            see(block, &keys);
        }
    }

    /// The keys of each block.
    pub fn to_vec(&self) -> Vec<Vec<ExtraKey<'a>>> {
        let mut blocks = vec![Vec::new(); self.blocks];
        self.each(|block, keys| blocks[block] = keys.to_vec());
        blocks
    }

    /// Reads and checks a list; nil is none.
    pub(super) fn read(reader: &mut Reader<'a>, limits: &Limits) -> Result<Self, Fault> {
        if reader.nil() {
            return Ok(Self::default());
        }
        let blocks = reader.array()? as usize;
        if blocks > limits.hashes {
            return Err(Fault::TooLarge);
        }
        let from = *reader;
        let mut some = false;
        for _ in 0..blocks {
            read_block(reader, limits, |_| some = true)?;
        }
        Ok(Self { bytes: from.until(reader), blocks, some })
    }
}

/// What was checked is not checked again.
const NONE: Limits = Limits {
    payload: usize::MAX,
    events: usize::MAX,
    hashes: usize::MAX,
    tokens: usize::MAX,
    text: usize::MAX,
    extra_keys: usize::MAX,
};

/// One block's entry: nil or a list.
fn read_block<'a>(
    reader: &mut Reader<'a>,
    limits: &Limits,
    mut see: impl FnMut(ExtraKey<'a>),
) -> Result<(), Fault> {
    if reader.nil() {
        return Ok(());
    }
    let keys = reader.array()? as usize;
    if keys > limits.extra_keys {
        return Err(Fault::TooLarge);
    }
    for _ in 0..keys {
        see(ExtraKey::read(reader, limits)?);
    }
    Ok(())
}

impl PartialEq for ExtraKeys<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.blocks == other.blocks && self.to_vec() == other.to_vec()
    }
}

impl fmt::Debug for ExtraKeys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.to_vec()).finish()
    }
}
