//! Statistics of a dataset: exact over the selected frames, cached; and those that the dataset brings along.
//!
//! The file's own cannot be trusted for quantiles (v2.1 has none; v3.0 averages those of the episodes) and describe
//! all episodes, whatever is selected. So ours are computed from the rows, and the file's serve for comparison.
//! Images need none: π models take them as they are.

mod cache;
mod compare;
mod compute;
mod file;

pub use compare::compare;
pub use compute::feature_stats;
pub(in crate::dataset) use compute::{LEVELS, quantile, stats_of};
pub use file::{read_aggregated, read_file};

use super::error::DatasetError;
use super::finding::{Finding, Severity};
use super::meta::{Feature, Layout, Metadata};
use super::reader::{ACTION, Dataset, STATE};
use super::stats::{FeatureStats, Statistics};

/// Statistics of state and action over the selected frames (under the names after the rename), and what is to be said
/// about them.
#[derive(Debug, Clone)]
pub struct Computed {
    pub statistics: Statistics,
    /// Taken from the cache.
    pub cached: bool,
    pub findings: Vec<Finding>,
}

/// Computes the statistics of `dataset`, or takes them from the cache in [`crate::config::paths::cache_dir`], and
/// compares them with the dataset's own.
pub fn of(dataset: &Dataset) -> Result<Computed, DatasetError> {
    of_cached_in(dataset, &crate::config::paths::cache_dir().join("statistics"))
}

/// As [`of`], with the cache in `directory`.
pub fn of_cached_in(dataset: &Dataset, directory: &std::path::Path) -> Result<Computed, DatasetError> {
    let entry = cache::Entry::of(dataset, directory);
    let mut findings = Vec::new();
    let found = entry.as_ref().and_then(cache::Entry::load);
    let cached = found.is_some();
    let statistics = match found {
        Some(statistics) => statistics,
        None => {
            let statistics = compute_all(dataset)?;
            if let Some(Err(error)) = entry.map(|entry| entry.store(&statistics)) {
                findings.push(Finding {
                    severity: Severity::Note,
                    code: "statistics-not-cached",
                    message: format!("the statistics could not be cached and will be computed again: {error}"),
                    fix: Some("set VLASH_CACHE to a directory that can be written".into()),
                });
            }
            statistics
        }
    };
    findings.extend(compare_with_file(dataset, &statistics));
    Ok(Computed { statistics, cached, findings })
}

/// Statistics of state and action, computed from the rows in memory.
pub fn compute_all(dataset: &Dataset) -> Result<Statistics, DatasetError> {
    let mut statistics = Statistics::new();
    let matrices = |take: for<'a> fn(&'a super::rows::EpisodeRows) -> &'a [f32]| {
        dataset.episodes().iter().map(move |episode| (episode.meta.index, take(&episode.rows))).collect::<Vec<_>>()
    };
    if let Some(state) = dataset.state_feature() {
        let rows = matrices(|rows| &rows.state);
        statistics.insert(STATE.into(), checked(state, &rows)?);
    }
    let rows = matrices(|rows| &rows.action);
    statistics.insert(ACTION.into(), checked(dataset.action_feature(), &rows)?);
    Ok(statistics)
}

fn checked(feature: &Feature, episodes: &[(usize, &[f32])]) -> Result<FeatureStats, DatasetError> {
    let width = feature.dimensions().max(1);
    for (episode, values) in episodes {
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            return Err(DatasetError::NotFinite {
                feature: feature.name.clone(),
                dimension: at % width,
                name: feature.dimension_name(at % width),
                value: values.get(at).copied().unwrap_or_default(),
                episode: *episode,
                frame: at / width,
            });
        }
    }
    let values: Vec<&[f32]> = episodes.iter().map(|(_, values)| *values).collect();
    Ok(feature_stats(&values, width))
}

fn compare_with_file(dataset: &Dataset, computed: &Statistics) -> Vec<Finding> {
    let selected: Vec<usize> = dataset.episodes().iter().map(|episode| episode.meta.index).collect();
    let features = [(STATE, dataset.state_feature()), (ACTION, Some(dataset.action_feature()))];
    let truth: Vec<_> = features.into_iter().filter_map(|(name, feature)| Some((feature?, computed.get(name)?))).collect();
    compare_with_own(dataset.meta(), &selected, &truth)
}

/// Compares the true statistics of features over the episodes `selected` with the dataset's own, where those cover
/// the same frames.
pub fn compare_with_own(meta: &Metadata, selected: &[usize], truth: &[(&Feature, &FeatureStats)]) -> Vec<Finding> {
    let complete = selected.len() == meta.episodes.len();
    let own = match meta.info.layout {
        Layout::V21 => read_aggregated(&meta.root, Some(selected)),
        Layout::V30 if complete => read_file(&meta.root),
        Layout::V30 => return Vec::new(),
    };
    let own = match own {
        Ok(Some(own)) => own,
        Ok(None) => return Vec::new(),
        Err(error) => {
            return vec![Finding {
                severity: Severity::Warning,
                code: "statistics-unreadable",
                message: format!(
                    "the dataset's own statistics cannot be read and were computed from the data: {error}"
                ),
                fix: None,
            }];
        }
    };
    let compared = truth.iter().filter_map(|(feature, ours)| Some(compare(feature, own.get(&feature.name)?, ours)));
    compared.flatten().collect()
}

#[cfg(test)]
mod tests;
