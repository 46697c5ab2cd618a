//! Memory of a run, by line.

use serde::Serialize;

use super::calibration::CALIBRATION;
use super::cost;
use super::graph::Kernel;
use super::network::{F32, Sizes};
use super::subject::{PlanError, Subject, Target};
use super::walk::walk;
use super::weights::count;
use crate::config::train::Dtype;

/// Bytes at the highest point of a step. The lines add up to [`Memory::total`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Frozen weights in the dtype that computes; norms and small projections in f32.
    pub weights: u64,
    /// What trains, f32.
    pub masters: u64,
    /// Adam's two, f32.
    pub moments: u64,
    /// Of what trains, f32; twice while a further micro-batch is added.
    pub gradients: u64,
    /// Images on the device.
    pub batch: u64,
    /// Kept for the backward pass of other segments than the one at the peak.
    pub kept: u64,
    /// Of the segment at the peak.
    pub segment: u64,
    /// Probabilities of attention, kept and of the segment at the peak.
    pub attention: u64,
    /// Copies of trained weights in the dtype that computes.
    pub casts: u64,
    /// Of activations on the way back.
    pub activation_gradients: u64,
    /// What the pool of the device holds beyond that.
    pub allocator: u64,
    /// Context and libraries.
    pub runtime: u64,
}

impl Memory {
    /// Every line with its name, in the order of printing.
    pub fn lines(&self) -> [(&'static str, u64); 12] {
        [
            ("weights, frozen", self.weights),
            ("masters of what trains", self.masters),
            ("Adam's moments", self.moments),
            ("gradients", self.gradients),
            ("batch", self.batch),
            ("activations kept", self.kept),
            ("activations of one segment", self.segment),
            ("attention", self.attention),
            ("copies of trained weights", self.casts),
            ("gradients of activations", self.activation_gradients),
            ("allocator", self.allocator),
            ("runtime", self.runtime),
        ]
    }

    /// What the device must hold.
    pub fn total(&self) -> u64 {
        self.lines().iter().map(|(_, bytes)| bytes).sum()
    }
}

/// What a run needs.
#[derive(Debug)]
pub struct Estimate {
    pub memory: Memory,
    /// Parameters of the network and its adapters.
    pub parameters: u64,
    pub trained: u64,
    /// The least that a micro-step can cost.
    pub(super) floor: cost::Training,
    /// Of a micro-step, forward and backward.
    pub(super) kernels: Vec<Kernel>,
    /// Tensors that train.
    pub(super) tensors: u64,
}

/// What the driver's pool holds beyond the tensors: `moving` bytes come and go within a step, `gradients` are those of
/// all parameters.
fn slack(moving: u64, gradients: u64) -> u64 {
    CALIBRATION.pool_blocks.min(2 * moving) + (gradients as f64 * CALIBRATION.pool_holes) as u64
}

/// Memory and work of `subject` on `target`.
///
/// # Errors
/// An adapter configuration that names nothing of this network, or a step of absurd size.
pub fn estimate(subject: &Subject, target: Target) -> Result<Estimate, PlanError> {
    subject.check_size()?;
    let (config, plan) = (&subject.config, subject.plan()?);
    let sizes = Sizes {
        arch: &subject.arch,
        plan: &plan,
        batch: config.train.batch_size,
        cameras: subject.cameras.len(),
        prompt: config.model.tokenizer_max_length,
        branches: subject.branches(),
        time_per_step: config.train.rtc_max_delay > 0,
        each: subject.each(target),
        gpu: target == Target::Gpu,
    };
    let counts = count(&subject.arch, &plan, sizes.each);
    let walked = walk(sizes, config.train.activation_checkpointing);
    let peak = walked.peak;
    // From the second micro-batch on the sum of those before is there, too.
    let accumulated = if config.train.grad_accum > 1 { walked.parameter_gradients } else { 0 };
    let pixels = sizes.cameras * sizes.batch * 3 * subject.arch.vision.image.pow(2);
    let gradients = accumulated + peak.parameter_gradients;
    let moving = peak.total() + accumulated;
    let (allocator, runtime) = match target {
        Target::Gpu => (slack(moving, walked.parameter_gradients), CALIBRATION.runtime_bytes),
        Target::Cpu => (0, CALIBRATION.cpu_process_bytes),
    };
    let memory = Memory {
        weights: counts.frozen_bytes,
        masters: F32 * counts.trained,
        moments: 2 * F32 * counts.trained,
        gradients,
        batch: pixels as u64 * F32,
        kept: peak.kept.activations,
        segment: peak.live.activations,
        attention: peak.kept.attention + peak.live.attention,
        casts: peak.kept.casts + peak.live.casts,
        activation_gradients: peak.activation_gradients,
        allocator,
        runtime,
    };
    let shape =
        cost::Shape { batch: sizes.batch, cameras: sizes.cameras, prompt: sizes.prompt, suffixes: sizes.branches };
    let recompute = config.train.activation_checkpointing;
    let dtype = if sizes.each == F32 { Dtype::Float32 } else { Dtype::Bfloat16 };
    Ok(Estimate {
        memory,
        floor: cost::training(&subject.arch, &shape, &plan, recompute, dtype),
        parameters: counts.network + counts.factors,
        trained: counts.trained,
        kernels: walked.kernels,
        tensors: counts.tensors,
    })
}
