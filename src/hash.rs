//! Local hashes that other routers and engines agree on.
//!
//! An index takes any `u64` for a block's content, as long as events and
//! queries are hashed alike. [`LocalHasher`] is the way that NVIDIA Dynamo's
//! router and `kv-index` hash: XXH3-64 over the block's tokens as
//! little-endian `u32`, with a seed that depends on adapter and salt.

use std::num::NonZeroUsize;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::LocalHash;

/// The seed where there is neither adapter nor salt.
const SEED: u64 = 1337;
const ADAPTER_SEED: u64 = 0;
const SALT_SEED: u64 = 1;

/// Turns the token ids of a prompt into one local hash per full block.
///
/// It is made once per block size, adapter and salt, and can be shared by
/// threads.
///
/// ```
/// use kvradix::LocalHash;
/// use kvradix::hash::LocalHasher;
///
/// let tokens: Vec<u32> = (1..=40).collect();
/// let plain = LocalHasher::new(16);
/// // Two full blocks; the last eight tokens are not one yet.
/// assert_eq!(
///     plain.hash_blocks(&tokens),
///     LocalHash::from_slice(&[0xea06fc71a5ee6e88, 0x1fbf39bd106be0b5]),
/// );
///
/// let tenant = LocalHasher::new(16).adapter("lora-a").salt("salt-1");
/// assert_ne!(tenant.hash_blocks(&tokens), plain.hash_blocks(&tokens));
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalHasher {
    block_size: NonZeroUsize,
    /// What the adapter adds to the seed; 0 without one.
    adapter: u64,
    /// What the salt adds to the seed; 0 without one.
    salt: u64,
}

impl LocalHasher {
    /// A hasher for blocks of `block_size` tokens, without adapter and salt. The
    /// size has to be the engines': with another one nothing matches.
    ///
    /// # Panics
    ///
    /// If `block_size` is 0.
    pub fn new(block_size: usize) -> Self {
        let block_size = NonZeroUsize::new(block_size).expect("a block has at least one token");
        Self { block_size, adapter: 0, salt: 0 }
    }

    /// The KV is that of the adapter (LoRA) of this name. An empty name is no
    /// adapter.
    #[must_use]
    pub fn adapter(self, name: &str) -> Self {
        Self { adapter: seed_of(name, ADAPTER_SEED), ..self }
    }

    /// The KV is only shared among requests of this salt. An empty salt is no
    /// salt.
    #[must_use]
    pub fn salt(self, salt: &str) -> Self {
        Self { salt: seed_of(salt, SALT_SEED), ..self }
    }

    /// Tokens per block.
    pub fn block_size(&self) -> usize {
        self.block_size.get()
    }

    /// One hash for each full block of `tokens`; what is left at the end is
    /// no block and gets none.
    pub fn hash_blocks(&self, tokens: &[u32]) -> Vec<LocalHash> {
        let mut hashes = Vec::new();
        self.hash_blocks_into(tokens, &mut hashes);
        hashes
    }

    /// [`hash_blocks`](Self::hash_blocks) into a used vector, whose content
    /// is replaced. Allocates one block's bytes, whatever the number of
    /// blocks.
    pub fn hash_blocks_into(&self, tokens: &[u32], hashes: &mut Vec<LocalHash>) {
        self.fill::<[u64; 0]>(tokens, &[], hashes);
    }

    /// [`hash_blocks`](Self::hash_blocks) where blocks have images:
    /// `images[i]` are the hashes of those in block `i`, in any order. Blocks
    /// beyond the end of `images` have none; images beyond the last full
    /// block are left out, as their tokens are.
    ///
    /// ```
    /// # use kvradix::hash::LocalHasher;
    /// let hasher = LocalHasher::new(2);
    /// let tokens = [1, 2, 3, 4];
    /// let hashes = hasher.hash_blocks_with_images(&tokens, &[vec![], vec![9, 8]]);
    /// assert_eq!(hashes, hasher.hash_blocks_with_images(&tokens, &[vec![], vec![8, 9]]));
    /// assert_eq!(hashes[0], hasher.hash_block(&[1, 2], &[]));
    /// assert_ne!(hashes[1], hasher.hash_block(&[3, 4], &[]));
    /// ```
    pub fn hash_blocks_with_images<I>(&self, tokens: &[u32], images: &[I]) -> Vec<LocalHash>
    where
        I: AsRef<[u64]>,
    {
        let mut hashes = Vec::new();
        self.fill(tokens, images, &mut hashes);
        hashes
    }

    /// The hash of `tokens` as one block, whatever their number, with the
    /// images in it, in any order.
    pub fn hash_block(&self, tokens: &[u32], images: &[u64]) -> LocalHash {
        self.hash(tokens, images, &mut Scratch::default())
    }

    fn fill<I>(&self, tokens: &[u32], images: &[I], hashes: &mut Vec<LocalHash>)
    where
        I: AsRef<[u64]>,
    {
        let mut scratch = Scratch::default();
        let blocks = tokens.chunks_exact(self.block_size.get()).enumerate();
        hashes.clear();
        hashes.extend(blocks.map(|(number, block)| {
            let images = images.get(number).map_or(&[][..], |images| images.as_ref());
            self.hash(block, images, &mut scratch)
        }));
    }

    fn hash(&self, tokens: &[u32], images: &[u64], scratch: &mut Scratch) -> LocalHash {
        let Scratch { bytes, sorted } = scratch;
        bytes.clear();
        bytes.extend(tokens.iter().flat_map(|token| token.to_le_bytes()));
        sorted.clear();
        sorted.extend_from_slice(images);
        sorted.sort_unstable();
        bytes.extend(sorted.iter().flat_map(|image| image.to_le_bytes()));
        let seed = SEED.wrapping_add(self.adapter).wrapping_add(self.salt);
        LocalHash(xxh3_64_with_seed(bytes, seed))
    }
}

/// What one block after the other is laid out in.
#[derive(Default)]
struct Scratch {
    bytes: Vec<u8>,
    sorted: Vec<u64>,
}

/// What a name adds to the seed: an empty one is absent, and adds nothing.
fn seed_of(name: &str, seed: u64) -> u64 {
    if name.is_empty() { 0 } else { xxh3_64_with_seed(name.as_bytes(), seed) }
}
