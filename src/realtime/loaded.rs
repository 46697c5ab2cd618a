//! A checkpoint as a [`ChunkPolicy`]: opened once, shared by all that infer with it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use candle_core::{DType, Tensor};
use rand_distr::{Distribution, StandardNormal};

use super::guidance;
use super::policy::{ChunkPolicy, Continuity, Guidance, InferError, Inferred, Leftover, PolicyFacts, Request, Timing};
use crate::adapter::plan::Frozen;
use crate::config::train::{DeviceKind, Dtype, PolicyKind};
use crate::dataset::finding::Severity;
use crate::dataset::frame::RgbFrame;
use crate::dataset::stats::FeatureStats;
use crate::device::{self, DeviceError};
use crate::error::{Explain, Kind};
use crate::policy::batch::Batch;
use crate::policy::checkpoint::account::Nothing;
use crate::policy::checkpoint::{Checkpoint, CheckpointError};
use crate::policy::processor::{ACTION, Processor, ProcessorError, TokenPadding, Tokenizer};
use crate::policy::{Guided, Observed, Policy};
use crate::random::stream;

/// What LeRobot puts before the names of cameras.
const IMAGES: &str = "observation.images.";
/// Slots that a policy declares empty by name: no robot has them.
const EMPTY: &str = "observation.images.empty_camera_";

/// How a checkpoint is opened.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadOptions {
    pub device: DeviceKind,
    /// Euler steps; none: the checkpoint's own number.
    pub steps: Option<usize>,
    /// The robot's camera → the policy's, both with or without `observation.images.`, where their names differ.
    pub cameras: BTreeMap<String, String>,
}

impl Default for LoadOptions {
    fn default() -> LoadOptions {
        LoadOptions { device: DeviceKind::Auto, steps: None, cameras: BTreeMap::new() }
    }
}

/// A policy that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Processor(#[from] ProcessorError),
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("{} is a π₀ policy: it comes with a later version", directory.display())]
    Kind { directory: PathBuf },
    #[error("{} contradicts itself: {problem}", directory.display())]
    Contradiction { directory: PathBuf, problem: String },
    #[error("the camera map names {camera}, the policy in {} has {known:?}", directory.display())]
    Camera { directory: PathBuf, camera: String, known: Vec<String> },
    #[error("cannot write the policy in the box to {}", path.display())]
    Unpack { path: PathBuf, source: std::io::Error },
    #[error("denoising in 0 steps gives nothing")]
    NoStep,
    #[error("cannot build the network of {}", directory.display())]
    Network { directory: PathBuf, source: candle_core::Error },
}

impl Explain for LoadError {
    fn kind(&self) -> Kind {
        match self {
            LoadError::Checkpoint(error) => error.kind(),
            LoadError::Processor(error) => error.kind(),
            LoadError::Device(error) => error.kind(),
            LoadError::Network { .. } | LoadError::Unpack { .. } => Kind::Environment,
            _ => Kind::Input,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            LoadError::Checkpoint(error) => error.hint(),
            LoadError::Processor(error) => error.hint(),
            LoadError::Device(error) => error.hint(),
            LoadError::Contradiction { directory, .. } | LoadError::Kind { directory } => {
                Some(format!("vlash policy info {}", directory.display()))
            }
            LoadError::Unpack { .. } => Some("export VLASH_CACHE=/a/directory/with/10/MB".into()),
            LoadError::NoStep => Some("steps = 10, or leave it out".into()),
            _ => None,
        }
    }
}

/// A checkpoint, ready to infer. Clones share its weights: many rollouts run on one copy.
#[derive(Debug, Clone)]
pub struct LoadedPolicy {
    shared: Arc<Shared>,
    steps: usize,
}

#[derive(Debug)]
struct Shared {
    policy: Policy,
    processor: Processor,
    facts: PolicyFacts,
    /// The policy's camera slot of each of the facts' cameras.
    slots: Vec<String>,
    directory: PathBuf,
    /// The device, in words.
    device: String,
}

