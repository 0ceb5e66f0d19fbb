//! What to do with a batch, judged by its number alone.
//!
//! A publisher numbers its batches 0, 1, 2, ... for as long as its process
//! lives. The live stream may lose batches, repeat them, or go on as another
//! process's; a replay socket, where there is one, gives again what the
//! publisher still has. [`Sequence`] makes one stream of the two: each batch of
//! a process once, in order, from a moment on that it knows.
//!
//! It is a state machine without sockets and without a clock. Whoever owns the
//! sockets tells it what happened, and lends it [`Effects`] to act with. It has
//! two phases:
//!
//! - *following*: the next number is applied, a known batch is skipped,
//!   anything else asks the replay socket;
//! - *asking*: replayed batches are applied, live ones held back (within
//!   bounds) until the end of the answer, then followed one after the other.
//!
//! **Every question begins at the last batch applied, not behind it.** So the
//! answer tells more than the batches: if it does not have that batch, or has
//! another under its number (a fingerprint of the bytes tells), the publisher
//! is a new process, even where its numbers happen to fit. A question asked
//! while nothing is missing is a sign of life, and shows whether the newest
//! batches were lost with none behind them to show the gap.
//!
//! **What cannot be healed** (the history no longer reaches the gap, or there
//! is none) clears the rank: what is known would be a mixture. The rank is
//! then [not whole](Sequence::is_whole): it lacks what the engine stored
//! before, and claims nothing that is not there. A batch that came but cannot
//! be read clears nothing, since anybody's garbage could then wipe a rank; it
//! leaves it not whole.

use std::collections::VecDeque;
use std::mem;

use xxhash_rust::xxh3::xxh3_64;

/// Batches whose fingerprints are kept, to tell a batch that comes twice from
/// another process's with the same number.
const REMEMBERED: usize = 256;

/// How much a [`Sequence`] may hold back, and how often it asks in vain.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Live batches held back while a replay is under way. Beyond it they are
    /// dropped, and asked for again.
    pub held_batches: usize,
    /// Their bytes.
    pub held_bytes: usize,
    /// Questions in a row that bring nothing before what is missing is given
    /// up.
    pub tries: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { held_batches: 8_192, held_bytes: 64 << 20, tries: 3 }
    }
}

/// What a [`Sequence`] does to the world.
pub trait Effects<P> {
    /// Brings the index up to date with this batch.
    fn apply(&mut self, number: u64, payload: P, way: Way) -> Applied;

    /// Forgets everything about the rank.
    fn clear(&mut self, cause: Cause);

    /// Asks the replay socket for all batches from `start` on. What an earlier
    /// question has still to bring must not be handed in any more.
    fn ask(&mut self, start: u64);
}

/// How a batch came.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Way {
    /// By the live stream.
    Live,
    /// By the replay socket.
    Replayed,
}

/// What a batch turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Applied {
    /// Some changes to what was known.
    Changes,
    /// Within it the engine forgot all that came before: from here on
    /// everything is known.
    Emptied,
    /// Some of it, or all, could not be read: nobody knows what is missing.
    Unreadable,
    /// A fault on this side has cost what was known: that begins anew with the
    /// next batch, and the history is to be read again.
    Lost,
}

/// Why a rank was cleared.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Cause {
    /// The publisher is a new process.
    Restarted,
    /// Batches are missing, and nobody has them any more.
    Lost,
    /// The history reaches farther back than what is known: it is read anew.
    Reread,
}

/// How often what happened. Only grows.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Counts {
    /// Batches applied from the live stream.
    pub applied: u64,
    /// Batches applied from replays.
    pub replayed: u64,
    /// Batches that were known already.
    pub duplicates: u64,
    /// Gaps seen in the live stream.
    pub gaps: u64,
    /// Batches missing in those gaps.
    pub missing: u64,
    /// Gaps that could not be healed.
    pub lost: u64,
    /// New processes noticed.
    pub restarts: u64,
    /// Questions to the replay socket.
    pub asked: u64,
    /// Questions that were not answered to the end in time.
    pub unanswered: u64,
    /// Live batches dropped because too many were held back.
    pub overflows: u64,
}

