//! Sizes of the network.

use crate::config::train::PolicyKind;

/// All sizes of a policy network. Source: openpi's `gemma.py` and `siglip.py` variants, LeRobot's `modeling_pi05.py`.
#[derive(Debug, Clone, PartialEq)]
pub struct Arch {
    pub kind: PolicyKind,
    pub vision: VisionArch,
    /// The language model (Gemma-2B in the full size).
    pub vlm: GemmaArch,
    /// The action expert (Gemma-300M in the full size).
    pub expert: GemmaArch,
    pub vocab_size: usize,
    pub chunk_size: usize,
    pub max_state_dim: usize,
    pub max_action_dim: usize,
    /// Condition the action expert on the state (VLASH's addition to π₀.₅) instead of writing it into the prompt.
    pub state_cond: bool,
    /// Shortest and longest period of the time embedding.
    pub min_period: f64,
    pub max_period: f64,
}

/// SigLIP.
#[derive(Debug, Clone, PartialEq)]
pub struct VisionArch {
    pub width: usize,
    pub depth: usize,
    pub heads: usize,
    pub mlp: usize,
    pub patch: usize,
    /// Side of the square input in pixels.
    pub image: usize,
    pub layer_norm_eps: f64,
}

/// One Gemma stream.
#[derive(Debug, Clone, PartialEq)]
pub struct GemmaArch {
    pub width: usize,
    pub depth: usize,
    pub mlp: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub rms_norm_eps: f64,
    pub rope_theta: f64,
}

impl VisionArch {
    /// Tokens per image.
    pub fn tokens(&self) -> usize {
        (self.image / self.patch).pow(2)
    }
}
