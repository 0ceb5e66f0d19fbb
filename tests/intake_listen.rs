//! `kvradix listen` as a process: what it serves, and that it and its engines
//! may be killed and started again.

#![cfg(feature = "listen")]

#[macro_use]
mod peers;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kvradix::reference::ReferenceIndex;
use kvradix::{Event, LocalHash, WorkerId};
use serde_json::{Value, json};

use peers::{Engine, Served, Setup, Truth, eventually, free_ports, python_path, signal};

/// A running `kvradix listen`. Killed when dropped.
struct Listener {
    child: Child,
    port: u16,
}

impl Listener {
    fn start(config: &PathBuf, port: u16, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_kvradix"))
            .arg("listen")
            .arg("--config")
            .arg(config)
            .args(["--http", &format!("127.0.0.1:{port}")])
            .args(["--dead-after", "2", "--forget-after", "4"])
            .args(arguments)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let log = BufReader::new(child.stderr.take().expect("piped"));
        let mut lines = log.lines().map_while(Result::ok);
        let serving = lines.by_ref().find(|line| line.contains("serving HTTP"));
        assert!(serving.is_some(), "it ended before it served");
        // What more it logs is read, so that it never waits.
        std::thread::spawn(move || lines.for_each(|line| println!("{line}")));
        Self { child, port }
    }

    fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "", b"")
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        let json = "Content-Type: application/json\r\n";
        self.send("POST", path, json, body.to_string().as_bytes())
    }

    fn send(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> Answer {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             {headers}Content-Length: {}\r\n\r\n",
            body.len()
        );
        self.raw(&[head.as_bytes(), body].concat())
    }

    fn raw(&self, request: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("not zero");
        // It may answer, and close, before it has read all.
        _ = stream.write_all(request);
        let mut answer = Vec::new();
        _ = stream.read_to_end(&mut answer);
        Answer::parse(&answer)
    }

    fn ask(&self, prompt: &Served) -> Vec<(WorkerId, u32, u32)> {
        let mut query = json!({"tokens": prompt.tokens});
        if let Some(lora) = &prompt.lora {
            query["lora_name"] = json!(lora);
        }
        if let Some(salt) = &prompt.salt {
            query["cache_salt"] = json!(salt);
        }
        let found = self.post("/query", &query).json();
        let found = found["workers"].as_array().expect("a list").clone();
        let number = |found: &Value, name: &str| found[name].as_u64().expect("a number");
        let one = |found: &Value| {
            let rank = number(found, "dp_rank") as u32;
            let worker = WorkerId::new(number(found, "id"), rank);
            (worker, number(found, "device") as u32, number(found, "any") as u32)
        };
        found.iter().map(one).collect()
    }

    fn rank(&self, id: u64, rank: usize) -> Value {
        self.get(&format!("/workers/{id}")).json()["publishers"][rank].clone()
    }

    /// Tells it to end, and waits until it has.
    fn end(mut self, name: &str) -> Option<i32> {
        signal(self.child.id(), name);
        self.child.wait().expect("it ends").code()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

#[derive(Debug)]
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(bytes.len());
        let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let mut body = bytes.get(end + 4..).unwrap_or_default().to_vec();
        if head.contains("transfer-encoding: chunked") {
            body = dechunked(&body);
        }
        Self { status, head, body }
    }

    fn json(&self) -> Value {
        assert!(self.head.contains("content-type: application/json"), "{self:?}");
        serde_json::from_slice(&self.body).expect("JSON")
    }

    fn text(&self) -> String {
        String::from_utf8(self.body.clone()).expect("UTF-8")
    }

    /// It is refused, and says why.
    fn is_refused(&self, status: u16, reason: &str) {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        let said = String::from_utf8_lossy(&self.body);
        assert!(said.contains(reason), "{said}");
    }
}

fn dechunked(mut chunks: &[u8]) -> Vec<u8> {
    let mut whole = Vec::new();
    while let Some(end) = chunks.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&chunks[..end]).expect("a size");
        let size = usize::from_str_radix(size, 16).expect("a size");
        whole.extend_from_slice(&chunks[end + 2..][..size]);
        chunks = &chunks[end + 2 + size + 2..];
        if size == 0 {
            break;
        }
    }
    whole
}

/// A `workers.toml` of its own for each test.
fn config(name: &str, setups: &[&Setup]) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.toml"));
    write_config(&path, setups);
    path
}

