//! What can be asked for on the command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use kvradix::{Builder, Index};
use serde::{Serialize, Serializer};

use crate::soak::Plant;
use crate::trace::TRACE_BLOCK_TOKENS;

/// Plays a fleet's traffic against the kvradix index, and measures it.
#[derive(Parser, Debug)]
#[command(version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    Replay(ReplayArgs),
    Churn(ChurnArgs),
    Soak(SoakArgs),
    #[cfg(feature = "listen")]
    Listen(ListenArgs),
}

/// Simulates a fleet of engines and the routers in front of it, which share one index.
///
/// Router threads take the requests in order. Each looks its request's prompt up in the index and
/// sends it to the worker that holds the longest prefix; of several to the one with the least load.
/// The worker's engine keeps what it has of the prompt, evicts the least recently used blocks where
/// it needs room and stores the rest; what it stored and evicted goes as events through bounded
/// queues to applier threads, which bring the index up to date. A worker's events go through one
/// queue, so they stay in order.
///
/// Without --trace the requests are generated: conversations of 1 to 12 turns, of which
/// --conversations are under way at any time. Each begins with one of --system-prompts system
/// prompts (256 to 8,192 tokens, the n-th used 1/n as often as the first); each turn adds a question
/// and, once served, an answer of 32 to 1,024 tokens (lengths are log-uniform). A turn's prompt is all
/// that came before it. Equal seeds give equal requests.
///
/// What the report calls
///
/// - hit rate: of all prompt blocks, those which the chosen worker's cache really held as a prefix
///   when the request reached it;
///
/// - oracle: the same for a router that follows the same rules but reads the caches themselves
///   instead of the index, just before the request reaches its worker;
///
/// - cached anywhere: the same for a router that knows every cache and no load: what balancing
///   costs;
///
/// - block operations: blocks of the prompts looked up (whole prompts, matched or not), plus blocks
///   stored, plus blocks removed. Their time is that of the whole run, engines and final flush
///   included;
///
/// - query time: one look-up plus a pass over all workers in its answer;
///
/// - queue depth: events between engines and appliers plus removals that the index has queued,
///   sampled every 10 ms;
///
/// - memory: resident memory of the whole process at the end, simulated caches included (Rss of
///   /proc/self/smaps_rollup; n/a where that does not exist);
///
/// - index: names that workers hold, summed over them; blocks in its tree, each counted once; nodes
///   of the tree; entries from block names to places.
#[derive(Args, Debug, Serialize)]
pub struct ReplayArgs {
    /// Plays this trace instead of generated requests: one JSON object a line with `hash_ids`, one
    /// id per 512-token block of the prompt, as the Mooncake traces have them; other fields are
    /// ignored, and requests come in the file's order. Every id becomes 512/block-size blocks
    #[arg(long, value_name = "FILE")]
    #[serde(serialize_with = "as_text")]
    pub trace: Option<PathBuf>,

    /// How often the trace is played; later rounds find the caches as the earlier ones left them
    #[arg(long, default_value_t = 1, value_name = "TIMES", requires = "trace", value_parser = clap::value_parser!(u64).range(1..))]
    pub repeat: u64,

    /// Requests to generate
    #[arg(long, default_value_t = 100_000, value_name = "COUNT", conflicts_with = "trace", value_parser = clap::value_parser!(u64).range(1..))]
    pub requests: u64,

    /// Seed of the generated requests
    #[arg(long, default_value_t = 1, value_name = "NUMBER", conflicts_with = "trace")]
    pub seed: u64,

    /// Generated conversations under way at a time
    #[arg(long, default_value_t = 256, value_name = "COUNT", conflicts_with = "trace", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub conversations: u32,

    /// Different system prompts of the generated conversations
    #[arg(long, default_value_t = 64, value_name = "COUNT", conflicts_with = "trace", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub system_prompts: u32,

    /// Workers of the fleet
    #[arg(long, default_value_t = 8, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub workers: u32,

