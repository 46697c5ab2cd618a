//! Checkpoints on disk: complete or absent, the previous one safe from any failure of the next.
//!
//! ```text
//! checkpoints/
//!   000500/
//!     pretrained_model/   LeRobot's layout; see `policy::checkpoint`
//!     training_state/     what resuming needs; see [`state`]
//!     manifest.json       sizes and hashes of all files, written last: it makes the checkpoint complete
//!   last -> 000500
//! ```

pub mod manifest;
pub mod state;
pub mod store;

/// The folder that LeRobot and PEFT read.
pub const PRETRAINED_MODEL: &str = "pretrained_model";
/// The folder that resuming reads.
pub const TRAINING_STATE: &str = "training_state";
