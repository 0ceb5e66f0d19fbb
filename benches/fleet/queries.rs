//! Queries over HTTP, at a steady pace on one connection.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
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

/// So many queries a second, for so long. One that is late counts from when it
/// was due.
pub fn run(port: u16, pace: u32, length: Duration, recent: &Recent) -> Result<Queries> {
    let mut http = Http::connect(port)?;
    let mut random = SmallRng::seed_from_u64(1);
    let times = Histogram::new(3).context("a histogram")?;
    let mut queries = Queries { answered: 0, found: 0, times };
    let began = Instant::now();
    let mut due = began;
    while began.elapsed() < length {
        due += Duration::from_secs(1) / pace.max(1);
        let Some(tokens) = recent.pick(&mut random) else { continue };
        let body = serde_json::to_vec(&serde_json::json!({"tokens": tokens[..]}))?;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // The sleep may be late itself: that is not the listener's time.
        let from = Instant::now().min(due + Duration::from_millis(2)).max(due);
        let answer = http.send("POST /query", &body)?;
        queries.times.saturating_record(from.elapsed().as_nanos() as u64);
        queries.answered += 1;
        queries.found += answer["workers"].as_array().map_or(0, Vec::len) as u64;
    }
    Ok(queries)
}