    /// Blocks that each worker's cache holds; of a longer prompt only the beginning is kept
    #[arg(long, default_value_t = 16_384, value_name = "BLOCKS", value_parser = clap::value_parser!(u64).range(1..))]
    pub cache_blocks: u64,

    /// Tokens of a block: 1, 2, 4, ... or 512
    #[arg(long, default_value_t = 16, value_name = "TOKENS", value_parser = block_size)]
    pub block_size: u32,

    /// Which blocks an engine may evict
    #[arg(long, value_enum, value_name = "WHICH", default_value_t = Evict::Leaf)]
    pub evict: Evict,

    /// How engines name their blocks
    #[arg(long, value_enum, value_name = "HOW", default_value_t = Names::Shared)]
    pub names: Names,

    /// A worker whose load is above this many times the mean takes no further request, however much
    /// it holds. Load: the blocks a worker has had to compute so far. `inf` routes by prefix alone,
    /// which sends all requests that share a first block to one worker
    #[arg(long, default_value_t = 1.2, value_name = "FACTOR", value_parser = balance)]
    #[serde(serialize_with = "as_given")]
    pub balance: f64,

    /// Router threads
    #[arg(long, default_value_t = 2, value_name = "THREADS", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub routers: u16,

    /// Applier threads, each with a queue of its own
    #[arg(long, default_value_t = 2, value_name = "THREADS", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub appliers: u16,

    /// Events that an applier's queue holds; routers wait when it is full
    #[arg(long, default_value_t = 1024, value_name = "EVENTS", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub queue: u32,

    /// Checks every answer against the literal reference index.
    ///
    /// Goes in rounds. The routers' threads look up some requests in the index, each answer compared
    /// as a whole (every worker and its depth) with the reference's; then the requests are served in
    /// order; then applier threads, each with workers of its own, apply the events to the index,
    /// while the reference takes them too; then the index is flushed and both must hold equally many
    /// blocks. So index and reference have seen the same events at each query, and queries run beside
    /// queries, stores and removals beside those of other workers, but no query beside an event. The
    /// first difference ends the run with a non-zero exit
    #[arg(long)]
    pub verify: bool,

    /// Draws query time and memory over time into this file
    #[arg(long, value_name = "FILE.svg", value_parser = svg_file)]
    #[serde(serialize_with = "as_text")]
    pub plot: Option<PathBuf>,

    #[command(flatten)]
    #[serde(flatten)]
    pub common: CommonArgs,
}

/// Measures what unique suffixes leave behind under a prompt that stays cached.
///
/// One worker holds a prompt of 16 blocks. A cycle stores 8 blocks that were never seen before below
/// it and removes them again. After 5,000 warm-up cycles and a flush, memory is read, the cycles run,
/// and after another flush memory is read again: what was added should be next to nothing. Set
/// MALLOC_ARENA_MAX=1 in the environment to keep glibc from adding arenas meanwhile.
#[derive(Args, Debug, Serialize)]
pub struct ChurnArgs {
    /// Measured cycles
    #[arg(long, default_value_t = 1_000_000, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub cycles: u64,

    #[command(flatten)]
    #[serde(flatten)]
    pub common: CommonArgs,
}

