//! The last stage before a robot: only finite commands within the limits leave, whatever a policy says.
//!
//! A chunk with a value that is not finite, or of another size, is rejected whole when it arrives
//! ([`SafetyFilter::check`]); it is not repaired. Of an action the width, finiteness, position, step a tick, velocity and
//! acceleration are limited, in this order ([`SafetyFilter::apply`]). The three bounds hold together, because a joint
//! never becomes so fast that it could not brake before the end of its range. Last comes the gripper's place: a command
//! that leads out of the [`Workspace`] is not followed, the arm brakes.
//!
//! To hold is to brake within the limits and to stay; a trajectory within the limits leaves unchanged.

mod joint;
mod rejection;
#[cfg(test)]
mod tests;
mod workspace;

use self::joint::Joint;
pub use self::rejection::{FilterError, Rejection};
pub use self::workspace::Workspace;
use super::scheduler::Foresight;
use crate::robot::Limits;
use crate::robot::kinematics::JOINTS;

/// Joints whose change can be told, a bit each.
pub const MOST_JOINTS: usize = 32;
/// Differences that single precision makes are no change.
const ROUNDING: f64 = 1e-6;

/// What is done about a target beyond the limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Excess {
    /// The nearest command within the limits leaves; counted.
    #[default]
    Clamp,
    /// The arm holds; the rollout ends.
    Refuse,
}

/// What is done about a first action far from the arm.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum FarStart {
    /// The arm moves there at this fraction of its speed limits, and a new chunk is asked for there.
    Approach(f64),
    Refuse,
}

/// What the filter goes by.
#[derive(Debug, Clone, PartialEq)]
pub struct FilterSettings {
    /// Control rate in Hz.
    pub fps: f64,
    /// Part of a joint's range, at either end, that is not used.
    pub margin: f32,
    /// Largest step of a joint in a tick, rad or m, beside what its speed limit allows.
    pub max_step: Option<f32>,
    pub excess: Excess,
    /// Where the gripper may be; none: anywhere. Needs a Piper's joints.
    pub workspace: Option<Workspace>,
    /// Largest distance of a joint between the measured pose and a first action, rad or m.
    pub start_distance: f32,
    pub far_start: FarStart,
}

impl FilterSettings {
    /// Clamps, approaches a first action further than 0.35 rad away at a quarter of the speed.
    pub fn new(fps: f64) -> FilterSettings {
        FilterSettings {
            fps,
            margin: 0.0,
            max_step: None,
            excess: Excess::Clamp,
            workspace: None,
            start_distance: 0.35,
            far_start: FarStart::Approach(0.25),
        }
    }
}

/// How a target left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Passed {
    /// Joints whose command was changed, a bit each.
    pub clipped: u32,
    /// The target had another width or a value that is not finite: the arm holds.
    pub invalid: bool,
    /// The target was beyond the limits and [`Excess::Refuse`] is set: the arm holds.
    pub refused: bool,
    /// It would have led the gripper out of the workspace: the arm brakes.
    pub outside: bool,
}

/// Where a first action lies.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Start {
    Near,
    /// This joint is the furthest.
    Far {
        joint: usize,
        distance: f32,
    },
}

/// What was counted since the filter was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Commands that were changed, and targets that were invalid or refused.
    pub clipped: u64,
    pub invalid: u64,
    pub refused: u64,
    /// Commands that would have led out of the workspace.
    pub outside: u64,
}

/// The filter of one arm.
#[derive(Debug, Clone)]
pub struct SafetyFilter {
    settings: FilterSettings,
    names: Vec<String>,
    joints: Vec<Joint>,
    /// For looking ahead.
    ahead: Vec<Joint>,
    /// For looking at how it would brake.
    braking: Vec<Joint>,
    command: Vec<f32>,
    counts: Counts,
}

