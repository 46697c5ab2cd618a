//! The reference's policies, their inputs and what must agree with them: functions over a device, run on the CPU by
//! `main.rs` and on a GPU by `tests/gpu`.

#![allow(dead_code, reason = "each test binary uses a part")]

pub mod adapters;
pub mod end_to_end;
pub mod network;
pub mod record;
pub mod shared_observation;
pub mod state_condition;
pub mod training;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use candle_core::{DType, Device, Result, Tensor};
use vlash_forge::adapter::plan::TrainPlan;
use vlash_forge::policy::Policy;
use vlash_forge::policy::arch::Arch;
use vlash_forge::policy::batch::{Batch, Branches, Targets};
use vlash_forge::policy::parameters::parameters;
use vlash_forge::policy::processor::image::{ImageSpec, Pad, Resize, Resizer};

/// Configured cameras in order; the reference's inputs leave some out.
pub const CAMERAS: [&str; 3] = ["observation.images.top", "observation.images.wrist", "observation.images.side"];

const HEAD: &str = "paligemma_with_expert.paligemma.lm_head.weight";
const EMBEDDING: &str = "paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight";

static FIXTURES: OnceLock<PathBuf> = OnceLock::new();

/// Tells where the fixtures of this process lie: in the repository, or where an executable has unpacked its own.
pub fn take_fixtures_from(root: &Path) {
    FIXTURES.get_or_init(|| root.to_path_buf());
}

pub fn fixture(path: &str) -> PathBuf {
    let Some(root) = FIXTURES.get() else { panic!("take_fixtures_from comes first") };
    root.join(path)
}

pub fn load(path: &str) -> Result<BTreeMap<String, Tensor>> {
    Ok(candle_core::safetensors::load(fixture(path), &Device::Cpu)?.into_iter().collect())
}

/// The sizes of the reference.
pub fn arch() -> Arch {
    Arch::tiny(32)
}

/// The reference's weights under canonical names: it stores the token embedding as its language head.
pub fn weights() -> Result<HashMap<String, Tensor>> {
    let stored = load("pi05-tiny/model.safetensors")?;
    Ok(stored.into_iter().map(|(name, tensor)| (if name == HEAD { EMBEDDING.into() } else { name }, tensor)).collect())
}

/// The reference's policy in f32.
pub fn policy(plan: &dyn TrainPlan, device: &Device) -> Result<Policy> {
    Policy::build(&arch(), &weights()?, plan, device, DType::F32)
}

/// The network's linears and its parameters, by canonical name.
pub fn names() -> (Vec<String>, Vec<String>) {
    let parameters = parameters(&arch());
    let is_table = |name: &str| name.contains("embed_tokens") || name.contains("position_embedding");
    let linears = parameters.iter().filter(|p| p.shape.len() == 2 && !is_table(&p.name));
    let linears = linears.filter_map(|p| p.name.strip_suffix(".weight")).map(str::to_owned).collect();
    (linears, parameters.into_iter().map(|p| p.name).collect())
}

/// What the vision tower sees of raw images `[B, 3, H, W]` in [0, 1].
pub fn pixels(raw: &Tensor) -> Result<Tensor> {
    let (samples, _, height, width) = raw.dims4()?;
    let side = arch().vision.image;
    let spec = ImageSpec { height: side, width: side, resize: Resize::Bilinear, pad: Pad::Center };
    let resizer = Resizer::new(height, width, spec).map_err(candle_core::Error::wrap)?;
    let mut seen = Vec::new();
    for sample in 0..samples {
        let values = raw.get(sample)?.flatten_all()?.to_vec1::<f32>()?;
        seen.extend(resizer.apply_f32(&values).map_err(candle_core::Error::wrap)?);
    }
    Tensor::from_vec(seen, (samples, 3, side, side), &Device::Cpu)
}

/// A batch of the reference's raw inputs, whose names begin with `prefix`; on the CPU.
pub fn batch(inputs: &BTreeMap<String, Tensor>, prefix: &str) -> Result<(Batch, Targets)> {
    let input = |name: &str| &inputs[&format!("{prefix}{name}")];
    let arch = arch();
    let actions = input("action");
    let (samples, chunk, action_dim) = actions.dims3()?;
    let present = CAMERAS.iter().filter_map(|camera| inputs.get(&format!("{prefix}{camera}")));
    let images = present.map(pixels).collect::<Result<Vec<_>>>()?;
    let state = input("observation.state");
    let batch = Batch {
        image_masks: vec![vec![true; samples]; images.len()],
        images,
        tokens: input("observation.language.tokens").to_dtype(DType::U32)?,
        token_lengths: lengths(input("observation.language.attention_mask"))?,
        state: state.pad_with_zeros(1, 0, arch.max_state_dim - state.dim(1)?)?,
    };
    let targets = Targets {
        actions: actions.pad_with_zeros(2, 0, arch.max_action_dim - action_dim)?,
        is_pad: Tensor::zeros((samples, chunk), DType::F32, &Device::Cpu)?,
        action_dim,
        branches: Branches::ONE,
    };
    Ok((batch, targets))
}

/// Real tokens a row of a mask `[B, L]`.
pub fn lengths(mask: &Tensor) -> Result<Vec<usize>> {
    let counts = mask.to_dtype(DType::U32)?.sum(1)?.to_vec1::<u32>()?;
    Ok(counts.into_iter().map(|length| length as usize).collect())
}

/// All elements, on the host.
pub fn values(tensor: &Tensor) -> Result<Vec<f64>> {
    tensor.to_device(&Device::Cpu)?.to_dtype(DType::F64)?.flatten_all()?.to_vec1()
}

/// Largest absolute difference; infinite where a value is not a number.
pub fn difference(found: &Tensor, expected: &Tensor) -> Result<f64> {
    assert_eq!(found.dims(), expected.dims());
    let pairs = values(found)?.into_iter().zip(values(expected)?);
    let worse = |worst: f64, d: f64| if d.is_nan() { f64::INFINITY } else { worst.max(d) };
    Ok(pairs.map(|(f, e)| (f - e).abs()).fold(0.0, worse))
}
