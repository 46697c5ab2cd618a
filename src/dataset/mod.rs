//! LeRobot datasets (v2.1, v3.0): reading, checking, recording, and the samples a trainer sees.

pub mod finding;
pub mod frame;
pub mod sample;
pub mod stats;
pub mod video;
