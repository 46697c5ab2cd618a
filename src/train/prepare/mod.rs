//! Everything that a run needs, checked and loaded before its first step.

pub mod data;
pub mod identity;
pub mod model;

use super::error::TrainError;
use crate::config::train::TrainConfig;
use crate::dataset::window::Delays;
use crate::device;
use crate::policy::flow::TimeSampling;

/// Data and model of a run.
pub struct Session {
    pub data: data::Data,
    pub model: model::Model,
}

/// Opens the device, then the data, then builds the model that fits both. The device comes first: reading the data
/// may take minutes, a missing GPU shows at once.
pub fn session(config: &TrainConfig) -> Result<Session, TrainError> {
    let opened = device::open(config.runtime.device)?;
    let data = data::open(config)?;
    let model = model::build(config, &data, opened)?;
    Ok(Session { data, model })
}

/// Which delays of a frame are trained.
pub fn delays(config: &TrainConfig) -> Delays {
    let max = config.train.delay.max;
    if config.train.delay.shared { Delays::All { max } } else { Delays::Drawn { max } }
}

/// How flow times are drawn.
pub fn time_sampling(config: &TrainConfig) -> TimeSampling {
    TimeSampling {
        alpha: config.model.time_sampling_beta_alpha,
        beta: config.model.time_sampling_beta_beta,
        scale: config.model.time_sampling_scale,
        offset: config.model.time_sampling_offset,
    }
}
