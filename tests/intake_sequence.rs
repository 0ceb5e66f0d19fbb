//! The logic of sequence numbers against a publisher, a network and a replay
//! socket that all misbehave, without any of them being there.

#![cfg(feature = "intake")]

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use kvradix::intake::sequence::{Applied, Bounds, Cause, Effects, Sequence, Way};
use rand::distr::Distribution;
use rand::distr::weighted::WeightedIndex;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// A batch: which process sent it under which number, and what it is.
type Batch = [u8; 17];

const CHANGES: u8 = 0;
const EMPTIES: u8 = 1;
const UNREADABLE: u8 = 2;

fn batch(process: u64, number: u64, kind: u8) -> Batch {
    let mut batch = [0; 17];
    batch[..8].copy_from_slice(&process.to_le_bytes());
    batch[8..16].copy_from_slice(&number.to_le_bytes());
    batch[16] = kind;
    batch
}

fn process_of(batch: &Batch) -> u64 {
    u64::from_le_bytes(batch[..8].try_into().expect("eight bytes"))
}

/// What the rank's index was told since it was last cleared, and what was
/// asked.
#[derive(Default)]
struct Recorder {
    batches: Vec<(u64, Batch)>,
    clears: Vec<Cause>,
    ask: Option<u64>,
    ways: Vec<Way>,
    /// Batches of this number meet a fault on this side, so many times.
    faults: Option<(u64, usize)>,
}

impl Effects<Batch> for Recorder {
    fn apply(&mut self, number: u64, payload: Batch, way: Way) -> Applied {
        if let Some(&(last, _)) = self.batches.last() {
            assert_eq!(number, last + 1, "applied without a gap, once each");
        }
        if let Some((faulty, times @ 1..)) = &mut self.faults
            && *faulty == number
        {
            *times -= 1;
            self.batches.clear();
            return Applied::Lost;
        }
        self.batches.push((number, payload));
        self.ways.push(way);
        match payload[16] {
            EMPTIES => Applied::Emptied,
            UNREADABLE => Applied::Unreadable,
            _ => Applied::Changes,
        }
    }

    fn clear(&mut self, cause: Cause) {
        self.batches.clear();
        self.clears.push(cause);
    }

    fn ask(&mut self, start: u64) {
        self.ask = Some(start);
    }
}

/// A publisher's process and its buffer.
struct Publisher {
    process: u64,
    next: u64,
    buffer: VecDeque<(u64, Batch)>,
    keeps: usize,
}

impl Publisher {
    fn new(process: u64, keeps: usize) -> Self {
        Self { process, next: 0, buffer: VecDeque::new(), keeps }
    }

    fn publish(&mut self, kind: u8) -> (u64, Batch) {
        let sent = (self.next, batch(self.process, self.next, kind));
        self.next += 1;
        self.buffer.push_back(sent);
        if self.buffer.len() > self.keeps {
            self.buffer.pop_front();
        }
        sent
    }

    fn answer(&self, start: u64) -> VecDeque<(u64, Batch)> {
        self.buffer.iter().copied().filter(|&(number, _)| number >= start).collect()
    }
}

/// Everything outside of the sequence, and the sequence.
struct World {
    publisher: Publisher,
    /// Sent and not delivered yet.
    wire: VecDeque<(u64, Batch)>,
    /// What is left of the answer under way.
    answer: Option<VecDeque<(u64, Batch)>>,
    /// The publisher is another process, and nobody has said so.
    unannounced: bool,
    sequence: Sequence<Batch>,
    recorder: Recorder,
}

impl World {
    fn new(keeps: usize, has_replay: bool, bounds: Bounds) -> Self {
        Self {
            publisher: Publisher::new(1, keeps),
            wire: VecDeque::new(),
            answer: None,
            unannounced: false,
            sequence: Sequence::new(has_replay, bounds),
            recorder: Recorder::default(),
        }
    }

    fn publish(&mut self) {
        self.publish_kind(CHANGES);
    }

    fn publish_kind(&mut self, kind: u8) {
        let sent = self.publisher.publish(kind);
        self.wire.push_back(sent);
    }

