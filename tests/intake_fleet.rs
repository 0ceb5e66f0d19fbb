//! A fleet that follows engines, each a process of its own, through whatever
//! may happen to them. After each fault the indexes must equal the reference
//! fed with what the engines hold, without anybody doing anything about it.

#![cfg(feature = "fleet")]

#[macro_use]
mod peers;

use std::time::Duration;

use kvradix::WorkerId;
use kvradix::fleet::{Fleet, Options, PublisherStatus, Question, State, WorkerSpec};
use kvradix::intake::{Adapter, Prompt, Reason};
use serde_json::{Value, json};

use peers::{Engine, Held, Served, Setup, Truth, eventually, signal};

/// Quick to notice, so that the tests need not wait.
fn options() -> Options {
    Options {
        dead_after: Duration::from_secs(2),
        forget_after: Duration::from_secs(4),
        check_after: Duration::from_millis(200),
        replay_timeout: Duration::from_millis(500),
        reconnect_max: Duration::from_millis(300),
        ..Options::default()
    }
}

/// No questions but those after a connection: so all batches from then on come
/// live, once each, and copies are counted in all of them.
fn without_checks() -> Options {
    let long = Duration::from_secs(600);
    Options { dead_after: long, forget_after: long, check_after: long, ..options() }
}

fn spec(setup: &Setup) -> WorkerSpec {
    serde_json::from_value(setup.worker()).expect("a worker")
}

fn follow(setups: &[&Setup]) -> Fleet {
    follow_with(options(), setups)
}

fn follow_with(options: Options, setups: &[&Setup]) -> Fleet {
    let fleet = Fleet::new(options).expect("sockets");
    for setup in setups {
        fleet.add(spec(setup)).expect("a new worker");
    }
    fleet
}

fn ask(fleet: &Fleet, prompt: &Served) -> Vec<(WorkerId, u32, u32)> {
    let Served { tokens, lora, salt } = prompt;
    let adapter = lora.as_deref().map_or(Adapter::None, Adapter::Name);
    let prompt = Prompt { tokens, adapter, salt: salt.as_deref(), images: &[] };
    let found = fleet.ask(&Question::tokens(prompt)).expect("one model");
    found.iter().map(|found| (found.worker, found.device, found.any)).collect()
}

fn rank_of(fleet: &Fleet, id: u64, rank: u32) -> PublisherStatus {
    let worker = fleet.worker(id).expect("it was added");
    let found = worker.publishers.into_iter().find(|publisher| publisher.rank == rank);
    found.expect("a rank of it")
}

fn differs(fleet: &Fleet, truth: &Truth) -> Option<String> {
    for &(worker, device, any) in &truth.ranks {
        let blocks = rank_of(fleet, worker.id, worker.dp_rank).blocks;
        if (blocks.device, blocks.any) != (device, any) {
            return Some(format!("{worker} has {blocks:?}, wanted {device} and {any}"));
        }
    }
    truth.differs(|prompt| ask(fleet, prompt))
}

fn wait_until(fleet: &Fleet, state: State) {
    eventually(state.name(), || {
        let ranks = fleet.workers().into_iter().flat_map(|worker| worker.publishers);
        let mut others = ranks.filter(|rank| rank.state != state);
        others.next().map(|rank| format!("{rank:?}"))
    });
}

/// Whether the fleet is in this state, and knows what the engines hold.
fn wait_for(fleet: &Fleet, engines: &mut [&mut Engine], state: State) {
    let truth = Truth::of(engines.iter_mut().map(|engine| &mut **engine));
    assert!(truth.ranks.iter().any(|&(_, _, any)| any > 0), "something is held");
    eventually("true", || {
        for &(worker, ..) in &truth.ranks {
            let rank = rank_of(fleet, worker.id, worker.dp_rank);
            if rank.state != state {
                return Some(format!("{worker} is {:?}: {:?}", rank.state, rank.counts));
            }
        }
        differs(fleet, &truth)
    });
}

