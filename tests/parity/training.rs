//! Twenty real optimisation steps: against the reference implementation, and on a device against the CPU. All
//! parameters, the action expert alone, adapters alone.

use std::collections::{BTreeMap, BTreeSet};

use candle_core::{Device, Error, Result, Tensor};
use serde::Deserialize;
use vlash_forge::adapter::config::PeftConfig;
use vlash_forge::adapter::peft::Adapter;
use vlash_forge::adapter::select::plan_for;
use vlash_forge::config::train::{AdapterConfig, Freeze, LossParity, ScheduleConfig, ScheduleKind};
use vlash_forge::policy::batch::{Batch, Draw, Targets};
use vlash_forge::policy::{Policy, StepOptions};
use vlash_forge::train::adamw::{AdamW, Settings};
use vlash_forge::train::clip::clip;
use vlash_forge::train::first_step;
use vlash_forge::train::schedule::Schedule;

use super::record::Record;
use super::{batch, difference, fixture, load, names, policy};

const STEPS: usize = 20;
const BATCHES: usize = 5;
/// Micro-batches a step, where gradients are accumulated.
const MICRO_STEPS: usize = 2;
/// On the loss; and on the gradient norm, relatively: ten times the fixtures' own sensitivity.
const LOSS: f64 = 3e-5;
const NORM: f64 = 3e-5;

/// What trains, and the reference's files about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Full,
    Expert,
    Lora,
}

impl Mode {
    pub const ALL: [Mode; 3] = [Mode::Full, Mode::Expert, Mode::Lora];

    pub fn name(self) -> &'static str {
        match self {
            Mode::Full => "full",
            Mode::Expert => "expert",
            Mode::Lora => "lora",
        }
    }

    fn trace(self) -> &'static str {
        match self {
            Mode::Full => "trace",
            Mode::Expert => "expert-trace",
            Mode::Lora => "lora-trace",
        }
    }

    fn finals(self) -> &'static str {
        match self {
            Mode::Full => "final-model",
            Mode::Expert => "expert-final-parameters",
            Mode::Lora => "lora-final-adapter",
        }
    }

    /// The policy at its first step.
    fn start(self, dropout: f64, device: &Device) -> Result<Policy> {
        let (modules, parameters) = names();
        let plan = |config: &AdapterConfig, freeze: &[Freeze]| {
            plan_for(config, freeze, 0, &modules, &parameters).map_err(Error::wrap)
        };
        let off = AdapterConfig { enabled: false, ..lora_config(0.0) };
        match self {
            Mode::Full => policy(&plan(&off, &[])?, device),
            Mode::Expert => policy(&plan(&off, &[Freeze::Vlm])?, device),
            Mode::Lora => {
                let policy = policy(&plan(&lora_config(dropout), &[])?, device)?;
                let config = PeftConfig::read(&fixture("lora/adapter-all-linear")).map_err(Error::wrap)?;
                let path = fixture("optimisation/training/lora-initial-adapter.safetensors");
                let initial = Adapter::parse(&std::fs::read(&path)?, config, None, &path).map_err(Error::wrap)?;
                initial.assign(policy.trained().iter().map(|t| (t.name.as_str(), &t.var))).map_err(Error::wrap)?;
                Ok(policy)
            }
        }
    }
}

/// What the reference writes about a run.
#[derive(Deserialize)]
struct Trace {
    steps: usize,
    peak_lr: f64,
    decay_lr: f64,
    warmup: usize,
    num_decay_steps: usize,
    betas: [f64; 2],
    eps: f64,
    weight_decay: f64,
    clip: f64,
    parameters_without_gradient_never_updated: Vec<String>,
    parameters_with_exactly_zero_gradient_but_weight_decayed: Vec<String>,
    loss: Vec<f64>,
    grad_norm_before_clip: Vec<f64>,
    lr: Vec<f64>,
}

impl Trace {
    fn read(mode: Mode) -> Result<Trace> {
        let text = std::fs::read_to_string(fixture(&format!("optimisation/training/{}.json", mode.trace())))?;
        let trace: Trace = serde_json::from_str(&text).map_err(Error::wrap)?;
        assert_eq!((trace.steps, trace.loss.len()), (STEPS, STEPS));
        Ok(trace)
    }

    fn schedule(&self) -> Schedule {
        let config = ScheduleConfig {
            kind: ScheduleKind::CosineDecayWithWarmup,
            warmup_steps: self.warmup,
            decay_steps: self.num_decay_steps,
            peak_lr: self.peak_lr,
            decay_lr: self.decay_lr,
        };
        Schedule::new(&config, self.peak_lr, self.steps)
    }
}

