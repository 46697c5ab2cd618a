//! What the network takes: tensors, already processed (resized, normalised, tokenised, padded).

use candle_core::Tensor;

/// Observations of a batch of B samples.
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
    /// f32 `[B, max_state_dim]`, normalised, zero-padded. Read when the state is not in the prompt.
    pub state: Tensor,
}

/// What the network should predict.
#[derive(Debug, Clone)]
pub struct Targets {
    /// f32 `[B, H, max_action_dim]`, normalised, zero-padded.
    pub actions: Tensor,
    /// f32 `[B, H]`: 1 where the step lies past the episode's end.
    pub is_pad: Tensor,
    /// Real action dimensions.
    pub action_dim: usize,
}

/// The random part of a training step, injected.
#[derive(Debug, Clone)]
pub struct Draw {
    /// f32 `[B, H, max_action_dim]`, N(0, 1).
    pub noise: Tensor,
    /// f32 `[B]`, flow time in (0, 1]: 1 is noise, 0 is data.
    pub time: Tensor,
}
