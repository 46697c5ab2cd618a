//! One training sample as it lies in the dataset: raw units, before the policy's processor.

use std::sync::Arc;

use super::frame::RgbFrame;

/// Frame t of an episode with action windows that start some frames later: one (a plain sample), or several, the
/// *branches* of one observation (VLASH's shared observation, arXiv 2512.01031). Each branch is what a plain sample of
/// its delay would hold; images and task are there once.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Global frame index of t, as in the dataset's `index` column.
    pub index: usize,
    pub episode: usize,
    /// t within its episode.
    pub frame: usize,
    /// The delay offset o of each branch in frames: `[0]` without temporal delay augmentation.
    pub delays: Vec<usize>,
    /// Camera images of frame t, by feature name **after** `data.rename`, in the dataset's feature order.
    pub images: Vec<(String, Arc<RgbFrame>)>,
    /// `[branches, state_dim]` row-major, raw units: the state of frame t, or of the future where the delay is not 0 (see
    /// `window`).
    pub state: Vec<f32>,
    /// `[branches, horizon, action_dim]` row-major, raw units.
    pub actions: Vec<f32>,
    /// `[branches, horizon]`: true where the step lies past the episode's end.
    pub action_is_pad: Vec<bool>,
    /// `[branches]`: the branch counts in the loss. The dataset's all do, as in VLASH since April 2026: a branch that
    /// begins past the episode's end is padding from its first step.
    pub valid: Vec<bool>,
    /// The task's text, as stored.
    pub task: String,
}
