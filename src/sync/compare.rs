//! How many leading words of two columns are equal: by vectors of 256 bits
//! where the processor has them, else as the compiler makes it for all.

#![allow(unsafe_code)]

/// How many leading words of `words` equal those of `other`.
#[inline]
pub(super) fn common_prefix(words: &[u64], other: &[u64]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if std::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has what the function is compiled for.
        return unsafe { with_avx2(words, other) };
    }
    by_long_strides(words, other)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2(words: &[u64], other: &[u64]) -> usize {
    by_strides::<16>(words, other)
}

/// Long strides through std's comparison of slices, short ones in line.
fn by_long_strides(words: &[u64], other: &[u64]) -> usize {
    const LONG: usize = 128;
    let most = words.len().min(other.len());
    let (words, other) = (&words[..most], &other[..most]);
    let long = words.chunks_exact(LONG).zip(other.chunks_exact(LONG));
    let equal = long.take_while(|(a, b)| a == b).count() * LONG;
    equal + by_strides::<8>(&words[equal..], &other[equal..])
}

/// By strides of `STRIDE` words, then word by word.
#[inline(always)]
fn by_strides<const STRIDE: usize>(words: &[u64], other: &[u64]) -> usize {
    let most = words.len().min(other.len());
    let (words, other) = (&words[..most], &other[..most]);
    let strides = words.chunks_exact(STRIDE).zip(other.chunks_exact(STRIDE));
    let same = |(a, b): &(&[u64], &[u64])| {
        a.iter().zip(*b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    };
    let equal = strides.take_while(same).count() * STRIDE;
    equal + words[equal..].iter().zip(&other[equal..]).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_that_differs_is_found_wherever_it_is() {
        let words: Vec<u64> = (0..300).collect();
        for len in (0..70).chain([127, 128, 129, 255, 256, 257, 300]) {
            for differs in (0..=len).filter(|at| len < 70 || at % 13 == 0 || len - at < 2) {
                let mut other = words[..len].to_vec();
                // At the end of `len` words nothing differs.
                if let Some(word) = other.get_mut(differs) {
                    *word ^= 1 << 63;
                }
                for shown in [len, len / 2, 300] {
                    let expected = differs.min(len).min(shown);
                    assert_eq!(common_prefix(&words[..shown], &other), expected);
                    assert_eq!(by_long_strides(&other, &words[..shown]), expected);
                    assert_eq!(by_strides::<16>(&words[..shown], &other), expected);
                }
            }
        }
    }
}
