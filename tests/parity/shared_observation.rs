//! Training all delays of a frame over one prefix, against VLASH's packed sequence and against itself. Every check takes
//! the device to compute on; inputs and references are f32.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Result, Tensor, bail};
use vlash_forge::adapter::plan::Everything;
use vlash_forge::config::train::LossParity;
use vlash_forge::policy::batch::{Batch, Branches, Draw, Targets};
use vlash_forge::policy::{Policy, StepOptions, StepOutput};

use super::record::Record;
use super::{arch, difference, lengths, load, weights};

/// Largest absolute differences that pass in f32: what the fixtures' page proposes for another implementation.
const ELEMENT: f64 = 5e-5;
const LOSS: f64 = 1e-5;
const GRADIENT: f64 = 1e-5;
/// Elements (up to about 20) of a branch alone and among others: the same sums in matrix products of another height.
const TOGETHER: f64 = 2e-5;

pub const OPTIONS: StepOptions =
    StepOptions { parity: LossParity::Vlash, recompute: false, dropout_key: None, loss_scale: 1.0 };

/// The tiny reference policy with VLASH's state condition; everything trains.
pub fn policy(device: &Device, dtype: DType) -> Result<Policy> {
    let mut all = weights()?;
    all.extend(load("vlash/state-conditioning-weights.safetensors")?);
    let mut arch = arch();
    arch.state_cond = true;
    Policy::build(&arch, &all, &Everything, device, dtype)
}

/// The reference's batch: two observations of five branches, three of which do not count.
pub struct Case {
    pub batch: Batch,
    pub targets: Targets,
    pub draw: Draw,
    /// `[B·K]`.
    pub valid: Vec<bool>,
    pub branches: usize,
    pub recorded: BTreeMap<String, Tensor>,
}

impl Case {
    pub fn read(device: &Device) -> Result<Case> {
        let recorded = load("vlash/shared-observation.safetensors")?;
        let (samples, branches, ..) = recorded["noise"].dims4()?;
        // `[B, K, …]` to `[B·K, …]`.
        let rows = |name: &str| recorded[name].flatten(0, 1)?.to_dtype(DType::F32)?.to_device(device);
        let flags = |name: &str| recorded[name].flatten_all()?.to_vec1::<u8>();
        let is_set = |flags: Vec<u8>| flags.into_iter().map(|flag| flag != 0).collect::<Vec<bool>>();
        let valid = is_set(flags("offset_mask")?);
        let mut images = Vec::new();
        let mut image_masks = Vec::new();
        for camera in 0..3 {
            images.push(recorded[&format!("image.{camera}.pixels")].to_device(device)?);
            image_masks.push(is_set(flags(&format!("image.{camera}.mask"))?));
        }
        let batch = Batch {
            images,
            image_masks,
            tokens: recorded["tokens"].to_dtype(DType::U32)?.to_device(device)?,
            token_lengths: lengths(&recorded["token_mask"])?,
            state: rows("states_padded")?,
        };
        let targets = Targets {
            actions: rows("actions_padded")?,
            is_pad: rows("action_is_pad")?,
            action_dim: 7,
            branches: Branches::new(branches, &valid)?,
        };
        let draw = Draw { noise: rows("noise")?, time: rows("time")? };
        if valid.iter().filter(|&&valid| !valid).count() == 0 || batch.len() != samples {
            bail!("the reference has branches that do not count")
        }
        Ok(Case { batch, targets, draw, valid, branches, recorded })
    }

    /// One branch of every observation, as a plain batch; whether each counts stays as it is.
    pub fn branch(&self, branch: usize) -> Result<Case> {
        let rows: Vec<usize> = (0..self.batch.len()).map(|b| b * self.branches + branch).collect();
        let ids: Vec<u32> = rows.iter().map(|&row| row as u32).collect();
        let ids = Tensor::new(&ids[..], self.draw.noise.device())?;
        let pick = |tensor: &Tensor| tensor.index_select(&ids, 0);
        let valid: Vec<bool> = rows.iter().map(|&row| self.valid[row]).collect();
        Ok(Case {
            batch: Batch { state: pick(&self.batch.state)?, ..self.batch.clone() },
            targets: Targets {
                actions: pick(&self.targets.actions)?,
                is_pad: pick(&self.targets.is_pad)?,
                action_dim: self.targets.action_dim,
                branches: Branches::new(1, &valid)?,
            },
            draw: Draw { noise: pick(&self.draw.noise)?, time: pick(&self.draw.time)? },
            valid,
            branches: 1,
            recorded: BTreeMap::new(),
        })
    }

    pub fn step(&self, policy: &Policy, options: &StepOptions) -> Result<StepOutput> {
        policy.gradients(&self.batch, &self.targets, &self.draw, options)
    }

    /// `(u − v)²` of every element that is neither padded nor of a branch that does not count, else 0: `[B·K, H, A]`.
    pub fn elements(&self, squared: &Tensor) -> Result<Tensor> {
        let counts: Vec<f32> = self.valid.iter().map(|&valid| f32::from(u8::from(valid))).collect();
        let counts = Tensor::from_vec(counts, (self.valid.len(), 1), &Device::Cpu)?;
        let real = self.targets.is_pad.to_device(&Device::Cpu)?.affine(-1.0, 1.0)?.broadcast_mul(&counts)?;
        squared.to_device(&Device::Cpu)?.broadcast_mul(&real.unsqueeze(2)?)
    }

