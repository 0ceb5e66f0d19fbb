//! What kvradix must reach.

use crate::peer::Kind;

/// The figure that another is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    /// The best of the others.
    Best,
    /// This one's.
    Peer(Kind),
    /// The number itself.
    Itself,
}

/// A bar or an aim: at least so many times as high, or, where lower is
/// better, at most.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Goal {
    pub factor: f64,
    pub to: To,
}

#[derive(Clone, Copy, Debug)]
pub struct Goals {
    pub bar: Goal,
    pub aim: Goal,
}

const KV_INDEX: To = To::Peer(Kind::KvIndex);

/// The goals of the figure called `key`, if it has any.
pub fn of(key: &str) -> Option<Goals> {
    let words: Vec<&str> = key.split('.').collect();
    match words[..] {
        ["churn", "cycles"] => goals((1.5, KV_INDEX), (1.3, To::Peer(Kind::DynamoRadix))),
        ["fleet", "mixed", "4m" | "32m", "fill"] => both(To::Best, 1.25, 2.0),
        ["fleet", "shared", "4m", "fill"] => both(To::Best, 1.5, 3.0),
        ["fleet", _, "4m" | "32m", "evict", "single" | "turns"] => both(To::Best, 3.0, 5.0),
        ["fleet", _, "4m" | "32m", "q1" | "q8" | "q64" | "miss", "p50"] => both(To::Best, 0.8, 0.5),
        ["fleet", "mixed", "4m", "live"] => both(To::Itself, 31.0, 24.0),
        ["fleet", "shared", "4m", "live"] => both(To::Itself, 16.0, 12.0),
        ["fleet", _, "4m" | "32m", "drop"] => goals((1.0, KV_INDEX), (1.0, To::Best)),
        ["contention", "64x8", "quiet", "r1", "p50"] => both(To::Best, 0.8, 0.5),
        ["contention", "512x128", "quiet", "r1", "p50"] => both(To::Best, 0.7, 0.4),
        ["contention", _, "writer", "r1", "p999"] => both(To::Best, 1.0, 0.5),
        ["contention", _, "writer", "r1", "reads"] => both(To::Best, 1.2, 2.0),
        ["contention", _, "writer", "r1", "writes"] => both(KV_INDEX, 1.0, 1.5),
        ["replay", "rate"] => both(To::Best, 1.2, 2.0),
        ["children", _, _, "insert" | "find", "longest"] => both(To::Itself, 1.0, 1.0),
        ["chain", "10000", "ratio"] => both(To::Itself, 3.0, 3.0),
        _ => None,
    }
}

fn both(to: To, bar: f64, aim: f64) -> Option<Goals> {
    goals((bar, to), (aim, to))
}

fn goals(bar: (f64, To), aim: (f64, To)) -> Option<Goals> {
    let goal = |(factor, to)| Goal { factor, to };
    Some(Goals { bar: goal(bar), aim: goal(aim) })
}
