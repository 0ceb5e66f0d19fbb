//! Reading a snapshot frame by frame, each verified before it is believed.

use std::io::{self, Read};

use super::Error;
use super::frame::{self, Frame, HEADER, MAGIC, MOST_PAYLOAD, NAMED, VERSION};

/// Verified payloads, one after the other.
pub(super) struct Frames<R> {
    input: R,
    /// The checksum of the frame before.
    checksum: u64,
    /// Where the next frame begins.
    at: u64,
}

impl<R: Read> Frames<R> {
    /// Reads the header.
    pub(super) fn new(mut input: R) -> Result<Self, Error> {
        let mut header = [0; HEADER];
        read(&mut input, &mut header[..MAGIC.len()], 0)?;
        if !header.starts_with(&MAGIC) {
            return Err(Error::NotASnapshot);
        }
        read(&mut input, &mut header[MAGIC.len()..], 0)?;
        let (named, sum) = header.split_at(NAMED);
        let checksum = xxhash_rust::xxh3::xxh3_64(named);
        if sum != checksum.to_le_bytes() {
            return Err(Error::Corrupted { at: 0, what: "the checksum of the header is another" });
        }
        let mut version = [0; 4];
        version.copy_from_slice(&named[MAGIC.len()..]);
        match u32::from_le_bytes(version) {
            VERSION => Ok(Self { input, checksum, at: HEADER as u64 }),
            found => Err(Error::FutureVersion { found, known: VERSION }),
        }
    }

    /// The next payload, into `payload`, and where its frame begins.
    pub(super) fn next(&mut self, payload: &mut Vec<u8>) -> Result<u64, Error> {
        let (at, mut length, mut sum) = (self.at, [0; 4], [0; 8]);
        read(&mut self.input, &mut length, at)?;
        let length = u32::from_le_bytes(length) as usize;
        if length > MOST_PAYLOAD {
            return Err(Error::Corrupted { at, what: "a frame is longer than frames are" });
        }
        payload.resize(length, 0);
        read(&mut self.input, payload, at)?;
        read(&mut self.input, &mut sum, at)?;
        self.checksum = frame::checksum(payload, self.checksum);
        if sum != self.checksum.to_le_bytes() {
            return Err(Error::Corrupted { at, what: "the checksum of a frame is another" });
        }
        self.at += 12 + length as u64;
        Ok(at)
    }
}

/// Fills `bytes`; `at` is told if there are not so many.
fn read(input: &mut impl Read, bytes: &mut [u8], at: u64) -> Result<(), Error> {
    input.read_exact(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::UnexpectedEof => Error::Truncated { at },
        _ => Error::Io(error),
    })
}

/// The frame in a payload, all of it.
pub(super) fn decode(payload: &[u8], at: u64) -> Result<Frame<'_>, Error> {
    let corrupted = |what| Error::Corrupted { at, what };
    match postcard::take_from_bytes(payload) {
        Ok((frame, [])) => Ok(frame),
        Ok(_) => Err(corrupted("a frame has more than it should")),
        Err(_) => Err(corrupted("a frame is none that is known")),
    }
}
