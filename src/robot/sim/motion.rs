//! How the joints follow their commands.

use crate::robot::kinematics::JOINTS;
use crate::robot::limits::Limits;

/// Six rotary joints and the gripper. A command that velocity and acceleration allow is reached at the end of its tick.
#[derive(Debug, Clone)]
pub struct Motors {
    position: [f64; 7],
    velocity: [f64; 7],
    target: [f64; 7],
    limits: Limits,
}

impl Motors {
    pub fn new(start: [f64; 7]) -> Motors {
        Motors { position: start, velocity: [0.0; 7], target: start, limits: Limits::piper() }
    }

    /// Takes a command, within the mechanical limits, for the coming tick of `dt` seconds.
    pub fn aim(&mut self, command: &[f32; 7], dt: f64) {
        for (joint, &wanted) in command.iter().enumerate() {
            let Some(&[low, high]) = self.limits.position.get(joint) else { continue };
            if wanted.is_finite() {
                self.target[joint] = f64::from(wanted.clamp(low, high));
            }
            let (Some(&fastest), Some(&harshest)) =
                (self.limits.velocity.get(joint), self.limits.acceleration.get(joint))
            else {
                continue;
            };
            let (fastest, harshest) = (f64::from(fastest) * 1.2, f64::from(harshest) * 1.2);
            let away = self.target[joint] - self.position[joint];
            // Not faster than it can brake from.
            let most = fastest.min((2.0 * harshest * away.abs()).sqrt());
            let wish = (away / dt).clamp(-most, most);
            let change = (wish - self.velocity[joint]).clamp(-harshest * dt, harshest * dt);
            self.velocity[joint] += change;
        }
    }

    /// Moves for `dt` seconds; the fingers do not close below `blocked`.
    pub fn advance(&mut self, dt: f64, blocked: Option<f64>) {
        for joint in 0..7 {
            self.position[joint] += self.velocity[joint] * dt;
        }
        if let Some(least) = blocked
            && self.position[JOINTS] < least
        {
            self.position[JOINTS] = least;
            self.velocity[JOINTS] = 0.0;
        }
        for (position, limit) in self.position.iter_mut().zip(&self.limits.position) {
            *position = position.clamp(f64::from(limit[0]), f64::from(limit[1]));
        }
    }

    /// Angles and opening.
    pub fn positions(&self) -> [f64; 7] {
        self.position
    }

    pub fn angles(&self) -> [f64; JOINTS] {
        std::array::from_fn(|joint| self.position[joint])
    }

    pub fn opening(&self) -> f64 {
        self.position[JOINTS]
    }

    /// Whether the fingers are told to close further than they are.
    pub fn is_closing(&self) -> bool {
        self.target[JOINTS] < self.position[JOINTS]
    }
}