/// A batch, known again by its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mark {
    number: u64,
    print: u64,
}

impl Mark {
    fn of(number: u64, payload: &[u8]) -> Self {
        Self { number, print: xxh3_64(payload) }
    }
}

/// Why a question was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// Nothing is known to be missing: is the publisher there, and the same?
    Check,
    /// The connection was lost meanwhile: the publisher must prove that it is
    /// the same.
    Prove,
    /// Batches are missing.
    Heal,
    /// Does the history reach behind what is known?
    Reread,
}

/// How far the answer to a question has come.
#[derive(Clone, Copy, Debug)]
struct Question {
    purpose: Purpose,
    /// A batch has come.
    begun: bool,
    /// A batch has been applied.
    useful: bool,
    /// The answer has a hole: what comes behind it is of no use.
    torn: bool,
}

/// The stream of one publisher. See the module's description.
///
/// `P` holds the bytes of a batch. Every call is O(1), but for those that end
/// a question: O(batches held back).
#[derive(Debug)]
pub struct Sequence<P> {
    bounds: Bounds,
    /// There is a replay socket.
    has_replay: bool,
    /// The question under way; none while following.
    question: Option<Question>,
    /// The last batch applied; none before the first, or since a clear.
    last: Option<Mark>,
    /// The first batch applied since the last clear.
    first: u64,
    /// A connection came about, and the publisher has not proved to be the
    /// same yet.
    unproven: bool,
    /// The last batch applied of which it is sure that it came before whatever
    /// connection is reported next.
    sound: Option<Mark>,
    /// Nothing that the engine holds is unknown.
    whole: bool,
    /// The highest number that the live stream of this process has shown.
    live: Option<u64>,
    /// Fingerprints of the last batches, by number modulo their count.
    recent: Vec<Option<Mark>>,
    held: VecDeque<(u64, P)>,
    held_bytes: usize,
    /// A live batch was dropped because too many were held.
    overflowed: bool,
    /// Questions in a row that brought nothing new.
    vain: u32,
    /// An answer without batches means something: the publisher keeps some.
    has_history: bool,
    /// The replay socket did not answer last time.
    down: bool,
    /// Batches were given up because it did not answer, or lost to a fault on
    /// this side: once it answers, they may be had.
    reread_due: bool,
    counts: Counts,
}

impl<P: AsRef<[u8]>> Sequence<P> {
    /// A publisher of which nothing is known yet, with or without a replay
    /// socket.
    pub fn new(has_replay: bool, bounds: Bounds) -> Self {
        Self {
            bounds,
            has_replay,
            question: None,
            last: None,
            first: 0,
            unproven: false,
            sound: None,
            whole: false,
            live: None,
            recent: vec![None; REMEMBERED],
            held: VecDeque::new(),
            held_bytes: 0,
            overflowed: false,
            vain: 0,
            has_history: true,
            down: false,
            reread_due: false,
            counts: Counts::default(),
        }
    }

    /// Whether everything the engine holds is known, as far as the numbers
    /// tell. It is not after a late start or a gap that could not be healed,
    /// until the engine empties its cache or begins anew.
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Whether a question is under way and live batches are held back.
    pub fn is_asking(&self) -> bool {
        self.question.is_some()
    }

    /// Whether batches are missing, or may be, and are being asked for.
    pub fn is_healing(&self) -> bool {
        self.question.is_some_and(|question| question.purpose != Purpose::Check)
    }

    /// Whether the answer under way has brought something new.
    pub fn has_gained(&self) -> bool {
        self.question.is_some_and(|question| question.useful)
    }

    /// Whether the replay socket did not answer when last asked.
    pub fn is_replay_down(&self) -> bool {
        self.down
    }

    /// Whether the history is to be read again: the next [`check`](Self::check)
    /// does, if it is answered. To be called for now and then even while live
    /// batches come.
    pub fn is_reread_due(&self) -> bool {
        self.reread_due && !self.whole
    }

    /// The number of the last batch applied since the last clear.
    pub fn last(&self) -> Option<u64> {
        self.last.map(|last| last.number)
    }

