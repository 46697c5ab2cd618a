//! From what LeRobot's processor made of dataset items to actions in real units.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Error, Result, Tensor};
use vlash_forge::adapter::plan::Frozen;
use vlash_forge::config::train::{LongPrompts, LossParity, NormMode, PolicyKind};
use vlash_forge::dataset::stats::{FeatureStats, Statistics};
use vlash_forge::policy::batch::{Batch, Branches, Draw, Targets};
use vlash_forge::policy::processor::image::{ImageSpec, Pad, Resize};
use vlash_forge::policy::processor::{ACTION, Processor, ProcessorSpec, STATE, Tokenizer};

use super::record::Record;
use super::{CAMERAS, arch, difference, lengths, load, policy, values};

const NORMALIZER: &str = "preprocessing/processors-pi05/policy_preprocessor_step_3_normalizer_processor.safetensors";

/// The statistics that the reference normalised with.
fn statistics() -> Result<Statistics> {
    let stored = load(NORMALIZER)?;
    let feature = |name: &str| -> Result<(String, FeatureStats)> {
        let read = |stat: &str| values(&stored[&format!("{name}.{stat}")]);
        let statistics =
            FeatureStats { count: 143, q01: Some(read("q01")?), q99: Some(read("q99")?), ..Default::default() };
        Ok((name.to_owned(), statistics))
    };
    [STATE, ACTION].into_iter().map(feature).collect()
}

fn processor() -> Result<Processor> {
    let arch = arch();
    let spec = ProcessorSpec {
        kind: PolicyKind::Pi05,
        cameras: CAMERAS.map(str::to_owned).to_vec(),
        empty_cameras: 1,
        rename: BTreeMap::new(),
        image: ImageSpec { height: 56, width: 56, resize: Resize::Bilinear, pad: Pad::Center },
        state_mode: NormMode::Quantiles,
        action_mode: NormMode::Quantiles,
        state_dim: 8,
        action_dim: 7,
        max_state_dim: arch.max_state_dim,
        max_action_dim: arch.max_action_dim,
        chunk_size: arch.chunk_size,
        state_cond: false,
        tokenizer_max_length: 200,
        long_prompts: LongPrompts::Refuse,
        vocab_size: arch.vocab_size,
        tasks: Vec::new(),
    };
    let tokenizer = Tokenizer::builtin().map_err(Error::wrap)?;
    Processor::new(spec, &statistics()?, tokenizer).map_err(Error::wrap)
}

/// The loss of three items with the third camera absent, their predicted chunk, and the chunk in real units.
pub fn agrees(device: &Device, record: &mut Record) -> Result<()> {
    let golden = load("preprocessing/end_to_end_pi05.safetensors")?;
    let mask = |i: usize| -> Result<Vec<bool>> {
        Ok(values(&golden[&format!("image.{i}.mask")])?.into_iter().map(|m| m != 0.0).collect())
    };
    let batch = Batch {
        images: (0..3).map(|i| golden[&format!("image.{i}.pixels")].clone()).collect(),
        image_masks: (0..3).map(mask).collect::<Result<_>>()?,
        tokens: golden["pre.tokens"].to_dtype(DType::U32)?,
        token_lengths: lengths(&golden["pre.token_mask"])?,
        state: golden["pre.state"].pad_with_zeros(1, 0, 24)?,
    };
    let targets = Targets {
        actions: golden["pre.action"].pad_with_zeros(2, 0, 25)?,
        is_pad: Tensor::zeros((3, 10), DType::F32, &Device::Cpu)?,
        action_dim: 7,
        branches: Branches::ONE,
    };
    let draw = Draw { noise: golden["noise"].clone(), time: golden["time"].clone() };
    let (batch, targets, draw) = (batch.to_device(device)?, targets.to_device(device)?, draw.to_device(device)?);
    let policy = policy(&Frozen, device)?;

    let velocity = &policy.trace_training(&batch, &targets, &draw)?["v_t"];
    record.hold("v_t", "", difference(velocity, &golden["v_t"])?, 5e-5);
    let loss = policy.losses(&batch, &targets, &draw, LossParity::Lerobot)?.loss;
    record.hold("loss", "", (loss - values(&golden["loss"])?[0]).abs(), 5e-6);
    let chunk = policy.sample(&batch, &draw.noise, 10)?;
    let normalised = chunk.narrow(2, 0, 7)?;
    record.hold("actions", "", difference(&normalised, &golden["actions_normalized"])?, 5e-5);
    // Normalised differences times half the range of a joint, of which the values themselves give the size.
    let (real, wanted) = (processor()?.unnormalise_actions(&chunk)?, &golden["actions"]);
    let size = values(wanted)?.into_iter().fold(1.0, |size: f64, value| size.max(value.abs()));
    record.hold("actions in real units", "", difference(&real, wanted)?, 5e-5 * size);
    Ok(())
}
