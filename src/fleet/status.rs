//! What is known of a publisher while it is followed.

use serde::Serialize;

use crate::intake::sequence::Counts;
use crate::intake::{Drops, RankStats};

/// How it stands with a publisher.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It has never been connected.
    Waiting,
    /// It is followed, and everything that the engine holds is known.
    Live,
    /// It is followed, but what the engine stored before some moment is not
    /// known: the history does not reach back far enough.
    Degraded,
    /// Batches are missing, or may be, and are being asked for.
    Healing,
    /// It gives no sign of life.
    Dead,
}

impl State {
    /// All states.
    pub const ALL: [State; 5] =
        [State::Waiting, State::Live, State::Degraded, State::Healing, State::Dead];

    /// Its name, in lower case.
    pub fn name(self) -> &'static str {
        match self {
            State::Waiting => "waiting",
            State::Live => "live",
            State::Degraded => "degraded",
            State::Healing => "healing",
            State::Dead => "dead",
        }
    }
}

/// A publisher, at one moment. Counts only grow, for as long as the worker
/// stays.
#[derive(Clone, Debug, Serialize)]
pub struct PublisherStatus {
    /// The worker's id.
    pub worker: u64,
    /// The data-parallel rank.
    pub rank: u32,
    /// How it stands with it.
    pub state: State,
    /// The number of the last batch applied since it was last cleared.
    pub last_number: Option<u64>,
    /// Live batches held back during a replay.
    pub held: u64,
    /// Seconds since its last sign of life.
    pub silent_seconds: Option<f64>,
    /// How long the last live batch was under way, by the engine's clock and
    /// ours.
    pub delay_seconds: Option<f64>,
    /// Why it cannot be followed at all, as where its endpoint is taken.
    pub error: Option<String>,
    /// Blocks held.
    pub blocks: Blocks,
    /// What happened.
    pub counts: Totals,
    /// What was left out, by [`Reason`](crate::intake::Reason).
    #[serde(serialize_with = "by_label")]
    pub drops: Drops,
    /// Where it speaks.
    pub events: String,
    /// Where its history can be asked for.
    pub replay: Option<String>,
}

/// Blocks that a rank holds.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Blocks {
    /// On the device.
    pub device: u64,
    /// On any tier.
    pub any: u64,
    /// On the device, but not yet to be found: their parents are elsewhere.
    pub waiting: u64,
}

impl From<RankStats> for Blocks {
    fn from(stats: RankStats) -> Self {
        Self { device: stats.device, any: stats.any, waiting: stats.waiting }
    }
}

/// What happened to a publisher's stream.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Totals {
    /// Live batches applied.
    pub batches: u64,
    /// Batches applied from replays.
    pub replayed: u64,
    /// Bytes of all batches applied.
    pub bytes: u64,
    /// Blocks in accepted stores.
    pub stored: u64,
    /// Blocks removed.
    pub removed: u64,
    /// Times that the engine emptied its cache.
    pub cleared: u64,
    /// Batches that came twice.
    pub duplicates: u64,
    /// Gaps in the live stream.
    pub gaps: u64,
    /// Batches missing in them.
    pub missing: u64,
    /// Gaps that could not be healed.
    pub lost: u64,
    /// New processes of the engine noticed.
    pub restarts: u64,
    /// Questions to the replay socket.
    pub asked: u64,
    /// Questions without an answer.
    pub unanswered: u64,
    /// Live batches dropped during a replay, and asked for again.
    pub overflows: u64,
    /// Messages that are none of a publisher's: a wrong number of frames, or a
    /// sequence number that is not of eight bytes.
    pub malformed: u64,
    /// Times that the connection came about.
    pub connects: u64,
    /// Times that it counted as dead.
    pub deaths: u64,
    /// Times that it was forgotten for being dead.
    pub forgotten: u64,
}

impl Totals {
    pub(super) fn take(&mut self, counts: Counts) {
        self.batches = counts.applied;
        self.replayed = counts.replayed;
        self.duplicates = counts.duplicates;
        self.gaps = counts.gaps;
        self.missing = counts.missing;
        self.lost = counts.lost;
        self.restarts = counts.restarts;
        self.asked = counts.asked;
        self.unanswered = counts.unanswered;
        self.overflows = counts.overflows;
    }
}

fn by_label<S: serde::Serializer>(drops: &Drops, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(drops.iter().map(|(reason, count)| (reason.label(), count)))
}
