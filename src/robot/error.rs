//! What goes wrong beside a robot.

use crate::error::{Explain, Kind};

/// Why a robot does not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum RobotError {
    #[error("{robot}: {found}")]
    Fault { robot: String, found: String, hint: Option<String> },
    #[error("{robot}: it was {found} when asked to {attempted}")]
    State { robot: String, attempted: &'static str, found: &'static str },
    #[error("{robot}: a command of {found} values for {expected} joints")]
    Width { robot: String, found: usize, expected: usize },
}

impl Explain for RobotError {
    fn kind(&self) -> Kind {
        match self {
            RobotError::Fault { .. } => Kind::Environment,
            RobotError::State { .. } | RobotError::Width { .. } => Kind::Internal,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            RobotError::Fault { hint, .. } => hint.clone(),
            _ => None,
        }
    }
}