    /// Batches of processes that are gone no longer come.
    fn drop_old(&mut self) {
        let now = self.publisher.process;
        self.wire.retain(|(_, payload)| process_of(payload) == now);
    }

    fn lose(&mut self) {
        self.publisher.publish(CHANGES);
    }

    fn restart(&mut self) {
        self.publisher = Publisher::new(self.publisher.process + 1, self.publisher.keeps);
        self.unannounced = true;
        // The old process's sockets die with it.
        self.answer = None;
    }

    fn announce(&mut self) {
        self.unannounced = false;
        self.answer = None;
        self.sequence.connected(&mut self.recorder);
    }

    fn deliver(&mut self) {
        if let Some((number, payload)) = self.wire.pop_front() {
            self.sequence.live(number, payload, &mut self.recorder);
        }
    }

    /// The next thing the replay socket has to say.
    fn replay(&mut self) {
        if let Some(start) = self.recorder.ask.take() {
            self.answer = Some(self.publisher.answer(start));
        }
        let Some(answer) = &mut self.answer else { return };
        match answer.pop_front() {
            Some((number, payload)) => {
                self.sequence.replayed(number, payload, &mut self.recorder);
            }
            None => {
                self.answer = None;
                self.sequence.replay_ended(&mut self.recorder);
            }
        }
        if self.recorder.ask.is_some() {
            // A new question makes the rest of the old answer void.
            self.answer = None;
        }
    }

    fn fail(&mut self) {
        if self.sequence.is_asking() {
            self.answer = None;
            self.recorder.ask = None;
            self.sequence.replay_failed(&mut self.recorder);
        }
    }

    fn check(&mut self) {
        self.sequence.check(&mut self.recorder);
    }

    /// No more faults: everything arrives, and a quiet moment follows.
    fn settle(&mut self) {
        let mut steps = 0;
        let mut quiet = 0;
        while quiet < 3 {
            steps += 1;
            assert!(steps < 10_000, "it comes to rest");
            if !self.wire.is_empty() {
                self.deliver();
            } else if self.unannounced {
                self.announce();
            } else if self.recorder.ask.is_some() || self.answer.is_some() {
                self.replay();
            } else {
                assert!(!self.sequence.is_asking(), "every question is put");
                quiet += 1;
                self.check();
            }
        }
        while self.sequence.is_asking() {
            self.replay();
        }
    }

    /// What is known is one process's, without a gap, up to the newest batch.
    fn assert_true(&self) {
        let known = &self.recorder.batches;
        assert_eq!(self.sequence.last(), known.last().map(|&(number, _)| number));
        for (number, payload) in known {
            assert_eq!(process_of(payload), self.publisher.process, "of this process, {number}");
        }
        match known.first() {
            None => assert_eq!(self.publisher.next, 0, "something is known"),
            Some(_) => {
                assert_eq!(known.last().expect("not empty").0 + 1, self.publisher.next);
            }
        }
        let kinds = known.iter().map(|(_, payload)| payload[16]);
        let deciding = kinds.rev().find(|&kind| kind != CHANGES);
        let from_start = known.first().is_none_or(|&(first, _)| first == 0);
        assert_eq!(self.sequence.is_whole(), deciding.map_or(from_start, |kind| kind == EMPTIES));
        assert_eq!(self.sequence.held(), 0);
    }

    fn numbers(&self) -> Vec<u64> {
        self.recorder.batches.iter().map(|&(number, _)| number).collect()
    }
}

const ALL: usize = usize::MAX;

fn small() -> Bounds {
    Bounds { held_batches: 3, held_bytes: 1 << 20, tries: 3 }
}

#[test]
fn a_stream_from_its_beginning_is_applied_as_it_comes() {
    let mut world = World::new(ALL, false, Bounds::default());
    for _ in 0..5 {
        world.publish();
        world.deliver();
    }
    assert_eq!(world.numbers(), [0, 1, 2, 3, 4]);
    assert!(world.sequence.is_whole());
    assert_eq!(world.sequence.counts().applied, 5);
}

