//! Blocks as every workload makes them, before an index has its own type.

/// A cached block: the engine's name for it and the hash of its content.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Block {
    pub name: u64,
    pub local: u64,
}

impl Block {
    /// The block that `key` stands for. Different keys give different names
    /// and different contents, spread over all 64 bits as real hashes are.
    #[inline]
    pub fn of(key: u64) -> Self {
        Self { name: mix(key ^ 0x5851_f42d_4c95_7f2d), local: mix(key) }
    }
}

/// Spreads `key` over all 64 bits; different keys stay different.
#[inline]
pub fn mix(key: u64) -> u64 {
    let key = key.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let key = (key ^ (key >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ (key >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ (key >> 31)
}
