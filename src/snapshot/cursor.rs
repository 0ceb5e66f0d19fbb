//! Where in a worker's stream of events a cut stands.

/// Where in a worker's stream of events a cut stands: bytes of the caller's,
/// kept as they are, at most [`Cursor::MOST`]. A sequence number, an offset
/// of a log, a time and an epoch.
///
/// ```
/// # use kvradix::snapshot::Cursor;
/// assert_eq!(Cursor::from(41).to_u64(), Some(41));
/// assert_eq!(Cursor::from(b"epoch 3, event 7".as_slice()).to_u64(), None);
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Cursor(Vec<u8>);

impl Cursor {
    /// Bytes that a cursor may have: 64 KiB.
    pub const MOST: usize = 1 << 16;

    /// The caller's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The number it was made from; `None` if it has not eight bytes.
    pub fn to_u64(&self) -> Option<u64> {
        Some(u64::from_le_bytes(self.0.as_slice().try_into().ok()?))
    }
}

impl From<u64> for Cursor {
    /// Eight bytes, little-endian.
    fn from(number: u64) -> Self {
        Self(number.to_le_bytes().to_vec())
    }
}

impl From<&[u8]> for Cursor {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl From<Vec<u8>> for Cursor {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}
