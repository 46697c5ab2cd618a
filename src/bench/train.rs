//! Optimizer steps on synthetic batches: the policy's gradients, clipping and AdamW as the trainer runs them.

use std::collections::BTreeMap;
use std::time::Instant;

use candle_core::Tensor;
use serde_json::{Value, json};

use super::error::BenchError;
use super::infer::sizes;
use super::inputs;
use super::place::{Place, Wanted};
use super::report::{Kind, Measure, Memory, Report, SCHEMA};
use crate::adapter::select::{Plan, plan_for};
use crate::config::train::{AdapterConfig, Dtype, Freeze, LossParity, OptimConfig, Preset, TrainConfig};
use crate::device;
use crate::plan::cost::{self, Shape};
use crate::policy::arch::Arch;
use crate::policy::batch::{Batch, Targets};
use crate::policy::flow::{self, TimeSampling};
use crate::policy::parameters::{linears, parameters};
use crate::policy::{Policy, RandomInit, StepOptions};
use crate::train::adamw::{self, AdamW};
use crate::train::{TrainError, clip, first_step, trainer};

/// The linears that the predecessors put adapters on, vision tower included.
const TARGETS: [&str; 10] =
    ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "out_proj", "fc1", "fc2"];
/// What the predecessors train in full beside them (VLASH's `extra_trainable_modules`).
const EXTRAS: [&str; 10] = [
    "action_in_proj",
    "action_out_proj",
    "state_proj",
    "state_mlp_in",
    "state_mlp_out",
    "time_mlp_in",
    "time_mlp_out",
    "embeddings",
    "input_layernorm",
    "post_attention_layernorm",
];

/// What trains.
#[derive(Debug, Clone)]
pub struct Recipe {
    pub adapter: AdapterConfig,
    pub freeze: Vec<Freeze>,
}

impl Recipe {
    /// Adapters of `rank` on every linear; with `extras` also what the predecessors train in full.
    pub fn lora(rank: usize, extras: bool) -> Recipe {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect();
        let adapter = AdapterConfig {
            enabled: true,
            rank,
            alpha: rank as f64,
            dropout: 0.0,
            rslora: false,
            targets: names(&TARGETS),
            also_train: if extras { names(&EXTRAS) } else { Vec::new() },
            quantize: None,
        };
        Recipe { adapter, freeze: Vec::new() }
    }

    /// Every parameter.
    pub fn full() -> Recipe {
        let Recipe { adapter, freeze } = Recipe::lora(1, false);
        Recipe { adapter: AdapterConfig { enabled: false, ..adapter }, freeze }
    }
}

