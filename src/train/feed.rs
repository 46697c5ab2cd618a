//! Batches for the trainer: the loader's samples, processed in its threads, put together on the device.

use std::sync::Arc;

use candle_core::Device;

use super::error::TrainError;
use crate::config::train::AugmentConfig;
use crate::dataset::Dataset;
use crate::dataset::augment::augment;
use crate::dataset::loader::{Loader, LoaderOptions};
use crate::dataset::order::Order;
use crate::policy::batch::{Batch, Targets};
use crate::policy::processor::{Prepared, Processor, ProcessorError, TokenPadding};

/// One micro-batch.
#[derive(Debug)]
pub struct Fed {
    pub batch: Batch,
    pub targets: Targets,
    /// Dataset frame of each observation.
    pub indices: Vec<usize>,
    /// Delay of each row of the targets.
    pub delays: Vec<usize>,
}

/// Delivers micro-batches in an order that depends on seed and position alone.
pub struct Feed {
    loader: Loader<Prepared, ProcessorError>,
    processor: Arc<Processor>,
    device: Device,
    padding: TokenPadding,
}

impl Feed {
    /// Starts the loader's threads. `order` counts the samples of `dataset`; `augment` is keyed by `seed`.
    pub fn new(
        dataset: Arc<Dataset>,
        order: Order,
        options: LoaderOptions,
        processor: Arc<Processor>,
        augmentation: AugmentConfig,
        seed: u64,
        device: Device,
    ) -> Result<Feed, TrainError> {
        let prepare = processor.clone();
        let loader = Loader::new(
            dataset,
            order,
            options,
            Arc::new(move |mut sample, drawn| {
                augment(&mut sample, &augmentation, seed, [drawn.epoch, drawn.sample as u64]);
                prepare.prepare(&sample)
            }),
        )
        .map_err(Box::new)?;
        // On a CPU shapes may change from batch to batch, so no token is computed that no sample has.
        let padding = if device.is_cpu() { TokenPadding::Longest } else { TokenPadding::Fixed };
        Ok(Feed { loader, processor, device, padding })
    }

    /// The next micro-batch.
    pub fn next_batch(&mut self) -> Result<Fed, TrainError> {
        let loaded = self.loader.next_batch().map_err(Box::new)?;
        let (batch, targets) = self.processor.collate(&loaded.items, self.padding, &self.device)?;
        let indices = loaded.items.iter().map(|item| item.index).collect();
        let delays = loaded.items.iter().flat_map(|item| item.delays.iter().copied()).collect();
        Ok(Fed { batch, targets, indices, delays })
    }
}
