//! The trainer: what `vlash train` does once the configuration is known.

pub mod adamw;
pub mod changes;
pub mod checkpoint;
pub mod clip;
pub mod disk;
pub mod error;
pub mod first_step;
pub mod memory;
pub mod meter;
pub mod schedule;
pub mod signals;
pub mod split;