    /// Live batches held back.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether no more live batches can be held back: better leave them in the
    /// socket for now.
    pub fn is_full(&self) -> bool {
        self.held.len() >= self.bounds.held_batches || self.held_bytes >= self.bounds.held_bytes
    }

    /// How often what happened.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// No connection has come about that was not reported: what was applied so
    /// far is the known publisher's. To be called between looking for new
    /// connections and taking live batches.
    pub fn sound(&mut self) {
        if !self.unproven {
            self.sound = self.last;
        }
    }

    /// The connection to the publisher stands, for the first time or again.
    /// What was applied since the last [`sound`](Self::sound) may be another
    /// process's, as may be what comes from now on: the publisher must prove
    /// that it is the same.
    pub fn connected(&mut self, effects: &mut impl Effects<P>) {
        if self.has_replay {
            // Held batches may be another process's. Those of this one come
            // with the answer.
            self.drop_held();
            self.down = false;
            self.has_history = true;
            self.vain = 0;
            self.unproven = true;
            self.ask(Purpose::Prove, effects);
        }
    }

    /// Nothing has come for a while: asks for a sign of life. Does nothing
    /// while a question is under way, or without a replay socket.
    pub fn check(&mut self, effects: &mut impl Effects<P>) {
        if self.has_replay && !self.is_asking() {
            self.ask(Purpose::Check, effects);
        }
    }

    /// What was known of the rank was cleared from outside. It is read anew
    /// once the connection [stands](Self::connected) again.
    pub fn forget(&mut self) {
        self.unlearn();
        self.question = None;
        self.drop_held();
    }

    /// A batch of the live stream.
    pub fn live(&mut self, number: u64, payload: P, effects: &mut impl Effects<P>) {
        if self.is_asking() {
            self.hold(number, payload);
        } else {
            self.follow(number, payload, effects);
        }
    }

    /// A batch of the answer under way. Without one it is left alone.
    pub fn replayed(&mut self, number: u64, payload: P, effects: &mut impl Effects<P>) {
        let Some(question) = &mut self.question else { return };
        self.has_history = true;
        self.down = false;
        if question.torn {
            return;
        }
        if question.begun {
            return self.replayed_next(number, payload, effects);
        }
        question.begun = true;
        let purpose = question.purpose;
        self.replayed_first(purpose, number, payload, effects);
    }

    /// The end of the answer under way.
    pub fn replay_ended(&mut self, effects: &mut impl Effects<P>) {
        let Some(question) = self.question else { return };
        self.down = false;
        if !question.begun {
            if self.last.is_some() && self.has_history {
                // It does not have the batch we know: its numbers are lower.
                return self.restart(effects);
            }
            if self.last.is_none() {
                // It has published nothing yet, or keeps nothing.
                let published = self.held.front().is_some_and(|&(number, _)| number > 0);
                self.has_history = !published;
                self.whole = !published;
            }
        }
        if question.torn {
            return self.ask_again(question, effects);
        }
        if question.purpose == Purpose::Prove {
            self.unproven = false;
        }
        if mem::take(&mut self.reread_due) && !self.whole {
            return self.ask(Purpose::Reread, effects);
        }
        if question.purpose == Purpose::Heal && !question.useful {
            self.vain += 1;
        } else {
            self.vain = 0;
        }
        if self.release(effects) {
            // The newest were dropped, and nothing may come behind them.
            self.check(effects);
        }
    }

    /// The question under way was not answered in time.
    pub fn replay_failed(&mut self, effects: &mut impl Effects<P>) {
        let Some(question) = self.question else { return };
        self.counts.unanswered += 1;
        if self.vain + 1 < self.tries() {
            return self.ask_again(question, effects);
        }
        self.down = true;
        self.vain = self.bounds.tries;
        self.release(effects);
        if !self.is_asking() {
            self.vain = 0;
        }
    }

