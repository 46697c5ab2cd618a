//! `pretrained_model/`: what LeRobot and PEFT load.
//!
//! Always a whole policy (`model.safetensors`, adapters merged); beside it, after adapter training, the adapter itself
//! in `lora_adapters/`, as VLASH lays it out.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use candle_core::{Device, Tensor};

use super::error::TrainError;
use crate::adapter::base::BaseIdentity;
use crate::adapter::config::PeftConfig;
use crate::adapter::merge::{BasePolicy, Merge};
use crate::adapter::peft::Adapter;
use crate::dataset::stats::Statistics;
use crate::policy::checkpoint::{self, Contents, PolicyConfig};
use crate::policy::processor::Processor;
use crate::policy::{Policy, Trained};

/// The folder of the adapter in `pretrained_model/`.
pub const ADAPTERS: &str = "lora_adapters";

/// Everything about the policy's files but the weights.
pub struct Exporter {
    pub config: PolicyConfig,
    pub statistics: Statistics,
    pub rename: BTreeMap<String, String>,
    pub processor: Arc<Processor>,
    pub train_config: serde_json::Value,
    /// Set when adapters are trained.
    pub adapter: Option<AdapterExport>,
}

/// What an adapter says about itself.
pub struct AdapterExport {
    pub peft: PeftConfig,
    pub base: BaseIdentity,
}

impl Exporter {
    /// Writes the policy as it stands into `directory`.
    pub fn write(&self, policy: &Policy, directory: &Path) -> Result<(), TrainError> {
        let tensors: Vec<(String, Tensor)> =
            policy.parameters().map(|(name, tensor)| (name.to_string(), tensor)).collect();
        match &self.adapter {
            None => Ok(checkpoint::write(directory, &self.contents(), tensors)?),
            Some(export) => {
                let adapter = export.adapter(policy.trained())?;
                let mut merge = Merge::onto(&adapter, &export.base, BasePolicy::Same)?;
                // Where the weights are, one at a time: on a GPU that takes half a gigabyte for a moment, which the step's
                // activations have left, and on the host it took a minute at the full size.
                let merged = |name: &str, tensor: &Tensor| merge.tensor(name, tensor).map_err(candle_core::Error::wrap);
                checkpoint::write_changed(directory, &self.contents(), tensors, merged)?;
                merge.finish()?;
                let place = directory.join(ADAPTERS);
                std::fs::create_dir_all(&place).map_err(|source| TrainError::Io {
                    action: "create",
                    path: place.clone(),
                    source,
                })?;
                Ok(adapter.write(&place)?)
            }
        }
    }

    /// Writes the un-merged base that adapters of this run belong to, when the run made it itself.
    pub fn write_base(&self, policy: &Policy, directory: &Path) -> Result<(), TrainError> {
        let tensors = policy.parameters().map(|(name, tensor)| (name.to_string(), tensor));
        Ok(checkpoint::write(directory, &self.contents(), tensors)?)
    }

    fn contents(&self) -> Contents<'_> {
        Contents {
            config: &self.config,
            statistics: &self.statistics,
            rename: &self.rename,
            tokenizer: self.processor.tokenizer(),
            train_config: &self.train_config,
        }
    }
}

impl AdapterExport {
    fn adapter(&self, trained: &[Trained]) -> Result<Adapter, TrainError> {
        let host = |t: &Trained| Ok((t.name.clone(), t.var.as_detached_tensor().to_device(&Device::Cpu)?));
        let tensors = trained.iter().map(host).collect::<candle_core::Result<Vec<_>>>()?;
        Ok(Adapter::from_trained("this run", self.peft.clone(), tensors, Some(self.base.clone()))?)
    }
}
