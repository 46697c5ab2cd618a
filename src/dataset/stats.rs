//! Statistics of a feature, as normalisation needs them.

use std::collections::BTreeMap;

/// Per dimension, raw units. Std is the population value (÷ n). Quantiles are absent in v2.1 and old v3.0 files.
#[derive(Debug, Clone, Default, PartialEq)]
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
