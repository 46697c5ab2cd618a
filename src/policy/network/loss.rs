//! The training loss in its four definitions, with its gradient by hand.
//!
//! Rows are samples, or the branches of several; a branch that does not count is in no sum and in no denominator.
//! With [`LossParity::Vlash`] that is VLASH's shared-observation loss, `Σ(valid, non-pad) / (n_valid · H · A)`; the others
//! run over the elements of valid rows as they do over those of samples.

use crate::config::train::LossParity;

/// Predicted and wanted velocities of R rows, row-major `[R, H, A]`, and what is real of them.
pub struct Velocities<'a> {
    pub predicted: &'a [f32],
    pub wanted: &'a [f32],
    /// `[R, H]`.
    pub is_pad: &'a [bool],
    /// `[R, H]`: the action was given, so that there is nothing to predict; such steps are in no sum and in no denominator,
    /// by every definition. Empty: none was.
    pub given: &'a [bool],
    /// `[R]`: the row counts.
    pub counts: &'a [bool],
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
    /// By the definition asked for, each row as a batch of its own: 0 where it does not count.
    pub per_sample: Vec<f64>,
    /// By our definition, each row alone.
    pub rows: Vec<Mean>,
}

/// A mean as its parts, so that means of parts of a batch can be joined.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Mean {
    pub sum: f64,
    pub elements: usize,
}

impl Mean {
    /// None without elements.
    pub fn value(self) -> Option<f64> {
        (self.elements > 0).then(|| self.sum / self.elements as f64)
    }
}

impl std::ops::AddAssign for Mean {
    fn add_assign(&mut self, other: Mean) {
        self.sum += other.sum;
        self.elements += other.elements;
    }
}

impl Velocities<'_> {
    /// The losses. A sample, or batch, without any valid step contributes zero.
    pub fn losses(&self, parity: LossParity) -> Losses {
        let zeros = vec![0.0; self.wanted.len()];
        let all = 0..self.is_pad.len();
        let value = |mean: Mean| mean.value().unwrap_or(0.0);
        let rows = || (0..self.counts.len()).map(|row| row * self.chunk..(row + 1) * self.chunk);
        Losses {
            loss: value(self.mean(self.predicted, parity, all.clone())),
            loss_valid: value(self.mean(self.predicted, LossParity::Valid, all.clone())),
            zero_velocity: value(self.mean(&zeros, LossParity::Valid, all)),
            per_sample: rows().map(|steps| value(self.mean(self.predicted, parity, steps))).collect(),
            rows: rows().map(|steps| self.mean(self.predicted, LossParity::Valid, steps)).collect(),
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
    fn mean(&self, predicted: &[f32], parity: LossParity, steps: std::ops::Range<usize>) -> Mean {
        let square = |at: usize| f64::from(self.wanted[at] - predicted[at]).powi(2);
        let sum = steps.clone().flat_map(|step| self.counted(parity, step)).map(square).sum();
        Mean { sum, elements: self.elements(parity, steps) }
    }

    /// Whether there is something to predict at `step` of a row that counts.
    fn valid(&self, step: usize) -> bool {
        let given = self.given.get(step).is_some_and(|&given| given);
        !given && self.counts.get(step / self.chunk.max(1)).is_some_and(|&counts| counts)
    }

    /// Elements of `step` in the sum.
    fn counted(&self, parity: LossParity, step: usize) -> std::ops::Range<usize> {
        let dims = match parity {
            LossParity::Valid | LossParity::Lerobot => self.action_dim,
            LossParity::Openpi | LossParity::Vlash => self.dims,
        };
        let padded = self.is_pad[step] && matches!(parity, LossParity::Valid | LossParity::Vlash);
        let skipped = padded || !self.valid(step);
        let first = step * self.dims;
        first..if skipped { first } else { first + dims }
    }

    /// The denominator.
    fn elements(&self, parity: LossParity, steps: std::ops::Range<usize>) -> usize {
        match parity {
            LossParity::Vlash => steps.filter(|&step| self.valid(step)).count() * self.dims,
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
        Velocities { predicted, wanted, is_pad: &PAD, given: &[], counts: &[true; 2], chunk: 2, dims: 3, action_dim: 2 }
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
        assert_eq!(found.rows, [Mean { sum: 5., elements: 2 }, Mean::default()]);
    }

    #[rstest]
    // The second row is left out: what remains is the first as a batch of its own.
    #[case(LossParity::Valid, 2.5)]
    #[case(LossParity::Lerobot, 46. / 4.)]
    #[case(LossParity::Openpi, 91. / 6.)]
    #[case(LossParity::Vlash, 14. / 6.)]
    fn a_row_that_does_not_count_is_in_no_denominator(#[case] parity: LossParity, #[case] loss: f64) {
        let wanted: Vec<f32> = (1..=12).map(|v| v as f32).collect();
        let predicted = vec![0.0; 12];
        let part = Velocities { counts: &[true, false], ..velocities(&predicted, &wanted) };
        let found = part.losses(parity);
        assert!((found.loss - loss).abs() < 1e-12, "{} against {loss}", found.loss);
        assert_eq!(found.per_sample[1], 0.0);
        let gradient = part.gradient(parity, 1.0);
        assert!(gradient[6..].iter().all(|&g| g == 0.0) && gradient[0] != 0.0);
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

    /// Given steps are in no sum and in no denominator, whatever the definition.
    #[rstest]
    fn given_steps_are_left_out(
        #[values(LossParity::Valid, LossParity::Openpi, LossParity::Lerobot, LossParity::Vlash)] parity: LossParity,
    ) {
        let wanted = vec![0.0; 12];
        let mut predicted = vec![1.0; 12];
        // Step 0 of both samples is given and predicted badly.
        predicted[..3].fill(100.0);
        predicted[6..9].fill(100.0);
        let given = [true, false, true, false];
        let with = Velocities { is_pad: &[false; 4], given: &given, ..velocities(&predicted, &wanted) };
        assert_eq!(with.losses(parity).loss, 1.0);
        let gradient = with.gradient(parity, 1.0);
        assert!([0, 1, 2, 6, 7, 8].iter().all(|&at| gradient[at] == 0.0), "{gradient:?}");
        assert!(gradient[3] != 0.0 && gradient[9] != 0.0);
    }

    #[test]
    fn a_batch_of_padding_alone_is_zero_not_nan() {
        let (predicted, wanted) = (vec![1.0; 6], vec![0.0; 6]);
        let all = Velocities {
            predicted: &predicted,
            wanted: &wanted,
            is_pad: &[true, true],
            given: &[],
            counts: &[true],
            chunk: 2,
            dims: 3,
            action_dim: 2,
        };
        assert_eq!(all.losses(LossParity::Valid).loss, 0.0);
        assert!(all.gradient(LossParity::Valid, 1.0).iter().all(|&g| g == 0.0));
    }
}
