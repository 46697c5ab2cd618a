//! What a handful of trials says, and how sure of it one can be.

use serde::{Deserialize, Serialize};

/// Two-sided 95 % quantile of the normal distribution.
const Z95: f64 = 1.959_963_984_540_054;

/// A share of successes with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Share {
    pub successes: usize,
    pub trials: usize,
    /// Wilson's score interval (Wilson 1927), without continuity correction.
    pub low: f64,
    pub high: f64,
}

impl Share {
    /// Of `successes` among `trials`; of no trial, the interval is everything.
    pub fn of(successes: usize, trials: usize) -> Share {
        let (low, high) = wilson(successes, trials);
        Share { successes, trials, low, high }
    }

    /// Successes by trials; 0 of none.
    pub fn rate(&self) -> f64 {
        self.successes as f64 / self.trials.max(1) as f64
    }
}

/// Wilson's 95 % interval: the shares p for which the observed one lies within z standard errors *of p*. It stays inside
/// 0 … 1 and has a width at 0 and at n successes, where the usual interval has none.
pub fn wilson(successes: usize, trials: usize) -> (f64, f64) {
    if trials == 0 {
        return (0.0, 1.0);
    }
    let (n, z2) = (trials as f64, Z95 * Z95);
    let p = successes.min(trials) as f64 / n;
    let centre = p + z2 / (2.0 * n);
    let half = Z95 * (p * (1.0 - p) / n + z2 / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z2 / n;
    (((centre - half) / scale).max(0.0), ((centre + half) / scale).min(1.0))
}

/// The mean; none of no values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// The value below which the share `q` (0 … 1) of `values` lies, interpolated between neighbours; none of no values.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = q.clamp(0.0, 1.0) * sorted.len().checked_sub(1)? as f64;
    let (below, above) = (sorted.get(place.floor() as usize)?, sorted.get(place.ceil() as usize)?);
    Some(below + (above - below) * place.fract())
}

/// The middle value; none of no values.
pub fn median(values: &[f64]) -> Option<f64> {
    quantile(values, 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: (f64, f64), expected: (f64, f64)) {
        let off = (found.0 - expected.0).abs().max((found.1 - expected.1).abs());
        assert!(off < 5e-4, "{found:?} instead of {expected:?}");
    }

    #[test]
    fn wilson_gives_the_published_intervals() {
        close(wilson(9, 10), (0.596, 0.982));
        // Newcombe 1998, table I, method 3.
        close(wilson(81, 263), (0.2553, 0.3662));
        close(wilson(15, 148), (0.0624, 0.1605));
        close(wilson(0, 20), (0.0, 0.1611));
        close(wilson(1, 29), (0.0061, 0.1718));
        close(wilson(29, 29), (0.8830, 1.0));
    }

    #[test]
    fn no_trial_says_nothing() {
        assert_eq!(wilson(0, 0), (0.0, 1.0));
        assert_eq!(Share::of(0, 0).rate(), 0.0);
        assert_eq!((mean(&[]), median(&[])), (None, None));
    }

    #[test]
    fn medians_and_quantiles_do_not_depend_on_the_order() {
        assert_eq!(median(&[9.0, 1.0, 4.0]), Some(4.0));
        assert_eq!(median(&[4.0, 1.0, 9.0, 2.0]), Some(3.0));
        assert_eq!(quantile(&[3.0, 1.0, 2.0, 4.0, 5.0], 0.95), Some(4.8));
        assert_eq!(mean(&[1.0, 2.0, 6.0]), Some(3.0));
    }
}
