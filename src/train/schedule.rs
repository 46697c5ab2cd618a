//! The learning rate as a pure function of the optimizer step.
//!
//! Source: LeRobot's `optim/schedulers.py`. A schedule is a *factor* on the optimizer's own rate, so a configuration
//! whose `schedule.peak_lr` differs from `optim.lr` peaks at `optim.lr`, as it does there; `peak_lr` only sets the
//! ratio of the floor. Steps count from 0: optimizer update number k (from 1) uses `lr(k - 1)`.

use std::f64::consts::PI;

use crate::config::train::{ScheduleConfig, ScheduleKind};

/// A schedule fitted to one run's length.
#[derive(Debug, Clone, PartialEq)]
pub struct Schedule {
    shape: Shape,
    /// The rate that the factor multiplies (`optim.lr`).
    base_lr: f64,
    /// Set at run time ([`Schedule::rescale`]); 1 unless someone did.
    multiplier: f64,
}

#[derive(Debug, Clone, PartialEq)]
enum Shape {
    /// `floor` is the last rate over the peak. The cosine counts from step 0, warm-up included.
    Cosine {
        warmup: u64,
        decay: u64,
        floor: f64,
    },
    ConstantWithWarmup {
        warmup: u64,
    },
    Constant,
}

impl Schedule {
    /// The schedule of a run of `steps` optimizer steps with the optimizer's rate `base_lr`.
    ///
    /// A cosine longer than the run is shortened to it, and its warm-up in proportion.
    pub fn new(config: &ScheduleConfig, base_lr: f64, steps: usize) -> Self {
        let shape = match config.kind {
            ScheduleKind::CosineDecayWithWarmup => {
                let (warmup, decay) = fit(config.warmup_steps, config.decay_steps, steps);
                Shape::Cosine { warmup, decay, floor: config.decay_lr / config.peak_lr }
            }
            ScheduleKind::ConstantWithWarmup => Shape::ConstantWithWarmup { warmup: config.warmup_steps as u64 },
            ScheduleKind::Constant => Shape::Constant,
        };
        Self { shape, base_lr, multiplier: 1.0 }
    }

    /// The rate in force for the update after `step` finished updates.
    pub fn lr(&self, step: u64) -> f64 {
        self.multiplier * self.base_lr * self.factor(step)
    }

    /// Scales the whole schedule so that its rate at `step` becomes `lr`.
    ///
    /// Where the schedule itself is zero there (the first step of `constant_with_warmup`), the scale is taken
    /// against the unscaled peak instead, since nothing multiplied by zero gives `lr`.
    pub fn rescale(&mut self, step: u64, lr: f64) {
        let unscaled = self.base_lr * self.factor(step);
        self.multiplier = lr / if unscaled > 0.0 { unscaled } else { self.base_lr };
    }

    /// What [`Schedule::rescale`] set, for checkpoints.
    pub fn multiplier(&self) -> f64 {
        self.multiplier
    }

    /// Puts back a multiplier from a checkpoint.
    pub fn set_multiplier(&mut self, multiplier: f64) {
        self.multiplier = multiplier;
    }

    /// Steps of warm-up and of decay after fitting to the run, where the shape has them.
    pub fn fitted(&self) -> (Option<u64>, Option<u64>) {
        match self.shape {
            Shape::Cosine { warmup, decay, .. } => (Some(warmup), Some(decay)),
            Shape::ConstantWithWarmup { warmup } => (Some(warmup), None),
            Shape::Constant => (None, None),
        }
    }

    fn factor(&self, step: u64) -> f64 {
        match self.shape {
            Shape::Cosine { warmup, .. } if step < warmup => {
                let first = 1.0 / (warmup + 1) as f64;
                if step == 0 {
                    return first;
                }
                (first - 1.0) * (1.0 - step as f64 / warmup as f64) + 1.0
            }
            Shape::Cosine { decay, floor, .. } => {
                // A decay of no steps has already ended.
                let progress = if decay == 0 { 1.0 } else { step.min(decay) as f64 / decay as f64 };
                (1.0 - floor) * (0.5 * (1.0 + (PI * progress).cos())) + floor
            }
            Shape::ConstantWithWarmup { warmup } if step < warmup => step as f64 / warmup as f64,
            Shape::ConstantWithWarmup { .. } | Shape::Constant => 1.0,
        }
    }
}

