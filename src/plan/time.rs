//! Time of a run, by the roofline.

use serde::Serialize;

use super::calibration::CALIBRATION;
use super::cards::Card;
use super::cost::{self, Peak};
use super::graph::Kernel;
use super::memory::Estimate;
use super::subject::{Subject, Target};
use crate::config::train::Dtype;

/// Bytes that one parameter moves between the backward pass and the next step.
const UPDATE_BYTES: u64 = cost::CLIP_BYTES + cost::UPDATE_BYTES;
/// Kernels that the update of one tensor starts: its norm, and the step.
const UPDATE_KERNELS: u64 = 2;

/// Seconds, best and worst.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Range {
    pub best: f64,
    pub worst: f64,
}

/// What a run takes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Time {
    /// Of one optimizer step.
    pub step_s: Range,
    /// Of all steps.
    pub total_s: Range,
    pub samples_per_s: Range,
    /// Floating-point operations of an optimizer step.
    pub flops: u64,
    /// Seconds that no implementation could go below ([`super::cost`]).
    pub floor_s: f64,
}

/// What a device does in a second.
#[derive(Debug, Clone, Copy)]
pub struct Speed {
    flops: f64,
    bytes: f64,
    /// Shares of these that are reached, worst and best.
    shares: [[f64; 2]; 2],
    launch_s: [f64; 2],
}

impl Speed {
    /// Of a card, in the dtype that `subject` computes in; none where the card lacks it.
    pub fn of(card: &Card, subject: &Subject) -> Option<Speed> {
        let tflops = match subject.config.model.dtype {
            Dtype::Bfloat16 => card.bf16_tflops?,
            Dtype::Float32 => card.f32_tflops,
        };
        let shares = [CALIBRATION.flops_share, CALIBRATION.bandwidth_share];
        Some(Speed { flops: tflops * 1e12, bytes: card.bandwidth * 1e9, shares, launch_s: CALIBRATION.launch_s })
    }

    /// Of a CPU with so many cores.
    pub fn cpu(cores: usize) -> Speed {
        let [flops, bytes] = CALIBRATION.cpu_core.map(|each| each * cores as f64);
        Speed { flops, bytes, shares: [[0.5, 1.0]; 2], launch_s: [0.0; 2] }
    }

    /// The longest of products, traffic and start: within one kernel they hide behind each other.
    fn kernel(&self, kernel: &Kernel, case: usize) -> f64 {
        let [products, traffic] = self.shares;
        let flops = kernel.flops as f64 / (self.flops * products[case]);
        let bytes = kernel.bytes as f64 / (self.bytes * traffic[case]);
        flops.max(bytes).max(self.launch_s[case])
    }

    fn peak(&self) -> Peak {
        Peak { flops_per_s: self.flops, bytes_per_s: self.bytes }
    }
}

/// The time of `subject`, whose work `estimate` counted, at `speed`.
pub fn time(subject: &Subject, estimate: &Estimate, speed: &Speed) -> Time {
    let micro_steps = subject.config.train.grad_accum as f64;
    let update = Kernel { flops: 0, bytes: UPDATE_BYTES * estimate.trained };
    let step = |case: usize| {
        let micro: f64 = estimate.kernels.iter().map(|kernel| speed.kernel(kernel, case)).sum();
        let launches = (UPDATE_KERNELS * estimate.tensors) as f64 * speed.launch_s[case];
        micro_steps * micro + speed.kernel(&update, case).max(launches)
    };
    let step_s = Range { best: step(1), worst: step(0) };
    let (samples, steps) = (subject.samples() as f64, subject.config.train.steps as f64);
    let (floor, peak) = (&estimate.floor, speed.peak());
    let update_floor = floor.clip.seconds(&peak) + floor.optimizer.seconds(&peak);
    Time {
        step_s,
        total_s: Range { best: step_s.best * steps, worst: step_s.worst * steps },
        samples_per_s: Range { best: samples / step_s.best, worst: samples / step_s.worst },
        flops: (estimate.kernels.iter().map(|kernel| kernel.flops).sum::<u64>())
            .saturating_mul(subject.config.train.grad_accum as u64),
        floor_s: micro_steps * (floor.seconds(&peak) - update_floor) + update_floor,
    }
}

/// The speed of what `target` is: the card, or this machine.
pub fn speed_of(target: Target, card: Option<&Card>, subject: &Subject) -> Option<Speed> {
    match target {
        Target::Gpu => card.and_then(|card| Speed::of(card, subject)),
        Target::Cpu => std::thread::available_parallelism().ok().map(|cores| Speed::cpu(cores.get())),
    }
}
