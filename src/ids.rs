//! The words an index speaks: block hashes and worker names.

use std::fmt;

/// The content of one block alone: its tokens and whatever else changes its
/// KV (adapter, images, salt).
///
/// The router computes it, for queries and for events; see
/// [`hash::LocalHasher`](crate::hash::LocalHasher). Every `u64` is a valid
/// hash, 0 and `u64::MAX` included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(transparent)]
pub struct LocalHash(pub u64);

impl LocalHash {
    /// Views a slice of plain hashes as local hashes, without a copy.
    ///
    /// ```
    /// use kvradix::LocalHash;
    /// assert_eq!(LocalHash::from_slice(&[7, 8])[1], LocalHash(8));
    /// ```
    #[inline]
    #[allow(unsafe_code)]
    pub fn from_slice(hashes: &[u64]) -> &[LocalHash] {
        // SAFETY: `LocalHash` is a transparent wrapper of `u64`, so both
        // slices have one layout; the lifetime is the argument's.
        unsafe { std::slice::from_raw_parts(hashes.as_ptr().cast(), hashes.len()) }
    }

    /// The way back from [`LocalHash::from_slice`].
    #[inline]
    #[allow(unsafe_code)]
    pub(crate) fn to_slice(hashes: &[LocalHash]) -> &[u64] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(hashes.as_ptr().cast(), hashes.len()) }
    }
}

/// The engine's own name for a block in its whole prefix.
///
/// Only events carry it: it says which block was stored, under which parent,
/// and which was evicted. A name belongs to one worker; two workers may call
/// the same content by different names, or different content by the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(transparent)]
pub struct SequenceHash(pub u64);

/// One block of a *stored* event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Block {
    /// The engine's name for the block.
    pub sequence: SequenceHash,
    /// The block's content.
    pub local: LocalHash,
}

/// One holder of a KV cache: a worker, or one data-parallel rank of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WorkerId {
    /// The worker.
    pub id: u64,
    /// Its data-parallel rank; 0 where there is only one.
    pub dp_rank: u32,
}

impl WorkerId {
    /// Rank `dp_rank` of worker `id`.
    #[inline]
    pub const fn new(id: u64, dp_rank: u32) -> Self {
        Self { id, dp_rank }
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.id, self.dp_rank)
    }
}

macro_rules! hex {
    ($($hash:ident),*) => {$(
        impl fmt::Display for $hash {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "0x{:016x}", self.0)
            }
        }

        impl fmt::Debug for $hash {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($hash), "(0x{:016x})"), self.0)
            }
        }

        impl From<u64> for $hash {
            #[inline]
            fn from(hash: u64) -> Self {
                Self(hash)
            }
        }
    )*};
}

hex!(LocalHash, SequenceHash);
