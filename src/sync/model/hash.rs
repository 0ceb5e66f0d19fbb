//! The hasher, with a fixed seed.

use std::hash::{BuildHasher, Hasher};

/// A hasher's state; the seed is fixed, so that runs repeat.
#[derive(Clone, Copy, Debug)]
pub struct Fold {
    seed: u64,
}

impl Fold {
    pub fn random() -> Self {
        Self { seed: 0x2545_f491_4f6c_dd1d }
    }

    pub fn mix(self, word: u64) -> u64 {
        let product = u128::from(word ^ self.seed) * u128::from(0x9e37_79b9_7f4a_7c15_u64 | 1);
        (product as u64) ^ ((product >> 64) as u64)
    }
}

impl BuildHasher for Fold {
    type Hasher = FoldHasher;
    fn build_hasher(&self) -> FoldHasher {
        FoldHasher { fold: *self, hash: 0 }
    }
}

pub struct FoldHasher {
    fold: Fold,
    hash: u64,
}

impl Hasher for FoldHasher {
    fn finish(&self) -> u64 {
        self.hash
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.hash = self.fold.mix(self.hash.rotate_left(23) ^ word);
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}
