//! The parquet rows: columns as declared, rows as counted, numbering as promised.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use arrow::datatypes::DataType;
use rayon::prelude::*;

use super::collector::Collector;
use super::pictures;
use super::report::counted;
use super::values::Series;
use crate::dataset::cameras::{Camera, CameraSource};
use crate::dataset::error::DatasetError;
use crate::dataset::finding::Severity;
use crate::dataset::meta::{Episode, Feature, FeatureKind, Metadata};
use crate::dataset::table::Table;

/// Timestamps may lie this share of a frame period beside `frame_index / fps` (FF-02).
const TIMESTAMP_TOLERANCE: f64 = 0.5;

/// Checks the rows of `selected` in all their files, stills included, and returns the values of `vectors` (in that order) of those
/// episodes whose rows are sound.
pub(super) fn check<'a>(
    meta: &Metadata,
    selected: &[&Episode],
    vectors: &[&'a Feature],
    cameras: &[Camera],
    deep: bool,
    collector: &mut Collector,
) -> Vec<Series<'a>> {
    let mut files: BTreeMap<PathBuf, Vec<&Episode>> = BTreeMap::new();
    for &episode in selected {
        files.entry(meta.data_path(episode)).or_default().push(episode);
    }
    let files: Vec<(PathBuf, Vec<&Episode>)> = files.into_iter().collect();
    let outcomes: Vec<(Collector, Vec<Values>)> = files
        .par_iter()
        .map(|(path, episodes)| {
            let mut file = FileCheck { meta, path, episodes, collector: Collector::default() };
            let values = file.run(vectors, cameras, deep);
            (file.collector, values.unwrap_or_default())
        })
        .collect();
    let mut series: Vec<Series> = vectors.iter().map(|feature| Series::new(feature)).collect();
    for (found, values) in outcomes {
        collector.absorb(found);
        for Values { vector, episode, values } in values {
            if let Some(series) = series.get_mut(vector) {
                series.push(episode, values);
            }
        }
    }
    series
}

/// The values of one vector feature in one episode.
struct Values {
    /// Position in the list of vectors asked for.
    vector: usize,
    episode: usize,
    values: Vec<f32>,
}

/// One file with those of the selected episodes that lie in it.
struct FileCheck<'a> {
    meta: &'a Metadata,
    path: &'a Path,
    episodes: &'a [&'a Episode],
    collector: Collector,
}

/// The five index columns of a whole file.
struct Numbering {
    episode: Vec<i64>,
    frame: Vec<i64>,
    index: Vec<i64>,
    task: Vec<i64>,
    timestamp: Vec<f32>,
}

impl<'a> FileCheck<'a> {
    /// None when the file cannot be read any further; why has been collected.
    fn run(&mut self, vectors: &[&Feature], cameras: &[Camera], deep: bool) -> Option<Vec<Values>> {
        let path = self.meta.root.join(self.path);
        if !path.exists() {
            return None; // Reported with the other missing files.
        }
        let table = self.attempt(Table::open(&path))?;
        let unfit = self.schema(&table);
        let numbering = self.numbering(&table);
        let numbering = self.attempt(numbering)?;
        self.stray_rows(&numbering);
        let mut sound: Vec<(usize, Range<usize>)> = Vec::new();
        for episode in self.episodes {
            if let Some(range) = self.rows_of(episode, &numbering) {
                self.order(episode, &numbering, range.clone());
                self.stamps(episode, &numbering, range.clone());
                self.tasks(episode, &numbering, range.clone());
                sound.push((episode.index, range));
            }
        }
        let fit = self.meta.info.features.iter().filter(|feature| !unfit.contains(&feature.name.as_str()));
        let mut all = Vec::new();
        for feature in fit {
            if feature.kind == FeatureKind::Numeric {
                all.extend(self.values(&table, feature, vectors, &sound));
            }
            let camera = cameras.iter().find(|c| c.source == CameraSource::Parquet && c.feature == feature.name);
            if let Some(camera) = camera {
                pictures::check_stills(&self.meta.root, &table, camera, &sound, deep, &mut self.collector);
            }
        }
        Some(all)
    }

    /// Reads a numeric column, so that it is known to be readable, and keeps it if it is one of `vectors`.
    fn values(
        &mut self,
        table: &Table,
        feature: &Feature,
        vectors: &[&Feature],
        sound: &[(usize, Range<usize>)],
    ) -> Vec<Values> {
        let width = feature.dimensions();
        let matrix = table.read(&[&feature.name], None).and_then(|rows| rows.matrix(&feature.name, width));
        let vector = vectors.iter().position(|wanted| wanted.name == feature.name);
        let (Some(matrix), Some(vector)) = (self.attempt(matrix), vector) else { return Vec::new() };
        let of_episode = |(episode, rows): &(usize, Range<usize>)| {
            let values = matrix.get(rows.start * width..rows.end * width)?.to_vec();
            Some(Values { vector, episode: *episode, values })
        };
        sound.iter().filter_map(of_episode).collect()
    }

