//! What can go wrong between the configuration and the last checkpoint.

use std::io;
use std::path::PathBuf;

use super::adamw::OptimizerError;
use super::changes::Change;
use super::clip::ClipError;
use super::first_step::FirstStepError;
use super::out_of_memory::OutOfMemory;
use crate::adapter::error::AdapterError;
use crate::dataset::error::DatasetError;
use crate::dataset::finding::{Finding, Severity};
use crate::dataset::loader::LoaderError;
use crate::dataset::window::WindowError;
use crate::dataset::write::WriteError;
use crate::device::{DeviceError, is_out_of_memory};
use crate::error::{Explain, Kind};
use crate::plan::{PlanError, Report};
use crate::policy::arch::ArchError;
use crate::policy::checkpoint::CheckpointError;
use crate::policy::processor::ProcessorError;
use crate::track::run_dir::RunDirError;

/// Why a run cannot begin or go on.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    #[error(transparent)]
    Dataset(#[from] DatasetError),
    #[error(transparent)]
    Bundled(#[from] WriteError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("{}\n{}{}", .0.verdict().unwrap_or_default(), .0.memory_text(), .0.ladder_text().trim_end())]
    DoesNotFit(Box<Report>),
    #[error(transparent)]
    OutOfMemory(Box<OutOfMemory>),
    #[error(transparent)]
    Window(#[from] WindowError),
    #[error(transparent)]
    Loader(#[from] Box<LoaderError<ProcessorError>>),
    #[error(transparent)]
    Arch(#[from] ArchError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error("no tokenizer: model.tokenizer is not set and there is no tokenizer.json beside model.base")]
    NoTokenizer,
    #[error(transparent)]
    Processor(#[from] ProcessorError),
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    #[error(transparent)]
    Optimizer(#[from] OptimizerError),
    #[error(transparent)]
    Clip(#[from] ClipError),
    #[error(transparent)]
    FirstStep(#[from] FirstStepError),
    #[error("cannot {action} {path}")]
    Io { action: &'static str, path: PathBuf, source: io::Error },
    #[error("a tensor operation failed")]
    Tensor(#[from] candle_core::Error),
    #[error("run {path} was begun with another configuration:\n{}", list(.changes))]
    Changed { path: PathBuf, changes: Vec<Change>, breaking: bool },
    #[error("run {path} has no checkpoint to continue from{}", damage(.damaged))]
    NothingToResume { path: PathBuf, damaged: Vec<String> },
    #[error("run {path} exists already and run.resume is \"never\"")]
    Exists { path: PathBuf },
    #[error("the checkpoint's training state does not fit this run: {name} is {found}")]
    StateMismatch { name: String, found: String },
    #[error("step {step}: the loss is {loss} for dataset frames {indices:?}{}", saved(.checkpoint))]
    NonFinite { step: u64, loss: f64, indices: Vec<usize>, dataset: PathBuf, checkpoint: Option<String> },
    #[error("the split into training and validation episodes: {0}")]
    Split(String),
    #[error("training cannot start:\n{}", findings(.0))]
    Findings(Vec<Finding>),
    #[error("{needed} bytes for checkpoints cannot be written below {path}")]
    Disk { path: PathBuf, needed: u64, source: io::Error },
}

fn list(changes: &[Change]) -> String {
    changes.iter().map(|change| format!("  {change}")).collect::<Vec<_>>().join("\n")
}

fn damage(damaged: &[String]) -> String {
    damaged.iter().map(|line| format!("\n  {line}")).collect()
}

fn saved(checkpoint: &Option<String>) -> String {
    match checkpoint {
        Some(path) => format!("; the state before this step is saved at {path}"),
        None => String::new(),
    }
}

fn findings(findings: &[Finding]) -> String {
    let line = |finding: &Finding| {
        let fix = finding.fix.as_ref().map_or(String::new(), |fix| format!("\n    fix: {fix}"));
        format!("  {}: {}{fix}", finding.code, finding.message)
    };
    findings.iter().filter(|f| f.severity == Severity::Error).map(line).collect::<Vec<_>>().join("\n")
}

impl Explain for TrainError {
    fn kind(&self) -> Kind {
        match self {
            TrainError::RunDir(error) => error.kind(),
            TrainError::Dataset(error) => error.kind(),
            TrainError::Bundled(error) => error.kind(),
            TrainError::Device(error) => error.kind(),
            TrainError::Plan(error) => error.kind(),
            TrainError::OutOfMemory(error) => error.kind(),
            TrainError::Window(error) => error.kind(),
            TrainError::Loader(error) => error.kind(),
            TrainError::Arch(error) => error.kind(),
            TrainError::Checkpoint(error) => error.kind(),
            TrainError::Processor(error) => error.kind(),
            TrainError::Adapter(error) => error.kind(),
            TrainError::Optimizer(error) => error.kind(),
            TrainError::Clip(error) => error.kind(),
            TrainError::FirstStep(error) => error.kind(),
            TrainError::Io { .. } | TrainError::Disk { .. } => Kind::Environment,
            TrainError::Tensor(error) if is_out_of_memory(error) => Kind::Environment,
            TrainError::Tensor(_) => Kind::Internal,
            TrainError::NoTokenizer
            | TrainError::DoesNotFit(_)
            | TrainError::Changed { .. }
            | TrainError::NothingToResume { .. }
            | TrainError::Exists { .. }
            | TrainError::StateMismatch { .. }
            | TrainError::NonFinite { .. }
            | TrainError::Split(_)
            | TrainError::Findings(_) => Kind::Input,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            TrainError::RunDir(error) => error.hint(),
            TrainError::Dataset(error) => error.hint(),
            TrainError::Bundled(error) => error.hint(),
            TrainError::Device(error) => error.hint(),
            TrainError::Plan(error) => error.hint(),
            TrainError::OutOfMemory(error) => error.hint(),
            TrainError::Tensor(error) if is_out_of_memory(error) => {
                Some("vlash plan shows what the run needs, nvidia-smi what else runs on the GPU".into())
            }
            TrainError::DoesNotFit(report) => Some(match report.way_out() {
                Some(settings) => format!("the same command with {settings}"),
                None => "vlash plan shows which cards are large enough; --ignore-plan tries all the same".into(),
            }),
            TrainError::Window(error) => error.hint(),
            TrainError::Loader(error) => error.hint(),
            TrainError::Arch(error) => error.hint(),
            TrainError::Checkpoint(error) => error.hint(),
            TrainError::Processor(error) => error.hint(),
            TrainError::Adapter(error) => error.hint(),
            TrainError::Optimizer(error) => error.hint(),
            TrainError::Clip(error) => error.hint(),
            TrainError::FirstStep(error) => error.hint(),
            TrainError::Changed { path, breaking: true, .. } => Some(format!(
                "the saved state does not fit these: keep the old values, or start a new run, e.g. run.dir={}-2",
                path.display()
            )),
            TrainError::Changed { path, breaking: false, .. } => Some(format!(
                "add --accept-changes to continue with the new values, keep the old ones, or start a new run, e.g. run.dir={}-2",
                path.display()
            )),
            TrainError::NoTokenizer => {
                Some("set model.tokenizer to a directory with the tokenizer.json of google/paligemma-3b-pt-224".into())
            }
            TrainError::NothingToResume { .. } => {
                Some("run.resume=auto starts from the beginning when there is no checkpoint".into())
            }
            TrainError::Exists { path } => Some(format!(
                "run.resume=auto continues it; or choose another directory, e.g. run.dir={}-2",
                path.display()
            )),
            TrainError::StateMismatch { .. } => {
                Some("continue with the configuration that the checkpoint was trained with, or start a new run".into())
            }
            TrainError::NonFinite { step, indices, dataset, .. } => Some(format!(
                "look at the first of them: vlash data show {} --index {}; {}",
                dataset.display(),
                indices.first().copied().unwrap_or_default(),
                match step {
                    1 => "if it is sound, the weights of model.base are not: nothing has been trained yet",
                    _ => "if it is sound, a lower optim.lr or optim.grad_clip_norm may help",
                }
            )),
            TrainError::Disk { .. } => Some(
                "free space or quota there, lower checkpoint.keep_last, or choose another place with run.dir=…".into(),
            ),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_device_is_the_environments_and_any_other_tensor_error_a_defect() {
        let full = TrainError::Tensor(candle_core::Error::Msg("DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"\")".into()));
        assert_eq!(full.kind(), Kind::Environment);
        assert!(full.hint().is_some_and(|hint| hint.contains("vlash plan")));
        let other = TrainError::Tensor(candle_core::Error::Msg("shapes differ".into()));
        assert_eq!((other.kind(), other.hint()), (Kind::Internal, None));
    }
}
