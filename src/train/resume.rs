//! Start, continue, or leave alone: decided from the run directory before anything is loaded.

use std::path::{Path, PathBuf};

use super::changes::{Change, Weight, changes};
use super::checkpoint::store::{Saved, Store};
use super::error::TrainError;
use crate::config::train::{Resume, TrainConfig};
use crate::track::run_dir::{self, Found};

/// What to do with the run directory.
#[derive(Debug)]
pub enum Decision {
    /// Begin at step 0, in a new directory or in one of ours that has no checkpoint yet.
    Start {
        /// What differs from the configuration of an earlier try.
        changes: Vec<Change>,
    },
    /// Continue from a sound checkpoint.
    Continue {
        from: Saved,
        /// Newer checkpoints that are damaged, one line each.
        damaged: Vec<String>,
        /// What differs from the configuration so far.
        changes: Vec<Change>,
    },
    /// The run has done all its steps.
    Finished { last: Saved },
}

impl Decision {
    /// What differs from the configuration so far.
    pub fn changes(&self) -> &[Change] {
        match self {
            Decision::Start { changes } | Decision::Continue { changes, .. } => changes,
            Decision::Finished { .. } => &[],
        }
    }
}

/// Where the run lives: `run.dir`, else `$SCRATCH/outputs/<name>`, else `outputs/<name>`.
pub fn directory(config: &TrainConfig) -> PathBuf {
    config.run.dir.clone().unwrap_or_else(|| {
        let root = std::env::var_os("SCRATCH").filter(|v| !v.is_empty()).map(PathBuf::from).unwrap_or_default();
        root.join("outputs").join(&config.run.name)
    })
}

/// Looks at `run` without touching it.
pub fn decide(run: &Path, config: &TrainConfig, accept_changes: bool) -> Result<Decision, TrainError> {
    let record = match run_dir::inspect(run)? {
        Found::Run(record) => record,
        Found::Vacant if config.run.resume == Resume::Always => {
            return Err(TrainError::NothingToResume { path: run.into(), damaged: Vec::new() });
        }
        Found::Vacant => return Ok(Decision::Start { changes: Vec::new() }),
    };
    if config.run.resume == Resume::Never {
        return Err(TrainError::Exists { path: run.into() });
    }
    let changes = changes(&record.config, &to_value(config)?);
    let store = Store::new(run.join(run_dir::CHECKPOINTS));
    let io_error = |source| TrainError::Io { action: "read the checkpoints of", path: run.into(), source };
    let (newest, damaged) = store.newest_sound().map_err(io_error)?;
    match newest {
        Some(from) => {
            refuse(run, &changes, accept_changes)?;
            if from.step >= config.train.steps as u64 {
                return Ok(Decision::Finished { last: from });
            }
            Ok(Decision::Continue { from, damaged, changes })
        }
        None if config.run.resume == Resume::Always || !damaged.is_empty() => {
            Err(TrainError::NothingToResume { path: run.into(), damaged })
        }
        // Half-started: there is no state that could not fit, but two runs of one name are asked about.
        None => {
            let kept = |change: Change| Change { weight: change.weight.min(Weight::Deviating), ..change };
            let changes: Vec<Change> = changes.into_iter().map(kept).collect();
            refuse(run, &changes, accept_changes)?;
            Ok(Decision::Start { changes })
        }
    }
}

/// The resolved configuration as it is stored in `run.json`.
pub fn to_value(config: &TrainConfig) -> Result<serde_json::Value, TrainError> {
    serde_json::to_value(config).map_err(|error| TrainError::Io {
        action: "write the configuration as JSON for",
        path: directory(config),
        source: error.into(),
    })
}

fn refuse(run: &Path, changes: &[Change], accepted: bool) -> Result<(), TrainError> {
    let of = |weight| changes.iter().filter(|c| c.weight == weight).cloned().collect::<Vec<_>>();
    let (breaking, deviating) = (of(Weight::Breaking), of(Weight::Deviating));
    if !breaking.is_empty() {
        return Err(TrainError::Changed { path: run.into(), changes: breaking, breaking: true });
    }
    if !deviating.is_empty() && !accepted {
        return Err(TrainError::Changed { path: run.into(), changes: deviating, breaking: false });
    }
    Ok(())
}
