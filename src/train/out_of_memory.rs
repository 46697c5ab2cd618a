//! The memory of a device ran out in the middle of a run.

use super::adamw::OptimizerError;
use super::clip::ClipError;
use super::error::TrainError;
use crate::device;
use crate::error::{Explain, Kind};
use crate::plan::Report;
use crate::plan::report::gib;
use crate::policy::processor::ProcessorError;

/// What failed, what was expected, and what is left of the run.
#[derive(Debug, thiserror::Error)]
#[error(
    "step {step}: out of memory {doing} (rank {rank} of {ranks}, batch {batch}); {}\n{}\n{}",
    self.memory(),
    self.rest(),
    self.plan.ladder_text().trim()
)]
pub struct OutOfMemory {
    /// The step that failed, counted from 1.
    pub step: u64,
    pub rank: usize,
    pub ranks: usize,
    /// Samples of a micro-batch.
    pub batch: usize,
    pub doing: Doing,
    /// Used and total bytes of the device when it failed; none: it does not tell.
    pub device: Option<(u64, u64)>,
    /// The newest complete checkpoint.
    pub checkpoint: Option<String>,
    /// It holds the last finished step: nothing is lost.
    pub whole: bool,
    /// What the planner expected.
    pub plan: Report,
    pub source: candle_core::Error,
}

/// What a trainer is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    /// Forward and backward pass: the masters are those of the step before.
    Gradients,
    /// The update: some masters may have moved already.
    Update,
    /// Held-out losses, between two steps.
    Validation,
}

impl std::fmt::Display for Doing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Doing::Gradients => "in the forward and backward pass",
            Doing::Update => "in the update of the weights",
            Doing::Validation => "while validating",
        })
    }
}

impl OutOfMemory {
    fn memory(&self) -> String {
        let expected = format!("{} GiB were expected", gib(self.plan.total_bytes));
        match self.device {
            Some((used, total)) => format!("{expected}, the device held {} of {}", gib(used), gib(total)),
            None => expected,
        }
    }

    fn rest(&self) -> String {
        match (&self.checkpoint, self.whole) {
            (Some(path), true) => format!("the last finished step is saved: {path}"),
            (Some(path), false) => format!("the last complete checkpoint is {path}"),
            (None, _) => "there is no checkpoint yet".to_owned(),
        }
    }
}

impl Explain for OutOfMemory {
    fn kind(&self) -> Kind {
        if self.checkpoint.is_some() { Kind::Stopped } else { Kind::Environment }
    }

    /// The steps down that a begun run can take, up to the first that needs a new one.
    fn hint(&self) -> Option<String> {
        let can = self.plan.ladder.rungs.iter().take_while(|rung| rung.resumes).count();
        let settings = self.plan.ladder.settings(can);
        match (settings.is_empty(), self.checkpoint.is_some()) {
            (true, _) => Some("what is left of that list needs a new run: another run.dir".to_owned()),
            (false, true) => Some(format!("to continue this run: the same command with {settings} --accept-changes")),
            (false, false) => Some(format!("the same command with {settings}")),
        }
    }
}

/// The tensor error of an operation that found no memory; any other error as it came.
pub(super) fn exhausted(error: TrainError) -> Result<candle_core::Error, TrainError> {
    match error {
        TrainError::Tensor(source)
        | TrainError::Processor(ProcessorError::Device { source, .. })
        | TrainError::Clip(ClipError::Unreadable { source, .. })
        | TrainError::Optimizer(OptimizerError::Tensor { source, .. })
            if device::is_out_of_memory(&source) =>
        {
            Ok(source)
        }
        error => Err(error),
    }
}
