//! Sending requests to a running trainer: one file each in `control/`, complete or absent.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::control::{Command, Request};
use super::run_dir::CONTROL;
use crate::error::{Explain, Kind};
use crate::files;

/// Why a request did not reach the inbox.
#[derive(Debug, thiserror::Error)]
#[error("cannot put the request {command:?} into {inbox}")]
pub struct SendError {
    pub command: &'static str,
    pub inbox: PathBuf,
    pub source: io::Error,
}

impl Explain for SendError {
    fn kind(&self) -> Kind {
        Kind::Environment
    }

    fn hint(&self) -> Option<String> {
        Some(match self.source.kind() {
            io::ErrorKind::PermissionDenied => {
                format!("only who may write to {} can steer this run", self.inbox.display())
            }
            io::ErrorKind::NotFound => "the run directory is gone: check its path and its mount".into(),
            _ => format!("check free space and the mount of {}", self.inbox.display()),
        })
    }
}

/// Puts `command` into the inbox of the run at `run_dir` and returns the request's id.
///
/// The file appears under its final name complete (written beside, synced, renamed); names that start with a
/// dot are not requests. The answer comes as events that carry the id. The run directory itself must exist.
pub fn send(run_dir: &Path, command: Command) -> Result<String, SendError> {
    let name = command.name();
    put(run_dir, name, |id| Request { id, command })
}

/// Puts the request that `request` makes of its id into the inbox; `name` is for the error.
pub(super) fn put<T: serde::Serialize>(
    run_dir: &Path,
    name: &'static str,
    request: impl FnOnce(String) -> T,
) -> Result<String, SendError> {
    let inbox = run_dir.join(CONTROL);
    let id = new_id();
    let write = || -> io::Result<()> {
        match fs::create_dir(&inbox) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let bytes = serde_json::to_vec(&request(id.clone()))?;
        files::write_atomic(&inbox.join(format!("{id}.json")), &bytes)
    };
    match write() {
        Ok(()) => Ok(id),
        Err(source) => Err(SendError { command: name, inbox, source }),
    }
}

/// Sorts by time of sending; unique across hosts and processes for all practical purposes (milliseconds,
/// process, a counter).
fn new_id() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis());
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("{millis:014}-{}-{count:04}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_arrive_whole_in_order_and_leave_no_litter() {
        let run = tempfile::tempdir().unwrap();
        let first = send(run.path(), Command::Pause).unwrap();
        let second = send(run.path(), Command::SetLearningRate { lr: 2e-5 }).unwrap();
        assert!(first < second);
        let mut names: Vec<_> = fs::read_dir(run.path().join("control"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, [format!("{first}.json"), format!("{second}.json")]);
        let bytes = fs::read(run.path().join("control").join(&names[1])).unwrap();
        let request: Request = serde_json::from_slice(&bytes).unwrap();
        assert_eq!(request, Request { id: second, command: Command::SetLearningRate { lr: 2e-5 } });
    }

    #[test]
    fn a_missing_run_directory_is_not_created_and_the_error_names_the_inbox() {
        let dir = tempfile::tempdir().unwrap();
        let run = dir.path().join("gone");
        let error = send(&run, Command::Stop).unwrap_err();
        assert!(!run.exists());
        assert!(error.to_string().contains("gone/control"), "{error}");
        assert_eq!(error.kind(), Kind::Environment);
        assert!(error.hint().unwrap().contains("run directory is gone"));
    }
}
