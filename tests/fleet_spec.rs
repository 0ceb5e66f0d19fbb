//! What a `workers.toml` may say, and why it is refused.

#![cfg(feature = "fleet")]

use kvradix::fleet::{Attach, Engine, FileError, FleetFile, Ranks, SpecFault, WorkerSpec};

fn worker(lines: &str) -> Result<WorkerSpec, FileError> {
    let text = format!("[[worker]]\nid = 7\nblock_size = 16\n{lines}");
    FleetFile::parse(&text).map(|mut file| file.workers.remove(0))
}

fn fault(lines: &str) -> SpecFault {
    match worker(lines) {
        Err(FileError::Spec(error)) => {
            assert_eq!(error.id, 7);
            error.fault
        }
        other => panic!("{other:?} of {lines}"),
    }
}

#[test]
fn little_has_to_be_said() {
    let worker = worker("events = 'tcp://a:5557'").expect("enough");
    assert_eq!((worker.id, worker.block_size.get()), (7, 16));
    assert_eq!((worker.attach, worker.engine), (Attach::Connect, Engine::Other));
    assert_eq!((worker.ranks.clone(), worker.replay.clone()), (Ranks::Count(1), None));
    assert!(!worker.counts_copies());
    assert_eq!(FleetFile::parse("").expect("an empty fleet").workers, []);
}

#[test]
fn everything_may_be_said() {
    let worker = worker(
        "events = 'tcp://*:5557'\nreplay = ['tcp://a:1', 'tcp://[::1]:2']\nattach = 'bind'\n\
         ranks = [3, 0]\nengine = 'vllm'\nmodel = 'small'\ntopic = 'kv'\ncopies = false",
    )
    .expect("all known");
    assert_eq!((worker.attach, worker.engine), (Attach::Bind, Engine::Vllm));
    assert_eq!(worker.ranks, Ranks::These(vec![3, 0]));
    assert!(!worker.counts_copies(), "what is said counts more than the engine");
}

#[test]
fn only_vllm_counts_copies_by_itself() {
    for (engine, copies) in [("vllm", true), ("sglang", false), ("other", false)] {
        let worker = worker(&format!("events = 'tcp://a:1'\nengine = '{engine}'")).expect("known");
        assert_eq!(worker.counts_copies(), copies, "{engine}");
    }
}

#[test]
fn what_cannot_be_followed_is_refused() {
    let a = "events = 'tcp://a:5557'\n";
    for endpoint in
        ["a:5557", "http://a:1", "tcp://a", "tcp://:1", "tcp://a:0", "tcp://a:x", "ipc://"]
    {
        let expected = SpecFault::NoEndpoint(endpoint.to_owned());
        assert_eq!(fault(&format!("events = '{endpoint}'")), expected);
        assert_eq!(fault(&format!("{a}replay = '{endpoint}'")), expected);
    }
    assert_eq!(fault(&format!("{a}ranks = 0")), SpecFault::RankCount(0));
    assert_eq!(fault(&format!("{a}ranks = 5000")), SpecFault::RankCount(5000));
    assert_eq!(fault(&format!("{a}ranks = []")), SpecFault::RankCount(0));
    assert_eq!(fault(&format!("{a}ranks = [1, 2, 1]")), SpecFault::RankTwice(1));
    let each = "events = ['tcp://a:1', 'tcp://a:2']\nranks = 3";
    assert_eq!(fault(each), SpecFault::EndpointCount { endpoints: 2, ranks: 3 });
    assert_eq!(
        fault("events = 'ipc:///tmp/a'\nranks = 2"),
        SpecFault::NoPort("ipc:///tmp/a".to_owned())
    );
    assert_eq!(
        fault("events = 'tcp://a:65000'\nranks = [536]"),
        SpecFault::PortTooHigh("tcp://a:65000".to_owned())
    );
    assert_eq!(fault("events = 'tcp://*:1'"), SpecFault::Wildcard("tcp://*:1".to_owned()));
    assert_eq!(
        fault(&format!("{a}attach = 'bind'\nreplay = 'tcp://*:1'")),
        SpecFault::Wildcard("tcp://*:1".to_owned())
    );
    assert_eq!(
        fault(&format!("{a}replay = 'tcp://a:5558'\nranks = 2")),
        SpecFault::EndpointTwice("tcp://a:5558".to_owned())
    );
}

#[test]
fn what_is_not_understood_is_refused() {
    for (text, reason) in [
        ("[[worker]]\nid = 1", "missing field"),
        ("[[worker]]\nid = 'x'", "invalid type"),
        ("[[workers]]\nid = 1", "unknown field"),
        ("[[worker]\n", "TOML parse error"),
    ] {
        let error = FleetFile::parse(text).expect_err(text).to_string();
        assert!(error.contains(reason), "{error}");
    }
    for lines in ["event = 'tcp://a:1'", "events = 'tcp://a:1'\nengine = 'tgi'", "events = 5"] {
        assert!(matches!(worker(lines), Err(FileError::Toml(_))), "{lines}");
    }
    let twice = "id = 1\nevents = 'tcp://a:1'\nblock_size = 1\n";
    let twice = FleetFile::parse(&format!("[[worker]]\n{twice}[[worker]]\n{twice}"));
    assert!(twice.expect_err("one id twice").to_string().contains("another of this id"));
}
