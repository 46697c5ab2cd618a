//! Held-out losses: always the same samples and draws, so that two validations differ by the weights alone.

use std::sync::Arc;
use std::time::Instant;

use candle_core::Device;
use rayon::prelude::*;

use super::error::TrainError;
use crate::config::train::{LossParity, TrainConfig};
use crate::dataset::Dataset;
use crate::dataset::window::WindowSpec;
use crate::policy::batch::{Batch, Draw, Targets};
use crate::policy::processor::{Prepared, Processor, TokenPadding};
use crate::policy::{Policy, flow};
use crate::track::event::ValidationMetrics;

/// The prepared held-out batches.
pub struct Validator {
    batches: Vec<HeldOut>,
}

struct HeldOut {
    batch: Batch,
    /// The same rows with every row's observation taken from another sample.
    shuffled: Option<Batch>,
    targets: Targets,
    draw: Draw,
    rows: usize,
}

impl Validator {
    /// Reads and prepares up to `validation.batches` batches, spread evenly over the frames of `dataset`.
    pub fn new(
        dataset: &Dataset,
        window: &WindowSpec,
        processor: &Arc<Processor>,
        config: &TrainConfig,
        device: &Device,
    ) -> Result<Validator, TrainError> {
        let size = config.train.batch_size;
        let wanted = (config.validation.batches * size).min(dataset.len());
        let positions: Vec<usize> = (0..wanted).map(|i| i * dataset.len() / wanted.max(1)).collect();
        let prepared: Vec<Prepared> = positions
            .par_iter()
            .map(|&position| Ok(processor.prepare(&dataset.sample(position, window, 0)?)?))
            .collect::<Result<_, TrainError>>()?;
        // Neighbours in time lie in different batches: rows of one batch differ, which shuffling needs.
        let count = wanted.div_ceil(size.max(1)).max(1);
        let batches = (0..count)
            .map(|b| prepared.iter().skip(b).step_by(count).cloned().collect::<Vec<_>>())
            .filter(|rows| !rows.is_empty())
            .enumerate()
            .map(|(number, rows)| HeldOut::new(&rows, number, processor, config, device))
            .collect::<Result<_, _>>()?;
        Ok(Validator { batches })
    }

    /// Losses of the present weights after `step` optimizer steps.
    pub fn measure(&self, policy: &Policy, step: u64) -> Result<ValidationMetrics, TrainError> {
        let begun = Instant::now();
        let mut sums = [0.0; 3];
        let (mut rows, mut shuffled_rows) = (0, 0);
        for held in &self.batches {
            let own = policy.losses(&held.batch, &held.targets, &held.draw, LossParity::Valid)?;
            sums[0] += own.loss_valid * held.rows as f64;
            sums[1] += own.zero_velocity * held.rows as f64;
            rows += held.rows;
            if let Some(batch) = &held.shuffled {
                let other = policy.losses(batch, &held.targets, &held.draw, LossParity::Valid)?;
                sums[2] += other.loss_valid * held.rows as f64;
                shuffled_rows += held.rows;
            }
        }
        let mean = |sum: f64, rows: usize| sum / rows.max(1) as f64;
        Ok(ValidationMetrics {
            step,
            loss: mean(sums[0], rows),
            zero_velocity: mean(sums[1], rows),
            shuffled: (shuffled_rows == rows).then(|| mean(sums[2], rows)),
            samples: rows as u64,
            seconds: begun.elapsed().as_secs_f64(),
        })
    }
}

impl HeldOut {
    fn new(
        rows: &[Prepared],
        number: usize,
        processor: &Processor,
        config: &TrainConfig,
        device: &Device,
    ) -> Result<HeldOut, TrainError> {
        let (batch, targets) = processor.collate(rows, TokenPadding::Longest, device)?;
        let draw = flow::draw(config, "validation", &[number as u64], rows.len(), device)?;
        // A half turn, so that no row meets a neighbour in time.
        let turned: Vec<usize> = (0..rows.len()).map(|i| (i + rows.len().div_ceil(2)) % rows.len()).collect();
        let shuffled = (rows.len() > 1).then(|| batch.select(&turned)).transpose()?;
        Ok(HeldOut { batch, shuffled, targets, draw, rows: rows.len() })
    }
}