/// Sizes of the network.
#[derive(Debug, Clone)]
pub enum Sizes {
    /// A preset's, conditioned on the state where the recipe trains that branch or delays are shared; none: `full` on a
    /// GPU, else `tiny`.
    Preset(Option<Preset>),
    Of(Box<Arch>),
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct Settings {
    pub place: Wanted,
    pub sizes: Sizes,
    pub recipe: Recipe,
    /// None: clipping to 1, and the AdamW of VLASH's configurations.
    pub optim: Option<OptimConfig>,
    pub parity: LossParity,
    /// Frames of a micro-step.
    pub batch: usize,
    pub cameras: usize,
    /// Prompt tokens.
    pub prompt: usize,
    pub recompute: bool,
    /// Train the delays 0 … D of a frame over one prefix (VLASH's shared observation), and in a second measurement a
    /// drawn one of each of as many frames. None: the second alone.
    pub shared: Option<usize>,
    /// Micro-steps of a step.
    pub accum: usize,
    /// Steps that count, and steps before them.
    pub steps: usize,
    pub warmup: usize,
    pub seed: u64,
}

impl Settings {
    /// Sizes, recipe, batch and precision of a configuration; its dataset and base are not touched.
    pub fn of_config(config: &TrainConfig, otherwise: Settings) -> Result<Settings, BenchError> {
        Ok(Settings {
            place: Wanted {
                device: config.runtime.device,
                // As in training, where the CPU computes in f32 whatever is asked.
                dtype: otherwise.place.dtype.or((config.model.dtype == Dtype::Float32).then_some(Dtype::Float32)),
            },
            sizes: Sizes::Of(Box::new(Arch::from_model(&config.model)?)),
            recipe: Recipe { adapter: config.adapter.clone(), freeze: config.model.freeze.clone() },
            optim: Some(config.optim.clone()),
            parity: config.loss.parity,
            batch: config.train.batch_size,
            recompute: config.train.activation_checkpointing,
            shared: config.train.delay.shared.then_some(config.train.delay.max),
            accum: config.train.grad_accum,
            seed: config.run.seed,
            ..otherwise
        })
    }
}

/// Measures optimizer steps.
pub fn run(settings: &Settings) -> Result<Report, BenchError> {
    let place = Place::open(settings.place, Instant::now())?;
    let arch = arch(settings, &place);
    let plan = plan(&arch, settings)?;
    let policy = Policy::build(&arch, &RandomInit { seed: settings.seed }, &plan, &place.device, place.tensor_dtype())?;
    let optimizer = optimizer(&policy, settings)?;
    place.device.synchronize()?;
    let loaded = place.used();
    let mut bench = Bench { settings, place: &place, policy: &policy, optimizer, peak: None, notes: place.notes() };
    let one = Shape { batch: settings.batch, cameras: settings.cameras, prompt: settings.prompt, suffixes: 1 };
    let (mut measures, mut rates) = (Vec::new(), BTreeMap::new());
    if let Some(delays) = settings.shared {
        let all = Shape { suffixes: delays + 1, ..one };
        bench.measure("shared: ", &all, &plan, &mut measures, &mut rates)?;
    }
    let name = if settings.shared.is_some() { "drawn: " } else { "" };
    bench.measure(name, &one, &plan, &mut measures, &mut rates)?;
    let memory = Memory { device_peak: bench.peak, ..place.memory(loaded) };
    let elements: usize = policy.trained().iter().map(|trained| trained.var.elem_count()).sum();
    rates.insert("trained_parameters".into(), elements as f64);
    let notes = std::mem::take(&mut bench.notes);
    Ok(Report {
        schema: SCHEMA,
        kind: Kind::Train,
        origin: place.origin(),
        settings: described(settings, &place, &arch),
        memory,
        ceilings: Some(place.ceilings),
        measures,
        rates,
        notes,
    })
}

fn arch(settings: &Settings, place: &Place) -> Arch {
    let adapter = &settings.recipe.adapter;
    match &settings.sizes {
        Sizes::Of(arch) => (**arch).clone(),
        Sizes::Preset(preset) => Arch {
            state_cond: settings.shared.is_some() || adapter.also_train.iter().any(|name| name.starts_with("state_")),
            ..sizes(place.preset(*preset))
        },
    }
}

fn plan(arch: &Arch, settings: &Settings) -> Result<Plan, BenchError> {
    let names: Vec<String> = parameters(arch).into_iter().map(|parameter| parameter.name).collect();
    let Recipe { adapter, freeze } = &settings.recipe;
    Ok(plan_for(adapter, freeze, settings.seed, &linears(arch), &names)?)
}

fn optimizer(policy: &Policy, settings: &Settings) -> Result<AdamW, BenchError> {
    let constants = match &settings.optim {
        Some(optim) => adamw::Settings::from(optim),
        None => adamw::Settings { betas: [0.9, 0.95], eps: 1e-8, weight_decay: 1e-10 },
    };
    let parameters = policy.trained().iter().map(|trained| (trained.name.clone(), trained.var.clone()));
    Ok(AdamW::new(parameters, constants).map_err(TrainError::from)?)
}

struct Bench<'a> {
    settings: &'a Settings,
    place: &'a Place,
    policy: &'a Policy,
    optimizer: AdamW,
    /// The most that the device held, of all measurements.
    peak: Option<u64>,
    notes: Vec<String>,
}

