//! The trainer: what `vlash train` does once the configuration is known.
//!
//! [`run()`] decides from the run directory whether to start or to continue ([`resume`]), checks and loads everything
//! ([`prepare`]), and hands over to the loop ([`trainer`]). What leaves the process lies in `track` (events, status)
//! and [`checkpoint`].

pub mod adamw;
pub mod changes;
pub mod checkpoint;
pub mod clip;
pub mod compute;
pub mod disk;
pub mod error;
pub mod export;
pub mod feed;
pub mod first_step;
pub mod memory;
pub mod meter;
pub mod out_of_memory;
pub mod prepare;
pub mod resume;
pub mod run;
pub mod schedule;
pub mod signals;
pub mod split;
pub mod trainer;
pub mod validate;

pub use error::TrainError;
pub use run::{Report, Request, run};
