//! The training loss in its four definitions, with its gradient by hand.

use crate::config::train::LossParity;

/// Predicted and wanted velocities of a batch, row-major `[B, H, A]`, and what is real of them.
pub struct Velocities<'a> {
    pub predicted: &'a [f32],
    pub wanted: &'a [f32],
    /// `[B, H]`.
    pub is_pad: &'a [bool],
    pub chunk: usize,
    /// Width A, padding included.
    pub dims: usize,
    /// Real dimensions, ≤ A.
    pub action_dim: usize,
}

/// Losses of a batch.
#[derive(Debug, Clone, PartialEq)]
pub struct Losses {
    /// By the definition asked for.
    pub loss: f64,
    /// By our definition: mean over real dimensions of non-padded steps.
    pub loss_valid: f64,
    /// What predicting zero velocity would give, by our definition: the yardstick of learning.
    pub zero_velocity: f64,
    /// By the definition asked for, each sample as a batch of its own.
    pub per_sample: Vec<f64>,
}

impl Velocities<'_> {
    /// The losses. A sample, or batch, without any valid step contributes zero.
    pub fn losses(&self, parity: LossParity) -> Losses {
        let zeros = vec![0.0; self.wanted.len()];
        Losses {
            loss: self.mean(self.predicted, parity, 0..self.is_pad.len()),
            loss_valid: self.mean(self.predicted, LossParity::Valid, 0..self.is_pad.len()),
            zero_velocity: self.mean(&zeros, LossParity::Valid, 0..self.is_pad.len()),
            per_sample: (0..self.is_pad.len() / self.chunk.max(1))
                .map(|sample| self.mean(self.predicted, parity, sample * self.chunk..(sample + 1) * self.chunk))
                .collect(),
        }
    }

    /// d(scale·loss)/d(predicted): `2·(v − u)·scale/elements` where an element counts.
    pub fn gradient(&self, parity: LossParity, scale: f64) -> Vec<f32> {
        let elements = self.elements(parity, 0..self.is_pad.len());
        let factor = if elements == 0 { 0.0 } else { 2.0 * scale / elements as f64 };
        let mut gradient = vec![0.0; self.predicted.len()];
        for (step, _) in self.is_pad.iter().enumerate() {
            for at in self.counted(parity, step) {
                gradient[at] = (f64::from(self.predicted[at] - self.wanted[at]) * factor) as f32;
            }
        }
        gradient
    }

    /// Mean squared error over `steps`, summed in f64.
    fn mean(&self, predicted: &[f32], parity: LossParity, steps: std::ops::Range<usize>) -> f64 {
        let elements = self.elements(parity, steps.clone());
        if elements == 0 {
            return 0.0;
        }
        let square = |at: usize| f64::from(self.wanted[at] - predicted[at]).powi(2);
        steps.flat_map(|step| self.counted(parity, step)).map(square).sum::<f64>() / elements as f64
    }

    /// Elements of `step` in the sum.
    fn counted(&self, parity: LossParity, step: usize) -> std::ops::Range<usize> {
        let dims = match parity {
            LossParity::Valid | LossParity::Lerobot => self.action_dim,
            LossParity::Openpi | LossParity::Vlash => self.dims,
        };
        let skipped = self.is_pad[step] && matches!(parity, LossParity::Valid | LossParity::Vlash);
        let first = step * self.dims;
        first..if skipped { first } else { first + dims }
    }

    /// The denominator.
    fn elements(&self, parity: LossParity, steps: std::ops::Range<usize>) -> usize {
        match parity {
            LossParity::Vlash => steps.len() * self.dims,
            _ => steps.map(|step| self.counted(parity, step).len()).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// Two samples of two steps, three dimensions of which two are real. Sample 0: last step padded. Sample 1: both.
    const PAD: [bool; 4] = [false, true, true, true];

    fn velocities<'a>(predicted: &'a [f32], wanted: &'a [f32]) -> Velocities<'a> {
        Velocities { predicted, wanted, is_pad: &PAD, chunk: 2, dims: 3, action_dim: 2 }
    }

    #[rstest]
    // Errors are 1…12; squares of the elements that count over the denominator.
    #[case(LossParity::Valid, (1. + 4.) / 2., [2.5, 0.])]
    #[case(LossParity::Lerobot, (1. + 4. + 16. + 25. + 49. + 64. + 100. + 121.) / 8., [46. / 4., 334. / 4.])]
    #[case(LossParity::Openpi, 650. / 12., [91. / 6., 559. / 6.])]
    #[case(LossParity::Vlash, 14. / 12., [14. / 6., 0.])]
    fn each_definition_counts_its_elements(#[case] parity: LossParity, #[case] loss: f64, #[case] each: [f64; 2]) {
        let wanted: Vec<f32> = (1..=12).map(|v| v as f32).collect();
        let predicted = vec![0.0; 12];
        let found = velocities(&predicted, &wanted).losses(parity);
        assert!((found.loss - loss).abs() < 1e-12, "{} against {loss}", found.loss);
        assert_eq!(found.per_sample, each);
        assert_eq!((found.loss_valid, found.zero_velocity), (2.5, 2.5));
    }

    #[rstest]
    #[case(LossParity::Valid)]
    #[case(LossParity::Lerobot)]
    #[case(LossParity::Openpi)]
    #[case(LossParity::Vlash)]
    fn the_gradient_is_the_derivative(#[case] parity: LossParity) {
        let wanted: Vec<f32> = (1..=12).map(|v| v as f32 * 0.1).collect();
        let predicted: Vec<f32> = (1..=12).map(|v| (v * v % 7) as f32 * 0.2).collect();
        let gradient = velocities(&predicted, &wanted).gradient(parity, 0.5);
        for at in 0..12 {
            let moved = |by: f32| {
                let mut predicted = predicted.clone();
                predicted[at] += by;
                0.5 * velocities(&predicted, &wanted).losses(parity).loss
            };
            let difference = (moved(1e-2) - moved(-1e-2)) / 2e-2;
            assert!((f64::from(gradient[at]) - difference).abs() < 1e-4, "element {at}");
        }
    }

    #[test]
    fn a_batch_of_padding_alone_is_zero_not_nan() {
        let (predicted, wanted) = (vec![1.0; 6], vec![0.0; 6]);
        let all = Velocities {
            predicted: &predicted,
            wanted: &wanted,
            is_pad: &[true, true],
            chunk: 2,
            dims: 3,
            action_dim: 2,
        };
        assert_eq!(all.losses(LossParity::Valid).loss, 0.0);
        assert!(all.gradient(LossParity::Valid, 1.0).iter().all(|&g| g == 0.0));
    }
}
