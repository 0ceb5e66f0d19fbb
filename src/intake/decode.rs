//! Payloads to batches.
//!
//! A batch is read from front to back, each field to the depth it is known
//! to have. A value that does not fit its field is skipped as a whole, and
//! with it its event; only where the bytes themselves break off is the rest
//! lost. Numbers are unpacked into two buffers that all events of a batch
//! share; texts and extra keys are borrowed from the payload.

use std::fmt;

use super::wire::{Container, Fault, Reader};
use super::{Adapter, Batch, Drops, Event, ExtraKeys, Limits, Reason, Removed, Stored};
use crate::SequenceHash;

/// Reads payloads, one after the other, in every layout that engines use.
///
/// It keeps the buffers that numbers are unpacked into; texts are borrowed
/// from the payload. Make one a thread.
#[derive(Debug, Default)]
pub struct Decoder {
    limits: Limits,
    numbers: Numbers,
}

/// What the events of one batch share.
#[derive(Debug, Default)]
struct Numbers {
    hashes: Vec<SequenceHash>,
    tokens: Vec<u32>,
    /// Where the numbers of each event lie.
    spans: Vec<Span>,
}

/// Where an event's numbers end; they begin where those of the one before
/// end.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    hashes: usize,
    tokens: usize,
}

/// Numbers that a buffer may keep room for from one payload to the next.
const KEPT: usize = 1 << 18;

impl Numbers {
    fn clear(&mut self) {
        self.hashes.clear();
        self.hashes.shrink_to(KEPT);
        self.tokens.clear();
        self.tokens.shrink_to(KEPT);
        self.spans.clear();
        self.spans.shrink_to(KEPT);
    }

    fn end(&self) -> Span {
        Span { hashes: self.hashes.len(), tokens: self.tokens.len() }
    }

    fn cut(&mut self, end: Span) {
        self.hashes.truncate(end.hashes);
        self.tokens.truncate(end.tokens);
    }
}

/// What stops a batch: the bytes broke off.
struct Broken;

/// What has been read of a batch.
#[derive(Default)]
struct Draft<'a> {
    ts: Option<f64>,
    rank: Option<u32>,
    /// Without their numbers.
    events: Vec<Event<'a>>,
    /// Whether there was a list of events.
    listed: bool,
}

