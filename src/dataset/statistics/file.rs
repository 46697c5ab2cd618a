//! The statistics that a dataset brings along: `meta/stats.json` (v3.0), `meta/episodes_stats.jsonl` (v2.1).

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::dataset::error::DatasetError;
use crate::dataset::files::{read_json_lines, read_text};
use crate::dataset::stats::{FeatureStats, Statistics};

/// `meta/stats.json`, or none where there is no such file. Values of images are flattened to one a channel.
pub fn read_file(root: &Path) -> Result<Option<Statistics>, DatasetError> {
    let path = root.join("meta/stats.json");
    if !path.is_file() {
        return Ok(None);
    }
    let value: Value = serde_json::from_str(&read_text(&path)?)
        .map_err(|error| DatasetError::metadata(&path, format!("not valid JSON: {error}")))?;
    parse(&value).map(Some).map_err(|message| DatasetError::metadata(path, message))
}

/// `meta/episodes_stats.jsonl`, aggregated over `episodes` (none: all) as LeRobot does; none where there is no such
/// file. There are no quantiles: they cannot be aggregated.
pub fn read_aggregated(root: &Path, episodes: Option<&[usize]>) -> Result<Option<Statistics>, DatasetError> {
    let path = root.join("meta/episodes_stats.jsonl");
    if !path.is_file() {
        return Ok(None);
    }
    let mut parts: BTreeMap<String, Vec<FeatureStats>> = BTreeMap::new();
    for (line, value) in read_json_lines(&path)? {
        let wanted = |number: u64| episodes.is_none_or(|episodes| episodes.iter().any(|&e| e as u64 == number));
        if !value.get("episode_index").and_then(Value::as_u64).is_some_and(wanted) {
            continue;
        }
        let stats = value.get("stats").ok_or_else(|| format!("line {line}: stats is missing"));
        let stats = stats.and_then(|stats| parse(stats).map_err(|message| format!("line {line}: {message}")));
        for (feature, stats) in stats.map_err(|message| DatasetError::metadata(&path, message))? {
            parts.entry(feature).or_default().push(stats);
        }
    }
    let aggregated = parts.into_iter().map(|(feature, parts)| match aggregate(&parts) {
        Some(stats) => Ok((feature, stats)),
        None => Err(DatasetError::metadata(&path, format!("{feature}: the episodes' statistics differ in shape"))),
    });
    aggregated.collect::<Result<Statistics, _>>().map(Some)
}

fn parse(value: &Value) -> Result<Statistics, String> {
    let features = value.as_object().ok_or("expected a table of features")?;
    let parse = |(feature, value): (&String, &Value)| match feature_stats(value) {
        Ok(stats) => Ok((feature.clone(), stats)),
        Err(message) => Err(format!("{feature}: {message}")),
    };
    features.iter().map(parse).collect()
}

fn feature_stats(value: &Value) -> Result<FeatureStats, String> {
    let optional = |key: &str| value.get(key).map(|value| flat(value).ok_or(format!("{key} does not hold numbers")));
    let required = |key: &str| optional(key).unwrap_or_else(|| Err(format!("{key} is missing")));
    let count = required("count")?.first().copied().unwrap_or(0.0);
    Ok(FeatureStats {
        min: required("min")?,
        max: required("max")?,
        mean: required("mean")?,
        std: required("std")?,
        // Not a size of anything in memory: an absurd number saturates and is told apart later.
        count: count as u64,
        q01: optional("q01").transpose()?,
        q10: optional("q10").transpose()?,
        q50: optional("q50").transpose()?,
        q90: optional("q90").transpose()?,
        q99: optional("q99").transpose()?,
    })
}

/// All numbers of nested lists, in order.
fn flat(value: &Value) -> Option<Vec<f64>> {
    match value {
        Value::Number(number) => Some(vec![number.as_f64()?]),
        Value::Array(items) => items.iter().map(flat).collect::<Option<Vec<_>>>().map(|parts| parts.concat()),
        _ => None,
    }
}

/// Weighted by frames: `mean = Σ nᵢ mᵢ / Σ nᵢ`, `var = Σ nᵢ (vᵢ + (mᵢ − mean)²) / Σ nᵢ`, in the order of operations of
/// LeRobot's `aggregate_feature_stats`, so that the result is the same to the last bit.
fn aggregate(parts: &[FeatureStats]) -> Option<FeatureStats> {
    let width = parts.first()?.mean.len();
    let same = |part: &FeatureStats| [&part.min, &part.max, &part.mean, &part.std].iter().all(|v| v.len() == width);
    if !parts.iter().all(same) {
        return None;
    }
    let count = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.count));
    let n = count as f64;
    let mut total = FeatureStats { count, ..FeatureStats::default() };
    for dimension in 0..width {
        let over = |f: &dyn Fn(&FeatureStats) -> f64| parts.iter().map(f).fold(0.0, |sum, term| sum + term);
        let mean = over(&|part| part.mean[dimension] * part.count as f64) / n;
        let term = |part: &FeatureStats| {
            let delta = part.mean[dimension] - mean;
            (part.std[dimension] * part.std[dimension] + delta * delta) * part.count as f64
        };
        total.mean.push(mean);
        total.std.push((over(&term) / n).sqrt());
        total.min.push(parts.iter().map(|part| part.min[dimension]).fold(f64::INFINITY, f64::min));
        total.max.push(parts.iter().map(|part| part.max[dimension]).fold(f64::NEG_INFINITY, f64::max));
    }
    Some(total)
}
