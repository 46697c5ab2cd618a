//! Where a checkpoint is: people name the policy, the checkpoint around it, or the whole run.

use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Explain, Kind};
use crate::track::run_dir::{CHECKPOINTS, RUN_FILE};
use crate::train::checkpoint::store::Store;

#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    #[error("there is no directory {}", path.display())]
    Absent { path: PathBuf },
    #[error("the run {} has no complete checkpoint yet", run.display())]
    NoCheckpoint { run: PathBuf },
    #[error("cannot list the checkpoints of {}", run.display())]
    List { run: PathBuf, source: io::Error },
}

impl Explain for PlaceError {
    fn kind(&self) -> Kind {
        match self {
            PlaceError::List { .. } => Kind::Environment,
            _ => Kind::Input,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            PlaceError::NoCheckpoint { run } => Some(format!("vlash watch {}  shows how far it is", run.display())),
            _ => None,
        }
    }
}

/// The newest checkpoint of a run; any other directory is taken as it is.
pub fn checkpoint(path: &Path) -> Result<PathBuf, PlaceError> {
    if !path.is_dir() {
        return Err(PlaceError::Absent { path: path.to_owned() });
    }
    let folder = if path.join(RUN_FILE).is_file() {
        path.join(CHECKPOINTS)
    } else if path.file_name().is_some_and(|name| name == CHECKPOINTS) {
        path.to_owned()
    } else {
        return Ok(path.to_owned());
    };
    let saved = Store::new(folder).list().map_err(|source| PlaceError::List { run: path.to_owned(), source })?;
    match saved.into_iter().next_back() {
        Some(newest) => Ok(newest.path),
        None => Err(PlaceError::NoCheckpoint { run: path.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_means_its_newest_checkpoint_and_everything_else_itself() {
        let run = tempfile::tempdir().unwrap();
        let path = run.path();
        assert_eq!(checkpoint(path).unwrap(), path);
        std::fs::write(path.join(RUN_FILE), "{}").unwrap();
        assert!(matches!(checkpoint(path), Err(PlaceError::NoCheckpoint { .. })));
        let store = Store::new(path.join(CHECKPOINTS));
        for step in [9, 10] {
            store.save(step, 2, |directory| std::fs::write(directory.join("a"), "")).unwrap();
        }
        // A half-written one does not count.
        std::fs::create_dir(path.join(CHECKPOINTS).join("11")).unwrap();
        let newest = path.join(CHECKPOINTS).join("10");
        assert_eq!(checkpoint(path).unwrap(), newest);
        assert_eq!(checkpoint(&path.join(CHECKPOINTS)).unwrap(), newest);
        assert_eq!(checkpoint(&newest).unwrap(), newest);
        assert!(matches!(checkpoint(&path.join("nowhere")), Err(PlaceError::Absent { .. })));
    }
}
