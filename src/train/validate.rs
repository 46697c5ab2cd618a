//! Held-out losses: always the same samples, delays and draws, so that two validations differ by the weights alone.
//!
//! A run that trains delays is measured on all of them, and by each. Where the state is not in the prompt every held-out
//! frame has all delays as branches, whether training draws one or takes all: two such runs are measured on the same.
//! With the state in the prompt the delays go round from frame to frame.

use std::sync::Arc;
use std::time::Instant;

use candle_core::Device;
use rayon::prelude::*;

use super::error::TrainError;
use super::meter::ByDelay;
use super::prepare::time_sampling;
use crate::config::train::{LossParity, TrainConfig};
use crate::dataset::window::{WindowSpec, largest_delay};
use crate::dataset::{Dataset, DatasetError};
use crate::policy::batch::{Batch, Draw, Targets};
use crate::policy::processor::{Prepared, Processor, TokenPadding};
use crate::policy::{Policy, flow};
use crate::track::event::ValidationMetrics;

/// The prepared held-out batches, on the host: a device holds one of them at a time, as in training.
pub struct Validator {
    batches: Vec<HeldOut>,
    max_delay: usize,
}

struct HeldOut {
    batch: Batch,
    /// The same rows with every row's observation taken from another sample.
    shuffled: Option<Batch>,
    targets: Targets,
    draw: Draw,
    /// Delay of each row of the targets.
    delays: Vec<usize>,
    frames: usize,
}

impl Validator {
    /// Reads and prepares up to `validation.batches` batches, spread evenly over the frames of `dataset`.
    pub fn new(
        dataset: &Dataset,
        window: &WindowSpec,
        processor: &Arc<Processor>,
        config: &TrainConfig,
    ) -> Result<Validator, TrainError> {
        let size = config.train.batch_size;
        let wanted = (config.validation.batches * size).min(dataset.len());
        let positions: Vec<usize> = (0..wanted).map(|i| i * dataset.len() / wanted.max(1)).collect();
        let prepared: Vec<Prepared> = positions
            .par_iter()
            .enumerate()
            .map(|(number, &position)| {
                let delays = delays(dataset, position, number, config)?;
                Ok(processor.prepare(&dataset.branches(position, window, delays)?)?)
            })
            .collect::<Result<_, TrainError>>()?;
        // Neighbours in time lie in different batches: rows of one batch differ, which shuffling needs.
        let count = wanted.div_ceil(size.max(1)).max(1);
        let batches = (0..count)
            .map(|b| prepared.iter().skip(b).step_by(count).cloned().collect::<Vec<_>>())
            .filter(|rows| !rows.is_empty())
            .enumerate()
            .map(|(number, rows)| HeldOut::new(&rows, number, processor, config))
            .collect::<Result<_, _>>()?;
        Ok(Validator { batches, max_delay: config.train.delay.max })
    }

    /// Losses of the present weights after `step` optimizer steps.
    pub fn measure(&self, policy: &Policy, step: u64) -> Result<ValidationMetrics, TrainError> {
        let begun = Instant::now();
        let mut sums = [0.0; 3];
        let (mut frames, mut shuffled_frames) = (0, 0);
        let mut by_delay = ByDelay::up_to(self.max_delay);
        let device = policy.device();
        for held in &self.batches {
            let (targets, draw) = (held.targets.to_device(device)?, held.draw.to_device(device)?);
            let losses = |batch: &Batch| policy.losses(&batch.to_device(device)?, &targets, &draw, LossParity::Valid);
            let own = losses(&held.batch)?;
            sums[0] += own.loss_valid * held.frames as f64;
            sums[1] += own.zero_velocity * held.frames as f64;
            by_delay.add(&held.delays, &own.rows);
            frames += held.frames;
            if let Some(batch) = &held.shuffled {
                let other = losses(batch)?;
                sums[2] += other.loss_valid * held.frames as f64;
                shuffled_frames += held.frames;
            }
        }
        let mean = |sum: f64| sum / frames.max(1) as f64;
        Ok(ValidationMetrics {
            step,
            loss: mean(sums[0]),
            zero_velocity: mean(sums[1]),
            shuffled: (shuffled_frames == frames).then(|| mean(sums[2])),
            loss_by_delay: by_delay.means(),
            samples: frames as u64,
            seconds: begun.elapsed().as_secs_f64(),
        })
    }
}

/// The delays of held-out frame `number`, which lies at `position`.
fn delays(dataset: &Dataset, position: usize, number: usize, config: &TrainConfig) -> Result<Vec<usize>, DatasetError> {
    let max = config.train.delay.max;
    if config.model.state_cond {
        return Ok((0..=max).collect());
    }
    let (episode, frame) = dataset.locate(position)?;
    Ok(vec![number % (largest_delay(frame, episode.rows.length, max) + 1)])
}

impl HeldOut {
    fn new(
        rows: &[Prepared],
        number: usize,
        processor: &Processor,
        config: &TrainConfig,
    ) -> Result<HeldOut, TrainError> {
        let device = &Device::Cpu;
        let (batch, targets) = processor.collate(rows, TokenPadding::Longest, device)?;
        let shape: [usize; 3] = targets.actions.dims3()?.into();
        // No training step has this number, so no training draw repeats here.
        let draw = flow::draw(config.run.seed, [u64::MAX, number as u64], shape, &time_sampling(config), device)?;
        // A half turn, so that no row meets a neighbour in time.
        let turned: Vec<usize> = (0..rows.len()).map(|i| (i + rows.len().div_ceil(2)) % rows.len()).collect();
        let shuffled = (rows.len() > 1).then(|| batch.select(&turned)).transpose()?;
        let delays = rows.iter().flat_map(|row| row.delays.iter().copied()).collect();
        Ok(HeldOut { batch, shuffled, targets, draw, delays, frames: rows.len() })
    }
}
