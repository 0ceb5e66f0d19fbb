//! The sieve before the root's children: one bit for many keys, set while a
//! child of the root has one of them.
//!
//! Most queries that nobody can answer end here: a clear bit says that no
//! worker holds the query's first block. That takes one load from a line that
//! is written when children come and go, and neither a pin nor a look into the
//! table. The sieve is made with the tree and goes with it; nothing ever takes
//! its place.
//!
//! A bit's keys all lie in one shard of the root's table, and under its lock
//! the bit changes: it is set before a child of the key is put into its slot,
//! and cleared after the last one of the bit was taken out. While the shard's
//! array has at most `UNITS` slots they also have one home there, so who takes
//! a child out need look only at those that were probed like it. A larger
//! array leaves its bits set, which costs a look into the table and no more;
//! when another array takes its place, the bits are found anew.
//!
//! Two things make a clear bit an answer:
//!
//! - *Whoever is held throughout has its bit.* It was set before the store
//!   returned and stays while the child is there, so a query that began later
//!   reads that value of the word or a later one (coherence; nothing more is
//!   asked of the orderings).
//! - *Who looks elsewhere sees what came before.* A name that moved has its
//!   new place before the old one goes. The clearing is a release, the
//!   reader's load an acquire. Every change of a word is a read-modify-write,
//!   so who reads a later value of it than the clearing's acquires as well.
//!
//! A set bit promises nothing, so setting needs no order.

use super::key::SHARD_BITS;
use crate::sync::{AtomicU64, Mutant, Ordering, mutant};

/// Bits of each shard, where there are as many as there may be.
pub(super) const UNITS: usize = if cfg!(kvradix_loom) { 4 } else { 1_024 };

const BITS: usize = UNITS << SHARD_BITS;
const WORDS: usize = BITS.div_ceil(64);

/// 16 KiB; in the models one word.
pub(super) struct Sieve {
    words: [AtomicU64; WORDS],
}

/// The bit of a key's hash: the bits that choose its shard, then those that
/// choose its slot there.
#[inline]
pub(super) fn bit(hash: u64) -> usize {
    hash as usize & (BITS - 1)
}

impl Sieve {
    /// No key at all.
    pub(super) fn new() -> Self {
        Self { words: std::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// The word of a bit, and the bit in it.
    #[inline]
    fn word(&self, bit: usize) -> (&AtomicU64, u64) {
        (&self.words[bit / 64], 1 << (bit % 64))
    }

    /// Whether there may be a child of the root whose key has this hash.
    #[inline]
    pub(super) fn may_have(&self, hash: u64) -> bool {
        let (word, bit) = self.word(bit(hash));
        // Acquire: pairs with the release in `clear`.
        let acquire =
            if mutant(Mutant::SieveLoadRelaxed) { Ordering::Relaxed } else { Ordering::Acquire };
        word.load(acquire) & bit != 0
    }

    /// A child whose key has this hash is about to come. Under the lock of its
    /// shard.
    pub(super) fn set(&self, hash: u64) {
        let (word, bit) = self.word(bit(hash));
        // Relaxed: the bit changes under that lock alone, and a set one
        // promises nothing.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// The last child whose key has this bit was taken out. Under the lock of
    /// its shard.
    pub(super) fn clear(&self, bit: usize) {
        let (word, bit) = self.word(bit);
        // Release: a reader that sees the bit cleared and looks elsewhere sees
        // what came first.
        let release =
            if mutant(Mutant::SieveClearRelaxed) { Ordering::Relaxed } else { Ordering::Release };
        word.fetch_and(!bit, release);
    }

    /// Clears those bits of a shard that none of its children has. `hash` is
    /// that of any key there, the table has so many shards, and `children` are
    /// the hashes of the shard's children. Under the shard's lock.
    pub(super) fn keep(&self, hash: u64, shards: usize, children: impl Iterator<Item = u64>) {
        let mut kept = [0_u64; WORDS];
        for bit in children.map(bit).filter(|_| !mutant(Mutant::SieveKeepsNone)) {
            kept[bit / 64] |= 1 << (bit % 64);
        }
        for bit in (hash as usize & (shards - 1)..BITS).step_by(shards) {
            // Relaxed: exact under the shard's lock.
            let (word, mask) = self.word(bit);
            if word.load(Ordering::Relaxed) & !kept[bit / 64] & mask != 0 {
                self.clear(bit);
            }
        }
    }

    /// Every bit that is set. Steady only while no child comes or goes.
    pub(super) fn bits(&self) -> impl Iterator<Item = usize> {
        let words = self.words.iter().map(|word| word.load(Ordering::Relaxed)).enumerate();
        let of_word = |(at, word): (usize, u64)| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        };
        words.filter(|(_, word)| *word != 0).flat_map(of_word)
    }
}

#[cfg(all(test, not(kvradix_loom)))]
mod tests {
    use super::*;

    /// So a shard's lock guards its bits, and keys of one bit have one home in
    /// an array of at most so many slots.
    #[test]
    fn keys_of_one_bit_have_one_shard_and_one_home() {
        assert_eq!(size_of::<Sieve>(), 16 << 10);
        let mut hash = 1_u64;
        for _ in 0..10_000 {
            hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17) ^ 7;
            for other in [hash ^ 1 << 6, hash ^ 1 << 16, hash ^ 1 << 17, hash & 0x1_ffff, !hash] {
                let (shard, home) = (|hash: u64| hash & 127, |hash: u64| hash >> 7 & 1_023);
                let same = shard(hash) == shard(other) && home(hash) == home(other);
                assert_eq!(bit(hash) == bit(other), same, "{hash:x} {other:x}");
            }
        }
        assert_eq!(bit(u64::MAX), BITS - 1);
    }

    #[test]
    fn a_key_is_there_once_set_and_gone_once_cleared() {
        let sieve = Sieve::new();
        let (one, other) = (3 | 5 << 7, 3 | 6 << 7);
        assert!(!sieve.may_have(one));
        sieve.set(one);
        sieve.set(one);
        assert!(sieve.may_have(one) && sieve.may_have(one | 1 << 30) && !sieve.may_have(other));
        sieve.set(other);
        assert!(sieve.bits().eq([bit(one), bit(other)]));
        sieve.clear(bit(one));
        assert!(!sieve.may_have(one) && sieve.may_have(other));
    }

    #[test]
    fn bits_of_other_shards_are_kept() {
        let sieve = Sieve::new();
        let hashes: Vec<u64> = (0..8).flat_map(|low| [low | 1 << 7, low | 900 << 7]).collect();
        hashes.iter().for_each(|hash| sieve.set(*hash));
        // Of two shards that of the odd ones keeps two keys.
        sieve.keep(5, 2, [3 | 1 << 7, 7 | 900 << 7].into_iter());
        let left = hashes.iter().filter(|hash| sieve.may_have(**hash)).copied();
        let even = hashes.iter().filter(|hash| *hash % 2 == 0).copied();
        let mut expected: Vec<u64> = even.chain([3 | 1 << 7, 7 | 900 << 7]).collect();
        expected.sort_unstable();
        let mut left: Vec<u64> = left.collect();
        left.sort_unstable();
        assert_eq!(left, expected);
        sieve.keep(4, 128, std::iter::empty());
        assert_eq!(sieve.bits().filter(|bit| bit % 128 == 4).count(), 0);
        assert_eq!(sieve.bits().count(), 8);
    }
}
