//! What an arm may be commanded to.

use std::f32::consts::PI;

/// Limits by joint, in the order of the commands. Radians and metres, per second and per second squared.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Lowest and highest target.
    pub position: Vec<[f32; 2]>,
    /// Fastest change of the target.
    pub velocity: Vec<f32>,
    /// Fastest change of that.
    pub acceleration: Vec<f32>,
}

impl Limits {
    /// The Piper's six joints and its gripper (manufacturer's ranges; `docs` of AgileX's SDK). The drives allow 3 rad/s;
    /// ours stay below.
    pub fn piper() -> Limits {
        let degrees = |low: f32, high: f32| [low * PI / 180.0, high * PI / 180.0];
        Limits {
            position: vec![
                degrees(-150.0, 150.0),
                degrees(0.0, 180.0),
                degrees(-170.0, 0.0),
                degrees(-100.0, 100.0),
                degrees(-70.0, 70.0),
                degrees(-120.0, 120.0),
                [0.0, 0.07],
            ],
            velocity: vec![2.5, 2.5, 2.5, 2.5, 2.5, 2.5, 0.25],
            acceleration: vec![25.0, 25.0, 25.0, 25.0, 25.0, 25.0, 4.0],
        }
    }

    /// Number of joints.
    pub fn len(&self) -> usize {
        self.position.len()
    }

    /// Whether there is no joint.
    pub fn is_empty(&self) -> bool {
        self.position.is_empty()
    }
}