    /// The first batch of an answer.
    fn replayed_first(
        &mut self,
        purpose: Purpose,
        number: u64,
        payload: P,
        effects: &mut impl Effects<P>,
    ) {
        let Some(last) = self.last else {
            // All there is: the stream begins here.
            self.whole = number == 0;
            return self.apply(number, payload, Way::Replayed, effects);
        };
        if purpose == Purpose::Reread {
            if number >= self.first {
                return self.replayed_next(number, payload, effects);
            }
            self.clear(Cause::Reread, effects);
            self.whole = number == 0;
            return self.apply(number, payload, Way::Replayed, effects);
        }
        let asked = self.start(purpose);
        if number <= asked {
            // What we know comes first, if it is the same.
            self.replayed_next(number, payload, effects);
        } else if follows(last, number) && purpose != Purpose::Prove {
            self.apply(number, payload, Way::Replayed, effects);
        } else {
            // The history does not reach what we know. It is all there is.
            self.lose(effects);
            self.apply(number, payload, Way::Replayed, effects);
        }
    }

    /// Another batch of an answer.
    fn replayed_next(&mut self, number: u64, payload: P, effects: &mut impl Effects<P>) {
        match self.last {
            Some(last) if follows(last, number) => {
                self.apply(number, payload, Way::Replayed, effects);
            }
            Some(last) if number > last.number => {
                // The answer itself lost something on its way, or the
                // publisher never had it.
                if self.vain + 1 < self.tries() {
                    self.question =
                        self.question.map(|question| Question { torn: true, ..question });
                } else {
                    self.lose(effects);
                    self.apply(number, payload, Way::Replayed, effects);
                }
            }
            _ => {
                let mark = Mark::of(number, payload.as_ref());
                if self.remembered(number).is_some_and(|known| known != mark) {
                    self.restart(effects);
                }
            }
        }
    }

    /// A batch of the live stream, now or when it was held back.
    fn follow(&mut self, number: u64, payload: P, effects: &mut impl Effects<P>) {
        let Some(last) = self.last else {
            return match number {
                0 => self.take_live(number, payload, effects),
                _ => self.heal(number, payload, effects),
            };
        };
        if follows(last, number) {
            self.take_live(number, payload, effects);
        } else if number > last.number {
            if self.vain == 0 {
                self.counts.gaps += 1;
                let missing = number - last.number - 1;
                self.counts.missing = self.counts.missing.saturating_add(missing);
            }
            self.heal(number, payload, effects);
        } else if self.is_known(number, payload.as_ref()) {
            self.counts.duplicates += 1;
            self.live = self.live.max(Some(number));
        } else {
            self.restart(effects);
            if !self.has_replay {
                self.take_live(number, payload, effects);
            }
            // Else it comes with the answer, if it is the publisher's.
        }
    }

    /// The batches before this one are asked for, or given up.
    fn heal(&mut self, number: u64, payload: P, effects: &mut impl Effects<P>) {
        if self.has_replay && self.vain < self.tries() {
            self.hold(number, payload);
            return self.ask(Purpose::Heal, effects);
        }
        if self.last.is_some() {
            self.lose(effects);
        }
        self.reread_due |= self.down;
        self.take_live(number, payload, effects);
    }

    /// Whether this batch, not newer than the last, was applied. The last few
    /// are known by their bytes. An older one is believed while the numbers of
    /// the live stream grow: a replay has overtaken it.
    fn is_known(&self, number: u64, payload: &[u8]) -> bool {
        match self.remembered(number) {
            Some(mark) => mark == Mark::of(number, payload),
            None => self.live.is_none_or(|live| number > live),
        }
    }

    fn remembered(&self, number: u64) -> Option<Mark> {
        // The sound one proves who answers, however many came since.
        let known = [self.recent[slot(number)], self.sound];
        known.into_iter().flatten().find(|mark| mark.number == number)
    }

    fn take_live(&mut self, number: u64, payload: P, effects: &mut impl Effects<P>) {
        if self.last.is_none() {
            self.whole = number == 0;
        }
        self.live = self.live.max(Some(number));
        self.apply(number, payload, Way::Live, effects);
    }

