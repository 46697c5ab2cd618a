//! From a dataset sample to what the network takes, and from its actions back to the robot's units.
//!
//! The order is LeRobot's: rename (done by whoever builds the sample) → normalise → prompt → tokens; images are
//! resized, padded and scaled beside it. Padding to 32 dimensions comes after normalisation. [`Processor::prepare`]
//! is the work of loader threads, [`Processor::collate`] that of the training loop.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, RwLock};

use candle_core::{DType, Device, Tensor};

use crate::config::train::{LongPrompts, NormMode, PolicyKind};
use crate::dataset::frame::RgbFrame;
use crate::dataset::sample::Sample;
use crate::dataset::stats::Statistics;

pub mod cameras;
mod collate;
pub mod error;
pub mod image;
pub mod normalise;
pub mod prompt;
pub mod prompt_check;
pub mod statistics;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub mod tokenizer;

pub use collate::TokenPadding;
pub use error::ProcessorError;
pub use image::{ImageSpec, Pad, Resize};
pub use statistics::{check_modes, prepare_statistics};
pub use tokenizer::Tokenizer;

use image::Resizer;
use normalise::Normaliser;
use prompt::{Prompt, PromptForm};

/// The feature of states in every LeRobot dataset.
pub const STATE: &str = "observation.state";
/// The feature of actions in every LeRobot dataset.
pub const ACTION: &str = "action";

/// Positions of Gemma.
const MAX_TOKENS: usize = 8192;

/// What a policy expects of its inputs.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessorSpec {
    pub kind: PolicyKind,
    /// Camera slots by feature name, in the order in which the network sees them.
    pub cameras: Vec<String>,
    /// How many slots may be without data.
    pub empty_cameras: usize,
    /// Dataset or robot camera → slot. Recorded in the checkpoint; samples come with it applied.
    pub rename: BTreeMap<String, String>,
    pub image: ImageSpec,
    pub state_mode: NormMode,
    pub action_mode: NormMode,
    /// Real dimensions.
    pub state_dim: usize,
    pub action_dim: usize,
    /// What they are padded to.
    pub max_state_dim: usize,
    pub max_action_dim: usize,
    /// Actions a chunk.
    pub chunk_size: usize,
    /// The state conditions the expert and is not in the prompt.
    pub state_cond: bool,
    pub tokenizer_max_length: usize,
    pub long_prompts: LongPrompts,
    pub vocab_size: usize,
    /// The dataset's task texts, for messages; may be empty.
    pub tasks: Vec<String>,
}

impl ProcessorSpec {
    /// What the prompt consists of.
    pub fn prompt_form(&self) -> PromptForm {
        match (self.kind, self.state_cond) {
            (PolicyKind::Pi0, _) => PromptForm::Bare,
            (PolicyKind::Pi05, true) => PromptForm::Task,
            (PolicyKind::Pi05, false) => PromptForm::TaskAndState,
        }
    }
}

/// Observations of one sample, ready to be batched.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// By camera slot: f32 CHW in [-1, 1], or none when the sample lacks it.
    pub images: Vec<Option<Vec<f32>>>,
    /// The text that was tokenised.
    pub prompt: String,
    /// Un-padded.
    pub tokens: Vec<u32>,
    /// `[branches, max_state_dim]`, normalised, zero-padded. At inference there is one branch.
    pub state: Vec<f32>,
}

/// One sample, ready to be batched.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepared {
    /// The sample's dataset index.
    pub index: usize,
    pub observation: Observation,
    /// The delay of each branch.
    pub delays: Vec<usize>,
    /// `[branches, chunk_size, max_action_dim]`, normalised, zero-padded.
    pub actions: Vec<f32>,
    /// `[branches, chunk_size]`: true past the episode's end.
    pub is_pad: Vec<bool>,
    /// `[branches]`: the branch counts.
    pub valid: Vec<bool>,
}

/// How long a prompt is against its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptLength {
    pub tokens: usize,
    pub limit: usize,
}

impl PromptLength {
    /// Tokens that would have to be cut from the task.
    pub fn excess(&self) -> usize {
        self.tokens.saturating_sub(self.limit)
    }
}

/// Turns samples into network inputs by one checkpoint's rules. Shared between threads.
#[derive(Debug)]
pub struct Processor {
    spec: ProcessorSpec,
    state: Normaliser,
    action: Normaliser,
    tokenizer: Tokenizer,
    /// One table of weights an input size.
    resizers: RwLock<HashMap<(usize, usize), Arc<Resizer>>>,
}

