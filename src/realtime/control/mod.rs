//! The control loop: [`Core`] is one tick, on any clock; [`run`] drives it in real time.

mod core;
mod error;
mod pace;
mod priority;
mod rollout;
mod settings;

pub use self::core::{Core, End, Rejected, Rest};
pub use self::error::RolloutError;
pub use self::pace::{Pace, Wake};
pub use self::priority::Priority;
pub use self::rollout::{Hooks, Progress, RolloutSettings, RolloutSummary, View, run};
pub use self::settings::ControlSettings;
