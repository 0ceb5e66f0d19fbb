//! Engines of the tests: processes in Python that publish as real ones do, and
//! what is asked of an index that listened to them.

// Each test binary uses some of it.
#![allow(dead_code)]

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use kvradix::hash::LocalHasher;
use kvradix::reference::ReferenceIndex;
use kvradix::{Block, LocalHash, SequenceHash, WorkerId};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// How long what heals by itself may take here, where other tests run beside.
const PATIENCE: Duration = Duration::from_secs(30);

/// The interpreter with what the peers need; none where the tests may do
/// without.
fn python() -> Option<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/.venv/bin/python");
    if here.exists() {
        return Some(here);
    }
    let allowed = std::env::var_os("KVRADIX_TEST_WITHOUT_PEERS").is_some_and(|value| value == "1");
    assert!(
        allowed,
        "{} is not there: run tests/peers/venv.sh, \
         or set KVRADIX_TEST_WITHOUT_PEERS=1 to leave these tests out",
        here.display()
    );
    None
}

/// The interpreter. Where there is none, and that is allowed, says so and
/// ends the test.
macro_rules! python_or_return {
    () => {
        match $crate::peers::have_python() {
            true => {}
            false => {
                eprintln!("LEFT OUT: there is no tests/peers/.venv");
                return;
            }
        }
    };
}

pub fn have_python() -> bool {
    python().is_some()
}

pub fn python_path() -> PathBuf {
    python().expect("asked for before")
}

/// How an engine is started.
#[derive(Clone, Debug)]
pub struct Setup {
    pub id: u64,
    pub layout: &'static str,
    pub ranks: u32,
    pub block_size: u32,
    pub port: u16,
    pub replay_port: Option<u16>,
    pub arguments: Vec<String>,
}

impl Setup {
    /// An engine of one rank with a replay socket, on free ports.
    pub fn new(id: u64, layout: &'static str) -> Self {
        let ports = free_ports(2);
        Self {
            id,
            layout,
            ranks: 1,
            block_size: 16,
            port: ports[0],
            replay_port: Some(ports[1]),
            arguments: Vec::new(),
        }
    }

    /// With so many ranks, on free ports in a row.
    pub fn ranks(mut self, ranks: u32) -> Self {
        let ports = free_ports(2 * ranks as usize);
        self.ranks = ranks;
        (self.port, self.replay_port) = (ports[0], Some(ports[ranks as usize]));
        self
    }

    pub fn without_replay(mut self) -> Self {
        self.replay_port = None;
        self
    }

    pub fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|&argument| argument.to_owned()));
        self
    }

    pub fn start(&self) -> Engine {
        Engine::start(self)
    }

    /// The worker as a fleet is told of it.
    pub fn worker(&self) -> Value {
        let engine = if self.layout.starts_with("vllm") { "vllm" } else { "sglang" };
        let mut worker = json!({
            "id": self.id,
            "events": format!("tcp://127.0.0.1:{}", self.port),
            "ranks": self.ranks,
            "engine": engine,
            "block_size": self.block_size,
            "copies": self.counts_copies(),
        });
        if let Some(port) = self.replay_port {
            worker["replay"] = json!(format!("tcp://127.0.0.1:{port}"));
        }
        if self.arguments.iter().any(|argument| argument == "--connect") {
            worker["events"] = json!(format!("tcp://127.0.0.1:{}", self.port));
            worker["attach"] = json!("bind");
        }
        worker
    }

    fn counts_copies(&self) -> bool {
        self.arguments.iter().any(|argument| argument == "--copies")
    }
}

/// Ports in a row that nobody listens at.
pub fn free_ports(many: usize) -> Vec<u16> {
    // Below the range from which the system takes ports of its own accord, and
    // different ones in each process.
    static NEXT: std::sync::atomic::AtomicU16 = std::sync::atomic::AtomicU16::new(0);
    for _ in 0..200 {
        let process = (std::process::id() % 90) as u16 * 200;
        let offset = NEXT.fetch_add(many as u16, std::sync::atomic::Ordering::Relaxed) % 200;
        let first = 12_000 + process + offset;
        let ports: Vec<u16> = (first..first + many as u16).collect();
        if ports.iter().all(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok()) {
            return ports;
        }
    }
    panic!("no free ports");
}

