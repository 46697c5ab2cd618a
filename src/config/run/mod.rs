//! A rollout's configuration: every key typed, every default filled in.
//!
//! Field paths are the TOML keys (`control.fps`). Words of choices (`control.mode`, `control.miss`, …) stay words here: the
//! rooms that obey them own their types. The key table lets no other word through.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

mod check;
#[cfg(test)]
mod tests;

use super::resolve::Values;
use super::train::{DeviceKind, Preset};
use super::validate::{Finding, Name};
use super::{Note, Schema, Vocabulary, idle_notes, keys, written};

const SIM: &str = include_str!("../../../configs/run/sim.toml");

/// Everything that `vlash run` needs to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunConfig {
    /// What the policy is told to do; none: the simulated task's words.
    pub task: Option<String>,
    pub robot: RobotConfig,
    pub policy: PolicyConfig,
    pub control: ControlConfig,
    pub rtc: RtcConfig,
    pub limits: LimitsConfig,
    pub watchdog: WatchdogConfig,
    pub telemetry: TelemetryConfig,
    pub run: OutputConfig,
}

/// `robot.*`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RobotConfig {
    /// `sim`; every other one is refused by [`super::load_run`] with what is built and what is not.
    #[serde(rename = "type")]
    pub kind: String,
    /// `static` or `moving`.
    pub variant: String,
    pub seed: u64,
    /// Faults that the simulated robot plays, each as the simulator writes them.
    pub faults: Vec<String>,
    /// The operator arms, and has to stay.
    pub confirm: bool,
    /// `hold` or `rest`.
    pub on_exit: String,
}

/// `policy.*`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PolicyConfig {
    /// Checkpoint directory; none: the policy in the box.
    pub path: Option<PathBuf>,
    /// Actions executed of each chunk; none: what leaves room for the trained delay.
    pub n_action_steps: Option<usize>,
    /// Denoising steps; none: the checkpoint's.
    pub num_steps: Option<usize>,
    pub device: DeviceKind,
    /// The robot's camera → the policy's.
    pub cameras: BTreeMap<String, String>,
}

/// `control.*`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ControlConfig {
    /// `sync`, `async`, `vlash`, `rtc`, `rtc-trained`.
    pub mode: String,
    /// Control rate in Hz.
    pub fps: f64,
    /// Longest time of an episode.
    pub duration_s: f64,
    /// Policy steps a tick, at least 1.
    pub speedup: usize,
    pub overlap: OverlapSetting,
    /// Beside a measured overlap, milliseconds.
    pub overlap_margin_ms: f64,
    /// `end` or `eager`.
    pub launch: String,
    /// `continue`, `hold` or `stop`.
    pub miss: String,
    /// Ticks.
    pub blend: usize,
    /// Ask the system for real-time priority.
    pub realtime: bool,
    /// Least latency of an inference, milliseconds.
    pub latency_ms: f64,
    /// Directory or telemetry of a rollout whose latencies are replayed.
    pub latency_trace: Option<PathBuf>,
}

/// `control.overlap`: a number of ticks or `auto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OverlapSetting {
    Ticks(usize),
    Measured(Auto),
}

/// The word `auto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Auto {
    Auto,
}

/// `rtc.*`: guidance of mode `rtc`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RtcConfig {
    /// Steps.
    pub execution_horizon: usize,
    pub max_weight: f64,
    /// `zeros`, `ones`, `linear`, `exponential`.
    pub schedule: String,
    /// `identity` or `full`.
    pub jacobian: String,
}

/// `limits.*`: what the safety filter goes by beside the robot's own limits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitsConfig {
    /// rad, m.
    pub margin: f64,
    /// rad or m a tick.
    pub max_step: Option<f64>,
    /// `clamp` or `refuse`.
    pub excess: String,
    /// Where the gripper may be, m in the base's frame; none: open.
    pub workspace_x: Option<[f64; 2]>,
    pub workspace_y: Option<[f64; 2]>,
    pub workspace_z: Option<[f64; 2]>,
    /// rad, m.
    pub start_distance: f64,
    /// `approach` or `refuse`.
    pub far_start: String,
    /// Part of the speed limits.
    pub approach_speed: f64,
    /// Chunks that may be rejected before the rollout ends, itself included.
    pub rejected_chunks: u64,
}

/// `watchdog.*`: how long the loop goes without what it depends on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WatchdogConfig {
    /// None: three control periods.
    pub camera_age_ms: Option<f64>,
    pub camera_stop_s: f64,
    /// Equal images or readings in a row; none: half a second of them.
    pub frozen: Option<u32>,
    pub inference_stop_s: f64,
    pub recover: bool,
}

/// `telemetry.*`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TelemetryConfig {
    /// `host:port`.
    pub listen: String,
}

/// `run.*`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutputConfig {
    pub name: String,
    /// None: named after `name` and the time.
    pub dir: Option<PathBuf>,
    /// Simulated episodes in a row.
    pub episodes: u64,
}

impl Schema for RunConfig {
    fn table() -> &'static keys::Table {
        &keys::RUN
    }

    fn embedded(_preset: Option<Preset>) -> (&'static str, &'static str) {
        ("sim.toml (built in)", SIM)
    }

    fn check(&self, name: Name<'_>) -> Vec<Finding> {
        check::check(self, name)
    }

    fn remarks(&self, vocabulary: Vocabulary, values: &Values) -> Vec<Note> {
        let mut notes = idle_notes(Self::table(), vocabulary, values, &check::idle(self));
        let silent = |key: &str| values.get(key).is_some_and(|(_, origin)| written(origin).is_none());
        if vocabulary == Vocabulary::Yaml && silent("control.mode") {
            let overlap = Self::table().name(vocabulary, "control.overlap");
            let mode = &self.control.mode;
            notes.push(Note::general(format!(
                "control.mode is not set: {mode}, as {overlap} says (0: sync, more: vlash)"
            )));
        }
        notes
    }
}
