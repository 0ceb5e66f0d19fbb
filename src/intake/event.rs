//! What a payload says, once it is read.

use super::ExtraKeys;
use crate::SequenceHash;

/// The events of one payload. Borrows from the payload and from the
/// [`Decoder`](super::Decoder) that read it.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct Batch<'a> {
    /// When it was published, in seconds by the engine's clock; `None` if
    /// that could not be read.
    pub ts: Option<f64>,
    /// The data-parallel rank that it speaks of, if it says.
    pub rank: Option<u32>,
    /// The events that could be read, in order.
    pub events: Vec<Event<'a>>,
    /// Whether the payload was read to its end. Where it broke off, events
    /// are missing at the end of `events`, and nobody knows how many: as good
    /// as a gap in the stream.
    pub whole: bool,
}

/// One cache event as an engine published it.
#[derive(Clone, PartialEq, Debug)]
pub enum Event<'a> {
    /// Blocks are now held.
    Stored(Stored<'a>),
    /// Blocks are no longer held.
    Removed(Removed<'a>),
    /// The rank that sent it holds nothing any more.
    Cleared,
}

/// Blocks that a rank now holds, each below the one before.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Stored<'a> {
    /// The engine's names.
    pub hashes: &'a [SequenceHash],
    /// The name of the block above the first; `None` at the beginning of a
    /// prompt, or where a store without tokens leaves it out.
    pub parent: Option<SequenceHash>,
    /// The tokens of all blocks; empty where an offload names hashes only.
    pub tokens: &'a [u32],
    /// Tokens per block.
    pub block_size: u32,
    /// The adapter that the KV was computed with.
    pub adapter: Adapter<'a>,
    /// The salt, where the event itself has one (SGLang). vLLM has it among
    /// the extra keys of a prompt's first block.
    pub salt: Option<&'a str>,
    /// Where: see [`Tier`](super::Tier); `None` is the device.
    pub medium: Option<&'a str>,
    /// What else is in the KV of each block.
    pub extra_keys: ExtraKeys<'a>,
    /// The cache group.
    pub group: Group<'a>,
}

/// Blocks that a rank no longer holds on a tier.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Removed<'a> {
    /// The engine's names.
    pub hashes: &'a [SequenceHash],
    /// Where: see [`Tier`](super::Tier); `None` is the device.
    pub medium: Option<&'a str>,
    /// The cache group; removals do not say its kind.
    pub group: Group<'a>,
}

/// A cache group of a hybrid model.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Group<'a> {
    /// Its number.
    pub index: Option<u32>,
    /// The kind of attention, in the engine's words.
    pub kind: Option<&'a str>,
}

/// The adapter (LoRA) that KV was computed with.
///
/// A number that comes without a name is an adapter too, equal only to the
/// same number. An empty name and number 0 are no adapter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Adapter<'a> {
    /// The plain model.
    #[default]
    None,
    /// The adapter of this name.
    Name(&'a str),
    /// The adapter of this number, where the engine gives no name.
    Id(i64),
}
