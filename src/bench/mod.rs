//! Measurements that anyone can repeat: what `vlash bench` runs.
//!
//! Each measurement gives a [`report::Report`]: settings, the device with its two ceilings measured in the same process
//! ([`ceilings`]), times with their floor ([`crate::plan::cost`]), memory as the driver counts it. Inputs are synthetic,
//! a pure function of the seed; weights are random unless a checkpoint is named, and never written. Every time on a GPU
//! ends with a synchronisation, the first calls are left out.

pub mod ceilings;
pub mod error;
pub mod infer;
pub mod inputs;
pub mod load;
pub mod ops;
pub mod place;
pub mod render;
pub mod report;
pub mod stats;
pub mod table;
pub mod train;

pub use error::BenchError;
pub use report::Report;