/// Seconds of one step, by part.
#[derive(Default)]
struct Times {
    whole: Vec<f64>,
    forward: Vec<f64>,
    backward: Vec<f64>,
    clip: Vec<f64>,
    optimizer: Vec<f64>,
    loss: Vec<f64>,
}

impl Bench<'_> {
    /// Steps over batches of `shape`; names begin with `prefix`.
    fn measure(
        &mut self,
        prefix: &str,
        shape: &Shape,
        plan: &Plan,
        measures: &mut Vec<Measure>,
        rates: &mut BTreeMap<String, f64>,
    ) -> Result<(), BenchError> {
        let Settings { steps, warmup, accum, seed, .. } = *self.settings;
        let (arch, device) = (self.policy.arch(), &self.place.device);
        let batch = inputs::batch(arch, shape, seed)?.to_device(device)?;
        let targets = inputs::targets(arch, shape, seed)?.to_device(device)?;
        device::memory::reset_peak(device);
        let mut times = Times::default();
        for step in 0..warmup + steps {
            if step == warmup {
                times = Times { loss: times.loss, ..Times::default() };
            }
            self.step(step as u64, &batch, &targets, &mut times)?;
        }
        if times.loss.iter().any(|loss| !loss.is_finite()) {
            return Err(BenchError::NotFinite { what: "the loss" });
        }
        if let (Some(first), Some(last)) = (times.loss.first(), times.loss.last()) {
            self.notes.push(format!("{prefix}loss {first:.4} → {last:.4} over {} steps", times.loss.len()));
        }
        let work = cost::training(arch, shape, plan, self.settings.recompute, self.place.dtype);
        let (forward, backward) = (work.forward * accum as f64, work.backward * accum as f64);
        let ceilings = &self.place.ceilings;
        let named = |name: &str, times: &[f64]| Measure::of(format!("{prefix}{name}"), times);
        let whole = named("step", &times.whole).works(&[forward, backward, work.clip, work.optimizer], ceilings);
        let step_s = whole.seconds.p50.max(f64::MIN_POSITIVE);
        measures.extend([
            whole,
            named("forward", &times.forward).work(&forward, ceilings),
            named("backward", &times.backward).work(&backward, ceilings),
            named("clip", &times.clip).work(&work.clip, ceilings),
            named("optimizer", &times.optimizer).work(&work.optimizer, ceilings),
        ]);
        let (frames, chunks) = (shape.batch * accum, shape.batch * shape.suffixes * accum);
        let tokens = frames * shape.prefix(arch) + chunks * arch.chunk_size;
        if let Some(peak) = self.place.memory(None).device_peak {
            self.peak = self.peak.max(Some(peak));
            rates.insert(format!("{prefix}device_peak_bytes"), peak as f64);
        }
        let counts = [("frames_per_s", frames), ("samples_per_s", chunks), ("tokens_per_s", tokens)];
        rates.extend(counts.map(|(name, count)| (format!("{prefix}{name}"), count as f64 / step_s)));
        Ok(())
    }

    /// One optimizer step.
    fn step(&mut self, step: u64, batch: &Batch, targets: &Targets, times: &mut Times) -> Result<(), BenchError> {
        let device = &self.place.device;
        let synchronised = |since: Instant| -> Result<f64, BenchError> {
            device.synchronize()?;
            Ok(since.elapsed().as_secs_f64())
        };
        let whole = Instant::now();
        let (mut forward, mut backward, mut loss) = (0.0, 0.0, 0.0);
        let mut gradients: BTreeMap<String, Tensor> = BTreeMap::new();
        let scale = 1.0 / self.settings.accum as f64;
        for micro in 0..self.settings.accum as u64 {
            let rows = targets.actions.dims3()?.into();
            let draw = flow::draw(self.settings.seed, [step, micro], rows, &TimeSampling::default(), device)?;
            let options = StepOptions {
                parity: self.settings.parity,
                recompute: self.settings.recompute,
                dropout_key: None,
                loss_scale: scale,
            };
            let begun = Instant::now();
            let output = self.policy.gradients(batch, targets, &draw, &options)?;
            // The loss is read on the host, so the forward has ended when its time is taken; the backward has not.
            forward += output.forward_s;
            backward += synchronised(begun)? - output.forward_s;
            loss += output.loss * scale;
            trainer::add(&mut gradients, output.gradients)?;
        }
        if step == 0 {
            first_step::check(&self.policy.first_gradients(), &gradients).map_err(TrainError::from)?;
        }
        let optim = self.settings.optim.as_ref();
        let begun = Instant::now();
        let clip = clip::clip(&gradients, optim.map_or(1.0, |optim| optim.grad_clip_norm)).map_err(TrainError::from)?;
        times.clip.push(synchronised(begun)?);
        let begun = Instant::now();
        self.optimizer
            .step(&gradients, optim.map_or(5e-5, |optim| optim.lr), clip.coefficient)
            .map_err(TrainError::from)?;
        times.optimizer.push(synchronised(begun)?);
        times.forward.push(forward);
        times.backward.push(backward);
        times.loss.push(loss);
        times.whole.push(synchronised(whole)?);
        Ok(())
    }
}

