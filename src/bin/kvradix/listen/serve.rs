//! Connections, within limits.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tracing::{debug, warn};

use super::stream::Impatient;

/// Bytes of a request's line and headers; more is answered with 431.
const HEADER_BYTES: usize = 16 << 10;
/// Headers of a request; more are answered with 431.
const HEADERS: usize = 64;
/// How long to wait when no connection can be taken, as without descriptors.
const PAUSE: Duration = Duration::from_millis(100);

pub struct Limits {
    /// Connections at a time; others wait.
    pub connections: usize,
    /// How long a client may take to send a request's headers, and how long it
    /// may take nothing of an answer.
    pub timeout: Duration,
}

/// Serves until `told`, then for `grace` at most.
pub async fn serve(
    listener: TcpListener,
    routes: Router,
    limits: Limits,
    told: impl Future<Output = ()>,
    grace: Duration,
) {
    let mut told = pin!(told);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(limits.timeout)
        .max_buf_size(HEADER_BYTES)
        .max_headers(HEADERS);
    let places = Arc::new(Semaphore::new(limits.connections));
    let graceful = GracefulShutdown::new();
    loop {
        let next = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            next = next => next,
            () = &mut told => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "no connection could be taken");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // Answers are short; they shall not wait for one another.
        _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(routes.clone());
        let stream = TokioIo::new(Impatient::new(stream, limits.timeout));
        let connection = graceful.watch(http.serve_connection(stream, service));
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                debug!(%error, "a connection ended badly");
            }
            drop(place);
        });
    }
    drop(listener);
    if tokio::time::timeout(grace, graceful.shutdown()).await.is_err() {
        warn!("some answers were not taken in time");
    }
}