impl SafetyFilter {
    /// `names` are LeRobot's (`joint_1.pos`), in the order of `limits`. Until [`begin`](Self::begin) the arm is taken to
    /// be in the middle of its range.
    ///
    /// # Errors
    /// Limits or settings that make no sense.
    pub fn new(names: &[String], limits: &Limits, settings: FilterSettings) -> Result<SafetyFilter, FilterError> {
        let joints = joint::all(names, limits, &settings)?;
        if settings.workspace.is_some() && joints.len() != JOINTS + 1 {
            return Err(FilterError::Kinematics { joints: joints.len(), known: JOINTS });
        }
        let command = joints.iter().map(Joint::command).collect();
        let names = names.iter().map(|name| name.strip_suffix(".pos").unwrap_or(name).to_owned()).collect();
        let (ahead, braking) = (joints.clone(), joints.clone());
        Ok(SafetyFilter { settings, names, ahead, braking, joints, command, counts: Counts::default() })
    }

    /// The arm stands still at `measured` (a joint just outside its range: at its end).
    ///
    /// # Errors
    /// A pose that is not finite, of another width, further outside than a first action may be, or out of the workspace.
    pub fn begin(&mut self, measured: &[f32]) -> Result<(), FilterError> {
        if measured.len() != self.joints.len() {
            return Err(FilterError::Width { found: measured.len(), expected: self.joints.len() });
        }
        for ((joint, &at), name) in self.joints.iter().zip(measured).zip(&self.names) {
            let outside = joint.outside(at);
            if !at.is_finite() || outside > f64::from(self.settings.start_distance) {
                let [low, high] = joint.range();
                return Err(FilterError::Pose { joint: name.clone(), at, low, high });
            }
        }
        for ((joint, &at), command) in self.joints.iter_mut().zip(measured).zip(&mut self.command) {
            joint.stand_at(at);
            *command = joint.command();
        }
        match (self.settings.workspace, self.gripper()) {
            (Some(Workspace { ranges }), Some(at)) if !(Workspace { ranges }).holds(at) => {
                Err(FilterError::Outside { at, ranges })
            }
            _ => Ok(()),
        }
    }

    /// Whether the chunk `number` of `actions` is `[horizon, joints]` of finite values.
    ///
    /// # Errors
    /// What is wrong with it; the whole chunk must not be used.
    pub fn check(&self, number: u64, actions: &[f32], horizon: usize) -> Result<(), Rejection> {
        let width = self.joints.len();
        if actions.len() != horizon * width {
            return Err(Rejection::Size { chunk: number, found: actions.len(), horizon, width });
        }
        match actions.iter().position(|value| !value.is_finite()) {
            None => Ok(()),
            Some(at) => Err(Rejection::NotFinite {
                chunk: number,
                joint: self.names.get(at % width).cloned().unwrap_or_default(),
                value: actions.get(at).copied().unwrap_or(f32::NAN),
                step: at / width,
                horizon,
            }),
        }
    }

    /// How far the first action of a rollout is from where the arm stands.
    pub fn start(&self, first: &[f32]) -> Start {
        let distances = self.joints.iter().zip(first).map(|(joint, &target)| joint.distance(target) as f32);
        let furthest = distances.enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
        match furthest {
            Some((joint, distance)) if distance > self.settings.start_distance => Start::Far { joint, distance },
            _ => Start::Near,
        }
    }

    /// The command that leaves in this tick for `target`; none: hold. It is in [`command`](Self::command).
    pub fn apply(&mut self, target: Option<&[f32]>) -> Passed {
        let valid = target.filter(|target| usable(target, self.joints.len()));
        let mut passed = Passed { invalid: target.is_some() && valid.is_none(), ..Passed::default() };
        if let (Some(target), Excess::Refuse) = (valid, self.settings.excess) {
            self.ahead.clone_from(&self.joints);
            let bounds = Bounds { workspace: self.settings.workspace, braking: &mut self.braking };
            let (clipped, outside) = advance(&mut self.ahead, Some(target), bounds);
            passed.refused = clipped != 0 || outside;
        }
        let bounds = Bounds { workspace: self.settings.workspace, braking: &mut self.braking };
        let (clipped, outside) = advance(&mut self.joints, valid.filter(|_| !passed.refused), bounds);
        (passed.clipped, passed.outside) = (clipped, outside);
        self.counts.clipped += u64::from(clipped != 0);
        self.counts.outside += u64::from(outside);
        self.counts.invalid += u64::from(passed.invalid);
        self.counts.refused += u64::from(passed.refused);
        self.publish();
        passed
    }

