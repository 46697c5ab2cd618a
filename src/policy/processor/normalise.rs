//! Normalisation of state and action: per dimension, by the checkpoint's mode.
//!
//! The arithmetic is LeRobot's `normalize_processor.py`, in f32: ε is added to the standard deviation going forward
//! only, and takes the place of a range of exactly zero in both directions.

use super::error::ProcessorError;
use crate::config::train::NormMode;
use crate::dataset::stats::FeatureStats;

/// LeRobot's ε.
pub const EPS: f32 = 1e-8;

/// One dimension. Mean/std: `(x − origin) / scale`; a range: `2 · (x − origin) / scale − 1`.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Dimension {
    /// Mean, or lower bound of the range.
    origin: f32,
    /// Divisor forward: std + ε, or the range.
    scale: f32,
    /// Factor backward: std, or the range.
    back: f32,
}

/// Maps a feature of fixed width between the data's unit and the network's.
#[derive(Debug, Clone, PartialEq)]
pub struct Normaliser {
    feature: String,
    width: usize,
    mode: NormMode,
    dimensions: Vec<Dimension>,
}

impl Normaliser {
    /// From the statistics of `feature`, which has `width` dimensions. Statistics are used as they are: run
    /// [`super::prepare_statistics`] over them first.
    pub fn new(
        feature: &str,
        width: usize,
        mode: NormMode,
        stats: Option<&FeatureStats>,
    ) -> Result<Normaliser, ProcessorError> {
        let mut dimensions = Vec::new();
        if mode != NormMode::Identity {
            let (lower, upper) = bounds(feature, mode, stats)?;
            for found in [lower.len(), upper.len()] {
                if found != width {
                    return Err(ProcessorError::Length {
                        feature: format!("statistics of {feature}"),
                        found,
                        expected: width,
                        index: None,
                    });
                }
            }
            dimensions = lower.iter().zip(upper).map(|(&a, &b)| dimension(mode, a as f32, b as f32)).collect();
        }
        Ok(Normaliser { feature: feature.to_owned(), width, mode, dimensions })
    }

    /// Number of dimensions.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Normalises rows of `width` values in place. A value that is not finite is an error that names it.
    pub fn normalise(&self, values: &mut [f32]) -> Result<(), ProcessorError> {
        for row in values.chunks_mut(self.width.max(1)) {
            for (at, value) in row.iter_mut().enumerate() {
                let raw = *value;
                if let Some(d) = self.dimensions.get(at) {
                    *value = match self.mode {
                        NormMode::MeanStd => (raw - d.origin) / d.scale,
                        _ => 2.0 * (raw - d.origin) / d.scale - 1.0,
                    };
                }
                if !value.is_finite() {
                    return Err(ProcessorError::NotFinite {
                        feature: self.feature.clone(),
                        dimension: at,
                        value: raw,
                        index: None,
                    });
                }
            }
        }
        Ok(())
    }

    /// The way back, in place.
    pub fn unnormalise(&self, values: &mut [f32]) {
        for row in values.chunks_mut(self.width.max(1)) {
            for (value, d) in row.iter_mut().zip(&self.dimensions) {
                *value = match self.mode {
                    NormMode::MeanStd => *value * d.back + d.origin,
                    _ => (*value + 1.0) / 2.0 * d.back + d.origin,
                };
            }
        }
    }
}

fn dimension(mode: NormMode, a: f32, b: f32) -> Dimension {
    match mode {
        NormMode::MeanStd => Dimension { origin: a, scale: b + EPS, back: b },
        _ => {
            let range = if b == a { EPS } else { b - a };
            Dimension { origin: a, scale: range, back: range }
        }
    }
}

/// The two statistics that `mode` reads: mean and std, or lower and upper bound.
pub(super) fn bounds<'a>(
    feature: &str,
    mode: NormMode,
    stats: Option<&'a FeatureStats>,
) -> Result<(&'a [f64], &'a [f64]), ProcessorError> {
    let missing =
        |needed| ProcessorError::MissingStatistics { feature: feature.to_owned(), needed, mode: mode_name(mode) };
    let stats = stats.ok_or_else(|| missing("the feature"))?;
    let both = |lower: &'a Option<Vec<f64>>, upper: &'a Option<Vec<f64>>, needed| match (lower, upper) {
        (Some(lower), Some(upper)) => Ok((lower.as_slice(), upper.as_slice())),
        _ => Err(missing(needed)),
    };
    let present = |lower: &'a Vec<f64>, upper: &'a Vec<f64>, needed| {
        if lower.is_empty() || upper.is_empty() {
            Err(missing(needed))
        } else {
            Ok((lower.as_slice(), upper.as_slice()))
        }
    };
    match mode {
        NormMode::Quantiles => both(&stats.q01, &stats.q99, "q01 and q99"),
        NormMode::Quantile10 => both(&stats.q10, &stats.q90, "q10 and q90"),
        NormMode::MeanStd => present(&stats.mean, &stats.std, "mean and std"),
        NormMode::MinMax => present(&stats.min, &stats.max, "min and max"),
        NormMode::Identity => Ok((&[], &[])),
    }
}

