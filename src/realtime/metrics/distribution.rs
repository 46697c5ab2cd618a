//! Exact figures of a set of values.

use serde::{Deserialize, Serialize};

/// Percentiles by nearest rank. All zero of no value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Distribution {
    pub count: u64,
    pub mean: f64,
    /// Of the values as they are, not of a population that they would be drawn from.
    pub std: f64,
    pub min: f64,
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub max: f64,
}

impl Distribution {
    /// Of `values`; what is not finite is left out.
    pub fn of(values: &[f64]) -> Distribution {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else { return Distribution::default() };
        let count = sorted.len() as f64;
        let mean = sorted.iter().sum::<f64>() / count;
        let variance = sorted.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        let at = |quantile: f64| {
            let rank = (quantile * count).ceil().max(1.0) as usize;
            sorted.get(rank - 1).copied().unwrap_or(max)
        };
        Distribution {
            count: sorted.len() as u64,
            mean,
            std: variance.sqrt(),
            min,
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            max,
        }
    }
}