impl Decoder {
    /// A decoder with these limits.
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Reads one payload: the last frame of a publisher's message.
    ///
    /// An event that cannot be read is left out and counted in `drops`, as is
    /// one with a tag nobody knows; a time or a rank that cannot be read is
    /// counted and left out alone. O(payload), whatever lengths and depths it
    /// claims.
    ///
    /// # Errors
    /// [`BatchError`] where there is no batch at all; counted too, as
    /// [`Reason::BadBatch`].
    pub fn decode<'a>(
        &'a mut self,
        payload: &'a [u8],
        drops: &mut Drops,
    ) -> Result<Batch<'a>, BatchError> {
        self.numbers.clear();
        let mut draft = Draft::default();
        let whole = match self.read(payload, &mut draft, drops) {
            Ok(whole) => whole,
            Err(error) => {
                drops.add(Reason::BadBatch);
                return Err(error);
            }
        };
        if !whole {
            drops.add(Reason::Truncated);
        }
        let Draft { ts, rank, mut events, .. } = draft;
        let Numbers { hashes, tokens, spans } = &self.numbers;
        let mut from = Span::default();
        for (event, &end) in events.iter_mut().zip(spans) {
            let names = &hashes[from.hashes..end.hashes];
            match event {
                Event::Stored(stored) => {
                    stored.hashes = names;
                    stored.tokens = &tokens[from.tokens..end.tokens];
                }
                Event::Removed(removed) => removed.hashes = names,
                Event::Cleared => {}
            }
            from = end;
        }
        Ok(Batch { ts, rank, events, whole })
    }

    /// Whether the payload was read to the batch's end.
    fn read<'a>(
        &mut self,
        payload: &'a [u8],
        draft: &mut Draft<'a>,
        drops: &mut Drops,
    ) -> Result<bool, BatchError> {
        if payload.len() > self.limits.payload {
            return Err(BatchError::TooLarge { bytes: payload.len() });
        }
        let mut reader = Reader::new(payload);
        let container = reader.container().map_err(|_| BatchError::NotABatch)?;
        let read = match container {
            Container::Array(fields) => self.batch_array(&mut reader, fields, draft, drops),
            Container::Map(pairs) => self.batch_map(&mut reader, pairs, draft, drops),
        };
        if !draft.listed {
            return Err(BatchError::NoEvents);
        }
        if read.is_ok() && reader.left() > 0 {
            drops.add(Reason::TrailingBytes);
        }
        Ok(read.is_ok())
    }

    fn batch_array<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        fields: u32,
        draft: &mut Draft<'a>,
        drops: &mut Drops,
    ) -> Result<(), Broken> {
        for field in 0..fields {
            match field {
                0 => timestamp(reader, draft, drops)?,
                1 => self.events(reader, draft, drops)?,
                2 => rank(reader, draft, drops)?,
                _ => skip(reader)?,
            }
        }
        Ok(())
    }

    fn batch_map<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        pairs: u32,
        draft: &mut Draft<'a>,
        drops: &mut Drops,
    ) -> Result<(), Broken> {
        for _ in 0..pairs {
            match key(reader)? {
                Some("ts") => timestamp(reader, draft, drops)?,
                Some("events") if !draft.listed => self.events(reader, draft, drops)?,
                Some("data_parallel_rank") => rank(reader, draft, drops)?,
                _ => skip(reader)?,
            }
        }
        Ok(())
    }

    fn events<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        draft: &mut Draft<'a>,
        drops: &mut Drops,
    ) -> Result<(), Broken> {
        let from = *reader;
        if reader.nil() {
            draft.listed = true;
            return Ok(());
        }
        let events = match reader.array() {
            Ok(events) => events as usize,
            Err(_) => {
                *reader = from;
                return skip(reader);
            }
        };
        draft.listed = true;
        for _ in 0..events {
            if draft.events.len() == self.limits.events {
                skip(reader)?;
                drops.add(Reason::TooManyEvents);
                continue;
            }
            let end = self.numbers.end();
            match self.event(reader) {
                Ok(Ok(event)) => {
                    draft.events.push(event);
                    self.numbers.spans.push(self.numbers.end());
                }
                Ok(Err(reason)) => {
                    drops.add(reason);
                    self.numbers.cut(end);
                }
                Err(Broken) => {
                    self.numbers.cut(end);
                    return Err(Broken);
                }
            }
        }
        Ok(())
    }

    /// One event, to its end, or why it is left out.
    fn event<'a>(&mut self, reader: &mut Reader<'a>) -> Result<Result<Event<'a>, Reason>, Broken> {
        let from = *reader;
        let container = match reader.container() {
            Ok(container) => container,
            Err(_) => {
                *reader = from;
                skip(reader)?;
                return Ok(Err(Reason::NotAnEvent));
            }
        };
        let found = match container {
            Container::Array(0) => Err(Reason::NoTag),
            Container::Array(_) => text(reader, usize::MAX)?.and_then(kind),
            Container::Map(pairs) => {
                // Wherever it stands: fields can be read once it is known.
                let tag = tag_of_map(*reader, pairs)?;
                tag.ok_or(Reason::NoTag).and_then(kind)
            }
        };
        let kind = match found {
            Ok(kind) => kind,
            Err(reason) => {
                *reader = from;
                skip(reader)?;
                return Ok(Err(reason));
            }
        };
        let mut fields = Fields::new(kind, self);
        match container {
            Container::Array(values) => {
                for position in 1..values {
                    fields.take(kind.at(position), reader)?;
                }
            }
            Container::Map(pairs) => {
                for _ in 0..pairs {
                    let field = key(reader)?.map_or(Field::Unknown, |name| kind.named(name));
                    fields.take(field, reader)?;
                }
            }
        }
        Ok(fields.finish())
    }
}

/// Goes to the value's end.
fn skip(reader: &mut Reader<'_>) -> Result<(), Broken> {
    reader.skip().map_err(|_| Broken)
}

/// Reads a value; one that does not fit is skipped.
fn value<'a, T>(
    reader: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, Fault>,
) -> Result<Result<T, Fault>, Broken> {
    let from = *reader;
    match read(reader) {
        Ok(value) => Ok(Ok(value)),
        Err(Fault::Broken) => Err(Broken),
        Err(fault) => {
            *reader = from;
            skip(reader)?;
            Ok(Err(fault))
        }
    }
}

/// A tag.
fn text<'a>(reader: &mut Reader<'a>, limit: usize) -> Result<Result<&'a str, Reason>, Broken> {
    let read = value(reader, |reader| reader.short_text(limit))?;
    Ok(read.map_err(|_| Reason::NoTag))
}

/// A map's key, if it is a text.
fn key<'a>(reader: &mut Reader<'a>) -> Result<Option<&'a str>, Broken> {
    Ok(value(reader, Reader::text)?.ok())
}

fn timestamp<'a>(
    reader: &mut Reader<'a>,
    draft: &mut Draft<'a>,
    drops: &mut Drops,
) -> Result<(), Broken> {
    draft.ts = value(reader, Reader::float)?.ok();
    if draft.ts.is_none() {
        drops.add(Reason::BadTimestamp);
    }
    Ok(())
}