#[test]
fn a_late_subscriber_reads_what_it_missed() {
    let mut world = World::new(ALL, true, Bounds::default());
    (0..4).for_each(|_| world.lose());
    world.announce();
    world.publish();
    world.settle();
    world.assert_true();
    assert_eq!(world.numbers(), [0, 1, 2, 3, 4]);
    assert!(world.recorder.clears.is_empty());
}

#[test]
fn a_late_subscriber_without_replay_is_not_whole_until_the_cache_is_emptied() {
    let mut world = World::new(ALL, false, Bounds::default());
    world.lose();
    world.publish();
    world.deliver();
    assert_eq!(world.numbers(), [1]);
    assert!(!world.sequence.is_whole());
    let emptying = world.publisher.publish(EMPTIES);
    world.wire.push_back(emptying);
    world.deliver();
    assert!(world.sequence.is_whole());
}

#[test]
fn batches_that_come_twice_are_skipped() {
    for has_replay in [false, true] {
        let mut world = World::new(ALL, has_replay, Bounds::default());
        let sent: Vec<_> = (0..6).map(|_| world.publisher.publish(CHANGES)).collect();
        for number in [0, 0, 1, 2, 1, 2, 3, 0, 4, 5, 3, 5] {
            world.wire.push_back(sent[number]);
        }
        (0..12).for_each(|_| world.deliver());
        assert_eq!(world.numbers(), [0, 1, 2, 3, 4, 5]);
        assert_eq!(world.sequence.counts().duplicates, 6);
        assert!(world.recorder.clears.is_empty());
    }
}

#[test]
fn a_gap_is_healed_while_live_batches_are_held_back() {
    let mut world = World::new(ALL, true, Bounds::default());
    world.publish();
    (0..3).for_each(|_| world.lose());
    (0..3).for_each(|_| world.publish());
    (0..4).for_each(|_| world.deliver());
    assert_eq!(world.numbers(), [0]);
    assert!(world.sequence.is_healing());
    assert_eq!(world.sequence.held(), 3);
    assert_eq!(world.recorder.ask, Some(0), "it asks from the last it knows");
    world.settle();
    world.assert_true();
    let counts = world.sequence.counts();
    assert_eq!((counts.gaps, counts.missing, counts.lost), (1, 3, 0));
    assert!(world.recorder.clears.is_empty(), "nothing is forgotten for it");
    assert_eq!(world.recorder.ways[..2], [Way::Live, Way::Replayed]);
}

#[test]
fn newest_batches_that_were_lost_are_found_by_a_check() {
    let mut world = World::new(ALL, true, Bounds::default());
    world.publish();
    world.deliver();
    (0..3).for_each(|_| world.lose());
    world.check();
    assert!(!world.sequence.is_healing(), "nothing is known to be missing");
    world.settle();
    world.assert_true();
    assert_eq!(world.numbers(), [0, 1, 2, 3]);
}

#[test]
fn a_gap_that_the_history_no_longer_covers_clears_and_goes_on_with_what_there_is() {
    let mut world = World::new(4, true, Bounds::default());
    world.publish();
    world.deliver();
    (0..9).for_each(|_| world.lose());
    world.publish();
    world.settle();
    world.assert_true();
    assert_eq!(world.numbers(), [7, 8, 9, 10]);
    assert_eq!(world.recorder.clears, [Cause::Lost]);
    assert!(!world.sequence.is_whole());
}

#[test]
fn a_gap_without_a_replay_socket_clears_and_goes_on() {
    let mut world = World::new(ALL, false, Bounds::default());
    world.publish();
    world.deliver();
    world.lose();
    world.publish();
    world.deliver();
    assert_eq!(world.numbers(), [2]);
    assert_eq!(world.recorder.clears, [Cause::Lost]);
    assert!(!world.sequence.is_whole());
}

#[test]
fn a_history_that_ends_just_behind_the_last_batch_heals() {
    let mut world = World::new(3, true, Bounds::default());
    world.publish();
    world.deliver();
    (0..2).for_each(|_| world.lose());
    world.publish();
    world.settle();
    world.assert_true();
    assert!(world.recorder.clears.is_empty());
    assert!(world.sequence.is_whole());
}

