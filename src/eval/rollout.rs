//! What became of one rollout.

use serde::{Deserialize, Serialize};

use crate::realtime::metrics::{Distribution, Metrics};
use crate::robot::sim::world::FPS;

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
    /// Why it was stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// In real time: control ticks that were passed over because the machine was late.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped: usize,
    /// In real time: ticks in which the arm was not under the policy, held by the watchdog or on its way to a far start.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub inactive: usize,
    /// In real time: measured latencies of its inferences, milliseconds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub latencies_ms: Vec<f64>,
}

fn is_zero(value: &usize) -> bool {
    *value == 0
}

impl Rollout {
    /// What `metrics` say; how it ended is to be said beside them.
    pub(super) fn of(metrics: &Metrics) -> Rollout {
        let count = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let mean = |values: &Distribution| (values.count > 0).then_some(values.mean);
        Rollout {
            ticks: count(metrics.ticks),
            chunks: count(metrics.chunks),
            held: count(metrics.held_ticks),
            continued: count(metrics.continued_ticks),
            misses: count(metrics.late_chunks),
            clipped: count(metrics.clipped_ticks),
            skipped: count(metrics.missed_ticks),
            inactive: count(metrics.inactive_ticks),
            jerk: metrics.jerk_rms,
            boundary_jump: mean(&metrics.boundary_jump),
            state_error: mean(&metrics.state_error),
            image_age: mean(&metrics.observation_age_ms).map(|age| age * FPS / 1e3),
            ..Rollout::default()
        }
    }

    pub fn success(&self) -> bool {
        self.ending == Ending::Placed
    }
}
