//! What a rollout's schedule is made of, and which combinations make no sense.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::{Explain, Kind};
use crate::realtime::policy::{Guidance, GuidanceSchedule};

/// How inference and motion are tied together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The arm waits for every chunk.
    Sync,
    /// Inference during motion, told the state at its launch; the chunk is entered at its first action when it is there.
    Async,
    /// Inference during motion, told the state that the arm will have when the chunk begins (arXiv 2512.01031).
    Vlash,
    /// Inference during motion, guided towards what is left of the old chunk (arXiv 2506.07339).
    Rtc,
    /// Inference during motion, its leading actions given (arXiv 2512.05964).
    RtcTrained,
}

impl Mode {
    pub const ALL: [Mode; 5] = [Mode::Sync, Mode::Async, Mode::Vlash, Mode::Rtc, Mode::RtcTrained];

    /// As it is written in settings, telemetry and tables.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Sync => "sync",
            Mode::Async => "async",
            Mode::Vlash => "vlash",
            Mode::Rtc => "rtc",
            Mode::RtcTrained => "rtc-trained",
        }
    }

    /// Whether step 0 of a chunk is for the tick of its launch, as in real-time chunking.
    pub(super) fn counts_from_launch(self) -> bool {
        matches!(self, Mode::Rtc | Mode::RtcTrained)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = UnknownMode;

    fn from_str(text: &str) -> Result<Mode, UnknownMode> {
        Mode::ALL.into_iter().find(|mode| mode.name() == text).ok_or_else(|| UnknownMode(text.to_owned()))
    }
}

/// A mode that there is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no mode {0:?}; modes are sync, async, vlash, rtc, rtc-trained")]
pub struct UnknownMode(pub String);

impl Explain for UnknownMode {
    fn kind(&self) -> Kind {
        Kind::Input
    }
}

/// Δ̂, the ticks between a launch and the planned start of its chunk.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Overlap {
    /// Ticks, whatever the latency.
    Fixed(usize),
    /// ⌈(p95 of the last 64 latencies + margin)·fps⌉, from `first` ticks on until a latency is known.
    Measured { margin: Duration, first: usize },
}

/// When the next chunk is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LaunchAt {
    /// When what remains of the chunk in use is as short as the overlap.
    #[default]
    End,
    /// As soon as nothing is being inferred: quickest reaction, splices in mid-chunk.
    Eager,
}

/// What is commanded when the next chunk is late and the old one is executed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Miss {
    /// The old chunk's actions past the last that was to be executed, while there are any; then the last command.
    #[default]
    Continue,
    /// The last command.
    Hold,
    /// Nothing more: the rollout ends.
    Stop,
}

/// What the scheduler goes by. Steps are the policy's; a tick takes `speed` of them.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub mode: Mode,
    /// Actions a chunk, H.
    pub horizon: usize,
    /// Actions executed of each chunk, n.
    pub execute: usize,
    /// Values of an action.
    pub action_dim: usize,
    /// Control rate in Hz.
    pub fps: f64,
    pub overlap: Overlap,
    /// Largest delay in steps that the policy was trained with, D; 0: none. Bounds a measured overlap in mode vlash.
    pub trained_delay: usize,
    /// Largest number of given actions that it was trained with; 0: none. Bounds a measured overlap in mode rtc-trained.
    pub rtc_trained_delay: usize,
    pub launch: LaunchAt,
    pub miss: Miss,
    /// Policy steps a tick, q: the motion is that many times as fast as what was demonstrated.
    pub speed: usize,
    /// Values of an action that are grippers: events shorter than `speed` steps are kept in them.
    pub grippers: Vec<usize>,
    /// Ticks after a splice over which the old chunk fades out; 0: none.
    pub blend: usize,
    pub guidance: Guidance,
}

impl Settings {
    /// The plain schedule of `mode`: every action is a tick, no blend, old chunk goes on on a miss, overlap measured.
    pub fn new(mode: Mode, horizon: usize, execute: usize, action_dim: usize, fps: f64) -> Settings {
        Settings {
            mode,
            horizon,
            execute,
            action_dim,
            fps,
            overlap: Overlap::Measured { margin: Duration::from_millis(5), first: 1 },
            trained_delay: 0,
            rtc_trained_delay: 0,
            launch: LaunchAt::End,
            miss: Miss::Continue,
            speed: 1,
            grippers: Vec::new(),
            blend: 0,
            guidance: Guidance {
                execution_horizon: 10,
                max_weight: 10.0,
                schedule: GuidanceSchedule::Exponential,
                full_jacobian: false,
            },
        }
    }

    /// Ticks that a chunk is executed for.
    pub fn execute_ticks(&self) -> usize {
        self.execute / self.speed.max(1)
    }

    /// Ticks that a chunk could be executed for.
    pub fn horizon_ticks(&self) -> usize {
        self.horizon / self.speed.max(1)
    }