fn described(settings: &Settings, place: &Place, arch: &Arch) -> BTreeMap<String, Value> {
    let Settings { recipe: Recipe { adapter, freeze }, .. } = settings;
    let trains = match adapter.enabled {
        true => json!({ "rank": adapter.rank, "targets": adapter.targets, "also_train": adapter.also_train }),
        false => json!("every parameter"),
    };
    let pairs = [
        ("vlm_width", json!(arch.vlm.width)),
        ("state_cond", json!(arch.state_cond)),
        ("trains", trains),
        ("freeze", json!(freeze)),
        ("dtype", json!(place.dtype)),
        ("batch", json!(settings.batch)),
        ("cameras", json!(settings.cameras)),
        ("prompt", json!(settings.prompt)),
        ("chunk", json!(arch.chunk_size)),
        ("recompute", json!(settings.recompute)),
        ("shared", json!(settings.shared)),
        ("accum", json!(settings.accum)),
        ("steps", json!(settings.steps)),
        ("warmup", json!(settings.warmup)),
        ("seed", json!(settings.seed)),
    ];
    pairs.map(|(name, value)| (name.to_string(), value)).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::cost::training;

    /// The counts that the predecessors' configurations lead to (all of them but what nothing reads in the language
    /// model's last layer are updated).
    #[test]
    fn the_recipes_train_what_the_predecessors_train() {
        let arch = Arch { state_cond: true, ..Arch::full_pi05() };
        let trained = |recipe: Recipe| {
            let names: Vec<String> = parameters(&arch).into_iter().map(|parameter| parameter.name).collect();
            let plan = plan_for(&recipe.adapter, &recipe.freeze, 0, &linears(&arch), &names).unwrap();
            let shape = Shape { batch: 1, cameras: 2, prompt: 200, suffixes: 1 };
            training(&arch, &shape, &plan, true, Dtype::Bfloat16).updated
        };
        let unread = 16.0 * (2.0 * 4096.0 + 3.0 * (2048.0 + 16_384.0));
        assert_eq!(trained(Recipe::lora(16, false)), 35_237_376.0 - unread);
        assert_eq!(trained(Recipe::lora(16, true)), 153_940_128.0 - unread - 2048.0);
        assert_eq!(trained(Recipe::full()), 3_353_433_872.0 + 2_132_992.0 - 109_053_952.0 - 2048.0);
    }
}
