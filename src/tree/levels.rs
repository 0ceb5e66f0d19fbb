//! Who holds how much of a run: levels `(cutoff, set of slots)`.
//!
//! A worker is in the level of the longest prefix of the run that it holds
//! whole; one that holds no prefix is in none. Slots are kept in chunks of
//! 64, so a level of several chunks is several entries: a flat list, sorted
//! by cutoff, then chunk, the shallowest first.

/// The slots `64 * chunk + bit` whose workers hold exactly the run's first
/// `cutoff` blocks, if not more behind a hole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Level {
    /// Blocks held, at least 1.
    pub(super) cutoff: u32,
    /// Which 64 slots.
    pub(super) chunk: u32,
    /// Those of the 64.
    pub(super) bits: u64,
}

impl Level {
    /// That of one worker.
    #[inline]
    pub(super) fn sole(slot: u32, cutoff: u32) -> Self {
        let (chunk, bits) = split(slot);
        Self { cutoff, chunk, bits }
    }

    /// Whose it is, if it is one worker's.
    #[inline]
    pub(super) fn sole_slot(self) -> Option<u32> {
        let Self { chunk, bits, .. } = self;
        bits.is_power_of_two().then(|| chunk * 64 + bits.trailing_zeros())
    }
}

#[inline]
fn split(slot: u32) -> (u32, u64) {
    (slot / 64, 1 << (slot % 64))
}

/// How much of the run `slot` holds; 0 for nothing.
#[inline]
pub(super) fn cutoff_of(levels: &[Level], slot: u32) -> u32 {
    let (chunk, bit) = split(slot);
    let level = levels.iter().find(|level| level.chunk == chunk && level.bits & bit != 0);
    level.map_or(0, |level| level.cutoff)
}

/// Moves `slot` from cutoff `old` to `new`; 0 is no level.
pub(super) fn set_cutoff(levels: &mut Vec<Level>, slot: u32, old: u32, new: u32) {
    debug_assert_eq!(cutoff_of(levels, slot), old);
    if old == new {
        return;
    }
    let (chunk, bit) = split(slot);
    // Most runs have one holder, and he holds all of it.
    if let [own] = levels.as_mut_slice()
        && (own.chunk, own.bits) == (chunk, bit)
    {
        own.cutoff = new;
        if new == 0 {
            levels.clear();
        }
        return;
    }
    let find = |levels: &[Level], cutoff| {
        levels.binary_search_by_key(&(cutoff, chunk), |level| (level.cutoff, level.chunk))
    };
    if old > 0
        && let Ok(at) = find(levels, old)
    {
        levels[at].bits &= !bit;
        if levels[at].bits == 0 {
            levels.remove(at);
        }
    }
    if new > 0 {
        match find(levels, new) {
            Ok(at) => levels[at].bits |= bit,
            Err(at) => levels.insert(at, Level { cutoff: new, chunk, bits: bit }),
        }
    }
}

/// The deepest cutoff of anybody but `slot`.
pub(super) fn deepest_of_others(levels: &[Level], slot: u32) -> u32 {
    let (chunk, bit) = split(slot);
    let others = |level: &&Level| level.chunk != chunk || level.bits & !bit != 0;
    levels.iter().rev().find(others).map_or(0, |level| level.cutoff)
}

/// The deepest cutoff of all.
pub(super) fn deepest(levels: &[Level]) -> u32 {
    levels.last().map_or(0, |level| level.cutoff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_in_one_level_and_empty_levels_go() {
        let mut levels = Vec::new();
        set_cutoff(&mut levels, 3, 0, 5);
        set_cutoff(&mut levels, 70, 0, 5);
        set_cutoff(&mut levels, 4, 0, 9);
        assert_eq!(levels.len(), 3);
        assert_eq!((deepest(&levels), deepest_of_others(&levels, 4)), (9, 5));
        set_cutoff(&mut levels, 3, 5, 9);
        assert_eq!(
            levels,
            [
                Level { cutoff: 5, chunk: 1, bits: 1 << 6 },
                Level { cutoff: 9, chunk: 0, bits: 0b11000 },
            ]
        );
        assert_eq!((cutoff_of(&levels, 70), cutoff_of(&levels, 71)), (5, 0));
        set_cutoff(&mut levels, 4, 9, 0);
        set_cutoff(&mut levels, 3, 9, 0);
        assert_eq!(deepest_of_others(&levels, 70), 0);
        assert_eq!(levels.len(), 1);
    }
}
