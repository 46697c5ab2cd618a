//! A dataset opened for training: chosen episodes and cameras, samples by position.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::cameras::{self, Camera, CameraSource};
use super::error::DatasetError;
use super::finding::Finding;
use super::frame::RgbFrame;
use super::meta::{Episode, Feature, FeatureKind, Metadata, VideoSpan};
use super::rows::{EpisodeRows, Vectors, read_episodes};
use super::sample::Sample;
use super::still;
use super::table::Table;
use super::video::{PoolOptions, VideoPool};
use super::window::{StateSource, WindowSpec};

/// The feature that is the state, after `data.rename`.
pub const STATE: &str = "observation.state";
/// The feature that is the action, after `data.rename`.
pub const ACTION: &str = "action";

/// What to read of a dataset.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Episode numbers, in this order; none: all.
    pub episodes: Option<Vec<usize>>,
    /// Cameras by feature name; none: all that are not depth maps.
    pub cameras: Option<Vec<String>>,
    /// Dataset feature name → policy feature name.
    pub rename: BTreeMap<String, String>,
}

/// A selected episode with its rows.
#[derive(Debug, Clone)]
pub struct SelectedEpisode {
    pub meta: Episode,
    /// Position of its first frame among the selected frames.
    pub start: usize,
    pub rows: EpisodeRows,
}

/// An opened dataset. Positions count the frames of the selected episodes, in the selection's order.
///
/// Shared by loader threads: all methods take `&self`.
pub struct Dataset {
    meta: Metadata,
    episodes: Vec<SelectedEpisode>,
    cameras: Vec<Camera>,
    state: Option<Feature>,
    action: Feature,
    len: usize,
    videos: VideoPool,
    /// Footers of the parquet files that hold stills.
    tables: BTreeMap<PathBuf, Table>,
    findings: Vec<Finding>,
}

impl fmt::Debug for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Dataset");
        debug.field("root", &self.meta.root).field("episodes", &self.episodes.len()).field("frames", &self.len);
        debug.finish_non_exhaustive()
    }
}

impl Dataset {
    /// Opens the dataset in the directory `root`: reads `meta/` and the numeric rows of the selected episodes.
    ///
    /// Fails when a file that the selection needs is missing, when rows and episode table disagree, or when a frame's
    /// task is unknown. Opens no video: see [`Dataset::check_videos`].
    pub fn open(root: &Path, selection: Selection) -> Result<Dataset, DatasetError> {
        Dataset::open_with(root, selection, PoolOptions::default())
    }

    /// As [`Dataset::open`], with options for the video decoders.
    pub fn open_with(root: &Path, selection: Selection, options: PoolOptions) -> Result<Dataset, DatasetError> {
        let meta = Metadata::read(root)?;
        let mut findings = meta.findings.clone();
        let cameras = cameras::choose(&meta, selection.cameras.as_deref(), &selection.rename, &mut findings)?;
        let state = vector(&meta, STATE, &selection.rename).cloned();
        let action = vector(&meta, ACTION, &selection.rename).ok_or_else(|| missing_action(&meta))?.clone();
        let chosen = chosen_episodes(&meta, selection.episodes.as_deref())?;
        require_files(&meta, &chosen, &cameras)?;
        let rows = read_episodes(&meta, &chosen, Vectors { state: state.as_ref(), action: &action })?;
        let mut episodes = Vec::with_capacity(chosen.len());
        let mut len = 0;
        for (episode, rows) in chosen.into_iter().zip(rows) {
            check_tasks(&meta, episode, &rows)?;
            let start = len;
            len += rows.length;
            episodes.push(SelectedEpisode { meta: episode.clone(), start, rows });
        }
        let tables = open_tables(&meta, &episodes, &cameras)?;
        let videos = VideoPool::new(options);
        Ok(Dataset { meta, episodes, cameras, state, action, len, videos, tables, findings })
    }

    /// Selected frames.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no frame is selected.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What the whole dataset says about itself.
    pub fn meta(&self) -> &Metadata {
        &self.meta
    }

