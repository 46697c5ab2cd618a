//! Where the gradients of a micro-batch come from.

use candle_core::Result;

use crate::policy::batch::{Batch, Draw, Targets};
use crate::policy::{Policy, StepOptions, StepOutput};

/// Computes loss and gradients. A run computes them [`Directly`]; what happens when a device fails can be seen
/// without one by a form that fails.
pub trait Compute {
    /// As [`Policy::gradients`].
    fn gradients(
        &mut self,
        policy: &Policy,
        batch: &Batch,
        targets: &Targets,
        draw: &Draw,
        options: &StepOptions,
    ) -> Result<StepOutput>;
}

/// By the policy itself.
#[derive(Debug, Clone, Copy, Default)]
pub struct Directly;

impl Compute for Directly {
    fn gradients(
        &mut self,
        policy: &Policy,
        batch: &Batch,
        targets: &Targets,
        draw: &Draw,
        options: &StepOptions,
    ) -> Result<StepOutput> {
        policy.gradients(batch, targets, draw, options)
    }
}