impl LoadedPolicy {
    /// Opens the checkpoint in `directory` (the one with `config.json`, or a training checkpoint's).
    ///
    /// # Errors
    /// What is missing, broken or contradictory, or a device that cannot be had.
    pub fn open(directory: &Path, options: &LoadOptions) -> Result<LoadedPolicy, LoadError> {
        let checkpoint = Checkpoint::open(directory)?;
        let tokenizer = match checkpoint.tokenizer()? {
            Some(tokenizer) => tokenizer,
            None => {
                let directory = checkpoint.directory.display().to_string();
                return Err(ProcessorError::NoTokenizer { directory }.into());
            }
        };
        LoadedPolicy::build(&checkpoint, tokenizer, options)
    }

    fn build(checkpoint: &Checkpoint, tokenizer: Tokenizer, options: &LoadOptions) -> Result<LoadedPolicy, LoadError> {
        let directory = checkpoint.directory.clone();
        if checkpoint.config.kind != PolicyKind::Pi05 {
            return Err(LoadError::Kind { directory });
        }
        if let Some(finding) = checkpoint.findings.iter().find(|finding| finding.severity == Severity::Error) {
            return Err(LoadError::Contradiction { directory, problem: finding.message.clone() });
        }
        let steps = options.steps.unwrap_or(checkpoint.config.num_inference_steps);
        if steps == 0 {
            return Err(LoadError::NoStep);
        }
        let processor = checkpoint.processor(tokenizer)?;
        let (slots, cameras) = cameras(checkpoint, &processor, &options.cameras)?;
        let opened = device::open(options.device)?;
        let dtype = match checkpoint.config.dtype {
            Dtype::Bfloat16 if opened.gpu.is_some() => DType::BF16,
            _ => DType::F32,
        };
        let weights = checkpoint.weights(&checkpoint.arch, &[], Box::new(Nothing))?;
        let policy = Policy::build(&checkpoint.arch, &weights, &Frozen, &opened.device, dtype)
            .map_err(|source| LoadError::Network { directory: directory.clone(), source })?;
        let facts = facts(checkpoint, &processor, cameras);
        let shared = Shared { policy, processor, facts, slots, directory, device: opened.to_string() };
        Ok(LoadedPolicy { shared: Arc::new(shared), steps })
    }

    /// Another one over the same weights, for another thread.
    pub fn fork(&self) -> LoadedPolicy {
        self.clone()
    }

    /// Where it was read from.
    pub fn directory(&self) -> &Path {
        &self.shared.directory
    }

    /// What computes, in words.
    pub fn device(&self) -> &str {
        &self.shared.device
    }

    /// Euler steps of a chunk.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Denoises from the noise of `seed`, tied to the old chunk as `request` asks.
    fn denoise(&self, observed: &Observed, request: &Request) -> Result<Tensor, InferError> {
        let policy = &self.shared.policy;
        let noise = self.noise(request.noise_seed).map_err(|error| self.failed(error))?;
        let chunk = match (request.continuity, &request.leftover) {
            (Continuity::Rtc(guidance), Some(leftover)) => {
                let guided = self.guided(&guidance, leftover)?;
                policy.denoise_guided(observed, &noise, self.steps, &guided)
            }
            (Continuity::Prefix, Some(leftover)) => {
                policy.denoise_given(observed, &noise, self.steps, &self.given(leftover)?)
            }
            (_, _) => policy.denoise(observed, &noise, self.steps),
        };
        chunk.map_err(|error| self.failed(error))
    }

    /// N(0, 1), f32 `[1, H, A]`, a function of the seed alone.
    fn noise(&self, seed: u64) -> candle_core::Result<Tensor> {
        let arch = self.shared.policy.arch();
        let mut random = stream(seed, "realtime/noise", &[]);
        let count = arch.chunk_size * arch.max_action_dim;
        let values: Vec<f32> = (0..count).map(|_| StandardNormal.sample(&mut random)).collect();
        Tensor::from_vec(values, (1, arch.chunk_size, arch.max_action_dim), self.shared.policy.device())
    }

