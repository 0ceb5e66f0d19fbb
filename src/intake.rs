//! From what engines publish to an index that is true to a fleet.
//!
//! vLLM, SGLang and engines that speak as they do publish batches of cache
//! events in msgpack, in several layouts that have existed. Three steps lead
//! from such a payload to an index, each usable by itself:
//!
//! 1. [`Decoder`] reads a payload into a [`Batch`]. What it cannot read costs
//!    that event and is counted in [`Drops`] by [`Reason`]; nothing panics, and
//!    memory is bounded by [`Limits`].
//! 2. [`Converter`] turns a store's tokens into local hashes, the adapter, salt
//!    and extra keys folded in, and the tokens of a request just alike.
//! 3. [`Residency`] keeps, for each rank of each worker, which tiers hold a
//!    block, and two indexes: what the device holds, and what any tier holds.
//!
//! ```
//! use kvradix::WorkerId;
//! use kvradix::intake::{Answer, Decoder, Drops, Origin, Prompt, RankOptions, Residency};
//!
//! // One block of SGLang's: hash -5, at the root, token 1, page 1, on the GPU.
//! let payload = b"\x93\xcb\x3f\xf8\0\0\0\0\0\0\x91\x97\xabBlockStored\x91\xfb\xc0\x91\x01\x01\xc0\xa3GPU\0";
//!
//! let residency = Residency::new(1);
//! let rank = residency.join(WorkerId::new(7, 0), RankOptions::default());
//! let (mut decoder, mut drops) = (Decoder::default(), Drops::new());
//! let batch = decoder.decode(payload, &mut drops)?;
//! rank.apply(&batch, Origin::Live, &mut drops);
//! assert_eq!(drops.total(), 0);
//!
//! let query = residency.converter().hash_prompt(&Prompt::new(&[1, 2]));
//! let mut answer = Answer::new();
//! residency.query(&query, &mut answer);
//! assert_eq!(answer.device().depth_of(WorkerId::new(7, 0)), 1);
//! # Ok::<(), kvradix::intake::BatchError>(())
//! ```

mod convert;
mod decode;
mod drops;
mod event;
mod keys;
mod limits;
mod rank;
mod residency;
pub mod sequence;
mod tiers;
mod waiting;
mod wire;

pub use convert::{Converter, Image, Prompt, Salt};
pub use decode::{BatchError, Decoder};
pub use drops::{Drops, Reason};
pub use event::{Adapter, Batch, Event, Group, Removed, Stored};
pub use keys::{ExtraKey, ExtraKeys};
pub use limits::Limits;
pub use rank::{Applied, Origin, Rank, RankOptions, RankStats};
pub use residency::{Answer, Residence, Residency};
pub use tiers::{Tier, TierSet};
