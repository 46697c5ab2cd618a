//! What can be wrong with a dataset, said so that its owner can mend it.

use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::video::VideoError;
use crate::config::ranges;
use crate::error::{Explain, Kind};

/// Reading a dataset failed.
#[derive(Debug, Error)]
pub enum DatasetError {
    #[error("{} is not a LeRobot dataset: {why}", path.display())]
    NotADataset { path: PathBuf, why: String },

    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },

    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },

    #[error("{} is a Git-LFS pointer, not the file itself", path.display())]
    LfsPointer { path: PathBuf },

    /// The format version, or its disagreement with the files (FF-01).
    #[error("dataset {}: {message}", root.display())]
    Version { root: PathBuf, message: String, hint: String },

    /// Malformed content of a file in `meta/`.
    #[error("{}: {message}", path.display())]
    Metadata { path: PathBuf, message: String },

    /// A parquet file that cannot be decoded, or whose columns are not what `info.json` declares.
    #[error("{}: {message}", path.display())]
    Table { path: PathBuf, message: String },

    #[error("episode {episode}: {} is missing{}", path.display(), present_here(present))]
    MissingFile { episode: usize, path: PathBuf, present: Vec<usize> },

    #[error("episode {episode}: {found} rows in {}, {expected} expected ({declared_by})", path.display())]
    RowCount { episode: usize, path: PathBuf, found: usize, expected: usize, declared_by: &'static str },

    #[error("there is no episode {episode}: this dataset has {}", ranges::list(known))]
    UnknownEpisode { episode: usize, known: Vec<usize> },

    #[error("the selection of episodes {problem}")]
    Selection { problem: String },

    #[error("episode {episode}, frame {frame}: task_index {task_index} is not in the task table")]
    UnknownTask { episode: usize, frame: usize, task_index: i64 },

    #[error("{problem}; the dataset's cameras are [{}]", cameras.join(", "))]
    Camera { problem: String, cameras: Vec<String> },

    #[error("this dataset has no feature {feature:?} to take as {role}; its vectors are [{}]", vectors.join(", "))]
    MissingFeature { feature: String, role: &'static str, vectors: Vec<String> },

    #[error("{feature}[{dimension}] ({name}) is {value} at episode {episode}, frame {frame}")]
    NotFinite { feature: String, dimension: usize, name: String, value: f32, episode: usize, frame: usize },

    #[error("episode {episode}, frame {frame}, camera {camera}: {problem} ({})", path.display())]
    Image { episode: usize, frame: usize, camera: String, problem: String, path: PathBuf },

    /// Fewer video frames than table rows, by more than one (FF-02).
    #[error("episode {episode}, camera {camera}: {rows} rows but {frames} video frames ({})", path.display())]
    ShortVideo { episode: usize, camera: String, rows: usize, frames: usize, path: PathBuf },

    #[error("episode {episode}, camera {camera}")]
    Video { episode: usize, camera: String, source: VideoError },

    #[error("position {position} lies outside of the {len} selected frames")]
    OutOfRange { position: usize, len: usize },

    #[error(transparent)]
    Window(#[from] super::window::WindowError),

    #[error("cannot export to {}", path.display())]
    Export { path: PathBuf, source: safetensors::SafeTensorError },
}

fn present_here(present: &[usize]) -> String {
    match present {
        [] => String::new(),
        [only] => format!("; only episode {only} is present here"),
        [head @ .., last] if head.len() < 8 => {
            let head: Vec<String> = head.iter().map(usize::to_string).collect();
            format!("; only episodes {} and {last} are present here", head.join(", "))
        }
        many => format!("; {} episodes are present here", many.len()),
    }
}

impl DatasetError {
    pub(super) fn metadata(path: impl Into<PathBuf>, message: impl Into<String>) -> Self {
        DatasetError::Metadata { path: path.into(), message: message.into() }
    }

    pub(super) fn table(path: &Path, message: impl Into<String>) -> Self {
        DatasetError::Table { path: path.to_path_buf(), message: message.into() }
    }

    pub(super) fn read(path: &Path, source: io::Error) -> Self {
        DatasetError::Read { path: path.to_path_buf(), source }
    }
}

impl Explain for DatasetError {
    fn kind(&self) -> Kind {
        match self {
            DatasetError::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => Kind::Input,
            DatasetError::Read { .. } | DatasetError::Write { .. } | DatasetError::Export { .. } => Kind::Environment,
            DatasetError::OutOfRange { .. } => Kind::Internal,
            DatasetError::Video { source, .. } => source.kind(),
            _ => Kind::Input,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            DatasetError::NotADataset { .. } => {
                Some("give the directory that contains meta/info.json (data.repo, or data.root)".into())
            }
            DatasetError::LfsPointer { .. } => {
                Some("run `git lfs pull` in the dataset's directory, or download the dataset again".into())
            }
            DatasetError::Version { hint, .. } => Some(hint.clone()),
            DatasetError::MissingFile { present, .. } if !present.is_empty() => {
                Some(format!("set data.episodes = {}, or download the missing files", ranges::list(present)))
            }
            DatasetError::MissingFile { .. } => Some("download the missing files".into()),
            DatasetError::UnknownEpisode { known, .. } => Some(format!("data.episodes = {}", ranges::list(known))),
            DatasetError::NotFinite { episode, .. } => Some(format!(
                "mend the recording, or leave episode {episode} out (`vlash data check` lists all of them)"
            )),
            DatasetError::ShortVideo { episode, .. } => {
                Some(format!("leave episode {episode} out with data.episodes; `vlash data check` prints the list"))
            }
            DatasetError::UnknownTask { .. } => Some("add the task to the task table in meta/".into()),
            DatasetError::MissingFeature { role, .. } => {
                Some(format!("name it with data.rename, for example {{ \"its.name\" = \"{role}\" }}"))
            }
            DatasetError::Window(error) => error.hint(),
            DatasetError::Video { source, .. } => source.hint(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_download_names_the_file_and_a_selection_that_works() {
        let error = DatasetError::MissingFile {
            episode: 7,
            path: "data/chunk-000/episode_000007.parquet".into(),
            present: vec![2, 4],
        };
        assert_eq!(
            error.to_string(),
            "episode 7: data/chunk-000/episode_000007.parquet is missing; only episodes 2 and 4 are present here"
        );
        assert_eq!(error.hint().as_deref(), Some("set data.episodes = [2, 4], or download the missing files"));
    }
}
