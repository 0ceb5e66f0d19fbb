//! What is served where.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use kvradix::fleet::{
    AddError, Found, QuestionError, State as RankState, WorkerSpec, WorkerStatus,
};
use serde::Serialize;

use super::App;
use super::body::{Query, Refusal, parse};
use super::dump;
use super::metrics::{self, Percentiles};

const PAGE: &str = include_str!("page.html");

/// Nothing from elsewhere, and nobody may frame it.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; \
    script-src 'unsafe-inline'; connect-src 'self'; img-src data:; base-uri 'none'; \
    form-action 'none'; frame-ancestors 'none'";

const JSON: &str = "application/json";

/// Everything that is served. Bodies of more than `max_body` bytes are
/// answered with 413, those that take longer than `timeout` to come with 408.
pub fn routes(app: Arc<App>, max_body: usize, timeout: Duration) -> Router {
    let in_time = move |request: Request, next: Next| async move {
        match tokio::time::timeout(timeout, next.run(request)).await {
            Ok(response) => response,
            Err(_) => {
                let reason = format!("the request took longer than {timeout:?}");
                Refusal(StatusCode::REQUEST_TIMEOUT, reason).into_response()
            }
        }
    };
    Router::new()
        .route("/", get(page))
        .route("/query", post(query))
        .route("/workers", get(workers).post(add_worker))
        .route("/workers/{id}", get(worker).delete(remove_worker))
        .route("/metrics", get(metrics_text))
        .route("/healthz", get(health))
        .route("/dump", get(dump_all))
        .route("/dump/{id}", get(dump_one))
        .fallback(async || Refusal(StatusCode::NOT_FOUND, "there is nothing here".to_owned()))
        .method_not_allowed_fallback(async || {
            Refusal(StatusCode::METHOD_NOT_ALLOWED, "not with this method".to_owned())
        })
        .layer(DefaultBodyLimit::max(max_body))
        .layer(middleware::from_fn(in_time))
        .layer(middleware::map_response(common_headers))
        .with_state(app)
}

async fn common_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[derive(Serialize)]
struct Reason {
    error: String,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Refusal(status, error) = self;
        (status, json(&Reason { error })).into_response()
    }
}

