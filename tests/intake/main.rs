//! The intake: payloads to events, events to blocks, blocks to indexes.

mod convert;
mod damage;
mod decode;
mod encode;
mod oracle;
mod residency;
mod seeds;
mod vectors;
