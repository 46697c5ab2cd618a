//! Videos and stills: they open, have the declared size, a frame for every row, and decode.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::collector::{Collector, chain};
use super::report::counted;
use crate::dataset::finding::Severity;
use crate::dataset::meta::{Episode, Feature, FeatureKind, Metadata, VideoSpan};
use crate::dataset::still;
use crate::dataset::table::Table;
use crate::dataset::video::{PoolOptions, VideoError, VideoIndex, VideoPool};
use crate::error::Explain;

/// A frame's time may lie this many frame periods beside its number.
const CLOCK_TOLERANCE: f64 = 0.5;

/// Key frames further apart than this make random access slow; LeRobot writes one every 2 frames.
const LONG_GOP: usize = 30;

/// A stretch of one video file that belongs to one episode.
type Span<'a> = (&'a Episode, &'a VideoSpan);

/// Checks all videos of `episodes`, file by file.
pub(super) fn check_videos(meta: &Metadata, episodes: &[&Episode], deep: bool, collector: &mut Collector) {
    let pool = VideoPool::new(PoolOptions::default());
    let mut files: BTreeMap<PathBuf, (&Feature, Vec<Span>)> = BTreeMap::new();
    for camera in meta.cameras().filter(|camera| camera.kind == FeatureKind::Video && !camera.is_depth) {
        for &episode in episodes {
            let span = episode.videos.iter().find(|span| *span.camera == *camera.name);
            if let (Some(span), Some(path)) = (span, meta.video_path(episode, &camera.name)) {
                files.entry(path).or_insert_with(|| (camera, Vec::new())).1.push((episode, span));
            }
        }
    }
    let files: Vec<_> = files.into_iter().collect();
    let found: Vec<Collector> = files
        .par_iter()
        .map(|(path, (camera, spans))| {
            let mut video = Video { meta, pool: &pool, path, camera, spans, collector: Collector::default() };
            video.run(deep);
            video.collector
        })
        .collect();
    found.into_iter().for_each(|found| collector.absorb(found));
}

/// One video file.
struct Video<'a> {
    meta: &'a Metadata,
    pool: &'a VideoPool,
    /// Below the root.
    path: &'a Path,
    camera: &'a Feature,
    spans: &'a [Span<'a>],
    collector: Collector,
}

impl Video<'_> {
    fn run(&mut self, deep: bool) {
        let index = match self.pool.index(&self.meta.root.join(self.path)) {
            Ok(index) => index,
            Err(error) => {
                let episodes: Vec<usize> = self.spans.iter().map(|(episode, _)| episode.index).collect();
                return self.failure(&episodes, &error);
            }
        };
        self.size(&index);
        self.clock(&index);
        if index.longest_gop() > LONG_GOP {
            let message = format!(
                "camera {}: key frames are up to {} frames apart ({}), so each random access decodes that many",
                self.camera.name,
                index.longest_gop(),
                self.path.display()
            );
            self.collector.push(Severity::Note, "long-gop", message, Some("data.frame_cache = true".to_owned()));
        }
        let usable: Vec<Span> = self.spans.iter().copied().filter(|span| self.count(*span, &index)).collect();
        self.decode(&usable, &index, deep);
    }

    fn failure(&mut self, episodes: &[usize], error: &VideoError) {
        let message = format!("camera {}: {}", self.camera.name, chain(error));
        self.collector.problem_with_fix(Severity::Error, "video", episodes, message, error.hint());
    }

    fn size(&mut self, index: &VideoIndex) {
        let Some(shape) = self.camera.image else { return };
        if (index.width, index.height) != (shape.width, shape.height) {
            let episodes: Vec<usize> = self.spans.iter().map(|(episode, _)| episode.index).collect();
            let message = format!(
                "camera {}: {} has {} x {} pixels, info.json declares {} x {}",
                self.camera.name,
                self.path.display(),
                index.width,
                index.height,
                shape.width,
                shape.height
            );
            self.collector.problem(Severity::Error, "frame-size", &episodes, message);
        }
    }

    /// The frames' times lie on the grid of the dataset's rate.
    fn clock(&mut self, index: &VideoIndex) {
        let fps = f64::from(self.meta.info.fps);
        let Some(start) = index.seconds(0) else { return };
        let off = (0..index.frames()).find(|&frame| {
            index.seconds(frame).is_some_and(|s| ((s - start) * fps - frame as f64).abs() > CLOCK_TOLERANCE)
        });
        if let (Some(frame), Some(measured)) = (off, index.fps()) {
            let message = format!(
                "camera {}: {} runs at {measured:.2} fps, the dataset at {fps}; frame {frame} is the first off by more than half a frame. Frames are taken by number",
                self.camera.name,
                self.path.display()
            );
            self.collector.push(Severity::Warning, "video-clock", message, None);
        }
    }

    /// A frame for every row (FF-02). Whether the episode can be used.
    fn count(&mut self, (episode, span): Span, index: &VideoIndex) -> bool {
        let (rows, frames) = (episode.length, span.available(index.frames()));
        let place = || {
            let last = (span.first + frames).saturating_sub(1);
            match frames {
                0 => format!("{}, from frame {}", self.path.display(), span.first),
                _ => format!("{}, frames {}..{last}", self.path.display(), span.first),
            }
        };
        let about = format!("episode {}, camera {}", episode.index, self.camera.name);
        let numbers = &[episode.index];
        if frames == 0 || frames + 1 < rows {
            let message = format!("{about}: {} but {} ({})", counted(rows, "row"), counted(frames, "video frame"), place());
            self.collector.problem(Severity::Error, "frame-count", numbers, message);
            return false;
        }
        if frames < rows {
            let message = format!(
                "{about}: {rows} rows but {frames} video frames ({}); the last frame is shown twice",
                place()
            );
            self.collector.problem(Severity::Warning, "frame-short", numbers, message);
        } else if frames > rows {
            let message =
                format!("{about}: {rows} rows but {frames} video frames ({}); those at the end are not used", place());
            self.collector.problem(Severity::Warning, "frame-surplus", numbers, message);
        }
        true
    }

    /// Decodes the first, middle and last frame of what is used of the file, or all of it.
    fn decode(&mut self, spans: &[Span], index: &VideoIndex, deep: bool) {
        let file = self.meta.root.join(self.path);
        let used: Vec<(usize, Range<usize>)> = spans
            .iter()
            .map(|(episode, span)| {
                let frames = span.available(index.frames()).min(episode.length);
                (episode.index, span.first..span.first + frames)
            })
            .collect();
        for (episode, frames) in sampled(&used, deep) {
            // After one broken frame the rest of an episode tells nothing new.
            if let Some(error) = frames.into_iter().find_map(|frame| self.pool.frame(&file, frame).err()) {
                self.failure(&[episode], &error);
            }
        }
    }
}

