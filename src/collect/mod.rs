//! Recording demonstrations on the simulated robot into a LeRobot dataset.
//!
//! [`settings`] says what is recorded, a [`demonstration::Player`] plays one episode, [`campaign`] all of them on as many
//! threads as wanted, and the [`recorder::Recorder`] keeps each finished episode whole until the dataset is joined. What
//! comes out is a function of the settings: threads, interruptions and resumptions do not change a byte.

pub mod bundled;
pub mod campaign;
pub mod demonstration;
mod error;
pub mod lead;
pub mod recorder;
pub mod settings;
#[cfg(test)]
mod tests;

pub use error::CollectError;
