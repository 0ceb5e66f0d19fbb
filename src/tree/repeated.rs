//! Whether a batch names a block twice.

use crate::sync::Fold;
use crate::{Block, SequenceHash};

/// The longest batch for which the filter is likely to do.
const MOST_FILTERED: usize = 32;

/// The first name that a batch has twice. O(blocks).
pub(super) fn first_repeated(blocks: &[Block], fold: Fold) -> Option<SequenceHash> {
    if blocks.len() > MOST_FILTERED {
        return first_in_table(blocks, fold);
    }
    // A filter of 1,024 bits clears most short batches at once.
    let mut filter = [0u64; 16];
    let mut clash = false;
    for block in blocks {
        let bit = block.sequence.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
        let word = &mut filter[bit as usize / 64];
        clash |= *word >> (bit % 64) & 1 == 1;
        *word |= 1 << (bit % 64);
    }
    if !clash {
        return None;
    }
    let twice = |(at, block): &(usize, &Block)| {
        blocks[..*at].iter().any(|before| before.sequence == block.sequence)
    };
    blocks.iter().enumerate().find(twice).map(|(_, block)| block.sequence)
}

/// The same through a table of the names so far. Its hash is seeded, so no
/// batch can be made up that fills one corner of it.
fn first_in_table(blocks: &[Block], fold: Fold) -> Option<SequenceHash> {
    let slots = (blocks.len() * 2).next_power_of_two();
    let mut table = vec![0u64; slots];
    let mut zeros = 0;
    for block in blocks {
        let name = block.sequence.0;
        if name == 0 {
            zeros += 1;
            if zeros > 1 {
                return Some(block.sequence);
            }
            continue;
        }
        let mut at = fold.mix(name) as usize & (slots - 1);
        while table[at] != 0 {
            if table[at] == name {
                return Some(block.sequence);
            }
            at = (at + 1) & (slots - 1);
        }
        table[at] = name;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LocalHash;

    #[test]
    fn a_repeated_name_is_found_in_batches_of_any_length() {
        let fold = Fold::random();
        for len in [1, 2, 7, 8, 9, 16, 17, 32, 33, 64, 1_000] {
            let block = |n: u64| Block { sequence: SequenceHash(n), local: LocalHash(7) };
            let mut blocks: Vec<Block> = (0..len).map(block).collect();
            blocks[len as usize - 1].sequence = SequenceHash(u64::MAX);
            assert_eq!(first_repeated(&blocks, fold), None, "{len}");
            for (first, second) in [(0, len - 1), (len / 2, len - 1)] {
                if first < second {
                    let mut blocks = blocks.clone();
                    let name = blocks[first as usize].sequence;
                    blocks[second as usize].sequence = name;
                    assert_eq!(first_repeated(&blocks, fold), Some(name), "{len}");
                }
            }
        }
    }
}
