//! A set of positions in a run.

/// A growing bit set; positions are below a run's capacity.
#[derive(Clone, Default)]
pub(super) struct Mask(Vec<u64>);

impl Mask {
    /// The positions below `len`.
    pub(super) fn prefix(len: u32) -> Self {
        let mut mask = Self::default();
        mask.set_range(0, len);
        mask
    }

    #[inline]
    pub(super) fn get(&self, at: u32) -> bool {
        self.0.get(at as usize / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    pub(super) fn set(&mut self, at: u32) {
        let word = at as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (at % 64);
    }

    pub(super) fn set_range(&mut self, from: u32, to: u32) {
        for at in from..to {
            self.set(at);
        }
    }

    pub(super) fn clear(&mut self, at: u32) {
        if let Some(word) = self.0.get_mut(at as usize / 64) {
            *word &= !(1 << (at % 64));
        }
    }

    /// How many positions from 0 on are set without a gap.
    pub(super) fn leading(&self) -> u32 {
        let full = self.0.iter().take_while(|word| **word == u64::MAX).count();
        full as u32 * 64 + self.0.get(full).map_or(0, |word| word.trailing_ones())
    }

    /// One more than the last set position; 0 for the empty set.
    pub(super) fn end(&self) -> u32 {
        let last = self.0.iter().rposition(|word| *word != 0);
        last.map_or(0, |at| at as u32 * 64 + 64 - self.0[at].leading_zeros())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leading_and_end_see_the_gap_and_what_lies_behind_it() {
        let mut mask = Mask::prefix(130);
        assert_eq!((mask.leading(), mask.end()), (130, 130));
        mask.clear(64);
        mask.set(200);
        assert_eq!((mask.leading(), mask.end()), (64, 201));
        assert!(!mask.get(64) && mask.get(65) && !mask.get(100_000));
        for at in 0..201 {
            mask.clear(at);
        }
        assert_eq!((mask.leading(), mask.end()), (0, 0));
    }
}
