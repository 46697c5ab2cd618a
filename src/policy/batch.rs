//! What the network takes: tensors, already processed (resized, normalised, tokenised, padded).

use candle_core::{Device, Result, Tensor, bail};

/// Observations of a batch of B samples.
///
/// A training batch may hold several *branches* of an observation: suffixes over the same images and prompt, each with
/// a state, target, noise and flow time of its own. Everything a branch has is in rows of K branches an observation,
/// row `b·K + k` for branch k of observation b.
#[derive(Debug, Clone)]
pub struct Batch {
    /// One per camera slot in configured order: f32 `[B, 3, R, R]` in [-1, 1]; a slot that no sample has is left out.
    pub images: Vec<Tensor>,
    /// Per camera slot, per sample: present.
    pub image_masks: Vec<Vec<bool>>,
    /// u32 `[B, L]`, right-padded with 0.
    pub tokens: Tensor,
    /// Real tokens at the start of each row of `tokens`.
    pub token_lengths: Vec<usize>,
    /// f32 `[B·K, max_state_dim]`, normalised, zero-padded. Read when the state is not in the prompt.
    pub state: Tensor,
}

impl Batch {
    /// Number of observations B.
    pub fn len(&self) -> usize {
        self.token_lengths.len()
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.token_lengths.is_empty()
    }

    /// The observations at `rows`, in that order, with the states of all their branches; a row may repeat.
    pub fn select(&self, rows: &[usize]) -> Result<Batch> {
        if let Some(row) = rows.iter().find(|&&row| row >= self.len()) {
            bail!("sample {row} of a batch of {}", self.len())
        }
        let ids: Vec<u32> = rows.iter().map(|&row| row as u32).collect();
        let pick = |tensor: &Tensor| tensor.index_select(&Tensor::new(&ids[..], tensor.device())?, 0);
        let mask = |mask: &Vec<bool>| -> Result<Vec<bool>> {
            if mask.len() != self.len() {
                bail!("an image mask of {} entries for {} samples", mask.len(), self.len())
            }
            Ok(rows.iter().map(|&row| mask[row]).collect())
        };
        Ok(Batch {
            images: self.images.iter().map(pick).collect::<Result<_>>()?,
            image_masks: self.image_masks.iter().map(mask).collect::<Result<_>>()?,
            tokens: pick(&self.tokens)?,
            token_lengths: rows.iter().map(|&row| self.token_lengths[row]).collect(),
            state: self.select_states(&ids)?,
        })
    }

    fn select_states(&self, rows: &[u32]) -> Result<Tensor> {
        let (states, width) = self.state.dims2()?;
        let branches = states / self.len().max(1);
        if branches * self.len() != states {
            bail!("{states} states for {} observations", self.len())
        }
        let grouped = self.state.reshape((self.len(), branches * width))?;
        let picked = grouped.index_select(&Tensor::new(rows, self.state.device())?, 0)?;
        picked.reshape((rows.len() * branches, width))
    }

    /// The batch without what is masked in every sample: absent cameras, and token columns behind the longest
    /// prompt. Nothing attends to those and they take no position, so the result of the network is the same.
    pub fn trimmed(&self) -> Result<Batch> {
        let present = |mask: &Vec<bool>| mask.iter().any(|&present| present);
        let keep: Vec<bool> = self.image_masks.iter().map(present).collect();
        let kept = |index: &usize| keep.get(*index).copied().unwrap_or(true);
        let (_, length) = self.tokens.dims2()?;
        let longest = self.token_lengths.iter().copied().max().unwrap_or(0).clamp(1.min(length), length);
        Ok(Batch {
            images: (0..self.images.len()).filter(kept).map(|i| self.images[i].clone()).collect(),
            image_masks: self.image_masks.iter().filter(|mask| present(mask)).cloned().collect(),
            tokens: self.tokens.narrow(1, 0, longest)?,
            token_lengths: self.token_lengths.clone(),
            state: self.state.clone(),
        })
    }

    /// The batch with all its tensors on `device`.
    pub fn to_device(&self, device: &Device) -> Result<Batch> {
        Ok(Batch {
            images: self.images.iter().map(|image| image.to_device(device)).collect::<Result<_>>()?,
            image_masks: self.image_masks.clone(),
            tokens: self.tokens.to_device(device)?,
            token_lengths: self.token_lengths.clone(),
            state: self.state.to_device(device)?,
        })
    }
}

/// What the network should predict.
#[derive(Debug, Clone)]
pub struct Targets {
    /// f32 `[B·K, H, max_action_dim]`, normalised, zero-padded.
    pub actions: Tensor,
    /// f32 `[B·K, H]`: 1 where the step lies past the episode's end.
    pub is_pad: Tensor,
    /// Real action dimensions.
    pub action_dim: usize,
    /// How the rows belong to observations: [`Branches::ONE`] in a plain batch.
    pub branches: Branches,
}

