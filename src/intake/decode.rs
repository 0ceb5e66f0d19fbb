//! Payloads to batches.

use std::fmt;

use super::{Batch, Drops, Limits};

/// Reads payloads, one after the other, in every layout that engines use.
///
/// It keeps the buffers that numbers are unpacked into; texts are borrowed
/// from the payload. Make one a thread.
#[derive(Debug, Default)]
pub struct Decoder {
    limits: Limits,
}

impl Decoder {
    /// A decoder with these limits.
    pub fn new(limits: Limits) -> Self {
        Self { limits }
    }

    /// Reads one payload: the third frame of a publisher's message.
    ///
    /// An event that cannot be read is left out and counted in `drops`, as is
    /// one with a tag nobody knows; so are a time or a rank that cannot be
    /// read. Takes O(payload), whatever lengths and depths it claims.
    ///
    /// # Errors
    /// [`BatchError`] where there is no batch at all; counted too, as
    /// [`Reason::BadBatch`](super::Reason::BadBatch).
    pub fn decode<'a>(
        &'a mut self,
        payload: &'a [u8],
        drops: &mut Drops,
    ) -> Result<Batch<'a>, BatchError> {
        let _ = (payload, drops, &self.limits);
        todo!()
    }
}

/// Why a payload is no batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BatchError {
    /// More bytes than [`Limits::payload`].
    TooLarge {
        /// The payload's bytes.
        bytes: usize,
    },
    /// Neither an array nor a map.
    NotABatch,
    /// No list of events in it.
    NoEvents,
}

impl fmt::Display for BatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BatchError::TooLarge { bytes } => {
                write!(f, "a payload of {bytes} bytes is above the limit")
            }
            BatchError::NotABatch => write!(f, "the payload is neither an array nor a map"),
            BatchError::NoEvents => write!(f, "the payload has no list of events"),
        }
    }
}

impl std::error::Error for BatchError {}
