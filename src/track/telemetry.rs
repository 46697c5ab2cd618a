//! What a rollout on a robot tells while it goes on, and what can be asked of it.
//!
//! The control process writes [`Message`]s, one JSON object a line: to everyone connected to its socket, and all but
//! thumbnails to `telemetry.jsonl` in the run directory. A reader skips kinds and fields that it does not know. The other
//! way, a connected client sends [`Steer`] objects, one a line; files in the run directory's `control/` say the same.
//!
//! Times are seconds on the robot's own monotonic clock since the rollout's process began.

use serde::{Deserialize, Serialize};

use super::event::Level;

/// The file in the run directory.
pub const TELEMETRY_FILE: &str = "telemetry.jsonl";
/// The file in the run directory that says where the socket is, as `host:port`.
pub const SOCKET_FILE: &str = "robot.socket";

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Message {
    /// First on every connection and in the file.
    Hello(Hello),
    /// A control tick.
    Tick(Tick),
    /// Something happened to a chunk.
    Chunk(Chunk),
    /// State of the whole, about ten times a second.
    Status(Status),
    /// A camera's image, about twice a second; not in the file.
    Thumbnail(Thumbnail),
    /// Anything a person should read.
    Event { time: f64, level: Level, text: String },
    /// The rollout is over.
    Ended { time: f64, outcome: String, report: Option<String> },
}

/// What does not change during a rollout.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// The name that has to be typed to arm it.
    pub robot: String,
    pub policy: String,
    pub task: String,
    /// Control rate in Hz.
    pub fps: f64,
    pub joints: Vec<String>,
    /// Lowest and highest target by joint; radians, metres.
    pub limits: Vec<[f32; 2]>,
    pub cameras: Vec<String>,
    /// Actions a chunk, and how many of them are executed.
    pub horizon: usize,
    pub execute: usize,
    /// Largest delay in steps that the policy was trained with.
    pub trained_delay: usize,
    pub pid: u32,
    pub host: String,
    pub version: String,
}

/// Where a tick's command came from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// An action of the chunk whose turn it is.
    Fresh,
    /// An action of the old chunk past its end, because the next is late.
    Continued,
    /// The last command again.
    #[default]
    Hold,
}

/// One control tick.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tick {
    pub tick: u64,
    /// When the command was sent.
    pub time: f64,
    /// Since the previous command, milliseconds.
    pub period_ms: f64,
    /// Ticks of the absolute schedule that were passed over just before this one.
    pub missed: u32,
    pub origin: Origin,
    /// The chunk and the index in it, unless held.
    pub chunk: Option<u64>,
    pub index: Option<u32>,
    pub state: Vec<f32>,
    pub command: Vec<f32>,
    /// Joints whose command the safety filter changed, a bit each.
    pub clipped: u32,
    /// Age of the oldest image behind the action, milliseconds.
    pub observation_age_ms: Option<f64>,
}

/// The life of a chunk, by its number.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chunk {
    pub chunk: u64,
    pub time: f64,
    pub tick: u64,
    #[serde(flatten)]
    pub phase: Phase,
}

/// What happened to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum Phase {
    /// Inference began; the chunk is planned to start at tick `splice`.
    Launched { splice: u64, synchronous: bool },
    /// The chunk is there: whole latency and its parts in milliseconds.
    Arrived { latency_ms: f64, preprocess_ms: f64, prefix_ms: f64, denoise_ms: f64, copy_ms: f64 },
    /// Its action `index` is the first that is commanded, `late` ticks after the planned one. `jump`: largest step of any
    /// joint from the last command. `state_error`: largest difference of the state told and the state measured now.
    Spliced { index: u32, late: u32, jump: f32, state_error: f32 },
    /// It is not used.
    Discarded { reason: String },
}

/// Whether the arm moves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArmState {
    /// Connected, warming up, or waiting for the operator.
    #[default]
    Disarmed,
    Armed,
    /// Holds its position under torque.
    Holding,
    /// After the arm's own emergency stop.
    EmergencyStopped,
}

/// State of the whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    pub time: f64,
    pub arm: ArmState,
    /// Why it holds.
    pub reason: Option<String>,
    /// `sync`, `async`, `vlash`, `rtc`, `rtc-trained`.
    pub mode: String,
    /// The overlap in ticks that the next launch will plan with.
    pub overlap: u32,
    pub ticks: u64,
    /// Deadline misses of inferences; control ticks that were passed over; ticks on hold and on continued actions.
    pub late_chunks: u64,
    pub missed_ticks: u64,
    pub held_ticks: u64,
    pub continued_ticks: u64,
    /// Ticks whose command the safety filter changed; chunks that it rejected.
    pub clipped_ticks: u64,
    pub rejected_chunks: u64,
    /// Since the last image, by camera, milliseconds; none: no image yet.
    pub camera_age_ms: Vec<Option<f64>>,
    /// Images a second, by camera.
    pub camera_hz: Vec<f64>,
    /// Whether the rollout is being recorded.
    pub recording: bool,
    /// Progress of a simulated task, in words.
    pub task_state: Option<String>,
}

/// A camera's image, small.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Thumbnail {
    pub camera: String,
    pub time: f64,
    pub width: u32,
    pub height: u32,
    /// RGB bytes, base64.
    pub rgb: String,
}

/// What an operator can ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "steer", rename_all = "snake_case")]
pub enum Steer {
    /// Hold the position under torque, at once.
    Hold,
    /// The arm's own emergency stop.
    EmergencyStop,
    /// Move again; `robot` is the robot's name as typed.
    Arm { robot: String },
    /// Another mode, from the next chunk border on.
    Mode { mode: String },
    /// Begin or end recording the rollout.
    Record { on: bool },
    /// End the rollout in an orderly way.
    Stop,
    /// The operator is there (for the dead-man option).
    Heartbeat,
}

impl Steer {
    /// The name used in messages to a person.
    pub fn name(&self) -> &'static str {
        match self {
            Steer::Hold => "hold",
            Steer::EmergencyStop => "emergency stop",
            Steer::Arm { .. } => "arm",
            Steer::Mode { .. } => "mode",
            Steer::Record { .. } => "record",
            Steer::Stop => "stop",
            Steer::Heartbeat => "heartbeat",
        }
    }
}
