//! Queries over HTTP, at a steady pace on one connection, and what the listener
//! says of itself meanwhile.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde_json::Value;

use crate::engine::Recent;

/// A connection to the listener.
pub struct Http(BufReader<TcpStream>);

impl Http {
    pub fn connect(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        Ok(Self(BufReader::new(stream)))
    }

    pub fn workers(&mut self) -> Result<Value> {
        self.send("GET /workers", b"")
    }

    /// Workers with their leading blocks on the device, of those that have any.
    pub fn query(&mut self, tokens: &[u32]) -> Result<Vec<(u64, u64)>> {
        let body = serde_json::to_vec(&serde_json::json!({"tokens": tokens}))?;
        let answer = self.send("POST /query", &body)?;
        let found = answer["workers"].as_array().context("no list")?;
        let number = |found: &Value, name: &str| found[name].as_u64().context("no number");
        found.iter().map(|found| Ok((number(found, "id")?, number(found, "device")?))).collect()
    }

    fn send(&mut self, what: &str, body: &[u8]) -> Result<Value> {
        let head = format!(
            "{what} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        self.0.get_mut().write_all(&[head.as_bytes(), body].concat())?;
        let (mut line, mut length) = (String::new(), 0);
        self.0.read_line(&mut line)?;
        ensure!(line.contains(" 200 "), "{line}");
        while !line.trim().is_empty() {
            line.clear();
            self.0.read_line(&mut line)?;
            if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        let mut answer = vec![0; length];
        self.0.read_exact(&mut answer)?;
        Ok(serde_json::from_slice(&answer)?)
    }
}

pub struct Queries {
    pub answered: u64,
    /// Workers found, in all answers together.
    pub found: u64,
    /// Nanoseconds from when a query was due to when its answer was there.
    pub times: Histogram<u64>,
}

/// Of nanoseconds, up to a minute.
fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).context("a histogram")
}

/// Nanoseconds that each rank's last batch was under way, from the publisher's
/// call to the index, looked at twice a second.
pub fn lags(port: u16, stop: &AtomicBool) -> Result<Histogram<u64>> {
    let mut http = Http::connect(port)?;
    let mut lags = histogram()?;
    while !stop.load(Ordering::Relaxed) {
        let now = http.workers()?;
        for worker in now["workers"].as_array().context("no list")? {
            if let Some(delay) = worker["publishers"][0]["delay_seconds"].as_f64() {
                lags.saturating_record((delay * 1e9) as u64);
            }
        }
        thread::sleep(Duration::from_millis(500));
    }
    Ok(lags)
}

/// So many queries a second, for so long. One that is late counts from when it
/// was due.
pub fn run(port: u16, pace: u32, length: Duration, recent: &Recent) -> Result<Queries> {
    let mut http = Http::connect(port)?;
    let mut random = SmallRng::seed_from_u64(1);
    let times = histogram()?;
    let mut queries = Queries { answered: 0, found: 0, times };
    let began = Instant::now();
    let mut due = began;
    while began.elapsed() < length {
        due += Duration::from_secs(1) / pace.max(1);
        let Some(tokens) = recent.pick(&mut random) else { continue };
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // The sleep may be late itself: that is not the listener's time.
        let from = Instant::now().min(due + Duration::from_millis(2)).max(due);
        let found = http.query(&tokens)?;
        queries.times.saturating_record(from.elapsed().as_nanos() as u64);
        queries.answered += 1;
        queries.found += found.len() as u64;
    }
    Ok(queries)
}
