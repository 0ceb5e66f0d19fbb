//! What requests say.

use axum::http::StatusCode;
use kvradix::LocalHash;
use kvradix::fleet::{Question, Wanted};
use kvradix::intake::{Adapter, Image, Prompt};
use serde::{Deserialize, Deserializer, de};

/// How many times over images may cover a prompt. Audio and video that take
/// turns cover it twice; each block of each image costs memory.
const COVERS: usize = 16;

/// The body of `POST /query`.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// The prompt's token ids.
    tokens: Option<Vec<u32>>,
    /// Or one local hash for each of its blocks, as numbers, or as texts where
    /// whoever writes them has no integers of 64 bits.
    hashes: Option<Vec<Hash>>,
    /// The model; unless given, any.
    model: Option<String>,
    /// Tokens per block; unless given, any.
    block_size: Option<u32>,
    /// The adapter's name.
    lora_name: Option<String>,
    /// Or its number, where engines give it no name.
    lora_id: Option<i64>,
    /// The salt.
    cache_salt: Option<String>,
    /// Images among the tokens.
    #[serde(default)]
    images: Vec<ImageSpan>,
}

#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
struct ImageSpan {
    /// The engine's hash of it.
    id: String,
    /// The position of its first token.
    start: usize,
    /// Tokens that stand for it.
    tokens: usize,
}

impl ImageSpan {
    fn image(&self) -> Image<'_> {
        Image { id: &self.id, start: self.start, tokens: self.tokens }
    }

    /// Tokens of a prompt of so many that it covers.
    fn covers(&self, tokens: usize) -> usize {
        self.tokens.min(tokens.saturating_sub(self.start))
    }
}

/// Why a request is refused, in words for whoever sent it.
#[derive(Debug)]
pub struct Refusal(pub StatusCode, pub String);

impl Refusal {
    pub fn bad(reason: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, reason.into())
    }
}

/// A local hash.
#[derive(Clone, Copy, Debug)]
struct Hash(u64);

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Hash;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an unsigned integer of 64 bits, or one in decimal as a text")
            }

            fn visit_u64<E: de::Error>(self, hash: u64) -> Result<Hash, E> {
                Ok(Hash(hash))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Hash, E> {
                let wrong = || E::invalid_value(de::Unexpected::Str(text), &self);
                text.parse().map(Hash).map_err(|_| wrong())
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// Reads a body as JSON.
///
/// # Errors
///
/// It is not what it should be; the reason says where.
pub fn parse<T: de::DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body).map_err(|error| Refusal::bad(error.to_string()))
}

impl Query {
    /// Hands the question to `ask`.
    ///
    /// # Errors
    ///
    /// It asks for nothing, or for two things at once; or its images cover the
    /// prompt again and again.
    pub fn ask<T>(&self, ask: impl FnOnce(&Question<'_>) -> T) -> Result<T, Refusal> {
        let hashed: Vec<LocalHash>;
        let images: Vec<Image<'_>>;
        let wanted = match (&self.tokens, &self.hashes) {
            (Some(tokens), None) => {
                let adapter = match (&self.lora_name, self.lora_id) {
                    (None, None) => Adapter::None,
                    (Some(name), None) if name.is_empty() => Adapter::None,
                    (Some(name), None) => Adapter::Name(name),
                    (None, Some(id)) => Adapter::Id(id),
                    (Some(_), Some(_)) => {
                        return Err(Refusal::bad("give `lora_name` or `lora_id`, not both"));
                    }
                };
                let covered = self.images.iter().map(|image| image.covers(tokens.len()));
                if covered.fold(0, usize::saturating_add) > tokens.len().saturating_mul(COVERS) {
                    return Err(Refusal::bad(format!(
                        "the images cover the prompt more than {COVERS} times"
                    )));
                }
                images = self.images.iter().map(ImageSpan::image).collect();
                let salt = self.cache_salt.as_deref();
                Wanted::Tokens(Prompt { tokens, adapter, salt, images: &images })
            }
            (None, Some(hashes)) => {
                let other = self.lora_name.is_some() || self.lora_id.is_some();
                if other || self.cache_salt.is_some() || !self.images.is_empty() {
                    return Err(Refusal::bad(
                        "adapter, salt and images are part of the hashes: give them with `tokens`",
                    ));
                }
                hashed = hashes.iter().map(|&Hash(hash)| LocalHash(hash)).collect();
                Wanted::Hashes(&hashed)
            }
            (None, None) => return Err(Refusal::bad("give `tokens` or `hashes`")),
            (Some(_), Some(_)) => return Err(Refusal::bad("give `tokens` or `hashes`, not both")),
        };
        let model = self.model.as_deref();
        Ok(ask(&Question { wanted, model, block_size: self.block_size }))
    }
}
