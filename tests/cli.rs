//! The command-line tool, run as its users run it.
#![cfg(feature = "cli")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const SMALL: [&str; 9] =
    ["replay", "--requests", "400", "--cache-blocks", "700", "--workers", "5", "--seed", "3"];

fn kvradix<'a>(args: impl IntoIterator<Item = &'a str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvradix"));
    command.args(args).output().expect("the tool can be started")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

/// Standard output of a run that must go well.
fn succeed<'a>(args: impl IntoIterator<Item = &'a str>) -> String {
    let output = kvradix(args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    stdout(&output)
}

/// Standard error of a run that must fail, without a panic and without a
/// report.
fn fail<'a>(args: impl IntoIterator<Item = &'a str>) -> String {
    let output = kvradix(args);
    let stderr = String::from_utf8(output.stderr.clone()).expect("UTF-8");
    assert!(matches!(output.status.code(), Some(1 | 2)), "{:?}: {stderr}", output.status);
    assert!(!stderr.contains("panicked"), "{stderr}");
    assert_eq!(stdout(&output), "");
    stderr
}

fn json<'a>(args: impl IntoIterator<Item = &'a str>) -> Value {
    serde_json::from_str(&succeed(args.into_iter().chain(["--json"]))).expect("JSON")
}

/// A directory of this test's own, gone with the value.
struct Temp(PathBuf);

impl Temp {
    fn new(test: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
        fs::create_dir_all(&path).expect("a directory for the test");
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_owned()
    }

    fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        let path = self.path(name);
        fs::write(&path, content).expect("a file for the test");
        path
    }
}

