//! Why something cannot be measured.

use std::path::PathBuf;

use crate::adapter::error::AdapterError;
use crate::device::{self, DeviceError};
use crate::error::{Explain, Kind};
use crate::policy::arch::ArchError;
use crate::policy::checkpoint::CheckpointError;
use crate::train::TrainError;

/// Why something cannot be measured.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    #[error("opening the device")]
    Device(#[from] DeviceError),
    #[error("the device's memory is exhausted")]
    OutOfMemory(#[source] candle_core::Error),
    #[error("computing")]
    Compute(#[source] candle_core::Error),
    #[error("the sizes of the network")]
    Arch(#[from] ArchError),
    #[error("reading the checkpoint")]
    Checkpoint(#[source] Box<CheckpointError>),
    #[error("deciding what trains")]
    Adapter(#[from] AdapterError),
    #[error(transparent)]
    Train(Box<TrainError>),
    #[error("{problem}")]
    Setting { problem: String, hint: &'static str },
    #[error("{what} holds values that are not finite: what was timed computes nothing")]
    NotFinite { what: &'static str },
    #[error("the report cannot be written as JSON: {problem}")]
    Report { problem: String },
    #[error("cannot {action} {}", path.display())]
    Io { action: &'static str, path: PathBuf, source: std::io::Error },
}

impl From<TrainError> for BenchError {
    fn from(error: TrainError) -> Self {
        BenchError::Train(Box::new(error))
    }
}

impl From<CheckpointError> for BenchError {
    fn from(error: CheckpointError) -> Self {
        BenchError::Checkpoint(Box::new(error))
    }
}

impl From<candle_core::Error> for BenchError {
    fn from(error: candle_core::Error) -> Self {
        if device::is_out_of_memory(&error) { BenchError::OutOfMemory(error) } else { BenchError::Compute(error) }
    }
}

impl Explain for BenchError {
    fn kind(&self) -> Kind {
        match self {
            BenchError::Device(error) => error.kind(),
            BenchError::OutOfMemory(_) | BenchError::Io { .. } => Kind::Environment,
            BenchError::Compute(_) | BenchError::NotFinite { .. } | BenchError::Report { .. } => Kind::Internal,
            BenchError::Arch(error) => error.kind(),
            BenchError::Checkpoint(error) => error.kind(),
            BenchError::Adapter(error) => error.kind(),
            BenchError::Train(error) => error.kind(),
            BenchError::Setting { .. } => Kind::Input,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            BenchError::Device(error) => error.hint(),
            BenchError::OutOfMemory(_) => Some("--batch 1, --recompute, fewer --cameras, or --preset tiny".into()),
            BenchError::Arch(error) => error.hint(),
            BenchError::Checkpoint(error) => error.hint(),
            BenchError::Adapter(error) => error.hint(),
            BenchError::Train(error) => error.hint(),
            BenchError::Setting { hint, .. } => Some((*hint).into()),
            BenchError::Compute(_)
            | BenchError::NotFinite { .. }
            | BenchError::Report { .. }
            | BenchError::Io { .. } => None,
        }
    }
}
