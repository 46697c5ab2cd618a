//! What can be wrong with a checkpoint directory.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::error::{Explain, Kind};
use crate::policy::arch::ArchError;
use crate::policy::processor::ProcessorError;

/// Why a checkpoint cannot be read, used or written.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: std::io::Error },
    #[error("{} is not a policy checkpoint: it has no {missing}", directory.display())]
    NotACheckpoint { directory: PathBuf, missing: &'static str },
    #[error("{}: {problem}", path.display())]
    Json { path: PathBuf, problem: String },
    #[error("{}: {problem}", path.display())]
    Config { path: PathBuf, problem: String },
    #[error("{}", path.display())]
    Arch { path: PathBuf, source: ArchError },
    #[error("{} is no whole safetensors file: {problem}", path.display())]
    Broken { path: PathBuf, problem: String },
    #[error(
        "{}: the index names the shard {shard}, which is absent{}", directory.display(),
        bytes.map(|b| format!(" (about {b} bytes of tensors by the index's total_size)")).unwrap_or_default()
    )]
    MissingShard { directory: PathBuf, shard: String, bytes: Option<u64> },
    #[error("{}: {tensor} should lie in {shard} by the index, but is not there", directory.display())]
    NotInShard { directory: PathBuf, tensor: String, shard: String },
    #[error("{} holds an adapter only; its base is {base:?}", directory.display())]
    AdapterOnly { directory: PathBuf, base: String },
    #[error(transparent)]
    Unfit(Box<Unfit>),
    #[error("model.allow_new names {name:?}, which is no tensor of this policy")]
    AllowNew { name: String, nearest: Option<String> },
    #[error("{}: {problem}", path.display())]
    Statistics { path: PathBuf, problem: String },
    #[error(
        "{} is a base model, not a fine-tuned one: it has no normalisation statistics to run with", directory.display()
    )]
    NoStatistics { directory: PathBuf },
    #[error("{}: {problem}", path.display())]
    Pipeline { path: PathBuf, problem: String },
    #[error("the checkpoint's processor cannot be built")]
    Processor { source: ProcessorError },
    #[error("writing a checkpoint: the tensors handed over are not the policy's ({problem})")]
    Incomplete { problem: String },
    #[error("reading the tensor {name} to write it")]
    Tensor { name: String, source: candle_core::Error },
}

impl Explain for CheckpointError {
    fn kind(&self) -> Kind {
        match self {
            CheckpointError::Read { .. } | CheckpointError::Write { .. } => Kind::Environment,
            CheckpointError::Incomplete { .. } | CheckpointError::Tensor { .. } => Kind::Internal,
            _ => Kind::Input,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            CheckpointError::NotACheckpoint { .. } => Some(
                "give the directory that holds config.json and model.safetensors, usually …/pretrained_model".into(),
            ),
            CheckpointError::Broken { .. } | CheckpointError::NotInShard { .. } => {
                Some("copy or download the file again".into())
            }
            CheckpointError::MissingShard { shard, .. } => Some(format!("copy or download {shard} too")),
            CheckpointError::Arch { source, .. } => source.hint(),
            CheckpointError::Processor { source } => source.hint(),
            CheckpointError::Unfit(unfit) => unfit.hint(),
            CheckpointError::AllowNew { nearest: Some(name), .. } => Some(format!("model.allow_new=[{name:?}]")),
            CheckpointError::AdapterOnly { base, .. } => Some(format!("model.base={base:?}")),
            CheckpointError::NoStatistics { directory } => {
                Some(format!("fine-tune it first: vlash train model.base={:?}", directory.display().to_string()))
            }
            _ => None,
        }
    }
}

/// A tensor whose shape is not the policy's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reshaped {
    pub name: String,
    pub expected: Vec<usize>,
    pub found: Vec<usize>,
}

/// Tensors of a checkpoint that do not make the policy: nothing is loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfit {
    pub checkpoint: String,
    /// Tensors that would have fitted.
    pub loaded: usize,
    pub missing: Vec<(String, Vec<usize>)>,
    pub reshaped: Vec<Reshaped>,
    /// As stored, with shape.
    pub unexpected: Vec<(String, Vec<usize>)>,
    /// Stored more than once with different values.
    pub conflicting: Vec<String>,
    /// Stored as something that is no floating-point weight.
    pub unreadable: Vec<(String, String)>,
    /// What it probably is instead.
    pub cause: Option<String>,
}

impl Unfit {
    fn hint(&self) -> Option<String> {
        if self.cause.is_some() || self.missing.is_empty() || self.missing.len() > 8 || !self.only_missing() {
            return self.cause.clone();
        }
        let names: Vec<String> = self.missing.iter().map(|(name, _)| format!("{name:?}")).collect();
        Some(format!("if starting these from random values is meant: model.allow_new=[{}]", names.join(", ")))
    }

    fn only_missing(&self) -> bool {
        let others = [self.reshaped.len(), self.unexpected.len(), self.conflicting.len(), self.unreadable.len()];
        others.iter().all(|&count| count == 0)
    }
}

/// Names listed of each group.
const NAMED: usize = 5;

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "checkpoint {}: {} loaded", self.checkpoint, self.loaded)?;
        let tensor = |(name, shape): &(String, Vec<usize>)| format!("{name} {shape:?}");
        group(f, "missing", &self.missing, tensor)?;
        group(f, "of another shape", &self.reshaped, |r| {
            format!("{} is {:?}, the policy has {:?}", r.name, r.found, r.expected)
        })?;
        group(f, "unexpected", &self.unexpected, tensor)?;
        group(f, "stored twice with different values", &self.conflicting, String::clone)?;
        group(f, "of a type that is no weight", &self.unreadable, |(name, dtype)| format!("{name} ({dtype})"))?;
        f.write_str(". Not loading: a policy with random weights in it would train without complaint")
    }
}

fn group<T>(
    f: &mut std::fmt::Formatter<'_>,
    title: &str,
    items: &[T],
    show: impl Fn(&T) -> String,
) -> std::fmt::Result {
    if items.is_empty() {
        return Ok(());
    }
    let mut text = items.iter().take(NAMED).map(show).collect::<Vec<_>>().join("; ");
    if items.len() > NAMED {
        let _ = write!(text, "; and {} more", items.len() - NAMED);
    }
    write!(f, ", {} {title}: {text}", items.len())
}

impl std::error::Error for Unfit {}
