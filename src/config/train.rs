//! The training configuration: every key typed, every default filled in.
//!
//! Field paths are the TOML keys (`train.batch_size`). Source of names and defaults: the predecessors'
//! YAML keys (VLASH, VLASH-Forge, LeRobot) and our own additions.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Everything that `vlash train` needs to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainConfig {
    pub model: ModelConfig,
    pub data: DataConfig,
    pub run: RunConfig,
    pub runtime: RuntimeConfig,
    pub train: StepConfig,
    pub loss: LossConfig,
    pub optim: OptimConfig,
    pub schedule: ScheduleConfig,
    pub adapter: AdapterConfig,
    pub normalization: NormalizationConfig,
    pub checkpoint: CheckpointConfig,
    pub validation: ValidationConfig,
    pub log: LogConfig,
    pub hub: HubConfig,
}

/// `model.*`: which network, from which weights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    pub kind: PolicyKind,
    /// Sizes of the network: `full` (Gemma-2B, Gemma-300M, SigLIP So400m) or `tiny` (tests, the embedded default).
    pub preset: Preset,
    /// Checkpoint directory to start from; none means random weights, said loudly.
    pub base: Option<PathBuf>,
    /// Directory with `tokenizer.json`; none: beside `base`, then in its processor's files; the `tiny` preset has one built in.
    pub tokenizer: Option<PathBuf>,
    pub dtype: Dtype,
    pub state_cond: bool,
    pub chunk_size: usize,
    pub n_action_steps: usize,
    pub max_state_dim: usize,
    pub max_action_dim: usize,
    pub num_inference_steps: usize,
    pub time_sampling_beta_alpha: f64,
    pub time_sampling_beta_beta: f64,
    pub time_sampling_scale: f64,
    pub time_sampling_offset: f64,
    pub min_period: f64,
    pub max_period: f64,
    /// Height and width in pixels of what the vision tower sees.
    pub image_resolution: [usize; 2],
    /// How many configured cameras without data are allowed (they are masked).
    pub empty_cameras: usize,
    pub tokenizer_max_length: usize,
    /// Parts that do not train: `vision`, `vlm`.
    pub freeze: Vec<Freeze>,
    /// Names of tensors that may be missing from `base` (`--allow-new`), initialised anew.
    pub allow_new: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyKind {
    Pi05,
    Pi0,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    Full,
    Tiny,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    Float32,
    Bfloat16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Freeze {
    Vision,
    Vlm,
}

/// `data.*`: the dataset and how it is read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DataConfig {
    /// A local path, or `owner/name` below `root`; none: the bundled reaching dataset.
    pub repo: Option<String>,
    /// The dataset's own directory, or the parent of `owner/name`.
    pub root: Option<PathBuf>,
    /// Episode subset, in this order.
    pub episodes: Option<Vec<usize>>,
    pub revision: Option<String>,
    /// Cameras to use, by feature name; none: all that are not depth maps.
    pub cameras: Option<Vec<String>>,
    /// Dataset feature name → policy feature name.
    pub rename: BTreeMap<String, String>,
    /// Number of loader threads.
    pub workers: usize,
    /// For delta offsets only.
    pub tolerance_s: f64,
    pub augment: AugmentConfig,
    /// Decode every frame once into a cache on disk.
    pub frame_cache: bool,
    pub long_prompts: LongPrompts,
    pub decoder: Decoder,
}

/// `data.augment.*`: random image transforms (LeRobot's `image_transforms`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AugmentConfig {
    pub enabled: bool,
    pub max_transforms: usize,
    pub random_order: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LongPrompts {
    /// The check and the training refuse prompts that exceed `tokenizer_max_length`.
    Refuse,
    /// The task text is shortened; `State: …` and `Action:` stay whole.
    CutTask,
}

/// Accepted from old configurations; all map to our decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decoder {
    Native,
}

/// `run.*`: identity and place of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunConfig {
    pub name: String,
    /// The run directory; none: `$SCRATCH/outputs/<name>`, or `outputs/<name>` without `$SCRATCH`.
    pub dir: Option<PathBuf>,
    pub seed: u64,
    pub resume: Resume,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Resume {
    /// Continue when the run directory holds a usable checkpoint, else start.
    Auto,
    /// A usable checkpoint must exist.
    Always,
    /// The run directory must be new or empty.
    Never,
}