/// Keeps the index under a mixed load for long, and looks for whatever grows.
///
/// Writer threads, each with workers of its own, serve generated requests as `replay` does: a worker's
/// engine keeps what it has of the prompt, evicts the least recently used blocks and stores the rest.
/// Of each eight workers of a writer four evict from a prompt's end and four any block, which leaves
/// holes; four name blocks alike and four each in its own way. Beside that, one request in 20 has its
/// worker store names again at other places and lose some, one in 4,000 clears its worker, and one in
/// 2,000 has it leave and come back later with nothing, as itself or under another id; late events
/// follow it. Reader threads look up prompts that were served lately, some of them cut short or gone
/// beyond.
///
/// One request in 50, the answer for a quarter of the workers is compared with the literal reference
/// index, which takes their events too, while all others go on. Every 120th of the run (1 s at least)
/// all threads are stopped, the index is flushed, every invariant of its structure is checked, and
/// its counts are compared with the engines' own. The first fault ends the run.
///
/// The first fifth of the run is start-up. Of the rest, the first and the last quarter are compared:
/// the medians of live bytes, nodes, blocks in the tree and look-up entries, each divided by the held
/// blocks, may be at most 8 % higher in the last, that of resident memory 8 % and 8 MiB; in a run of
/// fewer than 10 minutes, in which tables are still finding their sizes, 30 % instead. No sample may
/// have seen more than 8 MiB of retired memory. At the end every worker is removed: at most 704 KiB of
/// tables and 136 KiB for each thread may then be live beyond an index without events. Otherwise the
/// exit is non-zero.
///
/// Live bytes are those that the allocator has handed out to the index and its threads; resident
/// memory is that of the whole process, simulated engines and references included.
#[derive(Args, Debug, Serialize)]
pub struct SoakArgs {
    /// How long the load lasts
    #[arg(long, default_value_t = 1.0, value_name = "NUMBER", value_parser = minutes)]
    pub minutes: f64,

    /// Block operations a second: half are blocks that writers store and remove, half blocks that
    /// readers look up (whole prompts, matched or not); fewer where the machine is too slow
    #[arg(long, default_value_t = 1_000_000, value_name = "BLOCKS", value_parser = clap::value_parser!(u64).range(1..))]
    pub rate: u64,

    /// Workers of the fleet
    #[arg(long, default_value_t = 64, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub workers: u32,

    /// Blocks that each worker's cache holds
    #[arg(long, default_value_t = 1_536, value_name = "BLOCKS", value_parser = clap::value_parser!(u32).range(1..))]
    pub cache_blocks: u32,

    /// Threads that serve requests and tell the index of it, at most one for each worker
    #[arg(long, default_value_t = 2, value_name = "THREADS", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub writers: u16,

    /// Threads that look prompts up
    #[arg(long, default_value_t = 2, value_name = "THREADS", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub readers: u16,

    /// Seed of requests and events
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub seed: u64,

    /// Draws memory, blocks, nodes and query time over time into this file
    #[arg(long, value_name = "FILE.svg", value_parser = svg_file)]
    #[serde(serialize_with = "as_text")]
    pub plot: Option<PathBuf>,

    /// Puts in a fault that has to be found
    #[arg(long, hide = true, value_enum)]
    #[serde(skip)]
    pub plant: Option<Plant>,

    #[command(flatten)]
    #[serde(flatten)]
    pub common: CommonArgs,
}

/// Follows a fleet of engines and answers who holds how much of a prompt.
///
/// Subscribes to the KV cache events of the workers in the file (vLLM, SGLang, and what publishes as
/// they do, over ZeroMQ), keeps an index of what their devices hold and one of what any of their
/// tiers holds, and serves over HTTP:
///
/// - POST /query: {"tokens": [...]} or {"hashes": [...]}, with "model", "block_size", "lora_name",
///   "lora_id", "cache_salt", "images" where they matter: for each rank its leading blocks on the
///   device and on any tier;
///
/// - GET /workers: every rank, how it stands with it, and what happened; POST /workers and DELETE
///   /workers/ID: a worker joins or leaves until the next start;
///
/// - GET /metrics for Prometheus, /healthz, /dump and /dump/ID: what is known as events, one a line;
///
/// - GET /: a page that shows all that, live.
///
/// The file is watched: a worker that is added to it, changed or taken out is followed, begun anew or
/// left within a second or two. Ends on SIGINT or SIGTERM.
#[cfg(feature = "listen")]
#[derive(Args, Debug)]
pub struct ListenArgs {
    /// The workers: for each a table [[worker]] with `id`, `events` (tcp://HOST:PORT of rank 0),
    /// `block_size`; and `replay`, `ranks` (how many, or which), `engine` ("vllm", "sglang"),
    /// `model`, `topic`, `attach` ("connect" or "bind"), `copies`
    #[arg(long, value_name = "FILE.toml")]
    pub config: PathBuf,

