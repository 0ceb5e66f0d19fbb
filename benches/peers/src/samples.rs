//! Times of single calls.

use std::hint::black_box;
use std::time::Instant;

/// Times below this many nanoseconds are counted one by one.
const FINE: usize = 1 << 16;

/// Times in nanoseconds, kept exactly and in little memory.
pub struct Samples {
    /// How often each time below [`FINE`] was seen.
    fine: Vec<u32>,
    /// The others.
    coarse: Vec<u64>,
    count: u64,
}

impl Default for Samples {
    fn default() -> Self {
        Self { fine: vec![0; FINE], coarse: Vec::new(), count: 0 }
    }
}

impl Samples {
    #[inline]
    pub fn add(&mut self, nanoseconds: u64) {
        match self.fine.get_mut(nanoseconds as usize) {
            Some(seen) => *seen += 1,
            None => self.coarse.push(nanoseconds),
        }
        self.count += 1;
    }

    pub fn join(&mut self, other: Self) {
        for (mine, theirs) in self.fine.iter_mut().zip(other.fine) {
            *mine += theirs;
        }
        self.coarse.extend(other.coarse);
        self.count += other.count;
    }

    /// The time that `share` of the calls did not exceed, without what asking
    /// the clock costs. `NaN` if there was no call.
    ///
    /// A clock that ticks every 10 ns says 10 or 20 of what takes 14, 20 in four
    /// cases of ten. So each time stands for all within half a tick of it, evenly,
    /// and the quantile is one of those: the median of grouped data.
    pub fn quantile(&mut self, share: f64, clock: Clock) -> f64 {
        if self.count == 0 {
            return f64::NAN;
        }
        let wanted = (self.count as f64 * share).max(f64::MIN_POSITIVE);
        let fine: u64 = self.fine.iter().map(|seen| u64::from(*seen)).sum();
        if (fine as f64) < wanted {
            self.coarse.sort_unstable();
            let at = (wanted.ceil() as u64 - fine) as usize - 1;
            return (self.coarse[at.min(self.coarse.len() - 1)] as f64 - clock.cost).max(0.0);
        }
        // How many calls took less, rising in `time`.
        let below = |time: f64| -> f64 {
            let part = |(at, seen): (usize, &u32)| {
                let share = (time - at as f64) / clock.tick + 0.5;
                f64::from(*seen) * share.clamp(0.0, 1.0)
            };
            let end = ((time + clock.tick).ceil().max(0.0) as usize).min(FINE);
            self.fine[..end].iter().enumerate().filter(|(_, seen)| **seen > 0).map(part).sum()
        };
        let (mut low, mut high) = (-clock.tick, FINE as f64 + clock.tick);
        while high - low > 0.01 {
            let middle = f64::midpoint(low, high);
            if below(middle) < wanted {
                low = middle;
            } else {
                high = middle;
            }
        }
        (high - clock.cost).max(0.0)
    }
}

/// What is to be known of a clock, in nanoseconds.
#[derive(Clone, Copy)]
pub struct Clock {
    /// How far apart two times are at least that are not the same.
    tick: f64,
    /// What two looks cost with nothing between them: the median of many.
    cost: f64,
}

impl Clock {
    /// Ticks every nanosecond and costs nothing.
    pub const PERFECT: Self = Self { tick: 1.0, cost: 0.0 };

    /// What two looks cost, in whole nanoseconds.
    pub fn cost(self) -> u64 {
        self.cost.round() as u64
    }

    /// The one that `Instant` asks.
    pub fn of_the_wall() -> Self {
        Self::looked_at(|rounds| {
            let started = Instant::now();
            work(rounds);
            started.elapsed().as_nanos() as u64
        })
    }

    /// One of which `look` says how long so many rounds of [`work`] took.
    pub fn looked_at(mut look: impl FnMut(u32) -> u64) -> Self {
        const LOOKS: u32 = 20_000;
        let (mut bare, mut mixed) = (Samples::default(), Samples::default());
        for turn in 0..LOOKS {
            bare.add(look(0));
            // Up to some tens of nanoseconds, so that times differ by a tick.
            mixed.add(look(turn % 64));
        }
        // Times a nanosecond apart are one, rounded in two ways, or those of a
        // clock that ticks every nanosecond: only the first of them counts.
        let often = |at: usize| mixed.fine[at] > LOOKS / 1_000;
        let firsts: Vec<_> = (1..FINE).filter(|at| often(*at) && !often(at - 1)).collect();
        let apart = firsts.windows(2).map(|pair| pair[1] - pair[0]);
        let tick = apart.min().unwrap_or(1) as f64;
        let cost = bare.quantile(0.5, Self { tick, cost: 0.0 });
        Self { tick, cost }
    }
}

/// A little work; none at all for 0 rounds.
#[inline(always)]
pub fn work(rounds: u32) {
    for round in 0..rounds {
        black_box(round);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls that take as long as each other, seen by a clock that ticks every
    /// 10 ns at moments that have nothing to do with them.
    #[test]
    fn a_quantile_is_finer_than_the_clocks_tick() {
        for took in [3.0, 14.0, 17.5, 95.0, 1_234.0] {
            let mut samples = Samples::default();
            for phase in 0..1_000 {
                let began = f64::from(phase) / 100.0;
                let ticks = ((began + took) / 10.0).floor() - (began / 10.0).floor();
                samples.add((ticks * 10.0) as u64);
            }
            let median = samples.quantile(0.5, Clock { tick: 10.0, cost: 0.0 });
            assert!((median - took).abs() <= 2.5, "{median} for {took}");
        }
    }

    /// A clock that ticks every 10 ns and is rounded up now and then, one that
    /// ticks every nanosecond, and looks that take 14.
    #[test]
    fn a_clocks_tick_and_cost_are_found() {
        for ticks_every in [10.0, 1.0] {
            let mut looks = 0_u32;
            let clock = Clock::looked_at(|rounds| {
                looks += 1;
                let began = f64::from(looks * 7_919 % 10_000) / 1_000.0;
                let ended = began + 14.0 + f64::from(rounds);
                let ticks = (ended / ticks_every).floor() - (began / ticks_every).floor();
                (ticks * ticks_every) as u64 + u64::from(looks.is_multiple_of(20))
            });
            assert_eq!(clock.tick, ticks_every);
            assert!((clock.cost - 14.0).abs() <= 2.5, "{}", clock.cost);
        }
    }

    #[test]
    fn quantiles_are_those_of_the_times_where_the_clock_is_fine() {
        let mut samples = Samples::default();
        (0..1_000).for_each(|time| samples.add(time));
        samples.add(5_000_000);
        let clock = Clock { tick: 1.0, cost: 20.0 };
        assert!((samples.quantile(0.5, clock) - 480.0).abs() < 1.0);
        assert!((samples.quantile(0.9, clock) - 880.0).abs() < 1.0);
        assert_eq!(samples.quantile(1.0, clock), 4_999_980.0);
        assert_eq!(samples.quantile(0.001, clock), 0.0);
    }
}