#[test]
fn engines_of_every_layout_are_followed_from_their_beginning() {
    python_or_return!();
    let layouts = ["vllm", "vllm-bytes", "vllm-old", "sglang", "sglang-map"];
    let setups: Vec<_> = (1..).zip(layouts).map(|(id, layout)| Setup::new(id, layout)).collect();
    let mut engines: Vec<_> = setups.iter().map(Setup::start).collect();
    let fleet = follow(&setups.iter().collect::<Vec<_>>());
    engines.iter_mut().for_each(|engine| engine.steps(40));
    wait_for(&fleet, &mut engines.iter_mut().collect::<Vec<_>>(), State::Live);
    for id in 1..=5 {
        let counts = rank_of(&fleet, id, 0).counts;
        assert_eq!((counts.lost, counts.restarts, counts.malformed), (0, 0, 0), "{counts:?}");
    }
}

#[test]
fn two_ranks_are_two_streams() {
    python_or_return!();
    let setup = Setup::new(1, "vllm").ranks(2);
    let mut engine = setup.start();
    let fleet = follow(&[&setup]);
    engine.steps_of(0, 30, &["serve", "evict"]);
    engine.steps_of(1, 10, &["serve"]);
    wait_for(&fleet, &mut [&mut engine], State::Live);
    // A clear concerns the rank that sent it.
    engine.tell::<Value>(json!({"op": "clear", "rank": 1}));
    wait_for(&fleet, &mut [&mut engine], State::Live);
    assert_eq!(rank_of(&fleet, 1, 1).blocks.any, 0);
    assert!(rank_of(&fleet, 1, 0).blocks.any > 0);
}

#[test]
fn a_fleet_whose_processes_name_blocks_at_random_answers_exactly() {
    python_or_return!();
    // Equal seeds: all serve the same prompts, under names of their own.
    let setups: Vec<_> =
        (1..=4).map(|id| Setup::new(id, "vllm").with(&["--random-names", "--seed", "7"])).collect();
    let mut engines: Vec<_> = setups.iter().map(Setup::start).collect();
    let fleet = follow(&setups.iter().collect::<Vec<_>>());
    for (engine, steps) in engines.iter_mut().zip([40, 35, 30, 5]) {
        engine.steps(steps);
    }
    wait_for(&fleet, &mut engines.iter_mut().collect::<Vec<_>>(), State::Live);
}

#[test]
fn a_late_listener_reads_the_history() {
    python_or_return!();
    for layout in ["vllm", "sglang"] {
        let setup = Setup::new(1, layout);
        let mut engine = setup.start();
        engine.steps(60);
        let fleet = follow(&[&setup]);
        wait_for(&fleet, &mut [&mut engine], State::Live);
        assert!(rank_of(&fleet, 1, 0).counts.replayed >= 60);
    }
}

#[test]
fn dropped_batches_are_asked_for_again() {
    python_or_return!();
    for layout in ["vllm", "vllm-old", "sglang"] {
        let setup = Setup::new(1, layout);
        let mut engine = setup.start();
        let fleet = follow(&[&setup]);
        engine.subscribed(0);
        engine.steps(10);
        wait_for(&fleet, &mut [&mut engine], State::Live);
        for _ in 0..5 {
            engine.drop_next(0, 3);
            engine.steps(9);
        }
        wait_for(&fleet, &mut [&mut engine], State::Live);
        let counts = rank_of(&fleet, 1, 0).counts;
        assert!(counts.gaps >= 1 && counts.replayed >= 3, "{counts:?}");
        assert_eq!((counts.lost, counts.restarts), (0, 0), "{counts:?}");
    }
}

