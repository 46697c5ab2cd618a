//! Twenty real optimisation steps against the reference implementation: all parameters, the action expert alone,
//! adapters alone.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod parity;

use std::collections::{BTreeMap, BTreeSet};

use candle_core::{Result, Tensor};
use parity::{batch, difference, fixture, load, names, policy};
use rstest::rstest;
use serde::Deserialize;
use vlash_forge::adapter::config::PeftConfig;
use vlash_forge::adapter::peft::Adapter;
use vlash_forge::adapter::select::plan_for;
use vlash_forge::config::train::{AdapterConfig, Dtype, Freeze, LossParity, ScheduleConfig, ScheduleKind};
use vlash_forge::policy::batch::Draw;
use vlash_forge::policy::{Policy, StepOptions};
use vlash_forge::train::adamw::{AdamW, Settings};
use vlash_forge::train::clip::clip;
use vlash_forge::train::first_step;
use vlash_forge::train::schedule::Schedule;

const STEPS: usize = 20;
const BATCHES: usize = 5;

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
    fn read(name: &str) -> Trace {
        let text = std::fs::read_to_string(fixture(&format!("optimisation/training/{name}.json"))).unwrap();
        let trace: Trace = serde_json::from_str(&text).unwrap();
        assert_eq!((trace.steps, trace.loss.len()), (STEPS, STEPS));
        trace
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

fn lora_config() -> AdapterConfig {
    let targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"];
    AdapterConfig {
        enabled: true,
        rank: 8,
        alpha: 16.0,
        dropout: 0.0,
        rslora: false,
        targets: targets.map(str::to_owned).to_vec(),
        also_train: vec![],
        quantize: None,
        compute_dtype: Dtype::Float32,
    }
}

/// The policy of one mode at its first step.
fn start(mode: &str) -> Result<Policy> {
    let (modules, parameters) = names();
    let plan = |config: &AdapterConfig, freeze: &[Freeze]| plan_for(config, freeze, 0, &modules, &parameters).unwrap();
    let off = AdapterConfig { enabled: false, ..lora_config() };
    match mode {
        "full" => policy(&plan(&off, &[])),
        "expert" => policy(&plan(&off, &[Freeze::Vlm])),
        _ => {
            let policy = policy(&plan(&lora_config(), &[]))?;
            let config = PeftConfig::read(&fixture("lora/adapter-all-linear")).unwrap();
            let path = fixture("optimisation/training/lora-initial-adapter.safetensors");
            let initial = Adapter::parse(&std::fs::read(&path)?, config, None, &path).unwrap();
            initial.assign(policy.trained().iter().map(|t| (t.name.as_str(), &t.var))).unwrap();
            Ok(policy)
        }
    }
}

fn values(policy: &Policy) -> Result<BTreeMap<String, Tensor>> {
    policy.trained().iter().map(|t| Ok((t.name.clone(), t.var.copy()?))).collect()
}

/// How far a parameter may be off after some steps: what perturbing the initial weights by 1e-7 does to the
/// reference (the fixtures' README). SigLIP's key bias has rounding noise for a gradient, which Adam amplifies.
fn tolerance(name: &str) -> f64 {
    if name.ends_with("self_attn.k_proj.bias") { 1.5e-4 } else { 2.5e-5 }
}

/// Runs the steps, comparing on the way; returns the values before and the policy after.
fn train(mode: &str, trace: &Trace, file: &str) -> Result<(BTreeMap<String, Tensor>, Policy)> {
    let recorded = load(&format!("optimisation/training/{file}.safetensors"))?;
    let inputs = load("optimisation/training/batches.safetensors")?;
    let policy = start(mode)?;
    let initial = values(&policy)?;
    let settings = Settings { betas: trace.betas, eps: trace.eps, weight_decay: trace.weight_decay };
    let mut optimizer = AdamW::new(policy.trained().iter().map(|t| (t.name.clone(), t.var.clone())), settings).unwrap();
    let schedule = trace.schedule();
    let options = StepOptions { parity: LossParity::Lerobot, recompute: false, dropout_key: None, loss_scale: 1.0 };
    let mut followed = 0;
    for step in 0..STEPS {
        let (batch, targets) = batch(&inputs, &format!("batch.{}.", step % BATCHES))?;
        let draw = Draw { noise: inputs["noise"].get(step)?, time: inputs["time"].get(step)? };
        let output = policy.gradients(&batch, &targets, &draw, &options)?;
        if step == 0 {
            let expected = policy.trained().iter().map(|t| (t.name.clone(), policy.expectation(&t.name))).collect();
            first_step::check(&expected, &output.gradients).unwrap();
        }
        let clipped = clip(&output.gradients, trace.clip).unwrap();
        let lr = schedule.lr(step as u64);
        assert!((output.loss - trace.loss[step]).abs() <= 3e-5, "{mode} loss of step {step}: {}", output.loss);
        let norm = trace.grad_norm_before_clip[step];
        assert!((clipped.norm - norm).abs() <= 3e-5 * norm, "{mode} norm of step {step}: {}", clipped.norm);
        assert!((lr - trace.lr[step]).abs() <= 1e-14, "{mode} rate of step {step}");
        optimizer.step(&output.gradients, lr, clipped.coefficient).unwrap();

        let prefix = format!("after_step.{step}.");
        for (key, expected) in recorded.iter().filter(|(key, _)| key.starts_with(&prefix)) {
            let name = canonical(&key[prefix.len()..]);
            let var = &policy.trained().iter().find(|t| t.name == name).unwrap().var;
            let off = difference(var, expected)?;
            assert!(off <= tolerance(&name), "{mode}: {name} after step {step}: {off}");
            followed += 1;
        }
    }
    assert_eq!(followed, recorded.len() - 3, "every recorded parameter was compared");
    Ok((initial, policy))
}

#[rstest]
#[case("full", "trace", "final-model")]
#[case("expert", "expert-trace", "expert-final-parameters")]
#[case("lora", "lora-trace", "lora-final-adapter")]
fn twenty_steps_follow_the_reference(#[case] mode: &str, #[case] file: &str, #[case] finals: &str) -> Result<()> {
    let trace = Trace::read(file);
    let (initial, policy) = train(mode, &trace, file)?;
    let expected: BTreeMap<String, Tensor> = load(&format!("optimisation/training/{finals}.safetensors"))?
        .into_iter()
        .map(|(n, t)| (canonical(&n), t))
        .collect();
    let never: BTreeSet<String> =
        trace.parameters_without_gradient_never_updated.iter().map(|n| canonical(n)).collect();
    let (mut compared, mut untouched) = (0, 0);
    for (name, value) in values(&policy)? {
        if never.contains(&name) {
            assert_eq!(difference(&value, &initial[&name])?, 0.0, "{name} was to stand still");
            assert_eq!(difference(&value, &expected[&name])?, 0.0, "{name} stands still there as well");
            untouched += 1;
        } else {
            let off = difference(&value, &expected[&name])?;
            assert!(off <= tolerance(&name), "{mode}: {name} after all steps: {off}");
            compared += 1;
        }
    }
    // A gradient of zeros is not an absent one: nothing but decay moves the language model's last queries.
    let decay: f64 = trace.lr.iter().map(|lr| 1.0 - lr * trace.weight_decay).product();
    let zero = trace.parameters_with_exactly_zero_gradient_but_weight_decayed.iter().map(|n| canonical(n));
    let after = values(&policy)?;
    for name in zero.filter(|n| n.contains("language_model.layers.2.self_attn.q_proj")) {
        assert!(difference(&after[&name], &(&initial[&name] * decay)?)? <= 1e-6, "{name} was to decay only");
    }
    let heads = expected.keys().filter(|name| name.ends_with("lm_head.weight")).count();
    assert_eq!(compared + untouched + heads, expected.len(), "{mode}: every final tensor was compared");
    assert!(compared >= 40 && (mode == "expert" || untouched >= 6));
    Ok(())
}
