//! Msgpack, read in place.
//!
//! The reader knows lengths only by the bytes that are there. It skips values
//! by counting how many are still to come, so depth costs neither stack nor
//! memory.

use rmp::Marker;

/// Why a value could not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Fault {
    /// The bytes end inside of it.
    Broken,
    /// It is of another type, or out of range. The reader stands anywhere
    /// inside of it: go back to its beginning and skip it.
    Unfit,
    /// It is above its limit. As above.
    TooLarge,
}

/// A place in a payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
}

/// What a container holds.
pub(super) enum Container {
    /// So many values.
    Array(u32),
    /// So many pairs of values.
    Map(u32),
}

/// What an integer's marker says about the bytes behind it.
#[derive(Clone, Copy)]
enum Int {
    /// It says it all.
    Fixed(i8),
    Unsigned(usize),
    Signed(usize),
}

fn int_of(marker: Marker) -> Option<Int> {
    Some(match marker {
        Marker::FixPos(value) => Int::Fixed(value as i8),
        Marker::FixNeg(value) => Int::Fixed(value),
        Marker::U8 => Int::Unsigned(1),
        Marker::U16 => Int::Unsigned(2),
        Marker::U32 => Int::Unsigned(4),
        Marker::U64 => Int::Unsigned(8),
        Marker::I8 => Int::Signed(1),
        Marker::I16 => Int::Signed(2),
        Marker::I32 => Int::Signed(4),
        Marker::I64 => Int::Signed(8),
        _ => return None,
    })
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> usize {
        self.bytes.len()
    }

    /// What was read between `self` and `end`, which is further on.
    pub(super) fn until(&self, end: &Reader<'a>) -> &'a [u8] {
        &self.bytes[..self.bytes.len() - end.bytes.len()]
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.bytes.split_at_checked(count).ok_or(Fault::Broken)?;
        self.bytes = rest;
        Ok(taken)
    }

    /// A big-endian number of up to eight bytes.
    fn number(&mut self, bytes: usize) -> Result<u64, Fault> {
        Ok(self.take(bytes)?.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    fn length(&mut self, bytes: usize) -> Result<usize, Fault> {
        // Four bytes at most.
        Ok(self.number(bytes)? as usize)
    }

    fn marker(&mut self) -> Result<Marker, Fault> {
        let (&byte, rest) = self.bytes.split_first().ok_or(Fault::Broken)?;
        self.bytes = rest;
        Ok(Marker::from_u8(byte))
    }

    /// Whether the next value is nil, which it then takes.
    pub(super) fn nil(&mut self) -> bool {
        let nil = self.bytes.first() == Some(&Marker::Null.to_u8());
        if nil {
            self.bytes = &self.bytes[1..];
        }
        nil
    }

    /// Goes to the end of the next value, whatever is in it.
    pub(super) fn skip(&mut self) -> Result<(), Fault> {
        let mut pending = 1_u64;
        while pending > 0 {
            pending -= 1;
            let (bytes, values) = match self.marker()? {
                Marker::FixPos(_) | Marker::FixNeg(_) => (0, 0),
                // The byte that begins nothing is taken for one value, as most
                // are that it may have been: what follows is often found so.
                Marker::Null | Marker::True | Marker::False | Marker::Reserved => (0, 0),
                Marker::U8 | Marker::I8 => (1, 0),
                Marker::U16 | Marker::I16 => (2, 0),
                Marker::U32 | Marker::I32 | Marker::F32 => (4, 0),
                Marker::U64 | Marker::I64 | Marker::F64 => (8, 0),
                Marker::FixStr(length) => (length as usize, 0),
                Marker::Str8 | Marker::Bin8 => (self.length(1)?, 0),
                Marker::Str16 | Marker::Bin16 => (self.length(2)?, 0),
                Marker::Str32 | Marker::Bin32 => (self.length(4)?, 0),
                // An extension has a byte for its type.
                Marker::FixExt1 => (2, 0),
                Marker::FixExt2 => (3, 0),
                Marker::FixExt4 => (5, 0),
                Marker::FixExt8 => (9, 0),
                Marker::FixExt16 => (17, 0),
                Marker::Ext8 => (self.length(1)?.saturating_add(1), 0),
                Marker::Ext16 => (self.length(2)?.saturating_add(1), 0),
                Marker::Ext32 => (self.length(4)?.saturating_add(1), 0),
                Marker::FixArray(count) => (0, u64::from(count)),
                Marker::Array16 => (0, self.number(2)?),
                Marker::Array32 => (0, self.number(4)?),
                Marker::FixMap(pairs) => (0, 2 * u64::from(pairs)),
                Marker::Map16 => (0, 2 * self.number(2)?),
                Marker::Map32 => (0, 2 * self.number(4)?),
            };
            self.take(bytes)?;
            // At most 2^33 for each byte: no overflow.
            pending += values;
            // Every value has a byte at least.
            if pending > self.bytes.len() as u64 {
                return Err(Fault::Broken);
            }
        }
        Ok(())
    }

    /// An array's or a map's header.
    pub(super) fn container(&mut self) -> Result<Container, Fault> {
        Ok(match self.marker()? {
            Marker::FixArray(count) => Container::Array(u32::from(count)),
            Marker::Array16 => Container::Array(self.number(2)? as u32),
            Marker::Array32 => Container::Array(self.number(4)? as u32),
            Marker::FixMap(pairs) => Container::Map(u32::from(pairs)),
            Marker::Map16 => Container::Map(self.number(2)? as u32),
            Marker::Map32 => Container::Map(self.number(4)? as u32),
            _ => return Err(Fault::Unfit),
        })
    }

    /// An array's header.
    pub(super) fn array(&mut self) -> Result<u32, Fault> {
        match self.container()? {
            Container::Array(count) => Ok(count),
            Container::Map(_) => Err(Fault::Unfit),
        }
    }

    /// Any number.
    pub(super) fn float(&mut self) -> Result<f64, Fault> {
        let from = *self;
        match self.marker()? {
            Marker::F64 => Ok(f64::from_bits(self.number(8)?)),
            Marker::F32 => Ok(f64::from(f32::from_bits(self.number(4)? as u32))),
            _ => {
                *self = from;
                Ok(self.integer()? as f64)
            }
        }
    }

    /// An integer of at most 64 bits, signed or not.
    pub(super) fn integer(&mut self) -> Result<i128, Fault> {
        match int_of(self.marker()?).ok_or(Fault::Unfit)? {
            Int::Fixed(value) => Ok(i128::from(value)),
            Int::Unsigned(bytes) => Ok(i128::from(self.number(bytes)?)),
            Int::Signed(bytes) => {
                let unused = 64 - 8 * bytes as u32;
                let number = self.number(bytes)?;
                // The sign bit goes to the top and comes down again.
                Ok(i128::from((number << unused) as i64 >> unused))
            }
        }
    }

    /// An integer of 32 bits that is not negative.
    #[inline]
    pub(super) fn unsigned(&mut self) -> Result<u32, Fault> {
        // What nearly all tokens look like.
        let (value, rest) = match *self.bytes {
            [low @ 0..0x80, ref rest @ ..] => (u32::from(low), rest),
            [0xcd, high, low, ref rest @ ..] => (u32::from_be_bytes([0, 0, high, low]), rest),
            [0xce, a, b, c, d, ref rest @ ..] => (u32::from_be_bytes([a, b, c, d]), rest),
            _ => return self.integer()?.try_into().map_err(|_| Fault::Unfit),
        };
        self.bytes = rest;
        Ok(value)
    }

    /// A block's hash: an integer, signed or not, of which the bits count; or
    /// a big-endian number of any length, of which the last eight bytes do.
    #[inline]
    pub(super) fn hash(&mut self) -> Result<u64, Fault> {
        let from = *self;
        match self.marker()? {
            Marker::U64 | Marker::I64 => self.number(8),
            Marker::Bin8 | Marker::Bin16 | Marker::Bin32 => {
                *self = from;
                let bytes = self.binary()?;
                if bytes.is_empty() {
                    return Err(Fault::Unfit);
                }
                let last = &bytes[bytes.len().saturating_sub(8)..];
                Ok(last.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
            }
            _ => {
                *self = from;
                Ok(self.integer()? as u64)
            }
        }
    }

    /// A byte string.
    pub(super) fn binary(&mut self) -> Result<&'a [u8], Fault> {
        let length = match self.marker()? {
            Marker::Bin8 => self.length(1)?,
            Marker::Bin16 => self.length(2)?,
            Marker::Bin32 => self.length(4)?,
            _ => return Err(Fault::Unfit),
        };
        self.take(length)
    }

    /// A text.
    pub(super) fn text(&mut self) -> Result<&'a str, Fault> {
        let length = match self.marker()? {
            Marker::FixStr(length) => length as usize,
            Marker::Str8 => self.length(1)?,
            Marker::Str16 => self.length(2)?,
            Marker::Str32 => self.length(4)?,
            _ => return Err(Fault::Unfit),
        };
        std::str::from_utf8(self.take(length)?).map_err(|_| Fault::Unfit)
    }

    /// A text of at most `limit` bytes.
    pub(super) fn short_text(&mut self, limit: usize) -> Result<&'a str, Fault> {
        let text = self.text()?;
        if text.len() > limit { Err(Fault::TooLarge) } else { Ok(text) }
    }
}
