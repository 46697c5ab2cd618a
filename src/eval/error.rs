//! What keeps an evaluation from its table.

use std::io;
use std::path::{Path, PathBuf};

use crate::dataset::DatasetError;
use crate::dataset::video::VideoWriteError;
use crate::error::{Explain, Kind};
use crate::realtime::control::RolloutError;
use crate::realtime::policy::InferError;

/// Why there is no table.
#[derive(Debug, thiserror::Error)]
pub enum EvalError {
    #[error("{problem}")]
    Setting { problem: String, hint: String },

    #[error("cannot {action} {path}")]
    Io { action: &'static str, path: PathBuf, source: io::Error },

    #[error("{rollout}: the policy gave no chunk")]
    Infer { rollout: String, source: InferError },

    #[error("{rollout}: {found}")]
    Rollout { rollout: String, found: String },

    #[error("{rollout}: it did not begin, or the arm failed")]
    Control { rollout: String, source: RolloutError },

    #[error("{policy}: {found}")]
    Policy { policy: String, found: String, hint: String, kind: Kind },

    #[error(transparent)]
    Dataset(#[from] DatasetError),

    #[error(transparent)]
    Video(#[from] VideoWriteError),

    #[error("cannot write the report: {0}")]
    Report(String),
}

impl EvalError {
    pub(super) fn setting(problem: impl Into<String>, hint: impl Into<String>) -> EvalError {
        EvalError::Setting { problem: problem.into(), hint: hint.into() }
    }

    pub(super) fn io(action: &'static str, path: &Path, source: io::Error) -> EvalError {
        EvalError::Io { action, path: path.into(), source }
    }
}

impl Explain for EvalError {
    fn kind(&self) -> Kind {
        match self {
            EvalError::Setting { .. } => Kind::Input,
            EvalError::Policy { kind, .. } => *kind,
            EvalError::Io { .. } => Kind::Environment,
            EvalError::Infer { source, .. } => source.kind(),
            EvalError::Control { source, .. } => source.kind(),
            EvalError::Dataset(error) => error.kind(),
            EvalError::Video(error) => error.kind(),
            EvalError::Rollout { .. } | EvalError::Report(_) => Kind::Internal,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            EvalError::Setting { hint, .. } | EvalError::Policy { hint, .. } => Some(hint.clone()),
            EvalError::Io { .. } => Some("choose a directory that can be written: --out DIR".into()),
            EvalError::Infer { source, .. } => source.hint(),
            EvalError::Control { source, .. } => source.hint(),
            EvalError::Dataset(error) => error.hint(),
            EvalError::Video(error) => error.hint(),
            EvalError::Rollout { .. } | EvalError::Report(_) => None,
        }
    }
}