/// `runtime.*`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RuntimeConfig {
    pub device: DeviceKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceKind {
    Auto,
    Cpu,
    Cuda,
}

/// `train.*`: the optimisation steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepConfig {
    /// Optimizer steps.
    pub steps: usize,
    /// Samples per micro-step and GPU.
    pub batch_size: usize,
    /// Micro-steps per optimizer step.
    pub grad_accum: usize,
    /// Keep only segment inputs and recompute in the backward pass.
    pub activation_checkpointing: bool,
    pub delay: DelayConfig,
}

/// `train.delay.*`: temporal delay augmentation (VLASH).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DelayConfig {
    /// Largest offset D in frames; 0 switches the augmentation off.
    pub max: usize,
    /// Train all offsets of a frame over one prefix.
    pub shared: bool,
    /// Use the recorded state of the delayed frame instead of the preceding action.
    pub ground_truth: bool,
}

/// `loss.*`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LossConfig {
    pub parity: LossParity,
}

/// Which elements the mean of the squared error runs over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LossParity {
    /// Ours: real action dimensions, non-padded steps; an all-padding sample contributes zero.
    Valid,
    /// All 32 dimensions, padded steps counted.
    Openpi,
    /// Real action dimensions, padded steps counted.
    Lerobot,
    /// All 32 dimensions; padded steps are zero but stay in the denominator.
    Vlash,
}

/// `optim.*`: AdamW with decoupled decay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OptimConfig {
    pub lr: f64,
    pub betas: [f64; 2],
    pub eps: f64,
    pub weight_decay: f64,
    /// Global gradient norm limit; 0 switches clipping off.
    pub grad_clip_norm: f64,
    /// Take optimizer and schedule from the policy's preset (LeRobot's `use_policy_training_preset`).
    pub preset: OptimPreset,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimPreset {
    Policy,
    None,
}

/// `schedule.*`: learning rate as a function of the global step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleConfig {
    pub kind: ScheduleKind,
    pub warmup_steps: usize,
    pub decay_steps: usize,
    pub peak_lr: f64,
    pub decay_lr: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleKind {
    CosineDecayWithWarmup,
    ConstantWithWarmup,
    Constant,
}

/// `adapter.*`: LoRA by PEFT's rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AdapterConfig {
    pub enabled: bool,
    pub rank: usize,
    pub alpha: f64,
    pub dropout: f64,
    pub rslora: bool,
    /// Module names: the last path component, or a path's end.
    pub targets: Vec<String>,
    /// Substrings of parameter names that train in full beside the adapters.
    pub also_train: Vec<String>,
    /// 4-bit base weights; refused until QLoRA is built.
    pub quantize: Option<Quantize>,
    pub compute_dtype: Dtype,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantize {
    Nf4,
    Fp4,
}

/// `normalization.*`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NormalizationConfig {
    pub state: NormMode,
    pub action: NormMode,
    /// Smallest range (q99−q01, max−min, or 2·std) of a dimension that is not constant, in the data's unit;
    /// narrower ones are widened in the saved statistics. 0 switches the floor off.
    pub min_range: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormMode {
    Quantiles,
    Quantile10,
    MeanStd,
    MinMax,
    Identity,
}

/// `checkpoint.*`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointConfig {
    pub enabled: bool,
    /// Optimizer steps between checkpoints.
    pub every: usize,
    /// How many of the newest stay; 0: all.
    pub keep_last: usize,
    /// Checkpoints whose step is a multiple of this always stay; 0: none.
    pub keep_every: usize,
}

/// `validation.*`: a held-out split by episodes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ValidationConfig {
    /// Share of the selected episodes that is held out (at least one when > 0 and two or more are selected).
    pub fraction: f64,
    /// Held-out episodes by number; takes the place of `fraction`.
    pub episodes: Option<Vec<usize>>,
    /// Optimizer steps between validations; 0: only before the first and after the last step.
    pub every: usize,
    /// Batches per validation.
    pub batches: usize,
}

/// `log.*`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LogConfig {
    /// Optimizer steps between log lines.
    pub every: usize,
}

/// `hub.*`: the upload at the end of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HubConfig {
    /// Upload the trained policy; refused until the upload is built.
    pub push: bool,
    /// `owner/name` to upload to.
    pub repo: Option<String>,
}
