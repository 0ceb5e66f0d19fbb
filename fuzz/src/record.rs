//! An input is a header and then records of equal length, one a step, so that
//! a mutation of one step leaves those behind it what they were.

use crate::setup::HEADER;

/// Bytes of a record.
pub const RECORD: usize = 8;

/// Half of the mutations are of whole records: dropped, doubled, moved,
/// exchanged. The others are libFuzzer's own, `bytes`, on the whole input.
/// Returns the new size.
pub fn mutate(
    data: &mut [u8],
    size: usize,
    most: usize,
    seed: u32,
    bytes: impl FnOnce(&mut [u8], usize, usize) -> usize,
) -> usize {
    let mut chance = Chance(u64::from(seed));
    let records = size.saturating_sub(HEADER) / RECORD;
    let most = most.min(data.len());
    if records == 0 || size > most || chance.below(2) == 0 {
        return bytes(data, size, most);
    }
    let start = |record: usize| HEADER + record * RECORD;
    let size = start(records);
    let (one, other) = (chance.below(records), chance.below(records));
    let most_of = 1 + chance.below(records - one);
    let count = 1 + chance.below(most_of);
    let (from, end) = (start(one), start(one + count));
    let room = (most - size) / RECORD;
    match chance.below(4) {
        0 if count < records => {
            data.copy_within(end..size, from);
            size - count * RECORD
        }
        1 if count <= room => {
            // The same steps again, somewhere.
            let at = start(other);
            let copy = data[from..end].to_vec();
            data.copy_within(at..size, at + copy.len());
            data[at..at + copy.len()].copy_from_slice(&copy);
            size + copy.len()
        }
        2 if one != other => {
            for byte in 0..RECORD {
                data.swap(start(one) + byte, start(other) + byte);
            }
            size
        }
        _ => {
            // One byte of one record; small steps are the likeliest to matter.
            let at = from + chance.below(RECORD);
            data[at] = match chance.below(3) {
                0 => data[at].wrapping_add(1),
                1 => data[at].wrapping_sub(1),
                _ => chance.below(256) as u8,
            };
            size
        }
    }
}

/// Numbers from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) as usize % end
    }
}