    fn guided(&self, guidance: &Guidance, leftover: &Leftover) -> Result<Guided, InferError> {
        let arch = self.shared.policy.arch();
        let (chunk, width) = (arch.chunk_size, arch.max_action_dim);
        let (rows, values) = self.normalised(leftover, leftover.delay)?;
        let mut padded = vec![0.0; chunk * width];
        for (to, from) in padded.iter_mut().zip(&values) {
            *to = *from;
        }
        let horizon = guidance.execution_horizon.min(rows);
        let weights = guidance::weights(guidance.schedule, leftover.delay, horizon, chunk);
        let device = self.shared.policy.device();
        let tensors = Tensor::from_vec(padded, (chunk, width), device)
            .and_then(|leftover| Ok((leftover, Tensor::from_vec(weights, chunk, device)?)));
        let (leftover, weights) = tensors.map_err(|error| self.failed(error))?;
        let Guidance { max_weight, full_jacobian, .. } = *guidance;
        Ok(Guided { leftover, weights, max_weight, full_jacobian })
    }

    /// The actions that are given, f32 `[delay, A]`.
    fn given(&self, leftover: &Leftover) -> Result<Tensor, InferError> {
        let (trained, delay) = (self.shared.facts.rtc_trained_delay, leftover.delay);
        if delay > trained {
            return Err(InferError {
                reason: format!("{delay} leading actions are given, the policy was trained to take at most {trained}"),
                kind: Kind::Input,
            });
        }
        let (_, mut values) = self.normalised(leftover, delay)?;
        let width = self.shared.policy.arch().max_action_dim;
        values.truncate(delay * width);
        Tensor::from_vec(values, (delay, width), self.shared.policy.device()).map_err(|error| self.failed(error))
    }

    /// Rows of the leftover, at most H, normalised and padded to width A. Where there are fewer than `least`, the last one
    /// is held: the arm will stand there.
    fn normalised(&self, leftover: &Leftover, least: usize) -> Result<(usize, Vec<f32>), InferError> {
        let (chunk, dims) = (self.shared.facts.horizon, self.shared.facts.action_dim);
        let whole = dims > 0 && !leftover.actions.is_empty() && leftover.actions.len().is_multiple_of(dims);
        if !whole {
            return Err(InferError {
                reason: format!("{} values are left of the old chunk, not rows of {dims}", leftover.actions.len()),
                kind: Kind::Internal,
            });
        }
        let mut actions: Vec<f32> = leftover.actions.iter().copied().take(chunk * dims).collect();
        let last = actions.len() - dims;
        while actions.len() < least.min(chunk) * dims {
            actions.extend_from_within(last..last + dims);
        }
        let rows = actions.len() / dims;
        let normalised = self.shared.processor.normalise_actions(&actions);
        normalised
            .map(|values| (rows, values))
            .map_err(|error| InferError { reason: format!("the rest of the old chunk: {error}"), kind: error.kind() })
    }

    fn observe(&self, request: &Request) -> Result<Batch, InferError> {
        let Shared { processor, policy, slots, .. } = &*self.shared;
        if request.images.len() != slots.len() {
            return Err(InferError {
                reason: format!("{} images for the cameras {slots:?}", request.images.len()),
                kind: Kind::Input,
            });
        }
        let images: Vec<(&str, &RgbFrame)> =
            slots.iter().zip(&request.images).map(|(slot, frame)| (slot.as_str(), frame.image.as_ref())).collect();
        let batch = processor
            .observe(&images, &request.state, &request.task)
            .and_then(|seen| processor.collate_observations(&[&seen], TokenPadding::Longest, policy.device()));
        batch.map_err(|error| InferError { reason: error.to_string(), kind: error.kind() })
    }

    /// FF-21: `actions` as the policy made them, of which that at `at` is no number.
    fn no_number(&self, actions: &[f32], at: usize) -> InferError {
        let PolicyFacts { horizon, action_dim, joints, .. } = &self.shared.facts;
        let (step, place) = (at / action_dim.max(&1), at % action_dim.max(&1));
        let named = joints.as_ref().and_then(|joints| joints.get(place));
        let name = named.map_or(format!("action {place}"), |name| name.strip_suffix(".pos").unwrap_or(name).to_owned());
        let value = actions.get(at).copied().unwrap_or(f32::NAN);
        InferError { reason: format!("{name} is {value} at step {step} of {horizon}"), kind: Kind::Input }
    }