    /// [`Case::elements`] as `policy` computes them.
    pub fn predicted(&self, policy: &Policy) -> Result<Tensor> {
        let trace = policy.trace_training(&self.batch, &self.targets, &self.draw)?;
        self.elements(&(&trace["u_t"] - &trace["v_t"])?.sqr()?)
    }
}

/// Per-element losses, means by branch, total loss and gradients are the packed sequence's.
pub fn agrees_with_the_packed_sequence(device: &Device, record: &mut Record) -> Result<()> {
    let (case, policy) = (Case::read(device)?, policy(device, DType::F32)?);
    let wanted = case.elements(&case.recorded["loss_per_element_packed"].flatten(0, 1)?)?;
    record.hold("loss_per_element", "", difference(&case.predicted(&policy)?, &wanted)?, ELEMENT);
    let losses = policy.losses(&case.batch, &case.targets, &case.draw, LossParity::Vlash)?;
    let means = case.recorded["loss_per_offset_masked_mean"].flatten_all()?.to_vec1::<f32>()?;
    for (row, (found, wanted)) in losses.per_sample.iter().zip(&means).enumerate() {
        record.hold("loss of a branch", format_args!("row {row}"), (found - f64::from(*wanted)).abs(), LOSS);
    }
    let loss = f64::from(case.recorded["loss"].to_scalar::<f32>()?);
    record.hold("loss", "evaluated", (losses.loss - loss).abs(), LOSS);
    let gradients = load("vlash/shared-observation-gradients.safetensors")?;
    for recompute in [false, true] {
        let step = case.step(&policy, &StepOptions { recompute, ..OPTIONS })?;
        record.hold("loss", format_args!("recompute {recompute}"), (step.loss - loss).abs(), LOSS);
        for (name, wanted) in &gradients {
            let Some(found) = step.gradients.get(name) else { bail!("{name} has no gradient") };
            record.hold("gradients", name, difference(found, wanted)?, GRADIENT);
        }
    }
    Ok(())
}

/// Branches together are the branches one by one: velocities, losses, and gradients, which add up in the prefix.
pub fn branches_together_are_branches_alone(device: &Device, record: &mut Record) -> Result<()> {
    let (case, policy) = (Case::read(device)?, policy(device, DType::F32)?);
    let together = case.step(&policy, &OPTIONS)?;
    let elements = case.predicted(&policy)?;
    let all = case.valid.iter().filter(|&&valid| valid).count() as f64;
    let mut summed: BTreeMap<String, Tensor> = BTreeMap::new();
    for branch in 0..case.branches {
        let alone = case.branch(branch)?;
        let rows = elements.reshape((case.batch.len(), case.branches, elements.dim(1)?, elements.dim(2)?))?;
        let off = difference(&rows.narrow(1, branch, 1)?.squeeze(1)?, &alone.predicted(&policy)?)?;
        record.hold("loss_per_element", format_args!("branch {branch}"), off, TOGETHER);
        let share = alone.valid.iter().filter(|&&valid| valid).count() as f64 / all;
        let step = alone.step(&policy, &StepOptions { loss_scale: share, ..OPTIONS })?;
        for (name, gradient) in step.gradients {
            let sum = summed.get(&name).map(|so_far| so_far + &gradient).transpose()?;
            summed.insert(name, sum.unwrap_or(gradient));
        }
    }
    assert!(summed.keys().eq(together.gradients.keys()), "other parameters have a gradient alone than together");
    for (name, wanted) in &summed {
        record.hold("gradients", name, difference(&together.gradients[name], wanted)?, 2e-6);
    }
    Ok(())
}

/// What stands in a branch that does not count is in no loss and no gradient, in any definition.
pub fn a_branch_that_does_not_count_changes_nothing(device: &Device, record: &mut Record) -> Result<()> {
    let (case, policy) = (Case::read(device)?, policy(device, DType::F32)?);
    let counts: Vec<f32> = case.valid.iter().map(|&valid| f32::from(u8::from(valid))).collect();
    let counts = Tensor::from_vec(counts, (case.valid.len(), 1, 1), device)?;
    let noise =
        (case.draw.noise.broadcast_mul(&counts)? + counts.affine(-3.0, 3.0)?.broadcast_as(case.draw.noise.shape())?)?;
    let other = Case { draw: Draw { noise, ..case.draw.clone() }, ..Case::read(device)? };
    for parity in [LossParity::Valid, LossParity::Openpi, LossParity::Lerobot, LossParity::Vlash] {
        let options = StepOptions { parity, ..OPTIONS };
        let (one, two) = (case.step(&policy, &options)?, other.step(&policy, &options)?);
        assert!(one.loss.is_finite() && one.loss > 0.0, "{parity:?}: loss {}", one.loss);
        record.hold("loss", format_args!("{parity:?}"), (one.loss - two.loss).abs(), 0.0);
        for (name, gradient) in &one.gradients {
            record.hold(
                "gradients",
                format_args!("{parity:?}: {name}"),
                difference(gradient, &two.gradients[name])?,
                0.0,
            );
        }
    }
    Ok(())
}
