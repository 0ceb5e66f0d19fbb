//! Tokens to local hashes, for events and for requests alike.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Adapter, ExtraKey, Group, Reason, Stored};
use crate::hash::LocalHasher;
use crate::{Block, LocalHash};

/// Hashes blocks of one size.
///
/// Local hashes are [`LocalHasher`]'s, with the adapter and the salt in the
/// seed of every block and the [digest](ExtraKey::digest) of each extra key
/// in the place of an image. They have no chain: a block's hash does not
/// depend on the blocks above it. Only the salt is told by vLLM with a
/// prompt's first block alone, so [`Residency`](super::Residency) hands it
/// down from block to block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Converter {
    plain: LocalHasher,
}

/// A salt that the blocks below inherit.
pub type Salt = Arc<str>;

/// A request's prompt, as a router knows it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Prompt<'a> {
    /// The token ids, placeholders of images included.
    pub tokens: &'a [u32],
    /// The adapter it asks for.
    pub adapter: Adapter<'a>,
    /// The salt among whose requests alone its KV may be shared; an empty one
    /// is none.
    pub salt: Option<&'a str>,
    /// Its images, in any order.
    pub images: &'a [Image<'a>],
}

/// An image, or other input that is not text, in a prompt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Image<'a> {
    /// The engine's hash of its content.
    pub id: &'a str,
    /// The position of its first token in the prompt.
    pub start: usize,
    /// How many tokens stand for it.
    pub tokens: usize,
}

impl<'a> Prompt<'a> {
    /// Tokens alone: no adapter, salt or image.
    pub fn new(tokens: &'a [u32]) -> Self {
        Self { tokens, ..Self::default() }
    }
}

impl<'a> Adapter<'a> {
    /// The name that goes into local hashes; empty for none. A number is
    /// written in decimal behind a NUL, so that no adapter's name is equal.
    pub fn hashed_name(self) -> Cow<'a, str> {
        match self {
            Adapter::None | Adapter::Id(0) => Cow::Borrowed(""),
            Adapter::Name(name) => Cow::Borrowed(name),
            Adapter::Id(id) => Cow::Owned(format!("\0{id}")),
        }
    }
}

impl Group<'_> {
    /// Whether blocks of this group, by what it says of itself, hold all of
    /// their prefix: no group is named, or a kind of full attention. A group
    /// of no stated kind is taken for one if it is the first.
    pub fn is_full_attention(&self) -> bool {
        match (self.kind, self.index) {
            (Some(kind), _) => {
                let full = ["full_attention", "mla_attention", "sink_full_attention"];
                full.iter().any(|full| full.eq_ignore_ascii_case(kind))
            }
            (None, index) => matches!(index, None | Some(0)),
        }
    }
}

impl Converter {
    /// A converter for blocks of `block_size` tokens.
    ///
    /// # Panics
    /// If `block_size` is 0.
    pub fn new(block_size: u32) -> Self {
        Self { plain: LocalHasher::new(block_size as usize) }
    }

    /// Tokens per block.
    pub fn block_size(&self) -> u32 {
        self.plain.block_size() as u32
    }

    /// One local hash for each full block of the prompt: what a query is made
    /// of.
    ///
    /// An image is a key of each block that it has tokens in, as vLLM has it.
    pub fn hash_prompt(&self, prompt: &Prompt<'_>) -> Vec<LocalHash> {
        let hasher = self.hasher(&prompt.adapter.hashed_name(), prompt.salt.unwrap_or(""));
        if prompt.images.is_empty() {
            return hasher.hash_blocks(prompt.tokens);
        }
        let size = hasher.block_size();
        let blocks = prompt.tokens.len() / size;
        let mut keys = vec![Vec::new(); blocks];
        for image in prompt.images.iter().filter(|image| image.tokens > 0) {
            let first = image.start / size;
            let last = image.start.saturating_add(image.tokens - 1) / size;
            for (block, keys) in
                keys.iter_mut().enumerate().take(last.saturating_add(1)).skip(first)
            {
                let offset = image.start as i64 - (block * size) as i64;
                keys.push(ExtraKey::Image { id: image.id, offset }.digest());
            }
        }
        hasher.hash_blocks_with_images(prompt.tokens, &keys)
    }