/// Input sizes whose weights are kept; a dataset has a handful.
const KEPT_RESIZERS: usize = 64;

impl Processor {
    /// `statistics` are used as they are: run [`prepare_statistics`] over a dataset's first.
    ///
    /// # Errors
    /// Statistics of another width or without what the modes need; more real dimensions than padded ones;
    /// an impossible length of the prompt.
    pub fn new(
        spec: ProcessorSpec,
        statistics: &Statistics,
        tokenizer: Tokenizer,
    ) -> Result<Processor, ProcessorError> {
        for (feature, found, expected) in
            [(STATE, spec.state_dim, spec.max_state_dim), (ACTION, spec.action_dim, spec.max_action_dim)]
        {
            if found > expected {
                return Err(ProcessorError::Length { feature: feature.into(), found, expected, index: None });
            }
        }
        if !(1..=MAX_TOKENS).contains(&spec.tokenizer_max_length) {
            return Err(ProcessorError::TokenLimit { found: spec.tokenizer_max_length, most: MAX_TOKENS });
        }
        Ok(Processor {
            state: Normaliser::new(STATE, spec.state_dim, spec.state_mode, statistics.get(STATE))?,
            action: Normaliser::new(ACTION, spec.action_dim, spec.action_mode, statistics.get(ACTION))?,
            tokenizer,
            resizers: RwLock::default(),
            spec,
        })
    }

    /// What it was built for.
    pub fn spec(&self) -> &ProcessorSpec {
        &self.spec
    }

    /// The tokenizer of prompts.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Everything that costs CPU time: resize, normalise, tokenise. Errors carry the sample's dataset index.
    pub fn prepare(&self, sample: &Sample) -> Result<Prepared, ProcessorError> {
        let spec = &self.spec;
        let at = |error: ProcessorError| error.at(Some(sample.index));
        let images: Vec<(&str, &RgbFrame)> =
            sample.images.iter().map(|(name, frame)| (name.as_str(), frame.as_ref())).collect();
        let branches = sample.delays.len();
        if branches > 1 && spec.prompt_form() == PromptForm::TaskAndState {
            return Err(at(ProcessorError::StateInPrompt { branches, index: None }));
        }
        check_length(STATE, sample.state.len(), branches * spec.state_dim).map_err(at)?;
        check_length(ACTION, sample.actions.len(), branches * spec.chunk_size * spec.action_dim).map_err(at)?;
        check_length("action_is_pad", sample.action_is_pad.len(), branches * spec.chunk_size).map_err(at)?;
        check_length("valid", sample.valid.len(), branches).map_err(at)?;
        let (first, rest) = sample.state.split_at(spec.state_dim.min(sample.state.len()));
        let mut observation = self.observe(&images, first, &sample.task).map_err(at)?;
        let mut rest = rest.to_vec();
        self.state.normalise(&mut rest).map_err(at)?;
        observation.state.extend(pad_rows(&rest, spec.state_dim, spec.max_state_dim, branches.saturating_sub(1)));
        let mut real = sample.actions.clone();
        self.action.normalise(&mut real).map_err(at)?;
        Ok(Prepared {
            index: sample.index,
            observation,
            delays: sample.delays.clone(),
            actions: pad_rows(&real, spec.action_dim, spec.max_action_dim, branches * spec.chunk_size),
            is_pad: sample.action_is_pad.clone(),
            valid: sample.valid.clone(),
        })
    }

    /// The observation alone, as at inference. `images` by feature name, `state` in raw units.
    pub fn observe(
        &self,
        images: &[(&str, &RgbFrame)],
        state: &[f32],
        task: &str,
    ) -> Result<Observation, ProcessorError> {
        let state = self.normalise_state(state)?;
        let prompt = self.prompt(task, &state)?;
        let (prompt, tokens) = self.tokenizer.fit(&prompt, self.spec.tokenizer_max_length, self.spec.long_prompts)?;
        let prompt = prompt.text();
        if let Some(&id) = tokens.iter().find(|&&id| id as usize >= self.spec.vocab_size) {
            return Err(ProcessorError::Vocabulary { id, prompt, vocab_size: self.spec.vocab_size });
        }
        Ok(Observation {
            images: self.images(images)?,
            prompt,
            tokens,
            state: pad_rows(&state, self.spec.state_dim, self.spec.max_state_dim, 1),
        })
    }

    /// Length of the prompt of `task` with `state` in raw units, before any cut.
    pub fn prompt_length(&self, task: &str, state: &[f32]) -> Result<PromptLength, ProcessorError> {
        let prompt = self.prompt(task, &self.normalise_state(state)?)?;
        let tokens = self.tokenizer.encode(&prompt.text())?.len();
        Ok(PromptLength { tokens, limit: self.spec.tokenizer_max_length })
    }

