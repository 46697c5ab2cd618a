//! What became of one rollout.

use serde::{Deserialize, Serialize};

/// How a rollout ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// The ball lies on the pedestal of its colour.
    Placed,
    WrongPedestal,
    /// The ball is where the arm cannot get it.
    Lost,
    #[default]
    TimeLimit,
    /// The safety filter or the scheduler ended it.
    Stopped,
}

/// What was measured on one rollout. Joints are the rotary ones; angles in radians.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Rollout {
    pub ending: Ending,
    /// Simulated seconds until it ended.
    pub seconds: f64,
    pub ticks: usize,
    /// Launched inferences, and chunks that were entered.
    pub inferences: usize,
    pub chunks: usize,
    /// Ticks without an action: waiting for a chunk.
    pub held: usize,
    /// Ticks on actions of the old chunk past those that were to be executed.
    pub continued: usize,
    /// Inferences that took longer than planned.
    pub misses: usize,
    /// Commands that the safety filter changed.
    pub clipped: usize,
    /// RMS over ticks and joints of the commands' third difference by time, rad/s³.
    pub jerk: f64,
    /// Mean over splices of the largest step of a joint from the last command of the old chunk to the first of the new.
    pub boundary_jump: Option<f64>,
    /// Mean over splices of the largest difference of a joint between the state that the policy was told and the
    /// measured one when its chunk began.
    pub state_error: Option<f64>,
    /// Mean age in ticks of the image behind an executed action.
    pub image_age: Option<f64>,
}

impl Rollout {
    pub fn success(&self) -> bool {
        self.ending == Ending::Placed
    }
}