#[test]
fn a_number_that_goes_backwards_is_a_new_process_and_is_read_from_its_beginning() {
    for has_replay in [false, true] {
        let mut world = World::new(ALL, has_replay, Bounds::default());
        (0..5).for_each(|_| world.publish());
        (0..5).for_each(|_| world.deliver());
        world.restart();
        world.publish();
        world.publish();
        world.deliver();
        assert_eq!(world.recorder.clears, [Cause::Restarted]);
        world.deliver();
        if has_replay {
            world.settle();
            world.assert_true();
        }
        assert_eq!(world.numbers(), [0, 1]);
        assert!(world.sequence.is_whole());
    }
}

#[test]
fn a_new_process_whose_numbers_fit_is_noticed_by_its_bytes() {
    // It has as many batches as the old one, and the live stream goes on as if
    // nothing had been.
    let mut world = World::new(ALL, true, Bounds::default());
    (0..3).for_each(|_| world.publish());
    (0..3).for_each(|_| world.deliver());
    world.sequence.sound();
    world.restart();
    (0..3).for_each(|_| world.lose());
    world.publish();
    world.deliver();
    assert_eq!(world.numbers(), [0, 1, 2, 3], "nobody can know yet");
    world.announce();
    world.settle();
    world.assert_true();
    assert_eq!(world.recorder.clears, [Cause::Restarted]);
}

#[test]
fn a_new_process_whose_numbers_fit_is_noticed_however_many_came_before_it_was_announced() {
    let mut world = World::new(ALL, true, Bounds::default());
    world.publish();
    world.deliver();
    world.sequence.sound();
    world.restart();
    world.lose();
    for _ in 0..300 {
        world.publish();
        world.deliver();
    }
    assert_eq!(world.numbers().len(), 301, "nobody can know yet");
    world.announce();
    world.settle();
    world.assert_true();
    assert_eq!(world.recorder.clears, [Cause::Restarted]);
}

#[test]
fn a_new_process_with_fewer_batches_is_noticed_by_a_check_alone() {
    for batches in 0..3 {
        let mut world = World::new(ALL, true, Bounds::default());
        world.announce();
        world.settle();
        (0..3).for_each(|_| world.publish());
        world.settle();
        world.restart();
        world.unannounced = false;
        (0..batches).for_each(|_| world.lose());
        world.settle();
        world.assert_true();
        assert_eq!(world.recorder.clears, [Cause::Restarted]);
    }
}

#[test]
fn an_answer_with_a_hole_is_asked_for_again_from_there() {
    let mut world = World::new(ALL, true, Bounds::default());
    world.publish();
    world.deliver();
    (0..6).for_each(|_| world.lose());
    world.publish();
    world.deliver();
    let start = world.recorder.ask.take().expect("it asks");
    let mut answer = world.publisher.answer(start);
    answer.remove(3);
    world.answer = Some(answer);
    while world.recorder.ask.is_none() {
        world.replay();
    }
    assert_eq!(world.numbers(), [0, 1, 2]);
    assert_eq!(world.recorder.ask, Some(2));
    world.settle();
    world.assert_true();
    assert!(world.recorder.clears.is_empty());
}

#[test]
fn a_history_of_which_each_answer_loses_the_most_is_read_to_its_end() {
    let mut world = World::new(ALL, true, Bounds::default());
    (0..100).for_each(|_| world.lose());
    world.announce();
    let mut rounds = 0;
    while let Some(start) = world.recorder.ask.take() {
        rounds += 1;
        assert!(rounds < 100, "each brings something");
        let mut answer = world.publisher.answer(start);
        if answer.len() > 6 {
            answer.drain(5..answer.len() - 1);
        }
        world.answer = Some(answer);
        while world.answer.is_some() {
            world.replay();
        }
    }
    world.assert_true();
    assert_eq!(world.numbers(), (0..100).collect::<Vec<_>>());
    assert!(world.sequence.is_whole() && world.recorder.clears.is_empty());
}

