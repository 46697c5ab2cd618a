//! `training_state/`: what resuming needs beside the policy's files.
//!
//! ```text
//! training_step.json            LeRobot's {"step": N}
//! trainer.json                  [`TrainerState`]
//! trained.safetensors           f32 masters of everything that trains, by canonical name
//! optimizer_state.safetensors   moments and step counters; see `AdamW::state`
//! ```
//!
//! Random numbers are keyed by seed and counters, and the data order by (seed, epoch, position): the step is all
//! that has to be remembered of both.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use candle_core::{Device, Tensor};
use serde::{Deserialize, Serialize};

use crate::train::adamw::AdamW;
use crate::train::error::TrainError;

const TRAINED: &str = "trained.safetensors";
const OPTIMIZER: &str = "optimizer_state.safetensors";
const TRAINER: &str = "trainer.json";
const STEP: &str = "training_step.json";

/// Counters of the trainer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainerState {
    /// Version of this file's form.
    pub format: u32,
    /// Optimizer steps done.
    pub step: u64,
    /// Samples seen: frames, which is what the data order counts.
    pub samples: u64,
    /// Factor on the schedule, changed by `SetLearningRate`.
    pub schedule_multiplier: f64,
    /// Steps that the schedule is fitted to: those of the run when it began.
    pub schedule_steps: u64,
}

/// Writes `training_state/` into `directory`, which exists and is empty.
pub fn write(directory: &Path, state: &TrainerState, optimizer: &AdamW) -> Result<(), TrainError> {
    let io_error = |path: PathBuf| move |source: io::Error| TrainError::Io { action: "write", path, source };
    let trained: BTreeMap<String, Tensor> =
        optimizer.masters().map(|(name, var)| (name.to_string(), var.as_tensor().clone())).collect();
    save_tensors(&directory.join(TRAINED), &trained)?;
    save_tensors(&directory.join(OPTIMIZER), &optimizer.state()?)?;
    for (name, value) in [
        (TRAINER, serde_json::to_value(state).map_err(io::Error::from)),
        (STEP, Ok(serde_json::json!({"step": state.step}))),
    ] {
        let path = directory.join(name);
        let bytes = value.and_then(|v| Ok(serde_json::to_vec_pretty(&v)?)).map_err(io_error(path.clone()))?;
        fs::write(&path, bytes).map_err(io_error(path))?;
    }
    Ok(())
}

/// Puts the weights and the optimizer back as they were, and returns the counters.
pub fn restore(directory: &Path, optimizer: &mut AdamW) -> Result<TrainerState, TrainError> {
    let path = directory.join(TRAINER);
    let state: TrainerState = fs::read(&path)
        .and_then(|bytes| Ok(serde_json::from_slice(&bytes)?))
        .map_err(|source| TrainError::Io { action: "read", path, source })?;
    let trained = load_tensors(&directory.join(TRAINED))?;
    for (name, var) in optimizer.masters() {
        let tensor =
            trained.get(name).ok_or_else(|| TrainError::StateMismatch { name: name.into(), found: "absent".into() })?;
        if tensor.dims() != var.dims() {
            return Err(TrainError::StateMismatch {
                name: name.into(),
                found: format!("{:?} instead of {:?}", tensor.dims(), var.dims()),
            });
        }
        var.set(&tensor.to_device(var.device())?)?;
    }
    optimizer.restore(&load_tensors(&directory.join(OPTIMIZER))?)?;
    Ok(state)
}

fn save_tensors(path: &Path, tensors: &BTreeMap<String, Tensor>) -> Result<(), TrainError> {
    let entries: Vec<(&str, &Tensor)> = tensors.iter().map(|(name, tensor)| (name.as_str(), tensor)).collect();
    safetensors::serialize_to_file(entries, None, path).map_err(|error| TrainError::Io {
        action: "write",
        path: path.into(),
        source: io::Error::other(error),
    })
}

fn load_tensors(path: &Path) -> Result<HashMap<String, Tensor>, TrainError> {
    candle_core::safetensors::load(path, &Device::Cpu).map_err(|error| TrainError::Io {
        action: "read",
        path: path.into(),
        source: io::Error::other(error),
    })
}
