//! The training configuration: every key typed, every default filled in.
//!
//! Field paths are the TOML keys (`train.batch_size`). Source of names and defaults: the predecessors'
//! YAML keys (VLASH, VLASH-Forge, LeRobot) and our own additions.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Everything that `vlash train` needs to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrainConfig {
    /// Which network, from which weights.
    pub model: ModelConfig,
    /// The dataset and how it is read.
    pub data: DataConfig,
    /// Identity and place of the run.
    pub run: RunConfig,
    /// What computes.
    pub runtime: RuntimeConfig,
    /// The optimisation steps.
    pub train: StepConfig,
    /// What the loss is the mean of.
    pub loss: LossConfig,
    /// AdamW and clipping.
    pub optim: OptimConfig,
    /// The learning rate over the steps.
    pub schedule: ScheduleConfig,
    /// Low-rank adapters.
    pub adapter: AdapterConfig,
    /// How states and actions are scaled.
    pub normalization: NormalizationConfig,
    /// When checkpoints are written and which stay.
    pub checkpoint: CheckpointConfig,
    /// What is held out, and when it is measured.
    pub validation: ValidationConfig,
    /// How often a step is reported.
    pub log: LogConfig,
    /// The upload at the end.
    pub hub: HubConfig,
}

/// `model.*`: which network, from which weights.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// The policy.
    pub kind: PolicyKind,
    /// Sizes of the network: `full` (Gemma-2B, Gemma-300M, SigLIP So400m), `small` (the policy in the box) or `tiny`
    /// (tests, the embedded default).
    pub preset: Preset,
    /// Checkpoint directory to start from; none means random weights, said loudly.
    pub base: Option<PathBuf>,
    /// Directory with `tokenizer.json`; none: beside `base`, then in its processor's files; `small` and `tiny` have one built in.
    pub tokenizer: Option<PathBuf>,
    /// Type of the frozen weights; what trains is always f32, and so is everything on a CPU.
    pub dtype: Dtype,
    /// Condition the action expert on the state (VLASH) instead of writing the state into the prompt.
    pub state_cond: bool,
    /// Actions that are predicted at once, H.
    pub chunk_size: usize,
    /// Actions of a chunk that are executed; recorded for inference.
    pub n_action_steps: usize,
    /// Width to which states are padded.
    pub max_state_dim: usize,
    /// Width to which actions are padded, A.
    pub max_action_dim: usize,
    /// Euler steps of the sampler; recorded for inference.
    pub num_inference_steps: usize,
    /// α of the Beta distribution of flow times: `t = Beta(α, β) · scale + offset`.
    pub time_sampling_beta_alpha: f64,
    /// β of the Beta distribution of flow times.
    pub time_sampling_beta_beta: f64,
    /// Factor on the drawn flow time.
    pub time_sampling_scale: f64,
    /// Added to the scaled flow time.
    pub time_sampling_offset: f64,
    /// Shortest period of the time embedding, in units of flow time.
    pub min_period: f64,
    /// Longest period of the time embedding, in units of flow time.
    pub max_period: f64,
    /// Height and width in pixels of what the vision tower sees.
    pub image_resolution: [usize; 2],
    /// How many configured cameras without data are allowed (they are masked).
    pub empty_cameras: usize,
    /// Prompt length in tokens; shorter prompts are padded.
    pub tokenizer_max_length: usize,
    /// Parts that do not train: `vision`, `vlm`.
    pub freeze: Vec<Freeze>,
    /// Names of tensors that may be missing from `base` (`--allow-new`), initialised anew.
    pub allow_new: Vec<String>,
}

/// The policies of the family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicyKind {
    /// π₀.₅.
    Pi05,
    /// π₀; refused until it is built.
    Pi0,
}

/// Sizes of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// Gemma-2B, Gemma-300M, SigLIP So400m: 3.35 billion parameters.
    Full,
    /// The same architecture at 3.2 million parameters, for images of 112 × 112 pixels: learns the simulated task.
    Small,
    /// The same architecture at about 0.65 million parameters with adapters.
    Tiny,
}