/// A running engine. Killed when dropped.
pub struct Engine {
    pub setup: Setup,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// A block of the engine's, and where it is held.
#[derive(Deserialize, Clone, Debug)]
pub struct Held {
    name: u64,
    parent: Option<u64>,
    tokens: Vec<u32>,
    lora: Option<String>,
    salt: Option<String>,
    media: Vec<String>,
}

/// A prompt that the engine has served.
#[derive(Deserialize, Clone, Debug)]
pub struct Served {
    pub tokens: Vec<u32>,
    pub lora: Option<String>,
    pub salt: Option<String>,
}

impl Engine {
    pub fn start(setup: &Setup) -> Self {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers");
        let mut command = Command::new(python_path());
        command.current_dir(directory).arg("engine.py");
        command.args(["--layout", setup.layout, "--port", &setup.port.to_string()]);
        command.args(["--ranks", &setup.ranks.to_string()]);
        command.args(["--block-size", &setup.block_size.to_string()]);
        if let Some(port) = setup.replay_port {
            command.args(["--replay-port", &port.to_string()]);
        }
        command.args(&setup.arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the engine starts");
        let input = child.stdin.take().expect("piped");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut engine = Self { setup: setup.clone(), child, input, output };
        let ready: Value = engine.read();
        assert_eq!(ready, json!({"ready": true}));
        engine
    }

    /// Kills it at once, as the out-of-memory killer would.
    pub fn kill(mut self) -> Setup {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
        self.setup.clone()
    }

    pub fn process(&self) -> u32 {
        self.child.id()
    }

    fn read<T: DeserializeOwned>(&mut self) -> T {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the engine answers");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }

    pub fn tell<T: DeserializeOwned>(&mut self, command: Value) -> T {
        writeln!(self.input, "{command}").expect("the engine listens");
        self.read()
    }

    pub fn steps(&mut self, steps: u32) {
        for rank in 0..self.setup.ranks {
            self.steps_of(rank, steps, &["serve", "serve", "evict"]);
        }
    }

    pub fn steps_of(&mut self, rank: u32, steps: u32, kinds: &[&str]) {
        let command = json!({"op": "steps", "rank": rank, "steps": steps, "kinds": kinds});
        self.tell::<Value>(command);
    }

    /// The next batches are kept for replay, but not sent.
    pub fn drop_next(&mut self, rank: u32, batches: u32) {
        self.tell::<Value>(json!({"op": "drop", "rank": rank, "batches": batches}));
    }

    /// Returns once somebody's subscription has arrived: what is published
    /// from then on is sent. Before it a listener may be connected, and live
    /// by what a replay told.
    pub fn subscribed(&mut self, rank: u32) {
        let answer: Value = self.tell(json!({"op": "subscribed", "rank": rank}));
        assert_eq!(answer, json!({"subscribed": true}));
    }

    pub fn prompts(&mut self) -> Vec<Served> {
        let mut answer: Value = self.tell(json!({"op": "prompts"}));
        serde_json::from_value(answer["prompts"].take()).expect("prompts")
    }

    /// What the rank holds, as far as batches from `since` on tell.
    pub fn holds(&mut self, rank: u32, since: u64) -> Vec<Held> {
        let mut answer: Value = self.tell(json!({"op": "holds", "rank": rank, "since": since}));
        serde_json::from_value(answer["blocks"].take()).expect("blocks")
    }

    /// The first number that it could replay, and the next that it will send.
    pub fn history(&mut self, rank: u32) -> (Option<u64>, u64) {
        #[derive(Deserialize)]
        struct History {
            first: Option<u64>,
            next: u64,
        }
        let History { first, next } = self.tell(json!({"op": "history", "rank": rank}));
        (first, next)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// What must be true of an index that listened.
#[derive(Default)]
pub struct Truth {
    device: ReferenceIndex,
    any: ReferenceIndex,
    /// Questions to be asked.
    pub prompts: Vec<Served>,
    /// Ranks, with the blocks each holds on its device and on any tier.
    pub ranks: Vec<(WorkerId, u64, u64)>,
    block_size: u32,
}

impl Truth {
    /// All that the engines hold.
    pub fn of<'a>(engines: impl IntoIterator<Item = &'a mut Engine>) -> Self {
        let mut truth = Self::default();
        for engine in engines {
            for rank in 0..engine.setup.ranks {
                let held = engine.holds(rank, 0);
                truth.add(engine, rank, &held);
            }
        }
        truth
    }

    /// What the rank holds, as the index should have it.
    pub fn add(&mut self, engine: &mut Engine, rank: u32, held: &[Held]) {
        let worker = WorkerId::new(engine.setup.id, rank);
        self.block_size = engine.setup.block_size;
        for block in held {
            let hasher = hasher(engine.setup.block_size, &block.lora, &block.salt);
            let local = hasher.hash_block(&block.tokens, &[]);
            let block = [Block { sequence: SequenceHash(block.name), local }];
            let parent = held.iter().find(|held| held.name == block[0].sequence.0);
            let parent = parent.and_then(|held| held.parent).map(SequenceHash);
            for index in [&mut self.device, &mut self.any] {
                index.store(worker, parent, &block).expect("parents come first");
            }
        }
        let without = |is_held: &dyn Fn(&Held) -> bool| -> Vec<SequenceHash> {
            let gone = held.iter().filter(|&block| !is_held(block));
            gone.map(|block| SequenceHash(block.name)).collect()
        };
        let on_device = |block: &Held| block.media.iter().any(|medium| medium == "GPU");
        let off_device = without(&on_device);
        let gone = without(&|block| !block.media.is_empty());
        self.device.remove(worker, &off_device);
        self.any.remove(worker, &gone);
        let of = |names: &[SequenceHash]| (held.len() - names.len()) as u64;
        self.ranks.push((worker, of(&off_device), of(&gone)));
        self.prompts.extend(engine.prompts());
    }

    /// For each rank that has any of the prompt: its leading blocks on the
    /// device and on any tier.
    pub fn answer(&self, prompt: &Served) -> Vec<(WorkerId, u32, u32)> {
        let hasher = hasher(self.block_size, &prompt.lora, &prompt.salt);
        let query: Vec<LocalHash> = hasher.hash_blocks(&prompt.tokens);
        let device = self.device.matches(&query);
        let any = self.any.matches(&query);
        let ranks: HashSet<WorkerId> =
            device.iter().chain(any.iter()).map(|found| found.worker).collect();
        let mut answer: Vec<_> = ranks
            .into_iter()
            .map(|rank| (rank, device.depth_of(rank), any.depth_of(rank)))
            .collect();
        answer.sort();
        answer
    }

    /// Asks every question, and whether the answers are true; else the first
    /// that is not.
    pub fn differs(
        &self,
        mut ask: impl FnMut(&Served) -> Vec<(WorkerId, u32, u32)>,
    ) -> Option<String> {
        let mut some = 0;
        for prompt in &self.prompts {
            let (mut found, wanted) = (ask(prompt), self.answer(prompt));
            found.sort();
            some += wanted.len();
            if found != wanted {
                return Some(format!("found {found:?}, wanted {wanted:?}"));
            }
        }
        assert!(some > 0 || self.ranks.iter().all(|&(_, _, any)| any == 0), "it asks something");
        None
    }
}

fn hasher(block_size: u32, lora: &Option<String>, salt: &Option<String>) -> LocalHasher {
    let hasher = LocalHasher::new(block_size as usize);
    hasher.adapter(lora.as_deref().unwrap_or("")).salt(salt.as_deref().unwrap_or(""))
}

/// Waits until there is nothing left to say against it; how long it took.
pub fn eventually(what: &str, mut against: impl FnMut() -> Option<String>) -> Duration {
    let began = Instant::now();
    loop {
        let Some(reason) = against() else {
            println!("{what} after {:?}", began.elapsed());
            return began.elapsed();
        };
        assert!(began.elapsed() < PATIENCE, "never {what}: {reason}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends a signal to a process of ours.
pub fn signal(process: u32, name: &str) {
    let done = Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status();
    assert!(done.expect("kill runs").success());
}
