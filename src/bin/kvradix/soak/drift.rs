//! Whether a figure grows while the load stays what it is.

use serde::Serialize;

/// The share of a run that is start-up: caches fill, buffers and the
/// allocator's arenas grow.
const START_UP: f64 = 0.2;
/// The share of what follows that is compared, at its beginning and its end.
const PART: f64 = 0.25;

/// How much a figure may grow from the first steady part to the last.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// As a share of what it was.
    pub share: f64,
    /// And that much beside, in the figure's unit.
    pub beside: f64,
}

/// What became of a figure.
#[derive(Clone, Debug, Serialize)]
pub struct Drift {
    pub figure: &'static str,
    /// Its median over the first steady part, and over the last.
    pub first: f64,
    pub last: f64,
    /// The most that `last` may be.
    pub allowed: f64,
}

impl Drift {
    /// Compares the figure's medians; `None` where a part has no value.
    /// `samples` are seconds and values, of a run of `seconds`.
    pub fn of(
        figure: &'static str,
        samples: impl Iterator<Item = (f64, f64)> + Clone,
        seconds: f64,
        tolerance: Tolerance,
    ) -> Option<Self> {
        let steady = seconds * START_UP;
        let part = (seconds - steady) * PART;
        let within = |from: f64, to: f64| {
            let part = samples.clone().filter(|(at, _)| (from..=to).contains(at));
            median(part.map(|(_, value)| value).collect())
        };
        let first = within(steady, steady + part)?;
        let last = within(seconds - part, seconds)?;
        let allowed = first * (1.0 + tolerance.share) + tolerance.beside;
        Some(Self { figure, first, last, allowed })
    }

    /// Whether it grew by no more than it may.
    pub fn is_fine(&self) -> bool {
        self.last <= self.allowed
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLERANCE: Tolerance = Tolerance { share: 0.05, beside: 0.0 };

    /// The figure of a run of a thousand seconds, a sample in each.
    fn is_fine(figure: impl Fn(f64) -> f64) -> bool {
        let samples = (1..=1_000).map(|at| (f64::from(at), figure(f64::from(at))));
        Drift::of("figure", samples, 1_000.0, TOLERANCE).expect("samples in both").is_fine()
    }

    /// Between -1 and 1, without a trend.
    fn noise(at: f64) -> f64 {
        (at * 12.9898).sin()
    }

    #[test]
    fn a_steady_figure_is_fine_however_it_sways() {
        assert!(is_fine(|_| 0.0));
        assert!(is_fine(|at| 50.0 + 10.0 * noise(at)));
        // A wave whose parts lie at other heights of it by little.
        assert!(is_fine(|at| 50.0 + 2.0 * (at / 200.0).sin()));
    }

    #[test]
    fn start_up_and_single_spikes_do_not_count() {
        assert!(is_fine(|at| 50.0 * (at / 200.0).min(1.0)));
        assert!(is_fine(|at| if at % 7.0 == 0.0 { 1e9 } else { 50.0 }));
    }

    #[test]
    fn a_figure_that_shrinks_is_fine() {
        assert!(is_fine(|at| 100.0 - at / 20.0));
    }

    #[test]
    fn a_slow_climb_is_found_below_noise_that_is_larger() {
        // 6 % from the middle of the first part to that of the last.
        assert!(!is_fine(|at| 50.0 + 5.0 * noise(at) + 3.5 * at / 600.0));
    }

    #[test]
    fn a_step_is_found() {
        assert!(!is_fine(|at| if at < 600.0 { 50.0 } else { 53.0 }));
    }

    #[test]
    fn what_may_be_beside_is_allowed_once() {
        let samples = [(250.0, 0.0), (950.0, 4.0)].into_iter();
        let beside = |beside| {
            let tolerance = Tolerance { share: 0.05, beside };
            Drift::of("figure", samples.clone(), 1_000.0, tolerance).unwrap().is_fine()
        };
        assert!(beside(4.0) && !beside(3.9));
    }

    #[test]
    fn without_samples_nothing_is_said() {
        let none = [(250.0, 1.0)].into_iter();
        assert!(Drift::of("figure", none, 1_000.0, TOLERANCE).is_none());
    }
}