impl Preset {
    /// All of them, the largest first.
    pub const ALL: [Preset; 3] = [Preset::Full, Preset::Small, Preset::Tiny];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Full => "full",
            Preset::Small => "small",
            Preset::Tiny => "tiny",
        }
    }
}

/// A floating-point type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dtype {
    /// f32.
    Float32,
    /// bf16.
    Bfloat16,
}

/// A part of the network that does not train.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Freeze {
    /// The vision tower.
    Vision,
    /// Vision tower, projector and language model: only the action expert trains.
    Vlm,
}

/// `data.*`: the dataset and how it is read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DataConfig {
    /// A local path, or `owner/name` below `root`; `bundled/NAME`; none: the bundled demonstrations of the simulated arm.
    pub repo: Option<String>,
    /// The dataset's own directory, or the parent of `owner/name`.
    pub root: Option<PathBuf>,
    /// Episode subset, in this order.
    pub episodes: Option<Vec<usize>>,
    /// Cameras to use, by feature name; none: all that are not depth maps.
    pub cameras: Option<Vec<String>>,
    /// Dataset feature name → policy feature name.
    pub rename: BTreeMap<String, String>,
    /// Number of loader threads.
    pub workers: usize,
    /// Random image transforms.
    pub augment: AugmentConfig,
    /// Decode every frame once into a cache on disk.
    pub frame_cache: bool,
    /// What happens to prompts beyond `model.tokenizer_max_length`.
    pub long_prompts: LongPrompts,
    /// Which video decoder; there is one.
    pub decoder: Decoder,
}

/// `data.augment.*`: random image transforms (LeRobot's `image_transforms`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AugmentConfig {
    /// Whether images are transformed at all.
    pub enabled: bool,
    /// Transforms that are applied to an image at most.
    pub max_transforms: usize,
    /// Apply them in random order.
    pub random_order: bool,
}

/// What happens to prompts that do not fit.
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
    /// The built-in one.
    Native,
}

/// `run.*`: identity and place of the run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunConfig {
    /// Name of the run.
    pub name: String,
    /// The run directory; none: `$SCRATCH/outputs/<name>`, or `outputs/<name>` without `$SCRATCH`.
    pub dir: Option<PathBuf>,
    /// Seed of every random number of the run ([`crate::random`]).
    pub seed: u64,
    /// What to do with a run directory that is not empty.
    pub resume: Resume,
}

/// Whether a run begins or continues.
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
    /// The device that computes.
    pub device: DeviceKind,
}

/// A device, written `auto`, `cpu`, `cuda` or `cuda:1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DeviceKind {
    /// A GPU where there is one and the build can use it, else the CPU.
    Auto,
    /// The CPU.
    Cpu,
    /// The GPU of this index among those that the process sees, or an error.
    Cuda(usize),
}

/// Not the name of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not auto, cpu, cuda, or one of several GPUs such as cuda:1")]
pub struct NotADevice;

impl FromStr for DeviceKind {
    type Err = NotADevice;

    fn from_str(text: &str) -> Result<Self, NotADevice> {
        match text {
            "auto" => Ok(DeviceKind::Auto),
            "cpu" => Ok(DeviceKind::Cpu),
            "cuda" => Ok(DeviceKind::Cuda(0)),
            _ => match text.strip_prefix("cuda:") {
                // No sign, no blanks: what `parse` takes beyond digits is no index.
                Some(index) if index.bytes().all(|byte| byte.is_ascii_digit()) => {
                    index.parse().map(DeviceKind::Cuda).map_err(|_| NotADevice)
                }
                _ => Err(NotADevice),
            },
        }
    }
}

impl TryFrom<String> for DeviceKind {
    type Error = NotADevice;

    fn try_from(text: String) -> Result<Self, NotADevice> {
        text.parse()
    }
}

impl From<DeviceKind> for String {
    fn from(kind: DeviceKind) -> String {
        match kind {
            DeviceKind::Auto => "auto".into(),
            DeviceKind::Cpu => "cpu".into(),
            DeviceKind::Cuda(0) => "cuda".into(),
            DeviceKind::Cuda(index) => format!("cuda:{index}"),
        }
    }
}

