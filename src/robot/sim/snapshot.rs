//! Everything that a camera can see at one moment.

use std::sync::Arc;

/// The two colours of balls and pedestals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    Red,
    Blue,
}

/// How one seed looks; constant over an episode.
#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    /// Also the goal: the pedestal of this colour.
    pub ball: Colour,
    /// Colour of each pedestal; they differ.
    pub pedestals: [Colour; 2],
    /// Factor on every colour, around 1.
    pub brightness: f32,
    /// Unit vector towards the light.
    pub light: [f32; 3],
    /// Table's colour, 0 … 1.
    pub table: [f32; 3],
    /// The tripod camera's displacement, metres, and turn (yaw, pitch), radians.
    pub tripod_shift: [f32; 3],
    pub tripod_turn: [f32; 2],
}

/// Positions in metres in the arm's base frame: x forward, y left, z up; the table's top is z = 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Snapshot {
    pub look: Arc<Look>,
    /// Rotary joints 1 … 6, radians.
    pub joints: [f64; 6],
    /// The gripper's opening between its fingers.
    pub gripper: f64,
    /// Centre of the ball.
    pub ball: [f64; 3],
    /// Centre of the staging platform's top.
    pub platform: [f64; 3],
    /// Direction in which the platform moves along y: −1, 0, 1. Its leading side carries a lit lamp.
    pub heading: i8,
    /// Centres of the pedestals' tops.
    pub pedestals: [[f64; 3]; 2],
}
