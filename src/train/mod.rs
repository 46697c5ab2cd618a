//! The trainer: what `vlash train` does once the configuration is known.

pub mod changes;
pub mod checkpoint;
pub mod memory;
pub mod signals;
pub mod split;