#[test]
fn a_number_that_the_publisher_left_out_is_given_up_after_some_tries() {
    let mut world = World::new(ALL, true, Bounds::default());
    world.publish();
    world.publisher.publish(CHANGES);
    world.publisher.buffer.pop_back();
    world.publish();
    world.publish();
    world.settle();
    assert_eq!(world.numbers(), [2, 3]);
    assert_eq!(world.recorder.clears, [Cause::Lost]);
    assert!(!world.sequence.is_whole());
    assert!(world.sequence.counts().asked < 10);
}

#[test]
fn held_batches_beyond_the_bound_are_dropped_and_asked_for_again() {
    let mut world = World::new(ALL, true, small());
    world.publish();
    world.lose();
    (0..20).for_each(|_| world.publish());
    (0..21).for_each(|_| world.deliver());
    assert_eq!(world.sequence.held(), 3);
    assert_eq!(world.sequence.counts().overflows, 17);
    world.settle();
    world.assert_true();
    assert!(world.recorder.clears.is_empty());
    let narrow = Bounds { held_bytes: 40, ..Bounds::default() };
    let mut world = World::new(ALL, true, narrow);
    world.publish();
    world.lose();
    (0..20).for_each(|_| world.publish());
    (0..21).for_each(|_| world.deliver());
    assert_eq!(world.sequence.held(), 2);
    world.settle();
    world.assert_true();
}

#[test]
fn a_replay_socket_that_does_not_answer_is_given_up_and_its_history_read_later() {
    let mut world = World::new(ALL, true, Bounds::default());
    world.publish();
    world.deliver();
    world.lose();
    world.publish();
    world.deliver();
    (0..2).for_each(|_| world.fail());
    assert!(world.sequence.is_healing());
    world.fail();
    assert!(!world.sequence.is_asking());
    assert_eq!(world.numbers(), [2], "live batches alone");
    assert!(world.sequence.is_replay_down());
    assert!(!world.sequence.is_whole());
    world.settle();
    world.assert_true();
    assert_eq!(world.recorder.clears, [Cause::Lost, Cause::Reread]);
    assert!(world.sequence.is_whole());
}

#[test]
fn a_publisher_that_keeps_no_history_is_not_taken_for_a_new_process_over_and_over() {
    let mut world = World::new(0, true, Bounds::default());
    (0..3).for_each(|_| world.publish());
    world.settle();
    let clears = world.recorder.clears.len();
    for _ in 0..5 {
        world.publish();
        world.settle();
        world.check();
        world.settle();
    }
    assert!(world.recorder.clears.len() <= clears + 1, "{:?}", world.recorder.clears);
    assert_eq!(world.sequence.last(), Some(7));
}

#[test]
fn a_forgotten_rank_is_read_anew() {
    let mut world = World::new(ALL, true, Bounds::default());
    (0..3).for_each(|_| world.publish());
    world.settle();
    world.sequence.forget();
    world.recorder.batches.clear();
    world.lose();
    world.announce();
    world.settle();
    world.assert_true();
    assert_eq!(world.numbers(), [0, 1, 2, 3]);
}

