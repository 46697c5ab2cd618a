//! Whether a dataset can be trained on: everything that its files tell, in one run, before any GPU time.
//!
//! The readers of this room stop at the first error; a check must not. So it reads `meta/` once (without it there is
//! nothing to check) and from there on looks at every file by itself: [`declared`] at the declarations, [`files`] at
//! what is here, [`rows`] and [`values`] at the parquet rows, [`pictures`] at videos and stills. [`Collector`] turns
//! what they find into a [`Report`] and a selection of episodes that works.
//!
//! What needs a policy (prompt lengths, camera slots) is added by the caller with [`Report::push`].

mod collector;
mod declared;
mod files;
mod pictures;
mod report;
mod rows;
mod values;

use std::path::Path;

use super::finding::Severity;
use super::meta::{Episode, Metadata};
use super::statistics::compare_with_own;
use super::{ACTION, STATE, Selection};

pub use report::{CameraFacts, Facts, Report};

use collector::Collector;

/// What to check.
#[derive(Debug, Clone)]
pub struct Options {
    /// Episodes and cameras to look at, and the renames that the training would use.
    pub selection: Selection,
    /// Decode every frame, not only three a file.
    pub deep: bool,
    /// Actions that are predicted at once.
    pub horizon: usize,
    /// The smallest range of a dimension that is not constant (`normalization.min_range`).
    pub min_range: f64,
}

impl Default for Options {
    fn default() -> Self {
        Options { selection: Selection::default(), deep: false, horizon: 50, min_range: 0.02 }
    }
}

/// Checks the dataset in the directory `root`. Every problem becomes a finding, also that there is no dataset.
pub fn check(root: &Path, options: &Options) -> Report {
    let mut collector = Collector::default();
    let facts = match Metadata::read(root) {
        Ok(meta) => {
            collector.extend(meta.findings.iter().cloned());
            Some(check_dataset(&meta, options, &mut collector))
        }
        Err(error) => {
            collector.error(&error);
            None
        }
    };
    let selected = facts.as_ref().map_or(Vec::new(), |facts| facts.selected.clone());
    let (findings, unusable) = collector.finish(&selected);
    let facts = facts.map(|facts| Facts { unusable, ..facts });
    Report { dataset: root.to_path_buf(), facts, findings }
}

fn check_dataset(meta: &Metadata, options: &Options, collector: &mut Collector) -> Facts {
    let selection = &options.selection;
    let selected = episodes(meta, selection, collector);
    let cameras = declared::cameras(meta, selection, collector);
    let state = declared::vector(meta, STATE, &selection.rename, collector);
    let action = declared::vector(meta, ACTION, &selection.rename, collector);
    declared::windows(&selected, options.horizon, collector);
    declared::video_drift(meta, &selected, collector);

    let present = files::check(meta, &selected, &cameras, collector);
    let vectors: Vec<_> = [state, action].into_iter().flatten().collect();
    let series = rows::check(meta, &present, &vectors, &cameras, options.deep, collector);
    for series in &series {
        values::check(series, options.min_range, collector);
    }
    if let [state, action] = series.as_slice() {
        values::delay_proxy(state, action, collector);
    }
    statistics(meta, &selected, &series, collector);
    pictures::check_videos(meta, &present, &cameras, options.deep, collector);

    Facts {
        version: meta.info.layout.version(),
        fps: meta.info.fps,
        episodes: meta.episodes.len(),
        selected: selected.iter().map(|episode| episode.index).collect(),
        unusable: Vec::new(),
        frames: selected.iter().map(|episode| episode.length).sum(),
        cameras: cameras.iter().map(report::CameraFacts::from).collect(),
        state: state.map(|feature| feature.dimensions()),
        action: action.map(|feature| feature.dimensions()),
    }
}

/// The episodes asked for, without those that do not exist.
fn episodes<'a>(meta: &'a Metadata, selection: &Selection, collector: &mut Collector) -> Vec<&'a Episode> {
    let Some(wanted) = &selection.episodes else { return meta.episodes.iter().collect() };
    let mut selected: Vec<&Episode> = Vec::new();
    for &number in wanted {
        match meta.episode(number) {
            Ok(episode) if selected.iter().any(|known| known.index == number) => {
                let message = format!("the selection names episode {} twice", episode.index);
                collector.push(Severity::Error, "selection", message, None);
            }
            Ok(episode) => selected.push(episode),
            Err(error) => collector.error(&error),
        }
    }
    selected
}

/// The dataset's own statistics against those of its rows, where all rows could be read.
fn statistics(meta: &Metadata, selected: &[&Episode], series: &[values::Series], collector: &mut Collector) {
    let numbers: Vec<usize> = selected.iter().map(|episode| episode.index).collect();
    let whole = series.iter().filter(|series| series.is_finite() && series.covers(numbers.len()));
    let truth: Vec<_> = whole.map(|series| (series.feature, series.statistics())).collect();
    let truth: Vec<_> = truth.iter().map(|(feature, stats)| (*feature, stats)).collect();
    collector.extend(compare_with_own(meta, &numbers, &truth));
}
