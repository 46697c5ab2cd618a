//! What keeps a recording from its dataset.

use std::io;
use std::path::{Path, PathBuf};

use crate::dataset::write::WriteError;
use crate::error::{Explain, Kind};

/// Why there is no dataset, or not yet.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    #[error("{problem}")]
    Setting { problem: String, hint: String },
    #[error("{} holds a recording with other settings: {}", place.display(), differences.join("; "))]
    OtherSettings { place: PathBuf, differences: Vec<String> },
    #[error("another process records into {}", place.display())]
    Busy { place: PathBuf },
    #[error("{} is no recording of this program: {found}", place.display())]
    Foreign { place: PathBuf, found: String },
    #[error("there is nothing to finish: {} holds no episode", place.display())]
    Nothing { place: PathBuf },
    #[error("the episode {} is damaged: {found}", file.display())]
    Damaged { file: PathBuf, found: WriteError },
    #[error("{kept} of {tried} seeds succeeded: too few to go on")]
    Hopeless { kept: u64, tried: u64, out: PathBuf },
    #[error("stopped by {signal} with {kept} of {episodes} episodes, which stay in {}", place.display())]
    Stopped { signal: &'static str, kept: u64, episodes: u64, place: PathBuf, out: PathBuf },
    #[error("cannot {action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot listen to signals")]
    Signals(#[source] io::Error),
    #[error("no thread to record with")]
    Thread(#[from] rayon::ThreadPoolBuildError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl CollectError {
    pub(super) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> CollectError {
        let path = path.to_owned();
        move |source| CollectError::Io { action, path, source }
    }
}

impl Explain for CollectError {
    fn kind(&self) -> Kind {
        match self {
            CollectError::Io { .. }
            | CollectError::Busy { .. }
            | CollectError::Signals(_)
            | CollectError::Thread(_) => Kind::Environment,
            CollectError::Stopped { .. } => Kind::Stopped,
            CollectError::Write(error) => error.kind(),
            _ => Kind::Input,
        }
    }

    fn hint(&self) -> Option<String> {
        let finish = |out: &Path| format!("vlash collect --out {} --finish", out.display());
        match self {
            CollectError::Setting { hint, .. } => Some(hint.clone()),
            CollectError::OtherSettings { place, .. } => {
                Some(format!("the settings of before, another --out, or away with it: rm -r {}", place.display()))
            }
            CollectError::Busy { .. } => Some("wait for it, or choose another --out".into()),
            CollectError::Foreign { place, .. } => Some(format!("choose another --out, or: rm -r {}", place.display())),
            CollectError::Nothing { .. } => Some("the same command without --finish records".into()),
            CollectError::Damaged { file, .. } => {
                Some(format!("rm {}; the same command records it again", file.display()))
            }
            CollectError::Hopeless { out, .. } => {
                Some(format!("a better --source or a smaller --noise; {} keeps what is there", finish(out)))
            }
            CollectError::Stopped { out, .. } => {
                Some(format!("the same command goes on; {} makes a dataset of what is there", finish(out)))
            }
            CollectError::Io { path, .. } => {
                let directory = path.parent().unwrap_or(path);
                Some(format!("check free space and permissions: df -h {0}; ls -ld {0}", directory.display()))
            }
            CollectError::Write(error) => error.hint(),
            CollectError::Thread(_) => Some("--threads 1".into()),
            CollectError::Signals(_) => None,
        }
    }
}
