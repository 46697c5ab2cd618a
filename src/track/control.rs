//! `control/`: requests to a running trainer, one JSON file each.

use serde::{Deserialize, Serialize};

/// One file in `control/`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Unique; also the file's stem. Sorts by time of sending.
    pub id: String,
    pub command: Command,
}

/// What can be asked of a running trainer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Hold after the current step.
    Pause,
    Resume,
    /// Write a checkpoint after the current step.
    Checkpoint,
    /// Finish the step, write a checkpoint, exit "resumable".
    Stop,
    /// From the next step on, scale the schedule so that the rate at that step is `lr`.
    SetLearningRate {
        lr: f64,
    },
    /// Validate after the current step.
    Evaluate,
}

impl Command {
    /// The name used in events.
    pub fn name(&self) -> &'static str {
        match self {
            Command::Pause => "pause",
            Command::Resume => "resume",
            Command::Checkpoint => "checkpoint",
            Command::Stop => "stop",
            Command::SetLearningRate { .. } => "set_learning_rate",
            Command::Evaluate => "evaluate",
        }
    }
}

/// Takes every request out of the inbox of `run`, oldest first. A file that is no request is set aside as `*.bad`
/// and returned as an error text.
pub fn take(run: &std::path::Path) -> Vec<Result<Request, String>> {
    take_as(run)
}

/// As [`take`], for requests of the form `T`.
pub(super) fn take_as<T: serde::de::DeserializeOwned>(run: &std::path::Path) -> Vec<Result<T, String>> {
    let inbox = run.join(super::run_dir::CONTROL);
    let Ok(entries) = std::fs::read_dir(&inbox) else { return Vec::new() };
    let mut paths: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "json") && !is_hidden(path))
        .collect();
    paths.sort();
    paths.into_iter().map(|path| take_one(&path)).collect()
}

fn is_hidden(path: &std::path::Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

fn take_one<T: serde::de::DeserializeOwned>(path: &std::path::Path) -> Result<T, String> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let request = std::fs::read(path)
        .map_err(|error| error.to_string())
        .and_then(|bytes| serde_json::from_slice::<T>(&bytes).map_err(|error| error.to_string()));
    match request {
        Ok(request) => std::fs::remove_file(path).map(|()| request).map_err(|error| format!("{name}: {error}")),
        Err(reason) => {
            let _ = std::fs::rename(path, path.with_extension("bad"));
            Err(format!("control file {name} is no request: {reason}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_in_order_once_and_garbage_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let inbox = dir.path().join(super::super::run_dir::CONTROL);
        std::fs::create_dir(&inbox).unwrap();
        for (id, command) in [("2", Command::SetLearningRate { lr: 2e-5 }), ("1", Command::Pause)] {
            let request = Request { id: id.into(), command };
            std::fs::write(inbox.join(format!("{id}.json")), serde_json::to_vec(&request).unwrap()).unwrap();
        }
        std::fs::write(inbox.join("3.json"), b"{\"id\":3}").unwrap();
        let taken = take(dir.path());
        assert_eq!(taken[0].as_ref().unwrap().command, Command::Pause);
        assert_eq!(taken[1].as_ref().unwrap().command, Command::SetLearningRate { lr: 2e-5 });
        assert!(taken[2].as_ref().unwrap_err().contains("3.json is no request"));
        assert!(take(dir.path()).is_empty());
        assert!(inbox.join("3.bad").exists());
    }
}