/// The reference's name of a parameter, as ours.
fn canonical(name: &str) -> String {
    let name = name.trim_start_matches("base_model.model.");
    name.strip_prefix("model.").unwrap_or(name).replace(".default.weight", ".weight")
}

fn lora_config(dropout: f64) -> AdapterConfig {
    let targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];
    AdapterConfig {
        enabled: true,
        rank: 8,
        alpha: 16.0,
        dropout,
        rslora: false,
        targets: targets.map(str::to_owned).to_vec(),
        also_train: vec![],
        quantize: None,
    }
}

fn parameters(policy: &Policy) -> Result<BTreeMap<String, Tensor>> {
    policy.trained().iter().map(|t| Ok((t.name.clone(), t.var.copy()?))).collect()
}

/// How far a parameter may be off after some steps: what perturbing the initial weights by 1e-7 does to the
/// reference (the fixtures' README). SigLIP's key bias has rounding noise for a gradient, which Adam amplifies.
fn tolerance(name: &str) -> (&'static str, f64) {
    if name.ends_with("self_attn.k_proj.bias") { ("key biases", 1.5e-4) } else { ("parameters", 2.5e-5) }
}

type MicroBatch = (Batch, Targets, Draw);

/// The reference's inputs: five batches in rotation, noise and time of every step.
struct Inputs(BTreeMap<String, Tensor>);

impl Inputs {
    fn read() -> Result<Inputs> {
        load("optimisation/training/batches.safetensors").map(Inputs)
    }

    /// Batch and numbers of a step, on the CPU.
    fn of(&self, step: usize) -> Result<MicroBatch> {
        let (batch, targets) = batch(&self.0, &format!("batch.{}.", step % BATCHES))?;
        let at = step % STEPS;
        Ok((batch, targets, Draw { noise: self.0["noise"].get(at)?, time: self.0["time"].get(at)? }))
    }
}

/// A policy in training.
struct Run {
    policy: Policy,
    optimizer: AdamW,
    schedule: Schedule,
    clip: f64,
    step: usize,
}

struct Stepped {
    loss: f64,
    norm: f64,
    lr: f64,
}

impl Run {
    fn start(mode: Mode, trace: &Trace, dropout: f64, device: &Device) -> Result<Run> {
        let policy = mode.start(dropout, device)?;
        let settings = Settings { betas: trace.betas, eps: trace.eps, weight_decay: trace.weight_decay };
        let parameters = policy.trained().iter().map(|t| (t.name.clone(), t.var.clone()));
        let optimizer = AdamW::new(parameters, settings).map_err(Error::wrap)?;
        Ok(Run { policy, optimizer, schedule: trace.schedule(), clip: trace.clip, step: 0 })
    }

    /// One step over the mean of `batches`; with dropout when there is a key.
    fn step(&mut self, batches: &[MicroBatch], dropout_key: Option<u64>) -> Result<Stepped> {
        let scale = 1.0 / batches.len() as f64;
        let mut gradients: BTreeMap<String, Tensor> = BTreeMap::new();
        let mut loss = 0.0;
        for (micro, (batch, targets, draw)) in batches.iter().enumerate() {
            let device = self.policy.device();
            let (batch, targets) = (batch.to_device(device)?, targets.to_device(device)?);
            let options = StepOptions {
                parity: LossParity::Lerobot,
                recompute: dropout_key.is_some(),
                dropout_key: dropout_key.map(|key| key + micro as u64),
                loss_scale: scale,
            };
            let output = self.policy.gradients(&batch, &targets, &draw.to_device(device)?, &options)?;
            loss += output.loss * scale;
            for (name, gradient) in output.gradients {
                let sum = match gradients.get(&name) {
                    Some(so_far) => (so_far + gradient)?,
                    None => gradient,
                };
                gradients.insert(name, sum);
            }
        }
        if self.step == 0 {
            first_step::check(&self.policy.first_gradients(), &gradients).map_err(Error::wrap)?;
        }
        let clipped = clip(&gradients, self.clip).map_err(Error::wrap)?;
        let lr = self.schedule.lr(self.step as u64);
        self.optimizer.step(&gradients, lr, clipped.coefficient).map_err(Error::wrap)?;
        self.step += 1;
        Ok(Stepped { loss, norm: clipped.norm, lr })
    }
}

