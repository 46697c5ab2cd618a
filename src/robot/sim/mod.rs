//! A simulated tabletop: a Piper-like arm, a ball on a staging platform, two coloured pedestals.
//!
//! The task is to pick the ball and to place it on the pedestal of its colour. Everything is a function of a seed; the
//! world moves on a virtual clock or in real time.

mod arm;
mod bodies;
pub mod dimensions;
pub mod expert;
pub mod fault;
pub mod ik;
pub mod motion;
pub mod perturbation;
pub mod render;
pub mod scene;
pub mod snapshot;
pub mod world;

pub use arm::{Judge, SimRobot};
pub use expert::Expert;
pub use perturbation::Perturbation;
pub use scene::{Setup, Variant};
pub use world::{Outcome, World};

/// What the simulated robot is called in datasets.
pub const ROBOT_TYPE: &str = "piper_sim";
/// Its motors, in the order of states and commands.
pub const JOINT_NAMES: [&str; 7] =
    ["joint_1.pos", "joint_2.pos", "joint_3.pos", "joint_4.pos", "joint_5.pos", "joint_6.pos", "gripper.pos"];
/// The task, in words.
pub const TASK: &str = "pick the ball and place it on the pedestal of its colour";
/// Height and width of the pictures that demonstrations are recorded with.
pub const IMAGE_SIZE: usize = 112;