/// Decodes stills of one parquet file: the first, middle and last of its `episodes`, or all.
pub(super) fn check_stills(
    root: &Path,
    table: &Table,
    camera: &Feature,
    episodes: &[(usize, Range<usize>)],
    deep: bool,
    collector: &mut Collector,
) {
    let Some(shape) = camera.image else { return };
    for (episode, rows) in sampled(episodes, deep) {
        let start = episodes.iter().find(|(e, _)| *e == episode).map_or(0, |(_, rows)| rows.start);
        let ranges: Vec<Range<usize>> = rows.iter().map(|&row| row..row + 1).collect();
        let images = table.read(&[&camera.name], Some(&ranges)).and_then(|rows| rows.images(&camera.name));
        let images = match images {
            Ok(images) => images,
            Err(error) => {
                collector.failure(&[episode], &error);
                continue;
            }
        };
        let problem = rows.iter().zip(&images).find_map(|(row, image)| {
            still::decode(image, shape, root).err().map(|problem| (row.saturating_sub(start), problem))
        });
        if let Some((frame, problem)) = problem {
            let message = format!("episode {episode}, frame {frame}, camera {}: {problem}", camera.name);
            collector.problem(Severity::Error, "image", &[episode], message);
        }
    }
}

/// Which frames to decode of each episode: all, or the first, middle and last of the file's.
fn sampled(episodes: &[(usize, Range<usize>)], deep: bool) -> Vec<(usize, Vec<usize>)> {
    let frames: usize = episodes.iter().map(|(_, frames)| frames.len()).sum();
    let wanted: BTreeSet<usize> = [0, frames / 2, frames.saturating_sub(1)].into();
    let mut start = 0;
    let mut sampled = Vec::new();
    for (episode, range) in episodes {
        let chosen: Vec<usize> =
            range.clone().enumerate().filter(|(i, _)| deep || wanted.contains(&(start + i))).map(|(_, frame)| frame).collect();
        start += range.len();
        if !chosen.is_empty() {
            sampled.push((*episode, chosen));
        }
    }
    sampled
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_frames_of_a_file_are_sampled_or_all() {
        let episodes = [(4, 10..13), (2, 20..24)];
        assert_eq!(sampled(&episodes, false), [(4, vec![10]), (2, vec![20, 23])]);
        assert_eq!(sampled(&episodes, true), [(4, vec![10, 11, 12]), (2, vec![20, 21, 22, 23])]);
        assert_eq!(sampled(&[(0, 5..6)], false), [(0, vec![5])]);
    }
}
