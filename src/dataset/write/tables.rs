//! The tables below `meta/`: episodes and tasks.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array, Int64Array, ListArray, StringArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{Field, Schema};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use serde_json::json;

use super::data::Place;
use super::spec::{DatasetSpec, FeatureSpec};
use super::statistics::entries;
use super::videos::VideoPlace;
use super::{WriteError, close_parquet, create_parquet, parquet_error, properties};
use crate::dataset::stats::Statistics;

/// Rows of one episodes file: about ten megabytes at a hundred statistics columns.
const EPISODES_PER_FILE: usize = 1000;

/// An episode as the episodes table knows it.
#[derive(Debug)]
pub(super) struct EpisodeRow {
    pub task: String,
    pub length: usize,
    /// Global index of its first frame.
    pub from_index: usize,
    /// Its data file.
    pub place: Place,
    /// Its place in the files of each video feature.
    pub videos: Vec<VideoPlace>,
    pub stats: Statistics,
}

/// `meta/episodes/chunk-CCC/file-FFF.parquet`
pub(super) fn write_episodes(root: &Path, spec: &DatasetSpec, rows: &[EpisodeRow]) -> Result<(), WriteError> {
    let mut place = Place::default();
    for (file, rows) in rows.chunks(EPISODES_PER_FILE).enumerate() {
        let batch = episodes_batch(spec, rows, file * EPISODES_PER_FILE, place)
            .map_err(|source| WriteError::Arrow { table: "meta/episodes", source })?;
        write_table(&place.path(&root.join("meta/episodes"), "parquet"), &batch)?;
        place = place.next(spec.chunks_size);
    }
    Ok(())
}

fn episodes_batch(
    spec: &DatasetSpec,
    rows: &[EpisodeRow],
    first_episode: usize,
    own: Place,
) -> Result<RecordBatch, ArrowError> {
    let integers = |value: &dyn Fn(&EpisodeRow) -> usize| -> ArrayRef {
        Arc::new(rows.iter().map(|row| value(row) as i64).collect::<Int64Array>())
    };
    let tasks = Arc::new(rows.iter().map(|row| Some(row.task.as_str())).collect::<StringArray>());
    let mut columns: Vec<(String, ArrayRef)> = vec![
        ("episode_index".into(), Arc::new((0..rows.len()).map(|i| (first_episode + i) as i64).collect::<Int64Array>())),
        ("tasks".into(), lists_of(1, tasks)?),
        ("length".into(), integers(&|row| row.length)),
        ("data/chunk_index".into(), integers(&|row| row.place.chunk)),
        ("data/file_index".into(), integers(&|row| row.place.file)),
        ("dataset_from_index".into(), integers(&|row| row.from_index)),
        ("dataset_to_index".into(), integers(&|row| row.from_index + row.length)),
    ];
    for (at, feature) in spec.videos().enumerate() {
        columns.extend(video_columns(&feature.name, rows.iter().filter_map(|row| row.videos.get(at))));
    }
    for feature in &spec.features {
        columns.extend(statistics_columns(feature, rows)?);
    }
    columns.push(("meta/episodes/chunk_index".into(), integers(&|_| own.chunk)));
    columns.push(("meta/episodes/file_index".into(), integers(&|_| own.file)));
    batch(columns)
}

/// `videos/KEY/{chunk_index,file_index,from_timestamp,to_timestamp}`
fn video_columns<'a>(key: &str, places: impl Iterator<Item = &'a VideoPlace> + Clone) -> Vec<(String, ArrayRef)> {
    let column = |name: &str| format!("videos/{key}/{name}");
    let integers = |value: fn(&VideoPlace) -> usize| -> ArrayRef {
        Arc::new(places.clone().map(|place| value(place) as i64).collect::<Int64Array>())
    };
    let seconds =
        |value: fn(&VideoPlace) -> f64| -> ArrayRef { Arc::new(places.clone().map(value).collect::<Float64Array>()) };
    vec![
        (column("chunk_index"), integers(|video| video.place.chunk)),
        (column("file_index"), integers(|video| video.place.file)),
        (column("from_timestamp"), seconds(|video| video.from)),
        (column("to_timestamp"), seconds(|video| video.to)),
    ]
}

