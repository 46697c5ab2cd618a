//! π₀.₅ conditioned on the state, against VLASH.

use std::collections::HashMap;

use candle_core::{DType, Device, Result, Tensor};
use vlash_forge::adapter::plan::{Everything, FirstGradient, Frozen};
use vlash_forge::config::train::LossParity;
use vlash_forge::policy::arch::Arch;
use vlash_forge::policy::batch::{Batch, Branches, Draw, Targets};
use vlash_forge::policy::weights::WeightSource;
use vlash_forge::policy::{Policy, RandomInit, StepOptions};

use super::record::Record;
use super::{arch, difference, lengths, load, policy, weights};

fn conditioned() -> Arch {
    Arch { state_cond: true, ..arch() }
}

/// Branch 0 of the shared-observation reference.
fn inputs(device: &Device) -> Result<(Batch, Targets, Draw)> {
    let all = load("vlash/shared-observation.safetensors")?;
    let first = |name: &str| all[name].narrow(1, 0, 1)?.squeeze(1)?.contiguous();
    let mask = |name: &str| all[name].to_dtype(DType::U32)?.to_vec1::<u32>();
    let batch = Batch {
        images: (0..3).map(|i| all[&format!("image.{i}.pixels")].clone()).collect(),
        image_masks: (0..3)
            .map(|i| Ok(mask(&format!("image.{i}.mask"))?.iter().map(|&m| m != 0).collect()))
            .collect::<Result<_>>()?,
        tokens: all["tokens"].to_dtype(DType::U32)?,
        token_lengths: lengths(&all["token_mask"])?,
        state: first("states_padded")?,
    };
    let is_pad = first("action_is_pad")?.to_dtype(DType::F32)?;
    let targets = Targets { actions: first("actions_padded")?, is_pad, action_dim: 7, branches: Branches::ONE };
    let draw = Draw { noise: first("noise")?, time: first("time")? };
    Ok((batch.to_device(device)?, targets.to_device(device)?, draw.to_device(device)?))
}

/// Condition, suffix tokens, loss and sampled chunk.
pub fn agrees_with_vlash(device: &Device, record: &mut Record) -> Result<()> {
    let mut all = weights()?;
    all.extend(load("vlash/state-conditioning-weights.safetensors")?);
    let policy = Policy::build(&conditioned(), &all, &Everything, device, DType::F32)?;
    let (batch, targets, draw) = inputs(device)?;
    let reference = load("vlash/state-conditioned-single.safetensors")?;
    let trace = policy.trace_training(&batch, &targets, &draw)?;
    for name in ["adarms_cond", "suffix_embedding"] {
        record.hold(name, "", difference(&trace[name], &reference[name])?, 1e-5);
    }
    // VLASH's masked positions hold loss zero; the reference's elements are before masking or after it alike.
    let real = (1.0 - targets.is_pad.to_device(&Device::Cpu)?.unsqueeze(2)?)?;
    let squared = (&trace["u_t"] - &trace["v_t"])?.sqr()?.to_device(&Device::Cpu)?;
    let (found, wanted) = (squared.broadcast_mul(&real)?, reference["loss_per_element"].broadcast_mul(&real)?);
    // 5e-5 an element is what the fixture's page proposes.
    record.hold("loss_per_element", "", difference(&found, &wanted)?, 5e-5);
    let losses = policy.losses(&batch, &targets, &draw, LossParity::Vlash)?;
    let mean = f64::from(wanted.sum_all()?.to_scalar::<f32>()?) / (2.0 * 10.0 * 32.0);
    record.hold("loss", "", (losses.loss - mean).abs(), 1e-5);
    // VLASH adds up the time in f32, which moves the chunk by about 2e-5 (its page, §5); plus 5e-5 as elsewhere.
    let sampled = policy.sample(&batch, &draw.noise, 10)?;
    record.hold("actions", "", difference(&sampled, &reference["sampled_actions_padded"])?, 7e-5);
    Ok(())
}

/// Weights by name, random where the source lacks them.
struct Overlay(HashMap<String, Tensor>);

impl WeightSource for Overlay {
    fn tensor(&self, name: &str, shape: &[usize], device: &Device) -> Result<Tensor> {
        match self.0.contains_key(name) {
            true => self.0.tensor(name, shape, device),
            false => RandomInit { seed: 1 }.tensor(name, shape, device),
        }
    }
}

/// A fresh state branch is without influence, and its gradients are zero exactly where that is declared.
pub fn a_new_branch_changes_nothing(device: &Device, record: &mut Record) -> Result<()> {
    let (batch, targets, draw) = inputs(device)?;
    let plain = policy(&Frozen, device)?;
    let conditioned = Policy::build(&conditioned(), &Overlay(weights()?), &Everything, device, DType::F32)?;
    let noise = &draw.noise;
    let off = difference(&plain.sample(&batch, noise, 2)?, &conditioned.sample(&batch, noise, 2)?)?;
    record.hold("actions", "without influence", off, 0.0);
    let options = StepOptions { parity: LossParity::Lerobot, recompute: false, dropout_key: None, loss_scale: 1.0 };
    let step = conditioned.gradients(&batch, &targets, &draw, &options)?;
    for (name, zero) in [("state_proj.weight", true), ("state_mlp_in.bias", true), ("state_mlp_out.weight", false)] {
        let gradient = &step.gradients[name];
        assert_eq!(difference(gradient, &gradient.zeros_like()?)? == 0.0, zero, "{name}");
        assert_eq!(matches!(conditioned.expectation(name), FirstGradient::ZeroAtFirst(_)), zero, "{name}");
    }
    Ok(())
}
