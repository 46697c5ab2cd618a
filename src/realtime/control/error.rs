//! Why a rollout does not begin or goes no further.

use crate::error::{Explain, Kind};
use crate::realtime::filter::FilterError;
use crate::realtime::policy::InferError;
use crate::realtime::scheduler::SettingsError;
use crate::realtime::watchdog::Fault;
use crate::robot::RobotError;

#[derive(Debug, thiserror::Error)]
pub enum RolloutError {
    #[error("the schedule cannot be kept")]
    Schedule(#[from] SettingsError),
    #[error("the safety filter cannot be set up")]
    Filter(#[from] FilterError),
    #[error("the robot failed")]
    Robot(#[from] RobotError),
    /// While it was warmed up.
    #[error("the policy gives no usable chunk; the arm was not moved")]
    Policy(#[from] InferError),
    #[error("the policy needs camera {wanted}; the robot has {}", found.join(", "))]
    Camera { wanted: String, found: Vec<String> },
    #[error("the policy was made for other joints: {}; the robot has {}", policy.join(", "), robot.join(", "))]
    Joints { policy: Vec<String>, robot: Vec<String> },
    #[error(
        "other units: actions of {joint} in the training data are {:.3} … {:.3}, the robot's range is {:.3} … {:.3}",
        trained[0], trained[1], limits[0], limits[1]
    )]
    Units { joint: String, trained: [f32; 2], limits: [f32; 2] },
    #[error("camera {camera} gave no image within {seconds} s")]
    NoImage { camera: String, seconds: u64 },
    #[error("nothing is armed with a camera that shows nothing")]
    Blank(#[source] Fault),
    #[error("the inference thread cannot be started")]
    Thread(#[source] std::io::Error),
}

impl Explain for RolloutError {
    fn kind(&self) -> Kind {
        match self {
            RolloutError::Schedule(error) => error.kind(),
            RolloutError::Filter(error) => error.kind(),
            RolloutError::Robot(error) => error.kind(),
            RolloutError::Policy(error) => error.kind(),
            RolloutError::Camera { .. } | RolloutError::Joints { .. } | RolloutError::Units { .. } => Kind::Input,
            RolloutError::NoImage { .. } | RolloutError::Blank(_) | RolloutError::Thread(_) => Kind::Environment,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            RolloutError::Schedule(error) => error.hint(),
            RolloutError::Filter(error) => error.hint(),
            RolloutError::Robot(error) => error.hint(),
            RolloutError::Camera { .. } => Some("name the robot's cameras as the policy's, or map them".into()),
            RolloutError::Joints { .. } => Some("use a checkpoint that was trained on this robot's recordings".into()),
            RolloutError::Units { .. } => {
                Some("1.57 against 90 are radians against degrees: set the robot's units".into())
            }
            RolloutError::NoImage { .. } => Some("check its cable and which other program has it open".into()),
            RolloutError::Policy(error) if error.kind == Kind::Input => {
                Some("see what the checkpoint is made for: vlash policy info CHECKPOINT; or take another one".into())
            }
            RolloutError::Blank(_) => {
                Some("look at its image: take the lens cap off, switch on the light, set its exposure".into())
            }
            RolloutError::Policy(_) | RolloutError::Thread(_) => None,
        }
    }
}