/// `stats/FEATURE/{min,max,mean,std,count,q01,…}`, one list a row; `[3][1][1]` for images.
fn statistics_columns(feature: &FeatureSpec, rows: &[EpisodeRow]) -> Result<Vec<(String, ArrayRef)>, ArrowError> {
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut counts = Vec::new();
    for stats in rows.iter().filter_map(|row| row.stats.get(&feature.name)) {
        counts.push(stats.count as i64);
        for (name, dims) in entries(stats) {
            values.entry(name).or_default().extend_from_slice(dims);
        }
    }
    let column = |name: &str| format!("stats/{}/{name}", feature.name);
    let mut columns = vec![(column("count"), lists_of(1, Arc::new(Int64Array::from(counts)))?)];
    for (name, values) in values {
        let flat: ArrayRef = Arc::new(Float64Array::from(values));
        let shaped = if feature.kind.is_picture() { lists_of(1, lists_of(1, flat)?)? } else { flat };
        columns.push((column(name), lists_of(feature.dims(), shaped)?));
    }
    Ok(columns)
}

/// Consecutive groups of `length` values as lists.
fn lists_of(length: usize, values: ArrayRef) -> Result<ArrayRef, ArrowError> {
    let offsets = OffsetBuffer::from_lengths(std::iter::repeat_n(length, values.len() / length.max(1)));
    let element = Arc::new(Field::new("element", values.data_type().clone(), true));
    Ok(Arc::new(ListArray::try_new(element, offsets, values, None)?))
}

/// `meta/tasks.parquet` as pandas writes a frame whose index is the task's text.
pub(super) fn write_tasks(root: &Path, tasks: &[String]) -> Result<(), WriteError> {
    let columns: Vec<(String, ArrayRef)> = vec![
        ("task_index".into(), Arc::new((0..tasks.len() as i64).collect::<Int64Array>())),
        ("task".into(), Arc::new(tasks.iter().map(|t| Some(t.as_str())).collect::<StringArray>())),
    ];
    let column = |name: &str, pandas: &str, numpy: &str| json!({ "name": name, "field_name": name, "pandas_type": pandas, "numpy_type": numpy, "metadata": null });
    // Without this block pandas would make `task` a column, and LeRobot, which looks tasks up by the index, fail.
    let pandas = json!({
        "index_columns": ["task"],
        "column_indexes": [{
            "name": null, "field_name": null, "pandas_type": "unicode", "numpy_type": "object",
            "metadata": { "encoding": "UTF-8" },
        }],
        "columns": [column("task_index", "int64", "int64"), column("task", "unicode", "object")],
        "creator": { "library": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION") },
        "pandas_version": "2.2.0",
    });
    let batch = batch(columns)
        .and_then(|batch| {
            let metadata = HashMap::from([("pandas".to_owned(), pandas.to_string())]);
            let schema = batch.schema().as_ref().clone().with_metadata(metadata);
            batch.with_schema(Arc::new(schema))
        })
        .map_err(|source| WriteError::Arrow { table: "meta/tasks", source })?;
    write_table(&root.join("meta/tasks.parquet"), &batch)
}

fn batch(columns: Vec<(String, ArrayRef)>) -> Result<RecordBatch, ArrowError> {
    let fields: Vec<Field> = columns.iter().map(|(name, a)| Field::new(name, a.data_type().clone(), true)).collect();
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns.into_iter().map(|(_, array)| array).collect())
}

fn write_table(path: &Path, batch: &RecordBatch) -> Result<(), WriteError> {
    let mut writer = create_parquet(path, batch.schema(), properties())?;
    writer.write(batch).map_err(parquet_error(path))?;
    close_parquet(path, writer)
}
