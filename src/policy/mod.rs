//! π₀.₅ (and, later, π₀): the network, its processor, its checkpoints.

pub mod arch;
pub mod batch;
pub mod expectation;
pub mod model;
pub mod network;
pub mod segment;
pub mod verify;
pub mod weights;

pub use expectation::Expectation;
pub use model::{Policy, StepOptions, StepOutput};
pub use network::flow;
pub use network::init::RandomInit;
pub use network::loss::Losses;
pub use segment::Trained;
