//! LeRobot datasets (v2.1, v3.0): reading, checking, recording, and the samples a trainer sees.
//!
//! [`Metadata`] is what a dataset says about itself; [`Dataset`] adds the rows of chosen episodes
//! and gives [`Sample`](sample::Sample)s by position; [`loader`] delivers them to a trainer in an order that is a pure
//! function of (seed, epoch, position).

pub mod augment;
pub mod cameras;
pub mod check;
pub mod error;
pub mod export;
pub mod files;
pub mod finding;
pub mod frame;
pub mod loader;
pub mod meta;
pub mod order;
pub mod proxy;
pub mod reach;
mod reader;
pub mod resolve;
pub mod rows;
pub mod sample;
pub mod statistics;
pub mod stats;
mod still;
pub(crate) mod store;
pub mod table;
pub mod video;
pub mod window;
pub mod write;

pub use error::DatasetError;
pub use meta::Metadata;
pub use reader::{ACTION, Dataset, STATE, SelectedEpisode, Selection, ShortVideo};

#[cfg(test)]
mod tests;
