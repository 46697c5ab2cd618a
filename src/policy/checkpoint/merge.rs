//! An adapter's directory and its base to a whole policy.

use std::path::{Path, PathBuf};

use candle_core::{Device, Tensor};
use serde_json::{Value, json};

use super::account::Nothing;
use super::config::CONFIG_FILE;
use super::write::TRAIN_CONFIG_FILE;
use super::{Checkpoint, CheckpointError, Contents, write};
use crate::adapter::base::BaseIdentity;
use crate::adapter::error::AdapterError;
use crate::adapter::merge::{BasePolicy, Merge};
use crate::adapter::peft::Adapter;
use crate::error::{Explain, Kind};
use crate::policy::arch::Arch;
use crate::policy::parameters::parameters;
use crate::policy::processor::ProcessorError;
use crate::policy::weights::WeightSource;

#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Tokenizer(#[from] ProcessorError),
    #[error("{} is not empty: nothing in it will be touched", path.display())]
    Occupied { path: PathBuf },
    #[error("cannot read the weights of {}", base.display())]
    Weights { base: PathBuf, source: candle_core::Error },
}

impl Explain for MergeError {
    fn kind(&self) -> Kind {
        match self {
            MergeError::Adapter(error) => error.kind(),
            MergeError::Checkpoint(error) => error.kind(),
            MergeError::Tokenizer(error) => error.kind(),
            MergeError::Occupied { .. } | MergeError::Weights { .. } => Kind::Input,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            MergeError::Adapter(error) => error.hint(),
            MergeError::Checkpoint(error) => error.hint(),
            MergeError::Tokenizer(error) => error.hint(),
            MergeError::Occupied { .. } => Some("choose a directory that does not exist yet".into()),
            MergeError::Weights { .. } => None,
        }
    }
}

/// Hashes the base's weights; the trainer writes the same hash into its adapters.
pub type Digest = fn(&dyn WeightSource, &Arch) -> candle_core::Result<String>;

/// Merges the adapter in `adapter` onto the checkpoint in `base` and writes the policy into `out`. Returns whether the
/// base is known to be the adapter's own (a peer's adapter does not say).
///
/// Configuration, statistics and tokenizer are those that lie with the adapter or around it, else the base's.
pub fn merge_adapter(
    adapter: &Path,
    base: &Path,
    out: &Path,
    policy: BasePolicy,
    digest: Digest,
) -> Result<bool, MergeError> {
    if std::fs::read_dir(out).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(MergeError::Occupied { path: out.to_owned() });
    }
    let base = Checkpoint::open(base)?;
    let around = [Some(adapter), adapter.parent()];
    let described = around.into_iter().flatten().find(|place| place.join(CONFIG_FILE).is_file());
    let described = described.map(Checkpoint::open).transpose()?;
    let description = described.as_ref().filter(|found| found.statistics.is_some()).unwrap_or(&base);
    let adapter = Adapter::read(adapter)?;

    let unreadable = |source| MergeError::Weights { base: base.directory.clone(), source };
    let weights = base.weights(&description.arch, &[], Box::new(Nothing))?;
    let sha256 = digest(&weights, &description.arch).map_err(unreadable)?;
    let identity = BaseIdentity { name: base.directory.display().to_string(), revision: None, sha256 };
    let mut merge = Merge::onto(&adapter, &identity, policy)?;
    let verified = merge.verified();
    let mut tensors: Vec<(String, Tensor)> = Vec::new();
    for parameter in parameters(&description.arch) {
        let tensor = weights.tensor(&parameter.name, &parameter.shape, &Device::Cpu).map_err(unreadable)?;
        tensors.push((parameter.name.clone(), merge.tensor(&parameter.name, &tensor)?));
    }
    merge.finish()?;
    write_policy(description, &base, &adapter.label, tensors, out)?;
    Ok(verified)
}

fn write_policy(
    description: &Checkpoint,
    base: &Checkpoint,
    adapter: &str,
    tensors: Vec<(String, Tensor)>,
    out: &Path,
) -> Result<(), MergeError> {
    let directory = || description.directory.clone();
    let statistics =
        description.statistics.as_ref().ok_or_else(|| CheckpointError::NoStatistics { directory: directory() })?;
    let tokenizer = match description.tokenizer()? {
        Some(tokenizer) => Some(tokenizer),
        None => base.tokenizer()?,
    };
    let absent = || ProcessorError::NoTokenizer { directory: directory().display().to_string() };
    let provenance = json!({"merged": {"adapter": adapter, "base": base.directory}});
    let trained: Option<Value> = std::fs::read(description.directory.join(TRAIN_CONFIG_FILE))
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok());
    let contents = Contents {
        config: &description.config,
        statistics,
        rename: &description.pipelines.as_ref().map(|pipelines| pipelines.rename.clone()).unwrap_or_default(),
        tokenizer: &tokenizer.ok_or_else(absent)?,
        train_config: trained.as_ref().unwrap_or(&provenance),
    };
    Ok(write(out, &contents, tensors)?)
}