#[test]
fn the_newest_batches_are_missed_although_nothing_comes_behind_them() {
    python_or_return!();
    let setup = Setup::new(1, "vllm");
    let mut engine = setup.start();
    let fleet = follow(&[&setup]);
    // What it published before somebody listened would show a gap.
    engine.subscribed(0);
    engine.steps(10);
    wait_for(&fleet, &mut [&mut engine], State::Live);
    engine.drop_next(0, 5);
    engine.steps(5);
    wait_for(&fleet, &mut [&mut engine], State::Live);
    let counts = rank_of(&fleet, 1, 0).counts;
    assert_eq!((counts.gaps, counts.lost), (0, 0), "no number has shown it");
}

#[test]
fn batches_that_come_twice_count_once() {
    python_or_return!();
    let setup = Setup::new(1, "vllm").with(&["--copies"]);
    let mut engine = setup.start();
    let fleet = follow_with(without_checks(), &[&setup]);
    wait_until(&fleet, State::Live);
    engine.subscribed(0);
    engine.steps_of(0, 20, &["serve", "again"]);
    engine.tell::<Value>(json!({"op": "twice", "batches": 6}));
    engine.steps_of(0, 20, &["serve", "evict", "again"]);
    wait_for(&fleet, &mut [&mut engine], State::Live);
    let counts = rank_of(&fleet, 1, 0).counts;
    assert_eq!((counts.duplicates, counts.replayed, counts.restarts), (6, 0, 0), "{counts:?}");
}

#[test]
fn a_gap_that_the_history_no_longer_covers_begins_the_rank_anew() {
    python_or_return!();
    for layout in ["vllm", "sglang"] {
        let setup = Setup::new(1, layout).with(&["--history", "8"]);
        let mut engine = setup.start();
        let fleet = follow(&[&setup]);
        engine.subscribed(0);
        engine.steps(6);
        wait_for(&fleet, &mut [&mut engine], State::Live);
        engine.drop_next(0, 30);
        engine.steps(31);
        // Known is what the last eight batches tell.
        let (first, next) = engine.history(0);
        assert_eq!(first, Some(next - 8));
        let mut truth = Truth::default();
        let held: Vec<Held> = engine.holds(0, next - 8);
        truth.add(&mut engine, 0, &held);
        eventually("resynchronised", || {
            let rank = rank_of(&fleet, 1, 0);
            let against = (rank.state != State::Degraded).then(|| format!("{:?}", rank.state));
            against.or_else(|| differs(&fleet, &truth))
        });
        // More than once, if it was asked for history in between.
        assert!(rank_of(&fleet, 1, 0).counts.lost >= 1);
        // An empty cache is known whole.
        engine.tell::<Value>(json!({"op": "clear"}));
        engine.steps(10);
        wait_for(&fleet, &mut [&mut engine], State::Live);
    }
}

#[test]
fn an_engine_without_replay_begins_anew_behind_a_gap() {
    python_or_return!();
    let setup = Setup::new(1, "vllm").without_replay();
    let mut engine = setup.start();
    let fleet = follow(&[&setup]);
    engine.subscribed(0);
    engine.steps(10);
    wait_for(&fleet, &mut [&mut engine], State::Live);
    let (_, next) = engine.history(0);
    engine.drop_next(0, 2);
    engine.steps(10);
    let mut truth = Truth::default();
    let held = engine.holds(0, next + 2);
    truth.add(&mut engine, 0, &held);
    eventually("begun anew", || differs(&fleet, &truth));
    assert_eq!(rank_of(&fleet, 1, 0).state, State::Degraded);
    engine.tell::<Value>(json!({"op": "clear"}));
    engine.steps(5);
    wait_for(&fleet, &mut [&mut engine], State::Live);
}

