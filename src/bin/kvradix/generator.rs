//! Requests made up: conversations over shared system prompts.

use kvradix::LocalHash;
use rand::distr::Distribution;
use rand::distr::weighted::WeightedIndex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::args::ReplayArgs;
use crate::chain::Request;

/// Tokens of a system prompt, least and most.
const SYSTEM_TOKENS: (u64, u64) = (256, 8_192);
/// Tokens of a question or an answer, least and most.
const MESSAGE_TOKENS: (u64, u64) = (32, 1_024);
/// The most turns of a conversation.
const MAX_TURNS: u32 = 12;

/// An endless, seeded stream of requests: turns of conversations, a fixed
/// number of which are under way at any time.
///
/// A conversation is a stream of tokens that only grows, so its n-th full
/// block is the same in every turn; blocks that lie wholly in the system
/// prompt are shared by all conversations that begin with it.
#[derive(Debug)]
pub struct Generator {
    rng: SmallRng,
    seed: u64,
    block_size: u64,
    /// Tokens of each system prompt.
    systems: Vec<u64>,
    popularity: WeightedIndex<f64>,
    under_way: Vec<Conversation>,
    /// Conversations begun so far.
    begun: u64,
}

#[derive(Debug)]
struct Conversation {
    id: u64,
    system: usize,
    /// Tokens so far, the system prompt's included.
    tokens: u64,
    turns_left: u32,
}

/// What requests are made of.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    pub seed: u64,
    /// Tokens of a block.
    pub block_size: u32,
    /// Different system prompts.
    pub system_prompts: u32,
    /// Conversations under way at a time.
    pub conversations: u32,
}

impl From<&ReplayArgs> for Recipe {
    fn from(args: &ReplayArgs) -> Self {
        Self {
            seed: args.seed,
            block_size: args.block_size,
            system_prompts: args.system_prompts,
            conversations: args.conversations,
        }
    }
}

impl Generator {
    pub fn new(recipe: Recipe) -> anyhow::Result<Self> {
        let mut rng = SmallRng::seed_from_u64(recipe.seed);
        let systems: Vec<u64> =
            (0..recipe.system_prompts).map(|_| log_uniform(&mut rng, SYSTEM_TOKENS)).collect();
        let popularity = WeightedIndex::new((1..=systems.len()).map(|rank| 1.0 / rank as f64))?;
        let mut generator = Self {
            rng,
            seed: recipe.seed,
            block_size: recipe.block_size.into(),
            systems,
            popularity,
            under_way: Vec::new(),
            begun: 0,
        };
        for _ in 0..recipe.conversations {
            let conversation = generator.begin();
            generator.under_way.push(conversation);
        }
        Ok(generator)
    }

    /// Fills in the next request: the next turn of some conversation.
    pub fn fill(&mut self, request: &mut Request) {
        let chosen = self.rng.random_range(0..self.under_way.len());
        let question = log_uniform(&mut self.rng, MESSAGE_TOKENS);
        let answer = log_uniform(&mut self.rng, MESSAGE_TOKENS);

        let conversation = &mut self.under_way[chosen];
        let prompt_tokens = conversation.tokens + question;
        conversation.tokens = prompt_tokens + answer;
        conversation.turns_left -= 1;

        let shared = self.systems[conversation.system] / self.block_size;
        let system = Content::System.seed(self.seed, conversation.system as u64);
        let own = Content::Conversation.seed(self.seed, conversation.id);
        request.chain.clear();
        for at in 0..conversation.tokens / self.block_size {
            let seed = if at < shared { system } else { own };
            request.chain.push(LocalHash(xxh3_64_with_seed(&at.to_le_bytes(), seed)));
        }
        request.prompt_blocks = (prompt_tokens / self.block_size) as usize;

        if conversation.turns_left == 0 {
            self.under_way[chosen] = self.begin();
        }
    }

    fn begin(&mut self) -> Conversation {
        let system = self.popularity.sample(&mut self.rng);
        let turns_left = self.rng.random_range(1..=MAX_TURNS);
        self.begun += 1;
        Conversation { id: self.begun, system, tokens: self.systems[system], turns_left }
    }
}

/// What a block's content belongs to.
#[derive(Clone, Copy)]
enum Content {
    System,
    Conversation,
}

impl Content {
    /// A seed for the hashes of the blocks of system prompt or conversation
    /// `id`.
    fn seed(self, seed: u64, id: u64) -> u64 {
        let mut bytes = [0; 9];
        bytes[..8].copy_from_slice(&id.to_le_bytes());
        bytes[8] = self as u8;
        xxh3_64_with_seed(&bytes, seed)
    }
}

/// A length whose logarithm is uniform: many short ones, few long ones.
fn log_uniform(rng: &mut SmallRng, (least, most): (u64, u64)) -> u64 {
    let exponent = rng.random_range((least as f64).ln()..=(most as f64).ln());
    (exponent.exp().round() as u64).clamp(least, most)
}
