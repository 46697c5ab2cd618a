//! What a checkpoint is, for people and scripts.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use super::adapter::{self, AdapterFound};
use super::config::CONFIG_FILE;
use super::{Checkpoint, CheckpointError};
use crate::config::train::PolicyKind;
use crate::dataset::finding::Finding;
use crate::dataset::stats::FeatureStats;
use crate::policy::arch::TinyDims;
use crate::policy::parameters::{ParameterSpec, parameters};
use crate::policy::processor::{Pad, Resize, tokenizer};

/// A checkpoint in figures. `Display` is the text of `vlash policy info`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Info {
    pub directory: String,
    pub kind: PolicyKind,
    pub state_cond: bool,
    pub sizes: TinyDims,
    /// Of the network, unused output heads not counted.
    pub parameters: usize,
    /// Tensors by stored type.
    pub stored: BTreeMap<String, usize>,
    pub stored_bytes: u64,
    pub chunk_size: usize,
    pub n_action_steps: usize,
    pub num_inference_steps: usize,
    pub cameras: Vec<Camera>,
    pub empty_cameras: usize,
    pub state_dim: Option<usize>,
    pub action_dim: Option<usize>,
    /// Empty in a base model.
    pub statistics: Vec<FeatureSummary>,
    pub processor: ProcessorSummary,
    pub adapters: Vec<AdapterFound>,
    /// Largest delay offset in frames of the training; 0: none.
    pub trained_delay: usize,
    /// Most leading actions that were given in training; 0: none.
    pub rtc_trained_delay: usize,
    pub findings: Vec<Finding>,
}

/// A camera slot.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Camera {
    pub name: String,
    /// `[3, height, width]`
    pub shape: Vec<usize>,
}

/// Statistics of one feature: how many dimensions and frames, and which of them exist.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FeatureSummary {
    pub feature: String,
    pub mode: String,
    pub dimensions: usize,
    pub frames: u64,
    pub quantiles: bool,
}

/// How inputs are prepared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProcessorSummary {
    /// Side of what the vision tower sees.
    pub image: usize,
    pub resize: Resize,
    pub pad: Pad,
    pub tokenizer_max_length: usize,
    /// Where the tokenizer is, when it travels with the checkpoint.
    pub tokenizer: Option<String>,
    pub rename: BTreeMap<String, String>,
    /// LeRobot's steps in order.
    pub steps: Vec<String>,
}

impl Checkpoint {
    /// Describes the checkpoint. Nothing is loaded.
    pub fn info(&self) -> Info {
        let config = &self.config;
        let mut stored: BTreeMap<String, usize> = BTreeMap::new();
        let mut stored_bytes = 0;
        for (name, tensor) in self.store.iter().flat_map(|store| store.tensors()) {
            *stored.entry(format!("{:?}", tensor.dtype)).or_default() += 1;
            stored_bytes += self.store.as_ref().and_then(|s| s.bytes(name)).map_or(0, |bytes| bytes.len() as u64);
        }
        let cameras = config.input_features.0.iter().filter(|(_, feature)| feature.kind == "VISUAL");
        let kinds: BTreeMap<&str, &str> = config
            .input_features
            .0
            .iter()
            .chain(&config.output_features.0)
            .map(|(name, feature)| (name.as_str(), feature.kind.as_str()))
            .collect();
        let summary = |(feature, stats): (&String, &FeatureStats)| FeatureSummary {
            mode: kinds
                .get(feature.as_str())
                .and_then(|kind| config.normalization_mapping.get(*kind))
                .cloned()
                .unwrap_or_default(),
            feature: feature.clone(),
            dimensions: stats.mean.len().max(stats.min.len()),
            frames: stats.count,
            quantiles: stats.q01.is_some() && stats.q99.is_some(),
        };
        let pipelines = self.pipelines.clone().unwrap_or_default();
        let beside = self.directory.join(tokenizer::FILES[0]);
        Info {
            directory: self.directory.display().to_string(),
            kind: config.kind,
            state_cond: self.arch.state_cond,
            sizes: TinyDims::of(&self.arch),
            parameters: parameters(&self.arch).iter().map(ParameterSpec::elements).sum(),
            stored,
            stored_bytes,
            chunk_size: config.chunk_size,
            n_action_steps: config.n_action_steps,
            num_inference_steps: config.num_inference_steps,
            cameras: cameras.map(|(name, f)| Camera { name: name.clone(), shape: f.shape.clone() }).collect(),
            empty_cameras: config.vlash_forge.empty_cameras,
            state_dim: config.state_dim(),
            action_dim: config.action_dim(),
            statistics: self.statistics.iter().flatten().map(summary).collect(),
            processor: ProcessorSummary {
                image: self.arch.vision.image,
                resize: config.vlash_forge.resize,
                pad: config.vlash_forge.pad,
                tokenizer_max_length: config.tokenizer_max_length,
                tokenizer: beside.is_file().then(|| beside.display().to_string()),
                rename: pipelines.rename,
                steps: pipelines.steps,
            },
            adapters: self.adapters.clone(),
            trained_delay: config.vlash_forge.trained_delay,
            rtc_trained_delay: config.vlash_forge.rtc_trained_delay,
            findings: self.findings.clone(),
        }
    }
}