#[test]
fn a_killed_engine_that_is_started_again_begins_anew() {
    python_or_return!();
    for layout in ["vllm", "sglang"] {
        let setup = Setup::new(1, layout).with(&["--random-names"]);
        let mut engine = setup.start();
        // However long it takes to begin again, it is not forgotten.
        let forget_after = Duration::from_secs(600);
        let fleet = follow_with(Options { forget_after, ..options() }, &[&setup]);
        engine.steps(30);
        wait_for(&fleet, &mut [&mut engine], State::Live);
        // It comes back with fewer batches, with as many, and with more; once
        // it says nothing at all.
        for steps in [5, 30, 90, 0] {
            let setup = engine.kill();
            engine = setup.with(&["--seed", "2"]).start();
            engine.steps(steps);
            let truth = Truth::of([&mut engine]);
            eventually("true of the new process", || {
                let state = rank_of(&fleet, 1, 0).state;
                let against = (state != State::Live).then(|| format!("{state:?}"));
                against.or_else(|| differs(&fleet, &truth))
            });
        }
        assert_eq!(rank_of(&fleet, 1, 0).counts.restarts, 4);
    }
}

#[test]
fn an_engine_that_is_gone_counts_as_dead_and_its_blocks_are_forgotten() {
    python_or_return!();
    for has_replay in [true, false] {
        let mut setup = Setup::new(1, "vllm");
        if !has_replay {
            setup = setup.without_replay();
        }
        let mut engine = setup.start();
        let fleet = follow(&[&setup]);
        engine.subscribed(0);
        engine.steps(20);
        wait_for(&fleet, &mut [&mut engine], State::Live);
        engine.kill();
        eventually("dead", || {
            let rank = rank_of(&fleet, 1, 0);
            assert!(rank.state == State::Dead || rank.blocks.any > 0, "not forgotten before");
            (rank.state != State::Dead).then(|| format!("{:?}", rank.state))
        });
        eventually("forgotten", || {
            let rank = rank_of(&fleet, 1, 0);
            (rank.blocks.any > 0).then(|| format!("{:?}", rank.blocks))
        });
        let mut engine = setup.start();
        engine.steps(10);
        if has_replay {
            wait_for(&fleet, &mut [&mut engine], State::Live);
        } else {
            eventually("alive", || {
                engine.steps(1);
                let state = rank_of(&fleet, 1, 0).state;
                (state == State::Dead).then(|| format!("{state:?}"))
            });
        }
        assert_eq!(rank_of(&fleet, 1, 0).counts.deaths, 1);
    }
}

#[test]
fn a_stopped_engine_counts_as_dead_until_it_goes_on() {
    python_or_return!();
    let setup = Setup::new(1, "vllm");
    let mut engine = setup.start();
    let fleet = follow(&[&setup]);
    engine.steps(20);
    wait_for(&fleet, &mut [&mut engine], State::Live);
    signal(engine.process(), "STOP");
    eventually("dead", || {
        let state = rank_of(&fleet, 1, 0).state;
        (state != State::Dead).then(|| format!("{state:?}"))
    });
    signal(engine.process(), "CONT");
    wait_for(&fleet, &mut [&mut engine], State::Live);
    let counts = rank_of(&fleet, 1, 0).counts;
    assert_eq!((counts.lost, counts.restarts), (0, 0), "nothing was lost: {counts:?}");
}

#[test]
fn a_replay_socket_that_does_not_answer_costs_completeness_until_it_does() {
    python_or_return!();
    let setup = Setup::new(1, "vllm");
    let mut engine = setup.start();
    let fleet = follow(&[&setup]);
    engine.subscribed(0);
    engine.steps(10);
    wait_for(&fleet, &mut [&mut engine], State::Live);
    engine.tell::<Value>(json!({"op": "deaf", "deaf": true}));
    let (_, next) = engine.history(0);
    engine.drop_next(0, 2);
    engine.steps(6);
    let mut truth = Truth::default();
    let held = engine.holds(0, next + 2);
    truth.add(&mut engine, 0, &held);
    eventually("true of what came since", || {
        let state = rank_of(&fleet, 1, 0).state;
        let against = (state != State::Degraded).then(|| format!("{state:?}"));
        against.or_else(|| differs(&fleet, &truth))
    });
    engine.tell::<Value>(json!({"op": "deaf", "deaf": false}));
    // It need not fall silent for that.
    eventually("whole", || {
        engine.steps(1);
        let state = rank_of(&fleet, 1, 0).state;
        (state != State::Live).then(|| format!("{state:?}"))
    });
    wait_for(&fleet, &mut [&mut engine], State::Live);
}

