//! Joints for a place of the hand: the expert's inverse kinematics.
//!
//! The hand comes from above, tilted forward, since joint 5 turns ±70° only and the forearm points down little enough
//! that a hand straight down is out of reach from 15 cm above the table on. Joint 1 turns towards the place; joints 4 and
//! 6 stay at zero, so that the fingers open sideways; joints 2, 3 and 5 are found by damped least squares in the plane
//! that remains.

use super::dimensions::FLANGE_TO_TCP;
use crate::robot::kinematics::{JOINTS, Pose, links};
use crate::robot::limits::Limits;

/// From straight down, forward, radians.
pub const TILT: f64 = 0.52;
/// A pose near which the arm rests between tasks.
pub const HOME: [f64; JOINTS] = [0.0, 1.2, -1.0, 0.0, 0.9, 0.0];

const PLANAR: [usize; 3] = [1, 2, 4];
const ITERATIONS: usize = 30;
const DAMPING: f64 = 1e-4;
/// Weight of an angle (radians) against a distance (metres).
const ANGLE: f64 = 0.2;

/// The tool centre point's frame: the flange's, moved between the fingertips.
pub fn tcp(joints: &[f64; JOINTS]) -> Pose {
    let flange = links(joints)[5];
    flange.then(&Pose { position: [0.0, 0.0, FLANGE_TO_TCP], ..Pose::IDENTITY })
}

/// Joints that bring the tool centre point to `place` (metres, base frame), near `from`; the nearest that the limits
/// allow where it is out of reach.
pub fn solve(place: [f64; 3], from: &[f64; JOINTS]) -> [f64; JOINTS] {
    let limits = Limits::piper().position;
    let clamp = |joint: usize, value: f64| {
        let [low, high] = limits.get(joint).copied().unwrap_or([-3.0, 3.0]);
        value.clamp(f64::from(low) + 0.01, f64::from(high) - 0.01)
    };
    let radius = (place[0] * place[0] + place[1] * place[1]).sqrt();
    let mut joints = [0.0, from[1], from[2], 0.0, from[4], 0.0];
    for _ in 0..ITERATIONS {
        let error = planar_error(&joints, radius, place[2]);
        if error.iter().all(|e| e.abs() < 1e-7) {
            break;
        }
        let mut jacobian = [[0.0; 3]; 3];
        for (column, &joint) in PLANAR.iter().enumerate() {
            let mut moved = joints;
            moved[joint] += 1e-6;
            let changed = planar_error(&moved, radius, place[2]);
            for row in 0..3 {
                jacobian[row][column] = (error[row] - changed[row]) / 1e-6;
            }
        }
        let step = damped(&jacobian, &error);
        for (&joint, change) in PLANAR.iter().zip(step) {
            joints[joint] = clamp(joint, joints[joint] + change.clamp(-0.3, 0.3));
        }
    }
    joints[0] = clamp(0, place[1].atan2(place[0]));
    joints
}

/// What is missing in radius, height and (weighted) tilt.
fn planar_error(joints: &[f64; JOINTS], radius: f64, height: f64) -> [f64; 3] {
    let pose = tcp(joints);
    let approach = [pose.rotation[0][2], pose.rotation[2][2]];
    let tilt = approach[0].atan2(-approach[1]);
    [radius - pose.position[0], height - pose.position[2], ANGLE * (TILT - tilt)]
}

/// Solves `(JᵀJ + λI) x = Jᵀe` by Cramer's rule.
fn damped(j: &[[f64; 3]; 3], e: &[f64; 3]) -> [f64; 3] {
    let mut a = [[0.0; 3]; 3];
    let mut b = [0.0; 3];
    for r in 0..3 {
        for c in 0..3 {
            a[r][c] = (0..3).map(|k| j[k][r] * j[k][c]).sum::<f64>() + if r == c { DAMPING * 1e-2 } else { 0.0 };
        }
        b[r] = (0..3).map(|k| j[k][r] * e[k]).sum();
    }
    let whole = determinant(&a);
    std::array::from_fn(|c| {
        let mut replaced = a;
        for r in 0..3 {
            replaced[r][c] = b[r];
        }
        determinant(&replaced) / whole
    })
}

fn determinant(m: &[[f64; 3]; 3]) -> f64 {
    m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) - m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0])
        + m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Everywhere that the task needs: on the table, over platform and pedestals, and the height of travel.
    #[test]
    fn the_whole_workspace_is_reached_within_the_limits() {
        for x in [0.2, 0.25, 0.3, 0.35, 0.4, 0.42] {
            for y in [-0.25, -0.12, 0.0, 0.12, 0.25] {
                for z in [0.03, 0.07, 0.1, 0.16, 0.2] {
                    let joints = solve([x, y, z], &HOME);
                    let found = tcp(&joints).position;
                    let missed = (0..3).map(|i| (found[i] - [x, y, z][i]).powi(2)).sum::<f64>().sqrt();
                    assert!(missed < 1e-3, "({x}, {y}, {z}): {found:?} with {joints:?}");
                }
            }
        }
    }

    #[test]
    fn the_fingers_open_sideways() {
        let joints = solve([0.3, 0.0, 0.1], &HOME);
        let opening = tcp(&joints).rotation.map(|row| row[1]);
        assert!(opening[1].abs() > 0.999, "{opening:?}");
    }
}
