//! The adapters, a file per index.

mod dynamo_concurrent;
mod dynamo_events;
mod dynamo_radix;
mod kv_index;
mod kvradix;
mod smg_radix;

pub use dynamo_concurrent::DynamoConcurrent;
pub use dynamo_radix::DynamoRadix;
pub use kv_index::KvIndex;
pub use kvradix::Kvradix;
pub use smg_radix::SmgRadix;
