//! Videos and stills: they open, have the declared size, a frame for every row, and decode.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::collector::{Collector, chain};
use super::report::counted;
use crate::dataset::finding::Severity;
use crate::dataset::cameras::{Camera, CameraSource};
use crate::dataset::meta::{Episode, Metadata, VideoSpan};
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
pub(super) fn check_videos(
    meta: &Metadata,
    episodes: &[&Episode],
    cameras: &[Camera],
    deep: bool,
    collector: &mut Collector,
) {
    let pool = VideoPool::new(PoolOptions::default());
    let mut files: BTreeMap<PathBuf, (&Camera, Vec<Span>)> = BTreeMap::new();
    for camera in cameras.iter().filter(|camera| camera.source == CameraSource::Video) {
        for &episode in episodes {
            let span = episode.videos.iter().find(|span| *span.camera == *camera.feature);
            if let (Some(span), Some(path)) = (span, meta.video_path(episode, &camera.feature)) {
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
    camera: &'a Camera,
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
                self.camera.feature,
                index.longest_gop(),
                self.path.display()
            );
            self.collector.push(Severity::Note, "long-gop", message, Some("data.frame_cache = true".to_owned()));
        }
        let usable: Vec<Span> = self.spans.iter().copied().filter(|span| self.count(*span, &index)).collect();
        self.decode(&usable, &index, deep);
    }

    fn failure(&mut self, episodes: &[usize], error: &VideoError) {
        let message = format!("camera {}: {}", self.camera.feature, chain(error));
        self.collector.problem_with_fix(Severity::Error, "video", episodes, message, error.hint());
    }

    fn size(&mut self, index: &VideoIndex) {
        let shape = self.camera.shape;
        if (index.width, index.height) != (shape.width, shape.height) {
            let episodes: Vec<usize> = self.spans.iter().map(|(episode, _)| episode.index).collect();
            let message = format!(
                "camera {}: {} has {} x {} pixels, info.json declares {} x {}",
                self.camera.feature,
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
                self.camera.feature,
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
        let about = format!("episode {}, camera {}", episode.index, self.camera.feature);
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
        // After one broken frame the rest of an episode tells nothing new.
        let broken = |(_, frames): &(usize, Vec<usize>)| {
            frames.iter().find_map(|&frame| self.pool.frame(&file, frame).err())
        };
        for (episode, error) in broken_episodes(&used, deep, broken) {
            self.failure(&[episode], &error);
        }
    }
}

/// Decodes stills of one parquet file: the first, middle and last of its `episodes` (numbers and rows), or all.
pub(super) fn check_stills(
    root: &Path,
    table: &Table,
    camera: &Camera,
    episodes: &[(usize, Range<usize>)],
    deep: bool,
    collector: &mut Collector,
) {
    let name = camera.feature.as_str();
    let broken = |(episode, rows): &(usize, Vec<usize>)| {
        let ranges: Vec<Range<usize>> = rows.iter().map(|&row| row..row + 1).collect();
        let images = match table.read(&[name], Some(&ranges)).and_then(|rows| rows.images(name)) {
            Ok(images) => images,
            Err(error) => return Some(format!("episode {episode}: {}", chain(&error))),
        };
        let start = episodes.iter().find(|(e, _)| e == episode).map_or(0, |(_, rows)| rows.start);
        rows.iter().zip(&images).find_map(|(row, image)| {
            let problem = still::decode(image, camera.shape, root).err()?;
            Some(format!("episode {episode}, frame {}, camera {name}: {problem}", row.saturating_sub(start)))
        })
    };
    for (episode, message) in broken_episodes(episodes, deep, broken) {
        collector.problem(Severity::Error, "image", &[episode], message);
    }
}

/// Tries frames of a file (given as episodes with their frames) by `broken`, which says what is wrong with those of
/// one episode. When the first, middle and last of the file are in order, the others are trusted; else every
/// episode's own are tried, so that the good ones are known.
fn broken_episodes<E>(
    episodes: &[(usize, Range<usize>)],
    deep: bool,
    broken: impl Fn(&(usize, Vec<usize>)) -> Option<E>,
) -> Vec<(usize, E)> {
    let all = |(episode, frames): &(usize, Range<usize>)| (*episode, frames.clone().collect::<Vec<usize>>());
    let few = |(episode, frames): &(usize, Range<usize>)| (*episode, ends_and_middle(frames));
    let find = |tries: Vec<(usize, Vec<usize>)>| -> Vec<(usize, E)> {
        tries.iter().filter_map(|frames| Some((frames.0, broken(frames)?))).collect()
    };
    if deep {
        return find(episodes.iter().map(all).collect());
    }
    if find(sample_of_file(episodes)).is_empty() { Vec::new() } else { find(episodes.iter().map(few).collect()) }
}

/// The first, middle and last frame of a file, by episode.
fn sample_of_file(episodes: &[(usize, Range<usize>)]) -> Vec<(usize, Vec<usize>)> {
    let wanted = ends_and_middle(&(0..episodes.iter().map(|(_, frames)| frames.len()).sum()));
    let mut start = 0;
    let mut sampled = Vec::new();
    for (episode, frames) in episodes {
        let own = wanted.iter().filter(|&&at| (start..start + frames.len()).contains(&at));
        let own: Vec<usize> = own.map(|at| frames.start + at - start).collect();
        sampled.extend((!own.is_empty()).then_some((*episode, own)));
        start += frames.len();
    }
    sampled
}

fn ends_and_middle(frames: &Range<usize>) -> Vec<usize> {
    let Some(last) = frames.clone().next_back() else { return Vec::new() };
    let places: BTreeSet<usize> = [frames.start, frames.start + frames.len() / 2, last].into();
    places.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_frames_of_a_file_are_sampled() {
        assert_eq!(sample_of_file(&[(4, 10..13), (2, 20..24)]), [(4, vec![10]), (2, vec![20, 23])]);
        assert_eq!(sample_of_file(&[(0, 5..6), (1, 6..6)]), [(0, vec![5])]);
    }

    #[test]
    fn a_broken_frame_makes_every_episode_suspect() {
        let episodes = [(4, 0..9), (2, 9..18), (7, 18..30)];
        let broken = |bad: usize| move |(_, frames): &(usize, Vec<usize>)| frames.contains(&bad).then_some(bad);
        assert_eq!(broken_episodes(&episodes, false, broken(29)), [(7, 29)]);
        assert_eq!(broken_episodes(&episodes, false, broken(10)), [], "not among those sampled");
        assert_eq!(broken_episodes(&episodes, true, broken(10)), [(2, 10)]);
        let after_nine = |(_, frames): &(usize, Vec<usize>)| frames.iter().find(|&&frame| frame >= 9).copied();
        assert_eq!(broken_episodes(&episodes, false, after_nine), [(2, 9), (7, 18)]);
    }
}
