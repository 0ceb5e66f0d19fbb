//! The events of dynamo-kv-router, which both of its trees take.

use dynamo_kv_router::protocols::{
    ExternalSequenceBlockHash, KvCacheEvent, KvCacheEventData, KvCacheRemoveData, KvCacheStoreData,
    KvCacheStoredBlockData, LocalBlockHash, RouterEvent,
};

use crate::block::Block;

/// Numbers the events it makes.
#[derive(Default)]
pub struct Events {
    made: u64,
}

impl Events {
    #[inline]
    pub fn stored(&mut self, worker: u32, parent: Option<u64>, blocks: &[Block]) -> RouterEvent {
        let blocks = blocks.iter().map(|block| KvCacheStoredBlockData {
            block_hash: ExternalSequenceBlockHash(block.name),
            tokens_hash: LocalBlockHash(block.local),
            mm_extra_info: None,
        });
        let data = KvCacheStoreData {
            parent_hash: parent.map(ExternalSequenceBlockHash),
            start_position: None,
            blocks: blocks.collect(),
        };
        self.event(worker, KvCacheEventData::Stored(data))
    }

    #[inline]
    pub fn removed(&mut self, worker: u32, names: &[u64]) -> RouterEvent {
        let block_hashes = names.iter().copied().map(ExternalSequenceBlockHash).collect();
        self.event(worker, KvCacheEventData::Removed(KvCacheRemoveData { block_hashes }))
    }

    #[inline]
    fn event(&mut self, worker: u32, data: KvCacheEventData) -> RouterEvent {
        self.made += 1;
        let event = KvCacheEvent { event_id: self.made, data, dp_rank: 0 };
        RouterEvent::new(worker.into(), event)
    }
}

/// A prompt in the crate's own type.
pub fn query(locals: &[u64]) -> Vec<LocalBlockHash> {
    locals.iter().copied().map(LocalBlockHash).collect()
}
