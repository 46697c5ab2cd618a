//! Writing LeRobot v3.0 datasets: recordings, conversions, and the bundled reaching task.
//!
//! A dataset is written beside its final place and renamed when it is whole, so a reader never sees half
//! of one, and a crash leaves nothing but a `.tmp-…` directory. Inside, the order is the format's: data
//! files (one row group an episode, snappy), the episodes table, tasks, statistics, and `info.json` last.
//!
//! Pictures are PNGs inside the parquet files (lossless) or H.264 in MP4 files of many episodes. A frame is encoded when
//! it is pushed, on the thread that fills its episode; saving an episode copies what was encoded.
//!
//! Format: `lerobot/datasets/{dataset_writer,dataset_metadata,io_utils}.py` of LeRobot 0.6.1.

mod data;
mod episode;
mod park;
mod spec;
mod statistics;
mod tables;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod video_tests;
mod videos;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{WriterProperties, WriterPropertiesBuilder};

use crate::dataset::video::VideoWriteError;
use crate::error::{Explain, Kind};
use crate::files::{sync_directory, temporary_beside, write_atomic};

pub use episode::{Episode, Value};
pub use park::EpisodeForm;
pub use spec::{DatasetSpec, FeatureKind, FeatureSpec, NumericType};

use data::DataFiles;
use episode::Column;
use tables::EpisodeRow;
use videos::VideoFiles;

/// Why a dataset could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    #[error("cannot write the dataset file {}", .path.display())]
    Io { path: PathBuf, source: io::Error },
    #[error("cannot write the table {}", .path.display())]
    Parquet { path: PathBuf, source: parquet::errors::ParquetError },
    #[error("cannot assemble the table {table}")]
    Arrow { table: &'static str, source: arrow::error::ArrowError },
    #[error("cannot encode an image of {feature} as PNG")]
    Png { feature: String, source: image::ImageError },
    #[error("feature {feature}: {source}")]
    Video { feature: String, source: VideoWriteError },
    #[error("cannot write a dataset to {}: it exists and is not an empty directory", .path.display())]
    Exists { path: PathBuf },
    #[error("cannot describe the dataset: {problem}")]
    Spec { problem: String },
    #[error("frame {frame} of the episode, feature {feature}: found {found}, expected {expected}")]
    Value { frame: usize, feature: String, found: String, expected: String },
    #[error("cannot save episode {episode}: {problem}")]
    Episode { episode: usize, problem: &'static str },
    /// Bytes that are no parked episode of this dataset.
    #[error("not an episode of this dataset: {problem}")]
    Parked { problem: String },
    #[error("{name}: a file of the format, or a name that leaves meta/")]
    Attachment { name: String },
}

impl Explain for WriteError {
    fn kind(&self) -> Kind {
        match self {
            WriteError::Io { .. } | WriteError::Parquet { .. } => Kind::Environment,
            WriteError::Exists { .. } => Kind::Input,
            WriteError::Arrow { .. } | WriteError::Png { .. } | WriteError::Attachment { .. } => Kind::Internal,
            WriteError::Video { source, .. } => source.kind(),
            WriteError::Spec { .. }
            | WriteError::Value { .. }
            | WriteError::Episode { .. }
            | WriteError::Parked { .. } => Kind::Input,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            WriteError::Io { path, .. } | WriteError::Parquet { path, .. } => {
                let directory = path.parent().unwrap_or(path);
                Some(format!("check free space and permissions: df -h {0}; ls -ld {0}", directory.display()))
            }
            WriteError::Exists { path } => {
                Some(format!("choose another directory, or move it away: mv {0} {0}.old", path.display()))
            }
            WriteError::Video { source, .. } => source.hint(),
            _ => None,
        }
    }
}

pub(crate) fn io_error(path: &Path) -> impl FnOnce(io::Error) -> WriteError + '_ {
    |source| WriteError::Io { path: path.to_path_buf(), source }
}