#[test]
fn replays_that_lose_batches_on_their_way_are_asked_for_until_they_are_whole() {
    python_or_return!();
    // The publisher's replay socket queues a few messages and drops what more
    // it should send.
    let setup = Setup::new(1, "vllm").with(&["--replay-hwm", "16"]);
    let mut engine = setup.start();
    engine.steps_of(0, 150, &["serve", "evict", "evict"]);
    // Where an answer has lost its last batches, but not its end, only a look
    // later on shows it.
    let (replay_timeout, check_after) = (Duration::from_secs(2), Duration::from_secs(5));
    let patient = Options { replay_timeout, check_after, ..without_checks() };
    let fleet = follow_with(patient, &[&setup]);
    wait_for(&fleet, &mut [&mut engine], State::Live);
    let counts = rank_of(&fleet, 1, 0).counts;
    assert_eq!(counts.lost, 0, "{counts:?}");
    assert!(counts.asked > 2, "some were lost on the way: {counts:?}");
}

#[test]
fn copies_are_counted_where_the_worker_says_so() {
    python_or_return!();
    let kinds = ["serve", "again", "again", "evict", "evict"];
    let setup = Setup::new(1, "vllm").with(&["--copies"]);
    let mut engine = setup.start();
    let fleet = follow_with(without_checks(), &[&setup]);
    wait_until(&fleet, State::Live);
    engine.subscribed(0);
    engine.steps_of(0, 120, &kinds);
    wait_for(&fleet, &mut [&mut engine], State::Live);
    assert_eq!(rank_of(&fleet, 1, 0).counts.replayed, 0);
    let counted = rank_of(&fleet, 1, 0).blocks;

    // Whoever does not count them believes the first removal.
    let mut spec = spec(&setup);
    spec.copies = Some(false);
    let other = Fleet::new(options()).expect("sockets");
    other.add(spec).expect("a new worker");
    let (_, next) = engine.history(0);
    eventually("read", || {
        let rank = rank_of(&other, 1, 0);
        (rank.last_number != Some(next - 1)).then(|| format!("{rank:?}"))
    });
    assert!(rank_of(&other, 1, 0).blocks.any < counted.any, "some have copies left");
}

#[test]
fn tiers_are_told_apart() {
    python_or_return!();
    let kinds = ["serve", "serve", "offload", "evict", "unload", "groups"];
    for (layout, evict) in [("vllm", "tail"), ("vllm-bytes", "any"), ("sglang", "any")] {
        let setup = Setup::new(1, layout).with(&["--evict", evict]);
        let mut engine = setup.start();
        let fleet = follow(&[&setup]);
        engine.steps_of(0, 150, &kinds);
        wait_for(&fleet, &mut [&mut engine], State::Live);
        let blocks = rank_of(&fleet, 1, 0).blocks;
        assert!(blocks.any > blocks.device, "some are offloaded: {blocks:?}");
    }
}

