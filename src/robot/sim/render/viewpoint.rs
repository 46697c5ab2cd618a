//! Where the two cameras stand and what they look at.

use super::Camera;
use super::vector::{Vector, cross, dot, narrow, sub, unit};
use crate::robot::kinematics::{self, Pose};
use crate::robot::sim::dimensions::FLANGE_TO_TCP;
use crate::robot::sim::snapshot::{Look, Snapshot};

/// The tripod's place and aim: in front of the table, looking back and down at the arm. Far away and with a long lens, so
/// that what is near and what is far appear about equally large.
const TRIPOD: [f64; 3] = [1.25, 0.0, 1.0];
const TRIPOD_AIM: [f64; 3] = [0.29, 0.0, 0.1];
/// Half the image's width at distance one: the workspace (x 0.1 … 0.5, y ±0.3) just fits up to z = 0.15 in its nearest
/// corners, up to 0.3 elsewhere.
const TRIPOD_SPREAD: f32 = 0.275;

/// The wrist camera's place and aim in the flange's frame: on the palm's outer side (the upper one of a hand that points
/// forwards), so near its end that it stays below the image, aimed a little beyond the fingertips.
const WRIST: [f64; 3] = [-0.065, 0.0, 0.042];
const WRIST_AIM: [f64; 3] = [0.0, 0.0, FLANGE_TO_TCP + 0.03];
/// Half of 75°.
const WRIST_SPREAD: f32 = 0.767;

/// A pinhole camera: its place and axes in the arm's base frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Viewpoint {
    pub eye: Vector,
    right: Vector,
    down: Vector,
    forward: Vector,
    /// Half the image's width at distance one.
    spread: f32,
}

impl Viewpoint {
    /// Of `camera` in a scene.
    pub fn of(camera: Camera, snapshot: &Snapshot) -> Viewpoint {
        match camera {
            Camera::Front => tripod(&snapshot.look),
            Camera::Wrist => wrist(&kinematics::links(&snapshot.joints)[kinematics::JOINTS - 1]),
        }
    }

    /// `up` is what shall point upwards in the image, roughly.
    fn new(eye: Vector, forward: Vector, up: Vector, spread: f32) -> Viewpoint {
        let forward = unit(forward);
        let right = unit(cross(forward, up));
        Viewpoint { eye, right, down: cross(forward, right), forward, spread }
    }

    /// A point as the camera has it: right, down, forward, in metres.
    pub fn seen(&self, point: Vector) -> Vector {
        let offset = sub(point, self.eye);
        [dot(offset, self.right), dot(offset, self.down), dot(offset, self.forward)]
    }

    /// Where a [`seen`](Self::seen) point falls on an image of `size` a side, from its left and top edge.
    pub fn project(&self, seen: Vector, size: f32) -> [f32; 2] {
        let half = size / 2.0;
        let scale = half / (self.spread * seen[2]);
        [half + seen[0] * scale, half + seen[1] * scale]
    }
}

fn tripod(look: &Look) -> Viewpoint {
    let ahead: [f64; 3] = std::array::from_fn(|i| TRIPOD_AIM[i] - TRIPOD[i]);
    let yaw = ahead[1].atan2(ahead[0]) + f64::from(look.tripod_turn[0]);
    let pitch = (ahead[2] / ahead[0].hypot(ahead[1])).atan() + f64::from(look.tripod_turn[1]);
    let forward = [pitch.cos() * yaw.cos(), pitch.cos() * yaw.sin(), pitch.sin()];
    let eye = std::array::from_fn(|i| TRIPOD[i] + f64::from(look.tripod_shift[i]));
    Viewpoint::new(narrow(eye), narrow(forward), [0.0, 0.0, 1.0], TRIPOD_SPREAD)
}

fn wrist(flange: &Pose) -> Viewpoint {
    let (eye, aim) = (narrow(flange.point(WRIST)), narrow(flange.point(WRIST_AIM)));
    let outwards = narrow(flange.rotation.map(|row| -row[0]));
    Viewpoint::new(eye, sub(aim, eye), outwards, WRIST_SPREAD)
}
