//! CUDA: its libraries at run time, the GPUs that the driver shows, and opening one.

mod driver;
mod libraries;
mod shim;

pub use driver::{gpus, memory, open, out_of_memory, reset_peak};
pub use libraries::libraries;

use super::requirements::Built;

/// What this build was compiled for.
pub const BUILT: Built = Built { toolkit: served::TOOLKIT, capabilities: served::CAPABILITIES };

/// Written by `build.rs`.
mod served {
    include!(concat!(env!("OUT_DIR"), "/served.rs"));
}
