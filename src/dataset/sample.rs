//! One training sample as it lies in the dataset: raw units, before the policy's processor.

use std::sync::Arc;

use super::frame::RgbFrame;

/// Frame t of an episode with the action window that starts `delay` frames later.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Global frame index of t, as in the dataset's `index` column.
    pub index: usize,
    pub episode: usize,
    /// t within its episode.
    pub frame: usize,
    /// Delay offset o in frames (0 without temporal delay augmentation).
    pub delay: usize,
    /// Camera images of frame t, by feature name **after** `data.rename`, in the dataset's feature order.
    pub images: Vec<(String, Arc<RgbFrame>)>,
    /// `[state_dim]`, raw units: the state of frame t, or of the future when `delay > 0` (see `window`).
    pub state: Vec<f32>,
    /// `[horizon, action_dim]` row-major, raw units.
    pub actions: Vec<f32>,
    /// `[horizon]`: true where the step lies past the episode's end.
    pub action_is_pad: Vec<bool>,
    /// The task's text, as stored.
    pub task: String,
}
