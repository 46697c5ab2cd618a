//! Real-time asynchronous execution of action chunks: what decides (the scheduler, the safety filter), the thread that
//! infers, and the loop that commands.

pub mod boxed;
pub mod control;
pub mod deferred;
pub mod filter;
pub mod guidance;
pub mod loaded;
#[cfg(test)]
mod loaded_tests;
pub mod metrics;
pub mod policy;
pub mod report;
pub mod scheduler;
pub mod telemetry;
pub mod watchdog;
pub mod worker;