    /// The selected episodes, in the selection's order.
    pub fn episodes(&self) -> &[SelectedEpisode] {
        &self.episodes
    }

    #[cfg(test)]
    pub(super) fn episodes_mut(&mut self) -> &mut [SelectedEpisode] {
        &mut self.episodes
    }

    /// The cameras that samples carry, in order.
    pub fn cameras(&self) -> &[Camera] {
        &self.cameras
    }

    /// The feature that is read as the state.
    pub fn state_feature(&self) -> Option<&Feature> {
        self.state.as_ref()
    }

    /// The feature that is read as the action.
    pub fn action_feature(&self) -> &Feature {
        &self.action
    }

    /// Dimensions of the state; 0 without one.
    pub fn state_dim(&self) -> usize {
        self.state.as_ref().map_or(0, Feature::dimensions)
    }

    /// Dimensions of an action.
    pub fn action_dim(&self) -> usize {
        self.action.dimensions()
    }

    /// What was unusual but could be read; to be shown once.
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// What the video decoders have to say since they were last asked (a disk cache that cannot be written, …).
    pub fn take_video_findings(&self) -> Vec<Finding> {
        self.videos.take_findings()
    }

    /// The lengths of the selected episodes.
    pub fn lengths(&self) -> Vec<usize> {
        self.episodes.iter().map(|episode| episode.rows.length).collect()
    }

    /// The selected episode that `position` lies in, and the frame within it.
    pub fn locate(&self, position: usize) -> Result<(&SelectedEpisode, usize), DatasetError> {
        let after = self.episodes.partition_point(|episode| episode.start <= position);
        after
            .checked_sub(1)
            .and_then(|at| self.episodes.get(at))
            .map(|episode| (episode, position - episode.start))
            .filter(|(episode, frame)| *frame < episode.rows.length)
            .ok_or(DatasetError::OutOfRange { position, len: self.len })
    }

    /// The sample at `position`, its window `delay` frames later.
    pub fn sample(&self, position: usize, window: &WindowSpec, delay: usize) -> Result<Sample, DatasetError> {
        self.branches(position, window, vec![delay])
    }

    /// The sample at `position` with a branch for each of `delays`, in that order: images once, and of each branch what
    /// [`Dataset::sample`] gives for its delay.
    pub fn branches(&self, position: usize, window: &WindowSpec, delays: Vec<usize>) -> Result<Sample, DatasetError> {
        let (episode, frame) = self.locate(position)?;
        let rows = &episode.rows;
        let images = self
            .cameras
            .iter()
            .map(|camera| Ok((camera.name.clone(), self.image(episode, camera, frame)?)))
            .collect::<Result<Vec<_>, DatasetError>>()?;
        let steps = window.horizon.saturating_mul(delays.len());
        let mut state = Vec::with_capacity(self.state_dim().saturating_mul(delays.len()));
        let mut actions = Vec::with_capacity(steps.saturating_mul(self.action_dim()));
        let mut action_is_pad = Vec::with_capacity(steps);
        for &delay in &delays {
            state.extend_from_slice(match window.state(frame, delay, rows.length) {
                StateSource::State(frame) => row(&rows.state, self.state_dim(), frame),
                StateSource::Action(frame) => {
                    window.check(self.state_dim(), self.action_dim(), delay)?;
                    row(&rows.action, self.action_dim(), frame)
                }
            });
            for step in window.actions(frame, delay, rows.length) {
                actions.extend_from_slice(row(&rows.action, self.action_dim(), step.frame));
                action_is_pad.push(step.is_pad);
            }
        }
        Ok(Sample {
            index: rows.index.get(frame).and_then(|&i| usize::try_from(i).ok()).unwrap_or(episode.meta.from + frame),
            episode: episode.meta.index,
            frame,
            valid: vec![true; delays.len()],
            delays,
            images,
            state,
            actions,
            action_is_pad,
            task: self.task(episode, frame)?.to_owned(),
        })
    }

