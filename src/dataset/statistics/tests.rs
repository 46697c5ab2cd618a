use std::path::{Path, PathBuf};

use rstest::rstest;
use safetensors::{Dtype, SafeTensors};

use super::*;
use crate::dataset::reader::Selection;
use crate::dataset::stats::FeatureStats;

fn fixture(name: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/datasets")).join(name)
}

fn open(name: &str, episodes: Option<Vec<usize>>) -> Dataset {
    Dataset::open(&fixture(name), Selection { episodes, ..Selection::default() }).unwrap()
}

/// The reference keeps bounds of integer features as integers.
fn numbers(tensors: &SafeTensors<'_>, name: &str) -> Option<Vec<f64>> {
    let tensor = tensors.tensor(name).ok()?;
    let words = tensor.data().chunks_exact(8).map(|bytes| bytes.try_into().unwrap());
    Some(match tensor.dtype() {
        Dtype::I64 => words.map(|bytes| i64::from_le_bytes(bytes) as f64).collect(),
        _ => words.map(f64::from_le_bytes).collect(),
    })
}

/// The statistics as LeRobot's reader returns them: to the last bit, features, images and index columns alike.
#[rstest]
#[case("v30-av1", 10)]
#[case("v30-h264", 10)]
#[case("v21", 5)]
fn the_files_statistics_are_those_of_the_reference(#[case] name: &str, #[case] per_feature: usize) {
    let golden = std::fs::read(fixture(&format!("{name}.golden-stats.safetensors"))).unwrap();
    let golden = SafeTensors::deserialize(&golden).unwrap();
    let ours = if name == "v21" { read_aggregated(&fixture(name), None) } else { read_file(&fixture(name)) };
    let ours = ours.unwrap().unwrap();
    let mut compared = 0;
    for (feature, stats) in &ours {
        let FeatureStats { min, max, mean, std, count, .. } = stats;
        let quantiles = stats.quantiles().into_iter().filter_map(|(name, _, values)| Some((name, values?)));
        for (key, values) in [("min", min), ("max", max), ("mean", mean), ("std", std)].into_iter().chain(quantiles) {
            assert_eq!(Some(values), numbers(&golden, &format!("{feature}.{key}")).as_ref(), "{feature}.{key}");
            compared += 1;
        }
        assert_eq!(numbers(&golden, &format!("{feature}.count")), Some(vec![*count as f64]));
        compared += 1;
    }
    assert_eq!(compared, golden.len());
    assert_eq!(compared, ours.len() * per_feature);
}

#[rstest]
#[case("v30-av1")]
#[case("v21")]
fn computed_statistics_agree_with_the_files_and_are_found_again(#[case] name: &str) {
    let cache = tempfile::tempdir().unwrap();
    let dataset = open(name, None);
    let first = of_cached_in(&dataset, cache.path()).unwrap();
    assert!(!first.cached);
    assert_eq!(first.findings, []);
    let own = if name == "v21" { read_aggregated(&fixture(name), None) } else { read_file(&fixture(name)) };
    let own = own.unwrap().unwrap();
    for feature in [STATE, ACTION] {
        let (ours, theirs) = (&first.statistics[feature], &own[feature]);
        assert_eq!((&ours.min, &ours.max, ours.count), (&theirs.min, &theirs.max, theirs.count));
        // The reference computes an episode's mean in f32.
        let near = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 2e-6 * (1.0 + b.abs()));
        assert!(near(&ours.mean, &theirs.mean) && near(&ours.std, &theirs.std));
    }
    let again = of_cached_in(&dataset, cache.path()).unwrap();
    assert!(again.cached);
    assert_eq!(again.statistics, first.statistics);
    let subset = of_cached_in(&open(name, Some(vec![2, 0])), cache.path()).unwrap();
    assert!(!subset.cached);
    assert_ne!(subset.statistics, first.statistics);
}

#[test]
fn stale_statistics_are_reported_with_the_dimension_and_both_numbers() {
    let dataset = open("v30-av1", None);
    let truth = compute_all(&dataset).unwrap();
    let mut stale = truth[ACTION].clone();
    stale.mean[6] += 0.2 * stale.std[6];
    let findings = compare(dataset.action_feature(), &stale, &truth[ACTION]);
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].code, "statistics-stale");
    assert!(findings[0].message.contains("mean[6] (gripper.pos)"), "{}", findings[0].message);
    assert!(findings[0].message.contains("20 % of std"), "{}", findings[0].message);
    stale.mean[6] = f64::NAN;
    assert_eq!(compare(dataset.action_feature(), &stale, &truth[ACTION])[0].code, "statistics-impossible");
}
