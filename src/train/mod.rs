//! The trainer: what `vlash train` does once the configuration is known.

pub mod changes;
pub mod checkpoint;
pub mod memory;
pub mod signals;
pub mod split;
//! The trainer.

pub mod adamw;
pub mod clip;
pub mod first_step;
pub mod schedule;