fn rank<'a>(
    reader: &mut Reader<'a>,
    draft: &mut Draft<'a>,
    drops: &mut Drops,
) -> Result<(), Broken> {
    draft.rank = None;
    if !reader.nil() {
        draft.rank = value(reader, Reader::unsigned)?.ok();
        if draft.rank.is_none() {
            drops.add(Reason::BadRank);
        }
    }
    Ok(())
}

/// The tag of an event that is a map of so many pairs; the first, if there are
/// several.
fn tag_of_map<'a>(mut reader: Reader<'a>, pairs: u32) -> Result<Option<&'a str>, Broken> {
    for _ in 0..pairs {
        if key(&mut reader)? == Some("type") {
            return Ok(value(&mut reader, Reader::text)?.ok());
        }
        skip(&mut reader)?;
    }
    Ok(None)
}

/// What an event says.
#[derive(Clone, Copy)]
enum Kind {
    Stored,
    Removed,
    Cleared,
}

fn kind(tag: &str) -> Result<Kind, Reason> {
    match tag {
        "BlockStored" => Ok(Kind::Stored),
        "BlockRemoved" => Ok(Kind::Removed),
        "AllBlocksCleared" => Ok(Kind::Cleared),
        _ => Err(Reason::UnknownTag),
    }
}

/// The fields that are looked at.
#[derive(Clone, Copy)]
enum Field {
    Hashes,
    Parent,
    Tokens,
    BlockSize,
    LoraId,
    Medium,
    /// An adapter's name, or SGLang's map with the salt.
    LoraName,
    ExtraKeys,
    GroupIndex,
    GroupKind,
    CacheSalt,
    Unknown,
}

impl Kind {
    /// The field at this position of an array, the tag being at 0.
    fn at(self, position: u32) -> Field {
        use Field::*;
        let fields: &[Field] = match self {
            Kind::Stored => &[
                Hashes, Parent, Tokens, BlockSize, LoraId, Medium, LoraName, ExtraKeys, GroupIndex,
                GroupKind,
            ],
            Kind::Removed => &[Hashes, Medium, GroupIndex],
            Kind::Cleared => &[],
        };
        fields.get(position as usize - 1).copied().unwrap_or(Unknown)
    }

    /// The field of this name in a map.
    fn named(self, name: &str) -> Field {
        match (self, name) {
            (Kind::Cleared, _) => Field::Unknown,
            (_, "block_hashes") => Field::Hashes,
            (_, "medium") => Field::Medium,
            (_, "group_idx") => Field::GroupIndex,
            (Kind::Removed, _) => Field::Unknown,
            (_, "parent_block_hash") => Field::Parent,
            (_, "token_ids") => Field::Tokens,
            (_, "block_size") => Field::BlockSize,
            (_, "lora_id") => Field::LoraId,
            (_, "lora_name") => Field::LoraName,
            (_, "extra_keys") => Field::ExtraKeys,
            (_, "kv_cache_spec_kind") => Field::GroupKind,
            (_, "cache_salt") => Field::CacheSalt,
            _ => Field::Unknown,
        }
    }
}

/// An event in the making.
struct Fields<'a, 'd> {
    kind: Kind,
    limits: Limits,
    numbers: &'d mut Numbers,
    /// Where this event's numbers begin.
    from: Span,
    stored: Stored<'a>,
    lora_id: Option<i64>,
    lora_name: Option<&'a str>,
    has_hashes: bool,
    has_parent: bool,
    has_tokens: bool,
    /// Whether there was one at all; and whether it was a number.
    has_block_size: (bool, bool),
    /// Why it is left out; the first reason counts.
    bad: Option<Reason>,
}

impl<'a, 'd> Fields<'a, 'd> {
    fn new(kind: Kind, decoder: &'d mut Decoder) -> Self {
        let Decoder { limits, numbers } = decoder;
        Self {
            kind,
            limits: *limits,
            from: numbers.end(),
            numbers,
            stored: Stored::default(),
            lora_id: None,
            lora_name: None,
            has_hashes: false,
            has_parent: false,
            has_tokens: false,
            has_block_size: (false, false),
            bad: None,
        }
    }

    /// Takes the next value as this field's.
    fn take(&mut self, field: Field, reader: &mut Reader<'a>) -> Result<(), Broken> {
        if self.bad.is_some() || matches!(field, Field::Unknown) {
            return skip(reader);
        }
        let read = value(reader, |reader| self.read(field, reader))?;
        if let Err(fault) = read {
            self.bad = Some(match (fault, field) {
                (Fault::TooLarge, _) => Reason::TooLarge,
                (_, Field::Hashes | Field::Parent) => Reason::BadHash,
                (_, Field::Tokens) => Reason::BadTokens,
                (_, Field::BlockSize) => Reason::BadBlockSize,
                (_, Field::Medium) => Reason::BadMedium,
                (_, Field::LoraId | Field::LoraName | Field::CacheSalt) => Reason::BadAdapter,
                (_, Field::ExtraKeys) => Reason::BadExtraKeys,
                (_, Field::GroupIndex | Field::GroupKind | Field::Unknown) => Reason::BadGroup,
            });
        }
        Ok(())
    }

