//! Who holds most of a prompt?

use std::fmt;

use serde::Serialize;

use super::Fleet;
use crate::intake::{Answer, Prompt};
use crate::{LocalHash, WorkerId};

/// A request, and which workers come into question.
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// What is wanted.
    pub wanted: Wanted<'a>,
    /// The model to be served by; unless given, any.
    pub model: Option<&'a str>,
    /// Tokens per block of the workers asked; unless given, any.
    pub block_size: Option<u32>,
}

/// What is wanted.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// A prompt, cut and hashed as each worker's blocks are.
    Tokens(Prompt<'a>),
    /// One local hash for each block. They are of one block size, so it has to
    /// be given where the fleet has several.
    Hashes(&'a [LocalHash]),
}

/// What one rank has of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct Found {
    /// Who.
    #[serde(flatten)]
    pub worker: WorkerId,
    /// Leading blocks on its device.
    pub device: u32,
    /// Leading blocks on any of its tiers, the device included.
    pub any: u32,
    /// Tokens of a block.
    pub block_size: u32,
}

/// Why a question has no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum QuestionError {
    /// The fleet has workers, but none of this model and block size.
    NobodyServes,
    /// Hashes are of one block size, and the fleet has several.
    WhichBlockSize,
}

impl fmt::Display for QuestionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QuestionError::NobodyServes => "no worker has this model and block size",
            QuestionError::WhichBlockSize => {
                "hashes are of one block size: say which, the fleet has several"
            }
        })
    }
}

impl std::error::Error for QuestionError {}

impl<'a> Question<'a> {
    /// Who has most of this prompt, whatever the model?
    pub fn tokens(prompt: Prompt<'a>) -> Self {
        Self { wanted: Wanted::Tokens(prompt), model: None, block_size: None }
    }

    /// Who has most of these blocks, whatever the model?
    pub fn hashes(hashes: &'a [LocalHash]) -> Self {
        Self { wanted: Wanted::Hashes(hashes), model: None, block_size: None }
    }
}

impl Fleet {
    /// Who holds a prefix of what is wanted, and how much: by model and block
    /// size, then in the order of workers. A fleet without workers answers
    /// nothing. Takes no lock.
    ///
    /// # Errors
    /// Nobody can answer, or the question is not clear.
    pub fn ask(&self, question: &Question<'_>) -> Result<Vec<Found>, QuestionError> {
        let all = self.models();
        let models: Vec<_> = all
            .iter()
            .filter(|model| question.model.is_none_or(|name| name == model.name()))
            .filter(|model| question.block_size.is_none_or(|size| size == model.block_size()))
            .collect();
        let Some(first) = models.first() else {
            return if all.is_empty() { Ok(Vec::new()) } else { Err(QuestionError::NobodyServes) };
        };
        let mut answer = Answer::new();
        let mut found = Vec::new();
        for model in &models {
            let residency = model.residency();
            match question.wanted {
                Wanted::Tokens(prompt) => {
                    let hashes = residency.converter().hash_prompt(&prompt);
                    residency.query(&hashes, &mut answer);
                }
                Wanted::Hashes(hashes) => {
                    if model.block_size() != first.block_size() {
                        return Err(QuestionError::WhichBlockSize);
                    }
                    residency.query(hashes, &mut answer);
                }
            }
            let block_size = model.block_size();
            found.extend(answer.residences().iter().map(|residence| Found {
                worker: residence.worker,
                device: residence.device,
                any: residence.any,
                block_size,
            }));
        }
        Ok(found)
    }
}