    /// The largest overlap in ticks that a measured latency may lead to in `mode`; at least 1.
    pub fn largest_overlap(&self, mode: Mode) -> usize {
        let n = self.execute_ticks();
        let trained = |delay: usize| if delay == 0 { n } else { delay / self.speed.max(1) };
        let bound = match mode {
            Mode::Sync | Mode::Async => n,
            Mode::Vlash => trained(self.trained_delay),
            // Of a chunk that is entered at step d, n more are to be executed.
            Mode::Rtc => self.horizon_ticks().saturating_sub(n),
            Mode::RtcTrained => trained(self.rtc_trained_delay).min(self.horizon_ticks().saturating_sub(n)),
        };
        bound.min(n).max(1)
    }

    /// What a person should know before it moves: a delay of `overlap` ticks that the policy has never seen in training.
    pub fn untrained(&self, mode: Mode, overlap: usize) -> Option<String> {
        let (trained, option) = match mode {
            Mode::Vlash => (self.trained_delay, "max_delay_steps"),
            Mode::RtcTrained => (self.rtc_trained_delay, "train.rtc_max_delay"),
            Mode::Sync | Mode::Async | Mode::Rtc => return None,
        };
        let steps = overlap * self.speed.max(1);
        (steps > trained).then(|| {
            format!(
                "delay of {steps} steps ({overlap} ticks at {:.0} Hz); this checkpoint was trained for ≤ {trained}. Expect \
                 jerks. Options: a lower fps, fewer denoising steps, a faster power mode, or retrain with {option} = {steps}.",
                self.fps
            )
        })
    }

    /// # Errors
    /// The first setting that cannot be obeyed.
    pub fn validate(&self) -> Result<(), SettingsError> {
        if self.horizon == 0 || self.execute == 0 || self.execute > self.horizon {
            return Err(SettingsError::Execute { execute: self.execute, horizon: self.horizon });
        }
        if self.action_dim == 0 {
            return Err(SettingsError::NoAction);
        }
        if let Some(&gripper) = self.grippers.iter().find(|&&gripper| gripper >= self.action_dim) {
            return Err(SettingsError::Gripper { gripper, action_dim: self.action_dim });
        }
        if !(self.fps.is_finite() && self.fps > 0.0) {
            return Err(SettingsError::Rate(self.fps));
        }
        if self.speed == 0 || !self.execute.is_multiple_of(self.speed) {
            return Err(SettingsError::Speed {
                speed: self.speed,
                execute: self.execute,
                nearest: nearest_multiple(self.execute, self.speed.max(1), self.horizon),
            });
        }
        match self.overlap {
            Overlap::Fixed(ticks) if ticks > self.execute_ticks() => {
                Err(SettingsError::Overlap { overlap: ticks, execute: self.execute_ticks() })
            }
            _ => Ok(()),
        }
    }
}

/// The multiple of `speed` in 1…`horizon` that is closest to `execute`; the larger of two.
fn nearest_multiple(execute: usize, speed: usize, horizon: usize) -> Option<usize> {
    let below = execute / speed * speed;
    [below + speed, below]
        .into_iter()
        .filter(|multiple| (1..=horizon).contains(multiple))
        .min_by_key(|multiple| multiple.abs_diff(execute))
}

/// Settings that cannot be obeyed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SettingsError {
    #[error("{execute} of {horizon} actions cannot be executed a chunk")]
    Execute { execute: usize, horizon: usize },
    #[error("actions have no values")]
    NoAction,
    #[error("value {gripper} is named as a gripper, actions have {action_dim}")]
    Gripper { gripper: usize, action_dim: usize },
    #[error("{0} Hz is no control rate")]
    Rate(f64),
    #[error("speed-up {speed}: of {execute} executed actions the last would be dropped")]
    Speed { speed: usize, execute: usize, nearest: Option<usize> },
    #[error("an overlap of {overlap} ticks is longer than the {execute} ticks for which a chunk is executed")]
    Overlap { overlap: usize, execute: usize },
}

impl Explain for SettingsError {
    fn kind(&self) -> Kind {
        Kind::Input
    }

    fn hint(&self) -> Option<String> {
        match self {
            SettingsError::Execute { horizon, .. } => Some(format!("execute between 1 and {horizon} actions a chunk")),
            SettingsError::Speed { nearest: Some(nearest), .. } => {
                Some(format!("the nearest number of executed actions that works is {nearest}"))
            }
            SettingsError::Speed { .. } => Some("use a speed-up of at least 1 and at most the chunk's length".into()),
            SettingsError::Overlap { execute, .. } => Some(format!("an overlap of at most {execute}")),
            SettingsError::NoAction | SettingsError::Gripper { .. } | SettingsError::Rate(_) => None,
        }
    }
}