fn write_config(path: &PathBuf, setups: &[&Setup]) {
    let mut text = String::new();
    for setup in setups {
        text.push_str("[[worker]]\n");
        for (name, value) in setup.worker().as_object().expect("a table") {
            text.push_str(&format!("{name} = {value}\n"));
        }
    }
    fs::write(path, text).expect("it can be written");
}

fn wait_for(listener: &Listener, engines: &mut [&mut Engine]) {
    let truth = Truth::of(engines.iter_mut().map(|engine| &mut **engine));
    eventually("true", || {
        for &(worker, device, any) in &truth.ranks {
            let rank = listener.rank(worker.id, worker.dp_rank as usize);
            let wanted = json!({"device": device, "any": any, "waiting": 0});
            if rank["state"] != "live" || rank["blocks"] != wanted {
                return Some(format!("{rank}, wanted {wanted}"));
            }
        }
        truth.differs(|prompt| listener.ask(prompt))
    });
}

#[test]
fn it_answers_what_the_engines_hold_and_ends_when_told() {
    python_or_return!();
    let setups = [Setup::new(1, "vllm").ranks(2), Setup::new(2, "sglang")];
    let mut engines = setups.each_ref().map(Setup::start);
    let config = config("answers", &setups.each_ref());
    let listener = Listener::start(&config, free_ports(1)[0], &[]);
    engines.iter_mut().for_each(|engine| engine.steps(30));
    let [one, two] = &mut engines;
    wait_for(&listener, &mut [one, two]);

    // Hashes instead of tokens, as numbers or as texts.
    let prompt = one.prompts().into_iter().find(|prompt| !listener.ask(prompt).is_empty());
    let prompt = prompt.expect("some prompt is held");
    let hashes = kvradix::hash::LocalHasher::new(16).hash_blocks(&prompt.tokens);
    let by_tokens = listener.post("/query", &json!({"tokens": prompt.tokens})).json();
    let numbers: Vec<u64> = hashes.iter().map(|hash| hash.0).collect();
    let texts: Vec<String> = numbers.iter().map(u64::to_string).collect();
    assert_eq!(listener.post("/query", &json!({"hashes": numbers})).json(), by_tokens);
    assert_eq!(listener.post("/query", &json!({"hashes": texts})).json(), by_tokens);

    // What it dumps loads into an index that answers alike.
    let (mut device, mut any) = (ReferenceIndex::new(), ReferenceIndex::new());
    for line in listener.get("/dump").text().lines() {
        let line: Value = serde_json::from_str(line).expect("an object a line");
        let event: Event = serde_json::from_value(line["event"].clone()).expect("an event");
        let index = if line["tier"] == "device" { &mut device } else { &mut any };
        index.apply(&event).expect("parents come first");
    }
    for prompt in [one.prompts(), two.prompts()].concat() {
        let query: Vec<LocalHash> = kvradix::hash::LocalHasher::new(16).hash_blocks(&prompt.tokens);
        for (worker, on_device, on_any) in listener.ask(&prompt) {
            assert_eq!(device.matches(&query).depth_of(worker), on_device);
            assert_eq!(any.matches(&query).depth_of(worker), on_any);
        }
    }
    let one_alone = listener.get("/dump/2").text();
    assert!(one_alone.lines().all(|line| line.contains("\"id\":2")) && !one_alone.is_empty());

    let health = listener.get("/healthz");
    assert_eq!((health.status, &health.json()["status"]), (200, &json!("ok")));
    let metrics = listener.get("/metrics").text();
    for line in [
        "kvradix_fleet_workers 2",
        "kvradix_fleet_rank_state{worker=\"1\",rank=\"1\",state=\"live\"} 1",
        "kvradix_fleet_gaps_total{worker=\"2\",rank=\"0\"} 0",
        "# TYPE kvradix_fleet_query_seconds histogram",
        "kvradix_held_blocks{index=\"/16/device\"} ",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    for name in ["INT", "TERM"] {
        let port = free_ports(1)[0];
        let told = Listener::start(&config, port, &[]);
        assert_eq!(told.end(name), Some(0));
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
    }
}

#[test]
fn bad_requests_are_refused_with_a_reason() {
    let config = config("refusals", &[]);
    let listener = Listener::start(
        &config,
        free_ports(1)[0],
        &["--max-body", "4096", "--request-timeout", "1"],
    );
    let json = "Content-Type: application/json\r\n";
    let post = |body: &str| listener.send("POST", "/query", json, body.as_bytes());
    post("").is_refused(400, "EOF");
    post("{").is_refused(400, "EOF");
    post("[]").is_refused(400, "expected");
    post("{}").is_refused(400, "give `tokens` or `hashes`");
    post(r#"{"tokens": [1], "hashes": [1]}"#).is_refused(400, "not both");
    post(r#"{"tokens": [-1]}"#).is_refused(400, "-1");
    post(r#"{"tokens": [4294967296]}"#).is_refused(400, "4294967296");
    post(r#"{"tokens": ["x"]}"#).is_refused(400, "expected");
    post(r#"{"hashes": [1.5]}"#).is_refused(400, "1.5");
    post(r#"{"hashes": ["x"]}"#).is_refused(400, "decimal");
    post(r#"{"hashes": [1], "cache_salt": "x"}"#).is_refused(400, "part of the hashes");
    post(r#"{"tokens": [1], "lora_name": "a", "lora_id": 1}"#).is_refused(400, "not both");
    let image = r#"{"id": "", "start": 0, "tokens": 18446744073709551615}"#;
    let images = [image; 17].join(",");
    let overlaid = format!(r#"{{"tokens": [1], "images": [{images}]}}"#);
    post(&overlaid).is_refused(400, "more than 16 times");
    post(r#"{"tokens": [1], "temperature": 1}"#).is_refused(400, "temperature");
    post(&format!(r#"{{"tokens": [{}]}}"#, "1,".repeat(4096))).is_refused(413, "");
    listener.send("POST", "/query", "", b"{}").is_refused(415, "application/json");
    let form = "Content-Type: text/plain\r\n";
    listener.send("POST", "/workers", form, b"{}").is_refused(415, "application/json");
    listener.get("/query").is_refused(405, "method");
    listener.get("/nowhere").is_refused(404, "nothing here");
    listener.get("/workers/7").is_refused(404, "no worker 7");
    listener.get("/workers/x").is_refused(400, "");
    listener.get("/dump/7").is_refused(404, "no worker 7");
    listener.send("DELETE", "/workers/7", "", b"").is_refused(404, "no worker 7");

    // An empty fleet has nothing, which is an answer.
    let nothing = listener.post("/query", &json!({"tokens": [1, 2, 3]}));
    assert_eq!((nothing.status, nothing.json()), (200, json!({"workers": []})));

    let add = |worker: Value| listener.post("/workers", &worker);
    add(json!({"id": 1})).is_refused(400, "missing field");
    let worker = |events: &str| json!({"id": 1, "events": events, "block_size": 16});
    add(worker("127.0.0.1:5557")).is_refused(400, "tcp://HOST:PORT");
    add(worker("tcp://*:5557")).is_refused(400, "only be bound");
    add(json!({"id": 1, "events": "tcp://a:1", "block_size": 0})).is_refused(400, "nonzero");
    let two = json!({"id": 1, "events": "tcp://a:5557", "replay": "tcp://a:5558", "ranks": 2,
                     "block_size": 16});
    add(two).is_refused(400, "`tcp://a:5558` is used twice");
    let port = free_ports(1)[0];
    let fine = worker(&format!("tcp://127.0.0.1:{port}"));
    assert_eq!(add(fine.clone()).status, 201);
    add(fine).is_refused(409, "there is one of this id");
    listener.post("/query", &json!({"tokens": [1], "model": "other"})).is_refused(404, "no worker");
    assert_eq!(listener.send("DELETE", "/workers/1", "", b"").status, 204);

    // Requests that never end, or never begin to be one.
    let long = format!("GET /healthz HTTP/1.1\r\nHost: x\r\nA: {}\r\n\r\n", "x".repeat(64 << 10));
    assert_eq!(listener.raw(long.as_bytes()).status, 431);
    let many = "A: b\r\n".repeat(100);
    let many = format!("GET /healthz HTTP/1.1\r\nHost: x\r\n{many}\r\n");
    assert_eq!(listener.raw(many.as_bytes()).status, 431);
    assert_eq!(listener.raw(b"\x16\x03\x01\0\xa5\x01\0\0\xa1\x03\x03").status, 400);
    let half = b"POST /query HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n\
                 Content-Length: 100\r\nConnection: close\r\n\r\n{";
    listener.raw(half).is_refused(408, "longer than");
    // Headers that do not come: the connection is closed.
    assert!([0, 408].contains(&listener.raw(b"GET / HTTP/1.1\r\nHost: x\r\n").status));
    assert_eq!(listener.get("/healthz").status, 200);
}

#[test]
fn clients_that_take_no_answer_give_up_their_places() {
    let config = config("takers", &[]);
    let limits = ["--connections", "2", "--request-timeout", "1"];
    let listener = Listener::start(&config, free_ports(1)[0], &limits);
    let page = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1_000);
    let silent: Vec<_> = (0..2)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", listener.port)).expect("it listens");
            stream.set_write_timeout(Some(Duration::from_millis(200))).expect("not zero");
            // Until neither side's buffers take more.
            while stream.write_all(&page).is_ok() {}
            stream
        })
        .collect();
    assert_eq!(listener.get("/healthz").status, 200);
    drop(silent);
}

#[test]
fn a_useless_file_of_workers_ends_it_with_a_reason() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("useless.toml");
    for (text, reason) in [
        ("[[worker]]\nid = 1\n", "missing field `events`"),
        ("[[worker]]\nid = -1\n", "-1"),
        ("[[wörker]]\n", "w"),
        ("[[engine]]\nid = 1\n", "unknown field `engine`"),
        (
            "[[worker]]\nid = 1\nevents = \"tcp://a:1\"\nblock_size = 16\n\
             [[worker]]\nid = 1\nevents = \"tcp://b:1\"\nblock_size = 16\n",
            "worker 1: there is another of this id",
        ),
        (
            "[[worker]]\nid = 3\nevents = \"tcp://a:65535\"\nblock_size = 16\nranks = 2\n",
            "worker 3: `tcp://a:65535` needs a port above 65535",
        ),
    ] {
        fs::write(&path, text).expect("it can be written");
        let run = Command::new(env!("CARGO_BIN_EXE_kvradix"))
            .args(["listen", "--http", "127.0.0.1:0", "--config"])
            .arg(&path)
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(1), "{said}");
        assert!(said.contains(reason), "{reason} in {said}");
    }
}

#[test]
fn the_file_of_workers_is_watched() {
    python_or_return!();
    let setups = [1, 2, 3].map(|id| Setup::new(id, "vllm"));
    let mut engines = setups.each_ref().map(Setup::start);
    engines.iter_mut().for_each(|engine| engine.steps(15));
    let path = config("watched", &[&setups[0], &setups[1]]);
    let listener = Listener::start(&path, free_ports(1)[0], &[]);
    let [one, two, three] = &mut engines;
    wait_for(&listener, &mut [one, two]);
    let connects = listener.rank(2, 0)["counts"]["connects"].clone();

    // One goes, one comes; the other goes on undisturbed.
    write_config(&path, &[&setups[1], &setups[2]]);
    eventually("left", || match listener.get("/workers/1").status {
        404 => None,
        status => Some(status.to_string()),
    });
    wait_for(&listener, &mut [two, three]);
    assert!(
        one.prompts()
            .iter()
            .all(|prompt| { listener.ask(prompt).iter().all(|(worker, ..)| worker.id != 1) })
    );
    assert_eq!(listener.rank(2, 0)["counts"]["connects"], connects);

    // A useless file changes nothing, and is told of.
    fs::write(&path, "[[worker]]\nid = 2\n").expect("it can be written");
    eventually("told of", || match &listener.get("/workers").json()["file_error"] {
        Value::Null => Some("no error".to_owned()),
        error if error.to_string().contains("missing field") => None,
        error => Some(error.to_string()),
    });
    assert!(listener.get("/metrics").text().contains("kvradix_fleet_workers_file_error 1"));
    wait_for(&listener, &mut [two, three]);
    // As does one that was emptied, and not written again.
    fs::write(&path, "\n").expect("it can be written");
    eventually("empty", || match &listener.get("/workers").json()["file_error"] {
        error if error.to_string().contains("it is empty") => None,
        error => Some(error.to_string()),
    });
    wait_for(&listener, &mut [two, three]);
    fs::remove_file(&path).expect("it is there");
    wait_for(&listener, &mut [two, three]);

    // The file may be replaced as a whole, as editors and orchestrators do.
    let other = path.with_extension("new");
    write_config(&other, &[&setups[0]]);
    fs::rename(&other, &path).expect("it can be renamed");
    eventually("replaced", || match listener.get("/workers/3").status {
        404 => None,
        status => Some(status.to_string()),
    });
    wait_for(&listener, &mut [one]);

    // A worker that was added by a call stays, whatever the file says.
    assert_eq!(listener.post("/workers", &setups[2].worker()).status, 201);
    write_config(&path, &[&setups[1]]);
    eventually("replaced again", || match listener.get("/workers/1").status {
        404 => None,
        status => Some(status.to_string()),
    });
    wait_for(&listener, &mut [two, three]);
}

#[test]
fn both_sides_may_be_killed_and_started_again() {
    python_or_return!();
    let setups = [Setup::new(1, "vllm").ranks(2), Setup::new(2, "sglang")];
    let [mut one, mut two] = setups.each_ref().map(Setup::start);
    let path = config("killed", &setups.each_ref());
    let port = free_ports(1)[0];
    let mut listener = Listener::start(&path, port, &[]);
    for round in 0..3 {
        one.steps(20);
        two.steps(20);
        wait_for(&listener, &mut [&mut one, &mut two]);
        let seed = ["--seed", ["5", "6", "7"][round]];
        // The listener, while events come in.
        signal(listener.child.id(), "KILL");
        one.steps(20);
        drop(listener);
        listener = Listener::start(&path, port, &[]);
        two.steps(20);
        wait_for(&listener, &mut [&mut one, &mut two]);
        // An engine, and then both.
        one = one.kill().with(&seed).start();
        one.steps(10);
        wait_for(&listener, &mut [&mut one, &mut two]);
        let setup = two.kill();
        drop(listener);
        two = setup.with(&seed).start();
        two.steps(5);
        listener = Listener::start(&path, port, &[]);
    }
    wait_for(&listener, &mut [&mut one, &mut two]);
}

#[test]
fn a_listener_that_fell_behind_loses_batches_and_gets_them_back() {
    python_or_return!();
    // The publisher queues little, and so does the listener.
    let setup = Setup::new(1, "vllm").with(&["--hwm", "8", "--sndbuf", "4096"]);
    let mut engine = setup.start();
    let path = config("behind", &[&setup]);
    let listener = Listener::start(&path, free_ports(1)[0], &["--queue", "8"]);
    engine.steps(10);
    wait_for(&listener, &mut [&mut engine]);
    signal(listener.child.id(), "STOP");
    engine.steps_of(0, 8_000, &["serve", "evict", "evict", "evict"]);
    signal(listener.child.id(), "CONT");
    engine.steps(3);
    wait_for(&listener, &mut [&mut engine]);
    let counts = listener.rank(1, 0)["counts"].clone();
    assert!(counts["replayed"].as_u64().expect("a count") > 100, "{counts}");
    // It was the listener that was away, however long it took.
    for name in ["lost", "restarts", "forgotten"] {
        assert_eq!(counts[name], 0, "{name}: {counts}");
    }
}

#[test]
fn the_page_shows_what_flows_and_fetches_nothing_from_elsewhere() {
    python_or_return!();
    if !["chromedriver", "chromium"].iter().all(|name| is_installed(name)) {
        let allowed = std::env::var_os("KVRADIX_TEST_WITHOUT_BROWSER").is_some();
        assert!(
            allowed,
            "install chromium and its driver (Debian: chromium-driver), \
             or set KVRADIX_TEST_WITHOUT_BROWSER=1 to leave this test out"
        );
        eprintln!("LEFT OUT: there is no browser");
        return;
    }
    let setup = Setup::new(1, "vllm").ranks(2);
    let mut engine = setup.start();
    let path = config("page", &[&setup]);
    let listener = Listener::start(&path, free_ports(1)[0], &[]);
    engine.steps(10);
    let prompt = engine.prompts().remove(0);
    let mut browser = Command::new(python_path())
        .arg(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/peers/browser.py"))
        .arg(format!("http://127.0.0.1:{}/", listener.port))
        .stdout(Stdio::piped())
        .spawn()
        .expect("the browser starts");
    // It looks at the page while events and queries flow, until it has seen
    // enough.
    let status = loop {
        if let Some(status) = browser.try_wait().expect("it is ours") {
            break status;
        }
        engine.steps(2);
        engine.drop_next(0, 1);
        listener.ask(&prompt);
        std::thread::sleep(Duration::from_millis(50));
    };
    let mut said = String::new();
    browser.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
    println!("{said}");
    assert!(status.success());
}

fn is_installed(name: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|path| path.join(name).exists())
}
