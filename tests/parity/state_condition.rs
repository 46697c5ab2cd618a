//! π₀.₅ conditioned on the state, against VLASH.

use std::collections::HashMap;

use candle_core::{DType, Device, Result, Tensor};
use vlash_forge::adapter::plan::{Everything, FirstGradient, Frozen};
use vlash_forge::config::train::LossParity;
use vlash_forge::policy::arch::Arch;
use vlash_forge::policy::weights::WeightSource;
use vlash_forge::policy::{Policy, RandomInit, StepOptions};

use super::record::Record;
use super::shared_observation::{self, Case};
use super::{arch, difference, load, policy, weights};

/// Condition, suffix tokens, loss and sampled chunk.
pub fn agrees_with_vlash(device: &Device, record: &mut Record) -> Result<()> {
    let (case, policy) = (Case::read(device)?.branch(0)?, shared_observation::policy(device, DType::F32)?);
    let reference = load("vlash/state-conditioned-single.safetensors")?;
    let trace = policy.trace_training(&case.batch, &case.targets, &case.draw)?;
    for name in ["adarms_cond", "suffix_embedding"] {
        record.hold(name, "", difference(&trace[name], &reference[name])?, 1e-5);
    }
    // VLASH's masked positions hold loss zero; the reference's elements are before masking or after it alike.
    let wanted = case.elements(&reference["loss_per_element"])?;
    // 5e-5 an element is what the fixture's page proposes.
    record.hold("loss_per_element", "", difference(&case.predicted(&policy)?, &wanted)?, 5e-5);
    let losses = policy.losses(&case.batch, &case.targets, &case.draw, LossParity::Vlash)?;
    let mean = f64::from(wanted.sum_all()?.to_scalar::<f32>()?) / (2.0 * 10.0 * 32.0);
    record.hold("loss", "", (losses.loss - mean).abs(), 1e-5);
    // VLASH adds up the time in f32, which moves the chunk by about 2e-5 (its page, §5); plus 5e-5 as elsewhere.
    let sampled = policy.sample(&case.batch, &case.draw.noise, 10)?;
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
    let Case { batch, targets, draw, .. } = Case::read(device)?.branch(0)?;
    let plain = policy(&Frozen, device)?;
    let arch = Arch { state_cond: true, ..arch() };
    let conditioned = Policy::build(&arch, &Overlay(weights()?), &Everything, device, DType::F32)?;
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
