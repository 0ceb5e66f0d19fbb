//! One publisher, followed: its sockets, its numbers, its rank's blocks.
//!
//! The numbers' logic is [`Sequence`]'s; here are the clock and the sockets
//! that it does without.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tracing::{debug, error, info, warn};
use zmq::Context;

use super::follower::Follow;
use super::options::Options;
use super::spec::{Publisher, WorkerSpec};
use super::status::{State, Totals};
use super::wire::{History, Link, Live, Payload, Replayed, Subscription};
use crate::intake::sequence::{Applied, Cause, Effects, Sequence, Way};
use crate::intake::{Decoder, Drops, Origin, Rank};

/// Messages taken from one socket before the next has its turn.
const TURN: usize = 256;

/// How long a socket that could not be opened is left alone.
const REOPEN_AFTER: Duration = Duration::from_secs(1);

/// Questions that new processes make for are this far apart. Two publishers at
/// one endpoint are a new process with each batch, and must not have a history
/// read for each.
const RESTARTS_APART: Duration = Duration::from_secs(1);

/// What others may see of a source.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) state: State,
    pub(super) last_number: Option<u64>,
    pub(super) held: usize,
    pub(super) heard: Option<Instant>,
    pub(super) delay: Option<f64>,
    pub(super) error: Option<String>,
    pub(super) totals: Totals,
    pub(super) drops: Drops,
}

impl Shown {
    pub(super) fn new() -> Self {
        Self {
            state: State::Waiting,
            last_number: None,
            held: 0,
            heard: None,
            delay: None,
            error: None,
            totals: Totals::default(),
            drops: Drops::new(),
        }
    }
}

/// One publisher.
pub(super) struct Source {
    spec: Arc<WorkerSpec>,
    publisher: Publisher,
    context: Context,
    /// A name for the monitor that no other source of this process has.
    monitor_name: String,
    subscription: Option<Subscription>,
    /// When to try again to open it.
    reopen: Option<Instant>,
    history: Option<History>,
    /// When the answer under way counts as none.
    answer_due: Option<Instant>,
    /// Before this no question is put; the one that waits keeps.
    question_due: Option<Instant>,
    /// New processes noticed when a question was last put or kept for one.
    restarts: u64,
    /// When the next question that a new process makes for may be put.
    restart_due: Instant,
    /// The highest number in the answer under way. They grow: one that repeats
    /// itself would never end.
    answered: Option<u64>,
    sequence: Sequence<Payload>,
    /// Connections that stand; a bound socket may have several.
    links: usize,
    /// It was connected once.
    met: bool,
    /// The replay socket has answered once, so that its silence says
    /// something.
    answers: bool,
    /// The last sign of life.
    heard: Option<Instant>,
    /// When it is next asked for one.
    check_due: Instant,
    /// When it is next asked although it is not silent, because its history is
    /// to be read again.
    reread_due: Option<Instant>,
    dead: bool,
    forgotten: bool,
    /// What is being told to the rank.
    work: Work,
    /// Something is not shown yet.
    changed: bool,
    shown: Arc<Mutex<Shown>>,
}

/// What a batch needs on its way into the index.
struct Work {
    rank: Rank,
    drops: Drops,
    totals: Totals,
    delay: Option<f64>,
    /// The question to be put.
    ask: Option<u64>,
}

/// A thread's decoder, lent together with the rest.
struct Hands<'a> {
    work: &'a mut Work,
    decoder: &'a mut Decoder,
}

impl Effects<Payload> for Hands<'_> {
    fn apply(&mut self, _: u64, payload: Payload, way: Way) -> Applied {
        let Work { rank, drops, totals, delay, .. } = &mut *self.work;
        let bytes = payload.as_ref();
        totals.bytes += bytes.len() as u64;
        let Ok(batch) = self.decoder.decode(bytes, drops) else { return Applied::Unreadable };
        let origin = match way {
            Way::Live => Origin::Live,
            Way::Replayed => Origin::Replayed,
        };
        // Not sound any more, but cleared.
        let applied = catch_unwind(AssertUnwindSafe(|| rank.apply(&batch, origin, drops)));
        let Ok(done) = applied else {
            _ = catch_unwind(AssertUnwindSafe(|| rank.clear()));
            return lost(rank);
        };
        totals.stored += done.stored;
        totals.removed += done.removed;
        totals.cleared += done.cleared;
        if way == Way::Live {
            *delay = batch.ts.and_then(since);
        }
        match (batch.whole, done.cleared) {
            _ if done.lost => lost(rank),
            (false, _) => Applied::Unreadable,
            (true, 0) => Applied::Changes,
            (true, _) => Applied::Emptied,
        }
    }

    fn clear(&mut self, cause: Cause) {
        let worker = self.work.rank.id();
        match cause {
            Cause::Restarted => warn!(%worker, "a new process of the engine: begun anew"),
            Cause::Lost => warn!(%worker, "batches are lost for good: begun anew"),
            Cause::Reread => info!(%worker, "the history is there again: read anew"),
        }
        self.work.rank.clear();
    }

    fn ask(&mut self, start: u64) {
        self.work.ask = Some(start);
    }
}