    /// The text of the task of `frame`.
    pub fn task(&self, episode: &SelectedEpisode, frame: usize) -> Result<&str, DatasetError> {
        let task_index = episode.rows.task_index.get(frame).copied().unwrap_or(-1);
        let unknown = || DatasetError::UnknownTask { episode: episode.meta.index, frame, task_index };
        self.meta.tasks.get(task_index).ok_or_else(unknown)
    }

    /// The image of `camera` at `frame` of a selected episode.
    pub fn image(
        &self,
        episode: &SelectedEpisode,
        camera: &Camera,
        frame: usize,
    ) -> Result<Arc<RgbFrame>, DatasetError> {
        match camera.source {
            CameraSource::Video => self.video_frame(episode, camera, frame),
            CameraSource::Parquet => self.still(episode, camera, frame).map(Arc::new),
        }
    }

    fn still(&self, episode: &SelectedEpisode, camera: &Camera, frame: usize) -> Result<RgbFrame, DatasetError> {
        let path = self.meta.data_path(&episode.meta);
        let table = match self.tables.get(&path) {
            Some(table) => table,
            None => &Table::open(&self.meta.root.join(&path))?,
        };
        let at = episode.rows.first_row + frame;
        let images = table
            .read(&[camera.feature.as_str()], Some(std::slice::from_ref(&(at..at + 1))))?
            .images(&camera.feature)?;
        let image_error = |problem: String| DatasetError::Image {
            episode: episode.meta.index,
            frame,
            camera: camera.feature.clone(),
            problem,
            path,
        };
        match images.first() {
            Some(image) => still::decode(image, camera.shape, &self.meta.root).map_err(image_error),
            None => Err(image_error("there is no such row".into())),
        }
    }

    fn video_frame(
        &self,
        episode: &SelectedEpisode,
        camera: &Camera,
        frame: usize,
    ) -> Result<Arc<RgbFrame>, DatasetError> {
        let (span, file) = self.video_file(episode, camera)?;
        let error =
            |source| DatasetError::Video { episode: episode.meta.index, camera: camera.feature.clone(), source };
        let frames = self.videos.index(&file).map_err(error)?.frames();
        let number = span.frame(frame, episode.rows.length, frames).ok_or_else(|| DatasetError::ShortVideo {
            episode: episode.meta.index,
            camera: camera.feature.clone(),
            rows: episode.rows.length,
            frames: span.available(frames),
            path: file.clone(),
        })?;
        let picture = self.videos.frame(&file, number).map_err(error)?;
        if (picture.height, picture.width) != (camera.shape.height, camera.shape.width) {
            return Err(DatasetError::Image {
                episode: episode.meta.index,
                frame,
                camera: camera.feature.clone(),
                problem: format!(
                    "the video has {} × {} pixels, info.json declares {} × {}",
                    picture.width, picture.height, camera.shape.width, camera.shape.height
                ),
                path: file,
            });
        }
        Ok(picture)
    }

    fn video_file<'a>(
        &self,
        episode: &'a SelectedEpisode,
        camera: &Camera,
    ) -> Result<(&'a VideoSpan, PathBuf), DatasetError> {
        let span = episode.meta.videos.iter().find(|span| *span.camera == *camera.feature);
        let path = self.meta.video_path(&episode.meta, &camera.feature);
        match (span, path) {
            (Some(span), Some(path)) => Ok((span, self.meta.root.join(path))),
            _ => Err(DatasetError::Camera {
                problem: format!("episode {} names no video of {}", episode.meta.index, camera.feature),
                cameras: self.meta.cameras().map(|feature| feature.name.clone()).collect(),
            }),
        }
    }

    /// Opens every selected video and compares its frames with the rows, so that no decoder runs past an end later.
    ///
    /// Returns the episodes whose video is exactly one frame short (their last frame is shown twice, FF-02); fails at
    /// the first that lacks more.
    pub fn check_videos(&self) -> Result<Vec<ShortVideo>, DatasetError> {
        let mut short = Vec::new();
        for episode in &self.episodes {
            for camera in self.cameras.iter().filter(|camera| camera.source == CameraSource::Video) {
                let (span, path) = self.video_file(episode, camera)?;
                let index = self.videos.index(&path).map_err(|source| DatasetError::Video {
                    episode: episode.meta.index,
                    camera: camera.feature.clone(),
                    source,
                })?;
                let (rows, frames) = (episode.rows.length, span.available(index.frames()));
                let (episode, camera) = (episode.meta.index, camera.feature.clone());
                if frames + 1 < rows || frames == 0 {
                    return Err(DatasetError::ShortVideo { episode, camera, rows, frames, path });
                }
                if frames < rows {
                    short.push(ShortVideo { episode, camera });
                }
            }
        }
        Ok(short)
    }
}