fn parquet_error(path: &Path) -> impl Fn(parquet::errors::ParquetError) -> WriteError + '_ {
    |source| WriteError::Parquet { path: path.to_path_buf(), source }
}

/// A dataset under construction; nothing appears at its place before [`DatasetWriter::finish`].
#[derive(Debug)]
pub struct DatasetWriter {
    root: PathBuf,
    staging: Staging,
    spec: Arc<DatasetSpec>,
    data: DataFiles,
    /// Of each video feature.
    videos: Vec<VideoFiles>,
    tasks: Vec<String>,
    rows: Vec<EpisodeRow>,
    /// Every value so far (pictures as histograms), for exact statistics of the whole dataset.
    totals: Vec<Column>,
    frames: usize,
}

impl DatasetWriter {
    /// Starts a dataset that will stand at `root`, which must be absent or an empty directory.
    ///
    /// # Errors
    /// [`WriteError::Exists`], [`WriteError::Spec`] when the features contradict themselves, or I/O.
    pub fn create(root: &Path, spec: DatasetSpec) -> Result<Self, WriteError> {
        DatasetWriter::create_from(root, temporary_beside(root), spec)
    }

    /// As [`DatasetWriter::create`], growing in the directory `staging`, which must be absent and of `root`'s file system:
    /// for who cleans up after a kill.
    ///
    /// # Errors
    /// As [`DatasetWriter::create`].
    pub fn create_from(root: &Path, staging: PathBuf, spec: DatasetSpec) -> Result<Self, WriteError> {
        spec.validate()?;
        if !is_absent_or_empty(root) {
            return Err(WriteError::Exists { path: root.to_path_buf() });
        }
        let spec = Arc::new(spec.with_index_features());
        let staging = Staging(staging);
        fs::create_dir_all(&staging.0).map_err(io_error(&staging.0))?;
        Ok(DatasetWriter {
            root: root.to_path_buf(),
            data: DataFiles::new(&staging.0, &spec),
            videos: spec.videos().map(|feature| VideoFiles::new(&staging.0, &spec, &feature.name)).collect(),
            staging,
            tasks: Vec::new(),
            rows: Vec::new(),
            totals: spec.features.iter().map(Column::new).collect(),
            frames: 0,
            spec,
        })
    }

    /// An empty episode to fill with frames. Episodes can be filled on other threads.
    pub fn begin(&self, task: &str) -> Episode {
        Episode::new(self.spec.clone(), task)
    }

    /// Appends a finished episode as one row group.
    ///
    /// # Errors
    /// [`WriteError::Episode`] when it has no frames, no task, or belongs to another writer; I/O.
    pub fn save(&mut self, mut episode: Episode) -> Result<(), WriteError> {
        let number = self.rows.len();
        let problem = |problem| Err(WriteError::Episode { episode: number, problem });
        if !Arc::ptr_eq(&episode.spec, &self.spec) {
            return problem("it was begun by another writer");
        }
        if episode.is_empty() {
            return problem("it has no frames");
        }
        if episode.task.trim().is_empty() {
            return problem("its task text is empty");
        }
        episode.close();
        let task = self.task_index(&episode.task);
        episode.fill_index_columns(number, self.frames, task);
        let place = self.data.append(&episode)?;
        let videos = self.videos.iter_mut().zip(episode.clips()).map(|(files, clip)| files.append(clip));
        let videos = videos.collect::<Result<Vec<_>, _>>()?;
        let length = episode.len();
        let stats =
            self.spec.features.iter().zip(&episode.columns).map(|(f, c)| (f.name.clone(), c.statistics(f.dims())));
        self.rows.push(EpisodeRow {
            task: episode.task.clone(),
            length,
            from_index: self.frames,
            place,
            videos,
            stats: stats.collect::<BTreeMap<_, _>>(),
        });
        for (total, column) in self.totals.iter_mut().zip(episode.columns) {
            total.absorb(column);
        }
        self.frames += length;
        Ok(())
    }

    fn task_index(&mut self, task: &str) -> usize {
        self.tasks.iter().position(|known| known == task).unwrap_or_else(|| {
            self.tasks.push(task.to_owned());
            self.tasks.len() - 1
        })
    }