/// Runs the reference's steps, comparing on the way; gives the values before and the policy after.
fn follow(
    mode: Mode,
    trace: &Trace,
    device: &Device,
    record: &mut Record,
) -> Result<(BTreeMap<String, Tensor>, Policy)> {
    let recorded = load(&format!("optimisation/training/{}.safetensors", mode.trace()))?;
    let inputs = Inputs::read()?;
    let mut run = Run::start(mode, trace, 0.0, device)?;
    let initial = parameters(&run.policy)?;
    let mut followed = 0;
    for step in 0..STEPS {
        let stepped = run.step(&[inputs.of(step)?], None)?;
        let norm = trace.grad_norm_before_clip[step];
        record.hold("loss", format_args!("step {step}"), (stepped.loss - trace.loss[step]).abs(), LOSS);
        record.hold("norm", format_args!("step {step}"), (stepped.norm - norm).abs() / norm, NORM);
        record.hold("rate", format_args!("step {step}"), (stepped.lr - trace.lr[step]).abs(), 1e-14);
        let prefix = format!("after_step.{step}.");
        for (key, expected) in recorded.iter().filter(|(key, _)| key.starts_with(&prefix)) {
            let name = canonical(&key[prefix.len()..]);
            let Some(trained) = run.policy.trained().iter().find(|t| t.name == name) else {
                panic!("{name} does not train")
            };
            let (what, allowed) = tolerance(&name);
            record.hold(what, format_args!("{name}, step {step}"), difference(&trained.var, expected)?, allowed);
            followed += 1;
        }
    }
    assert_eq!(followed, recorded.len() - 3, "every recorded parameter was compared");
    Ok((initial, run.policy))
}

/// Losses, norms, rates, parameters on the way and all parameters at the end.
pub fn follows_the_reference(device: &Device, mode: Mode, record: &mut Record) -> Result<()> {
    let trace = Trace::read(mode)?;
    let (initial, policy) = follow(mode, &trace, device, record)?;
    let expected: BTreeMap<String, Tensor> = load(&format!("optimisation/training/{}.safetensors", mode.finals()))?
        .into_iter()
        .map(|(n, t)| (canonical(&n), t))
        .collect();
    let never: BTreeSet<String> =
        trace.parameters_without_gradient_never_updated.iter().map(|n| canonical(n)).collect();
    let (mut compared, mut untouched) = (0, 0);
    let after = parameters(&policy)?;
    for (name, value) in &after {
        if never.contains(name) {
            assert_eq!(difference(value, &initial[name])?, 0.0, "{name} was to stand still");
            assert_eq!(difference(value, &expected[name])?, 0.0, "{name} stands still there as well");
            untouched += 1;
        } else {
            let (what, allowed) = tolerance(name);
            record.hold(what, format_args!("{name}, at the end"), difference(value, &expected[name])?, allowed);
            compared += 1;
        }
    }
    // A gradient of zeros is not an absent one: nothing but decay moves the language model's last queries.
    let decay: f64 = trace.lr.iter().map(|lr| 1.0 - lr * trace.weight_decay).product();
    let zero = trace.parameters_with_exactly_zero_gradient_but_weight_decayed.iter().map(|n| canonical(n));
    for name in zero.filter(|n| n.contains("language_model.layers.2.self_attn.q_proj")) {
        let decayed = difference(&after[&name], &(&initial[&name] * decay)?)?;
        record.hold("decay alone", &name, decayed, 1e-6);
    }
    let heads = expected.keys().filter(|name| name.ends_with("lm_head.weight")).count();
    assert_eq!(compared + untouched + heads, expected.len(), "{mode:?}: every final tensor was compared");
    assert!(compared >= 40 && (mode == Mode::Expert || untouched >= 6));
    Ok(())
}

/// The same steps on the CPU and on `device`, with recomputation, two accumulated micro-batches a step and dropout in
/// the adapters: the masks, too, must be the same.
pub fn equals_the_cpu(device: &Device, mode: Mode, record: &mut Record) -> Result<()> {
    const DROPOUT: f64 = 0.1;
    let (trace, inputs) = (Trace::read(mode)?, Inputs::read()?);
    let mut here = Run::start(mode, &trace, DROPOUT, &Device::Cpu)?;
    let mut there = Run::start(mode, &trace, DROPOUT, device)?;
    for step in 0..STEPS {
        let first = MICRO_STEPS * step;
        let batches = (first..first + MICRO_STEPS).map(|micro| inputs.of(micro)).collect::<Result<Vec<_>>>()?;
        let key = Some((1000 + first) as u64);
        let (cpu, other) = (here.step(&batches, key)?, there.step(&batches, key)?);
        record.hold("loss", format_args!("step {step}"), (other.loss - cpu.loss).abs(), LOSS);
        record.hold("norm", format_args!("step {step}"), (other.norm - cpu.norm).abs() / cpu.norm, NORM);
    }
    let (cpu, other) = (parameters(&here.policy)?, parameters(&there.policy)?);
    assert!(cpu.keys().eq(other.keys()));
    for (name, value) in &cpu {
        let (what, allowed) = tolerance(name);
        record.hold(what, name, difference(&other[name], value)?, allowed);
    }
    Ok(())
}
