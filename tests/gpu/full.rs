//! The published size with random weights: it trains, samples, and stays within its memory.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Instant;

use candle_core::{DType, Device, Error, Result, Tensor};
use rand::Rng;
use rayon::prelude::*;
use vlash_forge::adapter::select::plan_for;
use vlash_forge::bench::train::Recipe;
use vlash_forge::config::train::{AdapterConfig, LossParity};
use vlash_forge::device::memory;
use vlash_forge::policy::arch::Arch;
use vlash_forge::policy::batch::{Batch, Branches, Draw, Targets};
use vlash_forge::policy::flow::{self, TimeSampling};
use vlash_forge::policy::parameters::{ParameterSpec, linears, parameters};
use vlash_forge::policy::weights::WeightSource;
use vlash_forge::policy::{Policy, RandomInit, StepOptions};
use vlash_forge::random::stream;
use vlash_forge::train::adamw::{AdamW, Settings};
use vlash_forge::train::clip::clip;
use vlash_forge::train::first_step;

use crate::parity::record::Record;
use crate::parity::values;
use crate::tolerance::FULL_SIZE_LORA_BYTES;

const STEPS: usize = 3;
const CAMERAS: usize = 3;
/// Of the prompt, padding included; all of them real here.
const PROMPT: usize = 200;
const ACTION_DIM: usize = 7;

/// What trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Training {
    /// Adapters of rank 16 on the linears of all three transformers (`configs/train/pi05_lora.toml`).
    Lora,
    /// VLASH's cloud configuration: the same, the state condition, and embeddings, norms and projections in full.
    Cloud,
}

impl Training {
    /// Trained parameters at the published size.
    fn trained(self) -> usize {
        match self {
            Training::Lora => 35_237_376,
            Training::Cloud => 153_940_128,
        }
    }

    fn adapter(self) -> AdapterConfig {
        Recipe::lora(16, self == Training::Cloud).adapter
    }

    /// The published size; of a dry run on the CPU the tiny one.
    fn arch(self, device: &Device) -> Arch {
        let arch = if device.is_cpu() { Arch::tiny(32) } else { Arch::full_pi05() };
        Arch { state_cond: self == Training::Cloud, ..arch }
    }
}

/// Random weights by name: bf16 at the published size, as a checkpoint of that kind would hold them.
struct Weights(HashMap<String, Tensor>);

impl Weights {
    /// Drawn once for the process, on all cores: one after the other takes a minute.
    fn of(device: &Device) -> Result<&'static Weights> {
        static WEIGHTS: OnceLock<std::result::Result<Weights, String>> = OnceLock::new();
        let drawn = WEIGHTS.get_or_init(|| {
            let (arch, half) = (Training::Cloud.arch(device), !device.is_cpu());
            let draw = |spec: &ParameterSpec| -> Result<(String, Tensor)> {
                let tensor = RandomInit { seed: 1 }.tensor(&spec.name, &spec.shape, &Device::Cpu)?;
                Ok((spec.name.clone(), if half { tensor.to_dtype(DType::BF16)? } else { tensor }))
            };
            let mut specs = parameters(&arch);
            // The largest first, so that no core is left alone with it at the end.
            specs.sort_by_key(|spec| std::cmp::Reverse(spec.elements()));
            let drawn = specs.par_iter().with_max_len(1).map(draw).collect::<Result<HashMap<_, _>>>();
            drawn.map(Weights).map_err(|error| error.to_string())
        });
        drawn.as_ref().map_err(|error| Error::Msg(error.clone()))
    }
}

impl WeightSource for Weights {
    fn tensor(&self, name: &str, shape: &[usize], device: &Device) -> Result<Tensor> {
        self.0.tensor(name, shape, device)
    }
}

/// One sample: three cameras, a prompt without padding.
fn inputs(arch: &Arch, device: &Device) -> Result<(Batch, Targets)> {
    let mut random = stream(2, "full-size-inputs", &[]);
    let mut numbers = |shape: &[usize]| -> Result<Tensor> {
        let values: Vec<f32> = (0..shape.iter().product()).map(|_| random.random_range(-1.0..1.0)).collect();
        Tensor::from_vec(values, shape, device)
    };
    let side = arch.vision.image;
    let images = (0..CAMERAS).map(|_| numbers(&[1, 3, side, side])).collect::<Result<Vec<_>>>()?;
    let state = numbers(&[1, arch.max_state_dim])?;
    let actions = numbers(&[1, arch.chunk_size, ACTION_DIM])?;
    let actions = actions.pad_with_zeros(2, 0, arch.max_action_dim - ACTION_DIM)?;
    let tokens: Vec<u32> = (0..PROMPT).map(|i| (i * 977 % arch.vocab_size) as u32).collect();
    let batch = Batch {
        images,
        image_masks: vec![vec![true]; CAMERAS],
        tokens: Tensor::from_vec(tokens, (1, PROMPT), device)?,
        token_lengths: vec![PROMPT],
        state,
    };
    let is_pad = Tensor::zeros((1, arch.chunk_size), DType::F32, device)?;
    Ok((batch, Targets { actions, is_pad, action_dim: ACTION_DIM, branches: Branches::ONE }))
}

