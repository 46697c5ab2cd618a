//! The trainer.

pub mod adamw;
pub mod clip;
pub mod first_step;
pub mod schedule;
