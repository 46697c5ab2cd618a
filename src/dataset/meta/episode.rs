//! The episode table: length, tasks, and where the rows and frames of each episode are.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value;

use super::feature::FeatureKind;
use super::info::{Info, count};
use super::layout::Layout;
use super::template::Place;
use crate::dataset::error::DatasetError;
use crate::dataset::files::read_json_lines;
use crate::dataset::table::{Rows, Table};

/// One episode, as declared.
#[derive(Debug, Clone, PartialEq)]
pub struct Episode {
    /// Its number in the dataset.
    pub index: usize,
    /// Texts of its tasks.
    pub tasks: Vec<String>,
    /// Frames.
    pub length: usize,
    /// Global index of its first frame.
    pub from: usize,
    /// Its parquet file.
    pub data: Place,
    /// One per video feature, in the order of `info.json`.
    pub videos: Vec<VideoSpan>,
}

/// Where an episode's frames are in a camera's video file.
#[derive(Debug, Clone, PartialEq)]
pub struct VideoSpan {
    pub camera: Arc<str>,
    pub place: Place,
    /// Number in the file of the episode's first frame (FF-02: frames are addressed by integer).
    pub first: usize,
    /// Number in the file of the next episode's first frame; none: the episode reaches to the file's end.
    pub end: Option<usize>,
    /// As declared (v3.0), seconds from the file's start.
    pub from_timestamp: Option<f64>,
    pub to_timestamp: Option<f64>,
}

impl VideoSpan {
    /// Frames that the file, with `frames` in all, has for this episode.
    pub fn available(&self, frames: usize) -> usize {
        self.end.unwrap_or(frames).min(frames).saturating_sub(self.first)
    }

    /// The number in the file of the episode's frame `k`, for an episode of `rows` rows. A video that is exactly one
    /// frame short shows its last frame twice (FF-02); `None` when more are missing.
    pub fn frame(&self, k: usize, rows: usize, frames: usize) -> Option<usize> {
        let available = self.available(frames);
        if available == 0 || available + 1 < rows || k >= rows {
            return None;
        }
        Some(self.first + k.min(available - 1))
    }
}

/// Reads the episode table of a dataset, sorted by episode number.
pub(super) fn read(root: &Path, info: &Info) -> Result<Vec<Episode>, DatasetError> {
    let cameras: Vec<Arc<str>> = info
        .features
        .iter()
        .filter(|feature| feature.kind == FeatureKind::Video)
        .map(|feature| Arc::from(feature.name.as_str()))
        .collect();
    let (path, mut episodes) = match info.layout {
        Layout::V21 => {
            let path = root.join("meta/episodes.jsonl");
            let episodes = read_lines(&path, info, &cameras)?;
            (path, episodes)
        }
        Layout::V30 => {
            let path = root.join("meta/episodes");
            let mut episodes = Vec::new();
            for file in table_files(&path)? {
                episodes.extend(read_table(&file, info, &cameras)?);
            }
            (path, episodes)
        }
    };
    if episodes.is_empty() {
        return Err(DatasetError::metadata(path, "there is no episode"));
    }
    episodes.sort_by_key(|episode| episode.index);
    for pair in episodes.windows(2) {
        if let [a, b] = pair
            && a.index == b.index
        {
            return Err(DatasetError::metadata(path, format!("episode {} occurs twice", a.index)));
        }
    }
    if info.layout == Layout::V21 {
        number_frames(&mut episodes)
            .ok_or_else(|| DatasetError::metadata(path, "the lengths add up to an impossible number"))?;
    }
    close_spans(&mut episodes);
    Ok(episodes)
}

