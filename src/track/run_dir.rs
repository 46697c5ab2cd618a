//! Opening a run directory: never over somebody else's files, never two owners.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::lease::{Lease, LeaseError};
use crate::error::{Explain, Kind};
use crate::files;

/// The folders of a run.
pub const CHECKPOINTS: &str = "checkpoints";
/// The inbox.
pub const CONTROL: &str = "control";
/// Output of each process.
pub const LOGS: &str = "logs";
/// The file that marks a directory as a run of ours.
pub const RUN_FILE: &str = "run.json";

/// `run.json`: what was asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// Version of this file's form.
    pub format: u32,
    pub name: String,
    /// Seconds since the Unix epoch.
    pub created: f64,
    /// Version of `vlash` that began the run.
    pub version: String,
    pub host: String,
    pub command: Vec<String>,
    /// The resolved configuration.
    pub config: serde_json::Value,
}

/// What is at the place where a run should go.
#[derive(Debug)]
pub enum Found {
    /// Nothing, or an empty directory.
    Vacant,
    /// A run of ours.
    Run(Box<RunRecord>),
}

/// Why a run cannot live in a directory.
#[derive(Debug, thiserror::Error)]
pub enum RunDirError {
    #[error("run directory {path} is a file")]
    NotADirectory { path: PathBuf },
    #[error(
        "run directory {path} has {entries} entries and no {RUN_FILE}: it is not a vlash run, and nothing in it will be touched"
    )]
    Foreign { path: PathBuf, entries: usize },
    #[error("run directory {path}: {RUN_FILE} cannot be read as a run record: {reason}")]
    Unreadable { path: PathBuf, reason: String },
    #[error("run directory {path}: cannot {action}")]
    Io { path: PathBuf, action: &'static str, source: io::Error },
    #[error(
        "run directory {path} was moved, removed or replaced while the run wrote into it: its record and events, and the \
         checkpoints before that, are elsewhere or gone{}", rest(.checkpoint)
    )]
    Vanished { path: PathBuf, checkpoint: Option<PathBuf> },
    #[error(transparent)]
    Lease(#[from] LeaseError),
}

fn rest(checkpoint: &Option<PathBuf>) -> String {
    checkpoint.as_ref().map_or(String::new(), |path| format!("; written since: {}", path.display()))
}

impl Explain for RunDirError {
    fn kind(&self) -> Kind {
        match self {
            RunDirError::Io { .. } | RunDirError::Vanished { .. } => Kind::Environment,
            RunDirError::Lease(error) => error.kind(),
            _ => Kind::Input,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            RunDirError::Foreign { path, .. } | RunDirError::NotADirectory { path } => {
                Some(format!("choose an empty directory, e.g. run.dir={}-run1", path.display()))
            }
            RunDirError::Unreadable { path, .. } => {
                Some(format!("restore {}, or choose another directory with run.dir=…", path.join(RUN_FILE).display()))
            }
            RunDirError::Io { path, .. } => Some(format!(
                "check that {} exists and is writable, or choose another directory with run.dir=…",
                path.display()
            )),
            RunDirError::Vanished { path, .. } => Some(format!(
                "put the directory back to continue, or start anew: mv {0} {0}-rest, then the same command",
                path.display()
            )),
            RunDirError::Lease(error) => error.hint(),
        }
    }
}

/// Looks without touching: what is at `path`?
pub fn inspect(path: &Path) -> Result<Found, RunDirError> {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Vacant),
        Err(source) => return Err(RunDirError::Io { path: path.into(), action: "look at it", source }),
    };
    if !metadata.is_dir() {
        return Err(RunDirError::NotADirectory { path: path.into() });
    }
    match fs::read(path.join(RUN_FILE)) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(|record| Found::Run(Box::new(record)))
            .map_err(|error| RunDirError::Unreadable { path: path.into(), reason: error.to_string() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let entries = fs::read_dir(path)
                .map_err(|source| RunDirError::Io { path: path.into(), action: "list it", source })?
                .count();
            if entries == 0 { Ok(Found::Vacant) } else { Err(RunDirError::Foreign { path: path.into(), entries }) }
        }
        Err(source) => Err(RunDirError::Io { path: path.into(), action: "read run.json", source }),
    }
}

