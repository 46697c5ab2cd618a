//! A checkpoint against reference files of another implementation: [`crate::policy::verify`] on what lies in a
//! directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use candle_core::{DType, Device, Tensor};

use super::account::Nothing;
use super::info::kind_name;
use super::{Checkpoint, CheckpointError};
use crate::adapter::plan::{LoraSpec, TrainPlan};
use crate::config::train::PolicyKind;
use crate::dataset::finding::Severity;
use crate::error::{Explain, Kind};
use crate::policy::Policy;
use crate::policy::processor::ImageSpec;
use crate::policy::processor::image::Resizer;
use crate::policy::verify::{Reference, Report, verify};

/// What keeps a comparison from being made. A difference is none of these: it is a row of the report.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error("{} is a {} policy: it comes with a later version", directory.display(), kind_name(*kind))]
    Kind { directory: PathBuf, kind: PolicyKind },
    #[error("{}: {problem}", directory.display())]
    Contradiction { directory: PathBuf, problem: String },
    #[error("cannot read the reference {}", path.display())]
    Reference { path: PathBuf, source: candle_core::Error },
    #[error("no reference file was given")]
    NoReference,
    #[error("cannot build the network of {}", directory.display())]
    Network { directory: PathBuf, source: candle_core::Error },
    #[error("cannot compute what the reference holds")]
    Compute { source: candle_core::Error },
}

impl Explain for VerifyError {
    fn kind(&self) -> Kind {
        match self {
            VerifyError::Checkpoint(error) => error.kind(),
            _ => Kind::Input,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            VerifyError::Checkpoint(CheckpointError::Arch { .. }) => Some(
                "sizes other than the published ones stand in config.json under tiny_dims (vision, vlm, expert, vocab_size)"
                    .into(),
            ),
            VerifyError::Checkpoint(error) => error.hint(),
            VerifyError::Reference { .. } => {
                Some("give safetensors files of one case: inputs, train_forward, gradients, inference".into())
            }
            _ => None,
        }
    }
}

/// Computes, in f32 on `device`, everything that the reference files of one case hold, from the checkpoint in
/// `directory`, and compares. Names are those of the fixtures; `input.`, `train.`, `inference.` and `infer.` before
/// them are understood.
pub fn verify_checkpoint(directory: &Path, files: &[PathBuf], device: &Device) -> Result<Report, VerifyError> {
    let checkpoint = Checkpoint::open(directory)?;
    let directory = checkpoint.directory.clone();
    if checkpoint.config.kind != PolicyKind::Pi05 {
        return Err(VerifyError::Kind { directory, kind: checkpoint.config.kind });
    }
    if let Some(finding) = checkpoint.findings.iter().find(|finding| finding.severity == Severity::Error) {
        return Err(VerifyError::Contradiction { directory, problem: finding.message.clone() });
    }
    if files.is_empty() {
        return Err(VerifyError::NoReference);
    }
    let steps = checkpoint.config.num_inference_steps;
    let references: Vec<Reference> = files.iter().map(|path| read(path, steps)).collect::<Result<_, _>>()?;
    let weights = checkpoint.weights(&checkpoint.arch, &[], Box::new(Nothing))?;
    let plan = WithGradient::of(&references);
    let policy = Policy::build(&checkpoint.arch, &weights, &plan, device, DType::F32)
        .map_err(|source| VerifyError::Network { directory, source })?;
    let side = checkpoint.arch.vision.image;
    let forge = &checkpoint.config.vlash_forge;
    let spec = ImageSpec { height: side, width: side, resize: forge.resize, pad: forge.pad };
    verify(&policy, &references, &checkpoint.config.cameras(), |_, raw| resized(raw, spec))
        .map_err(|source| VerifyError::Compute { source })
}

/// `steps`: those of a chunk that does not say how many it took.
fn read(path: &Path, steps: usize) -> Result<Reference, VerifyError> {
    let tensors = candle_core::safetensors::load(path, &Device::Cpu)
        .map_err(|source| VerifyError::Reference { path: path.to_owned(), source })?;
    let tensors: BTreeMap<String, Tensor> = tensors.into_iter().map(|(key, t)| (plain(key, steps), t)).collect();
    Ok(Reference { file: path.display().to_string(), tensors })
}

/// A name as in the files of a case: the collected references put the file's name before it.
fn plain(key: String, steps: usize) -> String {
    if key == "infer.actions_padded" {
        return format!("actions_padded.num_steps_{steps}");
    }
    let parts = ["input.", "train.", "inference.", "infer."];
    parts.iter().find_map(|part| key.strip_prefix(part)).map(str::to_owned).unwrap_or(key)
}

/// Raw images f32 `[B, 3, H, W]` in [0, 1] to what the vision tower sees.
fn resized(raw: &Tensor, spec: ImageSpec) -> candle_core::Result<Tensor> {
    let (samples, channels, height, width) = raw.dims4()?;
    if channels != 3 {
        candle_core::bail!("images of {channels} channels, 3 are wanted")
    }
    let resizer = Resizer::new(height, width, spec).map_err(candle_core::Error::wrap)?;
    let mut pixels = Vec::new();
    for sample in 0..samples {
        let values: Vec<f32> = raw.get(sample)?.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?;
        pixels.extend(resizer.apply_f32(&values).map_err(candle_core::Error::wrap)?);
    }
    Tensor::from_vec(pixels, (samples, 3, spec.height, spec.width), &Device::Cpu)
}

/// Trains the parameters whose gradients the reference holds, and spares the others theirs.
struct WithGradient(BTreeSet<String>);

impl WithGradient {
    fn of(references: &[Reference]) -> WithGradient {
        let names = references.iter().flat_map(|reference| reference.tensors.keys());
        WithGradient(names.filter_map(|name| name.strip_prefix("model.")).map(str::to_owned).collect())
    }
}

impl TrainPlan for WithGradient {
    fn lora(&self, _module: &str) -> Option<LoraSpec> {
        None
    }

    fn trains(&self, parameter: &str) -> bool {
        self.0.contains(parameter)
    }

    fn seed(&self) -> u64 {
        0
    }
}
