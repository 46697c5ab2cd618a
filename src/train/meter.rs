//! Averages over the logging window.

use std::time::Instant;

use crate::track::event::StepMetrics;

/// One optimizer step, all micro-steps together.
#[derive(Debug, Clone, Copy, Default)]
pub struct StepCost {
    pub loss: f64,
    pub loss_valid: f64,
    pub grad_norm: f64,
    pub samples: u64,
    /// Seconds.
    pub data_s: f64,
    pub forward_s: f64,
    pub backward_s: f64,
    pub optimizer_s: f64,
}

/// Sums steps until they are reported.
#[derive(Debug)]
pub struct Meter {
    sum: StepCost,
    steps: u64,
    since: Instant,
}

impl Default for Meter {
    fn default() -> Self {
        Meter { sum: StepCost::default(), steps: 0, since: Instant::now() }
    }
}

impl Meter {
    /// Counts one optimizer step.
    pub fn add(&mut self, cost: &StepCost) {
        let sum = &mut self.sum;
        sum.loss += cost.loss;
        sum.loss_valid += cost.loss_valid;
        sum.grad_norm += cost.grad_norm;
        sum.samples += cost.samples;
        sum.data_s += cost.data_s;
        sum.forward_s += cost.forward_s;
        sum.backward_s += cost.backward_s;
        sum.optimizer_s += cost.optimizer_s;
        self.steps += 1;
    }

    /// The means since the last report; none when nothing was added. `wall_s` is the time they took.
    fn means(&self, wall_s: f64) -> Option<StepMetrics> {
        if self.steps == 0 {
            return None;
        }
        let n = self.steps as f64;
        Some(StepMetrics {
            loss: self.sum.loss / n,
            loss_valid: self.sum.loss_valid / n,
            grad_norm: self.sum.grad_norm / n,
            samples_per_s: self.sum.samples as f64 / wall_s.max(1e-9),
            step_s: wall_s / n,
            data_s: self.sum.data_s / n,
            forward_s: self.sum.forward_s / n,
            backward_s: self.sum.backward_s / n,
            optimizer_s: self.sum.optimizer_s / n,
            ..StepMetrics::default()
        })
    }

    /// Takes the means and begins a new window.
    pub fn take(&mut self) -> Option<StepMetrics> {
        let means = self.means(self.since.elapsed().as_secs_f64());
        *self = Meter::default();
        means
    }

    /// Leaves the time of something that is no training step (validation, a checkpoint, a pause) out of the rates.
    pub fn exclude(&mut self, duration: std::time::Duration) {
        self.since += duration;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_run_over_steps_and_rates_over_wall_time() {
        let mut meter = Meter::default();
        for loss in [1.0, 3.0] {
            meter.add(&StepCost { loss, samples: 8, data_s: 0.5, ..StepCost::default() });
        }
        let means = meter.means(4.0).unwrap();
        assert_eq!((means.loss, means.samples_per_s, means.step_s, means.data_s), (2.0, 4.0, 2.0, 0.5));
        meter.take();
        assert!(meter.take().is_none());
    }
}
