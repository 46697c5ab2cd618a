//! What a list of measured times says.

use serde::{Deserialize, Serialize};

/// Consecutive parts whose medians show how far a median is to be trusted.
const PARTS: usize = 5;

/// Times of repeated runs in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Runs that were measured.
    pub n: usize,
    pub mean: f64,
    pub std: f64,
    pub min: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
    /// Lowest and highest median of five consecutive parts of the runs; both are `p50` below ten runs. A difference
    /// between versions that is smaller than this range is noise.
    pub p50_range: [f64; 2],
}

impl Summary {
    /// Of measured times, in the order in which they were measured; all zero when there are none.
    pub fn of(times: &[f64]) -> Summary {
        let mut sorted = times.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = times.len().max(1) as f64;
        let mean = times.iter().sum::<f64>() / n;
        let variance = times.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / n;
        let p50 = percentile(&sorted, 0.5);
        Summary {
            n: times.len(),
            mean,
            std: variance.sqrt(),
            min: percentile(&sorted, 0.0),
            p50,
            p90: percentile(&sorted, 0.9),
            p99: percentile(&sorted, 0.99),
            max: percentile(&sorted, 1.0),
            p50_range: if times.len() < 2 * PARTS { [p50, p50] } else { medians(times) },
        }
    }
}

fn medians(times: &[f64]) -> [f64; 2] {
    let medians = times.chunks(times.len().div_ceil(PARTS)).map(|part| {
        let mut part = part.to_vec();
        part.sort_by(f64::total_cmp);
        percentile(&part, 0.5)
    });
    medians.fold([f64::INFINITY, 0.0], |[low, high], median| [low.min(median), high.max(median)])
}

/// The value below which the share `q` (0 to 1) of an ascending list lies, interpolated between neighbours (NumPy's
/// `linear`); 0 of an empty one.
pub fn percentile(sorted: &[f64], q: f64) -> f64 {
    let place = q.clamp(0.0, 1.0) * sorted.len().saturating_sub(1) as f64;
    let at = |index: usize| sorted.get(index).or(sorted.last()).copied().unwrap_or(0.0);
    let (below, above) = (at(place.floor() as usize), at(place.ceil() as usize));
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_lie_between_neighbours() {
        let sorted = [1.0, 2.0, 3.0, 4.0];
        let found = [0.0, 0.5, 0.9, 1.0].map(|q| percentile(&sorted, q));
        assert_eq!(found[..2], [1.0, 2.5]);
        assert!((found[2] - 3.7).abs() < 1e-12);
        assert_eq!(found[3], 4.0);
        assert_eq!((percentile(&[], 0.5), percentile(&[7.0], 0.99)), (0.0, 7.0));
    }

    #[test]
    fn a_summary_is_of_the_times_in_any_order_and_its_range_of_their_parts() {
        let summary = Summary::of(&[3.0, 1.0, 2.0]);
        assert_eq!((summary.n, summary.mean, summary.min, summary.p50, summary.max), (3, 2.0, 1.0, 2.0, 3.0));
        assert!((summary.std - (2.0f64 / 3.0).sqrt()).abs() < 1e-12);
        assert_eq!(summary.p50_range, [2.0, 2.0]);
        // Slower and slower, two by two.
        let drift: Vec<f64> = (0..10).map(|i| f64::from(i / 2)).collect();
        assert_eq!(Summary::of(&drift).p50_range, [0.0, 4.0]);
        assert_eq!(Summary::of(&[]).p50, 0.0);
    }
}