/// Warm-up and decay for a run of `steps`: unchanged when the run is at least as long as the decay.
fn fit(warmup: usize, decay: usize, steps: usize) -> (u64, u64) {
    if steps >= decay {
        return (warmup as u64, decay as u64);
    }
    let scaled = (warmup as f64 * (steps as f64 / decay as f64)).floor();
    (scaled as u64, steps as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cosine(peak_lr: f64, decay_lr: f64, warmup_steps: usize, decay_steps: usize) -> ScheduleConfig {
        ScheduleConfig { kind: ScheduleKind::CosineDecayWithWarmup, warmup_steps, decay_steps, peak_lr, decay_lr }
    }

    fn close(found: f64, expected: f64, relative: f64) -> bool {
        (found - expected).abs() <= relative * expected.abs()
    }

    #[derive(serde::Deserialize)]
    struct Golden {
        peak_lr: f64,
        decay_lr: f64,
        num_warmup_steps: usize,
        num_decay_steps: usize,
        num_training_steps: usize,
        actual_warmup_steps: u64,
        actual_decay_steps: u64,
        steps: Vec<u64>,
        lr: Vec<f64>,
    }

    #[derive(serde::Deserialize)]
    struct GoldenFile {
        schedules: Vec<Golden>,
    }

    #[test]
    fn every_golden_value_of_lerobot_is_met() {
        let text = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/optimisation/lr-schedule.json"));
        let file: GoldenFile = serde_json::from_str(text).unwrap();
        let mut compared = 0;
        for golden in &file.schedules {
            let config = cosine(golden.peak_lr, golden.decay_lr, golden.num_warmup_steps, golden.num_decay_steps);
            let schedule = Schedule::new(&config, golden.peak_lr, golden.num_training_steps);
            assert_eq!(schedule.fitted(), (Some(golden.actual_warmup_steps), Some(golden.actual_decay_steps)));
            for (&step, &lr) in golden.steps.iter().zip(&golden.lr) {
                // Same formula in f64; libm's cosine may differ in the last bit.
                assert!(close(schedule.lr(step), lr, 1e-14), "step {step}: {} against {lr}", schedule.lr(step));
                compared += 1;
            }
        }
        assert_eq!((file.schedules.len(), compared > 250), (8, true));
    }

    #[test]
    fn the_examples_of_vlash_have_the_documented_rates() {
        let schedule = Schedule::new(&cosine(5e-5, 2.5e-6, 1000, 50_000), 5e-5, 50_000);
        let table = [
            (0, 4.995004995e-08),
            (1, 9.990009990e-08),
            (500, 2.502497502e-05),
            (999, 4.995004995e-05),
            (1000, 4.995313480e-05),
            (25_000, 2.625e-05),
            (49_999, 2.500000047e-06),
            (50_000, 2.5e-06),
            (1_000_000, 2.5e-06),
        ];
        for (step, lr) in table {
            assert!(close(schedule.lr(step), lr, 1e-9), "step {step}: {} against {lr}", schedule.lr(step));
        }
    }

    #[test]
    fn the_optimizer_s_rate_is_the_peak_and_the_floor_keeps_its_ratio() {
        let schedule = Schedule::new(&cosine(5e-5, 2.5e-6, 0, 100), 1e-4, 100);
        assert!(close(schedule.lr(0), 1e-4, 1e-12));
        assert!(close(schedule.lr(100), 5e-6, 1e-12));
    }

    #[test]
    fn constant_shapes() {
        let mut config = cosine(1e-3, 1e-4, 4, 10);
        config.kind = ScheduleKind::Constant;
        assert_eq!(Schedule::new(&config, 1e-3, 3).lr(0), 1e-3);
        config.kind = ScheduleKind::ConstantWithWarmup;
        let schedule = Schedule::new(&config, 1e-3, 3);
        // LeRobot's constant_with_warmup begins at zero and is never shortened to the run.
        assert_eq!([0, 1, 4, 9].map(|s| schedule.lr(s)), [0.0, 0.25e-3, 1e-3, 1e-3]);
    }

    #[test]
    fn a_rate_set_at_run_time_scales_what_follows() {
        let config = cosine(1e-3, 1e-4, 10, 100);
        let plain = Schedule::new(&config, 1e-3, 100);
        let mut schedule = plain.clone();
        schedule.rescale(40, 2e-4);
        assert!(close(schedule.lr(40), 2e-4, 1e-12));
        assert!(close(schedule.lr(70) / plain.lr(70), 2e-4 / plain.lr(40), 1e-12));
        let mut resumed = plain;
        resumed.set_multiplier(schedule.multiplier());
        assert_eq!(resumed, schedule);
        let warming = ScheduleConfig { kind: ScheduleKind::ConstantWithWarmup, ..config };
        let mut schedule = Schedule::new(&warming, 1e-3, 100);
        schedule.rescale(0, 5e-4);
        assert!(close(schedule.lr(50), 5e-4, 1e-12), "a zero rate cannot be scaled, the peak can");
    }

    #[test]
    fn a_run_of_no_steps_has_a_finite_rate() {
        let schedule = Schedule::new(&cosine(1e-3, 1e-4, 10, 100), 1e-3, 0);
        assert!(close(schedule.lr(0), 1e-4, 1e-12));
    }
}