/// A fault of ours must not end the thread, which has other publishers too.
fn lost(rank: &Rank) -> Applied {
    error!(worker = %rank.id(), "a fault of this program: begun anew");
    Applied::Lost
}

/// Seconds since a moment of the engine's clock.
fn since(ts: f64) -> Option<f64> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
    let delay = now.as_secs_f64() - ts;
    // Clocks that differ by more say nothing about the way.
    (delay.abs() < 86_400.0).then_some(delay.max(0.0))
}

impl Source {
    pub(super) fn new(
        follow: Follow,
        context: Context,
        monitor_name: String,
        options: &Options,
        now: Instant,
    ) -> Self {
        let Follow { spec, publisher, rank, shown } = follow;
        let mut source = Self {
            sequence: Sequence::new(publisher.replay.is_some(), options.held),
            spec,
            publisher,
            context,
            monitor_name,
            subscription: None,
            reopen: None,
            history: None,
            answer_due: None,
            question_due: None,
            restarts: 0,
            restart_due: now,
            answered: None,
            links: 0,
            met: false,
            answers: false,
            heard: None,
            check_due: now,
            reread_due: None,
            dead: false,
            forgotten: false,
            work: Work {
                rank,
                drops: Drops::new(),
                totals: Totals::default(),
                delay: None,
                ask: None,
            },
            changed: true,
            shown,
        };
        source.open(options, now);
        source
    }

    pub(super) fn worker(&self) -> u64 {
        self.spec.id
    }

    /// What there may be to read.
    pub(super) fn sockets(&self) -> [Option<&zmq::Socket>; 3] {
        let subscription = self.subscription.as_ref();
        let history = self.history.as_ref().filter(|_| self.answer_due.is_some());
        [
            subscription.map(|subscription| &subscription.monitor),
            subscription.filter(|_| !self.is_full()).map(|subscription| &subscription.socket),
            history.map(|history| &history.socket),
        ]
    }

    /// Reads what the sockets have, each for a turn. `readable` are those of
    /// [`sockets`](Self::sockets).
    pub(super) fn read(
        &mut self,
        readable: [bool; 3],
        decoder: &mut Decoder,
        options: &Options,
        now: Instant,
    ) {
        let [link, live, history] = readable;
        if link {
            self.read_links(decoder, options, now);
        } else {
            // Looked for when the sockets were polled: none has come before
            // what was read the last time.
            self.sequence.sound();
        }
        if live {
            self.read_live(decoder, options, now);
        }
        if history {
            self.read_history(decoder, options, now);
        }
    }

    fn read_links(&mut self, decoder: &mut Decoder, options: &Options, now: Instant) {
        while let Some(link) = self.subscription.as_mut().and_then(Subscription::link) {
            self.changed = true;
            match link {
                Link::Up => {
                    self.links += 1;
                    self.met = true;
                    self.work.totals.connects += 1;
                    self.alive(options, now);
                    info!(
                        worker = self.spec.id,
                        rank = self.publisher.rank,
                        endpoint = self.publisher.events,
                        "connected"
                    );
                    let mut hands = Hands { work: &mut self.work, decoder };
                    self.sequence.connected(&mut hands);
                    self.put_question(options, now);
                }
                Link::Down => {
                    self.links = self.links.saturating_sub(1);
                    warn!(
                        worker = self.spec.id,
                        rank = self.publisher.rank,
                        endpoint = self.publisher.events,
                        "disconnected"
                    );
                }
            }
        }
    }

