//! π₀.₅ (and, later, π₀): the network, its processor, its checkpoints.

pub mod arch;
pub mod batch;
pub mod checkpoint;
pub mod parameters;
pub mod processor;
pub mod weights;
