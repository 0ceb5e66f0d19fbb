//! What was left out, and why.

use std::fmt;

macro_rules! reasons {
    ($($(#[$doc:meta])+ $name:ident = $label:literal,)+) => {
        /// Why something of a stream was left out.
        ///
        /// Unless it says otherwise a reason counts events: the event did
        /// nothing, those before and after it did.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[non_exhaustive]
        pub enum Reason {
            $($(#[$doc])+ $name,)+
        }

        impl Reason {
            /// Every reason, in a fixed order.
            pub const ALL: &[Reason] = &[$(Reason::$name),+];

            /// A short name that does not change: a label for metrics.
            pub const fn label(self) -> &'static str {
                match self {
                    $(Reason::$name => $label,)+
                }
            }
        }
    };
}

reasons! {
    /// A payload that is no batch at all. Counts payloads.
    BadBatch = "bad_batch",
    /// The batch's time was no number; its events count. Counts batches.
    BadTimestamp = "bad_timestamp",
    /// The batch's rank was neither a small number nor nil; its events count,
    /// for the rank that its source is known for. Counts batches.
    BadRank = "bad_rank",
    /// The payload ended, or broke, before the batch did: what was still to
    /// come is lost. Counts batches; see [`Batch::whole`](super::Batch::whole).
    Truncated = "truncated",
    /// Bytes behind the batch. Counts batches, of which nothing is left out.
    TrailingBytes = "trailing_bytes",
    /// More events than [`Limits::events`](super::Limits::events).
    TooManyEvents = "too_many_events",
    /// Neither an array nor a map.
    NotAnEvent = "not_an_event",
    /// An event without a readable tag.
    NoTag = "no_tag",
    /// A tag that is none of `BlockStored`, `BlockRemoved`,
    /// `AllBlocksCleared`.
    UnknownTag = "unknown_tag",
    /// A required field is absent, or nil where it may not be.
    MissingField = "missing_field",
    /// Block hashes, or a parent's, that are neither 64-bit integers nor byte
    /// strings.
    BadHash = "bad_hash",
    /// Tokens that are no list of integers of 32 bits.
    BadTokens = "bad_tokens",
    /// A block size that is no integer of 32 bits.
    BadBlockSize = "bad_block_size",
    /// A medium that is no text.
    BadMedium = "bad_medium",
    /// An adapter's number or name, or a salt, of another type.
    BadAdapter = "bad_adapter",
    /// Extra keys that are no list of lists of known keys.
    BadExtraKeys = "bad_extra_keys",
    /// A cache group's number or kind of another type.
    BadGroup = "bad_group",
    /// A list or text above its limit in [`Limits`](super::Limits).
    TooLarge = "too_large",
    /// A block of a cache group that is not full attention.
    OtherGroup = "other_group",
    /// Blocks of another size than the index's.
    OtherBlockSize = "other_block_size",
    /// Tokens that are no whole number of blocks.
    Unaligned = "unaligned",
    /// Not one hash, or not one entry of extra keys, a block of tokens.
    CountsDiffer = "counts_differ",
    /// A store that names one block twice.
    RepeatedHash = "repeated_hash",
    /// A store for which an index has no room: a limit of its own. Where it is
    /// the device's, the blocks count as held on the other tiers alone.
    Full = "full",
    /// A store that met a panic, a fault of this crate, in an earlier event of
    /// its rank: all that the rank held was forgotten; see
    /// [`Applied::lost`](super::Applied::lost).
    Poisoned = "poisoned",
    /// A store that names its own parent.
    OwnParent = "own_parent",
    /// A store below a block that its rank holds on no tier.
    ParentNotFound = "parent_not_found",
    /// A store without tokens of a block whose place is not known: no tier
    /// has it, or it would be the device's and no tier has the block above.
    /// Counts blocks.
    UnknownBlock = "unknown_block",
    /// A removal of a block that was not held on that tier. Counts blocks.
    UnknownRemoval = "unknown_removal",
    /// A medium beyond the number that can be told apart.
    TooManyMedia = "too_many_media",
    /// An event of a rank that has left.
    RankLeft = "rank_left",
}

const REASONS: usize = Reason::ALL.len();

/// How much was left out, by [`Reason`].
#[derive(Clone, PartialEq, Eq)]
pub struct Drops {
    counts: [u64; REASONS],
}

impl Drops {
    /// Nothing left out.
    pub const fn new() -> Self {
        Self { counts: [0; REASONS] }
    }

    /// One more for this reason.
    pub fn add(&mut self, reason: Reason) {
        self.add_many(reason, 1);
    }

    /// So many more for this reason.
    pub fn add_many(&mut self, reason: Reason, count: u64) {
        let sum = &mut self.counts[reason as usize];
        *sum = sum.saturating_add(count);
    }

    /// All of `other`'s too.
    pub fn absorb(&mut self, other: &Drops) {
        for (reason, count) in other.iter() {
            self.add_many(reason, count);
        }
    }

    /// How many for this reason.
    pub const fn of(&self, reason: Reason) -> u64 {
        self.counts[reason as usize]
    }

    /// How many for all reasons together.
    pub fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Every reason that occurred, with its count.
    pub fn iter(&self) -> impl Iterator<Item = (Reason, u64)> + '_ {
        let all = Reason::ALL.iter().map(|&reason| (reason, self.of(reason)));
        all.filter(|&(_, count)| count > 0)
    }
}

impl Default for Drops {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Drops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(reason, count)| (reason.label(), count))).finish()
    }
}
