//! How long inferences take, and the overlap that follows from it.

use std::time::Duration;

/// Latencies that the estimate goes by; older ones are forgotten.
const WINDOW: usize = 64;
const QUANTILE: f64 = 0.95;

/// The last latencies, in seconds.
#[derive(Debug, Clone)]
pub(super) struct Latencies {
    seconds: [f64; WINDOW],
    count: usize,
    next: usize,
}

impl Latencies {
    pub(super) fn new() -> Latencies {
        Latencies { seconds: [0.0; WINDOW], count: 0, next: 0 }
    }

    pub(super) fn push(&mut self, latency: Duration) {
        if let Some(slot) = self.seconds.get_mut(self.next) {
            *slot = latency.as_secs_f64();
        }
        self.next = (self.next + 1) % WINDOW;
        self.count = (self.count + 1).min(WINDOW);
    }

    /// The 95th percentile by nearest rank, in seconds; none before the first.
    pub(super) fn p95(&self) -> Option<f64> {
        let mut sorted = self.seconds;
        let known = sorted.get_mut(..self.count)?;
        known.sort_unstable_by(f64::total_cmp);
        let rank = (QUANTILE * self.count as f64).ceil() as usize;
        known.get(rank.checked_sub(1)?).copied()
    }

    /// The overlap in ticks that covers the 95th percentile and `margin`: at least 1, at most `largest`. It rises at once,
    /// and falls only by more than one tick, so that it does not flicker between two.
    pub(super) fn overlap(&self, now: usize, margin: Duration, fps: f64, largest: usize) -> usize {
        let now = now.clamp(1, largest.max(1));
        let Some(p95) = self.p95() else { return now };
        // A hair above a whole number of ticks, as rounding leaves it, does not take another.
        let ticks = ((p95 + margin.as_secs_f64()) * fps - 1e-9).ceil().max(1.0);
        let wanted = (ticks as usize).min(largest.max(1));
        if wanted > now || wanted + 1 < now { wanted } else { now }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(milliseconds: impl IntoIterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::new();
        milliseconds.into_iter().for_each(|ms| latencies.push(Duration::from_millis(ms)));
        latencies
    }

    #[test]
    fn one_slow_inference_among_many_does_not_count_and_is_forgotten() {
        let overlap = |latencies: &Latencies, now| latencies.overlap(now, Duration::ZERO, 30.0, 50);
        let mut latencies = of(std::iter::repeat_n(100, 40).chain([900]));
        assert_eq!(overlap(&latencies, 1), 3);
        (0..3).for_each(|_| latencies.push(Duration::from_millis(900)));
        assert_eq!(overlap(&latencies, 3), 27);
        (0..64).for_each(|_| latencies.push(Duration::from_millis(100)));
        assert_eq!(overlap(&latencies, 27), 3);
    }

    #[test]
    fn it_falls_by_two_ticks_or_not_at_all_and_keeps_to_its_bounds() {
        let overlap = |ms, now, largest| of([ms]).overlap(now, Duration::ZERO, 30.0, largest);
        assert_eq!([overlap(130, 5, 9), overlap(90, 5, 9), overlap(180, 5, 9)], [5, 3, 6]);
        assert_eq!([overlap(0, 1, 9), overlap(460, 1, 8), overlap(460, 1, 0)], [1, 8, 1]);
        assert_eq!(Latencies::new().overlap(12, Duration::ZERO, 30.0, 8), 8);
        assert_eq!(of([100]).overlap(1, Duration::from_millis(1), 30.0, 9), 4);
    }
}
