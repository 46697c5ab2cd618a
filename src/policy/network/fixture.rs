//! The tiny reference policy and its cases, for the tests of this room.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use candle_core::{DType, Device, Result, Tensor};

use crate::adapter::plan::TrainPlan;
use crate::config::train::PolicyKind;
use crate::policy::Policy;
use crate::policy::arch::{Arch, GemmaArch, VisionArch};
use crate::policy::batch::{Batch, Branches, Draw, Targets};
use crate::policy::verify::Reference;

pub const CAMERAS: [&str; 3] = ["observation.images.top", "observation.images.wrist", "observation.images.side"];

/// Sizes of `tiny_dims.json`.
pub fn tiny() -> Arch {
    let gemma = |width, mlp| GemmaArch {
        width,
        depth: 3,
        mlp,
        heads: 8,
        kv_heads: 1,
        head_dim: 16,
        rms_norm_eps: 1e-6,
        rope_theta: 10000.0,
    };
    Arch {
        kind: PolicyKind::Pi05,
        vision: VisionArch { width: 64, depth: 2, heads: 4, mlp: 108, patch: 14, image: 56, layer_norm_eps: 1e-6 },
        vlm: gemma(64, 128),
        expert: gemma(32, 64),
        vocab_size: 1024,
        chunk_size: 10,
        max_state_dim: 32,
        max_action_dim: 32,
        state_cond: false,
        min_period: 4e-3,
        max_period: 4.0,
    }
}

pub fn load(path: &str) -> Result<HashMap<String, Tensor>> {
    let path = [env!("CARGO_MANIFEST_DIR"), "tests", "fixtures", path].iter().collect::<PathBuf>();
    candle_core::safetensors::load(path, &Device::Cpu)
}

/// The reference's weights under canonical names: it stores the token embedding as its language head.
pub fn weights() -> Result<HashMap<String, Tensor>> {
    let mut weights = load("pi05-tiny/model.safetensors")?;
    let head = weights.remove("paligemma_with_expert.paligemma.lm_head.weight").expect("the fixture has a head");
    weights.insert("paligemma_with_expert.paligemma.model.language_model.embed_tokens.weight".into(), head);
    Ok(weights)
}

pub fn policy(plan: &dyn TrainPlan) -> Result<Policy> {
    Policy::build(&tiny(), &weights()?, plan, &Device::Cpu, DType::F32)
}

/// Some files of a case.
pub fn case(case: &str, files: &[&str]) -> Result<Vec<Reference>> {
    let one = |file: &&str| {
        let tensors = load(&format!("pi05-tiny/{case}/{file}.safetensors"))?.into_iter().collect();
        Ok(Reference { file: file.to_string(), tensors })
    };
    files.iter().map(one).collect()
}

/// What the camera sees in a case: the reference puts present cameras first.
pub fn pixels(files: &[Reference]) -> impl Fn(&str, &Tensor) -> Result<Tensor> + use<> {
    let [inputs, forward, ..] = files else { panic!("inputs and the forward pass are wanted") };
    let present: Vec<&str> = CAMERAS.into_iter().filter(|camera| inputs.tensors.contains_key(*camera)).collect();
    let forward = forward.tensors.clone();
    move |feature, _| {
        let index = present.iter().position(|camera| *camera == feature).expect("the camera is present");
        Ok(forward[&format!("image.{index}.pixels")].clone())
    }
}

/// Inputs of a case as the network takes them, only the present cameras.
pub fn inputs(name: &str) -> Result<(Batch, Targets, Draw)> {
    let files = case(name, &["inputs", "train_forward"])?;
    let case: BTreeMap<String, Tensor> = files.into_iter().flat_map(|file| file.tensors).collect();
    let samples = case["noise"].dim(0)?;
    let lengths = case["observation.language.attention_mask"].to_dtype(DType::U32)?.sum(1)?.to_vec1::<u32>()?;
    let cameras: Vec<usize> = (0..3).filter(|&i| case.contains_key(CAMERAS[i])).collect();
    let batch = Batch {
        // The reference puts present cameras first.
        images: (0..cameras.len()).map(|i| case[&format!("image.{i}.pixels")].clone()).collect(),
        image_masks: vec![vec![true; samples]; cameras.len()],
        tokens: case["observation.language.tokens"].to_dtype(DType::U32)?,
        token_lengths: lengths.into_iter().map(|l| l as usize).collect(),
        state: case["observation.state"].pad_with_zeros(1, 0, 24)?,
    };
    let actions = case["action"].pad_with_zeros(2, 0, 25)?;
    let is_pad = Tensor::zeros((samples, 10), DType::F32, &Device::Cpu)?;
    let draw = Draw { noise: case["noise"].clone(), time: case["time"].clone() };
    Ok((batch, Targets { actions, is_pad, action_dim: 7, branches: Branches::ONE }, draw))
}

/// Largest absolute difference.
pub fn difference(a: &Tensor, b: &Tensor) -> Result<f32> {
    (a - b)?.abs()?.flatten_all()?.max(0)?.to_scalar()
}
