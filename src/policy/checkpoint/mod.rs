//! Policy checkpoints: directories of `config.json`, weights, processors, statistics and tokenizer, all in LeRobot's
//! form, and `vlash_forge.json` with what LeRobot has no field for.
//!
//! [`Checkpoint::open`] reads everything but the weights' data and reports contradictions; [`Checkpoint::weights`]
//! accounts for every tensor and gives a [`crate::policy::weights::WeightSource`]; [`write()`] writes what LeRobot
//! loads.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::config::train::LongPrompts;
use crate::dataset::finding::{Finding, Severity};
use crate::dataset::stats::Statistics;
use crate::policy::arch::Arch;
use crate::policy::processor::normalise::mode_named;
use crate::policy::processor::{ACTION, ImageSpec, Processor, ProcessorError, ProcessorSpec, STATE, Tokenizer};
use crate::policy::weights::WeightSource;

pub mod account;
pub mod adapter;
pub mod config;
pub mod error;
pub mod forge;
pub mod info;
pub mod merge;
pub mod names;
pub mod pack;
pub mod pipeline;
pub mod statistics;
pub mod store;
#[cfg(test)]
mod tests;
pub mod verify;
mod write;

pub use account::{Account, Weights};
pub use config::PolicyConfig;
pub use error::{CheckpointError, Unfit};
pub use forge::Forge;
pub use info::Info;
pub use write::{Contents, stream, write, write_changed, write_description, write_weights};

use adapter::AdapterFound;
use config::CONFIG_FILE;
use pipeline::Pipelines;
use store::Store;

/// A checkpoint directory, read but for the weights' data.
#[derive(Debug)]
pub struct Checkpoint {
    pub directory: PathBuf,
    pub config: PolicyConfig,
    pub arch: Arch,
    pub pipelines: Option<Pipelines>,
    /// From the processors' state files, else from buffers among the weights; none in a base model.
    pub statistics: Option<Statistics>,
    pub adapters: Vec<AdapterFound>,
    /// Unknown fields, contradictions: for the report.
    pub findings: Vec<Finding>,
    store: Option<Arc<Store>>,
}