/// What a directory holds.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Description {
    Policy(Box<Info>),
    /// An adapter without a policy's `config.json` beside it.
    Adapter(Box<AdapterFound>),
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Description::Policy(info) => info.fmt(f),
            Description::Adapter(adapter) => adapter.fmt(f),
        }
    }
}

/// Opens and describes the directory of a checkpoint or of an adapter.
pub fn describe(directory: &std::path::Path) -> Result<Description, CheckpointError> {
    match Checkpoint::open(directory) {
        Ok(checkpoint) => Ok(Description::Policy(Box::new(checkpoint.info()))),
        Err(error @ CheckpointError::NotACheckpoint { missing: CONFIG_FILE, .. }) => {
            let adapter = adapter::read(directory)?.ok_or(error)?;
            Ok(Description::Adapter(Box::new(adapter)))
        }
        Err(error) => Err(error),
    }
}

impl fmt::Display for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |label: &str, text: String| writeln!(f, "{label:<12}{text}");
        let conditioned = if self.state_cond { ", conditioned on the state," } else { "" };
        line("policy", format!("{}{conditioned} in {}", kind_name(self.kind), self.directory))?;
        line("parameters", thousands(self.parameters as u64))?;
        let types: Vec<String> = self.stored.iter().map(|(dtype, count)| format!("{count} {dtype}")).collect();
        let stored = if types.is_empty() { "none: an adapter only".to_owned() } else { types.join(", ") };
        line("stored", format!("{stored}; {} bytes", thousands(self.stored_bytes)))?;
        let (v, l, e) = (&self.sizes.vision, &self.sizes.vlm, &self.sizes.expert);
        line(
            "vision",
            format!(
                "{} layers of width {}, {} px in patches of {}",
                v.num_hidden_layers, v.hidden_size, v.image_size, v.patch_size
            ),
        )?;
        line("language", format!("{} layers of width {}, vocabulary {}", l.depth, l.width, self.sizes.vocab_size))?;
        line("expert", format!("{} layers of width {}", e.depth, e.width))?;
        line(
            "actions",
            format!(
                "chunks of {}, {} executed, {} denoising steps",
                self.chunk_size, self.n_action_steps, self.num_inference_steps
            ),
        )?;
        for camera in &self.cameras {
            line("camera", format!("{} {:?}", camera.name, camera.shape))?;
        }
        let dimension = |found: Option<usize>| found.map_or_else(|| "?".to_owned(), |n| n.to_string());
        line("dimensions", format!("state {}, action {}", dimension(self.state_dim), dimension(self.action_dim)))?;
        if self.statistics.is_empty() {
            line("statistics", "none: a base model, not fine-tuned".into())?;
        }
        for s in &self.statistics {
            let quantiles = if s.quantiles { "with" } else { "without" };
            line(
                "statistics",
                format!(
                    "{}: {} dimensions, {} frames, {quantiles} quantiles, mode {}",
                    s.feature, s.dimensions, s.frames, s.mode
                ),
            )?;
        }
        let p = &self.processor;
        line("images", format!("{} px, {:?}, padded {:?}", p.image, p.resize, p.pad))?;
        let tokenizer = p.tokenizer.clone().unwrap_or_else(|| "not with the checkpoint".into());
        line("prompt", format!("at most {} tokens; tokenizer {tokenizer}", p.tokenizer_max_length))?;
        for (from, to) in &p.rename {
            line("rename", format!("{from} → {to}"))?;
        }
        let delay = if self.trained_delay == 0 {
            "none trained".to_owned()
        } else {
            format!("trained up to {} frames", self.trained_delay)
        };
        line("delay", delay)?;
        if self.rtc_trained_delay > 0 {
            line("given", format!("trained to take up to {} leading actions as given", self.rtc_trained_delay))?;
        }
        for finding in &self.findings {
            line(&format!("{:?}", finding.severity).to_lowercase(), finding.message.clone())?;
        }
        self.adapters.iter().try_for_each(|adapter| adapter.fmt(f))
    }
}

/// A policy's name as its authors write it.
pub(super) fn kind_name(kind: PolicyKind) -> &'static str {
    match kind {
        PolicyKind::Pi05 => "π₀.₅",
        PolicyKind::Pi0 => "π₀",
    }
}

/// Digits in groups of three.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap_or_default()).collect();
    groups.join(",")
}
