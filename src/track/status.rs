//! `status.json`: where a run is now.

use serde::{Deserialize, Serialize};

/// Replaced atomically at least every two seconds while the process lives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub state: State,
    pub name: String,
    pub step: u64,
    pub steps: u64,
    /// Seconds since the Unix epoch of the last sign of life.
    pub heartbeat: f64,
    pub started: f64,
    pub pid: u32,
    pub host: String,
    pub loss: Option<f64>,
    pub lr: Option<f64>,
    pub samples_per_s: Option<f64>,
    /// Seconds left at the present rate.
    pub eta_s: Option<f64>,
    /// The newest complete checkpoint, relative to the run directory.
    pub checkpoint: Option<String>,
    /// What the process does or waits for, when that is not training steps.
    pub doing: Option<String>,
}

/// What a run is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Starting,
    Running,
    Paused,
    Stopping,
    Finished,
    Stopped,
    Failed,
}

impl State {
    /// The process has left.
    pub fn is_final(self) -> bool {
        matches!(self, State::Finished | State::Stopped | State::Failed)
    }
}