/// `train.*`: the optimisation steps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepConfig {
    /// Optimizer steps.
    pub steps: usize,
    /// Samples per micro-step and GPU: frames, whatever the number of delays that are trained of each.
    pub batch_size: usize,
    /// Micro-steps per optimizer step.
    pub grad_accum: usize,
    /// Keep only segment inputs and recompute in the backward pass.
    pub activation_checkpointing: bool,
    /// Most leading actions of a chunk that are given rather than predicted (training-time RTC, arXiv 2512.05964); 0
    /// switches it off.
    pub rtc_max_delay: usize,
    /// Temporal delay augmentation.
    pub delay: DelayConfig,
}

/// `train.delay.*`: temporal delay augmentation (VLASH).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DelayConfig {
    /// Largest offset D in frames; 0 switches the augmentation off.
    pub max: usize,
    /// Train all offsets 0 … `max` of a frame over one prefix (VLASH's shared observation), instead of a drawn one.
    pub shared: bool,
    /// Use the recorded state of the delayed frame instead of the preceding action.
    pub ground_truth: bool,
}

/// `loss.*`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LossConfig {
    /// Whose definition of the mean is differentiated.
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
    /// Peak learning rate.
    pub lr: f64,
    /// Adam's β₁ and β₂.
    pub betas: [f64; 2],
    /// Adam's ε, outside of the square root.
    pub eps: f64,
    /// Decoupled weight decay: every step multiplies by `1 − lr · weight_decay`.
    pub weight_decay: f64,
    /// Global gradient norm limit; 0 switches clipping off.
    pub grad_clip_norm: f64,
    /// Take optimizer and schedule from the policy's preset (LeRobot's `use_policy_training_preset`).
    pub preset: OptimPreset,
}

/// Where unset `optim.*` and `schedule.*` come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OptimPreset {
    /// The policy's recipe.
    Policy,
    /// AdamW at 1e-3 and a constant rate, as LeRobot without the preset.
    None,
}

/// `schedule.*`: learning rate as a function of the global step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScheduleConfig {
    /// Its form.
    pub kind: ScheduleKind,
    /// Steps over which the rate rises.
    pub warmup_steps: usize,
    /// Step at which the cosine ends, counted from 0 with the warm-up.
    pub decay_steps: usize,
    /// Rate after the warm-up.
    pub peak_lr: f64,
    /// Rate at the end of the cosine.
    pub decay_lr: f64,
}

/// How the learning rate goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScheduleKind {
    /// Up in a line, down along a half cosine.
    CosineDecayWithWarmup,
    /// Up in a line, then constant.
    ConstantWithWarmup,
    /// Constant.
    Constant,
}

/// `adapter.*`: LoRA by PEFT's rules.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AdapterConfig {
    /// Train adapters instead of the weights.
    pub enabled: bool,
    /// Rank r of the two factors.
    pub rank: usize,
    /// Adapters are scaled by α/r.
    pub alpha: f64,
    /// Dropout probability on the input of the adapters while training.
    pub dropout: f64,
    /// Scale by α/√r instead (rsLoRA).
    pub rslora: bool,
    /// Module names: the last path component, or a path's end.
    pub targets: Vec<String>,
    /// Substrings of parameter names that train in full beside the adapters.
    pub also_train: Vec<String>,
    /// 4-bit base weights; refused until QLoRA is built.
    pub quantize: Option<Quantize>,
}

/// A 4-bit format of frozen weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantize {
    /// NormalFloat of QLoRA.
    Nf4,
    /// 4-bit floating point.
    Fp4,
}

/// `normalization.*`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NormalizationConfig {
    /// Of states.
    pub state: NormMode,
    /// Of actions.
    pub action: NormMode,
    /// Smallest range (q99−q01, max−min, or 2·std) of a dimension that is not constant, in the data's unit;
    /// narrower ones are widened in the saved statistics. 0 switches the floor off.
    pub min_range: f64,
}

/// How a vector is scaled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormMode {
    /// q01…q99 to −1…1.
    Quantiles,
    /// q10…q90 to −1…1.
    Quantile10,
    /// Mean 0, standard deviation 1.
    MeanStd,
    /// Minimum…maximum to −1…1.
    MinMax,
    /// As it is.
    Identity,
}

/// `checkpoint.*`
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointConfig {
    /// Write checkpoints at all.
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