    fn numbers(&self) -> Vec<usize> {
        self.episodes.iter().map(|episode| episode.index).collect()
    }

    fn attempt<T>(&mut self, result: Result<T, DatasetError>) -> Option<T> {
        result.map_err(|error| self.collector.failure(&self.numbers(), &error)).ok()
    }

    /// Every feature that lies in parquet has its column, of the declared type and size. Returns those that do not.
    fn schema(&mut self, table: &Table) -> Vec<&'a str> {
        let meta = self.meta;
        let mut unfit = Vec::new();
        for feature in &meta.info.features {
            if matches!(feature.kind, FeatureKind::Video | FeatureKind::Other) {
                continue;
            }
            let file = self.path.display();
            let name = feature.name.as_str();
            let (severity, code, message) = match table.schema().field_with_name(name) {
                Err(_) => {
                    let found = table.columns().join(", ");
                    (Severity::Error, "missing-column", format!("{file}: no column {name}; found {found}"))
                }
                Ok(field) => match compare(feature, field.data_type()) {
                    None => continue,
                    Some((severity, code, problem)) => (severity, code, format!("{file}: column {name} {problem}")),
                },
            };
            self.collector.problem(severity, code, &self.numbers(), message);
            unfit.extend((severity == Severity::Error).then_some(name));
        }
        unfit
    }

    fn numbering(&self, table: &Table) -> Result<Numbering, DatasetError> {
        let rows = table.read(&["episode_index", "frame_index", "index", "task_index", "timestamp"], None)?;
        Ok(Numbering {
            episode: rows.integers("episode_index")?,
            frame: rows.integers("frame_index")?,
            index: rows.integers("index")?,
            task: rows.integers("task_index")?,
            timestamp: rows.matrix("timestamp", 1)?,
        })
    }

    /// Rows that no episode of the table in `meta/` claims.
    fn stray_rows(&mut self, numbering: &Numbering) {
        let known = |number: i64| usize::try_from(number).is_ok_and(|number| self.meta.episode(number).is_ok());
        let stray: Vec<i64> = numbering.episode.iter().copied().filter(|&number| !known(number)).collect();
        if let Some(first) = stray.first() {
            let rows = counted(stray.len(), "row");
            let message = format!(
                "{}: {rows} of episodes that meta/ does not know (first: {first}); they are not used",
                self.path.display()
            );
            self.collector.push(Severity::Warning, "stray-rows", message, None);
        }
    }

    /// The episode's rows in the file, if there are as many as declared and in one piece.
    fn rows_of(&mut self, episode: &Episode, numbering: &Numbering) -> Option<Range<usize>> {
        let is_own = |number: &i64| usize::try_from(*number) == Ok(episode.index);
        let found = numbering.episode.iter().filter(|number| is_own(number)).count();
        let start = numbering.episode.iter().position(is_own).unwrap_or(0);
        let run = numbering.episode.iter().skip(start).take_while(|number| is_own(number)).count();
        let (number, file, expected) = (episode.index, self.path.display(), episode.length);
        let (code, message) = if found != expected {
            let rows = counted(found, "row");
            ("row-count", format!("episode {number}: {rows} in {file}, {expected} expected (length in the episode table)"))
        } else if expected == 0 {
            ("empty-episode", format!("episode {number} has no frames"))
        } else if run != found {
            ("scattered-rows", format!("episode {number}: its rows are not in one piece in {file}"))
        } else {
            return Some(start..start + found);
        };
        self.collector.problem(Severity::Error, code, &[number], message);
        None
    }

    /// `frame_index` counts from 0 and `index` from the episode's place in the dataset.
    fn order(&mut self, episode: &Episode, numbering: &Numbering, rows: Range<usize>) {
        let number = episode.index;
        let file = self.path.display();
        let frames = numbering.frame.get(rows.clone()).unwrap_or_default();
        if let Some((expected, found)) = (0..).zip(frames).find(|&(i, &frame)| frame != i) {
            let message = format!("episode {number}: frame_index is {found} where {expected} is expected ({file})");
            self.collector.problem(Severity::Error, "frame-index", &[number], message);
        }
        let index = numbering.index.get(rows).unwrap_or_default();
        let Some(&first) = index.first() else { return };
        if let Some((frame, found)) = (0..).zip(index).find(|&(i, &index)| index != first.saturating_add(i)) {
            let expected = first.saturating_add(frame);
            let message =
                format!("episode {number}, frame {frame}: index is {found} where {expected} is expected ({file})");
            self.collector.problem(Severity::Error, "index-gap", &[number], message);
        } else if usize::try_from(first) != Ok(episode.from) {
            let message = format!(
                "episode {number}: index begins at {first}, the episode table says {} ({file}); LeRobot would read other rows",
                episode.from
            );
            self.collector.problem(Severity::Warning, "index-offset", &[number], message);
        }
    }

    /// Timestamps lie on the grid of `fps`; those of a wall clock do not.
    fn stamps(&mut self, episode: &Episode, numbering: &Numbering, rows: Range<usize>) {
        let fps = f64::from(self.meta.info.fps);
        let stamps = numbering.timestamp.get(rows).unwrap_or_default();
        let is_off = |&(frame, &stamp): &(usize, &f32)| {
            let error = (f64::from(stamp) * fps - frame as f64).abs();
            error.is_nan() || error > TIMESTAMP_TOLERANCE
        };
        let off = stamps.iter().enumerate().filter(is_off).count();
        let Some((frame, stamp)) = stamps.iter().enumerate().find(is_off) else { return };
        let measured = match stamps {
            [first, .., last] if last > first => {
                format!("{:.2} fps measured", (stamps.len() - 1) as f64 / f64::from(last - first))
            }
            _ => "no rate measurable".to_owned(),
        };
        let message = format!(
            "episode {}, frame {frame}: timestamp {stamp} s where {:.4} is expected at {fps} fps ({measured}; {off} of {} frames are off by more than half a frame). The timestamps come from a wall clock or another rate; frames are taken by number instead",
            episode.index,
            frame as f64 / fps,
            stamps.len()
        );
        let fix = Some("re-stamp the column: timestamp = frame_index / fps".to_owned());
        self.collector.problem_with_fix(Severity::Warning, "timestamps", &[episode.index], message, fix);
    }

    /// Every frame has a task, with a text.
    fn tasks(&mut self, episode: &Episode, numbering: &Numbering, rows: Range<usize>) {
        let number = episode.index;
        let tasks = numbering.task.get(rows).unwrap_or_default();
        let text = |task: i64| self.meta.tasks.get(task);
        if let Some((frame, task)) = tasks.iter().enumerate().find(|&(_, &task)| text(task).is_none()) {
            let message =
                format!("episode {number}, frame {frame}: task_index {task} is not in the task table ({})", self.known_tasks());
            self.collector.problem(Severity::Error, "unknown-task", &[number], message);
        } else if let Some((frame, task)) =
            tasks.iter().enumerate().find(|&(_, &task)| text(task).is_some_and(|text| text.trim().is_empty()))
        {
            let message = format!("episode {number}, frame {frame}: the text of task_index {task} is empty");
            let fix = Some("write what the robot does into meta/tasks, e.g. \"pick up the cube\"".to_owned());
            self.collector.problem_with_fix(Severity::Error, "empty-task", &[number], message, fix);
        }
    }

    fn known_tasks(&self) -> String {
        let known: Vec<String> = self.meta.tasks.iter().take(8).map(|(index, _)| index.to_string()).collect();
        let more = if self.meta.tasks.len() > known.len() { ", …" } else { "" };
        format!("known: {}{more}", known.join(", "))
    }
}