    /// The blocks of a store that has tokens, into `blocks`, whose content is
    /// replaced. Also the salt that a store below one of them inherits, where
    /// that store will not name it itself.
    ///
    /// `inherited` is what this gave for the parent's store. Whether the
    /// store names a block twice is left to the index.
    ///
    /// # Errors
    /// The reason why the store is left out: it is of a group that is not
    /// full attention, of another block size, not of whole blocks, has not
    /// one hash for each block of tokens, or names its own parent.
    pub fn convert(
        &self,
        stored: &Stored<'_>,
        inherited: Option<&Salt>,
        blocks: &mut Vec<Block>,
    ) -> Result<Option<Salt>, Reason> {
        blocks.clear();
        self.check(stored)?;
        let adapter = adapter_of(stored);
        // The salt's place among the first block's keys, if it is there.
        let mut salt_key = None;
        let mut salt = inherited.cloned();
        if stored.salt.is_some() {
            salt = None;
        } else if stored.parent.is_none() {
            stored.extra_keys.each(|block, keys| {
                if block == 0
                    && let Some((at, text)) = salt_of(keys, adapter)
                {
                    salt_key = Some(at);
                    salt = Some(text.into());
                }
            });
        }
        let seed = stored.salt.or(salt.as_deref()).unwrap_or("");
        let hasher = self.hasher(&adapter.hashed_name(), seed);

        let size = hasher.block_size();
        let names = stored.hashes.iter();
        let mut locals = Vec::new();
        hasher.hash_blocks_into(stored.tokens, &mut locals);
        let mut digests = Vec::new();
        stored.extra_keys.each(|block, keys| {
            digests.clear();
            let adapter_key = keys.iter().position(|key| is_adapter(key, adapter));
            let salt_key = salt_key.filter(|_| block == 0);
            let known = [adapter_key, salt_key];
            let others = keys.iter().enumerate().filter(|(at, _)| !known.contains(&Some(*at)));
            digests.extend(others.map(|(_, key)| key.digest()));
            if !digests.is_empty() {
                let tokens = &stored.tokens[block * size..][..size];
                locals[block] = hasher.hash_block(tokens, &digests);
            }
        });
        blocks.extend(names.zip(&locals).map(|(&sequence, &local)| Block { sequence, local }));
        Ok(salt)
    }

    fn check(&self, stored: &Stored<'_>) -> Result<(), Reason> {
        if !stored.group.is_full_attention() {
            return Err(Reason::OtherGroup);
        }
        if stored.block_size != self.block_size() {
            return Err(Reason::OtherBlockSize);
        }
        let (size, blocks) = (self.plain.block_size(), stored.hashes.len());
        if !stored.tokens.len().is_multiple_of(size) {
            return Err(Reason::Unaligned);
        }
        let keys = stored.extra_keys.len();
        if stored.tokens.len() / size != blocks || (keys != 0 && keys != blocks) {
            return Err(Reason::CountsDiffer);
        }
        if stored.parent.is_some_and(|parent| stored.hashes.contains(&parent)) {
            return Err(Reason::OwnParent);
        }
        Ok(())
    }

    fn hasher(&self, adapter: &str, salt: &str) -> LocalHasher {
        self.plain.clone().adapter(adapter).salt(salt)
    }
}

/// The adapter of a store. Where the event has its number alone, vLLM still
/// has its name among the keys: the first text.
fn adapter_of<'a>(stored: &Stored<'a>) -> Adapter<'a> {
    let Adapter::Id(id) = stored.adapter else { return stored.adapter };
    let mut adapter = stored.adapter;
    stored.extra_keys.each(|_, keys| {
        if keys.contains(&ExtraKey::Number(id as u64)) {
            return;
        }
        let text = keys.iter().find_map(|key| match key {
            ExtraKey::Text(text) if !text.is_empty() => Some(*text),
            _ => None,
        });
        if let (Adapter::Id(_), Some(name)) = (adapter, text) {
            adapter = Adapter::Name(name);
        }
    });
    adapter
}

/// Whether the key says no more than the adapter does.
fn is_adapter(key: &ExtraKey<'_>, adapter: Adapter<'_>) -> bool {
    match (key, adapter) {
        (ExtraKey::Text(text), Adapter::Name(name)) => *text == name,
        (ExtraKey::Number(number), Adapter::Id(id)) => *number == id as u64,
        _ => false,
    }
}

/// The salt among a prompt's first keys, and where it stands: the last text
/// that is not the adapter's.
fn salt_of<'a>(keys: &[ExtraKey<'a>], adapter: Adapter<'_>) -> Option<(usize, &'a str)> {
    let adapter_key = keys.iter().position(|key| is_adapter(key, adapter));
    let mut texts = keys.iter().enumerate().filter_map(|(at, key)| match key {
        ExtraKey::Text(text) => Some((at, *text)),
        _ => None,
    });
    texts.rfind(|(at, _)| Some(*at) != adapter_key)
}
