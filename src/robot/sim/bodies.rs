//! The rigid bodies of the tabletop: hand, table, stands.

use std::f64::consts::TAU;

use rapier3d::prelude::*;

use super::dimensions::*;
use super::motion::Motors;
use crate::robot::kinematics::{Pose as Frame, links};

/// Height and number of the cuboids that make a rim, metres.
const RIM_HEIGHT: f64 = 0.004;
const RIM_PARTS: usize = 16;

/// Palm and fingers.
pub struct Hand {
    pub palm: RigidBodyHandle,
    /// By the side of y.
    pub fingers: [(RigidBodyHandle, ColliderHandle); 2],
}

impl Hand {
    /// Puts the hand where the motors stand.
    pub fn insert(physics: &mut PhysicsWorld, motors: &Motors) -> Hand {
        let kinematic = || RigidBodyBuilder::kinematic_position_based();
        let [x, y] = PALM_HALF;
        let palm = ColliderBuilder::cuboid(x as f32, y as f32, (PALM_LENGTH / 2.0) as f32).translation(vector([
            0.0,
            0.0,
            PALM_LENGTH / 2.0,
        ]));
        let (palm, _) = physics.insert(kinematic(), palm);
        let half = (FINGER_END - PALM_LENGTH) / 2.0;
        let finger = || {
            ColliderBuilder::cuboid(FINGER_HALF_WIDTH as f32, (FINGER_THICKNESS / 2.0) as f32, half as f32)
                .translation(vector([0.0, 0.0, PALM_LENGTH + half]))
                .friction(1.0)
        };
        let fingers = [0, 1].map(|_| physics.insert(kinematic(), finger()));
        let hand = Hand { palm, fingers };
        for (body, pose) in hand.poses(motors) {
            if let Some(body) = physics.bodies.get_mut(body) {
                body.set_position(pose, true);
            }
        }
        hand
    }

    fn poses(&self, motors: &Motors) -> [(RigidBodyHandle, Pose); 3] {
        let flange = links(&motors.angles())[5];
        let aside = motors.opening() / 2.0 + FINGER_THICKNESS / 2.0;
        let finger = |side: f64| flange.then(&Frame { position: [0.0, side * aside, 0.0], ..Frame::IDENTITY });
        [(self.palm, pose(&flange)), (self.fingers[0].0, pose(&finger(-1.0))), (self.fingers[1].0, pose(&finger(1.0)))]
    }

    /// Where the bodies go in the coming step.
    pub fn place(&self, physics: &mut PhysicsWorld, motors: &Motors) {
        for (body, pose) in self.poses(motors) {
            if let Some(body) = physics.bodies.get_mut(body) {
                body.set_next_kinematic_position(pose);
            }
        }
    }
}

/// The tabletop.
pub fn insert_table(physics: &mut PhysicsWorld) {
    let [[x0, x1], [y0, y1]] = TABLE;
    let half = [(x1 - x0) / 2.0, (y1 - y0) / 2.0, 0.02].map(|v| v as f32);
    let middle = vector([(x0 + x1) / 2.0, (y0 + y1) / 2.0, -0.02]);
    let top = ColliderBuilder::cuboid(half[0], half[1], half[2]).friction(0.7);
    physics.insert(RigidBodyBuilder::fixed().translation(middle), top);
}

/// A disc whose top is at the body's origin, with a rim that keeps a ball.
pub fn insert_stand(
    physics: &mut PhysicsWorld,
    body: RigidBodyBuilder,
    radius: f64,
    thickness: f64,
) -> RigidBodyHandle {
    // rapier's cylinders stand along y.
    let upright = Rotation::from_rotation_x(std::f32::consts::FRAC_PI_2);
    let disc = ColliderBuilder::cylinder((thickness / 2.0) as f32, radius as f32)
        .position(Pose::from_parts(vector([0.0, 0.0, -thickness / 2.0]), upright))
        .friction(0.9);
    let (handle, _) = physics.insert(body, disc);
    for part in 0..RIM_PARTS {
        let angle = part as f64 * TAU / RIM_PARTS as f64;
        let (sin, cos) = angle.sin_cos();
        let middle = radius - 0.002;
        let half = [0.002, radius * std::f64::consts::PI / RIM_PARTS as f64, RIM_HEIGHT / 2.0].map(|v| v as f32);
        let place = Pose::from_parts(
            vector([middle * cos, middle * sin, RIM_HEIGHT / 2.0]),
            Rotation::from_rotation_z(angle as f32),
        );
        let wall = ColliderBuilder::cuboid(half[0], half[1], half[2]).position(place).friction(0.9);
        physics.colliders.insert_with_parent(wall, handle, &mut physics.bodies);
    }
    handle
}

pub fn vector(v: [f64; 3]) -> Vector {
    Vector::new(v[0] as f32, v[1] as f32, v[2] as f32)
}

pub fn array(v: Vector) -> [f64; 3] {
    [f64::from(v.x), f64::from(v.y), f64::from(v.z)]
}

fn pose(frame: &Frame) -> Pose {
    let column = |c: usize| vector(std::array::from_fn(|r| frame.rotation[r][c]));
    let rotation = rapier3d::glamx::Mat3::from_cols(column(0), column(1), column(2));
    Pose::from_parts(vector(frame.position), Rotation::from_mat3(&rotation).normalize())
}
