//! `/dump`: what is known, as events that load into an empty index.
//!
//! One JSON object a line, in chunks that wait for the client to take them, a
//! rank at a time: memory holds one rank's events and a few chunks.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::Frame;
use kvradix::fleet::Fleet;
use kvradix::{Event, Index};
use serde::Serialize;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{Semaphore, TryAcquireError};

/// Dumps under way at a time.
const DUMPS: usize = 2;
static PLACES: Semaphore = Semaphore::const_new(DUMPS);

const CHUNK: usize = 64 << 10;
const CHUNKS: usize = 4;

#[derive(Serialize)]
struct Line<'a> {
    model: &'a str,
    block_size: u32,
    tier: &'static str,
    event: &'a Event,
}

/// The dump of all workers, or of one.
///
/// # Errors
///
/// There are too many dumps under way.
pub fn dump(fleet: Arc<Fleet>, worker: Option<u64>) -> Result<Body, TryAcquireError> {
    let place = PLACES.try_acquire()?;
    let (chunks, received) = channel(CHUNKS);
    tokio::task::spawn_blocking(move || {
        let mut writer = Writer { chunks, buffer: Vec::new() };
        // An error is a client that has gone.
        _ = write(&fleet, worker, &mut writer);
        drop(place);
    });
    Ok(Body::new(Chunks(received)))
}

fn write(fleet: &Fleet, worker: Option<u64>, writer: &mut Writer) -> Result<(), Gone> {
    for model in fleet.models().iter() {
        let residency = model.residency();
        residency.flush();
        let tiers: [(&str, &Index); 2] = [("device", residency.device()), ("any", residency.any())];
        for (tier, index) in tiers {
            let ranks = residency.ranks();
            for rank in ranks.into_iter().filter(|rank| worker.is_none_or(|id| id == rank.id)) {
                for event in &index.export(rank) {
                    let block_size = model.block_size();
                    writer.line(&Line { model: model.name(), block_size, tier, event })?;
                }
            }
        }
    }
    writer.send()
}

/// The client has gone.
struct Gone;

struct Writer {
    chunks: Sender<Bytes>,
    buffer: Vec<u8>,
}

impl Writer {
    fn line(&mut self, line: &Line<'_>) -> Result<(), Gone> {
        // Numbers and texts are always written.
        serde_json::to_writer(&mut self.buffer, line).map_err(|_| Gone)?;
        self.buffer.push(b'\n');
        if self.buffer.len() < CHUNK { Ok(()) } else { self.send() }
    }

    fn send(&mut self) -> Result<(), Gone> {
        let chunk = std::mem::take(&mut self.buffer);
        self.chunks.blocking_send(chunk.into()).map_err(|_| Gone)
    }
}

/// A body that comes from another thread.
struct Chunks(Receiver<Bytes>);

impl HttpBody for Chunks {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|chunk| chunk.map(|chunk| Ok(Frame::data(chunk))))
    }
}
