//! Memory and time of a run, computed before anything starts.
//!
//! * [`subject`]: what is planned: a configuration, the sizes of its network, its cameras;
//! * [`network`]: the segments of the network as sizes, over [`graph`], which behaves as candle's autograd does;
//! * [`walk`]: the forward and backward pass over them, as `policy/segment.rs` walks them: what is kept, what is alive;
//! * [`memory`] and [`time`]: the sums, by line; [`calibration`] holds every measured constant;
//! * [`cost`]: the floor below which no step can be;
//! * [`cards`]: what is on the market; [`fit`]: what fits which of them;
//! * [`ladder`]: what to give up, in which order, when it does not;
//! * [`report`]: all of it for a person or a program.
//!
//! No device is asked and no weight is read: of files [`subject`] takes a base's `config.json`, of the machine [`time`]
//! its number of cores, and the rest is a pure function of its arguments. The tests hold the sizes against
//! `Policy::kept_bytes`, so that planner and network cannot drift apart.

pub mod calibration;
pub mod cards;
pub mod cost;
pub mod fit;
mod graph;
pub mod ladder;
pub mod memory;
mod network;
pub mod report;
pub mod subject;
pub mod time;
mod walk;
mod weights;

pub use memory::Memory;
pub use report::Report;
pub use subject::{PlanError, Subject};

#[cfg(test)]
mod tests;
