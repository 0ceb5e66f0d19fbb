//! A hundred simulated engines, followed by `kvradix listen` while queries run.
//!
//! ```sh
//! cargo build --release --features listen
//! cargo run --release --features listen --example fleet -- --listener target/release/kvradix
//! ```
//!
//! Engines publish over TCP as vLLM does, each with a replay socket and a
//! cache of a bounded size: a request has one of 64 system prompts of 64
//! blocks, shared by all, and a suffix of its own, which is evicted from its
//! tail when newer ones need its room. All engines keep an equal pace that
//! makes for so many stored blocks a second in total; nearly as many are
//! evicted. Queries go over HTTP at a pace of their own, for prompts that
//! some engine was just given.
//!
//! At the end every rank must be live, without a gap, and hold just as many
//! blocks as its engine, and the answers to prompts of the last seconds must be
//! those that the engines' caches give.

mod engine;
mod queries;

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;
use serde_json::Value;

use engine::{Engine, Recent};
use queries::Http;

/// Measures how a listener follows simulated engines.
#[derive(Parser)]
struct Cli {
    /// The binary `kvradix`, built with the feature `listen`
    #[arg(long)]
    listener: PathBuf,
    /// Engines
    #[arg(long, default_value_t = 100)]
    engines: u16,
    /// Blocks stored a second, by all of them together
    #[arg(long, default_value_t = 100_000)]
    blocks: u64,
    /// Batches a second of each engine
    #[arg(long, default_value_t = 50)]
    batches: u32,
    /// Queries a second
    #[arg(long, default_value_t = 500)]
    queries: u32,
    /// Seconds that are measured
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Seconds before that, in which caches fill up: only then is anything
    /// evicted
    #[arg(long, default_value_t = 20)]
    warm_up: u64,
    /// Prompts whose answers are checked in the end
    #[arg(long, default_value_t = 300)]
    checked: usize,
    /// Blocks that each engine's cache holds
    #[arg(long, default_value_t = 16_384)]
    cache: usize,
    /// Threads that publish
    #[arg(long, default_value_t = 2)]
    publishers: usize,
    /// The first of two ports for each engine, and one for HTTP
    #[arg(long, default_value_t = 21_000)]
    port: u16,
    /// What else the listener is told
    #[arg(long, default_value = "")]
    listener_arguments: String,
}

/// Ends its process when dropped.
struct Listener(Child);

impl Drop for Listener {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    let recent = Arc::new(Recent::default());
    let context = zmq::Context::new();
    let per_batch = cli.blocks as f64 / f64::from(cli.engines) / f64::from(cli.batches);
    let mut engines = Vec::new();
    let mut file = String::new();
    for number in 0..cli.engines {
        let (port, replay) = (cli.port + 2 * number, cli.port + 2 * number + 1);
        engines.push(Engine::new(
            &context,
            number.into(),
            port,
            replay,
            cli.cache,
            recent.clone(),
        )?);
        file.push_str(&format!(
            "[[worker]]\nid = {number}\nevents = \"tcp://127.0.0.1:{port}\"\n\
             replay = \"tcp://127.0.0.1:{replay}\"\nengine = \"vllm\"\nblock_size = 16\n"
        ));
    }
    let config = std::env::temp_dir().join(format!("kvradix-fleet-{}.toml", std::process::id()));
    fs::write(&config, file).context("writing the workers' file")?;
    let http = cli.port + 2 * cli.engines;
    let listener = Command::new(&cli.listener)
        .args(["listen", "--log", "warn", "--http", &format!("127.0.0.1:{http}"), "--config"])
        .arg(&config)
        .args(cli.listener_arguments.split_whitespace())
        .stdin(Stdio::null())
        .spawn()
        .context("starting the listener")?;
    let listener = Listener(listener);
    let process = listener.0.id();
    let outcome = measure(&cli, engines, per_batch, http, process, &recent);
    fs::remove_file(&config).context("removing the workers' file")?;
    outcome
}