fn json<T: Serialize>(value: &T) -> Response {
    match serde_json::to_vec(value) {
        Ok(text) => ([(CONTENT_TYPE, JSON)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// A body that says that it is JSON, which no form of another site's page can.
fn checked(
    headers: &HeaderMap,
    body: Result<Bytes, axum::extract::rejection::BytesRejection>,
) -> Result<Bytes, Refusal> {
    let said = headers.get(CONTENT_TYPE).and_then(|said| said.to_str().ok()).unwrap_or_default();
    let said = said.split(';').next().unwrap_or_default().trim();
    if !said.eq_ignore_ascii_case(JSON) {
        let reason = format!("the body has to be of the type {JSON}");
        return Err(Refusal(StatusCode::UNSUPPORTED_MEDIA_TYPE, reason));
    }
    body.map_err(|rejection| Refusal(rejection.status(), rejection.body_text()))
}

type Sent = Result<Bytes, axum::extract::rejection::BytesRejection>;

async fn page() -> Response {
    let headers =
        [(CONTENT_TYPE, "text/html; charset=utf-8"), (CONTENT_SECURITY_POLICY, PAGE_POLICY)];
    (headers, PAGE).into_response()
}

/// What has to wait for the members' lock, which a worker that leaves keeps
/// until the thread that follows it has a moment: not on the threads that
/// answer queries.
async fn apart<T: Send + 'static>(
    app: Arc<App>,
    act: impl FnOnce(&App) -> T + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(move || act(&app)).await;
    done.map_err(|error| Refusal(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

#[derive(Serialize)]
struct Answer {
    workers: Vec<Found>,
}

async fn query(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Sent,
) -> Result<Response, Refusal> {
    let began = Instant::now();
    let query: Query = parse(&checked(&headers, body)?)?;
    let workers = query.ask(|question| app.fleet.ask(question))?.map_err(|error| {
        let status = match error {
            QuestionError::NobodyServes => StatusCode::NOT_FOUND,
            _ => StatusCode::BAD_REQUEST,
        };
        Refusal(status, error.to_string())
    })?;
    let response = json(&Answer { workers });
    app.latency.record(began.elapsed());
    Ok(response)
}

#[derive(Serialize)]
struct Overview {
    uptime_seconds: f64,
    /// What is wrong with the workers' file.
    file_error: Option<String>,
    queries: Percentiles,
    workers: Vec<WorkerStatus>,
}

async fn workers(State(app): State<Arc<App>>) -> Result<Response, Refusal> {
    apart(app, |app| {
        json(&Overview {
            uptime_seconds: app.started.elapsed().as_secs_f64(),
            file_error: app.watch.error(),
            queries: app.latency.percentiles(),
            workers: app.fleet.workers(),
        })
    })
    .await
}

async fn worker(State(app): State<Arc<App>>, Path(id): Path<u64>) -> Result<Response, Refusal> {
    let worker = apart(app, move |app| app.fleet.worker(id)).await?;
    worker.map(|worker| json(&worker)).ok_or_else(|| no_worker(id))
}

async fn add_worker(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    body: Sent,
) -> Result<Response, Refusal> {
    let spec: WorkerSpec = parse(&checked(&headers, body)?)?;
    let id = spec.id;
    let added = apart(app, move |app| app.fleet.add(spec).map(|()| app.fleet.worker(id))).await?;
    let added = added.map_err(|error| {
        let status = match error {
            AddError::Exists(_) => StatusCode::CONFLICT,
            _ => StatusCode::BAD_REQUEST,
        };
        Refusal(status, error.to_string())
    })?;
    let added = added.ok_or_else(|| no_worker(id))?;
    Ok((StatusCode::CREATED, json(&added)).into_response())
}

async fn remove_worker(
    State(app): State<Arc<App>>,
    Path(id): Path<u64>,
) -> Result<StatusCode, Refusal> {
    match apart(app, move |app| app.fleet.remove(id)).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(no_worker(id)),
    }
}

fn no_worker(id: u64) -> Refusal {
    Refusal(StatusCode::NOT_FOUND, format!("there is no worker {id}"))
}

async fn metrics_text(State(app): State<Arc<App>>) -> Result<Response, Refusal> {
    let text = apart(app, |app| app.exposition.text(&app.fleet)).await?.map_err(|error| {
        Refusal(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("the metrics cannot be written: {error}"),
        )
    })?;
    Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response())
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
    workers: usize,
    /// How many are in which state.
    ranks: BTreeMap<&'static str, usize>,
}

/// Whether this process serves; how the engines are is told beside it.
async fn health(State(app): State<Arc<App>>) -> Result<Response, Refusal> {
    let stopping = app.stopping.load(Ordering::Relaxed);
    let workers = apart(app, |app| app.fleet.workers()).await?;
    let ranks = || workers.iter().flat_map(|worker| &worker.publishers);
    let count = |state: RankState| {
        (state.name(), ranks().filter(|publisher| publisher.state == state).count())
    };
    let health = Health {
        status: if stopping { "stopping" } else { "ok" },
        workers: workers.len(),
        ranks: RankState::ALL.map(count).into(),
    };
    let status = if stopping { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK };
    Ok((status, json(&health)).into_response())
}

async fn dump_all(State(app): State<Arc<App>>) -> Response {
    dumped(&app, None)
}

async fn dump_one(State(app): State<Arc<App>>, Path(id): Path<u64>) -> Result<Response, Refusal> {
    if apart(app.clone(), move |app| app.fleet.worker(id)).await?.is_none() {
        return Err(no_worker(id));
    }
    Ok(dumped(&app, Some(id)))
}

fn dumped(app: &App, worker: Option<u64>) -> Response {
    match dump::dump(app.fleet.clone(), worker) {
        Ok(body) => {
            let mut response = Response::new(body);
            let lines = HeaderValue::from_static("application/x-ndjson");
            response.headers_mut().insert(CONTENT_TYPE, lines);
            response
        }
        Err(_) => {
            let busy = "too many dumps are under way".to_owned();
            let refusal = Refusal(StatusCode::SERVICE_UNAVAILABLE, busy);
            ([(RETRY_AFTER, "1")], refusal).into_response()
        }
    }
}
