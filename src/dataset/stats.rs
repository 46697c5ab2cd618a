//! Statistics of a feature, as normalisation needs them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Per dimension, raw units. Std is the population value (÷ n). Quantiles are absent in v2.1 and old v3.0 files.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FeatureStats {
    pub min: Vec<f64>,
    pub max: Vec<f64>,
    pub mean: Vec<f64>,
    pub std: Vec<f64>,
    /// Number of frames.
    pub count: u64,
    pub q01: Option<Vec<f64>>,
    pub q10: Option<Vec<f64>>,
    pub q50: Option<Vec<f64>>,
    pub q90: Option<Vec<f64>>,
    pub q99: Option<Vec<f64>>,
}

/// By feature name (`observation.state`, `action`, …).
pub type Statistics = BTreeMap<String, FeatureStats>;

impl FeatureStats {
    /// The quantiles with their names and levels, lowest first.
    pub fn quantiles(&self) -> [(&'static str, f64, Option<&Vec<f64>>); 5] {
        [
            ("q01", 0.01, self.q01.as_ref()),
            ("q10", 0.10, self.q10.as_ref()),
            ("q50", 0.50, self.q50.as_ref()),
            ("q90", 0.90, self.q90.as_ref()),
            ("q99", 0.99, self.q99.as_ref()),
        ]
    }

    /// Why these cannot be statistics of anything, if so: not finite, negative std, count 0, crossed bounds (FF-03).
    pub fn impossible(&self) -> Option<String> {
        let required = [("min", &self.min), ("max", &self.max), ("mean", &self.mean), ("std", &self.std)];
        let quantiles = self.quantiles().into_iter().filter_map(|(name, _, values)| Some((name, values?)));
        for (name, values) in required.into_iter().chain(quantiles) {
            if values.len() != self.mean.len() {
                return Some(format!("{name} has {} dimensions, mean {}", values.len(), self.mean.len()));
            }
            if let Some(dimension) = values.iter().position(|value| !value.is_finite()) {
                return Some(format!("{name}[{dimension}] is not a finite number"));
            }
        }
        let crossed = |low: &[f64], high: &[f64]| low.iter().zip(high).position(|(low, high)| low > high);
        if self.count == 0 {
            return Some("count is 0".into());
        }
        if let Some(dimension) = self.std.iter().position(|&std| std < 0.0) {
            return Some(format!("std[{dimension}] is negative"));
        }
        if let Some(dimension) = crossed(&self.min, &self.max) {
            return Some(format!("min[{dimension}] lies above max[{dimension}]"));
        }
        let (low, high) = (self.q01.as_deref()?, self.q99.as_deref()?);
        crossed(low, high).map(|dimension| format!("q01[{dimension}] lies above q99[{dimension}]"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plausible() -> FeatureStats {
        FeatureStats {
            min: vec![0.0],
            max: vec![1.0],
            mean: vec![0.5],
            std: vec![0.1],
            count: 3,
            q01: Some(vec![0.0]),
            q99: Some(vec![1.0]),
            ..FeatureStats::default()
        }
    }

    #[test]
    fn impossible_statistics_are_told() {
        assert_eq!(plausible().impossible(), None);
        type Spoil = fn(&mut FeatureStats);
        let cases: [(Spoil, &str); 5] = [
            (|stats| stats.mean[0] = f64::NAN, "mean[0] is not a finite number"),
            (|stats| stats.std[0] = -0.1, "std[0] is negative"),
            (|stats| stats.count = 0, "count is 0"),
            (|stats| stats.q01 = Some(vec![2.0]), "q01[0] lies above q99[0]"),
            (|stats| stats.max = Vec::new(), "max has 0 dimensions, mean 1"),
        ];
        for (spoil, expected) in cases {
            let mut stats = plausible();
            spoil(&mut stats);
            assert_eq!(stats.impossible().as_deref(), Some(expected));
        }
    }
}
