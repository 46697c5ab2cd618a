//! What is planned.

use std::path::Path;

use crate::adapter::error::AdapterError;
use crate::adapter::select::{Plan, plan_for};
use crate::config::train::{Dtype, TrainConfig};
use crate::error::{Explain, Kind};
use crate::policy::arch::{Arch, ArchError};
use crate::policy::checkpoint::{CheckpointError, PolicyConfig};
use crate::policy::parameters::{linears, parameters};

/// Cameras that are assumed where neither a dataset nor a base says how many there are: π₀.₅'s own.
const USUAL_CAMERAS: usize = 3;

/// Multiplications of one product beyond which a step is refused unseen: a hundred times those of a batch of 1024 at
/// full size.
const LARGEST_PRODUCT: f64 = (1u64 << 52) as f64;

/// What computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// In f32, whatever the configuration says.
    Cpu,
    /// In `model.dtype`.
    Gpu,
}

/// A run as far as its memory and time depend on it.
#[derive(Debug, Clone)]
pub struct Subject {
    pub config: TrainConfig,
    pub arch: Arch,
    /// Names of the cameras that a sample has.
    pub cameras: Vec<String>,
    /// Nobody has named these cameras: only their number was assumed.
    pub cameras_assumed: bool,
    /// What had to be assumed, in sentences.
    pub notes: Vec<String>,
}

impl Subject {
    /// The run of `config` on data with `cameras`, by the names that the policy knows; none: they are not known.
    ///
    /// Of `model.base` only `config.json` is read; a base that is not there leaves the sizes to `model.preset`.
    ///
    /// # Errors
    /// Sizes that make no network, or a `config.json` that cannot be read.
    pub fn new(config: &TrainConfig, cameras: Option<Vec<String>>) -> Result<Subject, PlanError> {
        let mut notes = Vec::new();
        let base = config.model.base.as_deref().map(|base| read_base(base, &mut notes)).transpose()?.flatten();
        let arch = Arch::for_training(&config.model, base.as_ref().map(|(_, sizes)| sizes))?;
        let slots = base.map(|(base, _)| base.cameras()).unwrap_or_default();
        let named = |name: &String| config.data.rename.get(name).unwrap_or(name).clone();
        let chosen = || config.data.cameras.as_ref().map(|chosen| chosen.iter().map(named).collect::<Vec<_>>());
        let offered = cameras.or_else(chosen);
        let cameras_assumed = offered.is_none() && slots.is_empty();
        let cameras = match (offered, slots.is_empty()) {
            (Some(offered), true) => offered,
            (Some(offered), false) => offered.into_iter().filter(|name| slots.contains(name)).collect(),
            (None, false) => slots,
            (None, true) => {
                notes.push(format!("the dataset is not here: {USUAL_CAMERAS} cameras are assumed (data.cameras)"));
                (1..=USUAL_CAMERAS).map(|number| format!("camera {number}")).collect()
            }
        };
        Ok(Subject { config: config.clone(), arch, cameras, cameras_assumed, notes })
    }

    /// What trains.
    pub fn plan(&self) -> Result<Plan, PlanError> {
        let names: Vec<String> = parameters(&self.arch).into_iter().map(|parameter| parameter.name).collect();
        let config = &self.config;
        Ok(plan_for(&config.adapter, &config.model.freeze, config.run.seed, &linears(&self.arch), &names)?)
    }

    /// Suffixes over one observation.
    pub fn branches(&self) -> usize {
        let delay = &self.config.train.delay;
        if delay.shared { delay.max.saturating_add(1) } else { 1 }
    }

    /// Samples of an optimizer step.
    pub fn samples(&self) -> usize {
        self.config.train.batch_size.saturating_mul(self.config.train.grad_accum)
    }

    /// Refuses a step that no machine computes. Below that, sums of bytes and operations fit into 64 bits.
    pub(super) fn check_size(&self) -> Result<(), PlanError> {
        let (config, Arch { vision, vlm, expert, .. }) = (&self.config, &self.arch);
        let prefix = self.cameras.len() as f64 * vision.tokens() as f64 + config.model.tokenizer_max_length as f64;
        let tokens = prefix + self.arch.chunk_size as f64 + 1.0;
        let rows = config.train.batch_size as f64 * self.branches() as f64;
        let widest = [vision.mlp, vlm.mlp, expert.mlp, config.adapter.rank].into_iter().max().unwrap_or(1) as f64;
        let scores = tokens * (vlm.heads * vlm.head_dim) as f64;
        let linears = widest * vision.width.max(vlm.width) as f64;
        if rows * tokens * scores.max(linears) <= LARGEST_PRODUCT {
            return Ok(());
        }
        Err(PlanError::TooLarge { batch: config.train.batch_size, branches: self.branches(), tokens: tokens as u64 })
    }

    /// Bytes of a number in the dtype that `target` computes in.
    pub(super) fn each(&self, target: Target) -> u64 {
        match (target, self.config.model.dtype) {
            (Target::Gpu, Dtype::Bfloat16) => 2,
            _ => 4,
        }
    }
}

/// The base's configuration and sizes, from its directory or that of the training checkpoint around it.
fn read_base(base: &Path, notes: &mut Vec<String>) -> Result<Option<(PolicyConfig, Arch)>, PlanError> {
    let places = [base.join("config.json"), base.join("pretrained_model/config.json")];
    let Some(path) = places.into_iter().find(|place| place.is_file()) else {
        if base.exists() {
            return Err(CheckpointError::NotACheckpoint { directory: base.into(), missing: "config.json" }.into());
        }
        notes.push(format!("model.base {} is not here: the sizes are those of model.preset", base.display()));
        return Ok(None);
    };
    let text = std::fs::read(&path).map_err(|source| CheckpointError::Read { path: path.clone(), source })?;
    let config = PolicyConfig::parse(&path, &text)?.0;
    let sizes = config.arch().map_err(|source| CheckpointError::Arch { path, source })?;
    Ok(Some((config, sizes)))
}

/// Why nothing can be planned.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error(transparent)]
    Arch(#[from] ArchError),
    #[error(transparent)]
    Adapter(#[from] AdapterError),
    #[error(transparent)]
    Checkpoint(Box<CheckpointError>),
    #[error("no machine computes a step of {batch} samples × {branches} suffixes of {tokens} tokens")]
    TooLarge { batch: usize, branches: usize, tokens: u64 },
    #[error("--gpu {asked:?} names no card of the table{}", suggestion(.near))]
    UnknownCard { asked: String, near: Vec<&'static str>, known: String },
}

impl From<CheckpointError> for PlanError {
    fn from(error: CheckpointError) -> Self {
        PlanError::Checkpoint(Box::new(error))
    }
}

fn suggestion(near: &[&str]) -> String {
    let names: Vec<String> = near.iter().map(|name| format!("{name:?}")).collect();
    if names.is_empty() { String::new() } else { format!("; did you mean {}?", names.join(" or ")) }
}

impl Explain for PlanError {
    fn kind(&self) -> Kind {
        match self {
            PlanError::Arch(error) => error.kind(),
            PlanError::Adapter(error) => error.kind(),
            PlanError::Checkpoint(error) => error.kind(),
            PlanError::TooLarge { .. } | PlanError::UnknownCard { .. } => Kind::Input,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            PlanError::Arch(error) => error.hint(),
            PlanError::Adapter(error) => error.hint(),
            PlanError::Checkpoint(error) => error.hint(),
            PlanError::TooLarge { .. } => Some("train.batch_size=1, with train.grad_accum for the rest".into()),
            PlanError::UnknownCard { known, .. } => Some(format!("one of {known}")),
        }
    }
}
