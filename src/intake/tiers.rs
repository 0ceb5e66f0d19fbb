//! Where a block lies.

/// One place that an engine keeps blocks in, told apart by the name it gives
/// its medium. Names are compared without regard to case.
///
/// `GPU`, and no name at all, is [`Tier::DEVICE`]; any other medium, known or
/// not, is not the device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tier(u8);

impl Tier {
    /// The memory that attention reads: a hit there costs nothing.
    pub const DEVICE: Tier = Tier(0);
}

/// A set of [`Tier`]s.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TierSet(u32);

impl TierSet {
    /// Whether `tier` is in it.
    pub const fn has(self, tier: Tier) -> bool {
        self.0 & (1 << tier.0) != 0
    }

    /// Whether no tier is in it.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}