fn read_lines(path: &Path, info: &Info, cameras: &[Arc<str>]) -> Result<Vec<Episode>, DatasetError> {
    let episode = |(line, value): (usize, Value)| {
        let number = |key: &str| {
            value.get(key).and_then(count).ok_or_else(|| {
                let found = value.get(key).unwrap_or(&Value::Null);
                DatasetError::metadata(path, format!("line {line}: {key} is {found}, expected a whole number from 0"))
            })
        };
        let index = number("episode_index")?;
        let data = info.episode_place(index);
        let span = |camera: &Arc<str>| VideoSpan {
            camera: camera.clone(),
            place: data,
            first: 0,
            end: None,
            from_timestamp: None,
            to_timestamp: None,
        };
        Ok(Episode {
            index,
            tasks: texts(&value["tasks"]),
            length: number("length")?,
            from: 0,
            data,
            videos: cameras.iter().map(span).collect(),
        })
    };
    read_json_lines(path)?.into_iter().map(episode).collect()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// All parquet files below `directory/chunk-*/`, sorted by name.
fn table_files(directory: &Path) -> Result<Vec<PathBuf>, DatasetError> {
    let entries = |directory: &Path| -> Result<BTreeSet<PathBuf>, DatasetError> {
        let read = |source| DatasetError::read(directory, source);
        fs::read_dir(directory).map_err(read)?.map(|entry| Ok(entry.map_err(read)?.path())).collect()
    };
    let mut files = Vec::new();
    for chunk in entries(directory)?.into_iter().filter(|path| path.is_dir()) {
        files.extend(entries(&chunk)?.into_iter().filter(|path| path.extension().is_some_and(|e| e == "parquet")));
    }
    Ok(files)
}

fn read_table(path: &Path, info: &Info, cameras: &[Arc<str>]) -> Result<Vec<Episode>, DatasetError> {
    let table = Table::open(path)?;
    let video = |camera: &str, field: &str| format!("videos/{camera}/{field}");
    let mut columns: Vec<String> =
        ["episode_index", "length", "dataset_from_index", "data/chunk_index", "data/file_index"]
            .map(String::from)
            .to_vec();
    for camera in cameras {
        columns
            .extend(["chunk_index", "file_index", "from_timestamp", "to_timestamp"].map(|field| video(camera, field)));
    }
    let has_tasks = table.has("tasks");
    columns.extend(has_tasks.then(|| "tasks".to_owned()));
    let names: Vec<&str> = columns.iter().map(String::as_str).collect();
    let rows = table.read(&names, None)?;

    let numbers = |column: &str| counts(&rows, column);
    let (index, length, from) = (numbers("episode_index")?, numbers("length")?, numbers("dataset_from_index")?);
    let (chunk, file) = (numbers("data/chunk_index")?, numbers("data/file_index")?);
    let mut tasks = if has_tasks { rows.text_lists("tasks")? } else { vec![Vec::new(); index.len()] };
    let mut spans = Vec::with_capacity(cameras.len());
    for camera in cameras {
        let column = |field: &str| counts(&rows, &video(camera, field));
        let times = |field: &str| rows.floats(&video(camera, field));
        let places = column("chunk_index")?.into_iter().zip(column("file_index")?);
        let times = times("from_timestamp")?.into_iter().zip(times("to_timestamp")?);
        let of_camera: Result<Vec<VideoSpan>, DatasetError> =
            places.zip(times).map(|(place, times)| span(path, info.fps, camera, place, times)).collect();
        spans.push(of_camera?);
    }
    let mut episodes = Vec::with_capacity(index.len());
    for (row, ((&index, &length), &from)) in index.iter().zip(&length).zip(&from).enumerate() {
        let (Some(&chunk), Some(&file)) = (chunk.get(row), file.get(row)) else { break };
        episodes.push(Episode {
            index,
            tasks: tasks.get_mut(row).map(std::mem::take).unwrap_or_default(),
            length,
            from,
            data: Place::File { chunk, file },
            videos: spans.iter().filter_map(|camera| camera.get(row).cloned()).collect(),
        });
    }
    Ok(episodes)
}

fn counts(rows: &Rows, column: &str) -> Result<Vec<usize>, DatasetError> {
    let to_count = |value: i64| {
        usize::try_from(value).map_err(|_| {
            DatasetError::table(rows.path(), format!("column {column}: {value}, expected a number from 0"))
        })
    };
    rows.integers(column)?.into_iter().map(to_count).collect()
}

fn span(
    path: &Path,
    fps: u32,
    camera: &Arc<str>,
    (chunk, file): (usize, usize),
    (from, to): (f64, f64),
) -> Result<VideoSpan, DatasetError> {
    /// A day of video at a million frames a second; guards the conversion to an integer.
    const LAST_FRAME: f64 = 1e11;
    let first = (from * f64::from(fps)).round();
    if !(0.0..LAST_FRAME).contains(&first) || !to.is_finite() {
        let message = format!("videos/{camera}: from_timestamp {from}, to_timestamp {to}: expected seconds from 0");
        return Err(DatasetError::table(path, message));
    }
    Ok(VideoSpan {
        camera: camera.clone(),
        place: Place::File { chunk, file },
        first: first as usize,
        end: None,
        from_timestamp: Some(from),
        to_timestamp: Some(to),
    })
}

/// v2.1 does not store where episodes start in the global numbering: they follow each other.
fn number_frames(episodes: &mut [Episode]) -> Option<()> {
    let mut from = 0usize;
    for episode in episodes {
        episode.from = from;
        from = from.checked_add(episode.length)?;
    }
    Some(())
}

/// Sets each span's end to the start of the next one in the same file, whichever episode that belongs to: a
/// `to_timestamp` that is a frame off must never let an episode read its neighbour's frames.
fn close_spans(episodes: &mut [Episode]) {
    let mut starts: BTreeMap<(Arc<str>, Place), BTreeSet<usize>> = BTreeMap::new();
    for span in episodes.iter().flat_map(|episode| &episode.videos) {
        if matches!(span.place, Place::File { .. }) {
            starts.entry((span.camera.clone(), span.place)).or_default().insert(span.first);
        }
    }
    for span in episodes.iter_mut().flat_map(|episode| &mut episode.videos) {
        span.end = starts
            .get(&(span.camera.clone(), span.place))
            .and_then(|starts| starts.range(span.first.saturating_add(1)..).next().copied());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case(39, None, Some(38))] // The last of 40 frames is the 39th again.
    #[case(40, None, Some(39))]
    #[case(41, None, Some(39))]
    #[case(38, None, None)] // Two are missing.
    #[case(0, None, None)]
    #[case(90, Some(40), Some(39))]
    #[case(90, Some(39), Some(38))] // Never the neighbour's frame.
    #[case(90, Some(37), None)]
    fn the_last_of_forty_rows(#[case] frames: usize, #[case] end: Option<usize>, #[case] expected: Option<usize>) {
        let place = Place::File { chunk: 0, file: 0 };
        let camera = Arc::from("front");
        let span = VideoSpan { camera, place, first: 0, end, from_timestamp: None, to_timestamp: None };
        assert_eq!(span.frame(39, 40, frames), expected);
    }
}