    fn read_live(&mut self, decoder: &mut Decoder, options: &Options, now: Instant) {
        for _ in 0..TURN {
            let Some(subscription) = self.subscription.as_ref().filter(|_| !self.is_full()) else {
                return;
            };
            match subscription.next() {
                Some(Live::Batch(number, payload)) => {
                    self.alive(options, now);
                    let gaps = self.sequence.counts().gaps;
                    let mut hands = Hands { work: &mut self.work, decoder };
                    self.sequence.live(number, payload, &mut hands);
                    if self.sequence.counts().gaps > gaps {
                        debug!(worker = %self.work.rank.id(), number, "a gap");
                    }
                    self.put_question(options, now);
                }
                Some(Live::Malformed) => self.malformed(),
                None => return,
            }
        }
    }

    fn read_history(&mut self, decoder: &mut Decoder, options: &Options, now: Instant) {
        for _ in 0..TURN {
            if self.answer_due.is_none() {
                return;
            }
            let Some(message) = self.history.as_ref().and_then(History::next) else { return };
            self.answers = true;
            self.alive(options, now);
            let mut hands = Hands { work: &mut self.work, decoder };
            match message {
                Replayed::Batch(number, payload) => {
                    self.sequence.replayed(number, payload, &mut hands);
                    let patience = match self.sequence.has_gained() {
                        true => options.replay_pause(),
                        false => options.replay_timeout,
                    };
                    if self.answered.is_none_or(|before| number > before) {
                        self.answered = Some(number);
                        self.answer_due = Some(now + patience);
                    }
                }
                Replayed::End => {
                    self.answer_due = None;
                    self.sequence.replay_ended(&mut hands);
                }
                Replayed::Malformed => self.malformed(),
            }
            self.put_question(options, now);
        }
    }

    /// For so long nobody has looked at its sockets.
    pub(super) fn excuse(&mut self, stalled: Duration) {
        for time in [&mut self.heard, &mut self.answer_due].into_iter().flatten() {
            *time += stalled;
        }
    }

    /// What the clock asks for.
    pub(super) fn tick(&mut self, decoder: &mut Decoder, options: &Options, now: Instant) {
        if self.reopen.is_some_and(|at| at <= now) {
            self.open(options, now);
        }
        if self.question_due.is_some_and(|at| at <= now) {
            self.question_due = None;
            self.put_question(options, now);
        }
        if self.answer_due.is_some_and(|at| at <= now) {
            debug!(
                worker = self.spec.id,
                rank = self.publisher.rank,
                "no answer from the replay socket"
            );
            self.answer_due = None;
            // What is still on its way is no answer to the next question.
            self.history = None;
            let mut hands = Hands { work: &mut self.work, decoder };
            self.sequence.replay_failed(&mut hands);
            self.put_question(options, now);
        }
        if !self.sequence.is_reread_due() {
            self.reread_due = None;
        } else if self.reread_due.is_none() {
            // A question that nobody answers holds live batches back.
            let down = self.sequence.is_replay_down();
            let wait = if down { options.replay_timeout * 10 } else { options.check_every() };
            self.reread_due = Some(now + wait);
        }
        if self.check_due <= now || self.reread_due.is_some_and(|due| due <= now) {
            self.check_due = now + options.check_every();
            self.reread_due = None;
            if self.met && self.links > 0 {
                let mut hands = Hands { work: &mut self.work, decoder };
                self.sequence.check(&mut hands);
                self.put_question(options, now);
                if self.publisher.replay.is_none() || !self.answers {
                    // Heartbeats keep the connection: it would not stand.
                    self.signed(now);
                }
            }
        }
        self.judge(options, now);
        self.show();
    }

    /// When [`tick`](Self::tick) has something to do.
    pub(super) fn due(&self, options: &Options) -> Instant {
        let mut due = self.check_due;
        let silent = self.heard.map(|heard| match (self.dead, self.forgotten) {
            (false, _) => heard + options.dead_after,
            (true, false) => heard + options.forget_after.max(options.dead_after),
            (true, true) => due,
        });
        let others = [self.reopen, self.reread_due, self.question_due, self.answer_due, silent];
        for other in others.into_iter().flatten() {
            due = due.min(other);
        }
        due
    }