    /// Where to serve HTTP. Whoever reaches it may change the fleet
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8900")]
    pub http: std::net::SocketAddr,

    /// Threads that follow publishers
    #[arg(long, value_name = "THREADS", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,

    /// Threads that answer
    #[arg(long, value_name = "THREADS", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub http_threads: u16,

    /// Seconds without a sign of life after which a rank counts as dead
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    pub dead_after: f64,

    /// Seconds without a sign of life after which a rank's blocks are forgotten
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = seconds)]
    pub forget_after: f64,

    /// Batches that each publisher's socket queues. More wait at the publisher, which drops what it
    /// cannot keep; that is a gap, and heals
    #[arg(long, value_name = "BATCHES", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub queue: u32,

    /// Bytes that a request's body may have; a token takes about seven
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub max_body: u64,

    /// Seconds that a request may take to come and be answered
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    pub request_timeout: f64,

    /// HTTP connections at a time; others wait
    #[arg(long, value_name = "COUNT", default_value_t = 1024, value_parser = clap::value_parser!(u16).range(1..))]
    pub connections: u16,

    /// What is logged: error, warn, info, debug or trace
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    pub log: tracing_subscriber::filter::LevelFilter,
}

#[derive(Args, Debug, Serialize)]
pub struct CommonArgs {
    /// Threads of the index that apply queued removals; 0: the
    /// removing thread applies them at once.
    /// Default: the library's, which is 1
    #[arg(long, value_name = "THREADS", value_parser = clap::value_parser!(u16).range(0..=1024))]
    drain_threads: Option<u16>,

    /// Prints the report as JSON, with the arguments used: times in nanoseconds or seconds, sizes in
    /// bytes, as the names say
    #[arg(long)]
    #[serde(skip)]
    pub json: bool,
}

impl CommonArgs {
    /// Threads that apply removals.
    pub fn drain_threads(&self) -> u16 {
        self.drain_threads.unwrap_or(1)
    }

    /// An empty index as asked for.
    pub fn index(&self) -> Index {
        let builder: Builder = Index::builder();
        match self.drain_threads {
            Some(threads) => builder.drain_threads(threads.into()).build(),
            None => builder.build(),
        }
    }
}

/// Which blocks an engine may evict.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Evict {
    /// Only blocks below which nothing is cached: a prompt goes from its end
    Leaf,
    /// Any block: of blocks last used together the first goes first, which leaves holes
    Any,
}

/// How engines name their blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Names {
    /// All alike
    Shared,
    /// Every worker in its own way, like vLLM with its default random seed
    PerWorker,
}

fn block_size(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(size) if size != 0 && TRACE_BLOCK_TOKENS.is_multiple_of(size) => Ok(size),
        _ => Err(format!("it must divide {TRACE_BLOCK_TOKENS}: 1, 2, 4, ... or 512")),
    }
}

fn minutes(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(minutes) if minutes > 0.0 && minutes <= 1e6 => Ok(minutes),
        _ => Err("it must be a number above 0, a million at most".to_owned()),
    }
}

/// Other endings would promise another format.
fn svg_file(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    match path.extension() {
        Some(ending) if ending.eq_ignore_ascii_case("svg") => Ok(path),
        _ => Err("plots are drawn as SVG, so the name must end in .svg".to_owned()),
    }
}

/// JSON has no infinity.
fn as_given<S: Serializer>(factor: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    match factor.is_finite() {
        true => serializer.serialize_f64(*factor),
        false => serializer.serialize_str(&factor.to_string()),
    }
}

/// A report is not to fail because a path is no UTF-8.
fn as_text<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(|path| path.to_string_lossy()).serialize(serializer)
}

#[cfg(feature = "listen")]
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.01..=1e6).contains(&seconds) => Ok(seconds),
        _ => Err("it must be a number from 0.01 to 1,000,000".to_owned()),
    }
}

fn balance(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if factor >= 1.0 => Ok(factor),
        _ => Err("it must be a number of at least 1, or `inf`".to_owned()),
    }
}
