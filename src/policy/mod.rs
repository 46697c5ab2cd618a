//! π₀.₅ (and, later, π₀): the network, its processor, its checkpoints.

pub mod arch;
pub mod batch;
pub mod checkpoint;
pub mod continuity;
#[cfg(test)]
mod continuity_tests;
mod expectation;
pub mod model;
pub mod network;
pub mod parameters;
pub mod processor;
pub mod segment;
pub mod verify;
pub mod weights;

pub use continuity::Guided;
pub use model::{Observed, Policy, StepOptions, StepOutput};
pub use network::flow;
pub use network::init::RandomInit;
pub use network::loss::{Losses, Mean};
pub use segment::Trained;
