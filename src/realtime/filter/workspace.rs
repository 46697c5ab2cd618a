//! Where the gripper may be: a box in the frame of the arm's base.
//!
//! A command is followed only when the arm, braking from there on as hard as it may, comes to a stand with its gripper inside
//! of the box all the way. So there is always a way to stay inside: the braking that was looked at the tick before.

use super::joint::Joint;
use crate::robot::kinematics::{self, JOINTS, Pose};
use crate::robot::sim::dimensions::FLANGE_TO_TCP;

/// Ticks of braking that are looked at; with any sensible limits an arm stands long before.
const LONGEST_BRAKING: usize = 200;

/// Lowest and highest x (forward), y (to the left) and z (up) in metres; infinite where it is open.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Workspace {
    pub ranges: [[f64; 2]; 3],
}

impl Workspace {
    /// Whether a point lies inside.
    pub fn holds(&self, point: [f64; 3]) -> bool {
        self.ranges.iter().zip(point).all(|([low, high], at)| (*low..=*high).contains(&at))
    }

    /// Whether the gripper stays inside while `joints` brake; they are changed.
    pub(super) fn holds_braking(&self, joints: &mut [Joint]) -> bool {
        for _ in 0..LONGEST_BRAKING {
            if !gripper(joints).is_some_and(|point| self.holds(point)) {
                return false;
            }
            if joints.iter().all(Joint::stands) {
                return true;
            }
            joints.iter_mut().for_each(Joint::brake);
        }
        false
    }
}

/// The point between the fingers, metres in the base's frame; none with fewer joints than a Piper's.
pub(super) fn gripper(joints: &[Joint]) -> Option<[f64; 3]> {
    let mut angles = [0.0; JOINTS];
    for (number, angle) in angles.iter_mut().enumerate() {
        *angle = f64::from(joints.get(number)?.command());
    }
    kinematics::links(&angles).last().map(|flange: &Pose| flange.point([0.0, 0.0, FLANGE_TO_TCP]))
}
