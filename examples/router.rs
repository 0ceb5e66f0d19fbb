//! A small router: tokio tasks look prompts up, plain threads hand events in,
//! one index between them, its metrics on `http://127.0.0.1:PORT/metrics`.
//!
//! ```sh
//! cargo run --release --features metrics --example router -- --seconds 10
//! ```
//!
//! Clients hold conversations: each turn repeats all that was said and adds to
//! it. The router sends a turn to the worker that has most of it cached,
//! unless that one has too much to do. Engines are threads that keep the last
//! prompts they were sent; what they cache and evict they tell the index.

use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use std::{io, thread};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use clap::Parser;
use kvradix::metrics::Metrics;
use kvradix::metrics::prometheus_client::encoding::text::encode;
use kvradix::metrics::prometheus_client::metrics::counter::Counter;
use kvradix::metrics::prometheus_client::metrics::family::Family;
use kvradix::metrics::prometheus_client::registry::Registry;
use kvradix::{Block, Index, LocalHash, Matches, SequenceHash, WorkerId};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;

/// What can be asked for.
#[derive(Parser, Clone, Debug)]
pub struct Options {
    /// Seconds until it ends by itself; without, it runs until Ctrl-C
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Port of the metrics on 127.0.0.1; 0: any that is free
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// Engines, a thread each
    #[arg(long, default_value_t = 4)]
    pub workers: u64,
    /// Clients, a task each
    #[arg(long, default_value_t = 32)]
    pub clients: u64,
}

/// What was done.
#[derive(Debug)]
pub struct Summary {
    /// Requests routed.
    pub requests: u64,
    /// Blocks of their prompts.
    pub prompt_blocks: u64,
    /// Those of them that the chosen worker had.
    pub cached_blocks: u64,
    /// Names that are left in the index once every worker has left.
    pub left: u64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let ready = |address| println!("metrics on http://{address}/metrics");
    let Summary { requests, prompt_blocks, cached_blocks, left } =
        run(Options::parse(), ready).await?;
    let share = 100.0 * cached_blocks as f64 / (prompt_blocks as f64).max(1.0);
    println!("{requests} requests, {share:.1} % of {prompt_blocks} blocks cached, {left} left");
    Ok(())
}

/// Routes until told to stop; calls `ready` once metrics are served.
///
/// # Errors
/// The port cannot be had, or a thread cannot be started.
pub async fn run(options: Options, ready: impl FnOnce(SocketAddr)) -> io::Result<Summary> {
    let mut registry = Registry::default();
    let index = Arc::new(Index::new());
    let metrics = Metrics::register(&mut registry);
    metrics.watch("router", &index).expect("no other index has the name");
    let counts = Counts::register(&mut registry);

    let listener = TcpListener::bind(("127.0.0.1", options.port)).await?;
    ready(listener.local_addr()?);
    let pages = axum::Router::new().route("/metrics", get(page)).with_state(Arc::new(registry));
    let (end_server, server_ends) = oneshot::channel::<()>();
    let server = axum::serve(listener, pages).with_graceful_shutdown(async {
        let _ = server_ends.await;
    });
    let server = tokio::spawn(server.into_future());

    let (router, engines) = Router::start(options.workers, index.clone(), counts.clone())?;
    let (stop, stopped) = watch::channel(false);
    let mut clients = JoinSet::new();
    for client in 0..options.clients {
        clients.spawn(converse(client, router.clone(), stopped.clone()));
    }
    match options.seconds {
        Some(seconds) => tokio::time::sleep(Duration::from_secs_f64(seconds)).await,
        None => tokio::signal::ctrl_c().await?,
    }

    // From the clients inwards: no request is lost, nobody waits for one that
    // is gone, and the last page shows the end.
    let _ = stop.send(true);
    clients.join_all().await;
    drop(router);
    let ended = tokio::task::spawn_blocking(|| engines.into_iter().try_for_each(|e| e.join()));
    ended.await?.expect("no engine panics");
    index.flush();
    let _ = end_server.send(());
    server.await??;
    Ok(Summary {
        requests: counts.requests.get(),
        prompt_blocks: counts.prompt_blocks.get(),
        cached_blocks: counts.cached_blocks.get(),
        left: index.stats().held_blocks,
    })
}

/// What the router counts itself.
#[derive(Clone, Default)]
struct Counts {
    requests: Counter,
    prompt_blocks: Counter,
    cached_blocks: Counter,
    routed: Family<[(&'static str, String); 1], Counter>,
}

impl Counts {
    fn register(registry: &mut Registry) -> Self {
        let counts = Self::default();
        let registry = registry.sub_registry_with_prefix("router");
        registry.register("requests", "Requests routed", counts.requests.clone());
        registry.register("prompt_blocks", "Blocks of prompts", counts.prompt_blocks.clone());
        let help = "Blocks of prompts that the chosen worker had";
        registry.register("cached_blocks", help, counts.cached_blocks.clone());
        registry.register("routed", "Requests by worker", counts.routed.clone());
        counts
    }
}

/// The page that a scraper asks for.
async fn page(State(registry): State<Arc<Registry>>) -> Response {
    let mut page = String::new();
    if encode(&mut page, &registry).is_err() {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    }
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], page).into_response()
}

/// Chooses a worker for each request. Shared by all tasks.
struct Router {
    index: Arc<Index>,
    counts: Counts,
    workers: Vec<Worker>,
}

/// A worker as the router knows it.
struct Worker {
    id: WorkerId,
    /// Blocks it was sent and has not yet served.
    load: Arc<AtomicU64>,
    requests: mpsc::Sender<Request>,
}

/// A prompt on its way to an engine.
struct Request {
    prompt: Vec<LocalHash>,
    served: oneshot::Sender<()>,
}

