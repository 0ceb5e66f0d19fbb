//! Requests from a trace file: one JSON object a line.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use kvradix::LocalHash;
use serde::Deserialize;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::chain::Request;

/// Tokens of a trace's block.
pub const TRACE_BLOCK_TOKENS: u32 = 512;

/// The longest line that is read; a prompt of a million blocks is shorter.
const MAX_LINE_BYTES: u64 = 64 << 20;

/// A trace in memory.
#[derive(Debug)]
pub struct Trace {
    /// Per request the ids of its prompt's 512-token blocks.
    requests: Vec<Box<[u64]>>,
    /// Blocks that an id stands for.
    blocks_per_id: u32,
}

/// What is read of a line; other fields are left alone.
#[derive(Deserialize)]
struct Line {
    hash_ids: Box<[u64]>,
}

impl Trace {
    /// Reads a trace whose ids are to become blocks of `block_size` tokens,
    /// which must divide 512.
    ///
    /// # Errors
    ///
    /// Names the file and, from 1, the line that cannot be read or does not
    /// say what it should. Empty lines are skipped; a file without a request
    /// is an error.
    pub fn read(path: &Path, block_size: u32) -> Result<Self> {
        let shown = path.display();
        let file = File::open(path).with_context(|| format!("cannot open the trace {shown}"))?;
        let requests = parse(BufReader::new(file)).with_context(|| format!("trace {shown}"))?;
        ensure!(!requests.is_empty(), "trace {shown}: there is no request in it");
        Ok(Self { requests, blocks_per_id: TRACE_BLOCK_TOKENS / block_size })
    }

    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Fills in request `at`. Ids become local hashes of their own for every
    /// block they stand for. What was answered is not in a trace.
    pub fn fill(&self, at: usize, request: &mut Request) {
        request.chain.clear();
        for id in &self.requests[at] {
            for part in 0..self.blocks_per_id {
                let local = xxh3_64_with_seed(&id.to_le_bytes(), part.into());
                request.chain.push(LocalHash(local));
            }
        }
        request.prompt_blocks = request.chain.len();
    }
}

fn parse(mut reader: impl BufRead) -> Result<Vec<Box<[u64]>>> {
    let mut requests = Vec::new();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let mut limited = reader.by_ref().take(MAX_LINE_BYTES);
        let read = limited.read_until(b'\n', &mut line);
        let read = read.with_context(|| format!("line {number} cannot be read"))?;
        if read == 0 {
            break;
        }
        ensure!(
            line.ends_with(b"\n") || (read as u64) < MAX_LINE_BYTES,
            "line {number} is longer than {} MiB",
            MAX_LINE_BYTES >> 20
        );
        if line.trim_ascii().is_empty() {
            continue;
        }
        let parsed: Line = serde_json::from_slice(&line)
            .map_err(|error| anyhow::anyhow!("line {number} is malformed: {}", cause(&error)))?;
        requests.push(parsed.hash_ids);
    }
    Ok(requests)
}

/// The parser's message without its "at line 1 column 9": each line is a text
/// of its own to the parser, so its line number would mislead.
fn cause(error: &serde_json::Error) -> String {
    let full = error.to_string();
    let message = full.rfind(" at line ").map_or(full.as_str(), |end| &full[..end]);
    format!("{message} (column {})", error.column())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error_of(text: &[u8]) -> String {
        format!("{:#}", parse(text).expect_err("should be refused"))
    }

    #[test]
    fn lines_are_read_and_empty_ones_skipped() {
        let text =
            b"{\"timestamp\": 0, \"hash_ids\": [0, 18446744073709551615]}\r\n\n{\"hash_ids\":[]}";
        let requests = parse(&text[..]).expect("well-formed");
        assert_eq!(requests, [vec![0, u64::MAX].into(), Box::default()]);
    }

    #[test]
    fn errors_tell_the_line() {
        let good = "{\"hash_ids\": [1]}\n\n";
        for (bad, says) in [
            ("{\"hash_ids\": [1, -2]}", "line 3 is malformed: invalid value: integer `-2`"),
            ("{\"hash_ids\": [1.5]}", "line 3 is malformed: invalid type: floating point"),
            ("{\"hash_ids\": 1}", "line 3 is malformed: invalid type: integer `1`"),
            ("{\"input_length\": 3}", "line 3 is malformed: missing field `hash_ids`"),
            ("{\"hash_ids\": [1", "line 3 is malformed: EOF while parsing a list (column 15)"),
            ("[]", "line 3 is malformed"),
            ("{\"hash_ids\": []} {}", "line 3 is malformed: trailing characters"),
        ] {
            let error = error_of(format!("{good}{bad}").as_bytes());
            assert!(error.starts_with(says), "{bad}: {error}");
        }
        assert!(error_of(b"\n\xff\xfe\n").starts_with("line 2 is malformed"));
    }

    #[test]
    fn an_id_becomes_the_same_blocks_wherever_it_occurs() {
        let trace = Trace { requests: vec![[4, 5].into(), [5].into()], blocks_per_id: 2 };
        let (mut first, mut second) = (Request::default(), Request::default());
        trace.fill(0, &mut first);
        trace.fill(1, &mut second);
        assert_eq!(first.query().len(), 4);
        assert_eq!(first.query()[2..], *second.query());
        assert_ne!(first.query()[0], first.query()[1]);
        assert_ne!(first.chain.sequences()[2..], *second.chain.sequences());
    }
}
