//! Sizes that the physics and the cameras share, in metres.
//!
//! The hand stands in the flange's frame (see [`kinematics::links`](crate::robot::kinematics::links)): z leaves the arm,
//! the fingers open along y.

/// From the flange to the point between the fingertips (the tool centre point), along z.
pub const FLANGE_TO_TCP: f64 = 0.136;

/// Widest opening between the fingers' inner faces.
pub const GRIPPER_MAX: f64 = 0.07;

/// Half the palm's extent along x and y; it reaches from the flange to [`PALM_LENGTH`] along z.
pub const PALM_HALF: [f64; 2] = [0.02, 0.05];

/// Where the palm ends and the fingers begin, along z.
pub const PALM_LENGTH: f64 = 0.07;

/// Where the fingers end, along z: a little beyond the tool centre point, so that they hold a ball below its equator.
pub const FINGER_END: f64 = FLANGE_TO_TCP + 0.012;

/// Half a finger's extent along x.
pub const FINGER_HALF_WIDTH: f64 = 0.013;

/// A finger's extent along y, outwards from its inner face (which is half the opening away from the middle).
pub const FINGER_THICKNESS: f64 = 0.01;

/// The ball.
pub const BALL_RADIUS: f64 = 0.02;

/// A pedestal's cylinder, from the table to its top.
pub const PEDESTAL_RADIUS: f64 = 0.035;

/// The staging platform's disc.
pub const PLATFORM_RADIUS: f64 = 0.06;

/// Height of that disc, down from its top; a column carries it.
pub const PLATFORM_THICKNESS: f64 = 0.012;

/// The column that carries the platform's disc.
pub const PLATFORM_COLUMN_RADIUS: f64 = 0.025;

/// The table's top, lowest and highest x and y; its height is z = 0.
pub const TABLE: [[f64; 2]; 2] = [[-0.25, 0.75], [-0.6, 0.6]];
