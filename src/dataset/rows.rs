//! The numeric rows of whole episodes, in memory.
//!
//! State, action and the index columns of a million frames of a 14-joint arm take about 150 MB; images stay in
//! their files.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::error::DatasetError;
use super::meta::{Episode, Feature, Metadata};
use super::table::{Rows, Table};

/// What a training sample needs of each frame of one episode.
#[derive(Debug, Clone, PartialEq)]
pub struct EpisodeRows {
    /// Frames.
    pub length: usize,
    /// Row of the episode's first frame in its parquet file.
    pub first_row: usize,
    /// `[length, state_dim]` row-major; empty when the dataset has no state.
    pub state: Vec<f32>,
    /// `[length, action_dim]` row-major.
    pub action: Vec<f32>,
    /// Seconds from the episode's start.
    pub timestamp: Vec<f32>,
    pub frame_index: Vec<i64>,
    /// Global frame numbers.
    pub index: Vec<i64>,
    pub task_index: Vec<i64>,
}

/// The columns to take as state and action.
#[derive(Debug, Clone, Copy)]
pub struct Vectors<'a> {
    pub state: Option<&'a Feature>,
    pub action: &'a Feature,
}

/// Reads `episodes` (in any order) from the files they are in; the result is in the same order.
pub fn read_episodes(
    meta: &Metadata,
    episodes: &[&Episode],
    vectors: Vectors<'_>,
) -> Result<Vec<EpisodeRows>, DatasetError> {
    let mut files: BTreeMap<PathBuf, Vec<usize>> = BTreeMap::new();
    for (at, episode) in episodes.iter().enumerate() {
        files.entry(meta.data_path(episode)).or_default().push(at);
    }
    let files: Vec<(PathBuf, Vec<usize>)> = files.into_iter().collect();
    let read = |(path, members): &(PathBuf, Vec<usize>)| -> Result<Vec<(usize, EpisodeRows)>, DatasetError> {
        let wanted: Vec<&Episode> = members.iter().filter_map(|&at| episodes.get(at).copied()).collect();
        let rows = read_file(&meta.root.join(path), &wanted, vectors)?;
        Ok(members.iter().copied().zip(rows).collect())
    };
    let mut all: Vec<(usize, EpisodeRows)> =
        files.par_iter().map(read).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
    all.sort_by_key(|(at, _)| *at);
    Ok(all.into_iter().map(|(_, rows)| rows).collect())
}

fn read_file(path: &Path, episodes: &[&Episode], vectors: Vectors<'_>) -> Result<Vec<EpisodeRows>, DatasetError> {
    let table = Table::open(path)?;
    let runs = runs(&table.read(&["episode_index"], None)?.integers("episode_index")?);
    let mut order: Vec<(usize, Range<usize>)> = Vec::with_capacity(episodes.len());
    for (at, episode) in episodes.iter().enumerate() {
        order.push((at, rows_of(path, &runs, episode)?));
    }
    order.sort_by_key(|(_, range)| range.start);
    let ranges: Vec<Range<usize>> = order.iter().map(|(_, range)| range.clone()).collect();
    let mut columns = vec![vectors.action.name.as_str(), "timestamp", "frame_index", "index", "task_index"];
    columns.extend(vectors.state.map(|state| state.name.as_str()));
    let columns = Columns::decode(&table.read(&columns, Some(&ranges))?, vectors)?;
    let mut start = 0;
    let mut split: Vec<(usize, EpisodeRows)> = Vec::with_capacity(order.len());
    for (at, range) in order {
        split.push((at, columns.episode(start..start + range.len(), range.start)));
        start += range.len();
    }
    split.sort_by_key(|(at, _)| *at);
    Ok(split.into_iter().map(|(_, rows)| rows).collect())
}

/// Where each episode's rows are; none for an episode whose rows are not in one piece.
fn runs(numbers: &[i64]) -> BTreeMap<i64, Option<Range<usize>>> {
    let mut runs: BTreeMap<i64, Option<Range<usize>>> = BTreeMap::new();
    let mut start = 0;
    for run in numbers.chunk_by(|a, b| a == b) {
        if let Some(&number) = run.first() {
            let range = start..start + run.len();
            runs.entry(number).and_modify(|earlier| *earlier = None).or_insert(Some(range));
        }
        start += run.len();
    }
    runs
}

/// The rows of `episode`, as many as declared.
fn rows_of(
    path: &Path,
    runs: &BTreeMap<i64, Option<Range<usize>>>,
    episode: &Episode,
) -> Result<Range<usize>, DatasetError> {
    let number = i64::try_from(episode.index).unwrap_or(i64::MAX);
    let range = match runs.get(&number) {
        Some(Some(range)) => range.clone(),
        Some(None) => {
            let message = format!("the rows of episode {} are not in one piece", episode.index);
            return Err(DatasetError::table(path, message));
        }
        None => 0..0,
    };
    if range.len() != episode.length || range.is_empty() {
        return Err(DatasetError::RowCount {
            episode: episode.index,
            path: path.to_path_buf(),
            found: range.len(),
            expected: episode.length,
            declared_by: "the episode table in meta/",
        });
    }
    Ok(range)
}

/// The decoded columns of all chosen rows of one file.
struct Columns {
    state: Vec<f32>,
    state_dim: usize,
    action: Vec<f32>,
    action_dim: usize,
    timestamp: Vec<f32>,
    frame_index: Vec<i64>,
    index: Vec<i64>,
    task_index: Vec<i64>,
}

impl Columns {
    fn decode(rows: &Rows, vectors: Vectors<'_>) -> Result<Columns, DatasetError> {
        let state_dim = vectors.state.map_or(0, Feature::dimensions);
        let action_dim = vectors.action.dimensions();
        Ok(Columns {
            state: match vectors.state {
                Some(state) => rows.matrix(&state.name, state_dim)?,
                None => Vec::new(),
            },
            state_dim,
            action: rows.matrix(&vectors.action.name, action_dim)?,
            action_dim,
            timestamp: rows.matrix("timestamp", 1)?,
            frame_index: rows.integers("frame_index")?,
            index: rows.integers("index")?,
            task_index: rows.integers("task_index")?,
        })
    }

    /// All columns have as many rows as the record batch, of which `rows` is a part.
    fn episode(&self, rows: Range<usize>, first_row: usize) -> EpisodeRows {
        let of = |width: usize| rows.start * width..rows.end * width;
        EpisodeRows {
            length: rows.len(),
            first_row,
            state: self.state[of(self.state_dim)].to_vec(),
            action: self.action[of(self.action_dim)].to_vec(),
            timestamp: self.timestamp[rows.clone()].to_vec(),
            frame_index: self.frame_index[rows.clone()].to_vec(),
            index: self.index[rows.clone()].to_vec(),
            task_index: self.task_index[rows].to_vec(),
        }
    }
}