    fn apply(&mut self, number: u64, payload: P, way: Way, effects: &mut impl Effects<P>) {
        let mark = Mark::of(number, payload.as_ref());
        if self.last.is_none() {
            self.first = number;
        }
        self.last = Some(mark);
        self.recent[slot(number)] = Some(mark);
        self.vain = 0;
        match way {
            Way::Live => self.counts.applied += 1,
            Way::Replayed => self.counts.replayed += 1,
        }
        if let Some(question) = &mut self.question {
            question.useful = true;
        }
        match effects.apply(number, payload, way) {
            Applied::Changes => {}
            Applied::Emptied => self.whole = true,
            Applied::Unreadable => self.whole = false,
            Applied::Lost => {
                self.whole = false;
                self.first = number.saturating_add(1);
                // Not over and over, if it is the history that does it.
                self.reread_due |= self.has_replay && way == Way::Live;
            }
        }
    }

    /// A new process publishes here: nothing of the old one counts.
    fn restart(&mut self, effects: &mut impl Effects<P>) {
        self.counts.restarts += 1;
        self.clear(Cause::Restarted, effects);
        self.vain = 0;
        if self.has_replay {
            self.drop_held();
            self.ask(Purpose::Heal, effects);
        }
    }

    /// What is missing cannot be had.
    fn lose(&mut self, effects: &mut impl Effects<P>) {
        self.counts.lost += 1;
        self.clear(Cause::Lost, effects);
    }

    fn clear(&mut self, cause: Cause, effects: &mut impl Effects<P>) {
        self.unlearn();
        effects.clear(cause);
    }

    fn unlearn(&mut self) {
        self.last = None;
        self.sound = None;
        self.unproven = false;
        self.live = None;
        self.recent.fill(None);
        self.whole = false;
    }

    /// Questions that may be in vain, in a row: one where the socket was not
    /// there last time.
    fn tries(&self) -> u32 {
        if self.down { 1 } else { self.bounds.tries }
    }

    fn ask(&mut self, purpose: Purpose, effects: &mut impl Effects<P>) {
        self.counts.asked += 1;
        let purpose = if self.unproven { Purpose::Prove } else { purpose };
        self.question = Some(Question { purpose, begun: false, useful: false, torn: false });
        self.overflowed = false;
        effects.ask(self.start(purpose));
    }

    /// Where a question of this purpose begins.
    fn start(&self, purpose: Purpose) -> u64 {
        let Some(last) = self.last else { return 0 };
        match purpose {
            Purpose::Check | Purpose::Heal => last.number,
            Purpose::Prove => self.sound.map_or(self.first, |sound| sound.number),
            Purpose::Reread => 0,
        }
    }

    /// The answer was torn, or did not come to its end.
    fn ask_again(&mut self, question: Question, effects: &mut impl Effects<P>) {
        self.vain += 1;
        if question.useful {
            // What was applied has shown who answers: it goes on from there.
            self.unproven = false;
            self.ask(Purpose::Heal, effects);
        } else {
            self.ask(question.purpose, effects);
        }
    }

    fn hold(&mut self, number: u64, payload: P) {
        let bytes = payload.as_ref().len();
        let fits = self.held.len() < self.bounds.held_batches
            && self.held_bytes.saturating_add(bytes) <= self.bounds.held_bytes;
        if fits && !self.overflowed {
            self.held_bytes += bytes;
            self.held.push_back((number, payload));
        } else {
            // From here on all are dropped, so that the held ones have no hole.
            self.counts.overflows += 1;
            self.overflowed = true;
        }
    }

    fn drop_held(&mut self) {
        self.held.clear();
        self.held_bytes = 0;
        self.overflowed = false;
    }

    /// The answer is complete, or given up: what was held back is followed,
    /// until some of it makes for another question. Says whether some had been
    /// dropped.
    fn release(&mut self, effects: &mut impl Effects<P>) -> bool {
        self.question = None;
        let overflowed = mem::take(&mut self.overflowed);
        let mut held = mem::take(&mut self.held);
        self.held_bytes = 0;
        while let Some((number, payload)) = held.pop_front() {
            self.live(number, payload, effects);
        }
        overflowed
    }
}

fn follows(last: Mark, number: u64) -> bool {
    last.number.checked_add(1) == Some(number)
}

fn slot(number: u64) -> usize {
    // Below a small constant: it fits.
    (number % REMEMBERED as u64) as usize
}