/// An episode whose video lacks its last frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShortVideo {
    pub episode: usize,
    pub camera: String,
}

/// Row `at` of a row-major matrix; empty where there is none.
pub(super) fn row(matrix: &[f32], width: usize, at: usize) -> &[f32] {
    matrix.get(at * width..(at + 1) * width).unwrap_or_default()
}

pub(super) fn vector<'a>(meta: &'a Metadata, name: &str, rename: &BTreeMap<String, String>) -> Option<&'a Feature> {
    let source = rename.iter().find(|(_, to)| *to == name).map_or(name, |(from, _)| from);
    meta.info.feature(source).filter(|feature| feature.kind == FeatureKind::Numeric)
}

fn missing_action(meta: &Metadata) -> DatasetError {
    let vectors = meta.info.features.iter().filter(|feature| feature.kind == FeatureKind::Numeric);
    DatasetError::MissingFeature {
        feature: ACTION.into(),
        role: ACTION,
        vectors: vectors.map(|feature| feature.name.clone()).collect(),
    }
}

fn chosen_episodes<'a>(meta: &'a Metadata, wanted: Option<&[usize]>) -> Result<Vec<&'a Episode>, DatasetError> {
    let Some(wanted) = wanted else { return Ok(meta.episodes.iter().collect()) };
    let mut seen = BTreeSet::new();
    if wanted.is_empty() {
        return Err(DatasetError::Selection { problem: "is empty".into() });
    }
    if let Some(twice) = wanted.iter().find(|&&episode| !seen.insert(episode)) {
        return Err(DatasetError::Selection { problem: format!("names episode {twice} twice") });
    }
    wanted.iter().map(|&number| meta.episode(number)).collect()
}

/// Every file that the selection needs is there; else an error with the episodes that are complete.
fn require_files(meta: &Metadata, episodes: &[&Episode], cameras: &[Camera]) -> Result<(), DatasetError> {
    let missing = |episode: &Episode| {
        let videos = cameras
            .iter()
            .filter(|camera| camera.source == CameraSource::Video)
            .filter_map(|camera| meta.video_path(episode, &camera.feature));
        std::iter::once(meta.data_path(episode)).chain(videos).find(|path| !meta.root.join(path).is_file())
    };
    for episode in episodes {
        if let Some(path) = missing(episode) {
            let complete = meta.episodes.iter().filter(|episode| missing(episode).is_none());
            let present = complete.map(|episode| episode.index).collect();
            return Err(DatasetError::MissingFile { episode: episode.index, path, present });
        }
    }
    Ok(())
}

fn check_tasks(meta: &Metadata, episode: &Episode, rows: &EpisodeRows) -> Result<(), DatasetError> {
    match rows.task_index.iter().enumerate().find(|(_, index)| meta.tasks.get(**index).is_none()) {
        Some((frame, &task_index)) => Err(DatasetError::UnknownTask { episode: episode.index, frame, task_index }),
        None => Ok(()),
    }
}

fn open_tables(
    meta: &Metadata,
    episodes: &[SelectedEpisode],
    cameras: &[Camera],
) -> Result<BTreeMap<PathBuf, Table>, DatasetError> {
    let mut tables = BTreeMap::new();
    if cameras.iter().any(|camera| camera.source == CameraSource::Parquet) {
        for episode in episodes {
            let path = meta.data_path(&episode.meta);
            if let Entry::Vacant(vacant) = tables.entry(path) {
                let table = Table::open(&meta.root.join(vacant.key()))?;
                vacant.insert(table);
            }
        }
    }
    Ok(tables)
}
