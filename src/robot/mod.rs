//! Robots as the control loop sees them, and the simulated tabletop that is one of them.
//!
//! A [`Robot`] is read, commanded and stopped by one thread. Times are [`clock`] times: monotonic, from the start of the
//! process (or of the virtual clock), so that the age of what a policy saw can be told. Commands are absolute joint
//! targets in the order of [`Features::joints`]: radians for rotary joints, metres for a gripper's opening.

pub mod clock;
mod error;
pub mod kinematics;
pub mod limits;
pub mod sim;

use std::sync::Arc;
use std::time::Duration;

pub use error::RobotError;
pub use limits::Limits;

use crate::dataset::frame::RgbFrame;

/// What a robot has, by name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Features {
    /// LeRobot's `robot_type`.
    pub robot_type: String,
    /// Motors in the order of states and commands, by LeRobot's names (`joint_1.pos`, …, `gripper.pos`).
    pub joints: Vec<String>,
    /// Cameras in the order of [`Robot::frames`].
    pub cameras: Vec<CameraFeature>,
}

/// One camera.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CameraFeature {
    /// Without `observation.images.`.
    pub name: String,
    pub height: usize,
    pub width: usize,
}

/// Measured joints.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JointState {
    /// In the order of [`Features::joints`]; radians, metres.
    pub positions: Vec<f32>,
    /// When it was measured.
    pub captured: Duration,
}

/// A camera's newest image.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// When it was captured.
    pub captured: Duration,
    /// Counts the camera's images; the same number is the same image.
    pub sequence: u64,
    pub image: Arc<RgbFrame>,
}

/// What happens to the arm when a rollout ends in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Stay where it is, under torque.
    Hold,
    /// Move slowly to the rest pose, then stay. The control loop commands the way, so that it can be stopped.
    Rest,
}

/// An arm with its cameras. Nothing but [`realtime`](crate::realtime)'s last stage may call [`Robot::send`].
pub trait Robot: Send {
    fn features(&self) -> &Features;

    fn limits(&self) -> &Limits;

    /// Brings it to the state in which it obeys; ends, whatever happens, within a few seconds.
    ///
    /// # Errors
    /// What does not answer, and what to do.
    fn connect(&mut self) -> Result<(), RobotError>;

    /// The newest measured joints, into `state`, without allocation once `state` has its length. Does not wait.
    ///
    /// # Errors
    /// The arm reported a fault, or has been silent for longer than it may.
    fn read(&mut self, state: &mut JointState) -> Result<(), RobotError>;

    /// The newest image of each camera, in order, into `frames` (its length is set); none where there is none yet. Does
    /// not wait and copies no pixels.
    fn frames(&mut self, frames: &mut Vec<Option<Frame>>);

    /// Commands absolute targets for the next control period. Does not wait.
    ///
    /// # Errors
    /// The command did not leave.
    fn send(&mut self, command: &[f32]) -> Result<(), RobotError>;

    /// The arm's own emergency stop: what holds it up may end. Works in any state.
    ///
    /// # Errors
    /// The stop did not leave.
    fn emergency_stop(&mut self) -> Result<(), RobotError>;

    /// Where it rests after `command`, as a command: what it holds it keeps. None: it has no such pose.
    fn rest(&self, command: &[f32]) -> Option<Vec<f32>>;

    /// Ends control in an orderly way: the arm stays where it is, under torque.
    ///
    /// # Errors
    /// The arm did not follow.
    fn disconnect(&mut self) -> Result<(), RobotError>;
}
