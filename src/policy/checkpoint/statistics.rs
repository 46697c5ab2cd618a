//! Statistics in a checkpoint: LeRobot's state files, and the buffers that older policies keep among their weights.

use std::collections::BTreeMap;
use std::path::Path;

use candle_core::{Device, Tensor};

use super::config::Features;
use super::error::CheckpointError;
use super::store::Store;
use crate::dataset::stats::{FeatureStats, Statistics};

/// Statistics by the names under which LeRobot stores them.
const STATS: [&str; 9] = ["min", "max", "mean", "std", "q01", "q10", "q50", "q90", "q99"];

/// `"<feature>.<stat>"` tensors, f32 (what a checkpoint stores, whatever the dataset had).
pub fn to_tensors(statistics: &Statistics) -> Vec<(String, Vec<f32>)> {
    let mut tensors = Vec::new();
    for (feature, stats) in statistics {
        tensors.push((format!("{feature}.count"), vec![stats.count as f32]));
        for name in STATS {
            if let Some(values) = values(stats, name).filter(|values| !values.is_empty()) {
                tensors.push((format!("{feature}.{name}"), values.iter().map(|&v| v as f32).collect()));
            }
        }
    }
    tensors
}

fn values<'a>(stats: &'a FeatureStats, name: &str) -> Option<&'a Vec<f64>> {
    match name {
        "min" => Some(&stats.min),
        "max" => Some(&stats.max),
        "mean" => Some(&stats.mean),
        "std" => Some(&stats.std),
        "q01" => stats.q01.as_ref(),
        "q10" => stats.q10.as_ref(),
        "q50" => stats.q50.as_ref(),
        "q90" => stats.q90.as_ref(),
        _ => stats.q99.as_ref(),
    }
}

/// Sets one statistic; false when the name is none.
fn set(stats: &mut FeatureStats, name: &str, values: Vec<f64>) -> bool {
    match name {
        "count" => stats.count = values.first().copied().unwrap_or(0.0) as u64,
        "min" => stats.min = values,
        "max" => stats.max = values,
        "mean" => stats.mean = values,
        "std" => stats.std = values,
        "q01" => stats.q01 = Some(values),
        "q10" => stats.q10 = Some(values),
        "q50" => stats.q50 = Some(values),
        "q90" => stats.q90 = Some(values),
        "q99" => stats.q99 = Some(values),
        _ => return false,
    }
    true
}

/// Reads a state file: `observation.state.q01`, `action.mean`, …
pub fn read_state_file(path: &Path) -> Result<Statistics, CheckpointError> {
    let store = Store::file(path)?;
    let problem = |problem: String| CheckpointError::Statistics { path: path.to_owned(), problem };
    let mut statistics = Statistics::new();
    for name in store.tensors().keys() {
        let (feature, stat) = name.rsplit_once('.').ok_or_else(|| problem(format!("{name} names no statistic")))?;
        let numbers = numbers(&store, name).map_err(problem)?;
        // Statistics of the future are nobody's harm; those that are used are asked for by name.
        let _known = set(statistics.entry(feature.to_owned()).or_default(), stat, numbers);
    }
    Ok(statistics)
}

fn numbers(store: &Store, name: &str) -> Result<Vec<f64>, String> {
    let stored = store.tensors().get(name).ok_or_else(|| format!("no {name}"))?;
    let dtype = candle_core::DType::try_from(stored.dtype).map_err(|e| format!("{name}: {e}"))?;
    let bytes = store.bytes(name).unwrap_or_default();
    Tensor::from_raw_buffer(bytes, dtype, &stored.shape, &Device::Cpu)
        .and_then(|tensor| tensor.flatten_all()?.to_dtype(candle_core::DType::F64)?.to_vec1())
        .map_err(|e| format!("{name}: {e}"))
}

/// Prefixes under which older LeRobot and all VLASH policies keep statistics among their weights.
const BUFFERS: [&str; 7] = [
    "normalize_inputs.",
    "normalize_targets.",
    "unnormalize_outputs.",
    "normalize.",
    "unnormalize.",
    "input_normalizer.",
    "output_normalizer.",
];