/// How many suffixes stand over each observation, and which of them count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branches {
    /// K, at least 1.
    count: usize,
    /// Rows `b·K + k` that are neither in the loss nor in its denominator, ascending.
    left_out: Vec<usize>,
}

impl Branches {
    /// A plain batch: one suffix an observation, all of which count.
    pub const ONE: Branches = Branches { count: 1, left_out: Vec::new() };

    /// `count` branches an observation. `valid`, a flag a row, says which count; every observation has as many rows.
    ///
    /// # Errors
    /// No branch; rows that are no multiple of `count`.
    pub fn new(count: usize, valid: &[bool]) -> Result<Branches> {
        if count == 0 || !valid.len().is_multiple_of(count) {
            bail!("{} rows in branches of {count}", valid.len())
        }
        let left_out = (0..valid.len()).filter(|&row| !valid[row]).collect();
        Ok(Branches { count, left_out })
    }

    /// K: suffixes an observation.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether the row counts.
    pub fn counts(&self, row: usize) -> bool {
        self.left_out.binary_search(&row).is_err()
    }
}

impl Targets {
    /// The targets with their tensors on `device`.
    pub fn to_device(&self, device: &Device) -> Result<Targets> {
        let (actions, is_pad) = (self.actions.to_device(device)?, self.is_pad.to_device(device)?);
        Ok(Targets { actions, is_pad, ..self.clone() })
    }
}

/// The random part of a training step, injected.
#[derive(Debug, Clone)]
pub struct Draw {
    /// f32 `[B·K, H, max_action_dim]`, N(0, 1).
    pub noise: Tensor,
    /// Flow time: 1 is noise, 0 is data. f32 `[B·K]` in (0, 1], or of each step f32 `[B·K, H]`, where 0 means that the
    /// step's action is given: it enters as it is and is in no loss (training-time RTC, arXiv 2512.05964).
    pub time: Tensor,
}

impl Draw {
    /// By row and step, whether the action is given; empty when every row has one time.
    pub fn given(&self) -> Result<Vec<bool>> {
        if self.time.rank() < 2 {
            return Ok(Vec::new());
        }
        Ok(self.time.flatten_all()?.to_vec1::<f32>()?.into_iter().map(|time| time == 0.0).collect())
    }

    /// The same numbers on `device`.
    pub fn to_device(&self, device: &Device) -> Result<Draw> {
        Ok(Draw { noise: self.noise.to_device(device)?, time: self.time.to_device(device)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::DType;

    fn batch() -> Result<Batch> {
        let device = &Device::Cpu;
        Ok(Batch {
            images: vec![
                Tensor::ones((3, 3, 2, 2), DType::F32, device)?,
                Tensor::zeros((3, 3, 2, 2), DType::F32, device)?,
            ],
            image_masks: vec![vec![true, false, true], vec![false; 3]],
            tokens: Tensor::new(&[[5u32, 0, 0, 0], [6, 7, 0, 0], [8, 0, 0, 0]], device)?,
            token_lengths: vec![1, 2, 1],
            state: Tensor::new(&[[0f32], [1.], [2.]], device)?,
        })
    }

    #[test]
    fn selection_takes_every_part_of_the_samples() -> Result<()> {
        let two = batch()?.select(&[2, 1])?;
        assert_eq!(two.tokens.to_vec2::<u32>()?, [[8, 0, 0, 0], [6, 7, 0, 0]]);
        assert_eq!((two.token_lengths, two.image_masks), (vec![1, 2], vec![vec![true, false], vec![false; 2]]));
        assert_eq!(two.state.to_vec2::<f32>()?, [[2.], [1.]]);
        assert_eq!(two.images[0].dims(), [2, 3, 2, 2]);
        assert!(batch()?.select(&[3]).is_err());
        Ok(())
    }

    #[test]
    fn branches_move_with_their_observation() -> Result<()> {
        let states = Tensor::new(&[[0f32], [0.5], [1.], [1.5], [2.], [2.5]], &Device::Cpu)?;
        let two = Batch { state: states.clone(), ..batch()? }.select(&[2, 0])?;
        assert_eq!(two.state.to_vec2::<f32>()?, [[2.], [2.5], [0.], [0.5]]);
        assert!(Batch { state: states.narrow(0, 0, 5)?, ..batch()? }.select(&[0]).is_err());
        let branches = Branches::new(2, &[true, false, true, true])?;
        assert_eq!((0..4).map(|row| branches.counts(row)).collect::<Vec<_>>(), [true, false, true, true]);
        assert_eq!(Branches::new(1, &[true; 4])?, Branches::ONE);
        assert!(Branches::new(0, &[]).is_err() && Branches::new(3, &[true; 4]).is_err());
        Ok(())
    }

    #[test]
    fn trimming_leaves_out_what_nobody_has() -> Result<()> {
        let trimmed = batch()?.trimmed()?;
        assert_eq!((trimmed.images.len(), trimmed.image_masks.len()), (1, 1));
        assert_eq!(trimmed.tokens.dims(), [3, 2]);
        Ok(())
    }
}
