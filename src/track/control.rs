//! `control/`: requests to a running trainer, one JSON file each.

use serde::{Deserialize, Serialize};

/// One file in `control/`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// Unique; also the file's stem. Sorts by time of sending.
    pub id: String,
    pub command: Command,
}

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
    SetLearningRate { lr: f64 },
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