    /// Puts a JSON file `name` of the recorder's own into `meta/`, which readers of the format do not look at.
    ///
    /// # Errors
    /// [`WriteError::Attachment`] for a name that is the format's or a path, or I/O.
    pub fn attach(&self, name: &str, content: &serde_json::Value) -> Result<(), WriteError> {
        let plain = name.strip_suffix(".json").is_some_and(|stem| stem.chars().all(|c| c.is_ascii_lowercase()));
        if !plain || ["info.json", "stats.json"].contains(&name) {
            return Err(WriteError::Attachment { name: name.to_owned() });
        }
        let meta = self.staging.0.join("meta");
        fs::create_dir_all(&meta).map_err(io_error(&meta))?;
        write_json(&meta.join(name), content)
    }

    /// Completes the dataset and moves it to its place, whose path is returned.
    ///
    /// # Errors
    /// [`WriteError::Episode`] without a single episode, [`WriteError::Exists`] when somebody else wrote
    /// there meanwhile, or I/O. Nothing is left behind after an error.
    pub fn finish(mut self) -> Result<PathBuf, WriteError> {
        if self.rows.is_empty() {
            return Err(WriteError::Episode { episode: 0, problem: "the dataset would hold no episode" });
        }
        let staging = &self.staging.0;
        self.data.close()?;
        self.videos.iter_mut().try_for_each(VideoFiles::close)?;
        tables::write_episodes(staging, &self.spec, &self.rows)?;
        tables::write_tasks(staging, &self.tasks)?;
        let totals = self.spec.features.iter().zip(&self.totals).map(|(f, c)| (f, c.statistics(f.dims())));
        write_json(&staging.join("meta/stats.json"), &statistics::to_json(totals))?;
        write_json(&staging.join("meta/info.json"), &self.spec.info(self.rows.len(), self.frames, self.tasks.len()))?;
        match fs::rename(staging, &self.root) {
            Ok(()) => {}
            Err(_) if !is_absent_or_empty(&self.root) => return Err(WriteError::Exists { path: self.root.clone() }),
            Err(source) => return Err(WriteError::Io { path: self.root.clone(), source }),
        }
        sync_directory(self.root.parent().unwrap_or(Path::new("."))).map_err(io_error(&self.root))?;
        Ok(self.root.clone())
    }
}

/// The directory in which a dataset grows; removed when dropped (after the rename it is no longer there).
#[derive(Debug)]
struct Staging(PathBuf);

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn is_absent_or_empty(path: &Path) -> bool {
    match fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

fn write_json(path: &Path, value: &serde_json::Value) -> Result<(), WriteError> {
    write_atomic(path, format!("{value:#}\n").as_bytes()).map_err(io_error(path))
}

/// What all our parquet files share.
fn properties() -> WriterPropertiesBuilder {
    WriterProperties::builder().set_compression(Compression::SNAPPY)
}

/// Creates a parquet file with its directories. The schema's metadata also becomes the file's: pyarrow reads
/// it from the embedded Arrow schema, others from the key-value block of the footer.
fn create_parquet(
    path: &Path,
    schema: SchemaRef,
    properties: WriterPropertiesBuilder,
) -> Result<ArrowWriter<File>, WriteError> {
    let directory = path.parent().unwrap_or(path);
    fs::create_dir_all(directory).map_err(io_error(directory))?;
    let file = File::create(path).map_err(io_error(path))?;
    let metadata = schema.metadata().iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone())).collect();
    let properties = properties.set_key_value_metadata(Some(metadata)).build();
    ArrowWriter::try_new(file, schema, Some(properties)).map_err(parquet_error(path))
}

/// Writes the footer and makes the file durable.
fn close_parquet(path: &Path, writer: ArrowWriter<File>) -> Result<(), WriteError> {
    let file = writer.into_inner().map_err(parquet_error(path))?;
    file.sync_all().map_err(io_error(path))
}