    fn open(&mut self, options: &Options, now: Instant) {
        let opened = Subscription::open(
            &self.context,
            &self.publisher,
            self.spec.attach,
            &self.spec.topic,
            &self.monitor_name,
            options,
        );
        self.changed = true;
        match opened {
            Ok(subscription) => {
                self.subscription = Some(subscription);
                self.reopen = None;
                self.shown.lock().error = None;
            }
            Err(error) => {
                let mut shown = self.shown.lock();
                if shown.error.is_none() {
                    let endpoint = &self.publisher.events;
                    warn!(worker = %self.work.rank.id(), endpoint, %error, "cannot be followed");
                }
                shown.error = Some(error.to_string());
                self.reopen = Some(now + REOPEN_AFTER);
            }
        }
    }

    fn put_question(&mut self, options: &Options, now: Instant) {
        self.changed = true;
        if self.work.ask.is_some() && self.is_too_soon(now) {
            // The answer under way is void.
            self.history = None;
            self.answer_due = None;
            return;
        }
        let Some(start) = self.work.ask.take() else { return };
        if self.answer_due.take().is_some() {
            // The answer under way is void.
            self.history = None;
        }
        self.answered = None;
        if self.history.take_if(|history| history.next().is_some()).is_some() {
            // It came behind the end of the last answer, and is none to this
            // question; nor is what may follow.
            self.malformed();
        }
        let Some(endpoint) = &self.publisher.replay else { return };
        if self.history.is_none() {
            match History::open(&self.context, endpoint, options) {
                Ok(history) => self.history = Some(history),
                Err(error) => warn!(endpoint, %error, "no replay socket"),
            }
        }
        let asked = self.history.as_ref().map(|history| history.ask(start));
        if !matches!(asked, Some(Ok(()))) {
            self.history = None;
        }
        // If it could not be put, it fails when its time is up.
        self.answer_due = Some(now + options.replay_timeout);
    }

    /// Whether a question has to wait, as the last new process was noticed only
    /// just now.
    fn is_too_soon(&mut self, now: Instant) -> bool {
        let restarts = self.sequence.counts().restarts;
        if restarts > self.restarts {
            self.restarts = restarts;
            self.question_due = Some(self.restart_due);
            self.restart_due = self.restart_due.max(now) + RESTARTS_APART;
        }
        self.question_due = self.question_due.filter(|&due| due > now);
        self.question_due.is_some()
    }

    fn alive(&mut self, options: &Options, now: Instant) {
        self.check_due = now + options.check_every();
        self.signed(now);
    }

    fn signed(&mut self, now: Instant) {
        self.heard = Some(now);
        self.changed = true;
        if self.dead {
            self.dead = false;
            self.forgotten = false;
            info!(worker = %self.work.rank.id(), "alive again");
        }
    }

    /// Whether it counts as dead, and what that means for its blocks.
    fn judge(&mut self, options: &Options, now: Instant) {
        let Some(heard) = self.heard else { return };
        let silent = now.saturating_duration_since(heard);
        if !self.dead && silent >= options.dead_after {
            self.dead = true;
            self.work.totals.deaths += 1;
            self.changed = true;
            warn!(
                worker = self.spec.id,
                rank = self.publisher.rank,
                "no sign of life: it counts as dead"
            );
        }
        if self.dead && !self.forgotten && silent >= options.forget_after {
            self.forgotten = true;
            self.work.totals.forgotten += 1;
            self.changed = true;
            warn!(
                worker = self.spec.id,
                rank = self.publisher.rank,
                "dead for long: its blocks are forgotten"
            );
            self.sequence.forget();
            self.work.ask = None;
            self.question_due = None;
            self.answer_due = None;
            self.history = None;
            self.work.rank.clear();
        }
    }

    /// Whether no more live batches should be taken for now.
    fn is_full(&self) -> bool {
        self.sequence.is_asking() && self.sequence.is_full()
    }

    fn malformed(&mut self) {
        self.work.totals.malformed += 1;
        self.changed = true;
        debug!(worker = %self.work.rank.id(), "a message that is no batch");
    }

    fn state(&self) -> State {
        if self.dead {
            State::Dead
        } else if !self.met {
            State::Waiting
        } else if self.sequence.is_healing() {
            State::Healing
        } else if self.sequence.is_whole() {
            State::Live
        } else {
            State::Degraded
        }
    }

    fn show(&mut self) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let mut totals = self.work.totals;
        totals.take(self.sequence.counts());
        let mut shown = self.shown.lock();
        shown.state = self.state();
        shown.last_number = self.sequence.last();
        shown.held = self.sequence.held();
        shown.heard = self.heard;
        shown.delay = self.work.delay;
        shown.totals = totals;
        shown.drops.clone_from(&self.work.drops);
    }
}