#[test]
fn what_a_fault_on_this_side_has_cost_is_read_again_though_batches_keep_coming() {
    let mut world = World::new(ALL, true, Bounds::default());
    world.recorder.faults = Some((5, 1));
    (0..7).for_each(|_| world.publish());
    (0..7).for_each(|_| world.deliver());
    assert_eq!(world.numbers(), [6], "what came since");
    assert!(!world.sequence.is_whole() && world.sequence.is_reread_due());
    world.settle();
    world.assert_true();
    assert!(world.sequence.is_whole() && !world.sequence.is_reread_due());
    assert_eq!(world.numbers(), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(world.recorder.clears, [Cause::Reread]);
}

#[test]
fn a_batch_that_always_meets_a_fault_is_not_asked_for_over_and_over() {
    for has_replay in [true, false] {
        let mut world = World::new(ALL, has_replay, Bounds::default());
        world.recorder.faults = Some((5, usize::MAX));
        (0..9).for_each(|_| world.publish());
        world.settle();
        assert_eq!(world.numbers(), [6, 7, 8]);
        assert!(!world.sequence.is_whole() && !world.sequence.is_reread_due());
        assert_eq!(world.sequence.last(), Some(8));
        assert!(world.sequence.counts().asked < 10);
        world.publish_kind(EMPTIES);
        world.settle();
        assert!(world.sequence.is_whole());
    }
}

#[test]
fn hostile_numbers_cost_a_resync_and_no_more() {
    let mut world = World::new(ALL, true, Bounds::default());
    (0..3).for_each(|_| world.publish());
    world.settle();
    for number in [u64::MAX, u64::MAX - 1, 1 << 63, 1, u64::MAX] {
        world.wire.push_back((number, batch(99, number, CHANGES)));
        world.settle();
    }
    world.publish();
    world.settle();
    world.assert_true();
    assert!(world.sequence.is_whole());
}

/// How many things may happen.
const STEPS: usize = 12;
/// Those of them that change what happens next.
const FEW_STEPS: usize = 9;

fn step(world: &mut World, step: usize) {
    match step {
        0 => {
            world.publish();
            world.deliver();
        }
        9 => world.publish_kind(EMPTIES),
        10 => world.publish_kind(UNREADABLE),
        11 => {
            // The answer loses a batch on its way.
            if let Some(start) = world.recorder.ask.take() {
                world.answer = Some(world.publisher.answer(start));
            }
            if let Some(answer) = &mut world.answer {
                answer.pop_front();
            }
        }
        1 => world.publish(),
        2 => world.lose(),
        3 => world.restart(),
        4 => {
            if world.unannounced {
                world.announce();
            }
        }
        5 => world.replay(),
        6 => world.fail(),
        7 => world.check(),
        _ => {
            // It comes twice.
            if let Some(&sent) = world.publisher.buffer.back() {
                world.wire.push_back(sent);
            }
        }
    }
}

/// Takes the steps, and then holds what is known to the truth. A connection
/// that was lost means that the old process's batches no longer come once it
/// is announced.
fn run(steps: &[usize], keeps: usize) {
    let mut world = World::new(keeps, true, small());
    for &next in steps {
        if next == 4 && world.unannounced {
            world.drop_old();
        }
        step(&mut world, next);
        if !world.unannounced {
            world.sequence.sound();
        }
    }
    world.drop_old();
    world.settle();
    world.assert_true();
}

/// Runs them; if they fail, fewer that fail too are shown.
fn run_or_cut(mut steps: Vec<usize>, keeps: usize) {
    let fails = |steps: &[usize]| catch_unwind(AssertUnwindSafe(|| run(steps, keeps))).is_err();
    if !fails(&steps) {
        return;
    }
    let mut at = 0;
    while at < steps.len() {
        let without = [&steps[..at], &steps[at + 1..]].concat();
        if fails(&without) {
            steps = without;
            at = 0;
        } else {
            at += 1;
        }
    }
    println!("steps {steps:?}, a publisher that keeps {keeps}");
    run(&steps, keeps);
    unreachable!("it has failed before");
}

/// All of them take half a minute at seven steps, and nine times as long with
/// each more.
#[test]
fn whatever_happens_in_a_few_steps_it_settles_on_the_truth() {
    let given = std::env::var("KVRADIX_TEST_STEPS").ok();
    let length = given.map_or(6, |given| given.parse().expect("KVRADIX_TEST_STEPS is a number"));
    let mut steps = vec![0; length];
    loop {
        for keeps in [2, ALL] {
            run_or_cut(steps.clone(), keeps);
        }
        let Some(place) = steps.iter().position(|&step| step + 1 < FEW_STEPS) else { break };
        steps[place] += 1;
        steps[..place].fill(0);
    }
}

#[test]
fn long_random_histories_settle_on_the_truth() {
    for seed in 0..3_000 {
        let mut random = SmallRng::seed_from_u64(seed);
        let keeps = [1, 3, 20, 400, ALL][random.random_range(0..5)];
        let weights: [u32; STEPS] = std::array::from_fn(|_| random.random_range(1..20));
        let drawn = WeightedIndex::new(weights).expect("weights above zero");
        let steps = random.random_range(10..600);
        run_or_cut((0..steps).map(|_| drawn.sample(&mut random)).collect(), keeps);
    }
}
