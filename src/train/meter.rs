//! Averages over the logging window.

use std::time::Instant;

use crate::policy::Mean;
use crate::track::event::StepMetrics;

/// Loss by delay offset, an element for each offset up to the largest that was met.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ByDelay(Vec<Mean>);

impl ByDelay {
    /// Of offsets 0 … `max`; of none when `max` is 0, as there is nothing to tell apart.
    pub fn up_to(max: usize) -> ByDelay {
        ByDelay(if max == 0 { Vec::new() } else { vec![Mean::default(); max + 1] })
    }

    /// Adds rows with their delays; an offset beyond the largest is not counted.
    pub fn add(&mut self, delays: &[usize], rows: &[Mean]) {
        for (&delay, &row) in delays.iter().zip(rows) {
            if let Some(mean) = self.0.get_mut(delay) {
                *mean += row;
            }
        }
    }

    /// The mean of each offset.
    pub fn means(&self) -> Vec<Option<f64>> {
        self.0.iter().map(|mean| mean.value()).collect()
    }

    fn join(&mut self, other: &ByDelay) {
        self.0.resize(self.0.len().max(other.0.len()), Mean::default());
        self.0.iter_mut().zip(&other.0).for_each(|(sum, &mean)| *sum += mean);
    }
}

/// One optimizer step, all micro-steps together.
#[derive(Debug, Clone, Default)]
pub struct StepCost {
    pub loss: f64,
    pub loss_valid: f64,
    pub grad_norm: f64,
    /// Frames.
    pub samples: u64,
    /// Action chunks: as many as frames, or a multiple where all delays of a frame are trained.
    pub chunks: u64,
    pub by_delay: ByDelay,
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
        sum.chunks += cost.chunks;
        sum.by_delay.join(&cost.by_delay);
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
            chunks_per_s: (self.sum.chunks > self.sum.samples).then(|| self.sum.chunks as f64 / wall_s.max(1e-9)),
            loss_by_delay: self.sum.by_delay.means(),
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
        assert_eq!((means.chunks_per_s, means.loss_by_delay), (None, vec![]));
        meter.take();
        assert!(meter.take().is_none());
    }

    #[test]
    fn losses_by_delay_are_means_over_elements_of_all_steps() {
        let mut meter = Meter::default();
        for (sum, elements) in [(1.0, 1), (3.0, 3)] {
            let mut by_delay = ByDelay::up_to(2);
            by_delay.add(&[0, 2, 9], &[Mean { sum, elements }, Mean { sum: 5.0, elements: 10 }, Mean::default()]);
            meter.add(&StepCost { samples: 1, chunks: 3, by_delay, ..StepCost::default() });
        }
        let means = meter.means(2.0).unwrap();
        assert_eq!((means.samples_per_s, means.chunks_per_s), (1.0, Some(3.0)));
        assert_eq!(means.loss_by_delay, [Some(1.0), None, Some(0.5)]);
        assert_eq!(ByDelay::up_to(0).means(), []);
    }
}