impl Drop for Temp {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_malformed_trace_line_is_named_by_its_number() {
    let temp = Temp::new("malformed");
    for (bad, says) in [
        (&b"{\"hash_ids\": [1, oops]}"[..], "expected value"),
        (b"{\"hash_ids\": [1, 2", "EOF"),
        (b"{\"hash_ids\": [-1]}", "integer `-1`"),
        (b"{\"hash_ids\": [99999999999999999999]}", "floating point"),
        (b"{\"timestamp\": 5}", "missing field `hash_ids`"),
        (b"\"hash_ids\"", "invalid type"),
        (b"\xff\xfe\x00", "malformed"),
    ] {
        let mut text = b"{\"timestamp\": 0, \"hash_ids\": [1, 2]}\n\n".to_vec();
        text.extend(bad);
        let trace = temp.file("trace.jsonl", &text);
        let stderr = fail(["replay", "--trace", &trace]);
        assert!(stderr.contains("trace.jsonl: line 3 is malformed: "), "{stderr}");
        assert!(stderr.contains(says), "{says}: {stderr}");
    }
}

#[test]
fn a_trace_that_cannot_be_used_is_named() {
    let temp = Temp::new("unusable");
    let missing = temp.path("missing.jsonl");
    assert!(fail(["replay", "--trace", &missing]).contains("missing.jsonl"));
    let empty = temp.file("empty.jsonl", "\n \n");
    assert!(fail(["replay", "--trace", &empty]).contains("no request"));
    let directory = temp.path("");
    assert!(fail(["replay", "--trace", &directory]).contains("line 1 cannot be read"));
    let good = temp.file("good.jsonl", "{\"hash_ids\": [1]}\n{\"hash_ids\": []}");
    let stderr = fail(["replay", "--trace", &good, "--repeat", "18446744073709551615"]);
    assert!(stderr.contains("--repeat"), "{stderr}");
}

#[test]
fn bad_arguments_are_refused() {
    for (args, says) in [
        (&["replay", "--block-size", "24"][..], "divide 512"),
        (&["replay", "--block-size", "0"], "divide 512"),
        (&["replay", "--workers", "0"], "--workers"),
        (&["replay", "--routers", "many"], "--routers"),
        (&["replay", "--appliers", "0"], "--appliers"),
        (&["replay", "--cache-blocks", "0"], "--cache-blocks"),
        (&["replay", "--requests", "-1"], "-1"),
        (&["replay", "--balance", "0.5"], "at least 1"),
        (&["replay", "--balance", "NaN"], "at least 1"),
        (&["replay", "--evict", "all"], "leaf"),
        (&["replay", "--repeat", "2"], "--trace"),
        (&["replay", "--plot", "x.png"], ".svg"),
        (&["replay", "--plot", "svg"], ".svg"),
        (&["replay", "--trace", "x", "--seed", "2"], "--seed"),
        (&["churn", "--cycles", "0"], "--cycles"),
        (&["churn", "--verify"], "--verify"),
        (&["soak", "--minutes", "0"], "above 0"),
        (&["soak", "--minutes", "NaN"], "above 0"),
        (&["soak", "--writers", "3", "--workers", "2"], "--writers"),
        (&["grow"], "grow"),
        (&[], "Usage"),
    ] {
        let stderr = fail(args.iter().copied());
        assert!(stderr.contains(says), "{args:?}: {stderr}");
    }
}

#[test]
fn a_plot_that_cannot_be_written_is_told_at_once() {
    let temp = Temp::new("unwritable");
    let plot = temp.path("no/such/directory.svg");
    let stderr = fail(["replay", "--requests", "1000000000", "--plot", &plot]);
    assert!(stderr.contains("cannot write the plot"), "{stderr}");
}

#[test]
fn every_answer_on_generated_requests_is_verified() {
    for evict in ["leaf", "any"] {
        for names in ["shared", "per-worker"] {
            let more = ["--verify", "--appliers", "3", "--evict", evict, "--names", names];
            let report = json(SMALL.into_iter().chain(more));
            assert_eq!(report["verified_queries"], 400);
            assert!(report["blocks"]["removed"].as_u64() > Some(0), "{report:#}");
        }
    }
}

#[test]
fn every_answer_on_a_trace_is_verified() {
    let temp = Temp::new("verified");
    // Prompts that branch at each third id, longer than a cache holds.
    let line = |request: u64| {
        let ids: Vec<u64> =
            (0..1 + request % 9).map(|at| at * 100 + request % (1 + at / 3)).collect();
        format!("{{\"timestamp\": {request}, \"hash_ids\": {ids:?}}}\n")
    };
    let trace = temp.file("trace.jsonl", (0..60).map(line).collect::<String>());
    for block_size in ["16", "512"] {
        let small = ["--block-size", block_size, "--cache-blocks", "7", "--workers", "3"];
        let args = ["replay", "--trace", &trace, "--repeat", "3", "--verify"];
        let report = json(args.into_iter().chain(small));
        assert_eq!(report["requests"], 180);
        assert_eq!(report["verified_queries"], 180);
    }
}

#[test]
fn a_live_replay_reports_in_full() {
    let report = json(SMALL.into_iter().chain(["--routers", "3", "--appliers", "2"]));
    assert_eq!(report["requests"], 400);
    assert_eq!(report["verified_queries"], Value::Null);
    let rate = |name: &str| report[name].as_f64().expect("a number");
    assert!(0.0 < rate("hit_rate") && rate("hit_rate") <= rate("oracle_hit_rate"), "{report:#}");
    assert!(rate("oracle_hit_rate") <= rate("anywhere_hit_rate"), "{report:#}");
    assert!(report["query_ns"]["p50"].as_u64() <= report["query_ns"]["p999"].as_u64());
    let blocks = |name: &str| report["blocks"][name].as_u64().expect("a count");
    assert_eq!(report["index"]["held_blocks"], blocks("stored") - blocks("removed"));
    assert_eq!(report["index"]["pending_removals"], 0);

    let table = succeed(SMALL);
    for row in ["requests", "hit rate", "block operations", "p99.9", "memory", "queue depth"] {
        assert!(table.contains(row), "{row}: {table}");
    }
}

#[test]
fn a_json_report_says_how_to_get_it_again() {
    let report = json(SMALL.into_iter().chain(["--balance", "inf", "--evict", "any"]));
    assert_eq!(report["command"], "replay");
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    let arguments = &report["arguments"];
    assert_eq!((&arguments["requests"], &arguments["seed"]), (&400.into(), &3.into()));
    assert_eq!((&arguments["balance"], &arguments["evict"]), (&"inf".into(), &"any".into()));
    assert_eq!((&arguments["block_size"], &arguments["trace"]), (&16.into(), &Value::Null));
    assert_eq!(json(["churn", "--cycles", "10", "--drain-threads", "0"])["arguments"], {
        serde_json::json!({ "cycles": 10, "drain_threads": 0 })
    });
}

#[test]
fn equal_seeds_give_equal_requests() {
    let run = |seed| {
        let args = ["replay", "--requests", "100", "--seed", seed, "--verify"];
        json(args)["blocks"].clone()
    };
    assert_eq!(run("7"), run("7"));
    assert_ne!(run("7"), run("8"));
}

#[test]
fn a_plot_is_drawn() {
    let temp = Temp::new("plot");
    let plot = temp.path("plot.svg");
    succeed(SMALL.into_iter().chain(["--plot", &plot]));
    let svg = fs::read_to_string(&plot).expect("the plot");
    assert!(svg.starts_with("<svg"), "{svg}");
    for label in ["query time (µs", "resident memory (MiB)", "time since the start (s)", "p99"] {
        assert!(svg.contains(label), "{label}");
    }
}

#[test]
fn churn_leaves_nothing_in_the_tree() {
    let report = json(["churn", "--cycles", "2000"]);
    assert_eq!(report["cycles"], 2000);
    for side in ["before", "after"] {
        assert_eq!(report[side]["tree_blocks"], 16, "{report:#}");
        assert_eq!(report[side]["held_blocks"], 16, "{report:#}");
        assert_eq!(report[side]["lookup_entries"], 16, "{report:#}");
        assert_eq!(report[side]["pending_removals"], 0, "{report:#}");
    }
    assert_eq!(report["before"]["nodes"], report["after"]["nodes"]);
    let table = succeed(["churn", "--cycles", "10"]);
    for unit in ["cycles/s", "MiB", " bytes before", " bytes after", "16 after"] {
        assert!(table.contains(unit), "{unit}: {table}");
    }
}

/// Few workers, so that tables find their sizes soon.
fn soak<'a>(minutes: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["soak", "--workers", "16", "--minutes", minutes], more].concat()
}