    /// `normalised`: f32 `[.., max_action_dim]` as the network gives it. Returns f32 `[.., action_dim]` in raw units,
    /// on the CPU.
    pub fn unnormalise_actions(&self, normalised: &Tensor) -> candle_core::Result<Tensor> {
        let dims = normalised.dims();
        let real = normalised.narrow(dims.len().saturating_sub(1), 0, self.spec.action_dim)?;
        let shape = real.shape().clone();
        let mut values: Vec<f32> = real.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?;
        self.action.unnormalise(&mut values);
        Tensor::from_vec(values, shape, &Device::Cpu)
    }

    /// `raw`: rows of `action_dim` values in raw units. Returns as many rows of `max_action_dim`, normalised and
    /// zero-padded.
    ///
    /// # Errors
    /// A part of a row; a value that is not finite.
    pub fn normalise_actions(&self, raw: &[f32]) -> Result<Vec<f32>, ProcessorError> {
        let width = self.spec.action_dim;
        let rows = raw.len().div_ceil(width.max(1));
        check_length(ACTION, raw.len(), rows * width)?;
        let mut actions = raw.to_vec();
        self.action.normalise(&mut actions)?;
        Ok(pad_rows(&actions, width, self.spec.max_action_dim, rows))
    }

    fn normalise_state(&self, state: &[f32]) -> Result<Vec<f32>, ProcessorError> {
        check_length(STATE, state.len(), self.spec.state_dim)?;
        let mut state = state.to_vec();
        self.state.normalise(&mut state)?;
        Ok(state)
    }

    fn prompt(&self, task: &str, normalised: &[f32]) -> Result<Prompt, ProcessorError> {
        let prompt = Prompt::new(self.spec.prompt_form(), task, normalised);
        if !prompt.has_task() {
            return Err(ProcessorError::EmptyTask { index: None, known: self.spec.tasks.clone() });
        }
        Ok(prompt)
    }

    /// By slot. Cameras that the policy does not have are left alone: the check has reported them.
    fn images(&self, offered: &[(&str, &RgbFrame)]) -> Result<Vec<Option<Vec<f32>>>, ProcessorError> {
        let frames: Vec<Option<&RgbFrame>> = self
            .spec
            .cameras
            .iter()
            .map(|slot| offered.iter().find(|(name, _)| name == slot).map(|(_, frame)| *frame))
            .collect();
        if frames.iter().any(Option::is_none) {
            let offered: Vec<String> = offered.iter().map(|(name, _)| (*name).to_owned()).collect();
            cameras::match_cameras(&self.spec.cameras, &offered, self.spec.empty_cameras)?;
        }
        self.spec
            .cameras
            .iter()
            .zip(frames)
            .map(|(slot, frame)| {
                let Some(frame) = frame else { return Ok(None) };
                let pixels = self.resizer(frame.height, frame.width).and_then(|r| r.apply_u8(&frame.data));
                pixels.map(Some).map_err(|e| ProcessorError::Image {
                    camera: slot.clone(),
                    problem: e.to_string(),
                    index: None,
                })
            })
            .collect()
    }

    fn resizer(&self, height: usize, width: usize) -> Result<Arc<Resizer>, image::ImageError> {
        // A panic elsewhere cannot leave the table half-written: entries are whole `Arc`s.
        let known =
            self.resizers.read().unwrap_or_else(|poisoned| poisoned.into_inner()).get(&(height, width)).cloned();
        if let Some(resizer) = known {
            return Ok(resizer);
        }
        let resizer = Arc::new(Resizer::new(height, width, self.spec.image)?);
        let mut table = self.resizers.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        if table.len() >= KEPT_RESIZERS {
            table.clear();
        }
        table.insert((height, width), resizer.clone());
        Ok(resizer)
    }
}

fn check_length(feature: &str, found: usize, expected: usize) -> Result<(), ProcessorError> {
    if found == expected {
        return Ok(());
    }
    Err(ProcessorError::Length { feature: feature.to_owned(), found, expected, index: None })
}

/// `rows` rows of `width` values, each zero-padded to `padded`.
fn pad_rows(values: &[f32], width: usize, padded: usize, rows: usize) -> Vec<f32> {
    let mut out = vec![0.0; rows * padded];
    for (from, to) in values.chunks(width.max(1)).zip(out.chunks_mut(padded.max(1))) {
        to[..from.len()].copy_from_slice(from);
    }
    out
}