#[test]
fn adapters_and_salts_part_what_has_equal_tokens() {
    python_or_return!();
    let setups = [("vllm", 1), ("vllm-bytes", 2), ("sglang", 3), ("sglang-map", 4)]
        .map(|(layout, id)| Setup::new(id, layout).with(&["--adapters", "--seed", "3"]));
    let mut engines = setups.each_ref().map(Setup::start);
    let fleet = follow(&setups.each_ref());
    engines.iter_mut().for_each(|engine| engine.steps(40));
    let mut prompts = engines[0].prompts();
    let [a, b, c, d] = &mut engines;
    wait_for(&fleet, &mut [a, b, c, d], State::Live);
    // The same tokens under another adapter or salt are nobody's.
    prompts.retain(|prompt| !ask(&fleet, prompt).is_empty());
    assert!(prompts.iter().any(|prompt| prompt.lora.is_some()));
    for mut prompt in prompts {
        prompt.salt = Some("another".to_owned());
        assert_eq!(ask(&fleet, &prompt), []);
        prompt.salt = None;
        prompt.lora = Some("another".to_owned());
        assert_eq!(ask(&fleet, &prompt), []);
    }
}

#[test]
fn garbage_costs_itself() {
    python_or_return!();
    for layout in ["vllm", "sglang"] {
        let setup = Setup::new(1, layout);
        let mut engine = setup.start();
        let fleet = follow(&[&setup]);
        engine.subscribed(0);
        engine.steps(10);
        wait_for(&fleet, &mut [&mut engine], State::Live);
        engine.tell::<Value>(json!({"op": "garbage"}));
        engine.steps(10);
        // Nobody knows what the unreadable batches said.
        wait_for(&fleet, &mut [&mut engine], State::Degraded);
        // A replay may have told all that the engine holds, unreadable batches
        // included, before its messages have come that are no batch.
        eventually("counted", || {
            let counts = rank_of(&fleet, 1, 0).counts;
            (counts.malformed < 6).then(|| format!("{counts:?}"))
        });
        let rank = rank_of(&fleet, 1, 0);
        assert_eq!(rank.counts.malformed, 6, "{:?}", rank.counts);
        assert_eq!((rank.counts.lost, rank.counts.restarts), (0, 0), "{:?}", rank.counts);
        for reason in [Reason::BadBatch, Reason::Truncated, Reason::UnknownTag, Reason::BadHash] {
            assert!(rank.drops.of(reason) > 0, "{reason:?}: {:?}", rank.drops);
        }
        engine.tell::<Value>(json!({"op": "clear"}));
        engine.steps(5);
        wait_for(&fleet, &mut [&mut engine], State::Live);
    }
}

#[test]
fn an_engine_that_connects_here_is_followed() {
    python_or_return!();
    let setup = Setup::new(1, "vllm").ranks(2).with(&["--connect"]);
    let fleet = follow(&[&setup]);
    let mut engine = setup.start();
    engine.steps(30);
    wait_for(&fleet, &mut [&mut engine], State::Live);
    // What is no engine at all does no harm.
    let stranger = std::net::TcpStream::connect(("127.0.0.1", setup.port)).expect("bound here");
    drop(std::io::Write::write_all(&mut &stranger, b"GET / HTTP/1.1\r\n\r\n"));
    drop(stranger);
    let setup = engine.kill();
    let mut engine = setup.with(&["--seed", "5"]).start();
    engine.steps(10);
    wait_for(&fleet, &mut [&mut engine], State::Live);
}

#[test]
fn a_worker_that_left_comes_back_by_no_late_event() {
    python_or_return!();
    let setup = Setup::new(1, "vllm");
    let mut engine = setup.start();
    let fleet = follow(&[&setup]);
    engine.steps(20);
    wait_for(&fleet, &mut [&mut engine], State::Live);
    let prompts = engine.prompts();
    // Batches are on their way while it leaves.
    engine.steps(200);
    assert!(fleet.remove(1));
    assert!(!fleet.remove(1), "it has left");
    for _ in 0..10 {
        assert!(prompts.iter().all(|prompt| ask(&fleet, prompt).is_empty()));
        engine.steps(5);
    }
    assert!(fleet.models().is_empty());
    // It may come again, and is read from the beginning.
    fleet.add(spec(&setup)).expect("it is gone");
    wait_for(&fleet, &mut [&mut engine], State::Live);
}