fn measure(
    cli: &Cli,
    engines: Vec<Engine>,
    per_batch: f64,
    http: u16,
    process: u32,
    recent: &Arc<Recent>,
) -> Result<()> {
    let stop = Arc::new(AtomicBool::new(false));
    let quiet = Arc::new(AtomicBool::new(false));
    let engines: Vec<_> = engines.into_iter().map(|engine| Arc::new(Mutex::new(engine))).collect();
    let publishers: Vec<_> = (0..cli.publishers)
        .map(|number| {
            let mine = engines.iter().skip(number).step_by(cli.publishers).cloned().collect();
            let (stop, quiet, pace) = (stop.clone(), quiet.clone(), cli.batches);
            thread::spawn(move || engine::publish(mine, per_batch, pace, &quiet, &stop))
        })
        .collect();
    quiet.store(true, Ordering::Relaxed);
    // Each on a connection of its own: idle ones are closed.
    let workers = || Http::connect(http)?.workers();
    wait(|| all_live(&workers()?, cli.engines))?;
    quiet.store(false, Ordering::Relaxed);

    thread::sleep(Duration::from_secs(cli.warm_up));
    let before = workers()?;
    let (cpu_before, from) = (cpu(process)?, Instant::now());
    let measured = AtomicBool::new(false);
    let (queries, lags) = thread::scope(|scope| -> Result<_> {
        let lags = scope.spawn(|| queries::lags(http, &measured));
        let length = Duration::from_secs(cli.seconds);
        let queries = queries::run(http, cli.queries, length, recent);
        measured.store(true, Ordering::Relaxed);
        Ok((queries?, lags.join().expect("no panic")?))
    })?;
    let took = from.elapsed().as_secs_f64();
    let cpu_used = cpu(process)? - cpu_before;
    let after = workers()?;
    quiet.store(true, Ordering::Relaxed);

    // Everything under way arrives.
    wait(|| {
        let workers = workers()?;
        all_live(&workers, cli.engines)?;
        for (engine, worker) in engines.iter().zip(workers["workers"].as_array().context("list")?) {
            let engine = engine.lock().expect("no publisher panicked");
            let rank = &worker["publishers"][0];
            let (held, wanted) = (rank["blocks"]["device"].as_u64(), engine.held() as u64);
            ensure!(held == Some(wanted), "{held:?} blocks held, wanted {wanted}");
            let last = rank["last_number"].as_u64();
            ensure!(last == Some(engine.last()), "{last:?} is not the last number");
        }
        Ok(())
    })?;
    stop.store(true, Ordering::Relaxed);
    for publisher in publishers {
        publisher.join().expect("no publisher panics");
    }
    let end = workers()?;
    let checked = check_answers(cli, &engines, recent, &mut Http::connect(http)?)?;

    let sum = |workers: &Value, name: &str| -> u64 {
        let workers = workers["workers"].as_array().into_iter().flatten();
        let ranks =
            workers.flat_map(|worker| worker["publishers"].as_array().into_iter().flatten());
        ranks.filter_map(|rank| rank["counts"][name].as_u64()).sum()
    };
    let rate = |name: &str| (sum(&after, name) - sum(&before, name)) as f64 / took;
    println!("engines                    {}", cli.engines);
    println!("blocks stored a second     {:.0}", rate("stored"));
    println!("blocks removed a second    {:.0}", rate("removed"));
    println!("batches a second           {:.0}", rate("batches"));
    println!("bytes a second             {:.0}", rate("bytes"));
    let held: usize = engines.iter().map(|engine| engine.lock().expect("no panic").held()).sum();
    println!("blocks held in the end     {held}, as the engines do");
    println!(
        "gaps, lost, overflows      {}, {}, {}",
        sum(&end, "gaps"),
        sum(&end, "lost"),
        sum(&end, "overflows")
    );
    println!("answers checked in the end {checked}, as the engines' caches give them");
    println!("queries a second           {:.0}", queries.answered as f64 / took);
    println!(
        "workers in an answer       {:.1} on average",
        queries.found as f64 / queries.answered.max(1) as f64
    );
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
        let time = Duration::from_nanos(queries.times.value_at_quantile(quantile));
        println!("query over HTTP, {name:<6}    {time:.1?}");
    }
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
        let time = Duration::from_nanos(lags.value_at_quantile(quantile));
        println!("event's way in, {name:<6}     {time:.1?}");
    }
    println!("listener's processor time  {:.2} cores", cpu_used / took);
    println!("listener's memory          {} MiB", resident(process)? >> 20);
    let faults: u64 = ["gaps", "lost", "overflows"].iter().map(|name| sum(&end, name)).sum();
    ensure!(faults == 0, "there were gaps");
    Ok(())
}

/// Asks for the newest prompts; how many answers are those of the engines'
/// caches.
fn check_answers(
    cli: &Cli,
    engines: &[Arc<Mutex<Engine>>],
    recent: &Recent,
    client: &mut Http,
) -> Result<usize> {
    let engines: Vec<_> = engines.iter().map(|engine| engine.lock().expect("no panic")).collect();
    let names: Vec<_> = engines.iter().map(|engine| engine.names()).collect();
    for (engine, names) in engines.iter().zip(&names) {
        ensure!(engine.held() == names.len(), "{} held, {} names", engine.held(), names.len());
    }
    let prompts = recent.all();
    let prompts = &prompts[prompts.len().saturating_sub(cli.checked)..];
    for tokens in prompts {
        let all = (0..).zip(engines.iter().zip(&names));
        let depths = all.map(|(id, (engine, names))| (id, engine.depth(names, tokens)));
        let wanted: Vec<_> = depths.filter(|&(_, depth)| depth > 0).collect();
        let mut found = client.query(tokens)?;
        found.sort_unstable();
        ensure!(found == wanted, "found {found:?}, wanted {wanted:?}");
    }
    Ok(prompts.len())
}

fn all_live(workers: &Value, engines: u16) -> Result<()> {
    let list = workers["workers"].as_array().context("no list")?;
    ensure!(list.len() == usize::from(engines), "{} workers", list.len());
    for worker in list {
        let state = &worker["publishers"][0]["state"];
        ensure!(state == "live", "worker {} is {state}", worker["id"]);
    }
    Ok(())
}

/// Tries until it works.
fn wait<T>(mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    let began = Instant::now();
    loop {
        match attempt() {
            Ok(done) => return Ok(done),
            Err(error) if began.elapsed() > Duration::from_secs(60) => bail!(error),
            Err(_) => thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Seconds of processor time that the process has used.
fn cpu(process: u32) -> Result<f64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields: Vec<_> = text.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks: u64 = fields[11..13].iter().filter_map(|field| field.parse::<u64>().ok()).sum();
    Ok(ticks as f64 / 100.0)
}

fn resident(process: u32) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/statm"))?;
    let pages: u64 = text.split(' ').nth(1).context("no field")?.parse()?;
    Ok(pages * 4096)
}