    fn read(&mut self, field: Field, reader: &mut Reader<'a>) -> Result<(), Fault> {
        // Nil is as good as nothing, wherever nothing will do.
        let nil = reader.nil();
        let limit = self.limits.text;
        match field {
            Field::Hashes if nil => {}
            Field::Hashes => {
                self.numbers.hashes.truncate(self.from.hashes);
                let count = reader.array()? as usize;
                if count > self.limits.hashes {
                    return Err(Fault::TooLarge);
                }
                self.numbers.hashes.reserve(count.min(reader.left()));
                for _ in 0..count {
                    self.numbers.hashes.push(SequenceHash(reader.hash()?));
                }
                self.has_hashes = true;
            }
            Field::Parent => {
                self.stored.parent = if nil { None } else { Some(SequenceHash(reader.hash()?)) };
                self.has_parent = true;
            }
            Field::Tokens => {
                self.numbers.tokens.truncate(self.from.tokens);
                let count = if nil { 0 } else { reader.array()? as usize };
                if count > self.limits.tokens {
                    return Err(Fault::TooLarge);
                }
                self.numbers.tokens.reserve(count.min(reader.left()));
                for _ in 0..count {
                    self.numbers.tokens.push(reader.unsigned()?);
                }
                self.has_tokens = true;
            }
            Field::BlockSize if nil => self.has_block_size = (true, false),
            Field::BlockSize => {
                self.stored.block_size = reader.unsigned()?;
                self.has_block_size = (true, true);
            }
            Field::LoraId => {
                let id = if nil { None } else { Some(reader.integer()?) };
                let id = id.map(i64::try_from).transpose().map_err(|_| Fault::Unfit)?;
                self.lora_id = id.filter(|&id| id != 0);
            }
            Field::Medium => {
                self.stored.medium = if nil { None } else { Some(reader.short_text(limit)?) };
            }
            Field::LoraName if nil => {}
            Field::LoraName => {
                let from = *reader;
                match reader.container() {
                    Ok(Container::Map(pairs)) => self.salt_of_map(pairs, reader)?,
                    _ => {
                        *reader = from;
                        self.lora_name = Some(reader.short_text(limit)?);
                    }
                }
            }
            Field::CacheSalt => {
                self.stored.salt = if nil { None } else { Some(reader.short_text(limit)?) };
            }
            Field::ExtraKeys if nil => self.stored.extra_keys = ExtraKeys::default(),
            Field::ExtraKeys => self.stored.extra_keys = ExtraKeys::read(reader, &self.limits)?,
            Field::GroupIndex => {
                self.stored.group.index = if nil { None } else { Some(reader.unsigned()?) };
            }
            Field::GroupKind => {
                self.stored.group.kind = if nil { None } else { Some(reader.short_text(limit)?) };
            }
            Field::Unknown => {}
        }
        Ok(())
    }

    /// SGLang's map in the place of an adapter's name.
    fn salt_of_map(&mut self, pairs: u32, reader: &mut Reader<'a>) -> Result<(), Fault> {
        for _ in 0..pairs {
            let from = *reader;
            if reader.text() == Ok("cache_salt") {
                self.read(Field::CacheSalt, reader)?;
            } else {
                *reader = from;
                reader.skip()?;
                reader.skip()?;
            }
        }
        Ok(())
    }

    /// The event, its numbers still in the buffers.
    fn finish(self) -> Result<Event<'a>, Reason> {
        if let Some(reason) = self.bad {
            return Err(reason);
        }
        let mut stored = self.stored;
        match self.kind {
            Kind::Cleared => return Ok(Event::Cleared),
            _ if !self.has_hashes => return Err(Reason::MissingField),
            Kind::Removed => {
                let Stored { medium, group, .. } = stored;
                return Ok(Event::Removed(Removed { medium, group, ..Removed::default() }));
            }
            Kind::Stored => {}
        }
        // Without tokens the size may be nil, as may the tokens be.
        let tokens = self.numbers.tokens.len() > self.from.tokens;
        let (told, number) = self.has_block_size;
        if !(self.has_parent && self.has_tokens && told && (number || !tokens)) {
            return Err(Reason::MissingField);
        }
        stored.adapter = match (self.lora_name.filter(|name| !name.is_empty()), self.lora_id) {
            (Some(name), _) => Adapter::Name(name),
            (None, Some(id)) => Adapter::Id(id),
            (None, None) => Adapter::None,
        };
        stored.salt = stored.salt.filter(|salt| !salt.is_empty());
        Ok(Event::Stored(stored))
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