#[test]
fn a_short_soak_finds_nothing_that_grows() {
    let temp = Temp::new("soak");
    let plot = temp.path("soak.svg");
    let report = json(soak("0.2", &["--plot", &plot]));
    for figure in ["requests", "queries", "moves", "compared_answers", "checks"] {
        assert!(report[figure].as_u64() > Some(0), "{figure}: {report:#}");
    }
    let drifts: Vec<_> = report["drifts"].as_array().expect("a list").iter().collect();
    assert!(drifts.len() >= 4, "{drifts:?}");
    assert_eq!(report["end"]["index"]["held_blocks"], 0);
    let svg = fs::read_to_string(&plot).expect("the plot");
    for label in ["live", "resident", "nodes", "p99.9", "time since the start (s)"] {
        assert!(svg.contains(label), "{label}");
    }
}

#[test]
fn a_soak_tells_what_it_sees_as_it_goes() {
    // In the first seconds tables still double.
    let text = succeed(soak("0.2", &["--seed", "5"]));
    for column in ["live MiB", "RSS MiB", "nodes", "p99.9", "block operations", "allowed"] {
        assert!(text.contains(column), "{column}: {text}");
    }
}

#[test]
fn a_soak_with_a_fault_in_it_fails() {
    for (fault, minutes, says) in [
        ("leak", "0.1", "live bytes a held block grew"),
        ("answer", "2", "in the reference|reference ["),
        ("remnant", "0.02", "live bytes are left at the end"),
    ] {
        let output = kvradix(soak(minutes, &["--json", "--plant", fault]));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{fault}: {stderr}");
        assert!(says.split('|').any(|says| stderr.contains(says)), "{fault}: {stderr}");
    }
}

#[test]
fn a_reader_that_has_seen_enough_is_no_failure() {
    let mut tool = Command::new(env!("CARGO_BIN_EXE_kvradix"))
        .args(SMALL)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the tool can be started");
    drop(tool.stdout.take());
    let output = tool.wait_with_output().expect("the tool ends");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stderr, "");
}

#[test]
fn help_tells_units_and_defaults() {
    let help = succeed(["replay", "--help"]);
    for text in ["[default: 16384]", "[default: 16]", "oracle", "TOKENS", "every 10 ms"] {
        assert!(help.contains(text), "{text}");
    }
    assert!(succeed(["churn", "--help"]).contains("MALLOC_ARENA_MAX"));
    assert!(succeed(["soak", "--help"]).contains("8 % higher"));
    assert!(succeed(["--version"]).starts_with("kvradix "));
}
