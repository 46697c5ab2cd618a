//! Everything that a run needs, checked and loaded before its first step.

pub mod data;
pub mod fit;
pub mod identity;
pub mod model;

use super::error::TrainError;
use crate::config::train::TrainConfig;
use crate::dataset::window::Delays;
use crate::device;
use crate::plan;
use crate::policy::flow::TimeSampling;

/// Data and model of a run.
pub struct Session {
    pub data: data::Data,
    pub model: model::Model,
    /// What the run was expected to need.
    pub plan: plan::Report,
}

/// Opens the device, then the data, asks the planner whether the run fits, and builds the model.
///
/// The device comes first: reading the data may take minutes, a missing GPU shows at once. With `ignore_plan` a run
/// that does not fit is warned about instead of refused.
pub fn session(config: &TrainConfig, ignore_plan: bool) -> Result<Session, TrainError> {
    let opened = device::open(config.runtime.device)?;
    let mut data = data::open(config)?;
    let (plan, finding) = fit::check(config, &data, &opened, ignore_plan)?;
    data.findings.extend(finding);
    let model = model::build(config, &data, opened)?;
    Ok(Session { data, model, plan })
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