/// A run directory that this process owns until it is dropped.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    /// Tells this directory from another one at the same place.
    inode: u64,
    _lease: Lease,
}

impl RunDir {
    /// Takes ownership of the run at `path`, creating it with `record` where nothing is yet.
    ///
    /// Refuses a directory that is not ours and one that another live process owns.
    pub fn open(path: &Path, record: &RunRecord) -> Result<RunDir, RunDirError> {
        let found = inspect(path)?;
        let io_error =
            |action: &'static str| move |source: io::Error| RunDirError::Io { path: path.into(), action, source };
        fs::create_dir_all(path).map_err(io_error("create it"))?;
        if matches!(found, Found::Vacant) {
            let bytes = serde_json::to_vec_pretty(record)
                .map_err(|error| RunDirError::Unreadable { path: path.into(), reason: error.to_string() })?;
            files::write_atomic(&path.join(RUN_FILE), &bytes).map_err(io_error("write run.json"))?;
        }
        let lease = Lease::acquire(path)?;
        let inode = fs::metadata(path).map_err(io_error("look at it"))?.ino();
        let run = RunDir { path: path.into(), inode, _lease: lease };
        run.create(&[CONTROL])?;
        Ok(run)
    }

    /// Creates the folders that this kind of run has beside its inbox.
    pub fn create(&self, folders: &[&str]) -> Result<(), RunDirError> {
        let io_error = |source| RunDirError::Io { path: self.path.clone(), action: "create its folders", source };
        folders.iter().try_for_each(|folder| fs::create_dir_all(self.path.join(folder)).map_err(io_error))
    }

    /// Whether the directory is still the one that was opened. A run whose directory went away writes its next
    /// checkpoint all the same, into a new one that is no run.
    pub fn is_intact(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) && self.path.join(RUN_FILE).exists()
    }

    /// Replaces `run.json`, when a run continues with another configuration.
    pub fn rewrite(&self, record: &RunRecord) -> Result<(), RunDirError> {
        let io_error = |source| RunDirError::Io { path: self.path.clone(), action: "write run.json", source };
        let bytes = serde_json::to_vec_pretty(record).map_err(|error| io_error(error.into()))?;
        files::write_atomic(&self.path.join(RUN_FILE), &bytes).map_err(io_error)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of the checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join(CHECKPOINTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> RunRecord {
        RunRecord {
            format: 1,
            name: "t".into(),
            created: 1.0,
            version: "0".into(),
            host: "h".into(),
            command: vec!["vlash".into()],
            config: serde_json::json!({"train": {"steps": 3}}),
        }
    }

    #[test]
    fn a_foreign_directory_is_refused_and_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("episode.parquet"), b"precious").unwrap();
        let error = RunDir::open(dir.path(), &record()).unwrap_err();
        assert!(error.to_string().contains("has 1 entries and no run.json"), "{error}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(error.kind(), Kind::Input);
    }

    #[test]
    fn our_own_half_started_run_opens_again_and_keeps_its_record() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        drop(RunDir::open(&path, &record()).unwrap());
        let mut other = record();
        other.name = "changed".into();
        drop(RunDir::open(&path, &other).unwrap());
        let Found::Run(kept) = inspect(&path).unwrap() else { panic!("no run") };
        assert_eq!(*kept, record());
    }

    #[test]
    fn two_owners_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let first = RunDir::open(&path, &record()).unwrap();
        let error = RunDir::open(&path, &record()).unwrap_err();
        assert!(matches!(error, RunDirError::Lease(LeaseError::Held { .. })), "{error}");
        drop(first);
        RunDir::open(&path, &record()).unwrap();
    }

    #[test]
    fn a_file_in_the_way_and_a_broken_record_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, b"x").unwrap();
        assert!(matches!(inspect(&file), Err(RunDirError::NotADirectory { .. })));
        fs::write(dir.path().join(RUN_FILE), b"{").unwrap();
        assert!(matches!(inspect(dir.path()), Err(RunDirError::Unreadable { .. })));
    }
}