/// How a column differs from its declaration.
fn compare(feature: &Feature, found: &DataType) -> Option<(Severity, &'static str, String)> {
    let (element, length) = flatten(found);
    let wrong = |expected: &str| {
        Some((Severity::Error, "column-type", format!("holds {found}, expected {expected} (features in info.json)")))
    };
    match feature.kind {
        FeatureKind::Image if !matches!(found, DataType::Struct(_)) => wrong("a struct of bytes and path"),
        FeatureKind::Text if !matches!(element, DataType::Utf8 | DataType::LargeUtf8 | DataType::Dictionary(..)) => {
            wrong("text")
        }
        FeatureKind::Numeric if !(element.is_numeric() || *element == DataType::Boolean) => wrong(&feature.dtype),
        FeatureKind::Numeric if length.is_some_and(|length| length != feature.dimensions()) => {
            let length = length.unwrap_or_default();
            let message = format!("holds {length} values a row, expected {} (shape in info.json)", feature.dimensions());
            Some((Severity::Error, "column-length", message))
        }
        FeatureKind::Numeric if dtype_name(element) != feature.dtype => {
            let message = format!("holds {}, info.json says {}; it is converted", dtype_name(element), feature.dtype);
            Some((Severity::Warning, "column-dtype", message))
        }
        _ => None,
    }
}

/// The innermost type, and the number of values a row where the type tells it.
fn flatten(data_type: &DataType) -> (&DataType, Option<usize>) {
    match data_type {
        DataType::FixedSizeList(field, length) => {
            let (element, inner) = flatten(field.data_type());
            (element, inner.zip(usize::try_from(*length).ok()).map(|(inner, length)| inner.saturating_mul(length)))
        }
        DataType::List(field) | DataType::LargeList(field) => (flatten(field.data_type()).0, None),
        scalar => (scalar, Some(1)),
    }
}

/// As `info.json` spells it.
fn dtype_name(data_type: &DataType) -> String {
    match data_type {
        DataType::Boolean => "bool".to_owned(),
        other => other.to_string().to_lowercase(),
    }
}
