//! The yardstick policy and its inputs: tiny sizes with an expert of width 64, batch 16, one 56×56 camera, prompts of
//! 60 tokens, chunks of 10.

use candle_core::{DType, Device, Result, Tensor};
use vlash_forge::adapter::plan::{LoraSpec, TrainPlan};
use vlash_forge::config::train::{LossParity, PolicyKind};
use vlash_forge::policy::arch::{Arch, GemmaArch, VisionArch};
use vlash_forge::policy::batch::{Batch, Branches, Draw, Targets};
use vlash_forge::policy::{Policy, RandomInit, StepOptions, flow};

pub const BATCH: usize = 16;
const TOKENS: usize = 60;

/// Keeps candle's own threads for elementwise operations off: they wait for each other in a loop, which on a busy
/// machine costs several times what they gain.
#[expect(unsafe_code, reason = "candle takes this setting from the environment only")]
pub fn leave_threads_to_rayon() {
    // SAFETY: called first in `main`, while no other thread runs.
    unsafe { std::env::set_var("CANDLE_NUM_THREADS", "1") };
}

fn arch() -> Arch {
    let gemma = GemmaArch {
        width: 64,
        depth: 3,
        mlp: 128,
        heads: 8,
        kv_heads: 1,
        head_dim: 16,
        rms_norm_eps: 1e-6,
        rope_theta: 10000.0,
    };
    Arch {
        kind: PolicyKind::Pi05,
        vision: VisionArch { width: 64, depth: 2, heads: 4, mlp: 108, patch: 14, image: 56, layer_norm_eps: 1e-6 },
        vlm: gemma.clone(),
        expert: gemma,
        vocab_size: 1024,
        chunk_size: 10,
        max_state_dim: 32,
        max_action_dim: 32,
        state_cond: false,
        min_period: 4e-3,
        max_period: 4.0,
    }
}

/// Adapters of rank 8 on every linear of the three transformers.
pub struct Adapters;

impl TrainPlan for Adapters {
    fn lora(&self, module: &str) -> Option<LoraSpec> {
        let hit = module.contains("self_attn.") || module.contains("mlp.");
        hit.then_some(LoraSpec { rank: 8, scale: 2.0, dropout: 0.0 })
    }
    fn trains(&self, _parameter: &str) -> bool {
        false
    }
    fn seed(&self) -> u64 {
        0
    }
}

/// `branches` action chunks for each of `frames` observations.
fn inputs([frames, branches]: [usize; 2], device: &Device) -> Result<(Batch, Targets)> {
    let rows = frames * branches;
    let batch = Batch {
        images: vec![Tensor::rand(-1f32, 1f32, (frames, 3, 56, 56), device)?],
        image_masks: vec![vec![true; frames]],
        tokens: (Tensor::rand(0f32, 1000f32, (frames, TOKENS), device)?).to_dtype(DType::U32)?,
        token_lengths: vec![TOKENS; frames],
        state: Tensor::rand(-1f32, 1f32, (rows, 32), device)?,
    };
    let targets = Targets {
        actions: Tensor::rand(-1f32, 1f32, (rows, 10, 32), device)?,
        is_pad: Tensor::zeros((rows, 10), DType::F32, device)?,
        action_dim: 7,
        branches: Branches::new(branches, &vec![true; rows])?,
    };
    Ok((batch, targets))
}

/// A policy with everything that a training step takes.
pub struct Yardstick {
    pub policy: Policy,
    pub batch: Batch,
    targets: Targets,
    draw: Draw,
    options: StepOptions,
}

impl Yardstick {
    /// `depth` layers in both Gemmas.
    pub fn new(plan: &dyn TrainPlan, depth: usize, recompute: bool) -> Result<Self> {
        let mut arch = arch();
        (arch.vlm.depth, arch.expert.depth) = (depth, depth);
        Self::of(&arch, plan, recompute, [BATCH, 1])
    }

    /// Conditioned on the state, with some delays of each of some frames: `[frames, delays]`.
    #[allow(dead_code, reason = "each bench uses a part")]
    pub fn shared(plan: &dyn TrainPlan, batch: [usize; 2]) -> Result<Self> {
        Self::of(&Arch { state_cond: true, ..arch() }, plan, false, batch)
    }

    fn of(arch: &Arch, plan: &dyn TrainPlan, recompute: bool, batch: [usize; 2]) -> Result<Self> {
        let device = Device::Cpu;
        let policy = Policy::build(arch, &RandomInit { seed: 1 }, plan, &device, DType::F32)?;
        let rows = batch[0] * batch[1];
        let (batch, targets) = inputs(batch, &device)?;
        let draw = flow::draw(1, [0, 0], [rows, 10, 32], &flow::TimeSampling::default(), &device)?;
        let options = StepOptions { parity: LossParity::Valid, recompute, dropout_key: None, loss_scale: 1.0 };
        Ok(Self { policy, batch, targets, draw, options })
    }

    /// Forward and backward; the loss.
    pub fn step(&self) -> Result<f64> {
        Ok(self.policy.gradients(&self.batch, &self.targets, &self.draw, &self.options)?.loss)
    }
}
