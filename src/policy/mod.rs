//! π₀.₅ (and, later, π₀): the network, its processor, its checkpoints.

pub mod arch;
pub mod batch;
pub mod checkpoint;
pub mod network;
pub mod parameters;
#[expect(clippy::module_inception, reason = "the policy itself, beside what it is made of")]
pub mod policy;
pub mod processor;
pub mod segment;
pub mod verify;
pub mod weights;

pub use network::flow;
pub use network::init::RandomInit;
pub use network::loss::Losses;
pub use policy::{Policy, StepOptions, StepOutput};
pub use segment::Trained;
