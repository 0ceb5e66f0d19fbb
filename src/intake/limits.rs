//! How much one payload may ask for.

/// What a payload may at most contain. What is above costs its event (the
/// payload's size: the payload), and is counted.
///
/// Nesting needs no limit: fields are read to a fixed depth, and what lies
/// deeper is skipped by counting, without recursion. Nothing is allocated for
/// a length that is only claimed: memory follows the bytes that are there,
/// with at most eight bytes for each of theirs (a hash of one byte), and
/// about 200 for an event, of at least 18.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Bytes of a payload; 64 MiB by default.
    pub payload: usize,
    /// Events of a batch; 262,144 by default.
    pub events: usize,
    /// Block hashes of an event; 1,048,576 by default.
    pub hashes: usize,
    /// Tokens of an event; 16,777,216 by default.
    pub tokens: usize,
    /// Bytes of a text that is kept: adapter, salt, medium, an extra key;
    /// 4,096 by default.
    pub text: usize,
    /// Extra keys of a block; 1,024 by default.
    pub extra_keys: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload: 64 << 20,
            events: 1 << 18,
            hashes: 1 << 20,
            tokens: 1 << 24,
            text: 4_096,
            extra_keys: 1_024,
        }
    }
}
