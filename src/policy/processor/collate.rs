//! Prepared samples to tensors of a batch.

use candle_core::{Device, Tensor};

use super::{Observation, Prepared, Processor, ProcessorError};
use crate::policy::batch::{Batch, Branches, Targets};

/// How long the token rows of a batch are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenPadding {
    /// As the longest prompt of the batch: the least work.
    Longest,
    /// `tokenizer_max_length` always: shapes never change between batches.
    Fixed,
}

impl Processor {
    /// A training batch on `device`. All samples have as many branches as the first.
    pub fn collate(
        &self,
        samples: &[Prepared],
        padding: TokenPadding,
        device: &Device,
    ) -> Result<(Batch, Targets), ProcessorError> {
        let observations: Vec<&Observation> = samples.iter().map(|sample| &sample.observation).collect();
        let batch = self.collate_observations(&observations, padding, device)?;
        let branches = samples.first().map_or(1, |sample| sample.delays.len());
        let (rows, chunk) = (samples.len() * branches, self.spec.chunk_size);
        let valid: Vec<bool> = samples.iter().flat_map(|s| s.valid.iter().copied()).collect();
        let actions: Vec<f32> = samples.iter().flat_map(|s| s.actions.iter().copied()).collect();
        let is_pad: Vec<f32> =
            samples.iter().flat_map(|s| s.is_pad.iter().map(|&pad| f32::from(u8::from(pad)))).collect();
        let targets = Targets {
            actions: tensor("actions", actions, &[rows, chunk, self.spec.max_action_dim], device)?,
            is_pad: tensor("action_is_pad", is_pad, &[rows, chunk], device)?,
            action_dim: self.spec.action_dim,
            branches: Branches::new(branches, &valid)
                .map_err(|source| ProcessorError::Device { what: "the branches", source })?,
        };
        Ok((batch, targets))
    }

    /// A batch without targets, as at inference. A camera slot that no sample has is left out.
    pub fn collate_observations(
        &self,
        samples: &[&Observation],
        padding: TokenPadding,
        device: &Device,
    ) -> Result<Batch, ProcessorError> {
        let rows = samples.len();
        let token_lengths: Vec<usize> = samples.iter().map(|sample| sample.tokens.len()).collect();
        let longest = token_lengths.iter().copied().max().ok_or(ProcessorError::EmptyBatch)?;
        let length = match padding {
            TokenPadding::Longest => longest,
            TokenPadding::Fixed => self.spec.tokenizer_max_length.max(longest),
        };
        let mut tokens = vec![0u32; rows * length];
        for (row, sample) in tokens.chunks_mut(length.max(1)).zip(samples) {
            row[..sample.tokens.len()].copy_from_slice(&sample.tokens);
        }
        let (mut images, mut image_masks) = (Vec::new(), Vec::new());
        for slot in 0..self.spec.cameras.len() {
            if let Some((pixels, mask)) = self.slot(samples, slot) {
                images.push(tensor(
                    "images",
                    pixels,
                    &[rows, 3, self.spec.image.height, self.spec.image.width],
                    device,
                )?);
                image_masks.push(mask);
            }
        }
        let state: Vec<f32> = samples.iter().flat_map(|sample| sample.state.iter().copied()).collect();
        let states = state.len() / self.spec.max_state_dim.max(1);
        Ok(Batch {
            images,
            image_masks,
            tokens: tensor("tokens", tokens, &[rows, length], device)?,
            token_lengths,
            state: tensor("state", state, &[states, self.spec.max_state_dim], device)?,
        })
    }

    /// Pixels of one camera slot over the batch, black where a sample lacks it; none when all do.
    fn slot(&self, samples: &[&Observation], slot: usize) -> Option<(Vec<f32>, Vec<bool>)> {
        let frames: Vec<Option<&Vec<f32>>> =
            samples.iter().map(|sample| sample.images.get(slot).and_then(Option::as_ref)).collect();
        if frames.iter().all(Option::is_none) {
            return None;
        }
        let size = 3 * self.spec.image.height * self.spec.image.width;
        let mut pixels = Vec::with_capacity(samples.len() * size);
        for frame in &frames {
            match frame {
                Some(frame) => pixels.extend_from_slice(frame),
                None => pixels.resize(pixels.len() + size, super::image::PAD),
            }
        }
        Some((pixels, frames.iter().map(Option::is_some).collect()))
    }
}

fn tensor<T: candle_core::WithDType>(
    what: &'static str,
    values: Vec<T>,
    shape: &[usize],
    device: &Device,
) -> Result<Tensor, ProcessorError> {
    Tensor::from_vec(values, shape, device).map_err(|source| ProcessorError::Device { what, source })
}