impl Checkpoint {
    /// `directory`: the one with `config.json`, or a training checkpoint's with `pretrained_model/` inside.
    pub fn open(directory: &Path) -> Result<Checkpoint, CheckpointError> {
        let inner = directory.join("pretrained_model");
        let directory =
            if !directory.join(CONFIG_FILE).exists() && inner.is_dir() { inner } else { directory.to_owned() };
        let path = directory.join(CONFIG_FILE);
        let text = std::fs::read(&path).map_err(|source| match source.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
                CheckpointError::NotACheckpoint { directory: directory.clone(), missing: CONFIG_FILE }
            }
            _ => CheckpointError::Read { path: path.clone(), source },
        })?;
        let (mut config, mut findings) = PolicyConfig::parse(&path, &text)?;
        if let Some((forge, finding)) = Forge::read(&directory)? {
            config.vlash_forge = forge;
            findings.extend(finding);
        }
        let store = Store::open(&directory)?.map(Arc::new);
        let adapters = adapter::find(&directory)?;
        if store.is_none() && adapters.is_empty() {
            return Err(CheckpointError::NotACheckpoint { directory, missing: store::SINGLE_FILE });
        }
        let pipelines = pipeline::read(&directory)?;
        let mut statistics = None;
        if let Some(pipelines) = &pipelines {
            findings.extend(pipelines.findings.iter().cloned());
            statistics.clone_from(&pipelines.statistics);
            reconcile(&mut config, pipelines, &mut findings);
        }
        if let (None, Some(store)) = (&statistics, &store) {
            statistics =
                statistics::read_buffers(store, [&config.input_features, &config.output_features], &directory)?;
        }
        findings.extend(store.iter().flat_map(|store| contradictions(&config, store)));
        let arch = config.arch().map_err(|source| CheckpointError::Arch { path, source })?;
        Ok(Checkpoint { directory, config, arch, pipelines, statistics, adapters, findings, store })
    }

    /// The weights for a network of `arch` (the checkpoint's own, or the one to be trained from it).
    ///
    /// Parameters that the checkpoint may lack, by `allow_new` or because they are the state branch that training
    /// switches on, are asked of `fresh`. Every other difference is an error.
    pub fn weights(
        &self,
        arch: &Arch,
        allow_new: &[String],
        fresh: Box<dyn WeightSource + Send + Sync>,
    ) -> Result<Weights, CheckpointError> {
        let Some(store) = self.store.clone() else {
            let base = self.adapters.first().and_then(|adapter| adapter.base.clone()).unwrap_or_default();
            return Err(CheckpointError::AdapterOnly { directory: self.directory.clone(), base });
        };
        Weights::settle(&self.directory.display().to_string(), store, arch, allow_new, fresh)
    }

    /// The tokenizer that lies beside the weights, or at the place that the processor names when it is a directory;
    /// none when neither is there.
    pub fn tokenizer(&self) -> Result<Option<Tokenizer>, ProcessorError> {
        let named = self.pipelines.as_ref().and_then(|p| p.tokenizer_name.as_ref()).map(PathBuf::from);
        let places = [Some(self.directory.clone()), named];
        let place = places
            .into_iter()
            .flatten()
            .find(|place| place.join(crate::policy::processor::tokenizer::FILES[0]).is_file());
        place.map(|place| Tokenizer::from_directory(&place)).transpose()
    }

    /// What the policy expects of its inputs. `tasks` are for messages.
    pub fn processor_spec(
        &self,
        long_prompts: LongPrompts,
        tasks: Vec<String>,
    ) -> Result<ProcessorSpec, CheckpointError> {
        let config = &self.config;
        let dimension = |found: Option<usize>, feature: &str| {
            found.ok_or_else(|| CheckpointError::Config {
                path: self.directory.join(CONFIG_FILE),
                problem: format!("its features have no {feature}"),
            })
        };
        Ok(ProcessorSpec {
            kind: config.kind,
            cameras: config.cameras(),
            empty_cameras: config.vlash_forge.empty_cameras,
            rename: self.pipelines.as_ref().map(|p| p.rename.clone()).unwrap_or_default(),
            image: ImageSpec {
                height: self.arch.vision.image,
                width: self.arch.vision.image,
                resize: config.vlash_forge.resize,
                pad: config.vlash_forge.pad,
            },
            state_mode: config.mode("STATE"),
            action_mode: config.mode("ACTION"),
            state_dim: dimension(config.state_dim(), STATE)?,
            action_dim: dimension(config.action_dim(), ACTION)?,
            max_state_dim: config.max_state_dim,
            max_action_dim: config.max_action_dim,
            chunk_size: config.chunk_size,
            state_cond: self.arch.state_cond,
            tokenizer_max_length: config.tokenizer_max_length,
            long_prompts,
            vocab_size: self.arch.vocab_size,
            tasks,
        })
    }

    /// The processor to run this policy with. A base model has no statistics: an error.
    pub fn processor(&self, tokenizer: Tokenizer) -> Result<Processor, CheckpointError> {
        let statistics = self
            .statistics
            .as_ref()
            .ok_or_else(|| CheckpointError::NoStatistics { directory: self.directory.clone() })?;
        let spec = self.processor_spec(LongPrompts::CutTask, Vec::new())?;
        Processor::new(spec, statistics, tokenizer).map_err(|source| CheckpointError::Processor { source })
    }
}

/// The processors were in force when the policy was trained; `config.json` only repeats them.
fn reconcile(config: &mut PolicyConfig, pipelines: &Pipelines, findings: &mut Vec<Finding>) {
    let mut contradiction = |what: &str, config: String, processor: String| {
        findings.push(Finding {
            severity: Severity::Warning,
            code: "config-contradiction",
            message: format!("{what}: config.json says {config}, the processor {processor}, which is used"),
            fix: None,
        });
    };
    for (feature, mode) in pipelines.norm_map.iter().flatten() {
        let before = config.normalization_mapping.get(feature);
        if mode_named(mode).is_some() && before != Some(mode) {
            contradiction(&format!("normalisation of {feature}"), format!("{before:?}"), mode.clone());
            config.normalization_mapping.insert(feature.clone(), mode.clone());
        }
    }
    if let Some(length) = pipelines.tokenizer_max_length.filter(|&length| length != config.tokenizer_max_length) {
        contradiction("tokenizer_max_length", config.tokenizer_max_length.to_string(), length.to_string());
        config.tokenizer_max_length = length;
    }
}

/// What the tensors say against the configuration.
fn contradictions(config: &PolicyConfig, store: &Store) -> Vec<Finding> {
    let (kind, state_cond) = names::derive(store.tensors().keys());
    let finding =
        |message: String| Finding { severity: Severity::Error, code: "config-contradiction", message, fix: None };
    let mut found = Vec::new();
    if let Some(kind) = kind.filter(|&kind| kind != config.kind) {
        let (says, are) = (info::kind_name(config.kind), info::kind_name(kind));
        found.push(finding(format!("config.json says {says}, the tensors are those of {are}")));
    }
    if state_cond && !config.vlash_forge.state_cond {
        found.push(finding("the weights have a state-conditioning branch, config.json does not switch it on".into()));
    }
    found
}