/// Cached blocks that one block of load outweighs.
const CACHED_PER_LOAD: f64 = 0.25;

impl Router {
    fn start(
        workers: u64,
        index: Arc<Index>,
        counts: Counts,
    ) -> io::Result<(Arc<Self>, Vec<thread::JoinHandle<()>>)> {
        let (mut known, mut threads) = (Vec::new(), Vec::new());
        for id in 0..workers.max(1) {
            let (id, load) = (WorkerId::new(id, 0), Arc::<AtomicU64>::default());
            let (requests, queue) = mpsc::channel();
            let engine = Engine::new(id, index.clone(), load.clone());
            let thread = thread::Builder::new().name(format!("engine {id}"));
            threads.push(thread.spawn(move || engine.run(&queue))?);
            known.push(Worker { id, load, requests });
        }
        Ok((Arc::new(Self { index, counts, workers: known }), threads))
    }

    /// Sends a prompt to the worker that is expected to be done with it first.
    /// `matches` is the caller's, to be used again. `None` where the engine is
    /// gone.
    async fn serve(&self, prompt: Vec<LocalHash>, matches: &mut Matches) -> Option<()> {
        // Takes no lock and does not wait, so it may run on a task's thread.
        self.index.matches_into(&prompt, matches);
        let cached = |worker: &Worker| matches.depth_of(worker.id);
        let score = |worker: &Worker| {
            let load = worker.load.load(Ordering::Relaxed);
            f64::from(cached(worker)) - CACHED_PER_LOAD * load as f64
        };
        let best = self.workers.iter().max_by(|a, b| score(a).total_cmp(&score(b)))?;

        let blocks = prompt.len() as u64;
        self.counts.requests.inc();
        self.counts.prompt_blocks.inc_by(blocks);
        self.counts.cached_blocks.inc_by(cached(best).into());
        self.counts.routed.get_or_create(&[("worker", best.id.to_string())]).inc();
        best.load.fetch_add(blocks, Ordering::Relaxed);
        let (served, wait) = oneshot::channel();
        best.requests.send(Request { prompt, served }).ok()?;
        wait.await.ok()
    }
}

/// System prompts that clients begin with, and their blocks.
const SYSTEM_PROMPTS: u64 = 8;
const SYSTEM_BLOCKS: u64 = 32;

/// A client's task: one conversation after the other, until it is to stop.
async fn converse(client: u64, router: Arc<Router>, stopped: watch::Receiver<bool>) {
    let mut matches = Matches::new();
    for conversation in 0.. {
        let own = mix((client << 32) + conversation);
        let system = own % SYSTEM_PROMPTS;
        let mut prompt: Vec<LocalHash> =
            (0..SYSTEM_BLOCKS).map(|block| LocalHash(mix((system << 32) + block))).collect();
        for turn in 0..1 + own % 6 {
            if *stopped.borrow() {
                return;
            }
            let said = (0..4 + mix(own + turn) % 12).map(|block| mix(own ^ ((turn << 8) + block)));
            prompt.extend(said.map(LocalHash));
            if router.serve(prompt.clone(), &mut matches).await.is_none() {
                return;
            }
        }
    }
}

/// An engine's thread: keeps the last prompts, tells the index.
struct Engine {
    id: WorkerId,
    index: Arc<Index>,
    load: Arc<AtomicU64>,
    /// The prompts, oldest first, by its names of their blocks.
    prompts: VecDeque<Vec<SequenceHash>>,
    /// In how many of them a block is.
    uses: HashMap<SequenceHash, u32>,
}

/// Blocks that an engine has room for.
const CACHE_BLOCKS: usize = 2_048;
/// What it takes to compute one that is not cached.
const BLOCK_TIME: Duration = Duration::from_micros(20);

impl Engine {
    fn new(id: WorkerId, index: Arc<Index>, load: Arc<AtomicU64>) -> Self {
        Self { id, index, load, prompts: VecDeque::new(), uses: HashMap::new() }
    }

    fn run(mut self, queue: &mpsc::Receiver<Request>) {
        for Request { prompt, served } in queue {
            self.compute(&prompt);
            self.load.fetch_sub(prompt.len() as u64, Ordering::Relaxed);
            let _ = served.send(());
        }
        self.index.remove_worker(self.id);
    }

    fn compute(&mut self, prompt: &[LocalHash]) {
        // Its own name of a block: of all content up to there.
        let name = |above: &mut u64, local: &LocalHash| {
            *above = mix(*above ^ local.0.rotate_left(17));
            Some(Block { sequence: SequenceHash(*above), local: *local })
        };
        let blocks: Vec<Block> = prompt.iter().scan(self.id.id, name).collect();
        let cached = blocks.iter().take_while(|block| self.uses.contains_key(&block.sequence));
        let (cached, fresh) = blocks.split_at(cached.count());
        thread::sleep(BLOCK_TIME * fresh.len() as u32);
        for block in &blocks {
            *self.uses.entry(block.sequence).or_default() += 1;
        }
        self.prompts.push_back(blocks.iter().map(|block| block.sequence).collect());
        let parent = cached.last().map(|block| block.sequence);
        self.index.store(self.id, parent, fresh).expect("an engine names what it has");
        self.evict();
    }

    /// Forgets the oldest prompts until the rest fits.
    fn evict(&mut self) {
        while self.uses.len() > CACHE_BLOCKS
            && let Some(mut oldest) = self.prompts.pop_front()
        {
            oldest.retain(|name| match self.uses.get_mut(name) {
                Some(uses) if *uses > 1 => {
                    *uses -= 1;
                    false
                }
                _ => self.uses.remove(name).is_some(),
            });
            self.index.remove(self.id, &oldest);
        }
    }
}

/// Spreads a number over 64 bits.
fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}
