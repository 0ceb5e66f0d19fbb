//! `kvradix listen`: follows a fleet and answers over HTTP.
//!
//! `run` starts what there is: the fleet and the watch on its file, then the
//! server, which `serve` accepts connections for (a `stream` each) and `routes`
//! answers. `body` reads requests, `metrics` and `dump` write the longer
//! answers.

mod body;
mod dump;
mod metrics;
mod routes;
mod serve;
mod stream;

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use kvradix::fleet::{Fleet, Options, Watch};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

use crate::args::ListenArgs;
use metrics::{Exposition, Latency};

/// How often the workers' file is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How long answers under way may still take when the process is to end.
const GRACE: Duration = Duration::from_secs(5);

/// What all requests share.
struct App {
    fleet: Arc<Fleet>,
    watch: Arc<Watch>,
    exposition: Exposition,
    latency: Latency,
    started: Instant,
    stopping: AtomicBool,
}

/// Follows and serves until the process is told to end.
///
/// # Errors
///
/// The file of workers is of no use, or the address is taken.
pub fn run(args: &ListenArgs) -> Result<()> {
    tracing_subscriber::fmt()
        .with_max_level(args.log)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
    // Each rank takes some ten descriptors.
    if let Err(error) = rlimit::increase_nofile_limit(u64::MAX) {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    let fleet = Fleet::new(options(args)).context("starting to follow")?;
    let fleet = Arc::new(fleet);
    let watch = Watch::start(fleet.clone(), args.config.clone(), LOOK_EVERY)
        .with_context(|| format!("reading {}", args.config.display()))?;
    let watch = Arc::new(watch);
    let latency = Latency::default();
    let app = Arc::new(App {
        exposition: Exposition::new(fleet.clone(), watch.clone(), &latency),
        fleet,
        watch,
        latency,
        started: Instant::now(),
        stopping: AtomicBool::new(false),
    });
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(args.http_threads.into())
        .enable_all()
        .build()
        .context("starting the HTTP server's threads")?;
    let served = runtime.block_on(serve_until_told(args, app));
    // A client that reads nothing must not keep the process.
    runtime.shutdown_timeout(GRACE);
    info!("ended");
    served
}

async fn serve_until_told(args: &ListenArgs, app: Arc<App>) -> Result<()> {
    // Before it says that it serves: from then on it ends as it should.
    let told = told(app.clone())?;
    let listener = TcpListener::bind(args.http)
        .await
        .with_context(|| format!("listening on {}", args.http))?;
    let address = listener.local_addr().context("asking for the address")?;
    info!(%address, "serving HTTP");
    if !address.ip().is_loopback() {
        tracing::warn!("whoever reaches this address may ask, and change the fleet");
    }
    let timeout = Duration::from_secs_f64(args.request_timeout);
    let limits = serve::Limits { connections: args.connections.into(), timeout };
    let routes = routes::routes(app, args.max_body as usize, timeout);
    serve::serve(listener, routes, limits, told, GRACE).await;
    Ok(())
}

/// Ends when the process is told to.
fn told(app: Arc<App>) -> Result<impl Future<Output = ()>> {
    let mut interrupt = signal(SignalKind::interrupt()).context("waiting for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("waiting for SIGTERM")?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => info!("interrupted: ending"),
            _ = terminate.recv() => info!("told to end"),
        }
        app.stopping.store(true, Ordering::Relaxed);
    })
}

fn options(args: &ListenArgs) -> Options {
    let dead_after = Duration::from_secs_f64(args.dead_after);
    Options {
        threads: args.threads.into(),
        dead_after,
        forget_after: Duration::from_secs_f64(args.forget_after).max(dead_after),
        queued_batches: args.queue,
        ..Options::default()
    }
}
