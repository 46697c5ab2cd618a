//! A dataset's own statistics against those of its rows: stale ones ruin a run silently.

use crate::dataset::finding::{Finding, Severity};
use crate::dataset::meta::Feature;
use crate::dataset::stats::FeatureStats;

/// Differences above this share of a dimension's std are reported.
const TOLERANCE: f64 = 0.03;

/// Findings about the statistics `theirs` of `feature`, given the true ones.
///
/// Quantiles are left out: LeRobot's are averages over episodes and differ from true ones without being stale.
pub fn compare(feature: &Feature, theirs: &FeatureStats, ours: &FeatureStats) -> Vec<Finding> {
    let warn = |code: &'static str, message: String| Finding {
        severity: Severity::Warning,
        code,
        message,
        fix: Some("nothing needs doing: the statistics of the data itself are used".into()),
    };
    if let Some(reason) = theirs.impossible() {
        let message = format!("{}: the dataset's own statistics are impossible ({reason})", feature.name);
        return vec![warn("statistics-impossible", message)];
    }
    if theirs.mean.len() != ours.mean.len() {
        let message = format!(
            "{}: the dataset's own statistics have {} dimensions, the data {}",
            feature.name,
            theirs.mean.len(),
            ours.mean.len()
        );
        return vec![warn("statistics-stale", message)];
    }
    let mut worst: Option<(f64, String)> = None;
    let pairs = [("mean", &theirs.mean, &ours.mean), ("std", &theirs.std, &ours.std)];
    let bounds = [("min", &theirs.min, &ours.min), ("max", &theirs.max, &ours.max)];
    for (name, theirs, truth) in pairs.into_iter().chain(bounds) {
        for (dimension, ((&their, &our), &std)) in theirs.iter().zip(truth).zip(&ours.std).enumerate() {
            // A dimension that stands still is compared against the size of its value.
            let scale = if std > 0.0 { std } else { our.abs().max(1e-6) };
            let off = (their - our).abs() / scale;
            if off > TOLERANCE && worst.as_ref().is_none_or(|(most, _)| off > *most) {
                let label = feature.dimension_name(dimension);
                worst = Some((off, format!("{name}[{dimension}] ({label}) is {their}, the data gives {our}")));
            }
        }
    }
    match worst {
        Some((off, what)) => {
            let message = format!(
                "{}: the dataset's own statistics are stale: {what}, {:.0} % of std apart",
                feature.name,
                off * 100.0
            );
            vec![warn("statistics-stale", message)]
        }
        None => Vec::new(),
    }
}
