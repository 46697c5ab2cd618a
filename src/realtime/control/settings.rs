//! What a rollout goes by, and how a policy's cameras and joints meet a robot's.

use std::sync::Arc;
use std::time::Duration;

use super::error::RolloutError;
use crate::realtime::filter::FilterSettings;
use crate::realtime::policy::PolicyFacts;
use crate::realtime::scheduler::Settings;
use crate::realtime::watchdog::WatchdogSettings;
use crate::robot::{Features, Limits};

/// How far beyond a joint's range, in parts of it, the training data's actions may have been.
const RANGE_SLACK: f32 = 0.5;

/// What the loop's core goes by.
#[derive(Debug, Clone, PartialEq)]
pub struct ControlSettings {
    /// Horizon, width and trained delays are the policy's, whatever is said here.
    pub schedule: Settings,
    pub filter: FilterSettings,
    pub watchdog: WatchdogSettings,
    pub task: Arc<str>,
    /// Of the noise that denoising begins from.
    pub seed: u64,
    /// Robot's camera by policy's camera where the names differ.
    pub cameras: Vec<(String, String)>,
    /// Rejected or failed chunks in all that end the rollout.
    pub rejects: u64,
    /// Whether the arm moves on when what held it is over; else an operator has to arm it.
    pub recover: bool,
    /// Without a heartbeat of the operator for this long the arm holds.
    pub dead_man: Option<Duration>,
    /// Ticks to take memory for.
    pub expected_ticks: usize,
}

impl ControlSettings {
    /// `schedule` with the careful choices: one reject ends it, an operator has to arm it after a hold.
    pub fn new(schedule: Settings, task: impl Into<Arc<str>>) -> ControlSettings {
        ControlSettings {
            filter: FilterSettings::new(schedule.fps),
            watchdog: WatchdogSettings::new(schedule.fps),
            expected_ticks: (schedule.fps * 900.0).clamp(1.0, 1e6) as usize,
            schedule,
            task: task.into(),
            seed: 0,
            cameras: Vec::new(),
            rejects: 1,
            recover: false,
            dead_man: None,
        }
    }
}

/// The robot's camera, by number, for each of the policy's.
pub(super) fn match_cameras(
    facts: &PolicyFacts,
    features: &Features,
    map: &[(String, String)],
) -> Result<Vec<usize>, RolloutError> {
    let find = |wanted: &String| {
        let name = map.iter().find(|(policy, _)| policy == wanted).map_or(wanted, |(_, robot)| robot);
        features.cameras.iter().position(|camera| camera.name == *name).ok_or_else(|| RolloutError::Camera {
            wanted: name.clone(),
            found: features.cameras.iter().map(|camera| camera.name.clone()).collect(),
        })
    };
    facts.cameras.iter().map(find).collect()
}

/// # Errors
/// Other joints, in number, name or order; actions in other units.
pub(super) fn match_joints(facts: &PolicyFacts, features: &Features, limits: &Limits) -> Result<(), RolloutError> {
    let joints = &features.joints;
    let names = facts.joints.as_ref().filter(|names| *names != joints);
    if facts.action_dim != joints.len() || facts.state_dim != joints.len() || names.is_some() {
        let policy = names.cloned().unwrap_or_else(|| vec![format!("{} unnamed values", facts.action_dim)]);
        return Err(RolloutError::Joints { policy, robot: joints.clone() });
    }
    let ranges = facts.action_range.iter().flatten().zip(&limits.position).zip(joints);
    for ((&[lowest, highest], &[low, high]), joint) in ranges {
        let slack = RANGE_SLACK * (high - low);
        if lowest < low - slack || highest > high + slack {
            return Err(RolloutError::Units { joint: joint.clone(), trained: [lowest, highest], limits: [low, high] });
        }
    }
    Ok(())
}
