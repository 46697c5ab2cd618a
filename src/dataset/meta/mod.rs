//! `meta/`: what a dataset says about itself. Reads no frame data.
//!
//! Format: LeRobot v2.1 and v3.0, after LeRobot's `datasets/utils.py` and `lerobot_dataset.py`.

mod episode;
mod feature;
mod info;
mod layout;
mod task;
mod template;

use std::path::{Path, PathBuf};

pub use episode::{Episode, VideoSpan};
pub use feature::{Feature, FeatureKind, ImageShape};
pub use info::Info;
pub use layout::Layout;
pub use task::Tasks;
pub use template::{Place, Placeholder, Template};

use super::error::DatasetError;
use super::finding::{Finding, Severity};

/// Everything in `meta/` but the statistics (see [`super::statistics`]).
#[derive(Debug, Clone)]
pub struct Metadata {
    pub root: PathBuf,
    pub info: Info,
    pub tasks: Tasks,
    /// By ascending episode number; numbers may have gaps.
    pub episodes: Vec<Episode>,
    /// What was unusual but could be read.
    pub findings: Vec<Finding>,
}

impl Metadata {
    /// Reads `root/meta`. The layout decides the version (FF-01).
    pub fn read(root: &Path) -> Result<Metadata, DatasetError> {
        let mut findings = Vec::new();
        let info = Info::read(root, &mut findings)?;
        let tasks = Tasks::read(root, info.layout)?;
        let episodes = episode::read(root, &info)?;
        compare_totals(&info, &tasks, &episodes, &mut findings);
        Ok(Metadata { root: root.to_path_buf(), info, tasks, episodes, findings })
    }

    /// The episode numbered `number`.
    pub fn episode(&self, number: usize) -> Result<&Episode, DatasetError> {
        self.episodes
            .binary_search_by_key(&number, |episode| episode.index)
            .ok()
            .and_then(|at| self.episodes.get(at))
            .ok_or_else(|| DatasetError::UnknownEpisode {
                episode: number,
                known: self.episodes.iter().map(|episode| episode.index).collect(),
            })
    }

    /// Path of the parquet file with the rows of `episode`, below [`Metadata::root`].
    pub fn data_path(&self, episode: &Episode) -> PathBuf {
        self.info.data_path.expand(episode.data, "")
    }

    /// Path of the video file of `camera` (a video feature) for `episode`, below [`Metadata::root`].
    pub fn video_path(&self, episode: &Episode, camera: &str) -> Option<PathBuf> {
        let span = episode.videos.iter().find(|span| *span.camera == *camera)?;
        Some(self.info.video_path.as_ref()?.expand(span.place, camera))
    }

    /// Names of all image and video features, in the order of `info.json`.
    pub fn cameras(&self) -> impl Iterator<Item = &Feature> {
        self.info.features.iter().filter(|feature| feature.is_camera())
    }

    /// The episodes whose parquet file is here; a partial download holds a subset.
    pub fn present_episodes(&self) -> Vec<usize> {
        let here = |episode: &&Episode| self.root.join(self.data_path(episode)).is_file();
        self.episodes.iter().filter(here).map(|episode| episode.index).collect()
    }
}

fn compare_totals(info: &Info, tasks: &Tasks, episodes: &[Episode], findings: &mut Vec<Finding>) {
    let frames = episodes.iter().try_fold(0usize, |sum, episode| sum.checked_add(episode.length));
    let totals = [
        ("total_episodes", info.total_episodes, Some(episodes.len())),
        ("total_frames", info.total_frames, frames),
        ("total_tasks", info.total_tasks, Some(tasks.len())),
    ];
    for (key, declared, found) in totals {
        if let (Some(declared), Some(found)) = (declared, found)
            && declared != found
        {
            findings.push(Finding {
                severity: Severity::Warning,
                code: "totals",
                message: format!("info.json: {key} is {declared}, but the tables in meta/ hold {found}"),
                fix: Some(format!("\"{key}\": {found}")),
            });
        }
    }
}