/// Three steps with recomputation at batch 1, one sampled chunk, and the peak of the memory.
pub fn trains_and_samples(device: &Device, training: Training, record: &mut Record) -> Result<()> {
    let (arch, at_size) = (training.arch(device), !device.is_cpu());
    let weights = Weights::of(device)?;
    memory::reset_peak(device);
    let built = Instant::now();
    let names: Vec<String> = parameters(&arch).into_iter().map(|parameter| parameter.name).collect();
    let plan = plan_for(&training.adapter(), &[], 1, &linears(&arch), &names).map_err(Error::wrap)?;
    let dtype = if at_size { DType::BF16 } else { DType::F32 };
    let policy = Policy::build(&arch, weights, &plan, device, dtype)?;
    device.synchronize()?;
    record.number("building the policy", built.elapsed().as_secs_f64(), "s");
    let trained: usize = policy.trained().iter().map(|trained| trained.var.elem_count()).sum();
    record.number("trained parameters", trained as f64, "");
    if at_size {
        assert_eq!(trained, training.trained());
    }
    let (batch, targets) = inputs(&arch, device)?;
    train(&policy, &batch, &targets, record)?;
    let started = Instant::now();
    let noise = draw(&arch, STEPS, device)?.noise;
    let chunk = policy.sample(&batch, &noise, 10)?;
    let chunk = values(&chunk)?;
    record.number("sampling a chunk", started.elapsed().as_secs_f64(), "s");
    assert!(chunk.iter().all(|value| value.is_finite()) && chunk.iter().any(|&value| value != 0.0), "{chunk:?}");
    match memory::read(device) {
        Some(memory) if training == Training::Lora => {
            record.hold("peak of the memory in bytes", "", memory.peak as f64, FULL_SIZE_LORA_BYTES);
        }
        Some(memory) => record.number("peak of the memory", memory.peak as f64 / 1e9, "GB"),
        None => assert!(!at_size, "the memory of the device cannot be read"),
    }
    Ok(())
}

fn draw(arch: &Arch, step: usize, device: &Device) -> Result<Draw> {
    let shape = [1, arch.chunk_size, arch.max_action_dim];
    flow::draw(3, [step as u64, 0], shape, &TimeSampling::default(), device)
}

/// Finite losses; a gradient, finite and not zero, for everything that is to have one.
fn train(policy: &Policy, batch: &Batch, targets: &Targets, record: &mut Record) -> Result<()> {
    let settings = Settings { betas: [0.9, 0.95], eps: 1e-8, weight_decay: 1e-10 };
    let parameters = policy.trained().iter().map(|t| (t.name.clone(), t.var.clone()));
    let mut optimizer = AdamW::new(parameters, settings).map_err(Error::wrap)?;
    let options = StepOptions { parity: LossParity::Valid, recompute: true, dropout_key: None, loss_scale: 1.0 };
    for step in 0..STEPS {
        let started = Instant::now();
        let draw = draw(policy.arch(), step, policy.device())?;
        let output = policy.gradients(batch, targets, &draw, &options)?;
        // From the second step on B is not zero, so that every A has a gradient, too.
        first_step::check(&policy.first_gradients(), &output.gradients).map_err(Error::wrap)?;
        let clipped = clip(&output.gradients, 1.0).map_err(Error::wrap)?;
        optimizer.step(&output.gradients, 1e-4, clipped.coefficient).map_err(Error::wrap)?;
        policy.device().synchronize()?;
        assert!(output.loss.is_finite() && output.loss > 0.0, "step {step}: loss {}", output.loss);
        record.number(&format!("loss of step {step}"), output.loss, "");
        record.number(&format!("step {step}"), started.elapsed().as_secs_f64(), "s");
    }
    Ok(())
}
