//! How a fleet is followed.

use std::time::Duration;

use crate::intake::{Limits, sequence};

/// Times and bounds of a [`Fleet`](super::Fleet). The defaults suit engines in
/// one data centre.
#[derive(Clone, Debug)]
pub struct Options {
    /// Threads that follow publishers, each publisher one thread's own. 1 by
    /// default, which is good for some millions of blocks a second; more
    /// shorten the first reading of many histories.
    pub threads: usize,
    /// How long a publisher may give no sign of life before it counts as dead:
    /// 10 s. Heartbeats and questions to its replay socket are three times as
    /// frequent.
    pub dead_after: Duration,
    /// How long a dead publisher's blocks are still answered with: 60 s. An
    /// engine that comes back by then, as after a broken network, goes on
    /// where it was.
    pub forget_after: Duration,
    /// How long a publisher may be silent before its replay socket is asked
    /// whether the newest batches were lost: 1 s. Above a third of
    /// `dead_after` that counts instead.
    pub check_after: Duration,
    /// How long the replay socket may pause while it answers: 2 s. Once an
    /// answer has brought something, a quarter of that: its end may have been
    /// lost, as other parts may, and the rest is asked for.
    pub replay_timeout: Duration,
    /// The first wait before a broken connection is tried again: 100 ms. It
    /// doubles with each failure.
    pub reconnect_min: Duration,
    /// The longest wait before a broken connection is tried again: 2 s.
    pub reconnect_max: Duration,
    /// Batches that one publisher's socket queues here: 10,000. What it cannot
    /// take waits at the publisher, which drops what it cannot keep; that is a
    /// gap, and heals.
    pub queued_batches: u32,
    /// Bounds of what is held back during a replay. Where they are reached,
    /// the socket is read no further until the replay ends.
    pub held: sequence::Bounds,
    /// What one payload may contain. A publisher that sends a larger one is
    /// disconnected from.
    pub payload: Limits,
    /// Batches are taken off the sockets this far apart, if there are many:
    /// 1 ms. It saves looking at hundreds of sockets for each batch.
    pub pace: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            threads: 1,
            dead_after: Duration::from_secs(10),
            forget_after: Duration::from_secs(60),
            check_after: Duration::from_secs(1),
            replay_timeout: Duration::from_secs(2),
            reconnect_min: Duration::from_millis(100),
            reconnect_max: Duration::from_secs(2),
            queued_batches: 10_000,
            held: sequence::Bounds::default(),
            payload: Limits::default(),
            pace: Duration::from_millis(1),
        }
    }
}

impl Options {
    /// How long an answer that has brought something may pause.
    pub(super) fn replay_pause(&self) -> Duration {
        (self.replay_timeout / 4).max(Duration::from_millis(1))
    }

    /// How often a silent publisher is asked.
    pub(super) fn check_every(&self) -> Duration {
        self.check_after.min(self.dead_after / 3).max(Duration::from_millis(1))
    }
}