    /// Moves towards `target` at `pace` (0…1) of the speed limits and brakes in time to stop there. Returns whether it is
    /// there.
    pub fn approach(&mut self, target: &[f32], pace: f64) -> bool {
        if !usable(target, self.joints.len()) {
            self.apply(None);
            return false;
        }
        self.ahead.clone_from(&self.joints);
        let mut there = true;
        for (joint, &target) in self.ahead.iter_mut().zip(target) {
            there &= joint.approach(target, pace);
        }
        self.braking.clone_from(&self.ahead);
        if self.settings.workspace.is_none_or(|workspace| workspace.holds_braking(&mut self.braking)) {
            self.joints.clone_from(&self.ahead);
        } else {
            self.joints.iter_mut().for_each(Joint::brake);
            there = false;
        }
        self.publish();
        there
    }

    /// Whether the gripper may stand where `target` leads.
    pub fn reaches(&self, target: &[f32]) -> bool {
        let mut joints = self.joints.clone();
        joints.iter_mut().zip(target).for_each(|(joint, &at)| joint.stand_at(at));
        self.settings.workspace.is_none_or(|workspace| workspace.holds_braking(&mut joints))
    }

    /// Where the command leads the point between the fingers, metres in the base's frame; none where that is not known.
    pub fn gripper(&self) -> Option<[f64; 3]> {
        workspace::gripper(&self.joints)
    }

    /// What leaves: absolute targets, finite and within the limits, always.
    pub fn command(&self) -> &[f32] {
        &self.command
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    pub fn settings(&self) -> &FilterSettings {
        &self.settings
    }

    /// Joints' names without `.pos`.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    fn publish(&mut self) {
        self.command.iter_mut().zip(&self.joints).for_each(|(command, joint)| *command = joint.command());
    }
}

fn usable(target: &[f32], width: usize) -> bool {
    target.len() == width && target.iter().all(|value| value.is_finite())
}

/// The bounds of the gripper, and room to look at how the arm would brake.
struct Bounds<'a> {
    workspace: Option<Workspace>,
    braking: &'a mut Vec<Joint>,
}

/// One tick of all joints; the joints whose command was changed, a bit each, and whether the target led out of the workspace.
fn advance(joints: &mut [Joint], target: Option<&[f32]>, bounds: Bounds<'_>) -> (u32, bool) {
    let Some(target) = target else {
        joints.iter_mut().for_each(Joint::brake);
        return (0, false);
    };
    let mut outside = false;
    if let Some(workspace) = bounds.workspace {
        bounds.braking.clear();
        bounds.braking.extend_from_slice(joints);
        bounds.braking.iter_mut().zip(target).for_each(|(joint, &target)| joint.follow(target));
        outside = !workspace.holds_braking(bounds.braking);
    }
    let mut clipped = 0;
    for (bit, (joint, &target)) in joints.iter_mut().zip(target).enumerate() {
        if outside {
            joint.brake();
        } else {
            joint.follow(target);
        }
        clipped |= u32::from((f64::from(joint.command()) - f64::from(target)).abs() > ROUNDING) << bit;
    }
    (clipped, outside)
}

impl Foresight for SafetyFilter {
    fn foresee(&mut self, targets: &mut dyn Iterator<Item = Option<&[f32]>>, state: &mut [f32]) {
        self.ahead.clone_from(&self.joints);
        for target in targets {
            let valid = target.filter(|target| usable(target, self.joints.len()));
            let bounds = Bounds { workspace: self.settings.workspace, braking: &mut self.braking };
            advance(&mut self.ahead, valid, bounds);
        }
        state.iter_mut().zip(&self.ahead).for_each(|(state, joint)| *state = joint.command());
    }
}
