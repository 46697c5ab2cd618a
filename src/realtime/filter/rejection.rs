//! Why a chunk, a pose or limits are not used.

use crate::error::{Explain, Kind};

/// A chunk that must not be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Rejection {
    #[error("action chunk {chunk} rejected: {joint} is {value} at step {step} of {horizon}")]
    NotFinite { chunk: u64, joint: String, value: f32, step: usize, horizon: usize },
    #[error("action chunk {chunk} rejected: {found} values, {horizon} actions of {width} are {}", horizon * width)]
    Size { chunk: u64, found: usize, horizon: usize, width: usize },
}

impl Explain for Rejection {
    fn kind(&self) -> Kind {
        Kind::Input
    }

    fn hint(&self) -> Option<String> {
        Some("check the checkpoint with: vlash policy verify CHECKPOINT".into())
    }
}

/// `x 0.100 … 0.500, z 0.020 … open`: the sides that are closed.
fn shown(ranges: &[[f64; 2]; 3]) -> String {
    let end = |value: f64| if value.is_finite() { format!("{value:.3}") } else { "open".into() };
    let closed = ranges.iter().zip(["x", "y", "z"]).filter(|([low, high], _)| low.is_finite() || high.is_finite());
    closed.map(|([low, high], axis)| format!("{axis} {} … {}", end(*low), end(*high))).collect::<Vec<_>>().join(", ")
}

/// What the filter cannot work with.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FilterError {
    #[error("{found} values for {expected} joints")]
    Width { found: usize, expected: usize },
    #[error("{0} joints; at most {most} can be watched", most = super::MOST_JOINTS)]
    TooMany(usize),
    #[error("a control rate of {fps} Hz and a margin of {margin} of the range cannot be kept")]
    Settings { fps: f64, margin: f32 },
    #[error("limits of {joint} make no sense: low, high, velocity, acceleration are {limits:?}")]
    Limits { joint: String, limits: [f32; 4] },
    #[error("{joint} stands at {at:.4}, its range is {low:.4} … {high:.4}")]
    Pose { joint: String, at: f32, low: f32, high: f32 },
    #[error(
        "limits.workspace: the kinematics of {joints} joints are not known, only those of a Piper's {known} with its gripper"
    )]
    Kinematics { joints: usize, known: usize },
    #[error(
        "the gripper is at {:.3}, {:.3}, {:.3} m (forward, left, up), outside of limits.workspace: {}",
        at[0], at[1], at[2], shown(ranges)
    )]
    Outside { at: [f64; 3], ranges: [[f64; 2]; 3] },
    #[error("the first action is {distance:.3} from where {joint} stands, at most {most:.3} is allowed")]
    Far { joint: String, distance: f32, most: f32 },
}

impl Explain for FilterError {
    fn kind(&self) -> Kind {
        match self {
            FilterError::Pose { .. } | FilterError::Outside { .. } => Kind::Environment,
            _ => Kind::Input,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            FilterError::Pose { .. } => {
                Some("move the arm into its range by hand, or check the units of its driver".into())
            }
            FilterError::Outside { .. } => {
                Some("move the gripper into the box by hand, or widen it; metres from the arm's base".into())
            }
            FilterError::Kinematics { .. } => Some("leave limits.workspace_x, _y and _z out".into()),
            FilterError::Far { .. } => Some("move the arm near the pose in which demonstrations begin".into()),
            _ => None,
        }
    }
}