    fn failed(&self, error: candle_core::Error) -> InferError {
        let kind = if self.shared.policy.device().is_cpu() { Kind::Internal } else { Kind::Environment };
        InferError { reason: error.to_string(), kind }
    }

    /// Waits for the device, and tells the time since `begun`.
    fn lap(&self, begun: &mut Instant) -> Result<Duration, InferError> {
        self.shared.policy.device().synchronize().map_err(|error| self.failed(error))?;
        let now = Instant::now();
        let lap = now.duration_since(*begun);
        *begun = now;
        Ok(lap)
    }
}

impl ChunkPolicy for LoadedPolicy {
    fn facts(&self) -> &PolicyFacts {
        &self.shared.facts
    }

    fn infer(&mut self, request: &Request) -> Result<Inferred, InferError> {
        let Shared { policy, processor, .. } = &*self.shared;
        let mut begun = Instant::now();
        let batch = self.observe(request)?;
        let preprocess = self.lap(&mut begun)?;
        let observed = policy.observe(&batch).map_err(|error| self.failed(error))?;
        let prefix = self.lap(&mut begun)?;
        let chunk = self.denoise(&observed, request)?;
        let denoise = self.lap(&mut begun)?;
        let actions = processor
            .unnormalise_actions(&chunk)
            .and_then(|actions| actions.flatten_all()?.to_vec1::<f32>())
            .map_err(|error| self.failed(error))?;
        if let Some(at) = actions.iter().position(|action| !action.is_finite()) {
            return Err(self.no_number(&actions, at));
        }
        let copy = self.lap(&mut begun)?;
        Ok(Inferred { actions, timing: Timing { preprocess, prefix, denoise, copy } })
    }
}

/// The policy's slots that a robot fills, and the robot's name of each.
///
/// By the map first, then by the renaming that the policy was trained with, else by the same name.
fn cameras(
    checkpoint: &Checkpoint,
    processor: &Processor,
    map: &BTreeMap<String, String>,
) -> Result<(Vec<String>, Vec<String>), LoadError> {
    let spec = processor.spec();
    let slots: Vec<String> = spec.cameras.iter().filter(|slot| !slot.starts_with(EMPTY)).cloned().collect();
    if let Some(camera) = map.values().find(|camera| !slots.iter().any(|slot| short(slot) == short(camera))) {
        let known = slots.iter().map(|slot| short(slot).to_owned()).collect();
        return Err(LoadError::Camera { directory: checkpoint.directory.clone(), camera: camera.clone(), known });
    }
    let renamed = |table: &BTreeMap<String, String>, slot: &str| {
        table.iter().find(|(_, to)| short(to) == short(slot)).map(|(from, _)| short(from).to_owned())
    };
    let name = |slot: &String| {
        renamed(map, slot).or_else(|| renamed(&spec.rename, slot)).unwrap_or_else(|| short(slot).to_owned())
    };
    let names = slots.iter().map(name).collect();
    Ok((slots, names))
}

fn short(camera: &str) -> &str {
    camera.strip_prefix(IMAGES).unwrap_or(camera)
}

fn facts(checkpoint: &Checkpoint, processor: &Processor, cameras: Vec<String>) -> PolicyFacts {
    let (spec, forge) = (processor.spec(), &checkpoint.config.vlash_forge);
    let names = |value: &serde_json::Value| {
        let names: Option<Vec<String>> = serde_json::from_value(value.clone()).ok();
        names.filter(|names| names.len() == spec.action_dim)
    };
    let range = |stats: &FeatureStats| -> Option<Vec<[f32; 2]>> {
        let ranges: Vec<[f32; 2]> = stats.min.iter().zip(&stats.max).map(|(&a, &b)| [a as f32, b as f32]).collect();
        (ranges.len() == spec.action_dim).then_some(ranges)
    };
    PolicyFacts {
        horizon: spec.chunk_size,
        action_dim: spec.action_dim,
        state_dim: spec.state_dim,
        joints: checkpoint.config.rest.get("action_feature_names").and_then(names),
        cameras,
        trained_delay: forge.trained_delay,
        rtc_trained_delay: forge.rtc_trained_delay,
        action_range: checkpoint.statistics.as_ref().and_then(|all| all.get(ACTION)).and_then(range),
    }
}