/// Statistics from buffers such as `normalize_inputs.buffer_observation_state.mean`; none when there are no buffers.
///
/// The dots of a feature's name are underscores there, so the name is found by encoding each known feature the same
/// way (turning every underscore into a dot breaks `left_wrist`).
///
/// # Errors
/// A buffer of infinities was never filled.
pub fn read_buffers(
    store: &Store,
    features: [&Features; 2],
    path: &Path,
) -> Result<Option<Statistics>, CheckpointError> {
    let problem = |problem: String| CheckpointError::Statistics { path: path.to_owned(), problem };
    let encoded: BTreeMap<String, &String> =
        features.iter().flat_map(|f| f.0.iter().map(|(name, _)| (name.replace('.', "_"), name))).collect();
    let mut statistics = Statistics::new();
    for name in store.tensors().keys() {
        let bare = name.strip_prefix("model.").unwrap_or(name);
        let Some(rest) = BUFFERS.iter().find_map(|prefix| bare.strip_prefix(prefix)) else { continue };
        let Some((buffer, stat)) = rest.rsplit_once('.') else { continue };
        let Some(feature) = encoded.get(buffer.strip_prefix("buffer_").unwrap_or(buffer)) else { continue };
        let numbers = numbers(store, name).map_err(problem)?;
        if numbers.iter().any(|number| !number.is_finite()) {
            return Err(problem(format!("{name} is not finite: these statistics were never filled in")));
        }
        let stats = statistics.entry((*feature).clone()).or_default();
        if set(stats, stat, numbers) {
            // The buffers do not say how many frames they come from; at least one.
            stats.count = stats.count.max(1);
        }
    }
    Ok((!statistics.is_empty()).then_some(statistics))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::checkpoint::config::Feature;
    use std::collections::HashMap;

    fn store(tensors: &[(&str, f32)]) -> (tempfile::TempDir, Store) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.safetensors");
        let map: HashMap<String, Tensor> = tensors
            .iter()
            .map(|(name, value)| ((*name).to_owned(), Tensor::full(*value, 3, &Device::Cpu).unwrap()))
            .collect();
        candle_core::safetensors::save(&map, &path).unwrap();
        let store = Store::file(&path).unwrap();
        (directory, store)
    }

    fn features() -> Features {
        let feature = |name: &str| (name.to_owned(), Feature { kind: "STATE".into(), shape: vec![3] });
        Features(vec![feature("observation.state"), feature("observation.images.left_wrist"), feature("action")])
    }

    #[test]
    fn buffers_are_found_by_encoding_the_features() {
        let (_keep, store) = store(&[
            ("model.normalize_inputs.buffer_observation_state.mean", 1.0),
            ("normalize_inputs.buffer_observation_images_left_wrist.std", 2.0),
            ("unnormalize_outputs.buffer_action.std", 3.0),
            ("action_in_proj.bias", 4.0),
        ]);
        let found = read_buffers(&store, [&features(), &Features::default()], Path::new("m")).unwrap().unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), ["action", "observation.images.left_wrist", "observation.state"]);
        assert_eq!(
            (&found["observation.state"].mean, found["action"].std[0], found["action"].count),
            (&vec![1.0; 3], 3.0, 1)
        );
    }

    #[test]
    fn unfilled_buffers_are_an_error_and_no_buffers_are_none() {
        let (_keep, unfilled) = store(&[("normalize_inputs.buffer_action.mean", f32::INFINITY)]);
        let error = read_buffers(&unfilled, [&features(), &Features::default()], Path::new("m")).unwrap_err();
        assert!(error.to_string().contains("never filled"), "{error}");
        let (_keep, plain) = store(&[("action_in_proj.bias", 4.0)]);
        assert_eq!(read_buffers(&plain, [&features(), &Features::default()], Path::new("m")).unwrap(), None);
    }
}