/// The mode as LeRobot's files spell it.
pub fn mode_name(mode: NormMode) -> &'static str {
    match mode {
        NormMode::Quantiles => "QUANTILES",
        NormMode::Quantile10 => "QUANTILE10",
        NormMode::MeanStd => "MEAN_STD",
        NormMode::MinMax => "MIN_MAX",
        NormMode::Identity => "IDENTITY",
    }
}

/// The mode that LeRobot's files spell `name`.
pub fn mode_named(name: &str) -> Option<NormMode> {
    [NormMode::Quantiles, NormMode::Quantile10, NormMode::MeanStd, NormMode::MinMax, NormMode::Identity]
        .into_iter()
        .find(|&mode| mode_name(mode) == name)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Golden, close_relatively};
    use super::*;

    fn stats(golden: &Golden, feature: &str) -> FeatureStats {
        let read = |name: &str| -> Vec<f64> {
            golden.f32(&format!("stats.{feature}.{name}")).into_iter().map(f64::from).collect()
        };
        FeatureStats {
            min: read("min"),
            max: read("max"),
            mean: read("mean"),
            std: read("std"),
            count: read("count")[0] as u64,
            q01: Some(read("q01")),
            q10: Some(read("q10")),
            q50: Some(read("q50")),
            q90: Some(read("q90")),
            q99: Some(read("q99")),
        }
    }

    #[test]
    fn all_modes_are_lerobots_forward_and_back_constant_dimensions_included() {
        let golden = Golden::open("preprocessing/normalisation.safetensors");
        for mode in [NormMode::Quantiles, NormMode::MeanStd, NormMode::MinMax, NormMode::Quantile10] {
            let name = mode_name(mode);
            let state =
                Normaliser::new("observation.state", 8, mode, Some(&stats(&golden, "observation.state"))).unwrap();
            let action = Normaliser::new("action", 7, mode, Some(&stats(&golden, "action"))).unwrap();
            let mut values = golden.f32("state");
            state.normalise(&mut values).unwrap();
            close_relatively(&values, &golden.f32(&format!("{name}.state_normalized")), 1e-6, name);
            let mut values = golden.f32("action");
            action.normalise(&mut values).unwrap();
            close_relatively(&values, &golden.f32(&format!("{name}.action_normalized")), 1e-6, name);
            action.unnormalise(&mut values);
            close_relatively(&values, &golden.f32(&format!("{name}.action_roundtrip")), 1e-6, name);
            let mut values = golden.f32("model_action");
            action.unnormalise(&mut values);
            close_relatively(&values, &golden.f32(&format!("{name}.model_action_unnormalized")), 1e-6, name);
        }
    }

    #[test]
    fn identity_needs_no_statistics_and_changes_nothing() {
        let normaliser = Normaliser::new("action", 2, NormMode::Identity, None).unwrap();
        let mut values = [3.0, -4.0];
        normaliser.normalise(&mut values).unwrap();
        normaliser.unnormalise(&mut values);
        assert_eq!(values, [3.0, -4.0]);
    }

    #[test]
    fn what_is_missing_or_not_finite_is_named() {
        let v21 = FeatureStats { mean: vec![0.0; 2], std: vec![1.0; 2], ..FeatureStats::default() };
        let error = Normaliser::new("action", 2, NormMode::Quantiles, Some(&v21)).unwrap_err();
        assert_eq!(error.to_string(), "no statistics of action: the normalisation mode QUANTILES needs q01 and q99");
        let error = Normaliser::new("action", 3, NormMode::MeanStd, Some(&v21)).unwrap_err();
        assert!(matches!(error, ProcessorError::Length { found: 2, expected: 3, .. }));
        let normaliser = Normaliser::new("action", 2, NormMode::MeanStd, Some(&v21)).unwrap();
        let error = normaliser.normalise(&mut [0.0, 0.0, 1.0, f32::NAN]).unwrap_err();
        assert_eq!(error.to_string(), "action[1] is NaN");
    }
}
