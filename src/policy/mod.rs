//! π₀.₅ (and, later, π₀): the network, its processor, its checkpoints.

pub mod arch;
pub mod batch;
pub mod checkpoint;
pub mod parameters;
pub mod processor;
pub mod network;
pub mod policy;
pub mod segment;
pub mod verify;
pub mod weights;

pub use network::flow;
pub use network::init::RandomInit;
pub use network::loss::Losses;
pub use policy::{Expectation, Policy, StepOptions, StepOutput};
pub use segment::Trained;
